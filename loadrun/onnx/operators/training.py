"""One step of training as ai.onnx.preview.training has it, for any number of tensors at once."""

from __future__ import annotations

from collections.abc import Callable

from ...arrays.names import np
from ...graph.dtypes import Array
from . import operator
from .common import one_of, refuse_unless

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
