"""Weights that stand for small integers: a dump of a quantized net of ONNX's holds them as the floats they are."""

from __future__ import annotations

import numpy as np

from ...graph import Var
from ...graph.dtypes import Array
from .writer import OnnxWriter

__all__ = ["integer_weights"]


def integer_weights(w: OnnxWriter, x: Var, weight: str, bias: str, axis: int = 0) -> tuple[str, str]:
    """Write weights and bias behind DequantizeLinear, where the input they meet stands behind it as well.

    Args:
        x: the input.
        weight: a float32 initializer, of which each slice along `axis` has a scale.
        bias: one, "" for none.

    Returns:
        the names of what takes their places; themselves unless each is a multiple of its scale exactly.
    """
    by, stored = w.scales.get(x.id), w.initializers.get(weight)
    values = stored.value if stored is not None else None
    if by is None or values is None or values.dtype != np.float32 or w.opset < 13:
        return weight, bias
    found = _steps(values, axis)
    if found is None:
        return weight, bias
    whole, scale = found
    addend = w.initializers[bias].value if bias in w.initializers else None
    if bias and (addend is None or addend.ndim != 1):
        return weight, bias
    attributes = {"axis": axis} if scale.ndim else {}
    if addend is not None:
        unit = by * scale
        large = np.rint(addend / unit)
        if not (np.abs(large) < 2**31).all() or (large.astype(np.float32) * unit != addend).any():
            return weight, bias
        zero = w.const(np.zeros(unit.shape, np.int32), raw=True)
        number = w.const(large.astype(np.int32), f"{bias}:int32", raw=True)
        bias = w.op("DequantizeLinear", number, w.const(unit), zero, **({"axis": 0} if unit.ndim else {}))
    zero = w.const(np.zeros(scale.shape, np.int8))
    return w.op(
        "DequantizeLinear", w.const(whole, f"{weight}:int8"), w.const(scale), zero, **attributes
    ), bias


def _steps(values: Array, axis: int) -> tuple[Array, Array] | None:
    """Return the int8 numbers and the scales of which values are products, exactly; one scale for all if possible."""
    rest = tuple(i for i in range(values.ndim) if i != axis)
    for axes in (None, rest):
        largest = np.abs(values).max(axis=axes, keepdims=axes is not None)
        scale = np.where(largest > 0, largest / np.float32(127), np.float32(1))
        for near in (scale, np.nextafter(scale, np.float32(0)), np.nextafter(scale, np.float32(np.inf))):
            whole = np.rint(values / near)
            exact = (whole * near == values).all(axis=axes, keepdims=axes is not None)
            scale = np.where(exact, near, scale)
        whole = np.rint(values / scale)
        if (np.abs(whole) <= 127).all() and (whole * scale == values).all():
            return whole.astype(np.int8), scale.reshape(-1 if axes else ())
    return None
