"""Operators of MegEngine that compute nodes: its kernels are faster than definitions, and are fused by the engine."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ...base.registry import Registry
from ...graph import params as P
from ...graph.composite import Composite, CostRule, Native
from ...ops.elemwise.table import ROWS
from .windows import window_of

Shape = tuple[int, ...]
Rule = Callable[[Composite, Sequence[Shape]], "Native | None"]
_RULES: Registry[str, Rule] = Registry("operator of MegEngine for a node")
_MODES = {
    row.onnx: mode for mode, row in ROWS.items() if row.onnx and row.real is not None and row.onnx != "Pow"
}


def _of_steps(p: Composite, shapes: Sequence[Shape], out: Shape) -> int:
    return 2 * prod(shapes[0][:2]) * (prod(shapes[1]) + prod(shapes[2]))


_COSTS: dict[str, CostRule] = {
    "MatMul": lambda p, shapes, out: 2 * prod(out) * shapes[0][-1],
    "Gemm": lambda p, shapes, out: 2 * prod(out) * shapes[0][0 if p.attributes.get("transA") else 1],
    "Conv": lambda p, shapes, out: 2 * prod(out) * prod(shapes[1][1:]),
    "ConvTranspose": lambda p, shapes, out: 2 * prod(shapes[0]) * prod(shapes[1][1:]),
    "LSTM": _of_steps,
    "GRU": _of_steps,
    "RNN": _of_steps,
}
"""Operations of a node: a multiply-add counts two."""


def cost_of(domain: str, name: str) -> CostRule | None:
    """Return the cost rule of an operator of ONNX whose cost is not that of writing its results."""
    return None if domain else _COSTS.get(name)


def rule_of(domain: str, name: str) -> Rule | None:
    """Return what gives MegEngine's operator for an operator of ONNX, None if there is none."""
    if domain:
        return None
    return _elementwise if name in _MODES else _RULES.get(name)


def _elementwise(p: Composite, shapes: Sequence[Shape]) -> Native | None:
    if not any(shapes) or p.attributes:
        return None
    param = P.Elemwise(mode=_MODES[p.definition.name])
    # A number without axes lies beside arrays with some as one of one element.
    return Native("Elemwise", (param,), {i: (1,) for i, s in enumerate(shapes) if not s})


@_RULES.register("Conv")
def _convolution(p: Composite, shapes: Sequence[Shape]) -> Native | None:
    """Give the convolution of images whose pads are the same on both sides."""
    a = p.attributes
    x, w, *bias = shapes
    groups = a.get("group", 1)
    if len(x) != 4 or len(w) != 4 or 0 in (*x, *w) or groups < 1 or w[0] % groups or x[1] != w[1] * groups:
        return None
    window = window_of(x[2:], w[2:], **{n: v for n, v in a.items() if n != "group"})
    if any(before != after or before < 0 for before, after in window.pads) or min(window.out) < 1:
        return None
    geometry: dict[str, Any] = {
        "pad_h": window.pads[0][0],
        "pad_w": window.pads[1][0],
        "stride_h": window.strides[0],
        "stride_w": window.strides[1],
        "dilate_h": window.dilations[0],
        "dilate_w": window.dilations[1],
        "sparse": P.Sparse.GROUP if groups > 1 else P.Sparse.DENSE,
    }
    read = {1: (groups, w[0] // groups, *w[1:])} if groups > 1 else {}
    policy = P.ExecutionPolicy()
    if not bias:
        return Native("ConvolutionV2", (P.Convolution(**geometry), policy), read)
    if bias[0] != w[:1]:
        return None
    return Native("ConvBiasForwardV4", (P.ConvBias(**geometry), policy), {**read, 2: (1, w[0], 1, 1)})


@_RULES.register("MatMul")
def _product(p: Composite, shapes: Sequence[Shape]) -> Native | None:
    """Give the product of two matrices."""
    x, y = shapes
    if len(x) != 2 or len(y) != 2 or x[1] != y[0]:
        return None
    return Native("MatrixMulV2", (P.MatrixMul(), P.ExecutionPolicy()))
