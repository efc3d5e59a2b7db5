"""An engine that gives a graph to a runtime of ONNX models, piece by piece.

For every set of input shapes the graph is divided again: shape arithmetic is done in advance, so that the runtime gets
fixed sizes, and what it cannot run is left to the reference engine as islands. Random numbers are drawn there, too:
so they are the same whatever executes the rest.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..base.about import About, Island
from ..base.errors import EngineError, LoadRunError, UnsupportedError
from ..engines import TRANSLATED, Setup
from ..engines.profile import Executed, Profiling, executed_of
from ..engines.protocol import checked_feeds, constant_ids, graph_inputs
from ..engines.reference import ReferenceEngine, observed_shapes
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..graph.excerpts import excerpt
from ..onnx.encode import encode
from ..onnx.model import Request, WritingOptions, refusals, write
from ..ops.catalog import CATALOG
from ..ops.control import CONDITIONAL, find_branches
from ..ops.infer import Inference, describe, infer_dtypes, infer_shapes
from ..ops.numeric.stream import OperatorStreams, RandomNumbers
from ..ops.registry import Shape, implementation
from .pieces import NotTaken, Piece, Runtime, RuntimeSession, divide

T = TypeVar("T")
_KEPT = 8
"""How many sets of shapes keep what was made for them."""
_RANDOM = "the reference engine draws random numbers, so that they are the same everywhere"


@dataclass(eq=False)
class _LoadedPiece:
    """A piece made ready: models by the shapes of its inputs, or the reference engine."""

    piece: Piece
    sessions: dict[tuple[Shape, ...], RuntimeSession] = field(default_factory=dict)
    engine: ReferenceEngine | None = None


@dataclass(eq=False)
class _Program:
    """The steps for one set of input shapes."""

    known: Inference
    observed: dict[int, Shape]
    parts: list[_LoadedPiece]
    islands: tuple[Island, ...]
    refused: dict[int, str]


class Translated:
    """A graph on a runtime of ONNX models.

    Args:
        runtime: the runtime.
        graph: the graph.
        targets: the variables to compute.
        setup: seed, whether islands are refused.

    Raises:
        UnsupportedError: an operator has no implementation, here or in the runtime.
        EngineError: dtypes that an operator cannot take.
    """

    def __init__(self, runtime: Runtime, graph: Graph, targets: Sequence[Var], setup: Setup) -> None:
        self.runtime, self.graph, self.setup = runtime, graph, setup
        self.targets = list(targets)
        self._oprs = graph.needed(self.targets)
        infer_dtypes(self._oprs)
        self._branches = find_branches(self._oprs)
        self._inputs = graph_inputs(self._oprs)
        self._stored = {v.id for o in self._oprs if o.tensors for v in o.outputs}
        self._stored -= {v.id for v in self._inputs.values()}
        self._folded: dict[int, Array] | None = None
        self._programs: dict[tuple[Shape, ...], _Program] = {}
        self._islands: tuple[Island, ...] = ()
        self._run: list[tuple[float, object]] = []

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    @property
    def about(self) -> About:
        """Describe what executes; islands are those of the last run."""
        r = self.runtime
        count = len(self._executed())
        return About(r.name, r.version, r.arithmetic, r.provider, self._islands, count, TRANSLATED)

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Divide the graph for the shapes of these feeds, and load the pieces that read nothing but them.

        Raises:
            UnsupportedError: the runtime cannot run an operator, and islands are refused.
        """
        values = self._fed(feeds)
        if self._key(values) not in self._programs:
            self._with(values, self._load_first)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `Engine.run`.

        Raises:
            UnsupportedError: the runtime cannot run an operator, and islands are refused.
        """
        return self._with(self._fed(feeds), self._execute)

    def _with(self, values: dict[int, Array], act: Callable[[_Program, dict[int, Array]], T]) -> T:
        """Do something with the program for these values; again whenever the runtime refuses operators of it."""
        key = self._key(values)
        program = self._programs.get(key)
        refused: dict[int, str] = {}
        while True:
            if program is None:
                program = self._divide(key, values, refused)
            try:
                return act(program, values)
            except _Refusal as e:
                refused = {**program.refused, **e.refused}
                program = None
                self._programs.pop(key)

    def _key(self, values: Mapping[int, Array]) -> tuple[Shape, ...]:
        return tuple(values[v.id].shape for v in self._inputs.values())

    def _load_first(self, program: _Program, values: dict[int, Array]) -> None:
        for part in program.parts:
            if part.piece.native and all(v.id in values for v in part.piece.inputs):
                self._session(part, program, [values[v.id] for v in part.piece.inputs])

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run; those of islands by the reference engine."""
        records: list[Executed] = []
        for start, ran in self._run:
            if isinstance(ran, ReferenceEngine):
                on_reference = [e._replace(lane="reference engine") for e in executed_of(ran.get_profile())]
            else:
                on_reference = ran.executed() if isinstance(ran, Profiling) else []
            records += [e._replace(start=e.start + start) for e in on_reference]
        return records

    # Values

    def _fed(self, feeds: Mapping[str, Array]) -> dict[int, Array]:
        values = checked_feeds(self._inputs, feeds)
        return {i: np.ascontiguousarray(array) for i, array in values.items()}

    def _constants(self) -> dict[int, Array]:
        """Compute what follows from constants alone, by variable id; once."""
        if self._folded is None:
            constant = constant_ids(self._oprs, self._branches.guard, lambda o: CATALOG[o.type].pure)
            read = {v.id: v for o in self._oprs for v in o.inputs if o.outputs[0].id not in constant}
            read.update((v.id, v) for v in self.targets)
            wanted = [v for i, v in read.items() if i in constant and i not in self._stored]
            folded = ReferenceEngine(self.graph, wanted, seed=self.setup.seed).run({}) if wanted else []
            self._folded = dict(zip((v.id for v in wanted), folded, strict=True))
        return self._folded

    def _executed(self) -> list[Opr]:
        """List the operators that are neither inputs nor stored."""
        return [o for o in self._oprs if not o.tensors]

    # Dividing

    def _divide(
        self, key: tuple[Shape, ...], values: Mapping[int, Array], refused: Mapping[int, str]
    ) -> _Program:
        """Divide the graph for these shapes."""
        known = infer_shapes(self.graph, self._oprs, dict(zip(self._inputs, key, strict=True)))
        known.values.update(self._constants())
        known.shapes.update((i, a.shape) for i, a in self._constants().items())
        # Shapes that follow from values alone are those of one run of the reference engine.
        feeds = {n: values[v.id] for n, v in self._inputs.items()}
        observed = observed_shapes(self.graph, self.targets, known.shapes, feeds, self.setup.seed)
        known_ids = set(known.values)
        todo = [o for o in self._executed() if not all(v.id in known_ids for v in o.outputs)]
        reasons = dict(refused)
        reasons.update((o.id, why) for o, why in refusals(self._oprs, known, observed, self.runtime.opset))
        reasons.update((o.id, _RANDOM) for o in todo if implementation(o.type).random)
        self._spread(todo, reasons)
        islands = tuple(Island(describe(o), o.title, reasons[o.id]) for o in todo if o.id in reasons)
        if islands and self.setup.strict:
            raise UnsupportedError(_listed(self.runtime.name, islands))
        parts = [_LoadedPiece(p) for p in divide(todo, self.targets, reasons, known_ids | self._stored)]
        if len(self._programs) >= _KEPT:
            self._programs.pop(next(iter(self._programs)))
        program = self._programs[key] = _Program(known, observed, parts, islands, dict(refused))
        return program

    def _spread(self, todo: Sequence[Opr], reasons: dict[int, str]) -> None:
        """Hand a graph with branches to one engine as a whole: values of a branch that is not taken do not exist."""
        if not reasons or not any(o.type in CONDITIONAL for o in self._oprs):
            return
        first = next(o for o in self._oprs if o.id in reasons)
        why = f"branches are not split between engines; {describe(first)}: {reasons[first.id]}"
        for opr in todo:
            reasons.setdefault(opr.id, why)

    # Executing

    def _execute(self, program: _Program, feeds: dict[int, Array]) -> list[Array]:
        values = dict(feeds)
        rng = OperatorStreams(self.setup.seed)
        self._islands = program.islands
        self._run, began = [], time.perf_counter()
        for part in program.parts:
            start = time.perf_counter() - began
            read = [values[v.id] for v in part.piece.inputs]
            if part.piece.native:
                outputs = self._native(part, program, read)
            else:
                outputs = self._island(part, program, read, rng)
            if self.setup.profile:
                ran = self._session(part, program, read) if part.piece.native else part.engine
                self._run.append((start, ran))
            for var, array in zip(part.piece.outputs, outputs, strict=True):
                values[var.id] = array
        return [self._value(v, program, values) for v in self.targets]

    def _value(self, var: Var, program: _Program, values: Mapping[int, Array]) -> Array:
        """Return a target's value: computed, a constant of these shapes, or stored in the graph."""
        if var.id in values:
            return values[var.id]
        if var.id in program.known.values:
            return program.known.values[var.id]
        if var.owner.tensors:
            return var.owner.tensors[var.index].value()
        raise EngineError(f"{var.label!r} has no value: it is in a branch that was not taken")

    def _part_graph(self, piece: Piece, program: _Program) -> Graph:
        names = {v.id: _in(v) for v in piece.inputs}
        part, _ = excerpt(self.graph, piece.outputs, names, program.known.values)
        return part

    def _island(
        self, part: _LoadedPiece, program: _Program, arrays: Sequence[Array], rng: RandomNumbers
    ) -> list[Array]:
        if part.engine is None:
            graph = self._part_graph(part.piece, program)
            part.engine = ReferenceEngine(
                graph, graph.outputs, seed=self.setup.seed, profile=self.setup.profile
            )
        feeds = {_in(v): a for v, a in zip(part.piece.inputs, arrays, strict=True)}
        wanted = part.engine.inputs
        return part.engine.run({n: a for n, a in feeds.items() if n in wanted}, rng=rng)

    def _native(self, part: _LoadedPiece, program: _Program, read: Sequence[Array]) -> Sequence[Array]:
        try:
            return self._session(part, program, read).run(read)
        except NotTaken as e:
            raise _Refusal(self._blamed(part.piece, program, str(e))) from e

    def _session(self, part: _LoadedPiece, program: _Program, arrays: Sequence[Array]) -> RuntimeSession:
        """Return the session of the piece's model for these shapes, made on first use.

        Raises:
            _Refusal: the runtime does not take it; with the operators that are to blame.
        """
        key = tuple(a.shape for a in arrays)
        session = part.sessions.get(key)
        if session is None:
            piece = part.piece
            try:
                session = self._load(piece, program, arrays)
            except (NotTaken, UnsupportedError) as e:
                raise _Refusal(self._blamed(piece, program, str(e))) from e
            while len(part.sessions) >= _KEPT:
                part.sessions.pop(next(iter(part.sessions)))
            part.sessions[key] = session
        return session

    def _load(self, piece: Piece, program: _Program, arrays: Sequence[Array]) -> RuntimeSession:
        inputs, outputs = [_in(v) for v in piece.inputs], [_out(v) for v in piece.outputs]
        return self.runtime.load(self._written(piece, program, arrays), inputs, outputs)

    def _written(self, piece: Piece, program: _Program, arrays: Sequence[Array]) -> bytes:
        """Write the ONNX model of a piece for these shapes.

        Raises:
            UnsupportedError: an operator cannot be written.
        """
        graph = self._part_graph(piece, program)
        examples = {_in(v): a for v, a in zip(piece.inputs, arrays, strict=True)}
        inputs = [(n, n, v.dtype, examples[n].shape) for v in piece.inputs if (n := _in(v)) and v.dtype]
        outputs = {_out(v): new for v, new in zip(piece.outputs, graph.outputs, strict=True)}
        written = write(Request(graph, inputs, outputs, examples, WritingOptions(opset=self.runtime.opset)))
        return b"".join(encode(written.model))

    def _blamed(self, piece: Piece, program: _Program, why: str) -> dict[int, str]:
        """Find the operators that the runtime does not take each by itself; all of them where that says nothing."""
        judged: dict[object, str] = {}
        reasons: dict[int, str] = {}
        for opr in piece.oprs:
            kind = (opr.title, opr.params, *(v.dtype for v in opr.inputs))
            if kind not in judged:
                judged[kind] = self._judged(opr, program)
            if judged[kind]:
                reasons[opr.id] = judged[kind]
        return reasons or {o.id: why for o in piece.oprs}

    def _judged(self, opr: Opr, program: _Program) -> str:
        """Why the runtime does not take an operator; empty if it does, or if that is unknown."""
        shapes = {**program.observed, **program.known.shapes}
        known_ids = {*program.known.values, *self._stored}
        alone = divide([opr], opr.outputs, (), known_ids)
        if not alone or any(v.id not in shapes for v in alone[0].inputs):
            return ""
        zeros = [np.zeros(shapes[v.id], v.dtype.np) for v in alone[0].inputs if v.dtype is not None]
        try:
            self._load(alone[0], program, zeros).run(zeros)
        except (NotTaken, UnsupportedError) as e:
            return str(e)
        except LoadRunError:
            return ""
        return ""


def _in(var: Var) -> str:
    """Name a variable as an input of a model."""
    return f"loadrun_in_{var.id}"


def _out(var: Var) -> str:
    """Name a variable as an output of a model."""
    return f"loadrun_out_{var.id}"


class _Refusal(Exception):
    """The runtime does not take operators of a piece."""

    def __init__(self, refused: Mapping[int, str]) -> None:
        super().__init__()
        self.refused = dict(refused)


def _listed(name: str, islands: Sequence[Island]) -> str:
    count = f"{len(islands)} operator{'s' * (len(islands) > 1)}"
    lines = "\n".join(f"  {i.operator}: {i.reason}" for i in islands)
    return (
        f"{count} cannot be executed by {name} (the reference engine does, without --strict engine):\n{lines}"
    )
