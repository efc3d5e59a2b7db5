"""Recording a function: the graph of its operators, and what a later call must do again."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..dtypes import Array, DType, encode
from ..errors import EngineError, TraceError
from ..graph import Graph, Opr, Var
from ..graph import Tensor as Stored
from ..imperative.apply import execute
from ..imperative.naming import prefix
from ..imperative.source import Place, here, shown
from ..imperative.value import Tensor
from ..ops.infer import Inference, follow, infer_dtypes
from ..ops.registry import Shape, implementation
from ..params import Host2DeviceCopy, Record
from .evaluate import Evaluator

__all__ = ["Capture", "Entry", "Recorder", "Recording", "Source", "constant", "name_of", "plain_title"]

_IMMUTABLE = 1024
"""Constants of at most this many elements are ImmutableTensor, whose value inference may follow."""


class Source(NamedTuple):
    """What an operator's input was: a variable made inside, or a value from outside.

    Attributes:
        var: the variable.
        value: the value from outside, None for what was made inside.
        fixed: whether the value must be the same in every call.
    """

    var: Var
    value: Array | None = None
    fixed: bool = False


@dataclass(eq=False)
class Entry:
    """One recorded operator."""

    opr: Opr
    sources: tuple[Source, ...]
    scalar: bool
    place: Place


@dataclass(eq=False)
class Capture:
    """A tensor from outside that the function uses, not as an argument."""

    var: Var
    tensor: Tensor
    value: Array
    fixed: bool


@dataclass(eq=False)
class Recording:
    """What one run of a function did.

    Attributes:
        graph: its operators; arguments and captured tensors that may change are graph inputs.
        entries: the operators again, with what their inputs were.
        args: the variables of the arguments, by name.
        scalars: the arguments without axes.
        names: names that the arguments had themselves.
        captures: the tensors from outside.
        known: shapes and small values of the traced run.
        static: ids of the variables that are constant.
        fluid: ids of the variables whose sizes the data may decide.
        choices: what was decided by sizes, by what it was decided about.
        excluded: where a region was left out of the recording.
        counted: where a size that the data decide was first taken as a number.
        measured: where a size that may differ in a later call was first taken as a number.
    """

    graph: Graph = field(default_factory=Graph)
    entries: list[Entry] = field(default_factory=list)
    args: dict[str, Var] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    known: Inference = field(default_factory=Inference)
    static: set[int] = field(default_factory=set)
    fluid: set[int] = field(default_factory=set)
    choices: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    excluded: Place | None = None
    measured: Place | None = None
    counted: Place | None = None


class Recorder:
    """The session of a function's first call.

    Args:
        mode: "eager" computes every operator at once, "lazy" what is asked for, "never" nothing.
        fixed: whether tensors from outside are constants.
        symbolic_shape: whether sizes are values of the graph.
    """

    def __init__(self, mode: str, *, fixed: bool, symbolic_shape: bool) -> None:
        self.mode = mode
        self.fixed = fixed
        self.symbolic_shape = symbolic_shape
        self.sizes: dict[Any, Tensor] = {}
        self.ended = False
        self.found = Recording()
        self.evaluator = Evaluator()
        self._outside: dict[tuple[int, int], Capture] = {}
        self._live: list[weakref.ref[Tensor]] = []

    # What the tracer does

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """A stand-in for an argument inside the function."""
        value = tensor._stored()
        var = self._input(name, tensor._dtype, value)
        self.found.args[name] = var
        if tensor._scalar:
            self.found.scalars.add(name)
        if tensor._name:
            self.found.names[name] = tensor._name
        return self._made(tensor.__class__, var, tensor._dtype, tensor._scalar, value)

    def _input(self, name: str, dtype: DType, value: Array) -> Var:
        held = Stored(dtype, value.shape, name)
        (var,) = self.found.graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[held])
        var.dtype, var.shape = dtype, value.shape
        follow(var.owner, self.found.known, {})
        self.evaluator.values[var.id] = value
        return var

    def _made(self, kind: type[Tensor], var: Var, dtype: DType, scalar: bool, value: Array | None) -> Tensor:
        tensor = kind._recorded(var, dtype, scalar, self)
        tensor._value = value
        return tensor

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor that stands for a variable of the session."""
        self._live.append(weakref.ref(tensor))

    def alive(self) -> list[Tensor]:
        """The tensors of the session that somebody else still holds."""
        self.sizes.clear()
        found = (r() for r in self._live)
        return [t for t in found if t is not None and t._session is self]

    def source(self, tensor: Tensor) -> Source:
        """What a tensor is to the recording; one from outside becomes a constant or a graph input."""
        if tensor._session is self:
            assert tensor._var is not None
            return Source(tensor._var)
        value = tensor._stored()
        key = (id(tensor), id(value))
        found = self._outside.get(key)
        if found is None:
            fixed = self.fixed or tensor._const
            number = len(self.found.captures)
            if fixed:
                var = constant(self.found.graph, value, tensor._dtype, name_of(tensor))
                self.found.static.add(var.id)
            else:
                var = self._input(f"captured_{number}", tensor._dtype, value)
            infer_dtypes([var.owner])
            follow(var.owner, self.found.known, {})
            self.evaluator.values[var.id] = value
            found = self._outside[key] = Capture(var, tensor, value, fixed)
            self.found.captures.append(found)
        return Source(found.var, found.value, found.fixed)

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
        """Record an operator and, in the eager mode, compute it."""
        found = self.found
        place = here()
        sources = tuple(self.source(x) for x in inputs)
        outs = found.graph.add(
            type, *params, inputs=[s.var for s in sources], n_outputs=n, output_dtype=output_dtype
        )
        opr = outs[0].owner
        opr.name = prefix() + plain_title(opr)
        try:
            infer_dtypes([opr])
            follow(opr, found.known, {})
        except EngineError as e:
            found.graph.oprs.pop()
            raise EngineError(f"{e}; in {shown(place)}") from e
        followed = all(v.id in found.known.shapes for v in outs)
        if not scalar and not (followed and found.fluid.isdisjoint(s.var.id for s in sources)):
            found.fluid.update(v.id for v in outs)
        values: Sequence[Array | None] = [None] * n
        if self.mode == "eager":
            try:
                computed, _ = execute(type, params, inputs, [x._stored() for x in inputs], n, output_dtype)
            except EngineError as e:
                found.graph.oprs.pop()
                raise EngineError(f"{e}; in {shown(place)}") from e
            for var, value in zip(outs, computed, strict=True):
                found.known.shapes[var.id] = value.shape
            values = computed
        if all(s.var.id in found.static for s in sources) and not implementation(type).random:
            found.static.update(v.id for v in outs)
        found.entries.append(Entry(opr, sources, scalar, place))
        made = []
        for var, result in zip(outs, values, strict=True):
            assert var.dtype is not None
            made.append(self._made(Tensor, var, var.dtype, scalar, result))
        return made

    def value(self, tensor: Tensor) -> Array:
        """The value of a tensor, which the code inside reads."""
        assert tensor._var is not None
        if self.mode == "never":
            raise TraceError(
                f"a value is read in {shown(here())}, but record_only=True computes nothing; trace with "
                "record_only=False, or leave the decision that needs the value out of the function"
            )
        if tensor._value is None:
            tensor._value = self.evaluator.value(tensor._var)
        return tensor._value

    def shape(self, tensor: Tensor) -> Shape:
        """The shape of a tensor; computes it where it depends on data."""
        assert tensor._var is not None
        shape = self.found.known.shapes.get(tensor._var.id)
        if shape is None:
            shape = self.value(tensor).shape
            self.found.known.shapes[tensor._var.id] = shape
        return shape

    def detached(self, tensor: Tensor) -> bool:
        """Whether a tensor is a constant, so that its sizes are numbers."""
        return tensor._var is None or tensor._var.id in self.found.static

    def fluid(self, tensor: Tensor) -> bool:
        """Whether the data may decide how large a tensor is."""
        return tensor._var is not None and tensor._var.id in self.found.fluid

    def chosen(self, key: tuple[Any, ...], choice: bool) -> bool:
        """The choice, which later calls are to make as well."""
        return self.found.choices.setdefault(key, choice)

    def measured(self, tensor: Tensor) -> None:
        """Code inside the function took a size as a number."""
        if self.found.measured is None:
            self.found.measured = here()
        if self.found.counted is None and self.fluid(tensor):
            self.found.counted = here()

    def named(self, tensor: Tensor, name: str) -> None:
        """Code inside the function named a tensor."""
        if tensor._var is not None and tensor._var.owner.type != "Host2DeviceCopy":
            tensor._var.name = name or None

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        self.found.excluded = here()
        for tensor in self.alive():
            tensor._value = self.value(tensor)
            tensor._session = tensor._var = None


def plain_title(opr: Opr) -> str:
    """The name of an operator without the version of its type: ``ADD``, ``MatrixMul``, ``Convolution``."""
    return re.sub(r"(V\d|MGB)$", "", opr.title)


def name_of(tensor: Tensor) -> str | None:
    """The name of a tensor from outside: the path of a module's parameter, or the name that it was given."""
    return getattr(tensor, "_path", None) or tensor._name or None


def constant(graph: Graph, value: Array, dtype: DType, name: str | None) -> Var:
    """Append a constant; small ones as ImmutableTensor, as MegEngine does."""
    small = value.size <= _IMMUTABLE and name is None
    held = Stored(dtype, value.shape, name, encode(value, dtype))
    type = "ImmutableTensor" if small else "SharedDeviceTensor"
    (var,) = graph.add(type, names=[name], tensors=[held])
    var.dtype, var.shape = dtype, value.shape
    return var
