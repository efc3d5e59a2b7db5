"""Losses, dropout, random numbers, and one step of training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arrays.names import np
from ...graph.composite import Known, NodeTypes
from ...graph.dtypes import Array, DType, plain
from ...ops.numeric.stream import Stream
from . import operator
from .common import like_first, one_of, refuse_unless, taking, tensor_type


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """Compute -weight[t] * x[t] over classes in axis 1, summed, averaged by weight, or unreduced."""
    one_of("reduction", reduction, "mean", "sum", "none")
    counted = None if ignore_index is None else target != ignore_index
    at = target if counted is None else np.where(counted, target, 0)
    loss = -np.squeeze(np.take_along_axis(x, np.expand_dims(at, 1), 1), 1)
    factor = None if weight is None else np.take(weight, at)
    if counted is not None:
        factor = counted.astype(x.dtype) if factor is None else np.where(counted, factor, 0).astype(x.dtype)
    loss = loss if factor is None else loss * factor
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if factor is None else loss.sum() / factor.sum()


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """Compute the negative log-likelihood of softmax over axis 1, and the logarithms of softmax."""
    away = x - x.max(1, keepdims=True)
    logs = away - np.log(np.exp(away).sum(1, keepdims=True))
    loss = negative_log_likelihood(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    return loss, logs


def _with_mask(x: Array, *others: Array | None, **attributes: object) -> list[tuple[int, ...]]:
    return [x.shape, x.shape]


@operator("Dropout", since=12, out=(0, "Bool"), shape=_with_mask)
def dropout(
    x: Array,
    ratio: Known | None = None,
    training: Known | None = None,
    *,
    seed: int | None = None,
    stream: Stream | None = None,
) -> tuple[Array, Array]:
    """Return the input; while training, random elements become 0 and the others grow. The mask tells who stays."""
    if training is None or not training.item():
        return x, np.ones(x.shape, bool)
    rate = 0.5 if ratio is None else float(ratio.item())
    if not rate:
        return x, np.ones(x.shape, bool)
    source = Stream(seed or 0) if stream is None else stream
    stays = source.uniform("UniformRNGV1", x.shape) >= rate
    return np.where(stays, x * (1 / (1 - rate)), 0).astype(x.dtype), stays


def _mask_type(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    like = types.inputs[0]
    assert like is not None
    return plain("Bool") if types.opset >= 10 else like


@operator("Dropout", since=7, out=(0, _mask_type), shape=_with_mask)
def dropout_7(x: Array, *, ratio: float = 0.5, types: NodeTypes) -> tuple[Array, Array]:
    """Return the input, and a mask that ONNX Runtime fills with zeros."""
    return x, np.zeros(x.shape, bool if types.opset >= 10 else x.dtype)


@operator("Dropout", out=(0, _mask_type), shape=_with_mask)
def dropout_1(x: Array, *, is_test: int = 0, ratio: float = 0.5, types: NodeTypes) -> tuple[Array, Array]:
    """Return the input, and a mask that ONNX Runtime fills with zeros."""
    return dropout_7(x, ratio=ratio, types=types)


_TRAINING = "ai.onnx.preview.training"

Step = tuple[Array, ...]


def _stepped(inputs: Step, each: int, run: Callable[..., Step]) -> Step:
    """Compute new tensors and states from a tensor, its gradient and its states: first all tensors, then the states."""
    refuse_unless(
        len(inputs) % each == 0 and len(inputs) > 0,
        f"it has {len(inputs) + 2} inputs, expected two and {each} for every optimized tensor",
    )
    count = len(inputs) // each
    results = [run(*inputs[i::count]) for i in range(count)]
    return tuple(value for part in zip(*results, strict=True) for value in part)


@operator("Adagrad", domain=_TRAINING, out=(2,))
def adagrad(
    rate: Array,
    count: Array,
    *inputs: Array,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Step:
    """Step against the gradients, each divided by the root of the sum of its squares."""
    speed = rate.reshape(()) / (1 + count.reshape(()) * decay_factor)

    def run(x: Array, g: Array, h: Array) -> Step:
        g = norm_coefficient * x + g
        h = h + g * g
        return x - speed.astype(x.dtype) * g / (np.sqrt(h) + epsilon), h

    return _stepped(inputs, 3, run)


@operator("Adam", domain=_TRAINING, out=(2,))
def adam(
    rate: Array,
    count: Array,
    *inputs: Array,
    alpha: float = float(np.float32(0.9)),
    beta: float = float(np.float32(0.999)),
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Step:
    """Step against running means of the gradients, divided by the roots of those of their squares."""
    steps = count.reshape(()).astype(np.float64)
    # The first step would divide 0 by 0.
    safe = np.where(steps > 0, steps, 1)
    corrected = np.sqrt(1 - beta**safe) / (1 - alpha**safe)
    speed = rate.reshape(()) * np.where(steps > 0, corrected, 1)

    def run(x: Array, g: Array, v: Array, h: Array) -> Step:
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * (g * g)
        x = x - speed.astype(x.dtype) * v / (np.sqrt(h) + epsilon)
        return (1 - norm_coefficient_post) * x, v, h

    return _stepped(inputs, 4, run)


@operator("Momentum", domain=_TRAINING, out=(2,))
def momentum(
    rate: Array, count: Array, *inputs: Array, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Step:
    """Step against gradients and what remains of earlier steps."""
    one_of("mode", mode, "standard", "nesterov")
    # The first step takes the whole gradient.
    weight = np.where(count.reshape(()) > 0, beta, 1.0)

    def run(x: Array, g: Array, v: Array) -> Step:
        g = norm_coefficient * x + g
        v = alpha * v + weight.astype(x.dtype) * g
        move = g + alpha * v if mode == "nesterov" else v
        return x - rate.reshape(()).astype(x.dtype) * move, v

    return _stepped(inputs, 3, run)


_DIGITS = {"Float16": 10, "BFloat16": 7}
"""How many binary digits uniform numbers of a type have; 23 in others."""


def _kind(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type that ``dtype`` says, else that of the input, else Float32."""
    input_type = types.inputs[0] if types.inputs else None
    return tensor_type(attributes["dtype"]) if "dtype" in attributes else input_type or DType("Float32")


def _asked(*, shape: list[int], **others: object) -> tuple[int, ...]:
    return tuple(shape)


@operator("RandomUniform", out=(_kind,), shape=_asked)
@taking(dtype=None, seed=None)
def random_uniform(
    *,
    high: float = 1.0,
    low: float = 0.0,
    shape: Sequence[int],
    stream: Stream,
    types: NodeTypes,
    **_: object,
) -> Array:
    """Draw numbers spread evenly over an interval."""
    drawn = stream.uniform("UniformRNGV1", tuple(shape), _DIGITS.get(types.outputs[0].name, 23))
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


@operator("RandomUniformLike", out=(_kind,), shape=like_first)
@taking(dtype=None, high=1.0, low=0.0, seed=None)
def random_uniform_like(x: Array, *, stream: Stream, types: NodeTypes, **how: Any) -> Array:
    """Draw as many numbers as another tensor has, spread evenly over an interval."""
    return random_uniform(shape=x.shape, stream=stream, types=types, **how)


@operator("RandomNormal", out=(_kind,), shape=_asked)
@taking(dtype=None, seed=None)
def random_normal(
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    shape: Sequence[int],
    stream: Stream,
    types: NodeTypes,
    **_: object,
) -> Array:
    """Draw normally distributed numbers."""
    digits = _DIGITS.get(types.outputs[0].name, 23)
    return stream.normal("GaussianRNGV1", tuple(shape), mean, scale, digits)


@operator("RandomNormalLike", out=(_kind,), shape=like_first)
@taking(dtype=None, mean=0.0, scale=1.0, seed=None)
def random_normal_like(x: Array, *, stream: Stream, types: NodeTypes, **how: Any) -> Array:
    """Draw as many normally distributed numbers as another tensor has."""
    return random_normal(shape=x.shape, stream=stream, types=types, **how)


@operator("Bernoulli", since=15, out=(_kind,), shape=like_first)
def bernoulli(
    x: Array, *, dtype: int | None = None, seed: float | None = None, stream: Stream, types: NodeTypes
) -> Array:
    """Draw 1 with the probability that each element says, else 0."""
    # The numbers are above 0 and reach 1.
    return (stream.uniform("UniformRNGV1", x.shape) <= x).astype(types.outputs[0].np)
