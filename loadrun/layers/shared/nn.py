"""Activations, softmax, normalizations and recurrent layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...base.registry import late
from ...graph import params as P
from ...graph.dtypes import plain
from ...ops.registry import check_recorded
from ...tensors import Tensor, apply, const
from ...tensors.access import as_vector, dtype_of, static_shape
from .. import emit as e, norm as own
from ..emit import M
from .sizes import is_open, per_channel

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


def standardized(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``(x - mean) / sqrt(var + eps)`` of a float32 tensor, the mean, and the factor."""
    mean = e.mean(x, axes)
    centred = e.elem(M.SUB, x, mean)
    variance = e.mean(e.elem(M.SQUARE, centred), axes)
    deviation = e.elem(M.SQRT, e.elem(M.ADD, variance, e.number(eps, variance)))
    inverse = e.elem(M.TRUE_DIV, e.number(1.0, deviation), deviation)
    return e.elem(M.TRUE_DIV, centred, deviation), mean, inverse


def affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return ``y * weight + bias``, without what is None."""
    if weight is not None:
        y = e.elem(M.MUL, y, weight)
    return y if bias is None else e.elem(M.ADD, y, bias)


def _float32(v: Tensor | None) -> Tensor | None:
    return None if v is None else e.folded(lambda t: e.as_float(t), v)


def _pair(
    weight: Tensor | None, bias: Tensor | None, shape: Sequence[int]
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return weight and bias of one shape, as MegEngine's operators take them: both, or neither."""

    def whole(v: Tensor | None, fill: float) -> Tensor:
        if v is None:
            other = bias if weight is None else weight
            return const(np.full(shape, fill), plain("Float32") if other is None else dtype_of(other))
        rest = static_shape(v)[max(v.ndim - len(shape), 0) :]
        same = static_shape(v) == tuple(shape)
        return v if same else e.folded(lambda t: e.broadcast(e.reshape(t, rest), shape), v)

    return (None, None) if weight is None and bias is None else (whole(weight, 1.0), whole(bias, 0.0))


def _fits(v: Tensor | None, ndim: int) -> bool:
    """Return whether a parameter is the same along all but the last `ndim` axes."""
    return v is None or prod(static_shape(v)[: max(v.ndim - ndim, 0)]) == 1


def _fixed(x: Tensor, axis: int, weight: Tensor | None, sizes: Sequence[int] | None) -> list[int] | None:
    """Return the sizes from an axis on if they are the same in every run: given, or told by the weight."""
    now = [int(n) for n in static_shape(x)[axis:]]
    if sizes is not None or not is_open(*x.shape[axis:]):
        return now
    if weight is None or list(static_shape(weight)) != now or 1 in now:
        return None
    return None if is_open(*weight.shape) else now


def layer_norm(
    x: Tensor,
    axis: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    sizes: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize over the axes from `axis` on: ``(x - mean) / sqrt(var + eps) * weight + bias``.

    Args:
        x: a float tensor.
        axis: the first of the axes, counted from the front.
        weight: broadcasts with `x`.
        bias: broadcasts with `x`.
        eps: added to the (biased) variance.
        sizes: those of the normalized axes, where the caller knows that they are the same in every run.

    Returns:
        the result in the dtype of `x`; the mean and ``1 / sqrt(var + eps)`` in float32, with the axes of size 1.

    >>> y, mean, factor = layer_norm(Tensor([[1.0, 3.0]]), 1, eps=0.0)
    >>> y.tolist(), mean.tolist(), factor.tolist()
    ([[-1.0, 1.0]], [[2.0]], [[1.0]])
    """
    wide, weight, bias = e.as_float(x), _float32(weight), _float32(bias)
    shape = _fixed(x, axis, weight, sizes)
    # MegEngine's operator holds how many numbers it normalizes.
    # It also holds eps, in float32.
    if not shape or 0 in static_shape(x) or dtype_of(wide).name == "Float64":
        y, mean, inverse = standardized(wide, range(axis, x.ndim), eps)
        return e.cast(affine(y, weight, bias), dtype_of(x)), mean, inverse
    fits = _fits(weight, len(shape)) and _fits(bias, len(shape))
    inputs = _pair(weight, bias, shape) if fits else (None, None)
    rows = wide if axis else e.add_axes(wide, [0])
    y, mean, inverse = own.layer_moments([rows, *(v for v in inputs if v is not None)], shape, eps)
    if not axis:
        y = e.drop_axes(y, [0])
    if not fits:
        y = affine(y, weight, bias)
    rest = range(max(axis, 1), x.ndim)
    return e.cast(y, dtype_of(x)), e.add_axes(mean, rest), e.add_axes(inverse, rest)


def _as_images(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of (N, C, H, W) to (N, C, ...)."""
    if x.ndim == 4:
        return function(x)
    if x.ndim < 4:
        return e.drop_axes(function(e.add_axes(x, range(x.ndim, 4))), range(x.ndim, 4))
    return e.reshape(function(e.reshape(x, (*x.shape[:2], -1, 1))), x.shape)


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalize every group of channels of every (N, C, ...); every channel by itself with no groups.

    Args:
        x: (N, C, ...), float.
        groups: into how many groups the channels are divided; 0 for InstanceNorm, every channel alone.
        weight: (C,).
        bias: (C,).
        eps: added to the (biased) variance.

    >>> group_norm(Tensor([[1.0, 3.0, 5.0, 5.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0, nan, nan]]
    """
    wide, weight, bias = e.as_float(x), _float32(weight), _float32(bias)
    if 0 in static_shape(x):
        return x
    if dtype_of(wide).name == "Float64":
        # MegEngine's operators hold eps in float32.
        rows = e.reshape(wide, (*x.shape[: 1 if groups else 2], *([groups] if groups else []), -1))
        y, _, _ = standardized(rows, [2], eps)
        scales = [None if v is None else per_channel(v, x.ndim) for v in (weight, bias)]
        return affine(e.reshape(y, x.shape), *scales)
    weight, bias = _pair(weight, bias, static_shape(x)[1:2])

    def normalized(image: Tensor) -> Tensor:
        if not groups:
            return own.instance_norm(image, weight is not None, weight, bias, eps)
        return own.group_norm(image, groups, weight is not None, weight, bias, eps)

    return e.cast(_as_images(wide, normalized), dtype_of(x))


def batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize every channel of (N, C, ...) by known statistics.

    Args:
        x: (N, C, ...), float.
        mean: (C,).
        variance: (C,).
        weight: (C,).
        bias: (C,).
        eps: added to the variance.

    >>> batch_norm(Tensor([[5.0], [7.0]]), Tensor([5.0]), Tensor([4.0]), eps=0.0).tolist()
    [[0.0], [1.0]]
    """
    wide, mean, variance = (e.as_float(v) for v in (x, mean, variance))
    weight, bias = _float32(weight), _float32(bias)
    # MegEngine's operator adds eps in float32.
    images = 2 <= x.ndim <= 4 and not dtype_of(wide).is_wide
    if images:
        weight, bias = _pair(weight, bias, static_shape(mean))
    rank = 4 if images else x.ndim
    mean, variance = per_channel(mean, rank), per_channel(variance, rank)
    weight, bias = (None if v is None else per_channel(v, rank) for v in (weight, bias))
    if not images:
        return e.cast(rescaled(wide, mean, variance, weight, bias, eps), dtype_of(x))
    return e.cast(own.batch_norm(wide, mean, variance, weight, bias, eps=eps), dtype_of(x))


def rescaled(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Return `x` normalized by statistics that broadcast: one product and one sum where they are constants."""

    def factor_of(v: Tensor) -> Tensor:
        return e.elem(M.TRUE_DIV, e.number(1.0, v), e.elem(M.SQRT, e.elem(M.ADD, v, e.number(eps, v))))

    factor = e.folded(factor_of, variance)
    if weight is not None:
        factor = e.folded(lambda w, f: e.elem(M.MUL, w, f), weight, factor)
    shift = e.folded(lambda m, f: e.elem(M.NEGATE, e.elem(M.MUL, m, f)), mean, factor)
    if bias is not None:
        shift = e.folded(lambda b, s: e.elem(M.ADD, b, s), bias, shift)
    return e.elem(M.ADD, e.elem(M.MUL, x, factor), shift)


def rms_norm(x: Tensor, axes: Sequence[int], weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Divide by the root of the mean square over axes, then multiply: ``x / sqrt(mean(x ** 2) + eps) * weight``.

    >>> rms_norm(Tensor([[3.0, 3.0]]), [1], eps=0.0).tolist()
    [[1.0, 1.0]]
    """
    wide = e.as_float(x)
    square = e.mean(e.elem(M.SQUARE, wide), axes)
    root = e.elem(M.SQRT, e.elem(M.ADD, square, e.number(eps, square)))
    return e.cast(affine(e.elem(M.TRUE_DIV, wide, root), _float32(weight), None), dtype_of(x))


def local_response_norm(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """Compute ``x / (k + alpha * s) ** beta``, s the sum of squares over `size` channels around each one.

    Args:
        x: (N, C, ...), float.
        size: how many channels; of an even number one more behind than before.
        alpha: factor.
        beta: exponent.
        k: summand.

    >>> local_response_norm(Tensor([[2.0, 0.0]]), 2, 0.5, 1.0, 0.0).tolist()
    [[1.0, nan]]
    """
    wide = e.as_float(x)
    if size % 2 and 0 not in static_shape(x):
        return e.cast(
            _as_images(wide, lambda image: own.local_response_norm(image, size, k, alpha, beta)), dtype_of(x)
        )
    check_recorded(2 * size)
    n, before = x.shape[1], (size - 1) // 2
    square = e.elem(M.SQUARE, wide)
    ends = [
        e.full(e.number(0, wide), (x.shape[0], width, *x.shape[2:])) for width in (before, size - 1 - before)
    ]
    padded = e.concat([ends[0], square, ends[1]], 1)
    total = e.subtensor(padded, [(1, 0, n, None, None)])
    for i in range(1, size):
        total = e.elem(M.ADD, total, e.subtensor(padded, [(1, i, n + i, None, None)]))
    base = e.elem(M.ADD, e.elem(M.MUL, e.number(alpha, total), total), e.number(k, total))
    return e.cast(e.elem(M.TRUE_DIV, wide, e.elem(M.POW, base, e.number(beta, base))), dtype_of(x))


def layers(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Tensor,
    hidden: int,
    *,
    count: int = 1,
    both: bool = False,
    biased: bool = True,
    mode: P.RNNCellNonlineMode = P.RNNCellNonlineMode.TANH,
) -> list[Tensor]:
    """Run layers of an LSTM, or of an RNN if there is one state, over sequences of any length.

    Args:
        x: (steps, N, features), float32.
        states: (layers * directions, N, hidden): hidden, and of an LSTM cell.
        weights: those of all layers and directions side by side: input, hidden, and their biases.
        hidden: the size of a state.
        count: how many layers.
        both: go through the steps in both directions.
        biased: the weights have biases.
        mode: the activation of an RNN.

    Returns:
        (steps, N, hidden * directions), then the last states.
    """
    common: dict[str, Any] = {
        "num_layers": count,
        "bidirectional": both,
        "bias": biased,
        "hidden_size": hidden,
        "fwd_mode": P.BNFwdMode.INFERENCE,
    }
    inputs = [x, *states, weights]
    if len(states) == 2:
        return apply("LSTMForward", P.LSTM(**common), inputs=inputs, n=4, scalar=False)[:3]
    param = P.RNN(**common, nonlineMode=mode)
    return apply("RNNForward", param, inputs=inputs, n=3, scalar=False)[:2]
