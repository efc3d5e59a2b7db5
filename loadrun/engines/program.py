"""Programs: an engine's steps in order, made for known input shapes, and their execution.

A value is dropped as soon as its last reader ran, and a reader that is the last one may write its result
into that value's memory.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import EngineError, LoadRunError, OutOfMemoryError
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType
from ..ops.catalog import types
from ..ops.composite import native
from ..ops.control import Branches
from ..ops.infer import Inference, describe, kernel_of, misfit
from ..ops.op import Trait
from ..ops.registry import Binder, Bound, Call, Kernel, ShapeCall, implementation

if TYPE_CHECKING:
    from ..ops.numeric.stream import RandomNumbers

Observer = Callable[[Opr, Sequence[Array]], None]
"""Called after every operator with the operator and its output arrays."""
ABSENT = np.empty(0, np.bool_)
"""The value that an operator which joins branches gets from one that was not taken."""
_RECURRENT = ("LSTM", "GRU", "RNN")
_WRITES_INTO, _RANDOM = types(Trait.IN_PLACE | Trait.INTO_FIRST), types(Trait.RANDOM)


@dataclass(eq=False)
class Step:
    """One operator of a program.

    Attributes:
        reads: variable ids of its inputs.
        writes: variable ids of its outputs.
        dying: variables that are not read afterwards.
        guard: variable that must be 1 for the operator to be executed, if it is in a branch.
        merges: whether it joins branches, so that inputs of those not taken are absent.
        again: whether it computes again what an earlier step computed.
        binder: makes `bound` for the operator with those that are fused to it, which `kernel` leaves out.
        fused: these.
        bound: the kernel for the shapes of the program, where there is one, see `bind`.
        into: inputs that die here and whose memory a bound kernel may write into.
    """

    kernel: Kernel
    call: Call
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    dying: tuple[int, ...] = ()
    guard: int | None = None
    merges: bool = False
    again: bool = False
    binder: Binder | None = None
    fused: tuple[Opr, ...] = ()
    bound: Bound | None = None
    into: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Take from the call and the catalog what every run asks for."""
        outputs = self.call.outputs
        self.dtypes = tuple([d.np for d in outputs])
        self.rounds = "BFloat16" in [d.name for d in outputs]
        self.writes_into = self.call.opr.type in _WRITES_INTO
        # A kernel that reads only constant fields of its call needs no call of its own.
        self.shared = not self.writes_into and self.call.opr.type not in _RANDOM

    def copied(self) -> Step:
        """Copy the step, for a program of its own."""
        step = Step.__new__(Step)
        step.__dict__.update(self.__dict__)
        return step

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
    """Make the step of an operator; `constant` holds the ids of variables that never change."""
    predicates = branches.merged.get(opr.id, ())
    inputs = (*opr.inputs, *predicates)
    call = Call(
        opr,
        tuple([typed(v) for v in inputs]),
        tuple([typed(v) for v in opr.outputs]),
        tuple([v.id in constant for v in inputs]),
    )
    guard = branches.guard.get(opr.id)
    return Step(
        kernel_of(call),
        call,
        tuple([v.id for v in inputs]),
        tuple([v.id for v in opr.outputs]),
        guard=None if guard is None else guard.id,
        merges=bool(predicates),
    )


def readers_of(steps: Sequence[Step]) -> dict[int, list[int]]:
    """Return the numbers of the steps that read each variable."""
    readers: dict[int, list[int]] = {}
    for i, s in enumerate(steps):
        for v in s.reads:
            readers.setdefault(v, []).append(i)
    return readers


def mark_dying(steps: Sequence[Step], keep: Collection[int]) -> None:
    """Tell every step which variables it is the last to read (or nobody reads at all)."""
    last = {v: i for i, s in enumerate(steps) for v in (*s.needs, *s.writes)}
    for i, s in enumerate(steps):
        touched = dict.fromkeys((*s.needs, *s.writes))
        s.dying = tuple([v for v in touched if last[v] == i and v not in keep])


def specialize(
    steps: Iterable[Step], constants: Mapping[int, Array], known: Inference, keep: Collection[int]
) -> Program:
    """Specialize the program to known input shapes: shape arithmetic is replaced by its values.

    Args:
        steps: the graph's steps without the constant ones.
        constants: values of the constant variables.
        known: what inference found for these input shapes; gains what composite operators read in other shapes.
        keep: ids of the variables that the caller wants.
    """
    ready = dict(constants)
    rest: list[Step] = []
    for s in steps:
        if known.values and s.writes and all(v in known.values for v in s.writes):
            ready.update((v, known.values[v]) for v in s.writes)
        else:
            rest.append(_native(s, ready, known))
        if s.call.opr.called in _RECURRENT and s.reads[2] in ready and ready[s.reads[2]].ndim == 3:
            # Every step multiplies by the transposed matrix, which products like in order.
            turned = np.ascontiguousarray(ready[s.reads[2]].swapaxes(1, 2))
            ready[s.reads[2]] = turned.swapaxes(1, 2)
    needed = set(keep)
    for s in reversed(rest):
        if not s.writes or needed.intersection(s.writes):
            needed.update(s.needs)
    rest = [s.copied() for s in rest if not s.writes or needed.intersection(s.writes)]
    mark_dying(rest, {*keep, *ready})
    return Program(rest, {v: a for v, a in ready.items() if v in needed})


def _native(s: Step, ready: dict[int, Array], known: Inference) -> Step:
    """Return the step of MegEngine's operator in place of a composite one at these shapes; the step where none is."""
    opr, shapes = s.call.opr, [known.shapes.get(v) for v in s.reads]
    full = [shape for shape in shapes if shape is not None]
    if s.guard is not None or len(full) < len(shapes):
        return s
    kernel_operator = native(opr, s.call.inputs, s.call.outputs, full)
    if kernel_operator is None or any(s.reads[i] not in ready for i in kernel_operator.shapes):
        return s
    inputs = list(opr.inputs)
    for i, shape in kernel_operator.shapes.items():
        value = ready[s.reads[i]]
        if value.shape != shape:
            # Ids below zero belong to the program alone.
            inputs[i] = Var(-1 - len(ready), inputs[i].owner, 0, inputs[i].name, inputs[i].dtype)
            ready[inputs[i].id] = value.reshape(shape)
            known.shapes[inputs[i].id] = shape
    twin = opr.copied(inputs, opr.id)
    twin.type, twin.params, twin.outputs = kernel_operator.type, kernel_operator.params, opr.outputs
    twin.exact = True
    return make_step(twin, ready, Branches())


def bind(steps: Iterable[Step], known: Inference) -> None:
    """Give the steps of a program the kernels for its shapes, and tell them whose memory these may write into.

    To be called when it is known which variables die where (`mark_dying`).

    Raises:
        EngineError: shapes that an operator cannot take.
    """
    for s in steps:
        call, shapes = s.call, tuple(known.shapes.get(v) for v in s.reads)
        impl = implementation(call.opr.type)
        make = s.binder or (impl.bind if s.kernel is impl.kernel else None)
        if make is None or s.merges or s.rounds or None in shapes or len(s.writes) != 1:
            continue
        if s.writes[0] not in known.shapes:
            continue
        values = tuple(known.values.get(v) for v in s.reads)
        try:
            s.bound = make(call, ShapeCall(call.opr, call.inputs, shapes, values))
        except Exception as e:
            if s.guard is not None:
                # A branch need not fit shapes for which it is not taken; if it is taken, its kernel raises the same.
                continue
            if isinstance(e, LoadRunError):
                raise
            raise misfit(call.opr, shapes, e) from e
        if s.writes_into:
            out = known.shapes[s.writes[0]]
            fitting = zip(s.reads, shapes, call.inputs, strict=True)
            s.into = tuple(
                v for v, shape, d in fitting if v in s.dying and shape == out and d.np == s.dtypes[0]
            )


def execute(
    steps: Iterable[Step],
    values: dict[int, Array],
    rng: RandomNumbers | None,
    observe: Observer | None = None,
    every: Observer | None = None,
) -> None:
    """Run steps in order; `values` gains what they write and loses what dies.

    Args:
        steps: the steps.
        values: what is fed, and constants.
        rng: what random operators draw from; without it they begin with seed 0.
        observe: called after each operator, once.
        every: called after each execution, also where an operator is executed again.
    """
    if observe is None and every is None:
        deque(walk(steps, values, rng), maxlen=0)
        return
    for step in walk(steps, values, rng):
        if observe is not None and not step.again:
            observe(step.call.opr, [values[v] for v in step.writes])
        if every is not None:
            every(step.call.opr, [values[v] for v in step.writes])


def computed(targets: Iterable[Var], values: Mapping[int, Array]) -> list[Array]:
    """Return the values of variables.

    Raises:
        EngineError: one has none.
    """
    for v in targets:
        if v.id not in values:
            raise EngineError(f"{v.label!r} has no value: it is in a branch that was not taken")
    return [values[v.id] for v in targets]


def walk(steps: Iterable[Step], values: dict[int, Array], rng: RandomNumbers | None) -> Iterator[Step]:
    """Run steps one by one: each comes when it has run, while its outputs are among `values`."""
    # Live variables per piece of memory; without fed and constant arrays, which are never overwritten.
    owners: dict[int, int] = {}
    for step in steps:
        if step.guard is None or (step.guard in values and values[step.guard].any()):
            if step.bound is None:
                _execute(step, values, owners, rng)
            else:
                _execute_bound(step, step.bound, values, owners)
            yield step
        if step.dying:
            _drop(step.dying, values, owners)


def _drop(dying: Iterable[int], values: dict[int, Array], owners: dict[int, int]) -> None:
    for v in dying:
        array = values.pop(v, None)
        if array is None:
            continue
        key = id(array if array.base is None else root(array))
        users = owners.get(key)
        if users == 1:
            del owners[key]
        elif users is not None:
            owners[key] = users - 1


def _execute_bound(step: Step, bound: Bound, values: dict[int, Array], owners: dict[int, int]) -> None:
    args = [values[v] for v in step.reads]
    into = None
    for v in step.into:
        array = values[v]
        key = id(array if array.base is None else root(array))
        if owners.get(key) == 1 and donatable(array):
            into = array
            break
    try:
        out = bound(into, *args)
    except Exception as e:
        raise _failure(step.call, args, e) from e
    if out.dtype is not step.dtypes[0] and out.dtype != step.dtypes[0]:
        raise _other_dtype(step.call, 0, out)
    values[step.writes[0]] = out
    _count_owner(out, args, owners)


def _execute(step: Step, values: dict[int, Array], owners: dict[int, int], rng: RandomNumbers | None) -> None:
    args = [values.get(v, ABSENT) if step.merges else values[v] for v in step.reads]
    donated = []
    if step.writes_into:
        donated = [
            values[v]
            for v in step.dying
            if v in values
            and v in step.reads
            and owners.get(id(root(values[v]))) == 1
            and donatable(values[v])
        ]
    for v, out in zip(step.writes, run_step(step, args, donated, rng), strict=True):
        values[v] = out
        _count_owner(out, args, owners)


def run_step(
    step: Step, args: list[Array], donated: list[Array], rng: RandomNumbers | None
) -> Sequence[Array]:
    """Run one step and return its outputs.

    Args:
        donated: arrays among `args` whose memory the kernel may write its result into.
        rng: what random operators draw from.

    Raises:
        EngineError: the kernel failed, or gave another dtype than its rule says.
    """
    call = step.call
    try:
        result = step.kernel(call if step.shared else call.in_run(rng, donated), *args)
    except Exception as e:
        raise _failure(call, args, e) from e
    outs = result if isinstance(result, tuple) else (result,)
    if len(outs) != len(step.dtypes):
        raise EngineError(f"{describe(call.opr)} returned {len(outs)} outputs, but has {len(step.dtypes)}")
    for i, out in enumerate(outs):
        if out.dtype is not step.dtypes[i] and out.dtype != step.dtypes[i]:
            raise _other_dtype(call, i, out)
    return outs


def _failure(call: Call, args: Sequence[Array], e: Exception) -> LoadRunError:
    """Return the error of a kernel, with its operator and inputs."""
    if isinstance(e, LoadRunError):
        return type(e)(f"{describe(call.opr)}: {e}")
    if isinstance(e, MemoryError):
        return OutOfMemoryError(f"{describe(call.opr)} ran out of memory; inputs: {_inputs_text(call, args)}")
    return EngineError(f"{describe(call.opr)} failed: {e}; inputs: {_inputs_text(call, args)}")


def _other_dtype(call: Call, index: int, out: Array) -> EngineError:
    return EngineError(
        f"{describe(call.opr)} returned {out.dtype}, but its dtype rule says {call.outputs[index]}"
    )


def _count_owner(out: Array, args: Sequence[Array], owners: dict[int, int]) -> None:
    """Count a new variable for the memory that it lives in."""
    base = out if out.base is None else root(out)
    key = id(base)
    if key in owners:
        owners[key] += 1
        return
    for a in args:
        if a is base or (a.base is not None and root(a) is base):
            return
    if isinstance(base, np.ndarray):
        owners[key] = 1


def root(array: Array) -> object:
    """Return the object that owns an array's memory."""
    base: object = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base


def donatable(array: Array) -> bool:
    """Return whether a kernel could write a result into the array's memory."""
    flags = array.flags
    return bool(flags.writeable and flags.c_contiguous)


def typed(var: Var) -> DType:
    """Return the dtype of a variable after inference."""
    if var.dtype is None:
        raise EngineError(f"the dtype of {var.label!r} is unknown")
    return var.dtype


def _inputs_text(call: Call, args: Sequence[Array]) -> str:
    return ", ".join(f"{d} {list(a.shape)}" for d, a in zip(call.inputs, args, strict=True)) or "none"


_KEPT = 31 << 20
"""Just below the size (32 MiB) from which on the C library of Linux always asks the system for memory."""


def keep_heap() -> None:
    """Make the allocator of the C library on Linux keep what it is given back, for the arrays of later operators.

    It returns free memory above a threshold to the system, and gets it again for the next large array, whose pages are
    then cleared one by one. The threshold follows the largest array that was ever freed, so one is freed here that
    nobody has written to: it costs no memory. Elsewhere this does nothing.
    """
    np.empty(_KEPT, np.uint8)


class MemoryMeter:
    """Counts the bytes of intermediate values that are alive while a graph is executed.

    A value counts from the moment an operator returned it until its memory is really freed, whoever holds it;
    values that share memory count once. What kernels allocate for themselves while they run does not count.

    Args:
        ignore: arrays that are not intermediate values (what is fed), so that views of them do not count.

    Attributes:
        live: bytes alive now.
        peak: the most bytes that were alive right after an operator, its inputs included.
        executions: how many operators were executed.

    Example::

        meter = MemoryMeter()
        ReferenceEngine(graph).run(feeds, memory=meter)
        meter.peak
    """

    def __init__(self, ignore: Iterable[Array] = ()) -> None:
        self.live = 0
        self.peak = 0
        self.executions = 0
        self._ignored: dict[int, object] = {}
        self._held: dict[int, weakref.ref[Any]] = {}
        self.ignore(ignore)

    def ignore(self, arrays: Iterable[Array]) -> None:
        """Leave out these arrays and their views."""
        for array in arrays:
            base = root(array)
            # Kept alive, so that no other array gets the same id.
            self._ignored[id(base)] = base

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Count an operator's outputs; an engine's observer."""
        self.executions += 1
        for array in outputs:
            base = root(array)
            if isinstance(base, np.ndarray) and id(base) not in self._held and id(base) not in self._ignored:
                self.live += base.nbytes
                freed = partial(_freed, weakref.ref(self), id(base), base.nbytes)
                self._held[id(base)] = weakref.ref(base, freed)
        self.peak = max(self.peak, self.live)

    def release(self, key: int, size: int) -> None:
        """Stop counting a value whose memory was freed."""
        self.live -= size
        self._held.pop(key, None)


def _freed(meter: weakref.ref[MemoryMeter], key: int, size: int, gone: object) -> None:
    target = meter()
    if target is not None:
        target.release(key, size)
