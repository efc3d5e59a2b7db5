"""Functions written operator by operator, as MegEngine's own library writes some: ``subgraph_fn``.

What such a function does is noted once, with slots in the place of tensors, and done for every call. There are no
gradients: of a function that says what they are, the first half is taken.

Source of semantics: MegEngine ``core/tensor/utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import EngineError, UsageAssertionError
from ..tensors.value import Tensor
from .opdefs import DEFINITIONS, OpDef, apply

__all__ = ["Subgraph", "SubgraphBuilder", "interpret_subgraph", "subgraph", "subgraph_fn"]


def _named() -> dict[tuple[str, int], OpDef]:
    elemwise, subtensor = DEFINITIONS["Elemwise"], DEFINITIONS["Subtensor"]
    unary = {"-": "NEGATE", "abs": "ABS", "exp": "EXP", "log1p": "LOG1P", "relu": "RELU"}
    binary = {
        "+": "ADD",
        "-": "SUB",
        "*": "MUL",
        "/": "TRUE_DIV",
        "//": "FLOOR_DIV",
        "**": "POW",
        "max": "MAX",
        "min": "MIN",
        "additive": "ADD",
        "switch_gt0": "SWITCH_GT0",
        "abs_grad": "ABS_GRAD",
    }
    ops = {(name, 1): elemwise(mode) for name, mode in unary.items()}
    ops |= {(name, 2): elemwise(mode) for name, mode in binary.items()}
    ops |= {
        ("cond_leq_mov", 3): elemwise("COND_LEQ_MOV"),
        ("fma3", 3): elemwise("FUSE_MUL_ADD3"),
        ("fma4", 4): elemwise("FUSE_MUL_ADD4"),
        ("[?:]", 2): subtensor(items=[(0, True, False, False, False)]),
        ("[:?]", 2): subtensor(items=[(0, False, True, False, False)]),
    }
    return ops


_NAMED = _named()
"""Operators by the name and the number of inputs by which functions call them."""


def _operator(op: Any, n: int) -> OpDef:
    """Return an operator, which its name may stand for.

    Raises:
        UsageError: there is none of that name with so many inputs.
    """
    if isinstance(op, OpDef):
        return op
    definition = _NAMED.get((op, n)) if isinstance(op, str) else None
    if definition is None:
        names = ", ".join(f"{name} ({count})" for name, count in _NAMED)
        raise UsageAssertionError(
            f"unknown operator {op!r} of {n} inputs; expected an operator of megengine.core.ops.builtin, or a name "
            f"(with its number of inputs) of {names}"
        )
    return definition


def _constant(value: Any, dtype: Any) -> Tensor:
    return Tensor(np.asarray(value), dtype=dtype, is_const=True)


class _Slot(NamedTuple):
    """Placeholder of a tensor while a function is recorded."""

    number: int


class _Step(NamedTuple):
    """An operator, the slots that it reads and the first of those that it fills."""

    op: OpDef
    inputs: tuple[_Slot, ...]
    first: int
    n: int


class Subgraph(OpDef):
    """Operators that are applied as one."""

    __slots__ = ("constants", "inputs", "name", "outputs", "steps")
    name: str
    inputs: tuple[_Slot, ...]
    outputs: tuple[_Slot, ...]
    constants: tuple[tuple[_Slot, Tensor], ...]
    steps: tuple[_Step, ...]

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def applied(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the outputs for some inputs."""
        if len(inputs) != len(self.inputs):
            raise EngineError(f"{self.name} takes {len(self.inputs)} inputs, found {len(inputs)}")
        known = dict(zip(self.inputs, inputs, strict=True)) | dict(self.constants)
        for step in self.steps:
            outputs = apply(step.op, *(known[slot] for slot in step.inputs))
            if len(outputs) != step.n:
                raise UsageAssertionError(
                    f"{step.op} gives {len(outputs)} outputs, expected {step.n}; nr_out says how many"
                )
            known |= {_Slot(step.first + i): x for i, x in enumerate(outputs)}
        return [known[slot] for slot in self.outputs]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Subgraph({self.name}, {len(self.steps)} operators)"


class SubgraphBuilder:
    """Notes operators on slots, of which `get` makes one operator.

    Args:
        name: the name of that operator, or a builder to go on from.

    >>> builder = SubgraphBuilder("Doubled")
    >>> x = builder.input()
    >>> builder.outputs(builder.apply(_NAMED["+", 2], [x, x], 1))
    >>> apply(builder.get(), Tensor([1.0, 2.0]))[0].tolist()
    [2.0, 4.0]
    """

    def __init__(self, name: str | SubgraphBuilder) -> None:
        old = name if isinstance(name, SubgraphBuilder) else None
        self.name: str = old.name if old else str(name)
        self._inputs: list[_Slot] = list(old._inputs) if old else []
        self._constants: list[tuple[_Slot, Tensor]] = list(old._constants) if old else []
        self._steps: list[_Step] = list(old._steps) if old else []
        self._outputs: list[_Slot] = list(old._outputs) if old else []
        self._used: int = old._used if old else 0

    def _slots(self, n: int) -> list[_Slot]:
        self._used += n
        return [_Slot(i) for i in range(self._used - n, self._used)]

    def input(self) -> _Slot:
        """Return the slot of one more input."""
        self._inputs += self._slots(1)
        return self._inputs[-1]

    def apply(self, op: OpDef, args: Sequence[_Slot], nr_out: int) -> list[_Slot]:
        """Return the slots of an operator's outputs.

        Args:
            op: the operator.
            args: the slots of its inputs.
            nr_out: how many outputs it has.
        """
        slots = self._slots(nr_out)
        self._steps.append(_Step(op, tuple(args), slots[0].number if slots else self._used, nr_out))
        return slots

    def apply_const(self, value: Any, dtype: Any, device: object = None) -> _Slot:
        """Return the slot of a constant; every device is the CPU."""
        (slot,) = self._slots(1)
        self._constants.append((slot, _constant(value, dtype)))
        return slot

    def outputs(self, slots: Sequence[_Slot]) -> None:
        """Say which slots are the outputs."""
        self._outputs = list(slots)

    def outputs_has_grad(self, flags: Sequence[bool]) -> None:
        """Do nothing: there are no gradients."""

    def get(self) -> OpDef:
        """Return the operator."""
        return Subgraph(
            name=self.name,
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            constants=tuple(self._constants),
            steps=tuple(self._steps),
        )

    def compile(self, gopt_level: int = 2) -> OpDef:
        """Return the operator; nothing is optimized."""
        return self.get()

    def jit_fuse(self) -> OpDef:
        """Return the operator; nothing is fused."""
        return self.get()


def subgraph(
    name: str,
    dtype: Any,
    device: Any,
    nr_inputs: int,
    gopt_level: int | None = None,
    jit_fusion: bool = False,
    custom_grad: bool = False,
) -> Callable[[Callable[..., Any]], Callable[[], OpDef]]:
    """Return a decorator that makes a function of slots one operator; see `subgraph_fn`.

    Returns:
        a decorator; what it returns gives the operator, an `OpDef`.
    """

    def decorated(func: Callable[..., Any]) -> Callable[[], OpDef]:
        builder = SubgraphBuilder(name)

        def emit(op: Any, *args: _Slot, nr_out: int | None = None) -> Any:
            slots = builder.apply(_operator(op, len(args)), args, 1 if nr_out is None else nr_out)
            return slots[0] if nr_out is None else slots

        def constant(value: Any, dtype: Any = dtype, device: object = device) -> _Slot:
            return builder.apply_const(value, dtype, device)

        inputs = [builder.input() for _ in range(nr_inputs)]
        builder.outputs(_forward(func, custom_grad, inputs, emit, constant))
        definition = builder.get()
        return lambda: definition

    return decorated


def interpret_subgraph(
    func: Callable[..., Any], dtype: Any, device: Any, custom_grad: bool = False
) -> Callable[..., list[Any]]:
    """Return a function that does what `func` says at once, on tensors; see `subgraph_fn`."""

    def decorated(*args: Any) -> list[Any]:
        def emit(op: Any, *args: Any, nr_out: int | None = None) -> Any:
            outputs = apply(_operator(op, len(args)), *args)
            if len(outputs) != (1 if nr_out is None else nr_out):
                raise UsageAssertionError(
                    f"{op} gives {len(outputs)} outputs, expected {nr_out or 1}; nr_out says how many"
                )
            return outputs[0] if nr_out is None else outputs

        def constant(value: Any, dtype: Any = dtype, device: object = device) -> Tensor:
            return _constant(value, dtype)

        return list(_forward(func, custom_grad, args, emit, constant))

    return decorated


def _forward(
    func: Callable[..., Any], custom_grad: bool, inputs: Any, emit: Any, constant: Any
) -> Sequence[Any]:
    """Return the outputs of a function, without what it says of gradients."""
    if not custom_grad:
        outputs, _ = func(inputs, emit, constant)
        return list(outputs)
    halves = func(inputs, emit, constant)
    outputs = halves.send(None)
    halves.close()
    return list(outputs)


def subgraph_fn(
    name: str,
    dtype: Any,
    device: Any,
    nr_inputs: int,
    gopt_level: int | None = None,
    jit_fusion: bool = False,
    custom_grad: bool = False,
    *,
    interpret: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Sequence[Tensor]]]:
    """Return a decorator for functions that are written operator by operator.

    Args:
        name: the name of the function.
        dtype: the dtype of its constants.
        device: the device of its constants; every device is the CPU.
        nr_inputs: how many inputs it has.
        gopt_level: accepted for MegEngine's sake.
        jit_fusion: accepted for MegEngine's sake.
        custom_grad: whether the function is a generator, which gives its outputs first and gradients when it is
            sent those of the outputs. It is not asked for them.
        interpret: call the function again in each call, with tensors.

    Returns:
        a decorator of ``func(inputs, f, c)``, where ``f(operator, *inputs, nr_out=None)`` applies an operator or one
        of the names in MegEngine's table and ``c(value, dtype, device)`` makes a constant; func returns outputs and
        whether each has a gradient. The decorated function takes tensors and returns the outputs.

    Raises:
        UsageError: no operator of a name.
        EngineError: another number of inputs or outputs than was said.

    >>> @subgraph_fn("Scaled", dtype="float32", device="xpux", nr_inputs=1)
    ... def scaled(inputs, f, c):
    ...     return (f("+", f("*", inputs[0], c(2)), c(1)),), (True,)
    >>> scaled(Tensor([1.0, 2.0]))[0].tolist()
    [3.0, 5.0]
    """

    def decorated(func: Callable[..., Any]) -> Callable[..., Sequence[Tensor]]:
        if interpret:
            return interpret_subgraph(func, dtype, device, custom_grad)
        op = subgraph(name, dtype, device, nr_inputs, gopt_level, jit_fusion, custom_grad)(func)

        def called(*args: Tensor) -> Sequence[Tensor]:
            return tuple(apply(op(), *args))

        return called

    return decorated
