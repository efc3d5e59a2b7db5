"""Fake quantization: real numbers rounded to those of a quantized dtype (MegEngine's ``quantization/utils.py``)."""

import numpy as np

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply1, as_tensor, const
from ..tensors.access import as_vector
from ..tensors.quantized_dtypes import QParams, QuantMode, create_qparams


def _vector(value: TensorLike) -> Tensor:
    """Return a scale or zero point as the operators take it: at least 1-d float32."""
    return as_vector(as_tensor(value, "float32"))


def tqt_forward(qmin: int, qmax: int, inp: TensorLike, scale: TensorLike) -> Tensor:
    """Round to what a quantized dtype has, with a step of ``2 ** scale`` (trained quantization thresholds).

    Args:
        qmin: the smallest stored integer.
        qmax: the largest stored integer.
        inp: float32.
        scale: (1,), or of a shape that broadcasts to the input's.

    >>> tqt_forward(-8, 7, [0.6, 9.0], [-1.0]).tolist()
    [0.5, 3.5]
    """
    return apply1("TQT", P.TQT(qmin=int(qmin), qmax=int(qmax)), inputs=[as_tensor(inp), _vector(scale)])


def lsq_forward(
    qmin: int,
    qmax: int,
    inp: TensorLike,
    step_size: TensorLike,
    zero_point: TensorLike | None = None,
    scale_grad: TensorLike | None = None,
) -> Tensor:
    """Round to what a quantized dtype has, with a learned step size.

    Args:
        qmin: the smallest stored integer.
        qmax: the largest stored integer.
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


def fake_quant_tensor(inp: TensorLike, qparams: QParams) -> Tensor:
    """Round real numbers to those that a quantized dtype has.

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


def fake_quant_bias(bias: TensorLike | None, inp: Tensor, w_qat: Tensor) -> TensorLike | None:
    """Return a bias rounded to steps of the product of the input's and the weight's scales.

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
    result = fake_quant_tensor(bias, q)
    result.qparams.update(q)
    return result
