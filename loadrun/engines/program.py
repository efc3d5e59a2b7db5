"""Programs: an engine's steps in order, made for known input shapes, and their execution.

A value is dropped as soon as its last reader ran, and a reader that is the last one may write its result
into that value's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dtypes import Array, DType, round_bfloat16
from ..errors import EngineError, LoadRunError
from ..graph import Opr, Var
from ..ops.control import Branches
from ..ops.infer import Inference, describe
from ..ops.registry import Call, Kernel, implementation

__all__ = ["Observer", "Program", "Step", "execute", "make_step", "mark_dying", "specialize", "typed"]

Observer = Callable[[Opr, Sequence[Array]], None]
"""Called after every operator with the operator and its output arrays."""
_ABSENT = np.empty(0, np.bool_)


@dataclass(eq=False)
class Step:
    """One operator of a program.

    Attributes:
        reads: variable ids of its inputs.
        writes: variable ids of its outputs.
        dying: variables that nobody reads afterwards.
        guard: variable that must be 1 for the operator to be executed, if it lies in a branch.
        merges: whether it joins branches, so that inputs of those not taken are absent.
    """

    kernel: Kernel
    call: Call
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    dying: tuple[int, ...] = ()
    guard: int | None = None
    merges: bool = False

    @property
    def needs(self) -> tuple[int, ...]:
        """Variables that must live until the step."""
        return self.reads if self.guard is None else (*self.reads, self.guard)


@dataclass(eq=False)
class Program:
    """Steps to execute and the values that they find ready."""

    steps: list[Step]
    constants: dict[int, Array]


def make_step(opr: Opr, constant: Collection[int], branches: Branches) -> Step:
    """The step of an operator; `constant` holds the ids of variables that never change."""
    predicates = branches.merged.get(opr.id, ())
    inputs = (*opr.inputs, *predicates)
    call = Call(
        opr,
        tuple(typed(v) for v in inputs),
        tuple(typed(v) for v in opr.outputs),
        tuple(v.id in constant for v in inputs),
    )
    guard = branches.guard.get(opr.id)
    return Step(
        implementation(opr.type).kernel,
        call,
        tuple(v.id for v in inputs),
        tuple(v.id for v in opr.outputs),
        guard=None if guard is None else guard.id,
        merges=bool(predicates),
    )


def mark_dying(steps: Sequence[Step], keep: Collection[int]) -> None:
    """Tell every step which variables it is the last to read (or nobody reads at all)."""
    last = {v: i for i, s in enumerate(steps) for v in (*s.needs, *s.writes)}
    for i, s in enumerate(steps):
        s.dying = tuple(v for v in dict.fromkeys((*s.needs, *s.writes)) if last[v] == i and v not in keep)


def specialize(
    steps: Iterable[Step], constants: Mapping[int, Array], known: Inference, keep: Collection[int]
) -> Program:
    """The program for known input shapes: shape arithmetic is replaced by its values.

    Args:
        steps: the graph's steps without the constant ones.
        constants: values of the constant variables.
        known: what inference found for these input shapes.
        keep: ids of the variables that the caller wants.
    """
    ready = dict(constants)
    rest: list[Step] = []
    for s in steps:
        if s.writes and all(v in known.values for v in s.writes):
            ready.update((v, known.values[v]) for v in s.writes)
        else:
            rest.append(s)
    needed = set(keep)
    for s in reversed(rest):
        if not s.writes or needed.intersection(s.writes):
            needed.update(s.needs)
    rest = [replace(s) for s in rest if not s.writes or needed.intersection(s.writes)]
    mark_dying(rest, {*keep, *ready})
    return Program(rest, {v: a for v, a in ready.items() if v in needed})


def execute(
    steps: Iterable[Step],
    values: dict[int, Array],
    rng: np.random.Generator,
    observe: Observer | None = None,
) -> None:
    """Run steps in order; `values` gains what they write and loses what dies."""
    # Live variables per piece of memory; fed and constant arrays are absent: never overwritten.
    owners: dict[int, int] = {}
    for step in steps:
        if step.guard is None or (step.guard in values and values[step.guard].any()):
            step.call.rng = rng
            _execute(step, values, owners)
            if observe is not None:
                observe(step.call.opr, [values[v] for v in step.writes])
        for v in step.dying:
            if v not in values:
                continue
            key = id(_root(values.pop(v)))
            if key in owners:
                owners[key] -= 1
                if not owners[key]:
                    del owners[key]


def _execute(step: Step, values: dict[int, Array], owners: dict[int, int]) -> None:
    call = step.call
    args = [values.get(v, _ABSENT) if step.merges else values[v] for v in step.reads]
    call.spare = [
        values[v]
        for v in step.dying
        if v in values and v in step.reads and owners.get(id(_root(values[v]))) == 1 and _whole(values[v])
    ]
    try:
        result = step.kernel(call, *args)
    except LoadRunError as e:
        raise type(e)(f"{describe(call.opr)}: {e}") from e
    except MemoryError as e:
        raise EngineError(
            f"{describe(call.opr)} ran out of memory; inputs: {_inputs_text(call, args)}"
        ) from e
    except Exception as e:
        raise EngineError(f"{describe(call.opr)} failed: {e}; inputs: {_inputs_text(call, args)}") from e
    finally:
        call.spare = []
    outs = result if isinstance(result, tuple) else (result,)
    for v, out, dtype in zip(step.writes, outs, call.outputs, strict=True):
        if out.dtype != dtype.np:
            raise EngineError(f"{describe(call.opr)} gave {out.dtype}, its dtype rule says {dtype}")
        values[v] = round_bfloat16(out) if dtype.name == "BFloat16" else out
        _own(values[v], args, owners)


def _own(out: Array, args: list[Array], owners: dict[int, int]) -> None:
    """Count a new variable for the memory that it lives in."""
    root = _root(out)
    key = id(root)
    if key in owners:
        owners[key] += 1
    elif isinstance(root, np.ndarray) and not any(_root(a) is root for a in args):
        owners[key] = 1


def _root(array: Array) -> object:
    """The object that owns an array's memory."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base


def _whole(array: Array) -> bool:
    return bool(array.flags.writeable and array.flags.c_contiguous)


def typed(var: Var) -> DType:
    """The dtype of a variable after inference."""
    if var.dtype is None:
        raise EngineError(f"the dtype of {var.label!r} is unknown")
    return var.dtype


def _inputs_text(call: Call, args: Sequence[Array]) -> str:
    return ", ".join(f"{d} {list(a.shape)}" for d, a in zip(call.inputs, args, strict=True)) or "none"
