"""The reference engine: MegEngine's operators on numpy arrays.

Constant subgraphs are computed once, when the first run needs them. A value is dropped as soon as its last
reader ran, and a reader that is the last one may write its result into that value's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dtypes import Array, DType, nbytes, round_bfloat16
from ..errors import EngineError, InputError, LoadRunError
from ..graph import Graph, Opr, Var
from ..ops.control import Branches, find_branches
from ..ops.infer import Inference, describe, infer_dtypes, infer_shapes
from ..ops.registry import Call, Kernel, Shape, implementation
from .memory import memory_limit

__all__ = ["ReferenceEngine"]

Observer = Callable[[Opr, Sequence[Array]], None]
_ABSENT = np.empty(0, np.bool_)
_PROGRAMS = 8
"""How many sets of input shapes keep their program."""


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


class ReferenceEngine:
    """A graph compiled for repeated execution on numpy.

    Constant subgraphs are computed once. For every set of input shapes the engine keeps a program of its
    own, in which shape arithmetic is already done.

    Args:
        graph: the graph to execute.
        targets: the variables to compute, default the graph's outputs.
        seed: seed of the random operators; every run starts from it, so runs repeat.

    Raises:
        UnsupportedError: an operator that the targets need has no kernel.
        EngineError: dtypes that an operator cannot take.
    """

    name = "reference"

    def __init__(self, graph: Graph, targets: Iterable[Var] | None = None, *, seed: int = 0) -> None:
        self.graph = graph
        self.targets = list(graph.outputs if targets is None else targets)
        self.seed = seed
        self._oprs = graph.needed(self.targets)
        infer_dtypes(self._oprs)
        self._branches = find_branches(self._oprs)
        self._inputs = {
            o.outputs[0].name or "": o.outputs[0] for o in self._oprs if o.type == "Host2DeviceCopy"
        }
        self._constant = self._find_constants()
        self._values: dict[int, Array] | None = None
        self._steps: list[Step] = []
        self._programs: dict[tuple[tuple[str, Shape], ...], Program] = {}

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    def run(self, feeds: Mapping[str, Array], observe: Observer | None = None) -> list[Array]:
        """Execute once.

        Args:
            feeds: arrays by input name, in the inputs' storage dtype; shapes may differ from the file's.
            observe: called after every operator with the operator and its output arrays.

        Returns:
            the values of the targets, in order.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: an operator failed.
        """
        values = self._feed(feeds)
        with np.errstate(all="ignore"):
            if self._values is None:
                self._values = self._fold()
            program = self._program(values)
            values.update(program.constants)
            execute(program.steps, values, np.random.default_rng(self.seed), observe)
        for v in self.targets:
            if v.id not in values:
                raise EngineError(f"{v.label!r} has no value: it lies in a branch that was not taken")
        return [values[v.id] for v in self.targets]

    def _find_constants(self) -> set[int]:
        """Ids of the variables that are the same in every run."""
        constant: set[int] = set()
        for opr in self._oprs:
            if opr.type == "Host2DeviceCopy" or implementation(opr.type).random:
                continue
            if opr.id in self._branches.guard:
                continue
            if all(v.id in constant for v in opr.inputs):
                constant.update(v.id for v in opr.outputs)
        return constant

    def _fold(self) -> dict[int, Array]:
        """Compute the constant variables; what remains to be executed becomes `self._steps`."""
        steps = [
            make_step(o, self._constant, self._branches) for o in self._oprs if o.type != "Host2DeviceCopy"
        ]
        constant = [s for s in steps if s.writes and s.writes[0] in self._constant]
        self._steps = [s for s in steps if not (s.writes and s.writes[0] in self._constant)]
        wanted = {v for s in self._steps for v in s.needs} | {v.id for v in self.targets}
        mark_dying(constant, wanted)
        values: dict[int, Array] = {}
        execute(constant, values, np.random.default_rng(self.seed))
        for array in values.values():
            if array.flags.owndata:
                array.flags.writeable = False
        return values

    def _program(self, fed: Mapping[int, Array]) -> Program:
        """The program for these input shapes, made on first use."""
        shapes = {n: fed[v.id].shape for n, v in self._inputs.items()}
        key = tuple(shapes.items())
        program = self._programs.pop(key, None)
        if program is None:
            known = infer_shapes(self.graph, self._oprs, shapes)
            self._check_memory(known)
            program = specialize(self._steps, self._values or {}, known, {v.id for v in self.targets})
            while len(self._programs) >= _PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
        self._programs[key] = program
        return program

    def _feed(self, feeds: Mapping[str, Array]) -> dict[int, Array]:
        values: dict[int, Array] = {}
        for name, var in self._inputs.items():
            tensor = var.owner.tensors[0]
            if name in feeds:
                array = feeds[name]
                want = typed(var).np
                if array.dtype != want:
                    raise InputError(
                        f"input {name!r} takes {var.dtype} ({want}), got an array of {array.dtype}"
                    )
                values[var.id] = array.reshape(1) if array.ndim == 0 else array
            elif tensor.data is not None:
                values[var.id] = tensor.value()
            else:
                raise InputError(
                    f"input {name!r} ({var.dtype} {_shape_text(tensor.shape)}) was not given; "
                    f"given: {', '.join(feeds) or 'none'}"
                )
        return values

    def _check_memory(self, known: Inference) -> None:
        """Refuse shapes whose values cannot fit in memory."""
        limit = memory_limit()
        for opr in self._oprs:
            for var in opr.outputs:
                shape = known.shapes.get(var.id)
                if shape is not None and nbytes(shape, typed(var)) > limit:
                    size = nbytes(shape, typed(var)) / 2**30
                    raise EngineError(
                        f"{describe(opr)} gives {var.dtype} {list(shape)}, {size:.1f} GiB, "
                        f"more than the {limit / 2**30:.1f} GiB of memory"
                    )


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


def _shape_text(shape: Shape | None) -> str:
    return "of any shape" if shape is None else str(list(shape))


def _inputs_text(call: Call, args: Sequence[Array]) -> str:
    return ", ".join(f"{d} {list(a.shape)}" for d, a in zip(call.inputs, args, strict=True)) or "none"
