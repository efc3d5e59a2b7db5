"""What a model consists of: inputs, outputs, operators with shapes, parameters, FLOPs, testcases, metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from .dtypes import nbytes
from .errors import LoadRunError
from .graph import Opr, Var
from .ops.catalog import CATALOG
from .ops.infer import Inference, infer_dtypes, infer_shapes
from .testcase import EXPECT, Bundle

__all__ = ["CheckInfo", "Description", "OprInfo", "VarInfo", "describe"]

_OPTIONS = (
    *("io16xc32", "ioc16", "fuse_conv_bias_nonlinearity", "fuse_conv_bias_with_z"),
    *("weight_preprocess", "fuse_preprocess", "fuse_grain"),
)
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
    """An embedded check: the output's name, its tolerance, whether MegEngine prints its error."""

    output: str
    maxerr: float
    verbose: bool


@dataclass(frozen=True)
class Description:
    """A model at a glance; see the fields' names.

    Attributes:
        parameters: elements of all constants that the outputs depend on.
        parameter_bytes: what they take in the file.
        flops: sum over operators, a multiply-add counts two; operators of unknown shape are left out.
        unknown: operators whose shapes depend on data, and so have no FLOP count.
        problems: why shapes or dtypes could not be followed, if they could not.
    """

    path: str
    format: str
    magic: str
    mge_version: str
    size: int
    inputs: tuple[VarInfo, ...]
    outputs: tuple[VarInfo, ...]
    operators: tuple[OprInfo, ...]
    counts: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    flops: int
    unknown: int
    testcases: int
    checks: tuple[CheckInfo, ...]
    metadata: Mapping[str, object] | None
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def describe(bundle: Bundle) -> Description:
    """Describe a bundle without running it; vendor operators and unknown shapes are shown as such.

    >>> import loadrun
    >>> d = describe(loadrun.load("fixtures/nets/mlp.mge"))
    >>> [v.name for v in d.inputs], d.testcases
    (['data'], 3)
    """
    graph = bundle.graph
    outputs = bundle.outputs
    oprs = [o for o in graph.needed(outputs.values()) if not _is_expect(o)]
    known, problems = _infer(bundle, oprs)
    infos = tuple(_opr(o, known) for o in oprs if CATALOG[o.type].category != "io")
    constants = [t for o in oprs if o.type != "Host2DeviceCopy" for t in o.tensors]
    meta = graph.metadata
    return Description(
        path=bundle.path,
        format=graph.format,
        magic=graph.magic,
        mge_version=_version(graph.mge_version),
        size=bundle.size,
        inputs=tuple(_var(v, known) for v in bundle.inputs),
        outputs=tuple(VarInfo(n, known.shapes.get(v.id, v.shape), _dtype(v)) for n, v in outputs.items()),
        operators=infos,
        counts=dict(Counter(o.type for o in oprs).most_common()),
        parameters=sum(_elements(t.shape) for t in constants),
        parameter_bytes=sum(nbytes(t.shape or (), t.dtype) for t in constants),
        flops=sum(known.flops.values()),
        unknown=sum(i.flops is None for i in infos),
        testcases=len(bundle.testcases),
        checks=tuple(CheckInfo(c.name, c.maxerr, c.verbose) for c in bundle.checks),
        metadata=None
        if meta is None
        else {
            "is_valid": meta.is_valid,
            "graph_modified": meta.graph_modified,
            "optimize_options": options(meta.optimize_options),
            "user_info_bytes": len(meta.user_info or b""),
        },
        warnings=tuple(bundle.warnings),
        problems=tuple(problems),
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


def _infer(bundle: Bundle, oprs: list[Opr]) -> tuple[Inference, list[str]]:
    """Shapes as far as they can be followed, up to the first operator that refuses."""
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


def _opr(opr: Opr, known: Inference) -> OprInfo:
    constants = {id(v): v for v in opr.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy"}
    changed = [r for r in map(repr, opr.params) if not r.endswith("()")]
    return OprInfo(
        opr.id,
        opr.title,
        opr.name,
        tuple(_var(v, known) for v in opr.inputs),
        tuple(_var(v, known) for v in opr.outputs),
        " ".join(changed),
        known.flops.get(opr.id),
        sum(_elements(v.owner.tensors[v.index].shape) for v in constants.values()),
    )


def _var(var: Var, known: Inference) -> VarInfo:
    return VarInfo(var.label, known.shapes.get(var.id, var.shape), _dtype(var))


def _dtype(var: Var) -> str:
    dtype = var.dtype or var.described
    return "?" if dtype is None else str(dtype)


def _elements(shape: tuple[int, ...] | None) -> int:
    return prod(shape or ())


def _version(number: int) -> str:
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
