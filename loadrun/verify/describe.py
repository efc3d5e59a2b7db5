"""Files described: inputs, outputs, operators with shapes, FLOPs, testcases, and what of them an engine runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Generic, TypeVar

from ..base.about import About
from ..base.errors import Failure, LoadRunError, failure
from ..base.files import files_of
from ..base.limits import memory_limited, time_limited
from ..compare.judging import policy_for
from ..compare.record import header, packed_policies
from ..dump import load_all
from ..dump.history import release
from ..engines import runs_file
from ..graph import Opr, Var
from ..graph.dtypes import dtype_of, nbytes
from ..graph.params import IndexDescMaskDump, Record
from ..inputs.feeds import ModelOptions
from ..ops.catalog import CATALOG, TypeParam
from ..ops.infer import Inference, infer_dtypes, infer_shapes
from ..runner import Runner
from ..testcase import EXPECT, Bundle
from .cautions import cautions

_OPTIONS = (
    *("io16xc32", "ioc16", "fuse_conv_bias_nonlinearity", "fuse_conv_bias_with_z"),
    *("weight_preprocess", "fuse_preprocess", "fuse_grain"),
)
_EVENT = 4
"""Maximum values shown per acceptance."""
_FLAGS = ("begin", "end", "step", "idx")
_LAYOUTS = ("", "nchw4", "nhwcd4", "nchw88", "nchw44", "nchw44_dot", "nchw32", "chwn4", "nchw64")


@dataclass(frozen=True)
class VarInfo:
    """A variable: name, shape (None when it depends on data) and dtype."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str


@dataclass(frozen=True)
class OprInfo:
    """An operator of the model.

    Attributes:
        parameters: changed fields of its parameter records.
        outputs: those that something reads, or that are outputs of the model; all where there are none.
        flops: operations for the file's input shapes, None when a shape is unknown.
        weights: elements of constants that it reads.
    """

    id: int
    type: str
    name: str | None
    inputs: tuple[VarInfo, ...]
    outputs: tuple[VarInfo, ...]
    parameters: str
    flops: int | None
    weights: int


@dataclass(frozen=True)
class CheckInfo:
    """An embedded check: the output's name, its tolerance, whether MegEngine prints its error, the file's policy."""

    output: str
    maxerr: float
    verbose: bool
    policy: str = ""


@dataclass(frozen=True)
class FileInfo:
    """What a file is: its kind, the release of MegEngine that wrote it, and how many bytes it has."""

    path: str
    format: str
    magic: str
    mge_version: str
    size: int


@dataclass(frozen=True)
class ModelInfo:
    """What a graph holds.

    Attributes:
        parameters: elements of all constants that the outputs depend on.
        parameter_bytes: what they take in the file.
        flops: sum over operators, a multiply-add counts two; operators of unknown shape are left out.
        unknown: operators whose shapes depend on data, and so have no FLOP count.
    """

    inputs: tuple[VarInfo, ...]
    outputs: tuple[VarInfo, ...]
    operators: tuple[OprInfo, ...]
    counts: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    flops: int
    unknown: int


@dataclass(frozen=True)
class Description:
    """A file at a glance: what it is, the model and its testcases.

    Attributes:
        problems: why shapes or dtypes could not be followed, or a testcase not be read.
        cases: the arrays of every testcase, expected values among them.
        provenance: where the testcases come from: engine, seed, versions and time, as the file's record says.
        accepted: who accepted new expected values, when and why, a sentence each.
    """

    file: FileInfo
    model: ModelInfo
    testcases: int
    checks: tuple[CheckInfo, ...]
    metadata: Mapping[str, object] | None
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    cases: tuple[tuple[VarInfo, ...], ...]
    provenance: Mapping[str, object] | None
    accepted: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """Return what JSON says of the file, all on one level."""
        parts = dict(vars(self))
        return {**vars(parts.pop("file")), **vars(parts.pop("model")), **parts}


def describe(bundle: Bundle) -> Description:
    """Describe a bundle without running it; vendor operators and unknown shapes are shown as such.

    >>> import loadrun
    >>> d = describe(loadrun.load("fixtures/nets/mlp.mge"))
    >>> [v.name for v in d.model.inputs], d.testcases
    (['data'], 3)
    """
    graph = bundle.graph
    oprs = [o for o in graph.needed(bundle.outputs.values()) if not _is_expect(o)]
    known, problems = inferred(bundle, oprs)
    cases, damaged = _cases(bundle)
    meta = graph.header.metadata
    policies, _ = packed_policies(bundle.record)
    taken = [bundle.source.taken] if bundle.source.taken and not len(bundle.testcases) else []
    return Description(
        file=FileInfo(
            path=bundle.path,
            format="ONNX" if graph.header.magic.startswith("ONNX") else graph.header.format,
            magic=graph.header.magic,
            mge_version=release(graph.header.mge_version),
            size=bundle.facts.size,
        ),
        model=_model(bundle, oprs, known),
        testcases=len(bundle.testcases),
        checks=tuple(
            CheckInfo(c.name, c.maxerr, c.verbose, policy_for(policies, c.name).text) for c in bundle.checks
        ),
        metadata=None
        if meta is None
        else {
            "is_valid": meta.is_valid,
            "graph_modified": meta.graph_modified,
            "optimize_options": options(meta.optimize_options),
            "user_info_bytes": len(meta.user_info or b""),
        },
        warnings=(*bundle.warnings, *cautions(oprs), *taken),
        problems=(*problems, *damaged),
        cases=tuple(cases),
        provenance=header(bundle.record).get("provenance"),
        accepted=tuple(_accepted(bundle)),
    )


def _model(bundle: Bundle, oprs: list[Opr], known: Inference) -> ModelInfo:
    outputs = bundle.outputs
    read = {v.id for o in oprs for v in o.inputs} | {v.id for v in outputs.values()}
    infos = tuple(_opr(o, known, read) for o in oprs if CATALOG[o.type].category != "io")
    constants = [t for o in oprs if o.type != "Host2DeviceCopy" for t in o.tensors]
    return ModelInfo(
        inputs=tuple(_var(v, known) for v in bundle.inputs),
        outputs=tuple(VarInfo(n, known.shapes.get(v.id, v.shape), _dtype(v)) for n, v in outputs.items()),
        operators=infos,
        counts=dict(Counter(o.type for o in oprs).most_common()),
        parameters=sum(prod(t.shape or ()) for t in constants),
        parameter_bytes=sum(nbytes(t.shape or (), t.dtype) for t in constants),
        flops=sum(known.flops.values()),
        unknown=sum(i.flops is None for i in infos),
    )


def options(bits: int) -> list[str]:
    """Names of the optimization options that a dump was made with.

    >>> options(64 | 1 << 32)
    ['fuse_grain', 'nchw4']
    """
    names = [name for i, name in enumerate(_OPTIONS) if bits >> i & 1]
    layout = bits >> 32
    if layout:
        names.append(_LAYOUTS[layout] if layout < len(_LAYOUTS) else f"layout {layout}")
    return names


def inferred(bundle: Bundle, oprs: list[Opr]) -> tuple[Inference, list[str]]:
    """Infer shapes up to the first operator that fails, and return why it does."""
    problems = []
    usable = oprs
    for i, opr in enumerate(oprs):
        try:
            infer_dtypes([opr])
        except LoadRunError as e:
            problems.append(str(e))
            usable = oprs[:i]
            break
    try:
        return infer_shapes(bundle.graph, usable), problems
    except LoadRunError as e:
        return Inference(), [*problems, str(e)]


def _is_expect(opr: Opr) -> bool:
    return opr.type == "Host2DeviceCopy" and (opr.outputs[0].name or "").endswith(EXPECT)


def attributes(opr: Opr) -> list[str]:
    """Return the parameter records of an operator that have other than default values, as text."""
    return [r for r in (_shown(opr, p) for p in opr.params) if not r.endswith("()")]


def _shown(opr: Opr, param: Record) -> str:
    """Show a parameter record as text; what is indexed as Python writes it, dtypes with their scale."""
    if isinstance(param, TypeParam) and repr(param) != "TypeParam()":
        return f"TypeParam(dtype={param.dtype.text})"
    return _subscript(opr, param) if isinstance(param, IndexDescMaskDump) else repr(param)


def _subscript(opr: Opr, param: IndexDescMaskDump) -> str:
    """``x[:, 1:5]``, with the names of index inputs that are not constant numbers."""
    flags = [(item.axis, flag) for item in param.items for flag in _FLAGS if getattr(item, flag)]
    if len(flags) > len(opr.inputs):  # a file that no engine takes; `info` shows what it says
        return repr(param)
    operands = dict(zip(flags, opr.inputs[len(opr.inputs) - len(flags) :], strict=True))
    axes: dict[int, str] = {}
    for item in param.items:
        begin, end, step, index = (_index(operands[item.axis, f]) if getattr(item, f) else "" for f in _FLAGS)
        axes[item.axis] = index or f"{begin}:{end}" + (f":{step}" if step else "")
    if any(a < 0 for a in axes):
        return ", ".join(f"axis {a}: [{text}]" for a, text in axes.items())
    return f"x[{', '.join(axes.get(a, ':') for a in range(max(axes, default=-1) + 1))}]"


def _index(var: Var) -> str:
    """Show a number of an index, or the name of what holds it."""
    opr = var.owner
    if opr.tensors and opr.type != "Host2DeviceCopy" and opr.tensors[var.index].data is not None:
        value = opr.tensors[var.index].value()
        if value.size == 1:
            return str(value.reshape(-1)[0])
    return var.name or "index"


def _cases(bundle: Bundle) -> tuple[list[tuple[VarInfo, ...]], list[str]]:
    """Describe what the testcases hold, and why one cannot be read."""
    cases: list[tuple[VarInfo, ...]] = []
    for i in range(len(bundle.testcases)):
        try:
            case = bundle.testcases[i]
        except LoadRunError as e:
            return cases, [f"testcase {i}: {e}"]
        arrays = case.arrays.items()
        cases.append(tuple(VarInfo(n, a.shape, (case.dtypes.get(n) or dtype_of(a)).text) for n, a in arrays))
    return cases, []


def _accepted(bundle: Bundle) -> Iterator[str]:
    """Yield who accepted new expected values, according to the file's record."""
    events = header(bundle.record).get("accepted")
    for event in events if isinstance(events, list) else ():
        values = event.get("values") if isinstance(event, dict) else None
        if not isinstance(values, list):
            continue
        shown = [
            f"testcase {v[0]} {v[1]} {str(v[2])[:8]} -> {str(v[3])[:8]}"
            for v in values[:_EVENT]
            if isinstance(v, list) and len(v) == 4
        ]
        more = f", ... ({len(values)} in all)" if len(values) > _EVENT else ""
        lead = f"accepted {event.get('time')} by {event.get('by')}: {event.get('reason')}"
        yield f"{lead} ({', '.join(shown)}{more})"


def _opr(opr: Opr, known: Inference, read: Collection[int]) -> OprInfo:
    constants = {id(v): v for v in opr.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy"}
    used = [v for v in opr.outputs if v.id in read] or opr.outputs
    return OprInfo(
        opr.id,
        opr.title,
        opr.name,
        tuple(_var(v, known) for v in opr.inputs),
        tuple(_var(v, known) for v in used),
        " ".join(attributes(opr)),
        known.flops.get(opr.id),
        sum(prod(v.owner.tensors[v.index].shape or ()) for v in constants.values()),
    )


def _var(var: Var, known: Inference) -> VarInfo:
    return VarInfo(var.label, known.shapes.get(var.id, var.shape), _dtype(var))


def _dtype(var: Var) -> str:
    dtype = var.dtype or var.described
    return "?" if dtype is None else dtype.text


T = TypeVar("T")


@dataclass
class Described(Generic[T]):
    """Descriptions of the dumps of several files.

    Attributes:
        descriptions: pairs of a dump's name and what was said of it.
        failures: pairs of a file and why it could not be read or run.
    """

    descriptions: list[tuple[str, T]] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the exit code of `loadrun info`: 2 when a file cannot be read or run, 4 when that takes too long."""
        return max((f.code for _, f in self.failures), default=0)


def describe_files(
    files: Iterable[str | os.PathLike[str]],
    read: ModelOptions | None = None,
    *,
    timeout: float | None = None,
    max_memory: int | None = None,
) -> Described[Description]:
    """Describe the dumps of files: inputs, outputs, operators, parameters, FLOPs, testcases and metadata.

    Args:
        files: names, patterns and folders.
        read: what ONNX models leave open.
        timeout: seconds that a file may take.
        max_memory: bytes that this process may take beyond what it has; None for what the machine can give (Linux).

    Raises:
        InputError: a file does not exist.

    >>> (name, about), = describe_files(["fixtures/nets/mlp.mge"]).descriptions
    >>> name, about.model.parameters, about.testcases
    ('fixtures/nets/mlp.mge', 2028, 3)
    """
    return _each(files, read, describe, timeout, max_memory)


def describe_engine(
    files: Iterable[str | os.PathLike[str]],
    engine: str,
    read: ModelOptions | None = None,
    *,
    timeout: float | None = None,
    max_memory: int | None = None,
) -> Described[About]:
    """Run the first testcase of files, or random data, and describe what executed it.

    Args:
        files: names, patterns and folders.
        engine: what executes the models.
        read: what ONNX models leave open.
        timeout: seconds that a file may take.
        max_memory: bytes that this process may take beyond what it has; None for what the machine can give (Linux).

    Raises:
        InputError: a file does not exist.

    >>> [(name, about.text) for name, about in describe_engine(["fixtures/nets/mlp.mge"], "float64").descriptions]
    ... # doctest: +ELLIPSIS
    [('fixtures/nets/mlp.mge', 'float64 ...')]
    """

    def said(bundle: Bundle) -> About:
        runner = Runner(bundle, engine)
        runner.run(runner.inputs_of(bundle.testcases[0]) if len(bundle.testcases) else None)
        return runner.about

    return _each(files, read, said, timeout, max_memory, native=runs_file(engine))


def _each(
    files: Iterable[str | os.PathLike[str]],
    read: ModelOptions | None,
    said: Callable[[Bundle], T],
    timeout: float | None,
    max_memory: int | None,
    native: bool = False,
) -> Described[T]:
    described: Described[T] = Described()
    for path in files_of([os.fspath(f) for f in files]):
        try:
            with memory_limited(max_memory), time_limited(timeout):
                bundles = load_all(path, native=native, **(read or ModelOptions()).read)
                what = [said(bundle) for bundle in bundles]
            described.descriptions += [
                (path if i == 0 else f"{path} (dump {i + 1})", a) for i, a in enumerate(what)
            ]
        except Exception as e:
            why = failure(e, named=True)
            if not why.message.startswith(path):
                why = replace(why, message=f"{path}: {why.message}")
            described.failures.append((path, why))
    return described
