"""Declarations of what an operator family computes: kernels, dtype and shape rules, cost.

A family module registers one kernel per operator::

    @kernel("PoolingV1", dtype=same, shape=pooling_shape, flops=pooling_flops)
    def pooling(c: Call, x: Array) -> Array: ...

A kernel is a pure function of a `Call` and the operator's input arrays, in storage dtype (`loadrun.graph.dtypes`).
It returns one array per visible output. It never writes into an input array unless `Call.reuse` hands it out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod
from typing import Any, TypeVar

import numpy as np

from ..base.errors import EngineError, UnsupportedError
from ..base.registry import Registry, late
from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import Record
from .catalog import CATALOG
from .op import Trait

with late(__name__):
    from .numeric import stream

Shape = tuple[int, ...]
R = TypeVar("R", bound=Record)
Kernel = Callable[..., Any]
DTypeRule = Callable[[Opr, tuple[DType, ...]], Sequence[DType]]
Finish = Callable[[Array, int, int, slice], None]
"""Called as ``finish(block, sample, first channel, positions)`` with a (channels, positions) block of an output
that was just computed, to change it in place."""
FlopsRule = Callable[[Opr, Sequence[Shape], Sequence[Shape]], int]
Bound = Callable[..., Array]
"""Called as ``bound(out, *inputs)``: a kernel with everything decided that follows from an operator and its inputs'
shapes. `out` is memory of the output's shape and dtype to write into, or None for new memory."""


@dataclass(eq=False)
class Limits:
    """Bounds as they follow a convolution; before them a division and rounding to whole numbers, then a product."""

    low: float = -inf
    high: float = inf
    rounds: bool = False
    divide: float = 1.0
    multiply: float = 1.0

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place."""
        if self.divide != 1:
            block /= self.divide
        if self.rounds:
            np.rint(block, out=block)
        if self.high == inf:
            # Of a row of bounds numpy takes the maximum several times as fast as of a number.
            np.maximum(block, np.full(block.shape[-1], self.low, block.dtype), out=block)
        else:
            block.clip(self.low, self.high, out=block)
        if self.multiply != 1:
            block *= self.multiply


@dataclass(eq=False)
class Added:
    """A sum with another array (batch, channels, positions), as it follows a convolution."""

    z: Array

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place."""
        block += self.z[sample, channel : channel + len(block), span]


@dataclass(eq=False)
class InTurn:
    """Several things that follow a convolution, one after the other."""

    steps: tuple[Finish, ...]

    def __call__(self, block: Array, sample: int, channel: int, span: slice) -> None:
        """Change a block in place."""
        for step in self.steps:
            step(block, sample, channel, span)


@dataclass(eq=False)
class Call:
    """The information for a kernel besides its input arrays.

    A step's call is the same in every run; a kernel gets one of its own, which `in_run` makes of it, so that several
    threads may execute the same program.

    Attributes:
        opr: the operator.
        inputs: dtype of every input (scale and zero point of quantized ones).
        outputs: dtype of every output; the kernel must return arrays of these storage dtypes.
        const: for every input whether it is the same array in every run, so that what is derived from it
            (a transformed weight) may be kept in `memo`.
        memo: the operator's own store between runs, of all threads: what is put there is never changed again.
        rng: the run's random numbers, see `stream`.
        donated: buffers of dying inputs, see `reuse`.
    """

    opr: Opr
    inputs: tuple[DType, ...]
    outputs: tuple[DType, ...]
    const: tuple[bool, ...] = ()
    memo: dict[Any, Any] = field(default_factory=dict)
    rng: stream.RandomNumbers | None = None
    donated: list[Array] = field(default_factory=list)

    def in_run(self, rng: stream.RandomNumbers | None, donated: list[Array]) -> Call:
        """Return the call for one execution."""
        return Call(self.opr, self.inputs, self.outputs, self.const, self.memo, rng, donated)

    def stream(self) -> stream.Stream:
        """Return what the operator draws from; a kernel called by itself gets a stream of its seed."""
        if self.rng is None:
            self.rng = stream.OperatorStreams()
        return self.rng.of(self.opr)

    def get(self, kind: type[R]) -> R:
        """Return the operator's parameter record of that class."""
        return self.opr.get(kind)

    def reuse(self, shape: Shape) -> Array:
        """Return an array for the result: the donated buffer of a dying input of its shape and dtype, else a new one.

        Only for kernels that read element i of their inputs before they write element i of the result.
        """
        want = self.outputs[0].np
        for i, x in enumerate(self.donated):
            if x.shape == shape and x.dtype == want:
                return self.donated.pop(i)
        return np.empty(shape, want)


@dataclass(eq=False)
class ShapeCall:
    """The information for a shape rule: shapes, and the values of inputs that are known before any data is fed.

    Attributes:
        shapes: shape of every input, None if unknown.
        values: value of every input that is constant or follows from shapes, else None.
    """

    opr: Opr
    inputs: tuple[DType, ...]
    shapes: tuple[Shape | None, ...]
    values: tuple[Array | None, ...]

    def get(self, kind: type[R]) -> R:
        """Return the operator's parameter record of that class."""
        return self.opr.get(kind)

    def shape(self, index: int) -> Shape:
        """Return the shape of an input that must be known; an unknown one makes the outputs' shapes unknown."""
        shape = self.shapes[index]
        if shape is None:
            raise UnknownShape
        return shape

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the value of an integer input (a target shape) that must be known."""
        value = self.values[index]
        if value is None:
            raise UnknownShape
        return tuple(int(v) for v in value.reshape(-1))


class UnknownShape(Exception):
    """Raised in a shape rule when an input that it needs is unknown; caught by inference."""


ShapeRule = Callable[[ShapeCall], Sequence["Shape | None"]]
Binder = Callable[[Call, ShapeCall], "Bound | None"]
"""Makes a `Bound`; None if the general kernel is as good. All shapes are known, values as far as shape rules see
them."""


@dataclass(frozen=True, eq=False)
class OpImpl:
    """Everything that a family declares for one operator."""

    name: str
    kernel: Kernel
    dtype: DTypeRule
    shape: ShapeRule
    flops: FlopsRule
    bind: Binder | None = None

    @cached_property
    def random(self) -> bool:
        """True if equal inputs may give other results next time; such operators are never folded."""
        return Trait.RANDOM in CATALOG[self.name].traits


def same(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Give every output the operator's configured output dtype, or else the first input's."""
    return (opr.output_dtype or inputs[0],) * max(1, len(opr.outputs))


def first_input(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Give every output the first input's dtype."""
    return (inputs[0],) * len(opr.outputs)


def int32(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Give every output Int32."""
    return (plain("Int32"),) * len(opr.outputs)


def and_int32(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    """Give the first input's dtype, and Int32 for positions."""
    return (inputs[0], plain("Int32"))


FLOATS = ("Float32", "Float16", "BFloat16", "Float64")
"""The names of all floating-point dtypes."""


def alike(*names: str) -> DTypeRule:
    """Return the rule that gives every output the dtype that all inputs have, which is one of some names."""

    def rule(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
        if inputs[0].name not in names or any(d != inputs[0] for d in inputs):
            found = ", ".join(map(str, inputs))
            raise ValueError(f"the inputs must have one dtype, {' or '.join(names)}, found {found}")
        return (inputs[0],) * len(opr.outputs)

    return rule


def same_shape(s: ShapeCall) -> Sequence[Shape | None]:
    """Give every output the first input's shape."""
    return (s.shapes[0],) * max(1, len(s.opr.outputs))


def no_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    """Count nothing: the operator only moves data."""
    return 0


def per_input(count: int) -> FlopsRule:
    """Return the rule that counts so many operations for every element of the first input."""
    return lambda opr, inputs, outputs: count * prod(inputs[0])


def per_output(count: int) -> FlopsRule:
    """Return the rule that counts so many operations for every element of the first output."""
    return lambda opr, inputs, outputs: count * prod(outputs[0])


WITHOUT_KERNEL = {
    "backward": "it computes a gradient, which belongs to training; MegEngine runs it",
    "control_flow": "MegEngine's own open-source code can neither dump nor load it",
    "training": "it stands for a gradient while a graph is made",
    "vendor": "it runs only inside its vendor's runtime or a private plug-in",
}
"""Why an operator of a category has no kernel."""
_IMPLS: Registry[str, OpImpl] = Registry(
    "kernel", {op.name: f"{__package__}.{op.family}" for op in CATALOG.values() if op.family}
)
K = TypeVar("K", bound=Kernel)


def kernel(
    *names: str,
    dtype: DTypeRule = same,
    shape: ShapeRule = same_shape,
    flops: FlopsRule = no_flops,
    bind: Binder | None = None,
) -> Callable[[K], K]:
    """Register a kernel with its rules under one or more catalog names.

    Args:
        names: registered operator names.
        dtype: output dtypes from the operator and its input dtypes.
        shape: output shapes from input shapes (and values of shape inputs).
        flops: floating-point (or integer) operations; a multiply-add counts two.
        bind: the kernel for known shapes, where that saves time; the same bits.
    """

    def register(func: K) -> K:
        for name in names:
            if name not in CATALOG:
                raise KeyError(f"{name} is not in the operator catalog")
            _IMPLS.add(name, OpImpl(name, func, dtype, shape, flops, bind))
        return func

    return register


def implementation(name: str) -> OpImpl:
    """Return the implementation of an operator, importing its family on first use.

    Raises:
        UnsupportedError: the operator has no kernel (gradients, vendor runtimes, custom operators).
    """
    impl = _IMPLS.get(name)
    if impl is not None:
        return impl
    why = WITHOUT_KERNEL.get(CATALOG[name].category, "it has no numpy kernel")
    raise UnsupportedError(f"operator {name} cannot be executed: {why}")


_SMALL = (1 << 18, 10**7)
"""Bytes and operations up to which something is small."""


_CALL = 20_000
"""Operations that take as long as it takes to call a kernel."""


class BudgetError(EngineError):
    """Something is not computed while a file is read, since it takes more than the file's size allows."""


class FoldingBudget:
    """Bytes of results and operations that are left.

    What is large may take half of it, so that enough is left for the small constants that every model is full of.

    Args:
        nbytes: bytes that may be made, all together.
        operations: operations, a multiply-add counts two.
        recorded: operators that may be recorded, None for any number.

    >>> with limited(FoldingBudget(1000, 1000)):
    ...     affordable(600), affordable(600), affordable(400)
    (True, False, True)
    """

    def __init__(self, nbytes: int, operations: int, recorded: int | None = None) -> None:
        self.recorded = recorded
        self._left = [nbytes, operations]
        self._for_large = [nbytes // 2, operations // 2]

    def add(self, other: FoldingBudget) -> None:
        """Grow by another budget."""
        self._left = [a + b for a, b in zip(self._left, other._left, strict=True)]
        self._for_large = [a + b for a, b in zip(self._for_large, other._for_large, strict=True)]

    def take(self, nbytes: int, operations: int) -> bool:
        """Take so much, where there is that much; whether there was."""
        asked = (nbytes, operations)
        large = [n if n > most else 0 for n, most in zip(asked, _SMALL, strict=True)]
        if any(n > left for n, left in zip((*asked, *large), (*self._left, *self._for_large), strict=True)):
            return False
        self._left = [left - n for left, n in zip(self._left, asked, strict=True)]
        self._for_large = [left - n for left, n in zip(self._for_large, large, strict=True)]
        return True


class _Local(threading.local):
    budget: FoldingBudget | None = None


_local = _Local()


@contextmanager
def limited(budget: FoldingBudget | None) -> Iterator[None]:
    """Compute under a budget inside, or under none."""
    before, _local.budget = _local.budget, budget
    try:
        yield
    finally:
        _local.budget = before


def unlimited() -> bool:
    """Return whether nothing is counted."""
    return _local.budget is None


def affordable(nbytes: int, operations: int = 0) -> bool:
    """Take from the budget where it has that much; whether it had."""
    return _local.budget is None or _local.budget.take(nbytes, operations)


def pay(nbytes: int, operations: int = 0) -> None:
    """Take from the budget.

    Raises:
        BudgetError: it has less.
    """
    if not affordable(nbytes, operations):
        raise BudgetError(
            f"it would take {nbytes} bytes and {operations} operations while the model is loaded, more than the "
            "size of the file allows"
        )


def check_recorded(count: int) -> None:
    """Refuse what records more operators than may be recorded before it does.

    Raises:
        BudgetError: there are fewer left.
    """
    budget = _local.budget
    if budget is not None and budget.recorded is not None and budget.recorded < count:
        raise BudgetError("the model needs more operators than the size of its file allows")


def pay_recorded() -> None:
    """Take one of the operators that may be recorded.

    Raises:
        BudgetError: there is none left.
    """
    check_recorded(1)
    budget = _local.budget
    if budget is not None and budget.recorded is not None:
        budget.recorded -= 1


def pay_operator(
    opr: Opr, inputs: Sequence[DType], outputs: Sequence[DType], arrays: Sequence[Array]
) -> None:
    """Take what an operator costs on these arrays from the budget; costs nothing where there is none.

    Where data decide the shapes of the results, they are taken to be as large as the inputs together.

    Raises:
        BudgetError: the budget has less.
    """
    if _local.budget is None:
        return
    shapes = tuple(a.shape for a in arrays)
    impl = implementation(opr.type)
    # A recurrent layer calls its kernel for every step.
    steps = shapes[0][0] if CATALOG[opr.type].family == "rnn" and len(shapes[0]) == 3 else 1
    calls = _CALL * steps
    try:
        out_shapes = tuple(impl.shape(ShapeCall(opr, tuple(inputs), shapes, tuple(arrays))))
        sizes = (
            None if None in out_shapes else [tuple(int(n) for n in s) for s in out_shapes if s is not None]
        )
    except UnknownShape:
        sizes = None
    if sizes is None:
        pay(2 * sum(a.nbytes for a in arrays), calls + sum(a.size for a in arrays))
        return
    nbytes = sum(prod(s) * d.np.itemsize for s, d in zip(sizes, outputs, strict=True))
    pay(nbytes, calls + int(impl.flops(opr, list(shapes), sizes)))
