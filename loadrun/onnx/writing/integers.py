"""Weights that stand for small integers: a dump of a quantized net of ONNX's holds them as the floats they are."""

import numpy as np

from ...graph import Var
from ...graph.dtypes import Array
from .writer import OnnxWriter


def integer_weights(w: OnnxWriter, x: Var, weight: str, bias: str, axis: int = 0) -> tuple[str, str]:
    """Write weights and bias behind DequantizeLinear, where the input they meet stands behind it as well.

    Args:
        x: the input.
        weight: a float32 initializer, of which each slice along `axis` has a scale.
        bias: one, "" for none.

    Returns:
        the names of what takes their places; themselves unless each is a multiple of its scale exactly.
    """
    by = w.scales.get(x.id)
    if by is None or w.opset < 13 or w.inner:
        return weight, bias
    if weight not in w.steps:
        stored = w.initializers[weight].value if weight in w.initializers else None
        if stored is None or stored.dtype != np.float32:
            return weight, bias
        w.steps[weight] = _steps(stored, axis)
    steps = w.steps[weight]
    addend = _whole_bias(w, by, steps, bias)
    if steps is None or (bias and addend is None):
        return weight, bias
    whole, scale = steps
    weight = _dequantized(w, weight, whole, scale, axis)
    return weight, bias if addend is None else _dequantized(w, bias, addend, by * scale, 0)


def _whole_bias(w: OnnxWriter, by: np.float32, steps: tuple[Array, Array] | None, bias: str) -> Array | None:
    """Return a bias as multiples of the products' scale; None if it is none exactly."""
    value = w.initializers[bias].value if bias in w.initializers else None
    if steps is None or value is None or value.ndim != 1:
        return None
    unit = by * steps[1]
    whole = np.rint(value / unit)
    exact = (np.abs(whole) < 2**31).all() and (whole.astype(np.float32) * unit == value).all()
    return whole.astype(np.int32) if exact else None


def _dequantized(w: OnnxWriter, name: str, whole: Array, scale: Array, axis: int) -> str:
    """Write what gives a constant its value, in its place if it is not read so far."""
    if name not in w.initializers:
        return name
    stored = w.const(whole, f"{name}:{whole.dtype}", raw=True)
    for names in (w.params, w.automatic):
        if name in names:
            names.add(stored)
    attributes = {"axis": axis} if scale.ndim else {}
    operands = stored, w.const(scale), w.const(np.zeros(scale.shape, whole.dtype), raw=True)
    if name in w.read:
        return w.op("DequantizeLinear", *operands, **attributes)
    del w.initializers[name]
    return w.ops("DequantizeLinear", *operands, out=[name], **attributes)[0]  # type: ignore[arg-type]


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
