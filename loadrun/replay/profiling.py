"""Operators looked at one by one: what each took, the most expensive ones, the peak of memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TextIO

from ..base.files import replacing
from ..dump import load
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..inputs.feeds import ModelOptions, random_inputs
from ..report.profile import cost_table, memory_table, trace_events
from ..testcase import Bundle
from ..verify.bench.ready import peak_memory
from .options import ProfileOptions

__all__ = ["profile_file", "write_profiles"]


def write_profiles(
    options: ProfileOptions, bundle: Bundle, feeds: Mapping[str, Array], out: TextIO, *, seed: int = 0
) -> None:
    """Run a model twice and write what its operators took the second time.

    Args:
        options: the files to write and the tables to print.
        bundle: the model.
        feeds: arrays by input name.
        out: where tables go.
        seed: seed of random operators.

    Raises:
        LoadRunError: it cannot be run.

    >>> import sys, loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> write_profiles(ProfileOptions(memory=True), bundle, bundle.testcases[0].inputs, sys.stdout)
    peak: 224 B of intermediate values, after layers.1.MatrixMul (MatrixMulV2)
    alive                             shape      bytes
    --------------------------------  -------  -------
    TANH (Elemwise)                   1x32       128 B
    layers.1.MatrixMul (MatrixMulV2)  1x24        96 B
    """
    if options.profile or options.perfetto or options.top:
        engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()), seed=seed, profile=True)
        engine.run(feeds)
        engine.run(feeds)
        profile = engine.get_profile()
        if options.profile:
            _write(options.profile, profile)
        if options.perfetto:
            _write(options.perfetto, trace_events(profile, os.path.basename(bundle.path)))
        if options.top:
            print(cost_table(profile, options.by, options.top), file=out)
    if options.memory:
        print(memory_table(peak_memory(bundle, feeds, seed)), file=out)


def profile_file(
    path: str | os.PathLike[str],
    options: ProfileOptions,
    out: TextIO,
    *,
    testcase: int | None = None,
    seed: int = 0,
    read: ModelOptions | None = None,
) -> None:
    """Profile a model on one of its testcases, or on random data where it has none; see `write_profiles`.

    Args:
        path: the file.
        options: what is written and shown; nothing is run where that is nothing.
        out: where tables go.
        testcase: which testcase, default the first.
        seed: seed of random data and random operators.
        read: what an ONNX model leaves open.

    Raises:
        LoadRunError: it cannot be read or run.

    >>> import sys
    >>> profile_file("fixtures/nets/mlp.mge", ProfileOptions(top=0), sys.stdout)
    """
    if not options.profiled:
        return
    bundle = load(path, **(read or ModelOptions()).read)
    cases = bundle.testcases
    feeds = cases[testcase or 0].inputs if len(cases) else random_inputs(bundle, seed)
    write_profiles(options, bundle.for_data(feeds), feeds, out, seed=seed)


def _write(target: str, content: object) -> None:
    text = json.dumps(content)
    if target == "-":
        print(text)
        return
    with replacing(target) as f:
        f.write(text.encode())
