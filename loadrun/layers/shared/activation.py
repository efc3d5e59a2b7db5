"""Activations, softmax and its logarithm."""

import numpy as np

from ...base.registry import late
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import as_vector, dtype_of
from .. import emit as e
from ..emit import M

with late(__name__):
    from .. import activation


def elu(x: Tensor, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Compute ``scale * x`` above 0, else ``scale * alpha * (exp(input_scale * x) - 1)``; CELU and SELU are cases.

    >>> elu(Tensor([1.0, -100.0]), 0.5, 2.0).tolist()
    [2.0, -1.0]
    """
    up, down = e.elem(M.RELU, x), e.elem(M.MIN, e.number(0, x), x)
    if input_scale != 1:
        down = e.elem(M.MUL, e.number(input_scale, x), down)
    if scale != 1:
        up = e.elem(M.MUL, e.number(scale, x), up)
    return e.elem(M.ADD, up, e.elem(M.MUL, e.number(alpha * scale, x), e.elem(M.EXPM1, down)))


def prelu(x: Tensor, slope: Tensor | float) -> Tensor:
    """Compute ``x`` above 0, else ``x * slope``, which broadcasts.

    >>> prelu(Tensor([1.0, -2.0]), 0.25).tolist()
    [1.0, -0.5]
    """
    return e.elem(M.PRELU, x, slope if isinstance(slope, Tensor) else e.number(slope, x))


def gelu(x: Tensor, *, tanh: bool = False) -> Tensor:
    """Compute ``x`` times the normal distribution's probability of a value below it, or its approximation by tanh.

    >>> gelu(Tensor([0.0, 100.0])).tolist(), gelu(Tensor([0.0, 100.0]), tanh=True).tolist()
    ([0.0, 100.0], [0.0, 100.0])
    """
    if not tanh:
        return activation.gelu(x)
    factor = (2 / np.pi) ** 0.5
    bent = e.elem(M.MUL, e.number(0.044715 * factor, x), e.elem(M.SQUARE, x))
    inner = e.elem(M.MUL, x, e.elem(M.ADD, e.number(factor, x), bent))
    half = e.elem(M.MUL, e.number(0.5, x), x)
    return e.elem(M.MUL, half, e.elem(M.ADD, e.number(1, x), e.elem(M.TANH, inner)))


def swish(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Compute ``x * sigmoid(alpha * x)``, with an alpha of 1 MegEngine's SILU.

    >>> swish(Tensor([0.0, 100.0]), 2.0).tolist()
    [0.0, 100.0]
    """
    if alpha == 1.0:
        return activation.silu(x)
    return e.elem(M.MUL, x, e.elem(M.SIGMOID, e.elem(M.MUL, e.number(alpha, x), x)))


def softmax(x: Tensor, axis: int, *, guard: bool = False) -> Tensor:
    """Compute ``exp(x) / sum(exp(x))`` along an axis.

    Args:
        x: a float tensor.
        axis: the axis, counted from the front.
        guard: give zeros where all values along the axis are -inf, instead of NaN.

    >>> softmax(Tensor([[0.0, 0.0], [-np.inf, -np.inf]]), 1, guard=True).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    wide = e.as_float(x)

    y = activation.softmax(as_vector(wide), axis)
    if guard:
        # MegEngine's maximum of minus infinity is the lowest finite number, which a mask may be, too.
        masked = e.cast(e.compare(P.ElemwiseMultiTypeMode.EQ, wide, e.number(-np.inf, wide)), dtype_of(wide))
        dead = e.reduce(masked, P.ReduceMode.MIN, [axis], keepdims=True)
        y = e.elem(M.COND_LEQ_MOV, dead, e.number(0, dead), y)
    return e.cast(y if x.ndim else e.reshape(y, ()), dtype_of(x))


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """Compute the logarithm of softmax along an axis, exact where the values are large.

    >>> log_softmax(Tensor([1000.0, 0.0]), 0).tolist()
    [0.0, -1000.0]
    """
    wide = e.as_float(x)
    top = e.reduce(wide, P.ReduceMode.MAX, [axis], keepdims=True)
    shifted = e.elem(M.SUB, wide, top)
    total = e.elem(M.LOG, e.summed(e.elem(M.EXP, shifted), [axis], True))
    return e.cast(e.elem(M.SUB, shifted, total), dtype_of(x))


def hard_sigmoid(x: Tensor, alpha: float, beta: float) -> Tensor:
    """Compute ``alpha * x + beta`` between 0 and 1, for 1/6 and 1/2 MegEngine's HSIGMOID.

    >>> hard_sigmoid(Tensor([-9.0, 1.0, 9.0]), 0.25, 0.5).tolist()
    [0.0, 0.75, 1.0]
    """
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return activation.hsigmoid(x)
    line = e.elem(M.ADD, e.elem(M.MUL, e.number(alpha, x), x), e.number(beta, x))
    return e.elem(M.MIN, e.elem(M.MAX, line, e.number(0, x)), e.number(1, x))
