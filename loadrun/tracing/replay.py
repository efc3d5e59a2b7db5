"""Later calls of a traced function: the check that Python does again what was recorded."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from ..base.errors import EngineError, TraceError
from ..engines.reference import ReferenceEngine
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType
from ..graph.params import Record
from ..ops.catalog import types
from ..ops.infer import Inference, follow
from ..ops.op import Trait
from ..ops.registry import Shape
from ..tensors import access
from ..tensors.naming import here, shown
from ..tensors.value import Tensor
from .compiled import Inferred, ShapeCache, fed, run
from .recording import Evaluator, RecordedOpr, Recording, RunningTrace

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
