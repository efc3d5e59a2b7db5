"""Parameters of quantized values, as MegEngine's ``quantization/utils.py`` has them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from .quantized_dtypes import KINDS, QuantDtypeMeta


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
