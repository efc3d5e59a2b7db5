"""Comparing a model in a file with another model, stored values, an engine, or float64."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ...base.errors import EngineError, LoadRunError, UnsupportedError, UsageError
from ...base.files import one_file
from ...dump import load
from ...dump.container import load_dump
from ...dump.store import save_as
from ...engines import engine_names, file_of, runs_composites
from ...graph import Graph, Var
from ...graph.dtypes import Array, DType, dequantized
from ...ops.infer import describe
from ...passes.constants import bare
from ...testcase import Bundle
from ..saved import SavedFile, read_saved
from .changes import interface_changes, rank_changes
from .extracting import extract, fails_alone
from .finding import Differences, between
from .running import Bisected, EngineSide, FileSide, bisect
from .runs import (
    DataRun,
    DiffOptions,
    data_of,
    is_onnx,
    is_results,
    paired_inputs,
    runs_of,
    together,
    written,
)
from .stored import StoredValues, read_values
from .watching import Finding, watch

_MOST_TRIED = 8


@dataclass(frozen=True, eq=False)
class FileDifferences:
    """The result of a comparison; one of the first three is there.

    Attributes:
        differences: all that was compared.
        bisected: what halving found.
        findings: operators that make NaN, infinity or values out of range.
        ran_on: what the model ran on, in words.
        refusals: why a model could not be read to its end, where one could not: then its outputs were not compared.
        interface: how the inputs and outputs of the model are others than those of the reference; each is a failure,
            whatever the values are.
    """

    differences: Differences | None
    bisected: Bisected | None
    findings: list[Finding] | None
    ran_on: str
    refusals: tuple[str, ...]
    _graph: Graph
    _other: Graph | StoredValues | FileSide | str | None
    _feeds: Mapping[str, Array]
    _seed: int
    interface: tuple[str, ...] = ()

    @property
    def graph(self) -> Graph:
        """The model that was compared."""
        return self._graph

    @property
    def agree(self) -> bool:
        """Return whether nothing is to blame."""
        if self.refusals or self.interface:
            return False
        if self.differences is not None:
            return self.differences.agree
        return self.blamed is None and not self.findings

    @property
    def incomplete(self) -> bool:
        """Return whether outputs were left out that the reference must have; stored values may be of a part."""
        if self.differences is None or isinstance(self._other, StoredValues):
            return False
        return not self.differences.outputs_agree

    @property
    def blamed(self) -> Var | None:
        """The variable that diverges first."""
        if self.bisected is not None:
            return self.bisected.var
        roots = self.differences.roots if self.differences is not None else ()
        return roots[0].var if roots else None

    @property
    def optimized(self) -> tuple[FileSide, Mapping[str, Array]] | None:
        """The file on a runtime whose optimization is to blame, and the inputs; None where there is no such thing."""
        if (
            self.differences is None
            or not self.differences.optimized
            or not isinstance(self._other, FileSide)
        ):
            return None
        return self._other, self._feeds

    def extract(self, target: str | os.PathLike[str]) -> Var | None:
        """Write the operator to blame as a testcase of its own, if there is one.

        Suspects are tried in order; one that gives the reference's values on the reference's inputs is not guilty.

        Returns:
            the variable whose operator was written.

        Raises:
            UsageError: no suspect fails by itself, or the other side are stored values, which need not hold the
                operator's inputs.
        """
        if self.blamed is None or self._other is None:
            return None
        if isinstance(self._other, StoredValues):
            raise UsageError("--output needs all inputs of the operator: compare with a model or float64")
        suspects = self.differences.roots if self.differences is not None else []
        regions = [(r.var, r.between) for r in suspects[:_MOST_TRIED]] or [(self.blamed, ())]
        why = "it reproduces the reference's values on the reference's inputs"
        for var, before in regions:
            try:
                alone = extract(
                    self._graph,
                    var.owner,
                    self._other,
                    self._feeds,
                    before=before,
                    matching=self.differences.matching if self.differences is not None else None,
                    seed=self._seed,
                )
                if fails_alone(alone):
                    save_as(alone, target)
                    return var
            except LoadRunError as e:
                why = e.args[0]
        raise UsageError(
            f"nothing was written: no suspect fails by itself ({len(regions)} tried; "
            f"{describe(regions[-1][0].owner)}: {why})"
        )


def diff_files(
    model: str | os.PathLike[str],
    against: str | os.PathLike[str] = "float64",
    options: DiffOptions | None = None,
    *,
    warn: Callable[[str], None] = warnings.warn,
) -> FileDifferences:
    """Run a model and a reference on the same inputs and find where they first diverge.

    Args:
        model: the model under suspicion.
        against: another model; a folder of load_and_run's ``--bin_io_dump`` or of .npy files; an .npz file of values by
            variable name; results of ``--output FILE.zip``; the name of an engine; or ``float64``, the same model in
            double precision.
        options: on what, and how near is near enough.
        warn: called with what deserves a look.

    Raises:
        UsageError: there is no such file or engine.
        LoadRunError: a file cannot be read or run.

    >>> found = diff_files("fixtures/nets/mlp.mge", options=DiffOptions(tolerance=1e-4))
    >>> found.agree, found.ran_on
    (True, 'testcases 0 to 2')
    """
    options = (options or DiffOptions()).without_pipes()
    options.check_data()
    name = os.fspath(against)
    # Where both are ONNX models, they have the same inputs; a dump takes none of these options.
    against_onnx = name.lower().endswith(".onnx")
    alone = against_onnx and os.fspath(model).lower().endswith(".mge")
    bundle = load_dump(model, options.dump, native=True, **({} if alone else options.read))
    is_engine = not os.path.exists(os.path.expanduser(name)) and name.partition(":")[0] in engine_names()
    if is_engine and not runs_composites(name) and file_of(bundle, name) is None:
        bundle = bundle.lowered()
    runs = runs_of(options, bundle, data_of(bundle, name, options, against_onnx), model, warn)
    first = last = next(runs)
    compared = _compared(options, bundle, first, name, warn)
    alone = isinstance(compared._other, StoredValues) and not is_results(Path(os.path.expanduser(name)))
    if alone or compared.differences is None or not compared.agree:
        return compared
    for last in runs:
        other = _compared(options, bundle, last, name, lambda _: None)
        if not other.agree:
            return other
    return replace(compared, ran_on=together(first, last))


def _compared(
    options: DiffOptions, bundle: Bundle, run: DataRun, against: str, warn: Callable[[str], None]
) -> FileDifferences:
    """Compare on one testcase or step, or on the user's data."""
    feeds, ran_on = run.feeds, run.ran_on
    bundle = sized(bundle, feeds)
    refusals: list[str] = []
    graph = expressible(bundle, refusals, warn)
    seed = options.seed
    result = partial(FileDifferences, ran_on=ran_on, _graph=graph, _feeds=feeds, _seed=seed)
    if options.range is not None:
        findings = watch(graph, feeds, limit=options.range, seed=seed)
        return result(None, None, findings, refusals=tuple(refusals), _other=None)
    read = options.read if against.lower().endswith(".onnx") else {}
    reference = _other(against, run, read, bundle, warn)
    if options.bisect and not isinstance(reference, str):
        raise UsageError("--bisect needs an engine: name one with --against, such as onnxruntime")
    changes = (
        interface_changes(bundle, reference, paired_inputs(reference, bundle))
        if isinstance(reference, Bundle)
        else []
    )
    differences = halved = other = None
    try:
        differences, halved, other = _beside(options, bundle, graph, reference, run, against, refusals, warn)
    except LoadRunError as e:
        if not changes:
            raise
        warn(f"the values were not compared: {e.args[0]}")
    if (
        isinstance(reference, Bundle)
        and isinstance(other, Graph)
        and differences is not None
        and not refusals
    ):
        shapes = {r.var.id: r.shapes for r in differences.rows if len(r.shapes) > 1}
        theirs = {v.id for v in other.outputs}
        pairs = [(v, w) for v in graph.outputs if (w := differences.matching.pairs.get(v.id)) is not None]
        changes += rank_changes([(v, w) for v, w in pairs if w.id in theirs], bundle, reference, shapes)
    return result(
        differences,
        halved,
        None,
        refusals=tuple(refusals),
        _other=other,
        interface=tuple(changes),
    )


def _beside(
    options: DiffOptions,
    bundle: Bundle,
    graph: Graph,
    reference: Bundle | StoredValues | str,
    run: DataRun,
    against: str,
    refusals: list[str],
    warn: Callable[[str], None],
) -> tuple[Differences | None, Bisected | None, Graph | StoredValues | FileSide | str]:
    """Run the model and the reference; returns what was found, and the reference's side."""
    feeds, seed, complete = run.feeds, options.seed, not refusals
    other = (
        reference_graph(reference, bundle, feeds, refusals, warn)
        if isinstance(reference, Bundle)
        else _side(bundle, graph, reference)
    )
    if isinstance(other, StoredValues) and run.is_random:
        warn(
            f"the stored values of {against} were probably computed from other inputs than random numbers; pass those "
            "inputs with --input"
        )
    if options.bisect and isinstance(other, (str, FileSide)):
        return None, bisect(graph, other, feeds, tolerance=options.tolerance, seed=seed), other
    whole = complete, len(refusals) <= (not complete)
    compare = partial(between, feeds=feeds, tolerance=options.tolerance, seed=seed, whole=whole)
    differences = compare(graph, other)
    if isinstance(other, str) and {v.id for v in graph.outputs} - {r.var.id for r in differences.rows}:
        try:
            EngineSide(graph, other, seed).require_runs(feeds)
        except EngineError as e:
            warn(str(e))
    if isinstance(other, Graph) and (refusals or not differences.agree):
        # Which operator it is can be told best among operators of one format.
        differences, other = _in_one_format(graph, other, differences, refusals, feeds, compare)
        differences = _with_reshaped(differences, refusals)
    if refusals:
        # The model's own outputs lie behind what cannot be expressed.
        differences = replace(differences, complete=False)
    return differences, None, other


def _other(
    against: str, run: DataRun, read: Mapping[str, Any], bundle: Bundle, warn: Callable[[str], None]
) -> Bundle | StoredValues | str:
    """Read the reference.

    Raises:
        UsageError: it is neither a file nor an engine.
    """
    path = Path(os.path.expanduser(against))
    if not path.exists() and against.partition(":")[0] in engine_names():
        return against
    if path.is_dir() or path.suffix in (".npz", ".npy"):
        return read_values(path)
    if is_results(path):
        return _results(read_saved(path), run, str(path), bundle, warn)
    return load(one_file(against), native=True, **read)


def reference_graph(
    other: Bundle,
    bundle: Bundle,
    feeds: Mapping[str, Array],
    refusals: list[str],
    warn: Callable[[str], None],
) -> Graph:
    """Give another model's graph for the sizes of a model's data; its inputs get the names that they have in the model.

    Args:
        other: the other model.
        bundle: the model.
        feeds: arrays by the model's input names.
        refusals: takes why the other model cannot be expressed, if it cannot.
        warn: called where inputs were not paired by name.

    Raises:
        UsageError: an input of the other model stands for none of the model's.
    """
    path = other.path
    names = paired_inputs(other, bundle)
    if renamed := [f"{theirs!r} stands for {mine!r}" for theirs, mine in names.items() if theirs != mine]:
        warn(f"the inputs of {path} have other names: {', '.join(renamed)}, by type, shape and order")
    there = {theirs: feeds[mine] for theirs, mine in names.items() if mine in feeds}
    graph = expressible(sized(other, {**feeds, **there}), refusals, warn)
    needed = {id(o) for o in graph.needed()}
    for var in graph.inputs:
        name = names.get(var.name or "", var.name)
        (tensor,) = var.owner.tensors
        if name not in feeds and tensor.data is None and id(var.owner) in needed:
            raise UsageError(
                f"the models have other inputs: none of {', '.join(map(repr, feeds)) or 'none'} stands for "
                f"{var.name!r} ({tensor.dtype} {list(tensor.shape or ())}) of {path}"
            )
        var.name, var.owner.tensors[0] = name, replace(tensor, name=name)
    return graph


def sized(bundle: Bundle, feeds: Mapping[str, Array]) -> Bundle:
    """Take the bundle for the sizes of the data; one that cannot be expressed at these sizes says why."""
    try:
        return bundle.for_data(feeds)
    except EngineError as e:
        if e.expressible is None:
            raise
        expressible = cast("Callable[[], Graph]", e.expressible)
        source = replace(bundle.source, refusal=" ".join(str(e).split()), expressible=expressible)
        return replace(bundle, source=source)


def _in_one_format(
    graph: Graph,
    other: Graph,
    plain: Differences,
    refusals: list[str],
    feeds: Mapping[str, Array],
    compare: Callable[[Graph, Graph], Differences],
) -> tuple[Differences, Graph]:
    """Compare once more with the dump of the two as ONNX; returns the better result, and its reference."""
    if is_onnx(graph) == is_onnx(other):
        return plain, other
    source, stops = (other, plain.stops[1]) if is_onnx(graph) else (graph, plain.stops[0])
    dump = written(source, feeds, stops)
    if dump is None:
        return plain, other
    if is_onnx(graph):
        again = _with_reshaped(compare(graph, dump.graph), refusals)
        return (dump.named(again), dump.graph) if again.roots else (plain, other)
    again = compare(dump.graph, other)
    # A dump that was made of the ONNX model has its operators, but not its nodes.
    closer = not plain.roots or again.share >= plain.share
    return dump.blamed(again, plain) if closer else plain, other


def _with_reshaped(differences: Differences, refusals: list[str]) -> Differences:
    """Blame a value that only has another shape, where a model stops later and nothing else differs."""
    if not refusals or differences.roots:
        return differences
    rows = differences.rows
    return replace(differences, roots=[r for r in rows if len(set(r.shapes)) > 1 and r.how != "value"][:1])


def expressible(bundle: Bundle, refusals: list[str], warn: Callable[[str], None]) -> Graph:
    """Give a model's graph, or that of the operators that can be expressed.

    Raises:
        UnsupportedError: none can.
    """
    if bundle.source.refusal is None:
        return bare(bundle)
    if bundle.source.expressible is None:
        raise UnsupportedError(bundle.source.refusal)
    refusals.append(bundle.source.refusal)
    warn(f"{bundle.path} is compared as far as it could be translated: {bundle.source.refusal}")
    graph = bundle.source.expressible()
    graph.header.magic = bundle.graph.header.magic
    return graph


def _side(
    bundle: Bundle, graph: Graph, other: Graph | StoredValues | str
) -> Graph | StoredValues | FileSide | str:
    """Choose the reference's side; a runtime that runs files gets the model's own."""
    source = file_of(bundle, other) if isinstance(other, str) else None
    return other if source is None else FileSide(graph, source, str(other))


def _results(
    saved: list[SavedFile], run: DataRun, path: str, bundle: Bundle, warn: Callable[[str], None]
) -> StoredValues:
    """Take a testcase's outputs from a file of `--output FILE.zip`."""
    testcase = run.testcase
    expects: Mapping[str, Array] = {}
    if testcase < len(bundle.testcases):
        expects = bundle.testcases[testcase].expects
    for file in saved:
        for i, result in enumerate(file.entries):
            if result["testcase"] not in (testcase, None):
                continue
            values = []
            for about, expected, got in file.outputs(i):
                name = about["name"]
                dtype = DType(about["dtype"], float(about["scale"]), int(about["zero_point"]))
                known = expects.get(name)
                if expected is not None and known is not None and not _are_equal(expected, known):
                    warn(
                        f"{path} holds results of {file.path}, whose testcase {testcase} expects other values of "
                        f"{name!r}: they come from another model or other inputs"
                    )
                if got is not None:
                    values.append((name, dequantized(got, dtype)))
            return StoredValues(values)
    raise UsageError(f"{path} has no results of testcase {testcase}")


def _are_equal(x: Array, y: Array) -> bool:
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())
