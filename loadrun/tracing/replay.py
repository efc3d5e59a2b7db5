"""Later calls of a traced function: the check that Python does again what was recorded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..base.errors import EngineError, TraceError
from ..engines.reference import ReferenceEngine
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType
from ..graph.params import AssertEqual, Record
from ..ops.catalog import types
from ..ops.infer import Inference, follow
from ..ops.op import Trait
from ..ops.registry import Shape
from ..passes.constants import subgraph
from ..passes.inference import simplify
from ..tensors import access
from ..tensors.applying import stream
from ..tensors.naming import here, shown
from ..tensors.value import Tensor
from .config import GraphOptimizationConfig
from .recording import Evaluator, RecordedOpr, Recording, RunningTrace, TraceOptions

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


_SIZED = types(Trait.TAKES_SIZES)
"""Operators some of whose inputs are sizes or places."""


class ReplaySession(RunningTrace):
    """The session of a later call: nothing is recorded, every operator is compared with the recorded one.

    Args:
        recording: what the first call did.
        args: the arguments by name, in storage form.
        shapes: gives the inferred shapes of earlier calls.
        symbolic_shape: whether sizes are values of the graph.
    """

    def __init__(
        self, recording: Recording, args: Mapping[str, Array], shapes: ShapeCache, *, symbolic_shape: bool
    ) -> None:
        super().__init__(recording, symbolic_shape=symbolic_shape)
        self.evaluator: Evaluator | None = None
        self.feeds: dict[str, Array] = dict(args)
        self._position = 0
        self._entries = recording.entries
        self._count = len(recording.entries)
        self._fed: dict[int, tuple[int, int]] = {}
        self._inferred = shapes(tuple(a.shape for a in args.values()))

    # What the tracer does

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stand-in for an argument inside the function."""
        placeholder = access.from_variable(
            self.recording.args[name],
            access.dtype_of(tensor),
            access.is_scalar(tensor),
            self,
            kind=tensor.__class__,
        )
        access.set_stored(placeholder, access.stored(tensor))
        return placeholder

    def finish(self) -> None:
        """Check, when the function has returned, that everything recorded has been done again."""
        if self._position < len(self.recording.entries):
            entry = self.recording.entries[self._position]
            raise TraceError("trace error because mismature end").explained(
                "the function returned, but when it was recorded it went on "
                f"with {entry.opr.title} in {shown(entry.place)}"
            )

    def compute(self, engine: ReferenceEngine | None, variables: Sequence[Var]) -> dict[int, Array]:
        """Return the values of variables; by the compiled graph, unless part of them is computed already."""
        if self.evaluator is None and engine is not None:
            return run(engine, self.recording, self.feeds, variables)
        evaluator = self._evaluator()
        return {v.id: evaluator.value(v) for v in variables}

    # What code inside the function does

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[Tensor],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[Tensor]:
        """Compare an operator with the recorded one and stand in for its results."""
        if self._position >= self._count:
            raise TraceError("trace error because too many instructions").explained(
                f"{type} in {shown(here())} comes after the end of the recording"
            )
        entry = self._entries[self._position]
        opr = entry.opr
        if (
            opr.type != type
            or (opr.params != params and _seedless(opr.params) != _seedless(params))
            or opr.output_dtype != output_dtype
            or len(opr.outputs) != n
            or len(opr.inputs) != len(inputs)
        ):
            self._differs(
                entry, "operator mismatch", f"{Opr(type, params).title} where {entry.opr.title} was recorded"
            )
        for i, tensor in enumerate(inputs):
            source = entry.sources[i]
            if access.session_of(tensor) is self:
                as_recorded = source.value is None and access.variable_of(tensor) is source.var
            else:
                as_recorded = source.fixed and access.value_of(tensor) is source.value
            if not as_recorded:
                self._check_input(entry, i, tensor)
        self._position += 1
        outputs = []
        for var in opr.outputs:
            assert var.dtype is not None
            outputs.append(access.from_variable(var, var.dtype, scalar, self))
        return outputs

    def _check_source(self, entry: RecordedOpr, index: int, now: Var) -> None:
        """Raise unless an input is the variable that it was."""
        source = entry.sources[index].var
        if now is source:
            return
        outside, was_outside = (v.owner.type == "Host2DeviceCopy" for v in (now, source))
        reason = "input id mismatch"
        if outside != was_outside:
            reason = "expect {} node, got {}".format(*("internal", "external")[:: -1 if was_outside else 1])
        current = "another argument" if outside else "the result of a different operator"
        self._differs(entry, reason, f"input {index} of {entry.opr.title} is {current}")

    def _check_input(self, entry: RecordedOpr, index: int, tensor: Tensor) -> None:
        source = entry.sources[index]
        if access.session_of(tensor) is self:
            if source.value is not None:
                self._differs(
                    entry,
                    "expect external node, got internal",
                    f"input {index} of {entry.opr.title} was a value from outside the function, but is now computed "
                    "inside",
                )
            self._check_source(entry, index, access.recorded_variable(tensor))
            return
        if source.value is None:
            self._differs(
                entry,
                "expect internal node, got external",
                f"input {index} of {entry.opr.title} was computed inside the function, but now comes from outside",
            )
        value = access.stored(tensor)
        if source.fixed:
            if value is source.value:
                return
            if not _same(value, source.value):
                sizes = "; sizes that Python turns into numbers, as int(x.shape[0]) does, must stay the same"
                self._differs(
                    entry,
                    "tensors not equals",
                    f"input {index} of {entry.opr.title} is the constant {_short(source.value)}, now {_short(value)}"
                    + (sizes if entry.opr.type in _SIZED else ""),
                )
            return
        mark = (id(tensor), id(value))
        if self._fed.setdefault(source.var.id, mark) != mark:
            self._differs(
                entry, "input id mismatch", f"input {index} of {entry.opr.title} is a different tensor"
            )
        if access.dtype_of(tensor) != source.var.dtype:
            self._differs(
                entry, "dtype mismatch", f"input {index} of {entry.opr.title} is {access.dtype_of(tensor)}"
            )
        name = source.var.name or ""
        if value.shape != source.var.shape:
            # What is kept for the arguments' shapes holds for the captured tensors' traced shapes alone.
            self._inferred = Inferred()
        self.feeds[name] = value
        if self.evaluator is not None:
            self.evaluator.values[source.var.id] = value

    def _differs(self, entry: RecordedOpr, reason: str, text: str) -> NoReturn:
        raise TraceError(f"trace error because {reason}").explained(
            f"{text}\n  now:      {shown(here())}\n  recorded: {shown(entry.place)}\n"
            "the function took a different path than when it was traced; a traced function must apply the same "
            "operators in every call"
        )

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a tensor, which the code inside reads."""
        if access.value_of(tensor) is None:
            access.set_stored(tensor, self._evaluator().value(access.recorded_variable(tensor)))
        return access.stored(tensor)

    def _evaluator(self) -> Evaluator:
        if self.evaluator is None:
            self.evaluator = fed(self.recording, self.feeds)
        return self.evaluator

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor for the shapes of this call's arguments."""
        var = access.variable_of(tensor)
        assert var is not None
        known = self._inference(var)
        return known.shapes[var.id] if var.id in known.shapes else self.value(tensor).shape

    def _inference(self, var: Var) -> Inference:
        inferred = self._inferred
        if inferred.followed <= var.owner.id:
            shapes = {n: a.shape for n, a in self.feeds.items()}
            oprs = self.recording.graph.oprs
            try:
                while inferred.followed <= var.owner.id:
                    follow(oprs[inferred.followed], inferred.known, shapes)
                    inferred.followed += 1
            except EngineError as e:
                entry = next((x for x in self.recording.entries if x.opr.id == inferred.followed), None)
                raise EngineError(f"{e}; in {shown(entry.place if entry else here())}") from e
        return inferred.known

    def measured(self, tensor: Tensor) -> None:
        """Do nothing: the Python code runs again, with the sizes of this call."""

    def named(self, tensor: Tensor, name: str) -> None:
        """Do nothing: names were recorded in the first call."""


def _seedless(params: tuple[Record, ...]) -> list[object]:
    """Return the fields of records but for the global seed, which may be another one in every call."""
    return [
        (type(p), p.__dict__.get("source"), [(n, v) for n, v in p.pairs() if n != "seed"]) for p in params
    ]


def _same(a: Array, b: Array) -> bool:
    """Return whether two arrays hold the same, NaN where NaN is."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    # The same bytes are the same numbers, which is found in a fraction of the time.
    same_bytes = a.nbytes <= _SMALL and a.tobytes() == b.tobytes()
    return same_bytes or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


_SMALL = 1 << 16


def _short(value: Array) -> str:
    if value.size <= 8:
        return f"{value.dtype} {value.reshape(-1).tolist()}"
    return f"{value.dtype} {list(value.shape)}"
