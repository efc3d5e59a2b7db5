"""Tensors created from numbers and sizes."""

import math
from typing import Any

import numpy as np

from ...layers import emit as e
from ..call import FxCall, as_array, as_tensor
from ..registry import UnsupportedCallError, aten
from ..sizes import as_size


def _filling(place: int, value: Any = None) -> Any:
    """Return a lowering that fills a shape, or the shape of a tensor, which is the argument at a place.

    The value follows it if none is given. Uninitialized memory is zeros, too.
    """

    def lowered(call: FxCall, *args: Any, **_: Any) -> Any:
        shape = args[place] if isinstance(args[place], (list, tuple)) else as_tensor(args[place]).shape
        number = args[place + 1] if value is None else value
        return e.full(as_tensor(number, call.dtype), [as_size(n) for n in shape])

    return lowered


for _place, _value, _names in (
    (0, None, "full.default full_like.default fill.Scalar fill.Tensor"),
    (0, 0, "zeros.default zeros_like.default zero.default empty.memory_format empty_strided.default"),
    (0, 0, "empty_permuted.default empty_like.default"),
    (0, 1, "ones.default ones_like.default"),
    (1, None, "new_full.default"),
    (1, 0, "new_zeros.default new_empty.default new_empty_strided.default"),
    (1, 1, "new_ones.default"),
):
    aten(*(f"aten.{name}" for name in _names.split()))(_filling(_place, _value))


@aten("aten.copy.default")
def copy(call: FxCall, x: Any, source: Any, non_blocking: bool = False) -> Any:
    """Overwrite a whole tensor with values."""
    shape = as_tensor(x).shape
    result = as_tensor(source, call.dtype)
    return e.broadcast(result, shape) if shape else e.reshape(result, ())


aten("aten.scalar_tensor.default")(lambda call, value, **_: e.reshape(as_tensor(value, call.dtype), ()))


@aten("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(call: FxCall, start: Any, end: Any = None, step: Any = 1, **_: Any) -> Any:
    """Return evenly spaced numbers."""
    if end is None:
        start, end = 0, start
    numbers = [as_size(v) for v in (start, end, step)]
    if all(type(v) in (int, float) for v in numbers):
        first, last, by = numbers
        count = max(0, math.ceil((last - first) / by))
        exact = np.arange(count) * by + first
        return as_tensor(as_array(exact.astype(call.dtype), call.dtype))
    # Integers that are floats count as well as integers do.
    first, last, by = (int(v) if type(v) is float and v.is_integer() else v for v in numbers)
    numbers = [first, last, by]
    if type(by) is not int or (call.dtype.kind == "f" and not all(isinstance(v, int) for v in numbers)):
        raise UnsupportedCallError(
            "the end or the step of arange is a number that depends on data; use an integer size"
        )
    count = (last - first + (by - 1)) // by if by > 0 else (first - last + (-by - 1)) // -by
    result = as_array(e.arange(count))
    result = result if by == 1 else result * by
    result = result if type(first) is int and first == 0 else result + as_array(first, "int32")
    return as_tensor(result, call.dtype)


@aten("aten.fft_fftfreq.default", "aten.fft_rfftfreq.default")
def fftfreq(call: FxCall, n: Any, d: float = 1.0, **_: Any) -> Any:
    """Return the frequencies of a Fourier transform: of rfft those from 0 on, of fft negative ones behind them."""
    (count,) = call.static([n], "the number of frequencies")
    places = np.arange(count)
    if "rfft" in str(call.node.target):
        places = np.arange(count // 2 + 1)
    else:
        places[(count + 1) // 2 :] -= count
    return as_tensor(places.astype(call.dtype) * np.asarray(1.0 / (count * d), call.dtype), call.dtype)


_WINDOWS: dict[str, Any] = {
    "hamming": lambda at, alpha=0.54, beta=0.46: alpha - beta * np.cos(2 * np.pi * at),
    "blackman": lambda at: 0.42 - 0.5 * np.cos(2 * np.pi * at) + 0.08 * np.cos(4 * np.pi * at),
    "bartlett": lambda at: 1 - np.abs(2 * at - 1),
    "kaiser": lambda at, beta=12.0: np.i0(beta * np.sqrt(np.maximum(1 - (2 * at - 1) ** 2, 0))) / np.i0(beta),
}


def _windowed(formula: Any) -> Any:
    def lowered(call: FxCall, length: int, periodic: bool = True, *rest: float, **_: Any) -> Any:
        count = call.static([length], "the length of a window")[0]
        at = np.arange(count) / max(count if periodic else count - 1, 1)
        values = formula(at, *rest) if count != 1 else np.ones(1)
        return as_tensor(as_array(values.astype(call.dtype), call.dtype))

    return lowered


_OWN_OVERLOADS = {"hamming": ("periodic_alpha", "periodic_alpha_beta"), "kaiser": ("beta",)}
for _name, _formula in _WINDOWS.items():
    for _overload in ("default", "periodic", *_OWN_OVERLOADS.get(_name, ())):
        aten(f"aten.{_name}_window.{_overload}")(_windowed(_formula))
