"""One step of training as ai.onnx.preview.training has it: plain formulas, for any number of tensors at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of
from ..call import NodeCall, lower
from ..values import UnsupportedNodeError, Value
from . import M, cast, const_like

__all__: list[str] = []

_TRAINING = "ai.onnx.preview.training"


def _add(x: Tensor, y: Tensor) -> Tensor:
    return e.elem(M.ADD, x, y)


def _mul(x: Tensor, y: Tensor) -> Tensor:
    return e.elem(M.MUL, x, y)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return _mul(const_like(factor, x), x)


class _Step:
    """The two scalars of a step and the attributes that all operators have.

    Attributes:
        rate: the learning rate.
        count: how many steps went before, as float32.
        first: whether none did.
    """

    def __init__(self, c: NodeCall, tensors: int) -> None:
        if len(c.inputs) < 2 or (len(c.inputs) - 2) % tensors:
            raise UnsupportedNodeError(
                f"it has {len(c.inputs)} inputs, expected two and {tensors} for every optimized tensor"
            )
        self.c = c
        self.parts = (len(c.inputs) - 2) // tensors
        self.rate = e.reshape(c.t(0), ())
        self.count = cast(e.reshape(c.t(1), ()), "float32")
        self.later = e.compare(P.ElemwiseMultiTypeMode.LT, const_like(0, self.count), self.count)

    def inputs(self, i: int, tensors: int) -> list[Tensor]:
        """Return the inputs that belong to the tensor with this index: itself, its gradient, its state."""
        return [self.c.t(2 + k * self.parts + i) for k in range(tensors)]

    def all(self, run: Callable[..., tuple[Tensor, ...]], tensors: int) -> tuple[Value, ...]:
        """Compute new tensors and states: first all tensors, then each state of all."""
        results = [run(*self.inputs(i, tensors)) for i in range(self.parts)]
        kinds = [self.c.kind(2 + i) for i in range(self.parts)]
        return tuple(Value(k, m[j]) for j in range(tensors - 1) for k, m in zip(kinds, results, strict=True))

    def regularized(self, x: Tensor, g: Tensor) -> Tensor:
        """Add the gradient of the squared norm to the gradient."""
        return _add(_scaled(x, self.c.real("norm_coefficient")), g)


@lower("Adagrad", domain=_TRAINING)
def _adagrad(c: NodeCall) -> tuple[Value, ...]:
    step = _Step(c, 3)
    decay = _add(const_like(1, step.count), _scaled(step.count, c.real("decay_factor")))

    def run(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        rate = cast(e.elem(M.TRUE_DIV, cast(step.rate, "float32"), decay), dtype_of(x))
        g = step.regularized(x, g)
        h = _add(h, e.elem(M.SQUARE, g))
        root = _add(e.elem(M.SQRT, h), const_like(c.real("epsilon", 1e-6), h))
        return e.elem(M.SUB, x, e.elem(M.TRUE_DIV, _mul(rate, g), root)), h

    return step.all(run, 3)


@lower("Adam", domain=_TRAINING)
def _adam(c: NodeCall) -> tuple[Value, ...]:
    step = _Step(c, 4)
    alpha, beta = c.real("alpha", float(np.float32(0.9))), c.real("beta", float(np.float32(0.999)))
    one = const_like(1, step.count)

    def rest(base: float) -> Tensor:
        return e.elem(M.SUB, one, e.elem(M.POW, const_like(base, one), step.count))

    rate = cast(step.rate, "float32")
    corrected = e.elem(M.TRUE_DIV, _mul(rate, e.elem(M.SQRT, rest(beta))), rest(alpha))
    # The first step would divide 0 by 0.
    rate = e.where(step.later, corrected, rate)

    def run(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = step.regularized(x, g)
        v = _add(_scaled(v, alpha), _scaled(g, 1 - alpha))
        h = _add(_scaled(h, beta), _scaled(e.elem(M.SQUARE, g), 1 - beta))
        root = _add(e.elem(M.SQRT, h), const_like(c.real("epsilon", 1e-6), h))
        x = e.elem(M.SUB, x, _mul(cast(rate, dtype_of(x)), e.elem(M.TRUE_DIV, v, root)))
        after = c.real("norm_coefficient_post")
        return (_scaled(x, 1 - after) if after else x), v, h

    return step.all(run, 4)


@lower("Momentum", domain=_TRAINING)
def _momentum(c: NodeCall) -> tuple[Value, ...]:
    step = _Step(c, 3)
    mode = c.choice("mode", "standard", "nesterov")
    alpha = c.real("alpha")

    def run(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = step.regularized(x, g)
        # The first step takes the whole gradient.
        share = cast(step.later, dtype_of(x))
        weight = _add(const_like(1, share), _scaled(share, c.real("beta") - 1))
        v = _add(_scaled(v, alpha), _mul(weight, g))
        move = _add(g, _scaled(v, alpha)) if mode == "nesterov" else v
        return e.elem(M.SUB, x, _mul(cast(step.rate, dtype_of(x)), move)), v

    return step.all(run, 3)
