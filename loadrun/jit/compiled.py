"""Later calls of a traced function: a compiled graph, and the check that Python does again what was recorded."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..dtypes import Array, DType
from ..engines.reference import ReferenceEngine
from ..errors import EngineError, TraceError
from ..graph import Opr, Var
from ..imperative.apply import generator
from ..imperative.source import Place, here, shown
from ..imperative.value import Tensor
from ..ops.catalog import types
from ..ops.infer import Inference, follow
from ..ops.op import Trait
from ..ops.registry import Shape
from ..params import AssertEqual, Record
from .evaluate import Evaluator
from .recording import Entry, Recording

__all__ = ["Check", "Replay", "ShapeCache", "checks_in", "judge", "run"]

_SIZED = types(Trait.TAKES_SIZES)
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
        self._found: dict[tuple[Shape, ...], Inferred] = {}

    def get(self, key: tuple[Shape, ...]) -> Inferred:
        """What is known for these shapes, to be carried on."""
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _SHAPES:
                self._found.pop(next(iter(self._found)))
            found = self._found[key] = Inferred()
        return found


class Check(NamedTuple):
    """An AssertEqual that the function contains: the variable of its error, what passes, and where it stands."""

    error: Var
    maxerr: float
    place: Place


def checks_in(recording: Recording) -> list[Check]:
    """The checks of a recording."""
    found = (e for e in recording.entries if e.opr.type == "AssertEqual")
    return [Check(e.opr.inputs[2], e.opr.get(AssertEqual).maxerr, e.place) for e in found]


def judge(checks: Sequence[Check], values: Mapping[int, Array]) -> None:
    """Raise where a check does not hold.

    Raises:
        EngineError: the error is too large or NaN; the text names the line.
    """
    for check in checks:
        error = float(values[check.error.id].reshape(-1)[0])
        if not error <= check.maxerr:
            raise EngineError(
                f"the values differ: the greatest error is {error:.6g}, allowed is {check.maxerr:g}; in "
                f"{shown(check.place)}"
            )


def run(
    engine: ReferenceEngine, recording: Recording, feeds: Mapping[str, Array], variables: Sequence[Var]
) -> dict[int, Array]:
    """The values of variables by the compiled graph; an error names the line of the user's code."""
    try:
        return dict(zip((v.id for v in variables), engine.run(feeds, rng=generator()), strict=True))
    except EngineError as e:
        entry = _failing(recording, feeds)
        raise EngineError(f"{e}; in {shown(entry.place)}" if entry else str(e)) from e


def _failing(recording: Recording, feeds: Mapping[str, Array]) -> Entry | None:
    """The first recorded operator that cannot be computed; the compiled graph may have others in their place."""
    evaluator = _fed(recording, feeds)
    for entry in recording.entries:
        try:
            evaluator.value(entry.opr.outputs[0])
        except EngineError:
            return entry
    return None


def _fed(recording: Recording, feeds: Mapping[str, Array]) -> Evaluator:
    evaluator = Evaluator()
    for opr in recording.graph.oprs:
        if opr.type == "Host2DeviceCopy":
            value = feeds.get(opr.outputs[0].name or "")
            if value is not None:
                evaluator.values[opr.outputs[0].id] = value
    return evaluator


class Replay:
    """The session of a later call: nothing is recorded, every operator is compared with the recorded one.

    Args:
        recording: what the first call did.
        args: the arguments by name, in storage form.
        shapes: inferred shapes of earlier calls.
        symbolic_shape: whether sizes are values of the graph.
    """

    def __init__(
        self, recording: Recording, args: Mapping[str, Array], shapes: ShapeCache, *, symbolic_shape: bool
    ) -> None:
        self.recording = recording
        self.symbolic_shape = symbolic_shape
        self.sizes: dict[Any, Tensor] = {}
        self.ended = False
        self.evaluator: Evaluator | None = None
        self.feeds: dict[str, Array] = dict(args)
        self._position = 0
        self._live: list[weakref.ref[Tensor]] = []
        self._fed: dict[int, tuple[int, int]] = {}
        self._inferred = shapes.get(tuple(a.shape for a in args.values()))

    # What the tracer does

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """A stand-in for an argument inside the function."""
        made = tensor.__class__._recorded(self.recording.args[name], tensor._dtype, tensor._scalar, self)
        made._value = tensor._stored()
        return made

    def finish(self) -> None:
        """The function has returned: everything recorded must have been done again."""
        if self._position < len(self.recording.entries):
            entry = self.recording.entries[self._position]
            raise TraceError(
                "trace error because mismature end: the function returned, but when it was recorded it went on "
                f"with {_name(entry)} in {shown(entry.place)}"
            )

    def alive(self) -> list[Tensor]:
        """The tensors of the session that somebody else still holds."""
        self.sizes.clear()
        found = (r() for r in self._live)
        return [t for t in found if t is not None and t._session is self]

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor that stands for a variable of the session."""
        self._live.append(weakref.ref(tensor))

    def compute(self, engine: ReferenceEngine | None, variables: Sequence[Var]) -> dict[int, Array]:
        """The values of variables; by the compiled graph, unless part of them is computed already."""
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
        if self._position >= len(self.recording.entries):
            raise TraceError(
                f"trace error because too many instructions: {type} in {shown(here())} comes after all that was "
                "recorded"
            )
        entry = self.recording.entries[self._position]
        opr = entry.opr
        if (
            opr.type != type
            or opr.params != params
            or opr.output_dtype != output_dtype
            or len(opr.outputs) != n
            or len(opr.inputs) != len(inputs)
        ):
            self._differs(
                entry, "operator mismatch", f"{_called(type, params)} where {_name(entry)} was recorded"
            )
        for i, tensor in enumerate(inputs):
            self._check_input(entry, i, tensor)
        self._position += 1
        made = []
        for var in opr.outputs:
            assert var.dtype is not None
            made.append(Tensor._recorded(var, var.dtype, scalar, self))
        return made

    def _check_input(self, entry: Entry, index: int, tensor: Tensor) -> None:
        source = entry.sources[index]
        if tensor._session is self:
            if source.value is not None:
                self._differs(
                    entry,
                    "expect external node, got internal",
                    f"input {index} of {_name(entry)} was a value from outside the function, now it is computed inside",
                )
            if tensor._var is not source.var:
                self._differs(
                    entry,
                    "input id mismatch",
                    f"input {index} of {_name(entry)} is the result of another operator",
                )
            return
        if source.value is None:
            self._differs(
                entry,
                "expect internal node, got external",
                f"input {index} of {_name(entry)} was computed inside the function, now it comes from outside",
            )
        value = tensor._stored()
        if source.fixed:
            if value is source.value:
                return
            same = value.shape == source.value.shape and value.dtype == source.value.dtype
            if not (same and np.array_equal(value, source.value, equal_nan=value.dtype.kind == "f")):
                sizes = "; sizes that Python turns into numbers, as int(x.shape[0]) does, must stay what they were"
                self._differs(
                    entry,
                    "tensors not equals",
                    f"input {index} of {_name(entry)} is the constant {_short(source.value)}, now {_short(value)}"
                    + (sizes if entry.opr.type in _SIZED else ""),
                )
            return
        mark = (id(tensor), id(value))
        if self._fed.setdefault(source.var.id, mark) != mark:
            self._differs(entry, "input id mismatch", f"input {index} of {_name(entry)} is another tensor")
        if tensor._dtype != source.var.dtype:
            self._differs(entry, "dtype mismatch", f"input {index} of {_name(entry)} is {tensor._dtype}")
        name = source.var.name or ""
        if value.shape != source.var.shape:
            # What is kept for the arguments' shapes holds for the captured tensors' traced shapes alone.
            self._inferred = Inferred()
        self.feeds[name] = value
        if self.evaluator is not None:
            self.evaluator.values[source.var.id] = value

    def _differs(self, entry: Entry, reason: str, text: str) -> NoReturn:
        raise TraceError(
            f"trace error because {reason}: {text}\n  now:      {shown(here())}\n  recorded: {shown(entry.place)}\n"
            "the function took another path than when it was traced; a traced function must apply the same "
            "operators in every call"
        )

    def value(self, tensor: Tensor) -> Array:
        """The value of a tensor, which the code inside reads."""
        if tensor._value is None:
            assert tensor._var is not None
            tensor._value = self._evaluator().value(tensor._var)
        return tensor._value

    def _evaluator(self) -> Evaluator:
        if self.evaluator is None:
            self.evaluator = _fed(self.recording, self.feeds)
        return self.evaluator

    def shape(self, tensor: Tensor) -> Shape:
        """The shape of a tensor for the shapes of this call's arguments."""
        var = tensor._var
        assert var is not None
        known = self._inference(var)
        return known.shapes[var.id] if var.id in known.shapes else self.value(tensor).shape

    def _inference(self, var: Var) -> Inference:
        found = self._inferred
        if found.followed <= var.owner.id:
            shapes = {n: a.shape for n, a in self.feeds.items()}
            oprs = self.recording.graph.oprs
            try:
                while found.followed <= var.owner.id:
                    follow(oprs[found.followed], found.known, shapes)
                    found.followed += 1
            except EngineError as e:
                entry = next((x for x in self.recording.entries if x.opr.id == found.followed), None)
                raise EngineError(f"{e}; in {shown(entry.place if entry else here())}") from e
        return found.known

    def detached(self, tensor: Tensor) -> bool:
        """Whether a tensor is a constant, so that its sizes are numbers."""
        return tensor._var is None or tensor._var.id in self.recording.static

    def fluid(self, tensor: Tensor) -> bool:
        """Whether the data may decide how large a tensor is."""
        return tensor._var is not None and tensor._var.id in self.recording.fluid

    def chosen(self, key: tuple[Any, ...], choice: bool) -> bool:
        """What was chosen in the recorded call."""
        return self.recording.choices.get(key, choice)

    def measured(self, tensor: Tensor) -> None:
        """The Python code runs again, with the sizes of this call."""

    def named(self, tensor: Tensor, name: str) -> None:
        """Names were recorded in the first call."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        for tensor in self.alive():
            tensor._value = self.value(tensor)
            tensor._session = tensor._var = None


def _called(type: str, params: tuple[Record, ...]) -> str:
    return Opr(type, params).title


def _name(entry: Entry) -> str:
    return entry.opr.title


def _short(value: Array) -> str:
    if value.size <= 8:
        return f"{value.dtype} {value.reshape(-1).tolist()}"
    return f"{value.dtype} {list(value.shape)}"
