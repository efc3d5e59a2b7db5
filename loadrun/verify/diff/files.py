"""Comparing a model in a file with another model, stored values, an engine, or float64."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...base.arguments import typed
from ...base.errors import EngineError, InputError, LoadRunError, UnsupportedError, UsageError
from ...base.files import one_file
from ...base.records import dataclass
from ...dump import load
from ...dump.choosing import load_dump, save_as
from ...engines import engine_names, file_of, runs_composites
from ...graph import Graph, Var
from ...graph.dtypes import Array, DType
from ...inputs.feeds import DataOptions, ModelOptions, fit_inputs, random_inputs
from ...ops.infer import describe
from ...passes.constants import bare
from ...runner import Runner
from ...testcase import Bundle, Testcase
from ..saved import SavedFile, read_saved
from .across import is_onnx, written
from .bisecting import Bisected, bisect
from .extracting import extract, fails_alone
from .finding import Differences, between
from .measuring import real
from .running import FileSide
from .stored import StoredValues, read_values
from .watching import Finding, watch

__all__ = [
    "DiffOptions",
    "FileDifferences",
    "diff_files",
    "expressible",
    "inputs_of",
    "reference_graph",
    "sized",
]

_MOST_TRIED = 8
_NOT_REACHED = -1
"""Represents outputs without a variable."""


@typed
@dataclass(frozen=True, kw_only=True)
class DiffOptions(ModelOptions, DataOptions):
    """Say on what two runs are compared; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        dump: which dump of a file that holds several, from 1.
        testcase: which testcase's inputs are taken where no data is given; None takes all of them in turn, up to the
            first on which something differs.
        tolerance: how far a value may be off, relative to the largest value of its tensor; None takes 1e-4, and more
            for what is computed in float16 or bfloat16 (`Tolerances`).
        bisect: whether an engine is asked for one intermediate value in each run, and what is left halved each time.
        check_finite: whether the model runs alone and operators are named that make NaN or infinity.
        range: the greatest absolute value; the model runs alone and operators are named that make greater ones.
    """

    dump: int | None = None
    testcase: int | None = None
    tolerance: float | None = None
    bisect: bool = False
    check_finite: bool = False
    range: float | None = None


@dataclass(frozen=True, eq=False)
class FileDifferences:
    """The result of a comparison; one of the first three is there.

    Attributes:
        differences: all that was compared.
        bisected: what halving found.
        findings: operators that make NaN, infinity or values out of range.
        ran_on: what the model ran on, in words.
        refusals: why a model could not be read to its end, where one could not: then its outputs were not compared.
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

    @property
    def agree(self) -> bool:
        """Return whether nothing is to blame."""
        if self.refusals:
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
            raise UsageError("--extract needs all inputs of the operator: compare with a model or float64")
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


@typed
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
            variable name; results of ``--save-results``; the name of an engine; or ``float64``, the same model in
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
    if _is_engine(name) and not runs_composites(name) and file_of(bundle, name) is None:
        bundle = bundle.lowered()
    runs = _runs(options, bundle, _data_of(bundle, name, options, against_onnx), model, warn)
    first = last = next(runs)
    compared = _compared(options, bundle, first, name, warn)
    alone = isinstance(compared._other, StoredValues) and not _is_results(Path(os.path.expanduser(name)))
    if alone or compared.differences is None or not compared.agree:
        return compared
    for last in runs:
        other = _compared(options, bundle, last, name, lambda _: None)
        if not other.agree:
            return other
    return replace(compared, ran_on=_together(first, last))


@dataclass(frozen=True)
class _Run:
    """What a model runs on: a testcase or a step of one, the user's data, or random numbers."""

    feeds: Mapping[str, Array]
    ran_on: str
    testcase: int = 0
    step: int | None = None
    whose: str = ""
    is_random: bool = False


def _together(first: _Run, last: _Run) -> str:
    """Return in words what all runs from the first to the last were on."""
    if last.testcase != first.testcase:
        return f"testcases {first.testcase} to {last.testcase}{first.whose}"
    return (
        first.ran_on if last is first else f"testcase {first.testcase}{first.whose}, steps 0 to {last.step}"
    )


def _compared(
    options: DiffOptions, bundle: Bundle, run: _Run, against: str, warn: Callable[[str], None]
) -> FileDifferences:
    """Compare on one testcase or step, or on the user's data."""
    feeds, ran_on = run.feeds, run.ran_on
    bundle = sized(bundle, feeds)
    refusals: list[str] = []
    graph = expressible(bundle, refusals, warn)
    own = not refusals
    seed = options.seed
    if options.check_finite or options.range is not None:
        findings = watch(graph, feeds, limit=options.range, seed=seed)
        return FileDifferences(None, None, findings, ran_on, tuple(refusals), graph, None, feeds, seed)
    read = options.read if against.lower().endswith(".onnx") else {}
    other = _side(bundle, graph, _other(against, run, read, bundle, refusals, warn))
    if isinstance(other, StoredValues) and run.is_random:
        warn(
            f"the stored values of {against} were hardly computed from random inputs: give theirs with --input"
        )
    if not options.bisect:
        whole = own, len(refusals) <= (not own)
        compare = partial(between, feeds=feeds, tolerance=options.tolerance, seed=seed, whole=whole)
        differences = compare(graph, other)
        if isinstance(other, Graph) and (refusals or not differences.agree):
            # Which operator it is can be told best among operators of one format.
            differences, other = _in_one_format(graph, other, differences, refusals, feeds, compare)
            differences = _with_reshaped(differences, refusals)
        if refusals:
            # The model's own outputs lie behind what cannot be expressed.
            differences = replace(differences, outputs=differences.outputs | {_NOT_REACHED})
        return FileDifferences(differences, None, None, ran_on, tuple(refusals), graph, other, feeds, seed)
    if not isinstance(other, (str, FileSide)):
        raise UsageError("--bisect needs an engine: name one with --against, such as onnxruntime")
    halved = bisect(graph, other, feeds, tolerance=options.tolerance, seed=seed)
    return FileDifferences(None, halved, None, ran_on, tuple(refusals), graph, other, feeds, seed)


def _is_engine(against: str) -> bool:
    return not os.path.exists(os.path.expanduser(against)) and against.partition(":")[0] in engine_names()


def _is_results(path: Path) -> bool:
    """Return whether a file is one of `--save-results`; a .pt2 program is a zip file as well."""
    return zipfile.is_zipfile(path) and path.suffix.lower() != ".pt2"


def _data_of(bundle: Bundle, against: str, options: DiffOptions, reads_onnx: bool) -> Bundle:
    """Take the reference's testcases if the model has none, and the two have the same inputs."""
    path = Path(os.path.expanduser(against))
    holds_values = not path.is_file() or path.suffix in (".npz", ".npy") or _is_results(path)
    if holds_values or bundle.testcases or options.input_data is not None:
        return bundle
    other = load(one_file(against), native=True, **(options.read if reads_onnx else {}))
    alike = len(_paired_inputs(other, bundle)) == len(bundle.inputs) == len(other.inputs)
    return other if other.testcases and alike else bundle


def _runs(
    options: DiffOptions,
    model_bundle: Bundle,
    bundle: Bundle,
    model: str | os.PathLike[str],
    warn: Callable[[str], None],
) -> Iterator[_Run]:
    """Yield what to run on: the user's data, testcases with their steps, or random numbers."""
    whose = "" if bundle is model_bundle else " of the reference"
    if options.input_data is not None:
        case = next(iter(options.cases(bundle, warn)), None)
        if case is None:
            raise InputError("--input gives no data")
        yield _Run(fit_inputs(bundle, case), "on the data given")
        return
    count, chosen = len(bundle.testcases), options.testcase
    names = {} if bundle is model_bundle else _paired_inputs(bundle, model_bundle)
    if not count:
        drawn = random_inputs(bundle, options.seed)
        yield _Run(drawn, f"on random inputs, seed {options.seed}", is_random=True)
        return
    if chosen is not None and chosen >= count:
        raise InputError(f"{os.fspath(model)} has testcases 0 to {count - 1}, found --testcase {chosen}")
    for number in range(count) if chosen is None else (chosen,):
        for k, arrays in enumerate(inputs_of(bundle, number, options.seed)):
            feeds = {names.get(n, n): a for n, a in arrays.items()}
            if number in bundle.scenarios:
                yield _Run(feeds, f"testcase {number}{whose}, step {k}", number, k, whose)
            else:
                yield _Run(feeds, f"testcase {number}{whose}", number, whose=whose)


def inputs_of(bundle: Bundle, chosen: int, seed: int) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs of a testcase, or of each step of a scenario; states are what the reference engine computes.

    Those of a file that cannot be expressed are in the file's own types; of its scenarios there is the first step.
    """
    case = bundle.testcases[chosen]
    if bundle.refusal is None:
        steps = Runner(bundle, seed=seed).steps_fed(case) if case.steps else [case.arrays]
        yield from (Testcase(dict(arrays), case.dtypes).inputs for arrays in steps)
        return
    own = case.own or {}
    dtypes = {v.name or "": v.owner.tensors[0].dtype.np for v in bundle.inputs}
    yield {n: a.astype(dtypes[n]) for n, a in own.items() if n in dtypes and isinstance(a, np.ndarray)}


def _other(
    against: str,
    run: _Run,
    read: Mapping[str, Any],
    bundle: Bundle,
    refusals: list[str],
    warn: Callable[[str], None],
) -> Graph | StoredValues | str:
    """Read the reference, for the sizes of the data.

    Raises:
        UsageError: it is neither a file nor an engine.
    """
    path = Path(os.path.expanduser(against))
    if not path.exists() and against.partition(":")[0] in engine_names():
        return against
    if path.is_dir() or path.suffix in (".npz", ".npy"):
        return read_values(path)
    if _is_results(path):
        return _results(read_saved(path), run, str(path), bundle, warn)
    return reference_graph(against, bundle, run.feeds, read, refusals, warn)


def reference_graph(
    path: str,
    bundle: Bundle,
    feeds: Mapping[str, Array],
    read: Mapping[str, Any],
    refusals: list[str],
    warn: Callable[[str], None],
) -> Graph:
    """Read another model for the sizes of a model's data; its inputs get the names that they have in the model.

    Args:
        path: the other model.
        bundle: the model.
        feeds: arrays by the model's input names.
        read: how ONNX models are read.
        refusals: takes why the other model cannot be expressed, if it cannot.
        warn: called where inputs were not paired by name.

    Raises:
        UsageError: an input of the other model stands for none of the model's.
    """
    other = load(one_file(path), native=True, **read)
    names = _paired_inputs(other, bundle)
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


def _paired_inputs(other: Bundle, bundle: Bundle) -> dict[str, str]:
    """Map the names of a model's inputs to those of another one, whose inputs they are by name or else by order.

    Of the inputs whose names the models do not share, each stands for the first one of its type and number of axes,
    and of its shape where there is one.
    """
    theirs, mine = (sorted(b.inputs, key=lambda v: v.id) for b in (other, bundle))
    names = {v.name or "" for v in theirs} & {v.name or "" for v in mine}
    paired = {n: n for n in names}
    left, right = ([v for v in inputs if v.name not in names] for inputs in (theirs, mine))
    if len(left) != len(right):
        return paired
    for var in left:
        tensor = var.owner.tensors[0]
        fits = [
            (tensor.shape != there.shape, i)
            for i, there in enumerate(v.owner.tensors[0] for v in right)
            if tensor.dtype.np.kind == there.dtype.np.kind
            and len(tensor.shape or ()) == len(there.shape or ())
        ]
        if not fits:
            return {n: n for n in names}
        paired[var.name or ""] = right.pop(min(fits)[1]).name or ""
    return paired


def sized(bundle: Bundle, feeds: Mapping[str, Array]) -> Bundle:
    """Take the bundle for the sizes of the data; one that cannot be expressed at these sizes says why."""
    try:
        return bundle.for_data(feeds)
    except EngineError as e:
        if e.expressible is None:
            raise
        return replace(
            bundle, refusal=" ".join(str(e).split()), expressible=cast("Callable[[], Graph]", e.expressible)
        )


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
        return (again, dump.graph) if again.roots else (plain, other)
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
    if bundle.refusal is None:
        return bare(bundle)
    if bundle.expressible is None:
        raise UnsupportedError(bundle.refusal)
    refusals.append(bundle.refusal)
    warn(f"{bundle.path} is compared as far as it could be translated: {bundle.refusal}")
    graph = bundle.expressible()
    graph.magic = bundle.graph.magic
    return graph


def _side(
    bundle: Bundle, graph: Graph, other: Graph | StoredValues | str
) -> Graph | StoredValues | FileSide | str:
    """Choose the reference's side; a runtime that runs files gets the model's own."""
    source = file_of(bundle, other) if isinstance(other, str) else None
    return other if source is None else FileSide(graph, source, str(other))


def _results(
    saved: list[SavedFile], run: _Run, path: str, bundle: Bundle, warn: Callable[[str], None]
) -> StoredValues:
    """Take a testcase's outputs from a file of `--save-results`."""
    testcase = run.testcase
    expects: Mapping[str, Array] = {}
    if testcase < len(bundle.testcases):
        case = bundle.testcases[testcase]
        expects = Testcase(dict(case.steps[run.step - 1])).expects if run.step else case.expects
    # Results of scenarios name the step as well.
    ending = "" if run.step is None else f"@{run.step}"
    for file in saved:
        for i in range(len(file)):
            if file.about(i)["testcase"] not in (testcase, None):
                continue
            values = []
            for about, expected, got in file.outputs(i):
                if not about["name"].endswith(ending):
                    continue
                name = about["name"].removesuffix(ending)
                dtype = DType(about["dtype"], float(about["scale"]), int(about["zero_point"]))
                known = expects.get(name)
                if expected is not None and known is not None and not _are_equal(expected, known):
                    warn(
                        f"{path} holds results of {file.path}, whose testcase {testcase} expects other values of "
                        f"{name!r}: they come from another model or other inputs"
                    )
                if got is not None:
                    values.append((name, real(got, dtype)))
            return StoredValues(values)
    raise UsageError(f"{path} has no results of testcase {testcase}")


def _are_equal(x: Array, y: Array) -> bool:
    return x.shape == y.shape and bool(((x == y) | ((x != x) & (y != y))).all())
