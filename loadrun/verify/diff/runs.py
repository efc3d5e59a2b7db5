"""What two models run on when they are compared: testcases, the user's data, or random numbers."""

import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...base.errors import InputError, LoadRunError
from ...base.files import one_file
from ...dump import load
from ...dump.store import save_as
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...inputs.feeds import DataOptions, ModelOptions, fit_inputs, random_inputs
from ...passes.constants import bare, subgraph
from ...testcase import Bundle
from .blaming import SuspectVar
from .finding import Differences
from .matching import Matching
from .running import Stop, ends


@dataclass(frozen=True, kw_only=True)
class DiffOptions(ModelOptions, DataOptions):
    """Say on what two runs are compared; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        dump: use the N-th dump of a file that has several, counted from 1.
        testcase: use only testcase N (default: one after another until something differs).
        tolerance: largest error that counts as equal, relative to the largest value of the tensor (default 1e-4; 3.9e-3
            for values computed in float16, 3.1e-2 in bfloat16: four units in the last place).
        bisect: find the operator by bisection, with one intermediate value per run, so that the engine's fusions stay
            intact.
        range: run the model alone: fail on NaN and on absolute values above LIMIT (inf: on NaN and infinity), and name
            the operators where they first appear.
    """

    dump: int | None = None
    testcase: int | None = None
    tolerance: float | None = None
    bisect: bool = False
    range: float | None = None


@dataclass(frozen=True)
class DataRun:
    """What a model runs on: a testcase, the user's data, or random numbers."""

    feeds: Mapping[str, Array]
    ran_on: str
    testcase: int = 0
    whose: str = ""
    is_random: bool = False


def together(first: DataRun, last: DataRun) -> str:
    """Return in words what all runs from the first to the last were on."""
    if last.testcase != first.testcase:
        return f"testcases {first.testcase} to {last.testcase}{first.whose}"
    return first.ran_on


def is_results(path: Path) -> bool:
    """Return whether a file is one of `--output FILE.zip`; a .pt2 program is a zip file as well."""
    return zipfile.is_zipfile(path) and path.suffix.lower() != ".pt2"


def data_of(bundle: Bundle, against: str, options: DiffOptions, reads_onnx: bool) -> Bundle:
    """Take the reference's testcases if the model has none, and the two have the same inputs."""
    path = Path(os.path.expanduser(against))
    holds_values = not path.is_file() or path.suffix in (".npz", ".npy") or is_results(path)
    if holds_values or bundle.testcases or options.input_data is not None:
        return bundle
    other = load(one_file(against), native=True, **(options.read if reads_onnx else {}))
    alike = len(paired_inputs(other, bundle)) == len(bundle.inputs) == len(other.inputs)
    return other if other.testcases and alike else bundle


def runs_of(
    options: DiffOptions,
    model_bundle: Bundle,
    bundle: Bundle,
    model: str | os.PathLike[str],
    warn: Callable[[str], None],
) -> Iterator[DataRun]:
    """Yield what to run on: the user's data, testcases, or random numbers."""
    whose = "" if bundle is model_bundle else " of the reference"
    if options.input_data is not None:
        case = next(iter(options.cases(bundle, warn)), None)
        if case is None:
            raise InputError("--input gives no data")
        yield DataRun(fit_inputs(bundle, case), "on the data given")
        return
    count, chosen = len(bundle.testcases), options.testcase
    names = {} if bundle is model_bundle else paired_inputs(bundle, model_bundle)
    if not count:
        drawn = random_inputs(bundle, options.seed)
        yield DataRun(drawn, f"on random inputs, seed {options.seed}", is_random=True)
        return
    if chosen is not None and chosen >= count:
        raise InputError(f"{os.fspath(model)} has testcases 0 to {count - 1}, found --testcase {chosen}")
    for number in range(count) if chosen is None else (chosen,):
        feeds = {names.get(n, n): a for n, a in inputs_of(bundle, number).items()}
        yield DataRun(feeds, f"testcase {number}{whose}", number, whose=whose)


def inputs_of(bundle: Bundle, chosen: int) -> dict[str, Array]:
    """Return the inputs of a testcase, in the file's own types where the file cannot be expressed."""
    case = bundle.testcases[chosen]
    if bundle.source.refusal is None:
        return case.inputs
    values = case.file_values or {}
    dtypes = {v.name or "": v.owner.tensors[0].dtype.np for v in bundle.inputs}
    return {n: a.astype(dtypes[n]) for n, a in values.items() if n in dtypes and isinstance(a, np.ndarray)}


def paired_inputs(other: Bundle, bundle: Bundle) -> dict[str, str]:
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


_UNNAMED = "loadrun:"


def is_onnx(graph: Graph) -> bool:
    """Return whether a graph was made of an ONNX model."""
    return graph.header.magic.startswith("ONNX")


@dataclass(frozen=True)
class Written:
    """A dump's graph that was written as ONNX and read again.

    Attributes:
        graph: what was read. Only variables that stand for variables of the dump have names.
        source: these variables of the dump, by name.
    """

    graph: Graph
    source: Mapping[str, Var]

    def blamed(self, again: Differences, plain: Differences) -> Differences:
        """Take over what was found with the ONNX graph as the model under suspicion.

        Args:
            again: the ONNX graph compared with the reference.
            plain: the dump compared with it.

        Returns:
            `plain` with the suspects of `again`, if they stand for operators of the dump.
        """
        behind = self._behind()
        roots: dict[int, SuspectVar] = {}
        for root in again.roots:
            var = behind.get(root.var.id)
            if var is None or var.id in roots:
                continue
            before = {
                v.owner.id: v.owner for o in root.between for v in map(self._of, o.outputs) if v is not None
            }
            before.pop(var.owner.id, None)
            roots[var.id] = replace(
                root,
                var=var,
                between=tuple(before[i] for i in sorted(before)),
                changes=tuple(re.sub(rf"'({_UNNAMED}\d+)'", self._label, c) for c in root.changes),
            )
        if not roots:
            return plain
        matching = Matching(alike=False)
        for there in self.graph.vars():
            mine = self._of(there)
            if mine is not None and there.id in again.matching.pairs:
                matching.add(mine, again.matching.pairs[there.id], again.matching.how[there.id])
        for number, other in plain.matching.pairs.items():
            if number not in matching.pairs:
                matching.pairs[number], matching.how[number] = other, plain.matching.how[number]
        return replace(plain, roots=list(roots.values()), matching=matching)

    def named(self, again: Differences) -> Differences:
        """Name what the model lacks as the dump has it, where the dump is the reference.

        Args:
            again: the model compared with the ONNX graph.
        """
        behind = self._behind()
        roots = []
        for root in again.roots:
            missing = {
                v.owner.id: v.owner for o in root.missing for v in map(behind.get, _ids(o)) if v is not None
            }
            roots.append(replace(root, missing=tuple(missing[i] for i in sorted(missing)) or root.missing))
        return replace(again, roots=roots)

    def _label(self, named: re.Match[str]) -> str:
        return repr(self.source[named[1]].label)

    def _of(self, var: Var) -> Var | None:
        return self.source.get(var.name or "")

    def _behind(self) -> dict[int, Var]:
        """Map each variable to that of the dump for which it stands, or to the first one that is computed from it."""
        behind: dict[int, Var] = {}
        for opr in reversed(self.graph.oprs):
            for var in opr.outputs:
                source = self._of(var)
                if source is not None:
                    behind[var.id] = source
            after = next((behind[v.id] for v in opr.outputs if v.id in behind), None)
            if after is not None:
                # The readers come from the last to the first.
                behind.update((v.id, after) for v in opr.inputs if self._of(v) is None)
        return behind


def _ids(opr: Opr) -> list[int]:
    return [v.id for v in opr.outputs]


def written(graph: Graph, feeds: Mapping[str, Array], stops: Sequence[Stop] = ()) -> Written | None:
    """Write a dump's graph as ONNX for the sizes of some data, and read it again; None where it cannot be written.

    Args:
        graph: the graph, without checks.
        feeds: arrays by input name.
        stops: operators that cannot run on the data; what depends on them is left out.
    """
    copied, known = subgraph(graph, ends(graph, stops))
    named: dict[str, Var] = {}
    for var in graph.vars():
        if var.id in known and var.owner.inputs:
            name = var.name
            if not name or name in named:
                # ONNX names every value; one that the dump leaves without gets one that no model has.
                name = known[var.id].name = f"{_UNNAMED}{var.id}"
            named[name] = var
    for var in copied.inputs:
        if (array := feeds.get(var.name or "")) is not None:
            var.shape = var.owner.tensors[0].shape = array.shape
    with tempfile.TemporaryDirectory(prefix="loadrun-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "written.onnx"
        try:
            save_as(Bundle(copied), target)
            again = bare(load(target).for_data(feeds))
        except LoadRunError:
            return None
    for var in again.vars():
        if var.owner.inputs and var.name not in named:
            var.name = None
    return Written(again, named)
