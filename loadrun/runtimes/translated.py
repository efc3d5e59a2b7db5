"""An engine that gives a graph to a runtime of ONNX models, as one model.

For every set of input shapes a model is written: shape arithmetic is done in advance, so that the runtime gets fixed
sizes. What cannot be written, what the runtime does not take, and graphs that draw random numbers are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..base.about import About
from ..base.errors import UnsupportedError
from ..engines import TRANSLATED
from ..engines.profile import Executed, Profiling
from ..engines.protocol import checked_feeds, constant_ids, given, graph_inputs
from ..engines.reference import ReferenceEngine
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..graph.excerpts import excerpt
from ..onnx.encode import encode
from ..onnx.model import NotWrittenError, Request, WritingOptions, write
from ..ops.catalog import CATALOG, draws
from ..ops.control import find_branches
from ..ops.infer import describe, infer_dtypes, infer_shapes
from ..ops.registry import Shape
from .native import NotTaken

_KEPT = 8
"""For how many sets of shapes models are kept."""
_NAMED = 3
"""How many operators a refusal names."""
_RANDOM = "every runtime draws other random numbers"
_INSTEAD = "run the model on the reference engine or MegEngine"


class RuntimeSession(Protocol):
    """A model that was loaded."""

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute: arrays in the order of the model's inputs, results in the order of its outputs.

        Raises:
            EngineError: the runtime failed.
        """
        ...


class Runtime(Protocol):
    """Loads ONNX models.

    Attributes:
        name: the engine's name.
        version: the runtime's version.
        provider: what of it executes.
        arithmetic: in what float32 operators are computed.
        opset: version of ONNX's operators that models are written in.
    """

    name: str
    version: str
    provider: str
    arithmetic: str
    opset: int

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> RuntimeSession:
        """Load a model.

        Args:
            model: a serialized ModelProto.
            inputs, outputs: the names of its inputs and outputs.

        Raises:
            NotTaken: the runtime cannot run it.
        """
        ...


@dataclass(frozen=True)
class _Program:
    """What runs for one set of input shapes.

    Attributes:
        known: the targets that follow from the shapes and from constants, by variable id.
        read: ids of the inputs that the model has.
        computed: ids of the targets that it computes.
        session: the model; None where nothing is left to compute.
    """

    known: Mapping[int, Array]
    read: Sequence[int]
    computed: Sequence[int]
    session: RuntimeSession | None


class Translated:
    """A graph on a runtime of ONNX models.

    Args:
        runtime: the runtime.
        graph: the graph.
        targets: the variables to compute.

    Raises:
        UnsupportedError: nothing is known of an operator.
        EngineError: dtypes that an operator cannot take.
    """

    def __init__(self, runtime: Runtime, graph: Graph, targets: Sequence[Var]) -> None:
        self.runtime, self.graph = runtime, graph
        self.targets = list(targets)
        self._oprs = graph.needed(self.targets)
        infer_dtypes(self._oprs)
        self._inputs = graph_inputs(self._oprs)
        self._programs: dict[tuple[Shape, ...], _Program] = {}
        self._last: RuntimeSession | None = None

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    @property
    def about(self) -> About:
        """Describe what executes, and how it computes."""
        r = self.runtime
        count = sum(not o.tensors for o in self._oprs)
        return About(r.name, r.version, r.arithmetic, r.provider, operators=count, way=TRANSLATED)

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Load the model for the shapes of these feeds.

        Raises:
            UnsupportedError: the runtime cannot run the graph.
        """
        self._program(self._fed(feeds))

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `Engine.run`.

        Raises:
            UnsupportedError: the runtime cannot run the graph.
        """
        values = self._fed(feeds)
        program = self._program(values)
        values.update(program.known)
        self._last = program.session
        if program.session is not None:
            outputs = program.session.run([values[i] for i in program.read])
            values.update(zip(program.computed, outputs, strict=True))
        return given(self.targets, values)

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run."""
        return self._last.executed() if isinstance(self._last, Profiling) else []

    def _fed(self, feeds: Mapping[str, Array]) -> dict[int, Array]:
        values = checked_feeds(self._inputs, feeds)
        return {i: np.ascontiguousarray(array) for i, array in values.items()}

    @cached_property
    def _constants(self) -> dict[int, Array]:
        """What follows from constants alone, by variable id."""
        guard = find_branches(self._oprs).guard
        constant = constant_ids(self._oprs, guard, lambda o: CATALOG[o.type].pure)
        read = {v.id: v for o in self._oprs for v in o.inputs if o.outputs[0].id not in constant}
        read.update((v.id, v) for v in self.targets)
        wanted = [v for i, v in read.items() if i in constant and not v.owner.tensors]
        folded = ReferenceEngine(self.graph, wanted).run({}) if wanted else []
        return dict(zip((v.id for v in wanted), folded, strict=True))

    def _program(self, values: Mapping[int, Array]) -> _Program:
        """Return what runs for the shapes of these values, made on first use."""
        key = tuple(values[v.id].shape for v in self._inputs.values())
        if key not in self._programs:
            while len(self._programs) >= _KEPT:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = self._made(values)
        return self._programs[key]

    def _made(self, values: Mapping[int, Array]) -> _Program:
        shapes = {name: values[v.id].shape for name, v in self._inputs.items()}
        known = {**infer_shapes(self.graph, self._oprs, shapes).values, **self._constants}
        computed = {v.id: v for v in self.targets if v.id not in known and not v.owner.tensors}
        names = {v.id: f"loadrun_in_{v.id}" for v in self._inputs.values()}
        graph, _ = excerpt(self.graph, computed.values(), names, known)
        inputs = graph_inputs(graph.oprs)
        read = {i: name for i, name in names.items() if name in inputs}
        outputs = {f"loadrun_out_{i}": v for i, v in zip(computed, graph.outputs, strict=True)}
        session = None
        if computed:
            model = self._written(graph, {n: values[i] for i, n in read.items()}, outputs)
            try:
                session = self.runtime.load(model, list(read.values()), list(outputs))
            except NotTaken as e:
                raise UnsupportedError(
                    f"{self.runtime.name} rejects the translated model: {e}; {_INSTEAD}"
                ) from e
        known = {v.id: known[v.id] for v in self.targets if v.id in known}
        return _Program(known, list(read), list(computed), session)

    def _written(self, graph: Graph, examples: Mapping[str, Array], outputs: Mapping[str, Var]) -> bytes:
        """Write the ONNX model of a graph for the shapes of some examples.

        Raises:
            UnsupportedError: operators cannot be written, or draw random numbers.
        """
        random = [(describe(o), _RANDOM) for o in graph.oprs if draws(o)]
        if random:
            raise self._refusal(random)
        dtypes = {name: var.owner.tensors[0].dtype for name, var in graph_inputs(graph.oprs).items()}
        inputs = [(n, n, dtypes[n], array.shape) for n, array in examples.items()]
        options = WritingOptions(opset=self.runtime.opset)
        try:
            written = write(Request(graph, inputs, outputs, examples, options))
        except NotWrittenError as e:
            raise self._refusal(e.refused) from e
        return b"".join(encode(written.model))

    def _refusal(self, refused: Sequence[tuple[str, str]]) -> UnsupportedError:
        """Return the error for operators and the reasons why they cannot be run."""
        names = ", ".join(name for name, _ in refused[:_NAMED])
        more = len(refused) - _NAMED
        if more > 0:
            names += f" and {more} more operator{'s' * (more > 1)}"
        why = "; ".join(dict.fromkeys(why for _, why in refused[:_NAMED]))
        return UnsupportedError(f"{self.runtime.name} cannot run {names}: {why}; {_INSTEAD}")
