"""Profiles of single operators: time, the most expensive ones, peak memory."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from ..base.errors import LoadRunError, clean
from ..base.writing import text_file
from ..dump import load
from ..engines import runs_file
from ..engines.profile import profile_data
from ..engines.reference import ReferenceEngine
from ..inputs.feeds import ModelOptions, random_inputs
from ..report.graph import GraphMarks, model_element
from ..report.profile import cost_table, memory_table, trace_events
from ..runner import Runner
from ..testcase import Bundle, FileValue
from ..verify.bench.running import peak_memory
from .options import ProfileOptions

_RUNS, _SECONDS = 5, 1.0
"""How often an operator is timed, of which the least counts; fewer where runs take this long together."""


def write_profiles(
    options: ProfileOptions,
    bundle: Bundle,
    feeds: Mapping[str, FileValue],
    out: TextIO,
    *,
    seed: int = 0,
    engine: str = "reference",
) -> None:
    """Run a model twice and write what its operators took the second time.

    Args:
        options: the files to write and the tables to print.
        bundle: the model.
        feeds: arrays by input name.
        out: where tables go, below a line that names the model and what executed it.
        seed: seed of random operators.
        engine: what executes the model. The peak of memory is that of the reference engine in any case, and so are the
            times where the engine has no profiler of its own.

    Raises:
        LoadRunError: it cannot be run.

    >>> import sys, loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> write_profiles(ProfileOptions(memory=True), bundle, bundle.testcases[0].inputs, sys.stdout)
    memory of mlp.mge on the reference engine
    peak: 224 B of intermediate values, after layers.1.MatrixMul (MatrixMulV2)
    alive                             shape      bytes
    --------------------------------  -------  -------
    TANH (Elemwise)                   1x32       128 B
    layers.1.MatrixMul (MatrixMulV2)  1x24        96 B
    """
    model = clean(os.path.basename(bundle.path) or "the model", 80)
    if options.profile or options.perfetto or options.top:
        profiles, name = _measured(bundle, feeds, seed, engine)
        profile = profiles[-1]
        if options.profile:
            _write(options.profile, profile)
        if options.perfetto:
            _write(options.perfetto, trace_events(profile, f"{model} on {name}"))
        if options.top:
            print(f"operators of {model} on {name}, the least time of {len(profiles)} runs", file=out)
            print(cost_table(_least(profiles), options.by, options.top), file=out)
    if options.memory:
        arrays = {n: v for n, v in feeds.items() if isinstance(v, np.ndarray)}
        print(f"memory of {model} on the reference engine", file=out)
        print(memory_table(peak_memory(bundle.for_data(arrays), arrays, seed)), file=out)


def _measured(
    bundle: Bundle, feeds: Mapping[str, FileValue], seed: int, engine: str
) -> tuple[list[dict[str, Any]], str]:
    """Return profiles of several runs after the first, and what executed them."""
    why = ""
    if engine != "reference":
        runner = Runner(bundle, engine, seed=seed, profile=True)
        runner.run(feeds)

        def executed() -> dict[str, Any] | None:
            runner.run(feeds)
            found = runner.executed()
            return None if found is None else profile_data(found)

        profiles = _repeated(executed)
        if profiles:
            return profiles, runner.about.text
        why = f" ({clean(engine, 40)} has no profiler)"
    return _by_reference(bundle, feeds, seed)[1], f"the reference engine{why}"


def _by_reference(
    bundle: Bundle, feeds: Mapping[str, FileValue], seed: int
) -> tuple[Bundle, list[dict[str, Any]]]:
    """Return the model at the sizes of the data, and profiles of the reference engine."""
    arrays = {n: v for n, v in feeds.items() if isinstance(v, np.ndarray)}
    sized = bundle.for_data(arrays)
    reference = ReferenceEngine(sized.graph, list(sized.outputs.values()), seed=seed, profile=True)
    reference.run(arrays)

    def profiled() -> dict[str, Any]:
        reference.run(arrays)
        return reference.get_profile()

    return sized, _repeated(profiled)


def _repeated(profiled: Callable[[], dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Return some profiles, fewer of what takes long, and none where the engine has no profiler."""
    profiles: list[dict[str, Any]] = []
    start = time.perf_counter()
    while len(profiles) < _RUNS and (not profiles or time.perf_counter() - start < _SECONDS):
        profile = profiled()
        if profile is None:
            break
        profiles.append(profile)
    return profiles


def _least(profiles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a profile with the least time that each operator took: other load makes times longer, never shorter."""
    devices = [p["profiler"]["device"] for p in profiles]

    def seconds(times: dict[str, dict[str, float]]) -> float:
        return sum(t["end"] - t["start"] for t in times.values())

    least = {key: min((d[key] for d in devices if key in d), key=seconds) for key in devices[-1]}
    return {**profiles[-1], "profiler": {**profiles[-1]["profiler"], "device": least}}


def profile_file(
    path: str | os.PathLike[str],
    options: ProfileOptions,
    out: TextIO,
    *,
    testcase: int | None = None,
    seed: int = 0,
    read: ModelOptions | None = None,
    engine: str = "reference",
) -> None:
    """Profile a model on one of its testcases, or on random data where it has none; see `write_profiles`.

    Args:
        path: the file.
        options: what is written and shown; nothing is run where that is nothing.
        out: where tables go.
        testcase: which testcase, default the first.
        seed: seed of random data and random operators.
        read: what an ONNX model leaves open.
        engine: what executes it.

    Raises:
        LoadRunError: it cannot be read or run.

    >>> import sys
    >>> profile_file("fixtures/nets/mlp.mge", ProfileOptions(top=0), sys.stdout)
    """
    if not options.profiled:
        return
    bundle = load(path, native=runs_file(engine), **(read or ModelOptions()).read)
    cases = bundle.testcases
    feeds = cases[testcase or 0].inputs if len(cases) else random_inputs(bundle, seed)
    write_profiles(options, bundle, feeds, out, seed=seed, engine=engine)


def timed_graph(
    path: str | os.PathLike[str],
    *,
    testcase: int | None = None,
    seed: int = 0,
    read: ModelOptions | None = None,
) -> str:
    """Return a model's graph for a page, coloured by what its operators take on the reference engine.

    Args:
        path: the file.
        testcase: which testcase it runs on, default the first.
        seed: seed of random data and random operators.
        read: what an ONNX model leaves open.

    Returns:
        empty where the reference engine does not run it.

    >>> timed_graph("fixtures/nets/mlp.mge").count('"m":') > 10
    True
    """
    try:
        bundle = load(path, **(read or ModelOptions()).read)
        cases = bundle.testcases
        feeds = cases[testcase or 0].inputs if len(cases) else random_inputs(bundle, seed)
        sized, profiles = _by_reference(bundle, feeds, seed)
    except LoadRunError:
        return ""
    device = _least(profiles)["profiler"]["device"]
    seconds = {
        int(key): sum(t["end"] - t["start"] for t in device[key].values()) for key in device if key.isdigit()
    }
    return model_element(sized, GraphMarks(seconds=seconds))


def _write(target: str, content: object) -> None:
    with text_file(target) as f:
        print(json.dumps(content), file=f)
