"""The reference engine: MegEngine's operators on numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import __version__
from ..base.about import About
from ..base.errors import LoadRunError, OutOfMemoryError, UsageError
from ..base.limits import memory_limit
from ..base.locks import ForkLock
from ..base.registry import late
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array, nbytes
from ..ops.control import find_branches
from ..ops.infer import Inference, ShapeInference, describe, infer_dtypes, infer_shapes
from ..ops.numeric.parallel import blas_serial, replacing
from ..ops.registry import Shape, implementation
from .fuse import fuse
from .pairs import joined
from .program import (
    MemoryMeter,
    Observer,
    Program,
    Step,
    bind,
    computed,
    execute,
    keep_heap,
    make_step,
    mark_dying,
    specialize,
    typed,
    walk,
)
from .protocol import checked_feeds, constant_ids, graph_inputs

with late(__name__):
    from ..ops.numeric import stream
    from . import profile as operator_profile, recompute

if TYPE_CHECKING:
    from .recompute import DTRConfig, SublinearMemoryConfig

_PROGRAMS, _MOST_PROGRAMS = 8, 128
"""How many sets of input shapes always keep their program, and how many at most: a cache that grows has many."""
_ELEMENTS = 2**26
"""Elements of all values in these programs up to which more are kept: what programs prepare is no larger."""
_WORTH = 2 * 10**8
"""Operations of a run from which on compiling pays at once: several milliseconds."""
_WIDEST = 16
"""Bytes that an element takes at most."""


class ReferenceEngine:
    """A graph compiled for repeated execution on numpy.

    Constant subgraphs are computed once. Input shapes that come again, and those of large models, have a program of
    their own, in which shape arithmetic is done and operators are fused; all others share one.

    Args:
        graph: the graph to execute.
        targets: the variables to compute, default the graph's outputs.
        seed: seed of the random operators; every run starts from it, so runs repeat.
        dtr: drop values above a threshold of memory and compute them again (`loadrun.engines.recompute`).
        sublinear: compute values again where that lowers the peak of memory.
        profile: measure every operator, see `get_profile`.

    Raises:
        UsageError: both `dtr` and `sublinear` are given.
        UnsupportedError: an operator that the targets need has no kernel.
        EngineError: dtypes that an operator cannot take.
    """

    name = "reference"
    _compiles_at_once = False
    """Whether shapes that come for the first time have a program of their own, too."""

    def __init__(
        self,
        graph: Graph,
        targets: Iterable[Var] | None = None,
        *,
        seed: int = 0,
        dtr: DTRConfig | None = None,
        sublinear: SublinearMemoryConfig | None = None,
        profile: bool = False,
    ) -> None:
        if dtr is not None and sublinear is not None:
            raise UsageError("dtr and sublinear exclude each other: use one of them")
        self.graph = graph
        self.targets = list(graph.outputs if targets is None else targets)
        self.seed = seed
        self.dtr = dtr
        self.sublinear = sublinear
        self._profile = operator_profile.Profile(graph) if profile else None
        self._oprs = graph.needed(self.targets)
        infer_dtypes(self._oprs)
        self._branches = find_branches(self._oprs)
        self._inputs = graph_inputs(self._oprs)
        self._operators = sum(not o.tensors for o in self._oprs)
        self._random = any(implementation(o.type).random for o in self._oprs)
        self._constant = constant_ids(
            self._oprs, self._branches.guard, lambda o: not implementation(o.type).random
        )
        self._constants = [o for o in self._oprs if o.outputs and o.outputs[0].id in self._constant]
        self._others = [o for o in self._oprs if not (o.outputs and o.outputs[0].id in self._constant)]
        self._values: dict[int, Array] | None = None
        self._steps: list[Step] = []
        self._programs: dict[tuple[object, ...], Program] = {}
        self._general: Program | None = None
        self._fixed: tuple[ShapeInference, Inference] | None = None
        self._ran: set[tuple[object, ...]] = set()
        self._elements: dict[tuple[object, ...], int] = {}
        self._compiling = ForkLock()

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    @property
    def about(self) -> About:
        """The executing engine, and how it computes."""
        return About(
            self.name,
            __version__,
            "float32",
            f"numpy {np.__version__}",
            operators=self._operators,
        )

    def run(
        self,
        feeds: Mapping[str, Array],
        observe: Observer | None = None,
        rng: stream.RandomNumbers | None = None,
        *,
        memory: MemoryMeter | None = None,
    ) -> list[Array]:
        """Execute once.

        Args:
            feeds: arrays by input name, in the inputs' storage dtype; shapes may differ from the file's.
            observe: called after every operator with the operator and its output arrays; operators are then
                executed one by one, none fused with its neighbours.
            rng: what random operators draw from, default a new stream of the engine's seed.
            memory: counts the bytes of intermediate values; operators stay fused.

        Returns:
            the values of the targets, in order.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: an operator failed.
        """
        values = checked_feeds(self._inputs, feeds)
        with np.errstate(all="ignore"), blas_serial(), self._kernels():
            program = self._program(values, fused=observe is None)
            values.update(program.constants)
            if memory is not None:
                memory.ignore(values.values())
            if self._profile is not None:
                self._profile.start()
            execute(program.steps, values, rng or self._rng(), observe, memory)
        return computed(self.targets, values)

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Make the program for the shapes of these feeds.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: shapes that cannot go together.
        """
        values = checked_feeds(self._inputs, feeds)
        with np.errstate(all="ignore"), blas_serial(), self._kernels():
            self._program(values, fused=True, runs=False)

    def walk(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Opr, list[Array]]]:
        """Execute once, operator by operator: each comes with its outputs when it has run, those on constants too.

        The arrays hold until the next one is requested, since later operators may write into their memory.

        Args:
            feeds: see `run`.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: an operator failed.
        """
        values = checked_feeds(self._inputs, feeds)
        todo = [make_step(o, (), self._branches) for o in self._oprs if o.type != "Host2DeviceCopy"]
        mark_dying(todo, {v.id for v in self.targets})
        steps = walk(todo, values, self._rng())
        while True:
            # Between two steps the caller's code runs under its own settings.
            with np.errstate(all="ignore"), blas_serial(), self._kernels():
                step = next(steps, None)
            if step is None:
                return
            yield step.call.opr, [values[v] for v in step.writes]

    def get_profile(self) -> dict[str, Any]:
        """Return what the last run took, operator by operator, in the structure of MegEngine's profiler.

        Raises:
            UsageError: the engine was made without ``profile=True``, or has not run yet.
        """
        if self._profile is None:
            raise UsageError("there is no profile: create the engine with profile=True")
        return self._profile.to_json()

    def _kernels(self) -> AbstractContextManager[None]:
        """Return the context in which kernels run."""
        return replacing({})

    def _rng(self) -> stream.RandomNumbers | None:
        """Return what a run's random operators draw from; None if there are none."""
        if not self._random:
            return None

        return stream.OperatorStreams(self.seed)

    def _fold(self) -> dict[int, Array]:
        """Compute the constant variables; what remains to be executed becomes `self._steps`."""
        computed = [o for o in self._others if o.type != "Host2DeviceCopy"]
        self._steps = [make_step(o, self._constant, self._branches) for o in computed]
        wanted = {v for s in self._steps for v in s.needs} | {v.id for v in self.targets}
        values: dict[int, Array] = {}
        constant: list[Step] = []
        for opr in self._constants:
            if opr.tensors:
                for v, t in zip(opr.outputs, opr.tensors, strict=True):
                    array = t.value()
                    # Copied once where it does not lie as numpy's fast loops and products want it.
                    values[v.id] = array.view() if array.flags.aligned else array.copy()
            else:
                constant.append(make_step(opr, self._constant, self._branches))
        for array in values.values():
            array.flags.writeable = False
        mark_dying(constant, wanted)
        execute(constant, values, None)
        for array in values.values():
            if array.flags.owndata:
                array.flags.writeable = False
        return values

    def _program(self, fed: Mapping[int, Array], *, fused: bool, runs: bool = True) -> Program:
        """Return the program for these input shapes; `runs` says that it will be executed."""
        shapes = {n: fed[v.id].shape for n, v in self._inputs.items()}
        key = (fused, *shapes.items())
        with self._compiling:
            program = self._programs.pop(key, None)
            if program is None or (program is self._general and key in self._ran):
                program = self._compiled(key, shapes, fused=fused)
            if runs and program is self._general:
                self._ran.add(key)
            self._programs[key] = program
        return program

    def _compiled(self, key: tuple[object, ...], shapes: Mapping[str, Shape], *, fused: bool) -> Program:
        """Make a program, with space for it among those that are kept.

        Shapes that come for the first time get the one that serves all shapes, where the model is small: compiling
        takes longer than one run gains by it. Shapes in branches are known by compiling alone.
        """
        branching = bool(self._branches.guard or self._branches.merged)
        if branching:
            known = infer_shapes(self.graph, self._oprs, shapes)
        else:
            if self._fixed is None:
                self._fixed = ShapeInference(self._others), infer_shapes(self.graph, self._constants)
            rules, before = self._fixed
            known = rules.infer(shapes, before)
        self._check_memory(known)
        if self._values is None:
            self._values = self._fold()
            keep_heap()
        elements = sum(map(prod, known.shapes.values()))
        self._elements.pop(key, None)
        self._make_room(elements)
        compiled = self._compiles_at_once or branching or self._profile or self.dtr or self.sublinear
        if not fused or compiled or key in self._ran or sum(known.flops.values()) > _WORTH:
            program = self._compile(known, fused=fused)
        elif self._general is None:
            keep = {v.id for v in self.targets}
            program = self._general = specialize(self._steps, self._values, Inference(), keep)
        else:
            program = self._general
        self._elements[key] = elements
        return program

    def _make_room(self, elements: int) -> None:
        """Let the programs go that were not used for the longest time, for one whose values have so many elements."""
        while len(self._programs) >= _PROGRAMS:
            present = sum(self._elements.values())
            if len(self._programs) < _MOST_PROGRAMS and present + elements <= _ELEMENTS:
                return
            oldest = next(iter(self._programs))
            del self._programs[oldest], self._elements[oldest]
            self._ran.discard(oldest)

    def _compile(self, known: Inference, *, fused: bool) -> Program:
        """Compile the program for inferred shapes, as the engine's options on memory and profiling ask."""
        keep = {v.id for v in self.targets}
        assert self._values is not None
        program = specialize(self._steps, self._values, known, keep)
        if fused:
            program.steps = fuse(joined(program, known, keep), known, keep)
        saving = self.dtr or self.sublinear
        if saving is not None:
            program.steps = recompute.planned(program.steps, known, keep, saving)
        if fused or saving is not None:
            mark_dying(program.steps, {*keep, *program.constants})
        bind(program.steps, known)
        if self._profile is not None:
            self._profile.watch(program.steps, known)
        return program

    def _check_memory(self, known: Inference) -> None:
        """Refuse shapes whose values cannot fit in memory."""
        limit = memory_limit()
        large = {v for v, shape in known.shapes.items() if prod(shape) > limit // _WIDEST}
        for opr in self._oprs if large else ():
            for var in opr.outputs:
                if var.id in large and (size := nbytes(known.shapes[var.id], typed(var))) > limit:
                    raise OutOfMemoryError(
                        f"{describe(opr)} gives {var.dtype} {list(known.shapes[var.id])}, {size / 2**30:.1f} GiB, "
                        f"more than the {limit / 2**30:.1f} GiB of memory"
                    )


def observed_shapes(
    graph: Graph, ends: Sequence[Var], known: Mapping[int, Shape], feeds: Mapping[str, Array]
) -> dict[int, Shape]:
    """Return the shapes that are not known and follow from values alone, as one run gives them."""
    unknown = {v.id for o in graph.needed(ends) for v in o.outputs if v.id not in known}
    observed: dict[int, Shape] = {}

    def see(opr: Opr, values: Sequence[Array]) -> None:
        observed.update((v.id, x.shape) for v, x in zip(opr.outputs, values, strict=True) if v.id in unknown)

    if unknown:
        engine = ReferenceEngine(graph, ends)
        # Values may be out of an operator's range; shapes observed before that are valid.
        with suppress(LoadRunError):
            engine.run({n: v for n, v in feeds.items() if n in engine.inputs}, see)
    return observed
