"""Activation functions, softmax and its relatives; elementwise unless said otherwise.

All take tensors, arrays and numbers. `relu`, `relu6` and the parametric ones keep integers, `hsigmoid`, `softplus` and
`logsigmoid` turn them into float32, the others refuse them, as MegEngine does.
"""

from collections.abc import Sequence

from ..base.errors import EngineError
from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply1, as_tensor, elemwise
from ..tensors.access import dtype_of
from ..tensors.promotion import operands
from ..tensors.reducing import max, sum
from ..tensors.shaping import squeeze
from .elemwise import exp, log
from .geometry import require

__all__ = ["gelu", "hsigmoid", "hswish", "leaky_relu", "logsigmoid", "logsoftmax", "logsumexp", "prelu"]
__all__ += ["relu", "relu6", "sigmoid", "silu", "softmax", "softplus"]

_M = P.ElemwiseMode


def _operand(x: TensorLike) -> Tensor:
    """Return the single operand; a list of numbers is one, too."""
    if isinstance(x, Tensor):
        return x
    return as_tensor(x) if isinstance(x, (list, tuple)) else operands((x,))[0]


def _of_floats(mode: P.ElemwiseMode, x: TensorLike) -> Tensor:
    """Return an elementwise mode that has no integer form."""
    value = _operand(x)
    if not dtype_of(value).is_float:
        raise EngineError(
            f"{mode.name.lower()} takes floats, found {dtype_of(value)}; convert with astype('float32')"
        )
    return elemwise(mode, value)


def relu(x: TensorLike) -> Tensor:
    """Compute ``max(x, 0)``.

    >>> relu([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    return elemwise(_M.RELU, _operand(x))


def relu6(x: TensorLike) -> Tensor:
    """Compute ``min(max(x, 0), 6)``.

    >>> relu6([-1.0, 2.0, 7.0]).tolist()
    [0.0, 2.0, 6.0]
    """
    return elemwise(_M.RELU6, _operand(x))


def prelu(x: TensorLike, y: TensorLike) -> Tensor:
    """Compute ``x`` where it is positive, else ``x * y``.

    >>> prelu([-2.0, 2.0], 0.25).tolist()
    [-0.5, 2.0]
    """
    return elemwise(_M.PRELU, _operand(x), y)


def leaky_relu(inp: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """Compute ``inp`` where it is positive, else ``inp * negative_slope``.

    >>> leaky_relu([-2.0, 2.0], 0.5).tolist()
    [-1.0, 2.0]
    """
    return elemwise(_M.PRELU, _operand(inp), negative_slope)


def sigmoid(x: TensorLike) -> Tensor:
    """Compute ``1 / (1 + exp(-x))``.

    >>> sigmoid(0.0).item()
    0.5
    """
    return _of_floats(_M.SIGMOID, x)


def hsigmoid(x: TensorLike) -> Tensor:
    """Compute ``relu6(x + 3) / 6``.

    >>> hsigmoid([-4.0, 0.0, 4.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    return elemwise(_M.HSIGMOID, _operand(x))


def hswish(x: TensorLike) -> Tensor:
    """Compute ``x * relu6(x + 3) / 6``.

    >>> hswish([-4.0, 0.0, 3.0]).tolist()
    [-0.0, 0.0, 3.0]
    """
    return _of_floats(_M.H_SWISH, x)


def silu(x: TensorLike) -> Tensor:
    """Compute ``x * sigmoid(x)``.

    >>> silu([0.0, 1.0]).numpy().round(4).tolist()
    [0.0, 0.7311000227928162]
    """
    return _of_floats(_M.SILU, x)


def gelu(x: TensorLike) -> Tensor:
    """Compute ``x`` times the normal distribution's probability of a value below it.

    >>> gelu([0.0, 1.0]).numpy().round(4).tolist()
    [0.0, 0.8413000106811523]
    """
    return _of_floats(_M.GELU, x)


def softplus(inp: TensorLike) -> Tensor:
    """Compute ``log(1 + exp(inp))`` without overflow.

    >>> softplus([0.0, 100.0]).numpy().round(4).tolist()
    [0.6930999755859375, 100.0]
    """
    return elemwise(_M.SOFTPLUS, _operand(inp))


def logsigmoid(inp: TensorLike) -> Tensor:
    """Compute ``log(sigmoid(inp))`` without overflow.

    >>> logsigmoid([0.0, -100.0]).numpy().round(4).tolist()
    [-0.6930999755859375, -100.0]
    """
    return elemwise(_M.LOGSIGMOID, _operand(inp))


def softmax(inp: TensorLike, axis: int | Sequence[int] | None = None) -> Tensor:
    """Compute ``exp(inp) / sum(exp(inp))`` along an axis.

    Args:
        inp: a float tensor.
        axis: the axis, or a list of axes; by default 1, or 0 for inputs of 0, 1 or 3 axes.

    >>> softmax([[0.0, 0.0], [1000.0, 0.0]], 1).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    inp = as_tensor(inp)
    if axis is None:
        axis = 0 if inp.ndim in (0, 1, 3) else 1
    if isinstance(axis, Sequence):
        e = exp(inp - max(inp, axis, keepdims=True))
        return e / sum(e, axis, keepdims=True)
    return apply1("Softmax", P.Softmax(axis=int(axis)), inputs=[inp], scalar=False)


def logsumexp(inp: TensorLike, axis: int | Sequence[int], keepdims: bool = False) -> Tensor:
    """Return the logarithm of the sum of exponentials over axes, without overflow.

    Args:
        inp: a tensor; integers become float32.
        axis: one axis or several.
        keepdims: keep them, with size 1.

    Raises:
        AssertionError: `axis` is None.

    >>> logsumexp([[1000.0, 1000.0]], 1).numpy().round(2).tolist()
    [1000.6900024414062]
    """
    require(axis is not None, "axis must be one axis or several, found None")
    inp = as_tensor(inp)
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    top = max(inp, axes, keepdims=True)
    total = log(sum(exp(inp - top), axes, keepdims))
    return (top if keepdims else squeeze(top, axes)) + total


def logsoftmax(inp: TensorLike, axis: int | Sequence[int]) -> Tensor:
    """Compute ``log(softmax(inp))`` over one axis or several, without overflow.

    >>> logsoftmax([0.0, 0.0], 0).numpy().round(4).tolist()
    [-0.6930999755859375, -0.6930999755859375]
    """
    inp = as_tensor(inp)
    return inp - logsumexp(inp, axis, keepdims=True)
