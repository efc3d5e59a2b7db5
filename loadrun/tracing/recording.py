"""What one run of a traced function did: its operators, what a later call must do again, and its options."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..base.errors import EngineError, TraceError, TraceWarning, UsageError
from ..engines.program import execute, make_step
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, encode, plain
from ..graph.params import AxisAddRemove, AxisDescMethod, Host2DeviceCopy, Record
from ..ops.catalog import CATALOG, types
from ..ops.control import Branches
from ..ops.infer import Inference, follow, infer_dtypes
from ..ops.numeric.parallel import blas_serial
from ..ops.op import Trait
from ..ops.registry import Shape, implementation, pay_operator, pay_recorded, unlimited
from ..tensors import access
from ..tensors.access import (
    attribute_path,
    detach,
    recorded_variable,
    session_of,
    set_stored,
    stored,
    tensor_name,
    variable_of,
)
from ..tensors.applying import execute as compute_once, first_draws
from ..tensors.naming import Place, here, prefix, shown, title
from ..tensors.value import Session, Tensor

if TYPE_CHECKING:
    from ..engines.recompute import DTRConfig, SublinearMemoryConfig
    from .config import GraphOptimizationConfig


_IMMUTABLE = 1024
"""Constants of at most this many elements are ImmutableTensor, whose value inference may follow."""


class RecordedInput(NamedTuple):
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
class RecordedOpr:
    """One recorded operator."""

    opr: Opr
    sources: tuple[RecordedInput, ...]
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
        excluded: where a region was left out of the recording.
        counted: where a size that the data decide was first taken as a number.
        measured: where a size that may differ in a later call was first taken as a number.
    """

    graph: Graph = field(default_factory=Graph)
    entries: list[RecordedOpr] = field(default_factory=list)
    args: dict[str, Var] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    known: Inference = field(default_factory=Inference)
    static: set[int] = field(default_factory=set)
    fluid: set[int] = field(default_factory=set)
    excluded: Place | None = None
    measured: Place | None = None
    counted: Place | None = None


def plain_title(opr: Opr) -> str:
    """Return the name of an operator without the version of its type: ``ADD``, ``MatrixMul``, ``AddAxis``."""
    if opr.type == "AxisAddRemove":
        added = opr.get(AxisAddRemove).desc[0].method == AxisDescMethod.ADD_1
        return "AddAxis" if added else "RemoveAxis"
    return CATALOG[opr.type].title or re.sub(r"(V\d|MGB)$", "", opr.title)


def name_of(tensor: Tensor) -> str | None:
    """Return the name of a tensor from outside: the path of a module's parameter, or the name that it was given."""
    return attribute_path(tensor) or tensor_name(tensor) or None


def constant(graph: Graph, value: Array, dtype: DType, name: str | None) -> Var:
    """Append a constant; small ones as ImmutableTensor, as MegEngine does."""
    small = value.size <= _IMMUTABLE and name is None
    tensor = StoredTensor(dtype, value.shape, name, encode(value, dtype))
    type = "ImmutableTensor" if small else "SharedDeviceTensor"
    (var,) = graph.add(type, names=[name], tensors=[tensor])
    var.dtype, var.shape = dtype, value.shape
    return var


class RunningTrace(Session):
    """A session over a recording that grows, or that is compared with.

    Args:
        recording: the recording.
        symbolic_shape: whether sizes are values of the graph.
    """

    def __init__(self, recording: Recording, *, symbolic_shape: bool) -> None:
        self.recording = recording
        self.symbolic_shape = symbolic_shape
        self.sizes: dict[Any, Tensor] = {}
        self.ended = False
        self._live: list[weakref.ref[Tensor]] = []

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor that stands for a variable of the session."""
        self._live.append(weakref.ref(tensor))

    def alive(self) -> list[Tensor]:
        """Return the tensors of the session that somebody else still holds."""
        self.sizes.clear()
        tensors = (r() for r in self._live)
        return [t for t in tensors if t is not None and session_of(t) is self]

    def detached(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a constant, so that its sizes are numbers."""
        return recorded_variable(tensor).id in self.recording.static

    def fluid(self, tensor: Tensor) -> bool:
        """Return whether the data may decide how large a tensor is."""
        var = variable_of(tensor)
        return var is not None and var.id in self.recording.fluid

    def varies(self, tensor: Tensor, axis: int) -> bool:
        """Return whether the size of a tensor along an axis may differ in another call."""
        return True

    def froze(self) -> None:
        """Note that code in C took a symbolic size as a number."""

    def became(self, tensor: Tensor, kind: str) -> None:
        """Note that code inside the function made a Python number of a value; where it runs again, that is checked."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        for tensor in self.alive():
            set_stored(tensor, self.value(tensor))
            detach(tensor)

    def release(self) -> None:
        """End: part all tensors from the session; those without a value cannot be read any more."""
        self.ended = True
        for tensor in self.alive():
            detach(tensor)


_NO_BRANCHES = Branches()
_RANDOM = types(Trait.RANDOM)


class Evaluator:
    """Values of variables by id; every operator is executed at most once.

    Attributes:
        values: what is known; graph inputs must be put there.
    """

    def __init__(self) -> None:
        self.values: dict[int, Array] = {}

    def value(self, var: Var) -> Array:
        """Return the value of a variable; computes what it depends on."""
        value = self.values.get(var.id)
        if value is not None:
            return value
        steps = [make_step(o, (), _NO_BRANCHES) for o in self._missing(var)]
        # Random numbers are a module of their own, which takes time to import.
        rng = first_draws() if any(s.call.opr.type in _RANDOM for s in steps) else None
        with np.errstate(all="ignore"), blas_serial():
            if unlimited():
                execute(steps, self.values, rng)
            for step in () if unlimited() else steps:
                opr, arrays = step.call.opr, [self.values[v] for v in step.needs]
                pay_operator(opr, step.call.inputs, step.call.outputs, arrays)
                execute([step], self.values, rng)
        return self.values[var.id]

    def _missing(self, var: Var) -> list[Opr]:
        stack, seen = [var.owner], dict[int, Opr]()
        while stack:
            opr = stack.pop()
            if opr.id in seen:
                continue
            seen[opr.id] = opr
            stack.extend(v.owner for v in opr.inputs if v.id not in self.values)
        return [seen[i] for i in sorted(seen)]


Mode = Literal["eager", "lazy", "never"]
"""When a recording computes: every operator at once, what is requested, nothing."""


@dataclass(frozen=True)
class TraceOptions:
    """What `trace` was told; its docstring says what each option means.

    Attributes:
        exact: operators are computed as their definitions say, see `loadrun.graph.Graph`.
        live: tensors from outside are asked for their value in every call without Python code, and by every dump.

    Raises:
        ValueError: there is no such `opt_level`.

    >>> TraceOptions(symbolic=True).mode, TraceOptions(record_only=True).fixed
    ('lazy', True)
    """

    symbolic: bool = False
    capture_as_const: bool = False
    record_only: bool = False
    sublinear_memory_config: SublinearMemoryConfig | None = None
    dtr_config: DTRConfig | None = None
    profiling: bool = False
    opt_level: int = 2
    graph_opt_config: GraphOptimizationConfig | None = None
    symbolic_shape: bool = True
    without_host: bool = False
    imperative: bool = False
    live: bool = False
    exact: bool = False

    def __post_init__(self) -> None:
        if self.opt_level not in (0, 1, 2, 3):
            raise UsageError(f"opt_level must be 0, 1, 2 or 3, found {self.opt_level!r}")

    @property
    def fixed(self) -> bool:
        """Whether tensors from outside are constants of the graph."""
        return self.capture_as_const or self.record_only

    @property
    def mode(self) -> Mode:
        """When the first call computes."""
        return "never" if self.record_only else "lazy" if self.symbolic else "eager"


def loses_float64(oprs: Iterable[Opr]) -> bool:
    """Return whether some of the operators round float64 numbers to float32."""
    wide, narrow = plain("Float64"), plain("Float32")
    return any(
        o.type == "TypeCvtV2" and o.inputs[0].dtype == wide and o.outputs[0].dtype == narrow for o in oprs
    )


class TraceRecorder(RunningTrace):
    """The session of a function's first call.

    Args:
        mode: when operators are computed.
        fixed: whether tensors from outside are constants.
        symbolic_shape: whether sizes are values of the graph.
        alone: whether the graph is to run without the Python code, so that what is frozen deserves a warning.
        places: whether errors name the running line of Python; that of a program that reads a file tells nothing.
    """

    def __init__(
        self, mode: Mode, *, fixed: bool, symbolic_shape: bool, alone: bool = False, places: bool = True
    ) -> None:
        super().__init__(Recording(), symbolic_shape=symbolic_shape)
        self.mode = mode
        self.fixed = fixed
        self.places = places
        self.evaluator = Evaluator()
        self._alone = alone
        self._frozen: set[tuple[Place, str]] = set()
        self._outside: dict[tuple[int, int], Capture] = {}
        self._numbers: set[tuple[DType, Any]] = set()

    # What the tracer does

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stand-in for an argument inside the function."""
        value = stored(tensor)
        var = self._input(name, access.dtype_of(tensor), value)
        self.recording.args[name] = var
        if access.is_scalar(tensor):
            self.recording.scalars.add(name)
        if access.tensor_name(tensor):
            self.recording.names[name] = access.tensor_name(tensor)
        return self._new_tensor(
            tensor.__class__, var, access.dtype_of(tensor), access.is_scalar(tensor), value
        )

    def _input(self, name: str, dtype: DType, value: Array) -> Var:
        stored = StoredTensor(dtype, value.shape, name)
        (var,) = self.recording.graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[stored]
        )
        var.dtype, var.shape = dtype, value.shape
        follow(var.owner, self.recording.known, {})
        self.evaluator.values[var.id] = value
        return var

    def _new_tensor(
        self, kind: type[Tensor], var: Var, dtype: DType, scalar: bool, value: Array | None
    ) -> Tensor:
        tensor = access.from_variable(var, dtype, scalar, self, kind=kind)
        access.set_stored(tensor, value)
        return tensor

    def source(self, tensor: Tensor) -> RecordedInput:
        """Return what a tensor is to the recording; one from outside becomes a constant or a graph input."""
        if access.session_of(tensor) is self:
            return RecordedInput(access.recorded_variable(tensor))
        value = stored(tensor)
        key = (id(tensor), id(value))
        capture = self._outside.get(key)
        if capture is None:
            fixed = self.fixed or access.is_constant(tensor)
            number = len(self.recording.captures)
            if fixed:
                var = constant(self.recording.graph, value, access.dtype_of(tensor), name_of(tensor))
                self._name_constant(var, tensor)
                self.recording.static.add(var.id)
            else:
                var = self._input(f"captured_{number}", access.dtype_of(tensor), value)
            infer_dtypes([var.owner])
            follow(var.owner, self.recording.known, {})
            self.evaluator.values[var.id] = value
            capture = self._outside[key] = Capture(var, tensor, value, fixed)
            self.recording.captures.append(capture)
        return RecordedInput(capture.var, capture.value, capture.fixed)

    def _name_constant(self, var: Var, tensor: Tensor) -> None:
        """Name a number after what uses it first: MegEngine keeps one of each."""
        if var.name is None and stored(tensor).size == 1:
            key = (access.dtype_of(tensor), stored(tensor).item())
            name = title(tensor)
            if name is not None and key not in self._numbers:
                var.owner.name = prefix() + name
            self._numbers.add(key)

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
        recording = self.recording
        place = here()
        pay_recorded()
        sources = tuple(self.source(x) for x in inputs)
        outs = recording.graph.add(
            type, *params, inputs=[s.var for s in sources], n_outputs=n, output_dtype=output_dtype
        )
        opr = outs[0].owner
        name = title()
        opr.name = "" if name == "" else prefix() + (name or plain_title(opr))
        try:
            infer_dtypes([opr])
            follow(opr, recording.known, {})
        except EngineError as e:
            recording.graph.oprs.pop()
            raise EngineError(f"{e}; in {shown(place)}" if self.places else str(e)) from e
        followed = all(v.id in recording.known.shapes for v in outs)
        if not scalar and not (followed and recording.fluid.isdisjoint(s.var.id for s in sources)):
            recording.fluid.update(v.id for v in outs)
        values: Sequence[Array | None] = [None] * n
        if self.mode == "eager":
            try:
                arrays = [stored(x) for x in inputs]
                computed, _ = compute_once(type, params, inputs, arrays, n, output_dtype, first_draws)
            except EngineError as e:
                recording.graph.oprs.pop()
                raise EngineError(f"{e}; in {shown(place)}" if self.places else str(e)) from e
            for var, value in zip(outs, computed, strict=True):
                recording.known.shapes[var.id] = value.shape
            values = computed
        if all(s.var.id in recording.static for s in sources) and not implementation(type).random:
            recording.static.update(v.id for v in outs)
        recording.entries.append(RecordedOpr(opr, sources, scalar, place))
        outputs = []
        for var, result in zip(outs, values, strict=True):
            assert var.dtype is not None
            outputs.append(self._new_tensor(Tensor, var, var.dtype, scalar, result))
        return outputs

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a tensor, which the code inside reads."""
        if self.mode == "never":
            raise TraceError(
                f"a value is read in {shown(here())}, but record_only=True computes nothing; trace with "
                "record_only=False, or leave the decision that needs the value out of the function"
            )
        if access.value_of(tensor) is None:
            access.set_stored(tensor, self.evaluator.value(access.recorded_variable(tensor)))
        return stored(tensor)

    def became(self, tensor: Tensor, kind: str) -> None:
        """Warn, once for each line, that code inside the function made a Python number of a value.

        Where later calls run the Python code again, they notice what changed.
        """
        if not self._alone or access.recorded_variable(tensor).id in self.recording.static:
            return
        place = here()
        if (place, kind) in self._frozen:
            return
        self._frozen.add((place, kind))
        said = (
            f"a traced value becomes a Python {kind} in {shown(place)}; what depends on it stays as in this call, "
            "whatever later inputs are: a branch that is not taken now is not in the graph. Compute with the tensor "
            "(where, maximum, cond_take), or decide outside the traced function"
        )
        warnings.warn_explicit(said, TraceWarning, *place)

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor; computes it where it depends on data."""
        shapes, var = self.recording.known.shapes, access.recorded_variable(tensor)
        if var.id not in shapes:
            shapes[var.id] = self.value(tensor).shape
        return shapes[var.id]

    def measured(self, tensor: Tensor) -> None:
        """Note that code inside the function took a size as a number."""
        if self.recording.measured is None:
            self.recording.measured = here()
        if self.recording.counted is None and self.fluid(tensor):
            self.recording.counted = here()

    def named(self, tensor: Tensor, name: str) -> None:
        """Note that code inside the function named a tensor."""
        var = access.recorded_variable(tensor)
        if var.owner.type != "Host2DeviceCopy":
            var.name = name or None

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        self.recording.excluded = here()
        super().leave()
