"""A graph as a file: optimized, packed with testcases, replayed before it takes its place."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, BinaryIO

from ..base.errors import UsageAssertionError
from ..dump import save
from ..dump.options import DumpOptions, DumpResult
from ..graph import Graph
from ..inputs.lists import TextSource
from ..inputs.loading import load_cases
from ..passes.inference import optimize_for_inference
from ..testcase import Bundle
from ..verify.pack.packing import Packer
from ..verify.pack.replaying import TrialReplay
from .naming import rename_outputs

__all__ = ["check_older", "dump_graph"]


def dump_graph(
    graph: Graph,
    file: str | os.PathLike[str] | BinaryIO,
    options: DumpOptions,
    *,
    input_data: str | Iterable[str] | None,
    passes: Mapping[str, Any] | None,
    packing: Mapping[str, Any],
    loading: Mapping[str, Any],
    replay: bool = True,
) -> DumpResult:
    """Write a graph, packed with testcases where there is input data.

    Args:
        passes: keywords of `loadrun.passes.inference.optimize_for_inference`, None for no optimization.
        packing: keywords of `Packer`.
        loading: keywords of `load_cases`.
        replay: whether testcases are replayed before the file takes its place.

    Raises:
        FormatError: with testcases, it does not run.
    """
    finish = partial(_optimized, passes=passes)
    if input_data is None:
        return save(finish(graph), file, options)
    specs = [input_data] if isinstance(input_data, str) else list(input_data)
    if not specs:
        raise UsageAssertionError("testcases can not be empty: input_data holds no specification")
    warn = partial(warnings.warn, stacklevel=4)
    packer = Packer(Bundle(graph), **packing, finish=finish, warn=warn)
    cases = load_cases(specs, Bundle(graph).inputs, **loading, warn=warn)
    written = TrialReplay() if replay else None
    result = packer.pack(
        cases, file, options, where=TextSource(specs), inspect=written.look if written else None
    )
    if written is not None and (text := written.warning()) is not None:
        warn(text)
    return result


def _optimized(graph: Graph, passes: Mapping[str, Any] | None) -> Graph:
    if passes is None:
        return graph
    made, bits = optimize_for_inference(graph, **passes)
    rename_outputs(graph, made)
    if made.metadata is not None:
        made.metadata.optimize_options = bits
    return made


def check_older(version: str, no_change_graph: bool, dump_format: str | None) -> None:
    """Refuse options that ``compat_older_version`` excludes."""
    if version != "8.14":
        raise UsageAssertionError(
            f"Forward compatibility for older version only support 8.14 currently, found {version!r}"
        )
    if no_change_graph:
        raise UsageAssertionError(
            "compat_older_version rewrites newer operators, which no_change_graph forbids"
        )
    if dump_format != "FBS":
        raise UsageAssertionError(
            "forward compatibility for older version only works when dump_format is FBS, found "
            f"{dump_format!r}"
        )
