"""What later calls of a traced function run: the compiled graph, and which of its values are whose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ..base.errors import EngineError
from ..engines.reference import ReferenceEngine
from ..graph import Var
from ..graph.dtypes import Array
from ..graph.params import AssertEqual
from ..ops.infer import Inference
from ..ops.registry import Shape
from ..passes.constants import subgraph
from ..passes.simplify import simplify
from ..tensors.applying import stream
from ..tensors.naming import shown
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


ShapeCache = Callable[[tuple[Shape, ...]], Inferred]


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
        checks: its assertions, which are AssertEqual operators.
        call: the arguments of the recorded call with slots in the places of tensors, where the graph can be dumped.
        shapes: gives what was inferred for the shapes of the arguments, to be carried on.
    """

    recording: Recording
    engine: ReferenceEngine | None
    targets: tuple[Var, ...]
    outputs: Outputs
    assigned: tuple[AssignedArgument, ...]
    updates: tuple[tuple[Tensor, Var], ...]
    checks: tuple[RecordedOpr, ...]
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    shapes: ShapeCache = field(default_factory=lambda: lru_cache(_SHAPES)(lambda _: Inferred()))


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


def judge(checks: Sequence[RecordedOpr], values: Mapping[int, Array]) -> None:
    """Raise where a check does not hold.

    Raises:
        EngineError: the error is too large or NaN; the text names the line.
    """
    for check in checks:
        error, maxerr = (
            float(values[check.opr.inputs[2].id].reshape(-1)[0]),
            check.opr.get(AssertEqual).maxerr,
        )
        if not error <= maxerr:
            raise EngineError(
                f"the values differ: the largest error is {error:.6g}, allowed is {maxerr:g}; in "
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
