"""The kernel of a call: the operator's own, or what computes it in dtypes and arithmetic that MegEngine does not have.

Float64 is computed by the formulas of `formulas`. Float16 and BFloat16 in a graph of another framework (`Opr.exact`)
are computed in float32 and rounded once, ties to even, which is what ONNX Runtime and PyTorch do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..graph.dtypes import Array, DType, plain, round_bfloat16
from .catalog import types
from .op import Trait
from .registry import Call, Kernel, Shape, ShapeCall, implementation

__all__ = ["kernel_of"]

_HALF = ("Float16", "BFloat16")
_OWN = types(Trait.MOVES | Trait.CONSTANT | Trait.GENERIC)
"""Operators whose own kernels take every dtype."""


def kernel_of(c: Call) -> Kernel:
    """Return what computes a call.

    Raises:
        UnsupportedError: the operator has no kernel.
    """
    own = implementation(c.opr.type).kernel
    dtypes = (*c.inputs, *c.outputs)
    if c.opr.type in _OWN:
        return own
    if any(d.name == "Float64" for d in dtypes):
        return _in_float64
    if c.opr.exact and any(d.name in _HALF for d in dtypes):
        return _in_float32(own)
    return own


def _in_float64(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
    """Compute the operator's formula on float64 arrays."""
    from .formulas import FORMULAS  # for start-up

    formula = FORMULAS.get(c.opr.type)
    shapes: list[Shape | None] = []
    if formula is not None:
        # Formulas see only what goes together.
        rule = implementation(c.opr.type).shape
        shapes = list(rule(ShapeCall(c.opr, c.inputs, tuple(a.shape for a in arrays), arrays)))
    result: Array | tuple[Array, ...] | None = formula(c, *arrays) if formula is not None else None
    if result is None:
        result = _empty(c, shapes)
    if result is None:
        raise ValueError(f"{c.opr.title} is not computed in float64; convert its inputs to float32")
    outs = result if isinstance(result, tuple) else (result,)
    held = tuple(np.asarray(out).astype(d.np, copy=False) for out, d in zip(outs, c.outputs, strict=True))
    return held if isinstance(result, tuple) else held[0]


def _empty(c: Call, shapes: list[Shape | None]) -> Array | tuple[Array, ...] | None:
    """Return outputs without elements, of which formulas know nothing."""
    if not shapes or any(s is None or 0 not in s for s in shapes):
        return None
    made = tuple(np.zeros(s, d.np) for s, d in zip(shapes, c.outputs, strict=True) if s is not None)
    return made if len(made) > 1 else made[0]


def _in_float32(own: Kernel) -> Callable[..., Any]:
    """Return a kernel that widens float16 and bfloat16 to float32, and rounds the results."""

    def run(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
        inner: Call | None = c.memo.get("float32")
        if inner is None:
            inner = replace(c, inputs=_widened(c.inputs), outputs=_widened(c.outputs), memo={}, donated=[])
            c.memo["float32"] = inner
        inner = inner.in_run(c.rng, [])
        result = own(inner, *(a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays))
        outs = result if isinstance(result, tuple) else (result,)
        made = tuple(_rounded(out, d) for out, d in zip(outs, c.outputs, strict=True))
        return made if isinstance(result, tuple) else made[0]

    return run


def _widened(dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
    return tuple(plain("Float32") if d.name in _HALF else d for d in dtypes)


def _rounded(x: Array, dtype: DType) -> Array:
    if dtype.name == "BFloat16":
        return round_bfloat16(x)
    return x.astype(np.float16) if dtype.name == "Float16" else x
