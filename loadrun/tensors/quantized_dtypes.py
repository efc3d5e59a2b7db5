"""Quantized dtypes as MegEngine's Python side has them: numpy dtypes that carry scale and zero point.

The stored integers are an array of int8, uint8 or int32 whose dtype has the metadata
``{"mgb_dtype": {"name": ..., "scale": ..., "zero_point": ...}}``; 4-bit and 1-bit types take a byte per element.

>>> get_scale(qint8(0.5)), get_zero_point(quint8(0.5, 128))
(0.5, 128)
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from ..graph.dtypes import plain
from .dtypes import numpy_dtype

__all__ = ["KINDS", "QuantDtypeMeta", "bfloat16", "create_quantized_dtype", "get_scale", "get_zero_point"]
__all__ += ["intb1", "intb2", "intb4", "is_quantize", "qint1", "qint4", "qint8", "qint32", "quint4", "quint8"]


NpDType = np.dtype[Any]
bfloat16: NpDType = numpy_dtype(plain("BFloat16"))
"""float32 whose values a Tensor rounds to bfloat16; numpy has no type of that size, and its arrays do not round."""
intb1: NpDType = numpy_dtype(plain("IntB1"))
"""int8 of -1 and 1; a Tensor refuses other values."""
intb2: NpDType = numpy_dtype(plain("IntB2"))
"""int8 of the odd numbers from -3 to 3."""
intb4: NpDType = numpy_dtype(plain("IntB4"))
"""int8 of the odd numbers from -15 to 15."""


class _Meta(NamedTuple):
    name: str
    cname: str | None
    np_dtype_str: str
    qmin: int
    qmax: int
    is_unsigned: bool


class QuantDtypeMeta(_Meta):
    """The description of a kind of quantized dtype.

    Args:
        name: a name of its own.
        cname: the name of the type in dumps, None for one that dumps do not have.
        np_dtype_str: the numpy dtype of the stored integers.
        qmin: the smallest stored integer.
        qmax: the largest stored integer.
        is_unsigned: whether it has a zero point; by default when `np_dtype_str` is unsigned.
    """

    __slots__ = ()

    def __new__(
        cls,
        name: str,
        cname: str | None,
        np_dtype_str: str,
        qmin: int,
        qmax: int,
        is_unsigned: bool | None = None,
    ) -> QuantDtypeMeta:
        """Make a kind; the class tells what of."""
        unsigned = np_dtype_str[0] == "u" if is_unsigned is None else is_unsigned
        return super().__new__(cls, name, cname, np_dtype_str, qmin, qmax, unsigned)

    def __copy__(self) -> QuantDtypeMeta:
        return self

    def __deepcopy__(self, memo: Any) -> QuantDtypeMeta:
        # Parameter matching compares kinds by identity.
        return self


KINDS = {
    "quint8": QuantDtypeMeta("quint8", "Quantized8Asymm", "uint8", 0, 255),
    "qint8": QuantDtypeMeta("qint8", "QuantizedS8", "int8", -128, 127),
    "qint8_narrow": QuantDtypeMeta("qint8_narrow", "QuantizedS8", "int8", -127, 127),
    "quint4": QuantDtypeMeta("quint4", "Quantized4Asymm", "uint8", 0, 15),
    "qint4": QuantDtypeMeta("qint4", "QuantizedS4", "int8", -8, 7),
    "qint1": QuantDtypeMeta("qint1", "QuantizedS1", "int8", 0, 1),
    "qint32": QuantDtypeMeta("qint32", "QuantizedS32", "int32", -(2**31), 2**31 - 1),
    "quint2": QuantDtypeMeta("quint2", None, "uint8", 0, 3),
    "qint2": QuantDtypeMeta("qint2", None, "int8", -2, 1),
}
"""The kinds of quantized dtypes by name."""
_builtin_quant_dtypes = KINDS  # MegEngine's name


def _details(dtype: Any) -> dict[str, Any]:
    """Return the quantization that a numpy dtype carries, empty if there is none."""
    result = (getattr(dtype, "metadata", None) or {}).get("mgb_dtype", {})
    return result if "scale" in result else {}


def is_quantize(dtype: Any) -> bool:
    """Return whether a dtype is a quantized one.

    >>> is_quantize(qint8(0.5)), is_quantize(np.dtype("int8"))
    (True, False)
    """
    return bool(_details(dtype))


def get_scale(dtype: Any) -> float:
    """Return the step of a quantized dtype.

    Raises:
        TypeError: the dtype is not quantized.
    """
    if not is_quantize(dtype):
        raise TypeError(f"{dtype} is not a quantized dtype")
    return float(_details(dtype)["scale"])


def get_zero_point(dtype: Any) -> int:
    """Return the stored integer that stands for 0.

    Raises:
        TypeError: the dtype has none.
    """
    result = _details(dtype)
    if "zero_point" not in result:
        raise TypeError(f"{dtype} is not a quantized dtype with a zero point")
    return int(result["zero_point"])


def create_quantized_dtype(dtype_meta: QuantDtypeMeta, scale: float, zp: int | None) -> NpDType:
    """Return a quantized dtype of a kind.

    Args:
        dtype_meta: the kind.
        scale: the step between stored integers.
        zp: the stored integer that stands for 0; None for signed kinds.

    Raises:
        ValueError: the kind has no such zero point, or dumps do not have the kind.
    """
    if dtype_meta.cname is None:
        raise ValueError(f"dumps have no type for {dtype_meta.name}")
    details: dict[str, Any] = {"name": dtype_meta.cname, "scale": float(scale)}
    if dtype_meta.is_unsigned:
        if zp is None or int(zp) != zp:
            raise ValueError(f"zero_point of {dtype_meta.name} must be an integer, found {zp}")
        if not dtype_meta.qmin <= zp <= dtype_meta.qmax:
            span = f"[{dtype_meta.qmin}, {dtype_meta.qmax}]"
            raise ValueError(f"zero_point of {dtype_meta.name} must be within {span}, found {zp}")
        details["zero_point"] = int(zp)
    elif zp is not None:
        raise ValueError(f"{dtype_meta.name} is symmetric: zero_point must be None, found {zp}")
    return np.dtype(dtype_meta.np_dtype_str, metadata={"mgb_dtype": details})


def quint8(scale: float, zero_point: int) -> NpDType:
    """Make an unsigned 8-bit dtype: ``scale * (stored - zero_point)``."""
    return create_quantized_dtype(KINDS["quint8"], scale, zero_point)


def qint8(scale: float) -> NpDType:
    """Make a signed 8-bit dtype: ``scale * stored``."""
    return create_quantized_dtype(KINDS["qint8"], scale, None)


def qint32(scale: float) -> NpDType:
    """Make a signed 32-bit dtype: ``scale * stored``."""
    return create_quantized_dtype(KINDS["qint32"], scale, None)


def quint4(scale: float, zero_point: int) -> NpDType:
    """Make an unsigned 4-bit dtype: ``scale * (stored - zero_point)``."""
    return create_quantized_dtype(KINDS["quint4"], scale, zero_point)


def qint4(scale: float) -> NpDType:
    """Make a signed 4-bit dtype: ``scale * stored``."""
    return create_quantized_dtype(KINDS["qint4"], scale, None)


def qint1(scale: float) -> NpDType:
    """Return 1 bit: ``scale * stored``."""
    return create_quantized_dtype(KINDS["qint1"], scale, None)


class QuantMode(Enum):
    """The choice whether 0 is stored as 0 (the spelling is MegEngine's)."""

    SYMMERTIC = 1
    ASYMMERTIC = 2


class QParams:
    """The quantization of a value, present or planned.

    Attributes:
        mode: symmetric or not, None if nothing is known.
        dtype_meta: the kind of dtype.
        scale: the step, a tensor or number.
        zero_point: the stored integer that stands for 0, for asymmetric kinds.
    """

    __slots__ = ("dtype_meta", "mode", "scale", "zero_point")

    def __init__(
        self, mode: QuantMode | None, dtype_meta: QuantDtypeMeta | None, scale: Any, zero_point: Any
    ) -> None:
        self.mode = mode
        self.dtype_meta = dtype_meta
        self.scale = scale
        self.zero_point = zero_point

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return "mode", "dtype_meta", "scale", "zero_point"

    def update(self, qparams: QParams) -> None:
        """Take over the parameters of another value."""
        for name in self._names():
            setattr(self, name, getattr(qparams, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams) or self._names() != other._names():
            return False
        return all(bool(getattr(self, n) == getattr(other, n)) for n in self._names())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"QParams({', '.join(f'{n}={getattr(self, n)}' for n in self._names())})"


class LSQParams(QParams):
    """`QParams` of learned step sizes.

    Args:
        mode: symmetric or not.
        dtype_meta: the kind of dtype.
        scale: the size of a step.
        zero_point: the stored number that stands for 0, or None.
        grad_scale: factor of the step size's gradient, for training.
    """

    __slots__ = ("grad_scale",)

    def __init__(
        self,
        mode: QuantMode | None,
        dtype_meta: QuantDtypeMeta | None,
        scale: Any,
        zero_point: Any,
        grad_scale: Any,
    ) -> None:
        super().__init__(mode, dtype_meta, scale, zero_point)
        self.grad_scale = grad_scale

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        return (*super()._names(), "grad_scale")


def create_qparams(
    mode: QuantMode | None = QuantMode.SYMMERTIC,
    dtype_meta: str | QuantDtypeMeta | None = None,
    scale: Any = None,
    zero_point: Any = None,
) -> QParams:
    """Make quantization parameters.

    Args:
        mode: symmetric or not.
        dtype_meta: the kind of dtype, or its name ("qint8", "quint8", "qint4", ...).
        scale: the step.
        zero_point: the stored integer that stands for 0.

    >>> create_qparams(QuantMode.SYMMERTIC, "qint8", 0.5).dtype_meta.qmin
    -128
    """
    if isinstance(dtype_meta, str):
        dtype_meta = KINDS[dtype_meta]
    if not (mode is None or isinstance(mode, QuantMode)):
        raise AssertionError(f"mode must be a QuantMode, found {mode!r}")
    return QParams(mode, dtype_meta, scale, zero_point)
