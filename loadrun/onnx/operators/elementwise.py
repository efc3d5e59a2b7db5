"""Arithmetic, comparisons, logic and types, element by element."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from ...arrays.names import np
from ...graph.composite import Flag, NodeTypes
from ...graph.dtypes import Array, DType
from ..tensors import NAMES, decoded
from ..types import codes_of_floats
from . import F, operator
from .common import axis_of, one_of, refuse_unless, refuse_where, tensor_type, with_attributes
from .kernels import SMALL, broadcast_shapes, exactly, round_bfloat16, rounded_small

Function = Callable[..., Any]


def _aligned(function: Function) -> Function:
    """Broadcast the second input along an axis, as versions before 7 do."""

    def called(x: Array, y: Array, *, axis: int | None = None, broadcast: int = 0) -> Any:  # noqa: ANN401
        if broadcast and axis is not None:
            rest = x.ndim - axis_of(axis, x.ndim) - y.ndim
            refuse_unless(rest >= 0, f"{y.ndim} axes do not fit {x.ndim} at axis {axis}")
            y = y.reshape(*y.shape, *[1] * rest)
        return function(x, y)

    return with_attributes(function, called, axis=None, broadcast=0)


def operator_since_7(name: str, **how: Any) -> Callable[[F], F]:
    """Register an operator of two inputs that numpy's broadcasting holds for since version 7."""

    def register(function: F) -> F:
        operator(name, since=7, pointwise=True, **how)(function)
        how["shape"] = _aligned(lambda x, y: broadcast_shapes(x.shape, y.shape))
        operator(name, **how)(_aligned(function))
        return function

    return register


# Arithmetic


operator_since_7("Add")(lambda x, y: x + y)
operator_since_7("Sub")(lambda x, y: x - y)
operator_since_7("Mul")(lambda x, y: x * y)


@operator_since_7("Div")
def div(x: Array, y: Array) -> Array:
    """Divide; integers toward zero."""
    if x.dtype.kind == "f":
        return x / y
    refuse_where(y == 0, "whole numbers are divided by 0", ZeroDivisionError)
    return np.floor_divide(x - np.fmod(x, y), y)


@operator("Mod", since=10, pointwise=True)
def mod(x: Array, y: Array, *, fmod: Flag = 0) -> Array:
    """Return the rest of a division, with the sign of the divisor or, on demand, of the dividend."""
    if x.dtype.kind != "f":
        refuse_where(y == 0, "whole numbers are divided by 0", ZeroDivisionError)
    return np.fmod(x, y) if fmod else np.mod(x, y)


@operator_since_7("Pow")
def power(x: Array, y: Array) -> Array:
    """Raise to a power; whole numbers to whole powers exactly, to others as ONNX Runtime does in float64."""
    if x.dtype.kind == "f":
        exponent = y.item() if type(y) is np.ndarray and y.ndim == 0 else None
        if exponent in (2, 3):
            return x * x if exponent == 2 else x * x * x
        return np.power(x, y.astype(x.dtype))
    natural = (y >= 0) & (y == np.rint(y))
    exact = np.power(x.astype(np.int64), np.where(natural, y, 0).astype(np.int64))
    real = np.power(x.astype(np.float64), y.astype(np.float64))
    return np.where(natural, exact.astype(x.dtype), exactly(real, x.dtype))


@operator("Max", pointwise=True)
def maximum(*xs: Array) -> Array:
    """Take the largest of all inputs."""
    return reduce(np.maximum, xs)


@operator("Min", pointwise=True)
def minimum(*xs: Array) -> Array:
    """Take the smallest of all inputs."""
    return reduce(np.minimum, xs)


@operator("Sum", pointwise=True)
def total(*xs: Array) -> Array:
    """Add all inputs."""
    return reduce(np.add, xs)


@operator("Mean", pointwise=True)
def mean(*xs: Array) -> Array:
    """Divide the sum of all inputs by their number."""
    return total(*xs) / len(xs)


# Comparisons and logic


operator_since_7("And", out=("Bool",))(lambda x, y: np.logical_and(x, y))
operator_since_7("Or", out=("Bool",))(lambda x, y: np.logical_or(x, y))
operator_since_7("Xor", out=("Bool",))(lambda x, y: np.logical_xor(x, y))
operator("Not", pointwise=True)(lambda x: np.logical_not(x))
operator_since_7("Equal", out=("Bool",))(lambda x, y: np.equal(x, y).astype(bool))
operator_since_7("Less", out=("Bool",))(lambda x, y: np.less(x, y))
operator("LessOrEqual", since=12, out=("Bool",), pointwise=True)(lambda x, y: np.less_equal(x, y))
operator_since_7("Greater", out=("Bool",))(lambda x, y: np.greater(x, y))
operator("GreaterOrEqual", since=12, out=("Bool",), pointwise=True)(lambda x, y: np.greater_equal(x, y))
operator("Where", since=9, out=(1,), pointwise=True)(lambda condition, x, y: np.where(condition, x, y))

# One operand


operator("Neg", pointwise=True)(lambda x: np.negative(x))
operator("Abs", pointwise=True)(lambda x: np.abs(x))
operator("Sign", since=9, pointwise=True)(lambda x: np.sign(x))
operator("Round", since=11, pointwise=True)(lambda x: np.rint(x))
operator("IsNaN", since=9, out=("Bool",), pointwise=True)(lambda x: np.isnan(x))


@operator("IsInf", since=10, out=("Bool",), pointwise=True)
def is_inf(x: Array, *, detect_negative: Flag = 1, detect_positive: Flag = 1) -> Array:
    """Return whether it is infinite, of either sign or one."""
    infinite = np.isinf(x)
    if not detect_positive:
        infinite = infinite & (x < 0)
    return infinite if detect_negative else infinite & (x > 0)


@operator("Identity", views=True)
def identity(x: Any) -> Any:  # noqa: ANN401 - sequences and optional values, too
    """Return the input."""
    return x


def _bound(value: Array | None) -> Array | None:
    return value if value is None or not value.ndim else value.reshape(())


@operator("Clip", since=11, pointwise=True, shape=lambda x, *ends: x.shape)
def clip(x: Array, lo: Array | None = None, hi: Array | None = None, *, out: Array | None = None) -> Array:
    """Limit elements to an interval; where its ends cross, the upper one holds."""
    if lo is None and hi is None:
        return np.positive(x, out=out)
    # numpy's clip is faster than maximum and minimum with a single number.
    clipped: Array = x.clip(_bound(lo), _bound(hi), out=out)  # type: ignore[arg-type]
    return clipped


_MOST = float(np.finfo(np.float32).max)


@operator("Clip", pointwise=True)
def clip_6(x: Array, *, min: float = -_MOST, max: float = _MOST) -> Array:
    """Limit elements to an interval."""
    refuse_unless(min <= max, f"its min is {min:g} and its max {max:g}")
    x = x if min == -_MOST else np.maximum(x, x.dtype.type(min))
    return x if max == _MOST else np.minimum(x, x.dtype.type(max))


# Types


_WHOLE = {"Uint4": (4, False), "Int4": (4, True), "Uint2": (2, False), "Int2": (2, True)}


def converted(x: Array, source: DType, to: DType, saturate: int = 1, round_mode: str = "up") -> Array:
    """Convert to another of ONNX's types; floats to floats are rounded where their type says so.

    Raises:
        ValueError: a text is no number.
    """
    if source == to:
        return x
    if to.name == "String":
        return _texts(x)
    if source.name == "String":
        x = _numbers(x, to)
    if to.name in SMALL:
        return rounded_small(x, SMALL[to.name], saturate, round_mode)
    if to.np.kind == "f":
        return x if x.dtype.kind == "f" else x.astype(np.float64 if to.name == "Float64" else np.float32)
    if to.name in _WHOLE:
        return _narrowed(x, *_WHOLE[to.name])
    return exactly(x, to.np)


def _narrowed(x: Array, bits: int, signed: bool) -> Array:
    """Keep the low bits of whole numbers; floats are rounded before, halves away from zero."""
    if x.dtype.kind == "f":
        x = np.where(x < 0, np.ceil(x - 0.5), np.floor(x + 0.5))
    whole = exactly(x, np.dtype(np.int32)) & np.int32((1 << bits) - 1)
    half = np.int32(1 << (bits - 1))
    return ((whole ^ half) - half).astype(np.int8) if signed else whole.astype(np.uint8)


def _texts(x: Array) -> Array:
    """Write numbers as ONNX Runtime does: floats with eight digits, booleans as 1 and 0."""
    rows = x.reshape(-1).tolist()
    if x.dtype.kind == "f":
        special = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
        rows = [special.get(t, t) for t in (f"{v:.8g}" for v in rows)]
    else:
        rows = [str(int(v)) for v in rows]
    return np.array(rows, object).reshape(x.shape)


def _numbers(x: Array, to: DType) -> Array:
    """Read numbers; for a type of integers these, cut where they are none."""
    texts = x.reshape(-1).tolist()
    try:
        if to.np.kind == "f":
            return np.array([float(t) for t in texts], np.float64).reshape(x.shape)
        whole = [int(t) if t.strip().lstrip("+-").isdigit() else int(float(t)) for t in texts]
    except (ValueError, OverflowError):
        raise ValueError(f"a text is no number of type {to.spelling}") from None
    return np.array([v & (1 << 64) - 1 for v in whole], np.uint64).view(np.int64).reshape(x.shape)


def _target(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return tensor_type(attributes["to"])


def _named_target(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    numbers = {name.upper(): number for number, name in NAMES.items()}
    return tensor_type(numbers[one_of("to", attributes["to"], *numbers)])


def _convert(x: Array, types: NodeTypes, saturate: int = 1, round_mode: str = "up") -> Array:
    source = types.inputs[0]
    assert source is not None
    return converted(x, source, types.outputs[0], saturate, round_mode)


operator("Cast", out=(_named_target,), pointwise=True)(lambda x, *, types, to: _convert(x, types))


@operator("Cast", since=6, out=(_target,), pointwise=True)
def cast(x: Array, *, types: NodeTypes, to: int, saturate: Flag = 1, round_mode: str = "up") -> Array:
    """Convert to another type; to powers of two in one of three ways."""
    return _convert(x, types, saturate, round_mode)


@operator("CastLike", since=15, out=(1,), shape=lambda x, like, **how: x.shape)
def cast_like(
    x: Array, like: Array, *, types: NodeTypes, saturate: Flag = 1, round_mode: str = "up"
) -> Array:
    """Convert to the type of the second input."""
    return _convert(x, types, saturate, round_mode)


# Bits


@operator("BitCast", since=26, out=(_target,), shape=lambda x, **how: x.shape)
def bit_cast(x: Array, *, types: NodeTypes, to: int) -> Array:
    """Take the bits of one type for those of another one of the same width."""
    source, target = types.inputs[0], types.outputs[0]
    assert source is not None
    if source.bits != target.bits:
        raise ValueError(f"the bits of {source.spelling} are not as many as those of {target.spelling}")
    return _from_bits(_bits(x, source), target)


def _bits(x: Array, source: DType) -> Array:
    if source.name in _WHOLE:
        return x.astype(np.uint8) & np.uint8((1 << source.bits) - 1)
    if source.name in SMALL:
        return codes_of_floats(x.astype(np.float32), SMALL[source.name])
    if source.name == "BFloat16":
        return (round_bfloat16(x).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.ascontiguousarray(x, source.np).view(f"u{source.np.itemsize}").reshape(x.shape)


def _from_bits(bits: Array, target: DType) -> Array:
    if target.name in _WHOLE:
        return _narrowed(bits, *_WHOLE[target.name])
    if target.name in SMALL:
        return decoded(bits, SMALL[target.name])
    if target.name == "BFloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits != 0 if target.name == "Bool" else bits.view(target.np)


operator("BitwiseNot", since=18, pointwise=True)(lambda x: np.bitwise_not(x))
operator("BitwiseAnd", since=18, pointwise=True)(lambda x, y: np.bitwise_and(x, y))
operator("BitwiseOr", since=18, pointwise=True)(lambda x, y: np.bitwise_or(x, y))
operator("BitwiseXor", since=18, pointwise=True)(lambda x, y: np.bitwise_xor(x, y))


@operator("BitShift", since=11, pointwise=True)
def bit_shift(x: Array, y: Array, *, direction: str) -> Array:
    """Shift bits; a negative shift counts as one by all bits, like those that are too large."""
    up = one_of("direction", direction, "RIGHT", "LEFT") == "LEFT"
    width = y.dtype.type(8 * x.dtype.itemsize)
    y = np.where((y < 0) | (y > width), width, y)
    # Processors shift by less than all bits at once.
    shift, half = np.left_shift if up else np.right_shift, y // y.dtype.type(2)
    return shift(shift(x, half), y - half)
