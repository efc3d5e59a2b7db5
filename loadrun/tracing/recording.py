"""What one run of a traced function did: its operators, what a later call must do again, and its options."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..engines.program import execute, make_step
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, encode
from ..graph.params import AxisAddRemove, AxisDescMethod
from ..ops.catalog import CATALOG, types
from ..ops.control import Branches
from ..ops.infer import Inference
from ..ops.numeric.parallel import blas_serial
from ..ops.op import Trait
from ..ops.registry import pay_operator, unlimited
from ..tensors.access import attribute_path, detach, recorded_variable, session_of, set_stored, tensor_name
from ..tensors.applying import first_draws
from ..tensors.naming import Place
from ..tensors.value import Session, Tensor

if TYPE_CHECKING:
    from ..engines.recompute_config import DTRConfig, SublinearMemoryConfig
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
        return recorded_variable(tensor).id in self.recording.fluid

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
