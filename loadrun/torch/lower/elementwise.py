"""Arithmetic, functions, comparisons and logic of single elements."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...graph import params as P
from ...layers import emit as e
from ..call import FxCall, as_array, as_tensor, is_number
from ..registry import UnsupportedCallError, aten

_M = P.ElemwiseMode
_FLOAT: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in """
    sin cos tan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt
    """.split()
} | {f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_SAME: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "_neg_view": np.negative,
    "abs": np.absolute,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "square": np.square,
    "bitwise_not": np.invert,
}


def _fmod(x: Any, y: Any) -> Any:
    """Return the remainder with the sign of the first; the absolute value of the least integer is none."""
    if np.dtype(x.dtype).kind != "i":
        return np.fmod(x, y)
    rest = x % y
    return np.where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)


def _floored(x: Any, y: Any) -> Any:
    if np.dtype(x.dtype).kind != "f":
        return x // y
    # Python's floor division of a float by zero is NaN, torch's the quotient.
    return np.where(y == 0, x / y, x // y)


_BINARY: dict[Callable[..., Any], str] = {
    np.multiply: "mul.Tensor mul.Scalar",
    np.true_divide: "div.Tensor div.Scalar true_divide.Tensor",
    _floored: "floor_divide.default floor_divide.Scalar",
    np.remainder: "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor",
    _fmod: "fmod.Tensor fmod.Scalar",
    np.arctan2: "atan2.default",
    np.maximum: "maximum.default clamp_min.default clamp_min.Tensor",
    np.minimum: "minimum.default clamp_max.default clamp_max.Tensor",
    np.copysign: "copysign.Tensor copysign.Scalar",
    **{getattr(np, name): f"{name}.default" for name in ("hypot", "fmax", "fmin", "logaddexp2")},
}


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        if call.dtype == np.bool_ and function is not np.invert:
            return as_tensor(x, call.dtype)
        return function(as_array(x, call.dtype))

    return lowered


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any, y: Any) -> Any:
        return function(as_array(x, call.dtype), as_array(y, call.dtype))

    return lowered


for _name, _function in (*_FLOAT.items(), *_SAME.items()):
    aten(f"aten.{_name}.default")(_unary(_function))
for _function, _names in _BINARY.items():
    aten(*(f"aten.{name}" for name in _names.split()))(_binary(_function))
for _name in ("and", "or", "xor"):
    for _kind in ("Tensor", "Scalar"):
        aten(f"aten.bitwise_{_name}.{_kind}", f"aten.__{_name}__.{_kind}")(
            _binary(getattr(np, f"bitwise_{_name}"))
        )


def _shift(function: Callable[..., Any], left: bool) -> Callable[..., Any]:
    """Shift by any number of places: those below 0 or beyond the width move every bit out, as in torch."""

    def lowered(call: FxCall, x: Any, by: Any) -> Any:
        # MegEngine shifts small integers in 32 bits.
        wide = call.dtype if call.dtype.itemsize >= 4 else np.dtype("int32")
        bits = 8 * call.dtype.itemsize
        most = bits - 1 if left or call.dtype.kind == "i" or wide != call.dtype else bits
        x = as_array(as_tensor(x, call.dtype), wide)
        if type(by) is int:
            fits = 0 <= by <= most
            shifted = function(x, as_array(by if fits else 0 if left else most, wide))
            return as_tensor(shifted if fits or not left else x * as_array(0, wide), call.dtype)
        by = as_array(as_tensor(by, call.dtype), wide)
        fits = (by >= 0) & (by <= most)
        shifted = function(x, np.where(fits, by, as_array(0 if left else most, wide)))
        return as_tensor(np.where(fits, shifted, as_array(0, wide)) if left else shifted, call.dtype)

    return lowered


for _side, _apply in (("left", np.left_shift), ("right", np.right_shift)):
    for _name in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"):
        aten(f"aten.bitwise_{_side}_shift.{_name}")(_shift(_apply, _side == "left"))
    for _name in ("Tensor", "Scalar"):
        aten(f"aten.__{_side[0]}shift__.{_name}")(_shift(_apply, _side == "left"))


aten("aten.add.Tensor", "aten.add.Scalar")(
    lambda call, x, y, alpha=1: as_array(x, call.dtype) + _scaled(y, alpha, call)
)
aten("aten.sub.Tensor", "aten.sub.Scalar")(
    lambda call, x, y, alpha=1: as_array(x, call.dtype) - _scaled(y, alpha, call)
)
aten("aten.rsub.Tensor", "aten.rsub.Scalar")(
    lambda call, x, y, alpha=1: as_array(y, call.dtype) - _scaled(x, alpha, call)
)


def _scaled(y: Any, alpha: Any, call: FxCall) -> Any:
    y = as_array(y, call.dtype)
    return y if is_number(alpha, 1) else y * as_array(alpha, call.dtype)


@aten("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(call: FxCall, x: Any, y: Any, rounding_mode: Any = None) -> Any:
    """Compute the quotient, rounded down or towards zero."""
    x, y = as_array(x, call.dtype), as_array(y, call.dtype)
    if rounding_mode is None:
        return x / y
    if rounding_mode == "floor":
        return _floored(x, y)
    if call.dtype.kind == "f":
        return np.trunc(x / y)
    result = x // y
    rest = x - result * y
    return result + ((rest != 0) & ((x < 0) != (y < 0))).astype(call.dtype)


@aten("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar")
def power(call: FxCall, x: Any, y: Any) -> Any:
    """Compute the power; whole constant ones by multiplication."""
    if type(y) in (int, float):
        base = as_array(x, call.dtype)
        if y == 2:
            return base * base
        if y == 1:
            return base
        if y == 0.5:
            return np.sqrt(base)
        if y == -1 and call.dtype.kind == "f":
            return 1 / base
        if y == 3:
            return base * base * base
    if call.dtype.kind in "iu" and len(call.fakes) == 2:
        if type(y) is int and y >= 0:
            return np.power(as_array(x, call.dtype), as_array(y, call.dtype))
        wide = "int64" if call.dtype.itemsize == 8 else "int32"
        return _whole_power(as_array(x, wide), as_array(y, wide)).astype(call.dtype)
    return np.power(as_array(x, call.dtype), as_array(y, call.dtype))


def _whole_power(x: Any, y: Any) -> Any:
    """Raise integers to integer powers, bit by bit; with a negative power only ±1 gives an integer."""
    unit = np.absolute(x) == 1
    rest = np.where(y < 0, np.where(unit, -y, np.ones_like(y)), y)
    result, base = np.ones_like(x + rest), x
    for _ in range(8 * x.dtype.itemsize - 1):
        half = rest >> 1
        result = np.where(rest - half * 2 == 1, result * base, result)
        # Not beyond what is needed: a file of 32 bits need not hold it.
        base, rest = base * np.where(half > 0, base, np.ones_like(base)), half
    return np.where((y < 0) & ~unit, np.zeros_like(result), result)


aten("aten.rsqrt.default")(lambda call, x: 1 / np.sqrt(as_array(x, call.dtype)))
aten("aten.reciprocal.default")(lambda call, x: 1 / as_array(x, call.dtype))
aten("aten.erf.default", "aten.special_erf.default")(lambda call, x: e.elem(_M.ERF, as_tensor(x, call.dtype)))
aten("aten.erfc.default", "aten.special_erfc.default")(
    lambda call, x: e.elem(_M.ERFC, as_tensor(x, call.dtype))
)
aten("aten.erfinv.default")(lambda call, x: e.elem(_M.ERFINV, as_tensor(x, call.dtype)))
aten("aten.round.decimals")(lambda call, x, decimals=0: np.round(as_array(x, call.dtype), decimals))


@aten("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(call: FxCall, x: Any, min: Any = None, max: Any = None) -> Any:
    """Clamp between two bounds; the upper one wins."""
    result = as_array(x, call.dtype)
    if min is not None:
        result = np.maximum(result, as_array(min, call.dtype))
    return result if max is None else np.minimum(result, as_array(max, call.dtype))


@aten("aten.nextafter.default")
def nextafter(call: FxCall, x: Any, y: Any) -> Any:
    """Return the next number from the first towards the second: add half a unit and a little, which rounds to one."""
    if call.fake.dtype not in (torch.float32, torch.float64):
        raise UnsupportedCallError(f"the next number of {call.fake.dtype}; use float32")
    limits = np.finfo(call.dtype)
    x, y, least = (as_array(v, call.dtype) for v in (x, y, limits.smallest_subnormal))
    size, half = np.absolute(x), float(limits.eps) / 2
    sign = np.where(y > x, as_array(1, call.dtype), as_array(-1, call.dtype))
    # Near the least numbers half a unit has no value: there it is added to a multiple, or the unit itself.
    scale, small = (
        as_array(1 / (half * half), call.dtype),
        size < as_array(float(limits.tiny) * 2 / half, call.dtype),
    )
    larger = np.where(small, x * scale, x)
    moved = larger + sign * (np.absolute(larger) * as_array(half * (1 + 2 * half), call.dtype))
    moved = np.where(small, moved / scale, moved)
    moved = np.where(size < as_array(2 * float(limits.tiny), call.dtype), x + sign * least, moved)
    return np.where(x == y, y, moved)


@aten(
    *"""
    aten._to_copy.default aten.to.dtype aten.to.dtype_layout aten.to.device aten.to.other
    aten.type_as.default prims.convert_element_type.default aten._to_dense.default aten.to_dense.default
    """.split()
)
def to_copy(call: FxCall, x: Any, *_: Any, **options: Any) -> Any:
    """Convert the values to another dtype."""
    if options.get("layout") is not None and str(options["layout"]) != "torch.strided":
        raise UnsupportedCallError(f"layout {options['layout']}; use dense tensors")
    return as_tensor(x, call.dtype)


@aten("aten.angle.default")
def angle(call: FxCall, x: Any) -> Any:
    """Return pi for negative numbers, else 0."""
    x = as_array(x, call.dtype)
    return np.where(x < 0, np.pi, 0.0).astype(call.dtype)


_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_LOGIC = ("logical_and", "logical_or", "logical_xor", "logical_not")
_TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit")


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any, y: Any) -> Any:
        dtype = call.common(0, 1)
        return function(as_array(x, dtype), as_array(_bounded(y, dtype), dtype))

    return lowered


def _bounded(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a number beyond an integer dtype as the next one that fits: no integer of it is between."""
    if type(value) is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return max(int(limits.min), min(int(limits.max), value))
    return value


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, *xs: Any) -> Any:
        return function(*(as_array(x, "bool") for x in xs))

    return lowered


def _tested(function: Callable[..., Any]) -> Callable[..., Any]:
    def lowered(call: FxCall, x: Any) -> Any:
        x = as_array(x)
        return (
            function(x)
            if np.dtype(x.dtype).kind == "f" or function is np.signbit
            else function(as_array(e.as_float(as_tensor(x))))
        )

    return lowered


for _name, _function in _COMPARE.items():
    aten(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_compared(_function))
for _name in _LOGIC:
    aten(f"aten.{_name}.default")(_logical(getattr(np, _name)))
for _name in _TESTS:
    aten(f"aten.{_name}.default")(_tested(getattr(np, _name)))


@aten("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(call: FxCall, condition: Any, x: Any, y: Any) -> Any:
    """Select one value or another."""
    return np.where(as_array(condition, "bool"), as_array(x, call.dtype), as_array(y, call.dtype))


@aten("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(call: FxCall, x: Any, mask: Any, value: Any) -> Any:
    """Fill with a value where a mask is true."""
    x, mask = as_array(x, call.dtype), as_array(mask, "bool")
    return np.where(mask, as_array(value, call.dtype), x)


@aten("aten.equal.default")
def equal(call: FxCall, x: Any, y: Any) -> Any:
    """Return whether all elements are equal."""
    if call.shape_of(0) != call.shape_of(1):
        return as_tensor(False)
    dtype = call.common(0, 1)
    return np.all(as_array(x, dtype) == as_array(y, dtype))
