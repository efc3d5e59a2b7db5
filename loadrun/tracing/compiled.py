"""What later calls of a traced function run: the compiled graph, and which of its values are whose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..base.errors import EngineError
from ..engines.reference import ReferenceEngine
from ..graph import Var
from ..graph.dtypes import Array
from ..graph.params import AssertEqual
from ..ops.infer import Inference
from ..ops.registry import Shape
from ..passes.constants import subgraph
from ..passes.inference import simplify
from ..tensors.applying import stream
from ..tensors.naming import Place, shown
from ..tensors.value import Tensor
from .config import GraphOptimizationConfig
from .recording import Evaluator, RecordedOpr, Recording, TraceOptions

_SHAPES = 8
"""For how many sets of argument shapes the inferred shapes are kept."""


@dataclass(eq=False)
class Inferred:
    """What inference found for some shapes, and how many operators it has followed."""

    known: Inference = field(default_factory=Inference)
    followed: int = 0


class ShapeCache:
    """What is inferred for the shapes of the arguments, for a few sets of them."""

    def __init__(self) -> None:
        self._inferred: dict[tuple[Shape, ...], Inferred] = {}

    def get(self, key: tuple[Shape, ...]) -> Inferred:
        """Return what is known for these shapes, to be carried on."""
        inferred = self._inferred.get(key)
        if inferred is None:
            if len(self._inferred) >= _SHAPES:
                self._inferred.pop(next(iter(self._inferred)))
            inferred = self._inferred[key] = Inferred()
        return inferred


class InnerCheck(NamedTuple):
    """An AssertEqual that the function contains: the variable of its error, what passes, and where it stands."""

    error: Var
    maxerr: float
    place: Place


@dataclass(frozen=True, eq=False)
class TensorPlaceholder:
    """The place of a tensor in the structure of the outputs."""

    kind: type[Tensor]
    scalar: bool


class Outputs(NamedTuple):
    """What the function returned.

    Attributes:
        structure: its lists, tuples and dicts, with a `TensorPlaceholder` for every tensor; other values as they were.
        vars: the variables of the tensors in order, None for one from outside that the graph does not hold.
        paths: where in the structure the tensors stand.
    """

    structure: Any
    vars: tuple[Var | None, ...]
    paths: tuple[tuple[Any, ...], ...]


class AssignedArgument(NamedTuple):
    """What the function assigned to an argument: the argument's name, the variable, whether it has no axes."""

    argument: str
    var: Var
    scalar: bool


@dataclass(frozen=True, eq=False)
class Compiled:
    """What the first call found out, for all later ones.

    Attributes:
        recording: what it did.
        engine: the compiled graph, None if nothing is ever computed.
        targets: the variables that the compiled graph computes, in the order of its results.
        outputs: what the function returned.
        assigned: what it assigned to its arguments.
        updates: tensors from outside that it gave other values, with these.
        checks: its assertions.
        call: the arguments of the recorded call with slots in the places of tensors, where the graph can be dumped.
        shapes: what was inferred for the shapes of the arguments.
    """

    recording: Recording
    engine: ReferenceEngine | None
    targets: tuple[Var, ...]
    outputs: Outputs
    assigned: tuple[AssignedArgument, ...]
    updates: tuple[tuple[Tensor, Var], ...]
    checks: tuple[InnerCheck, ...]
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    shapes: ShapeCache = field(default_factory=ShapeCache)


def compiled_engine(
    recording: Recording, targets: Sequence[Var], options: TraceOptions
) -> ReferenceEngine | None:
    """Return the engine of the recorded graph, simplified; None if the options ask for no values."""
    if options.mode == "never":
        return None
    graph, _ = subgraph(recording.graph, targets)
    config = options.graph_opt_config or GraphOptimizationConfig()
    return ReferenceEngine(
        simplify(graph, options.opt_level, **vars(config)),
        dtr=options.dtr_config,
        sublinear=options.sublinear_memory_config,
        profile=options.profiling,
    )


def checks_in(recording: Recording) -> list[InnerCheck]:
    """Return the checks of a recording."""
    entries = (e for e in recording.entries if e.opr.type == "AssertEqual")
    return [InnerCheck(e.opr.inputs[2], e.opr.get(AssertEqual).maxerr, e.place) for e in entries]


def judge(checks: Sequence[InnerCheck], values: Mapping[int, Array]) -> None:
    """Raise where a check does not hold.

    Raises:
        EngineError: the error is too large or NaN; the text names the line.
    """
    for check in checks:
        error = float(values[check.error.id].reshape(-1)[0])
        if not error <= check.maxerr:
            raise EngineError(
                f"the values differ: the largest error is {error:.6g}, allowed is {check.maxerr:g}; in "
                f"{shown(check.place)}"
            )


def run(
    engine: ReferenceEngine,
    recording: Recording,
    feeds: Mapping[str, Array],
    variables: Sequence[Var],
    draws: Callable[[], Any] = stream,
) -> dict[int, Array]:
    """Return the values of variables by the compiled graph; an error names the line of the user's code."""
    try:
        return dict(zip((v.id for v in variables), engine.run(feeds, rng=draws()), strict=True))
    except EngineError as e:
        entry = _failing(recording, feeds)
        raise EngineError(f"{e}; in {shown(entry.place)}" if entry else str(e)) from e


def _failing(recording: Recording, feeds: Mapping[str, Array]) -> RecordedOpr | None:
    """Find the first recorded operator that cannot be computed; the compiled graph may have others in their place."""
    evaluator = fed(recording, feeds)
    for entry in recording.entries:
        try:
            evaluator.value(entry.opr.outputs[0])
        except EngineError:
            return entry
    return None


def fed(recording: Recording, feeds: Mapping[str, Array]) -> Evaluator:
    """Return an evaluator of the recorded graph that knows the values of its inputs."""
    evaluator = Evaluator()
    for opr in recording.graph.oprs:
        if opr.type == "Host2DeviceCopy":
            value = feeds.get(opr.outputs[0].name or "")
            if value is not None:
                evaluator.values[opr.outputs[0].id] = value
    return evaluator
