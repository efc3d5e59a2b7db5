"""Parameters of quantized values and the forward side of fake quantization, as in MegEngine's quantization.utils."""

from __future__ import annotations

import abc
from enum import Enum
from typing import Any

import numpy as np

from .. import params as P
from ..core.tensor.dtype import QuantDtypeMeta, _builtin_quant_dtypes, create_quantized_dtype
from ..imperative import Tensor, apply1, as_tensor, const

__all__ = [
    "LSQParams",
    "QParams",
    "QParamsModuleMixin",
    "QuantMode",
    "create_qparams",
    "fake_quant_bias",
    "fake_quant_tensor",
    "lsq_forward",
    "tqt_forward",
]


class QuantMode(Enum):
    """Whether 0 is stored as 0 (the spelling is MegEngine's)."""

    SYMMERTIC = 1
    ASYMMERTIC = 2


class QParams:
    """How a value is, or is to be, quantized.

    Attributes:
        mode: symmetric or not, None where nothing is known.
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

    def _names(self) -> tuple[str, ...]:
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

    def _names(self) -> tuple[str, ...]:
        return (*super()._names(), "grad_scale")


class QParamsModuleMixin(abc.ABC):
    """A module that knows how its output is quantized."""

    @abc.abstractmethod
    def get_qparams(self) -> QParams:
        """The parameters of the output."""

    def get_quantized_dtype(self) -> np.dtype[Any]:
        """The dtype of the output."""
        q = self.get_qparams()
        assert q.dtype_meta is not None
        zero = None if q.zero_point is None else int(q.zero_point)
        return create_quantized_dtype(q.dtype_meta, float(q.scale), zero)


def create_qparams(
    mode: QuantMode | None = QuantMode.SYMMERTIC,
    dtype_meta: str | QuantDtypeMeta | None = None,
    scale: Any = None,
    zero_point: Any = None,
) -> QParams:
    """Quantization parameters.

    Args:
        mode: symmetric or not.
        dtype_meta: the kind of dtype, or its name ("qint8", "quint8", "qint4", ...).
        scale: the step.
        zero_point: the stored integer that stands for 0.

    >>> create_qparams(QuantMode.SYMMERTIC, "qint8", 0.5).dtype_meta.qmin
    -128
    """
    if isinstance(dtype_meta, str):
        dtype_meta = _builtin_quant_dtypes[dtype_meta]
    if not (mode is None or isinstance(mode, QuantMode)):
        raise AssertionError(f"mode must be a QuantMode, found {mode!r}")
    return QParams(mode, dtype_meta, scale, zero_point)


def _vector(value: Any) -> Tensor:
    """A scale or zero point as the operators take it: at least 1-d float32."""
    return as_tensor(value, "float32")._vector()


def tqt_forward(qmin: int, qmax: int, inp: Any, scale: Any) -> Tensor:
    """Fake quantization with a step of ``2 ** scale`` (trained quantization thresholds).

    Args:
        qmin: the least stored integer.
        qmax: the greatest stored integer.
        inp: float32.
        scale: (1,), or of a shape that broadcasts to the input's.

    >>> tqt_forward(-8, 7, [0.6, 9.0], [-1.0]).tolist()
    [0.5, 3.5]
    """
    return apply1("TQT", P.TQT(qmin=int(qmin), qmax=int(qmax)), inputs=[as_tensor(inp), _vector(scale)])


def lsq_forward(
    qmin: int, qmax: int, inp: Any, step_size: Any, zero_point: Any = None, scale_grad: Any = None
) -> Tensor:
    """Fake quantization with a learned step size.

    Args:
        qmin: the least stored integer.
        qmax: the greatest stored integer.
        inp: float32.
        step_size: (1,), or of a shape that broadcasts to the input's.
        zero_point: the stored number that stands for 0; 0 by default.
        scale_grad: counts in training only.

    >>> lsq_forward(-8, 7, [0.6, 9.0], [0.5]).tolist()
    [0.5, 3.5]
    """
    zero = const(np.array([0], np.float32)) if zero_point is None else _vector(zero_point)
    grad = const(np.array([1], np.float32)) if scale_grad is None else _vector(scale_grad)
    param = P.LSQ(qmin=int(qmin), qmax=int(qmax))
    return apply1("LSQ", param, inputs=[as_tensor(inp), _vector(step_size), zero, grad])


def fake_quant_tensor(inp: Any, qparams: QParams) -> Tensor:
    """Real numbers rounded to those that a quantized dtype has.

    Args:
        inp: float32.
        qparams: the parameters of that dtype.

    >>> fake_quant_tensor([0.6, 99.0], create_qparams(QuantMode.SYMMERTIC, "qint8", [0.5])).tolist()
    [0.5, 63.5]
    """
    assert qparams.dtype_meta is not None
    asymmetric = qparams.mode == QuantMode.ASYMMERTIC
    zero = _vector(qparams.zero_point) if asymmetric else const(np.array([0], np.float32))
    param = P.FakeQuant(qmin=qparams.dtype_meta.qmin, qmax=qparams.dtype_meta.qmax)
    return apply1("FakeQuant", param, inputs=[as_tensor(inp), _vector(qparams.scale), zero])


def fake_quant_bias(bias: Any, inp: Tensor, w_qat: Tensor) -> Any:
    """A bias rounded to steps of the product of the input's and the weight's scales.

    Args:
        bias: the bias, or None.
        inp: a value with symmetric int8 `qparams`; else the bias stays as it is.
        w_qat: the weight, likewise.

    >>> x, w = Tensor([1.0]), Tensor([1.0])
    >>> for v in (x, w):
    ...     v.qparams.update(create_qparams(QuantMode.SYMMERTIC, "qint8", Tensor([0.5])))
    >>> fake_quant_bias(Tensor([0.3]), x, w).tolist()
    [0.25]
    """
    if bias is None:
        return bias
    a, b = inp.qparams, w_qat.qparams
    known = all(q.scale is not None and q.mode == QuantMode.SYMMERTIC for q in (a, b))
    if not known or any(q.dtype_meta.np_dtype_str != "int8" for q in (a, b)):
        return bias
    q = create_qparams(b.mode, "qint32", scale=a.scale * b.scale)
    found = fake_quant_tensor(bias, q)
    found.qparams.update(q)
    return found
