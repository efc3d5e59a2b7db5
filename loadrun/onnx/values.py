"""The values of names of an ONNX graph while it becomes a graph of MegEngine's operators.

A `Value` is a tensor of the growing graph, a constant in ONNX's own type, or a few sizes that remember their
origin. The last two stay what they are as long as possible: so int64 arithmetic on shapes is exact, and an axis, a pad
or a target shape is known where MegEngine's operators want a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..base.errors import EngineError
from ..build.emit import broadcast, folded
from ..graph.dtypes import Array, DType, plain
from ..ops.registry import affordable, pay
from ..tensors import Tensor, access
from ..tensors.access import (
    dtype_of,
    from_stored,
    is_scalar,
    recorded_variable,
    session_of,
    set_name,
    variable_of,
)
from ..tensors.apply import type_cvt
from ..tensors.convert import TracedInt, shape_tensor
from ..tensors.switches import active
from ..tracing.recorder import TraceRecorder
from .messages import ValueInfoProto
from .tensors import E8M0, HELD, SMALL_FLOATS, STRING, kind_name
from .types import StandIn, axis_of, declared_shape

__all__ = [
    "ABSENT",
    "BF16",
    "BOOL",
    "DOUBLE",
    "FLOAT",
    "HALF",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "Absent",
    "Bound",
    "DeclaredInput",
    "Given",
    "InnerNodeError",
    "Items",
    "Scope",
    "Unheld",
    "UnsupportedNodeError",
    "Value",
    "graph_type",
    "kind_of",
    "objects",
]

FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, BOOL, HALF, DOUBLE = 1, 2, 3, 4, 5, 6, 7, 9, 10, 11
UINT32, UINT64, BF16 = 12, 13, 16
_GRAPH = {
    FLOAT: "Float32",
    UINT8: "Uint8",
    INT8: "Int8",
    UINT16: "Uint16",
    INT16: "Int16",
    INT32: "Int32",
    INT64: "Int64",
    BOOL: "Bool",
    HALF: "Float16",
    DOUBLE: "Float64",
    UINT32: "Uint32",
    UINT64: "Uint64",
    BF16: "BFloat16",
    21: "Uint8",
    22: "Int8",
    25: "Uint8",
    26: "Int8",
    **dict.fromkeys((*SMALL_FLOATS, E8M0), "Float32"),
}
_COMPUTED = {"BFloat16": "Float32", "Uint16": "Int32"}
_KINDS = {
    "Float32": FLOAT,
    "Uint8": UINT8,
    "Int8": INT8,
    "Uint16": UINT16,
    "Int16": INT16,
    "Int32": INT32,
    "Bool": BOOL,
    "Float16": HALF,
    "BFloat16": BF16,
    "Int64": INT64,
    "Float64": DOUBLE,
    "Uint32": UINT32,
    "Uint64": UINT64,
}
_EXACT = frozenset((INT32, INT64, BOOL))
_FEW = 4096


class UnsupportedNodeError(EngineError):
    """A node cannot be expressed; the text says why."""


class InnerNodeError(UnsupportedNodeError):
    """A node cannot be expressed because a node of its subgraph cannot."""


class Absent:
    """The value of an optional without an element."""


ABSENT = Absent()


class Unheld:
    """A node's output that no tensor of MegEngine's can hold; its other outputs may be read.

    Attributes:
        reason: why, in words that follow the output's name.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason


def objects(values: Iterable[Any]) -> Array:
    """Build a vector of objects as they are: numpy would turn sizes passed as a whole into plain numbers."""
    listed = list(values)
    vector = np.empty(len(listed), object)
    for i, v in enumerate(listed):
        vector[i] = v
    return vector


def graph_type(kind: int) -> DType:
    """Return the graph's type for ONNX's.

    Raises:
        UnsupportedNodeError: there is none.
    """
    name = _GRAPH.get(kind)
    if name is None:
        raise UnsupportedNodeError(f"{kind_name(kind)} is not a type that MegEngine has")
    return plain(name)


def kind_of(tensor: Tensor) -> int:
    """Return ONNX's type for a tensor of the graph."""
    return _KINDS[dtype_of(tensor).name]


def checked(array: Array, kind: int) -> Array:
    """Convert an array to the type that the graph has for it."""
    want = graph_type(kind).np
    with np.errstate(all="ignore"):
        return array.astype(want, copy=False)


class Value:
    """A tensor of the graph, a constant, or sizes.

    Args:
        kind: ONNX's element type.
        tensor: the tensor.
        array: the constant.
        sizes: an object array of ints and `TracedInt`.
        name: the name of a stored constant.
    """

    __slots__ = ("array", "kind", "lowered", "name", "sizes")

    def __init__(
        self,
        kind: int,
        tensor: Tensor | None = None,
        *,
        array: Array | None = None,
        sizes: Array | None = None,
        name: str = "",
    ) -> None:
        self.kind = kind
        self.array = array
        self.name = name
        self.sizes = sizes
        self.lowered = tensor

    @classmethod
    def of_sizes(cls, kind: int, sizes: Array | int) -> Value:
        """Build a value of sizes, a constant if none of them is symbolic."""
        array = sizes if isinstance(sizes, np.ndarray) else objects([sizes]).reshape(())
        if not any(isinstance(v, TracedInt) for v in array.flat):
            try:
                return cls(kind, array=array.astype(HELD[kind]))
            except OverflowError:
                raise UnsupportedNodeError("integers beyond 64 bits") from None
        return cls(kind, sizes=array)

    @property
    def stored(self) -> Tensor:
        """The tensor in the type that the graph has for this kind."""
        if self.lowered is None:
            if self.sizes is not None:
                flat = shape_tensor(list(self.sizes.reshape(-1)))
                tensor = flat.reshape(tuple(self.sizes.shape)) if self.sizes.ndim != 1 else flat
                self.lowered = type_cvt(tensor, graph_type(self.kind))
            else:
                self.lowered = self._constant_tensor()
        return self.lowered

    def _constant_tensor(self) -> Tensor:
        assert self.array is not None
        if any(n > 1 and not step for n, step in zip(self.array.shape, self.array.strides, strict=True)):
            # Broadcast numbers take no memory until they are stored.
            nbytes = self.array.size * graph_type(self.kind).np.itemsize
            if any(self.array.strides) or active() is None:
                pay(nbytes)
            elif not affordable(nbytes):
                one = Value(self.kind, array=self.array[(0,) * self.array.ndim])
                return broadcast(one.stored, self.array.shape)
        array = np.ascontiguousarray(checked(self.array, self.kind))
        scalar = self.array.ndim == 0
        tensor = from_stored(array.reshape(1) if scalar else array, graph_type(self.kind), scalar, const=True)
        if self.array.size > 1 and self.kind not in (INT64, BOOL):
            set_name(tensor, self.name)
        return tensor

    @property
    def tensor(self) -> Tensor:
        """The tensor in a type that is computed with: bfloat16 as float32, uint16 as int32."""
        stored = self.stored
        computed = _COMPUTED.get(dtype_of(stored).name)
        return stored if computed is None else folded(lambda v: type_cvt(v, plain(computed)), stored)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, symbolic where they are."""
        if self.array is not None:
            return self.array.shape
        return self.sizes.shape if self.sizes is not None else self.stored.shape

    @property
    def numbers(self) -> tuple[int, ...]:
        """The sizes as plain numbers."""
        return tuple(int(n) for n in self.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def constant(self) -> Array | None:
        """Return the value, or None if it is not the same in every run."""
        if self.array is None and self.sizes is None and self.lowered is not None:
            tensor = self.lowered
            if session_of(tensor) is None:
                array = access.stored(tensor)
                self.array = array.reshape(()) if is_scalar(tensor) else array
        return self.array

    def exact(self) -> Array | None:
        """Return a few integers as Python has them; None for anything else."""
        if self.sizes is not None:
            return self.sizes
        if self.kind not in _EXACT:
            return None
        constant = self.constant()
        if constant is None or constant.size > _FEW:
            return None
        return constant.astype(object)

    def supposed(self) -> Array | None:
        """Return the value for the sizes that the graph was built with, or None if data decide it."""
        constant = self.constant()
        if constant is not None:
            return constant
        if self.sizes is not None:
            return np.array([int(v) for v in self.sizes.flat], np.int64).reshape(self.sizes.shape)
        tensor = self.stored
        session = active()
        if isinstance(session, TraceRecorder) and variable_of(tensor) is not None:
            known = session.recording.known.values.get(recorded_variable(tensor).id)
            if known is not None:
                return known.reshape(()) if is_scalar(tensor) else known
        return None

    def follows_data(self) -> bool:
        """Return whether the value is computed from sizes that data may decide, as those of NonZero's result."""
        begin, session = variable_of(self.stored), session_of(self.stored)
        if begin is None or not isinstance(session, TraceRecorder):
            return False
        recording = session.recording
        todo, seen = [begin], {begin.id}
        while todo:
            var = todo.pop()
            if var.id in recording.fluid:
                return True
            new = [v for v in var.owner.inputs if v.id not in seen and v.id not in recording.firm]
            seen.update(v.id for v in new)
            todo += new
        recording.firm |= seen
        return False


Items = list[Value]
"""A sequence of ONNX; resolved while the graph is made."""


Bound = Value | Items | Absent | None
"""The value of a name: None for an input that is left out, `Absent` for an optional value without an element."""

Given = Value | Items | None
"""An input of a node: None if it is left out or has no element."""


class Scope:
    """Names and their values; a subgraph's scope is nested in the outer one.

    Args:
        outer: the scope around.
        mark: called with values from the outer scope, for a branch that must capture them.
    """

    def __init__(self, outer: Scope | None = None, mark: Callable[[Value], Value] | None = None) -> None:
        self.names: dict[str, Bound] = {}
        self.missing: set[str] = set()
        self.outer = outer
        self.mark = mark

    def find(self, name: str) -> tuple[bool, Bound]:
        """Return whether a name is known, and return its value, or None if it could not be lowered."""
        if name in self.names:
            return True, self.names[name]
        if name in self.missing:
            return True, None
        if self.outer is None:
            return False, None
        known, value = self.outer.find(name)
        if self.mark is not None and isinstance(value, Value) and value.constant() is None:
            value = self.mark(value)
        return known, value


def _container(info: ValueInfoProto) -> str:
    """Describe an input that is no tensor."""
    kind = info.type
    if kind is not None and kind.sequence is not None:
        return "a sequence (a list)"
    if kind is not None and kind.optional is not None:
        return "an optional value (None, or what it holds)"
    return "a map" if kind is not None and kind.map is not None else "no tensor"


class DeclaredInput:
    """An input of the model as it is fed.

    Attributes:
        name: its name.
        kind: ONNX's element type.
        shape: the shape that the graph is made with.
        declared: the shape as the file has it, None for a size that it leaves open, and where it has none.
        open_sizes: whether the file leaves another size open than that of the first axis.
        assumed: whether such a size was taken from `StandIn`.
    """

    def __init__(self, info: ValueInfoProto, shape: Sequence[int] | None, stand_in: StandIn) -> None:
        tensor = info.type.tensor if info.type else None
        hint = f"give its value as constants={{{info.name!r}: ...}}"
        if tensor is not None and tensor.elem == STRING:
            raise UnsupportedNodeError(f"is text, which MegEngine does not support; {hint}")
        if tensor is None:
            raise UnsupportedNodeError(f"is {_container(info)}, which MegEngine does not support; {hint}")
        self.name = info.name
        self.kind = tensor.elem
        graph_type(self.kind)
        dims = tensor.shape.dims if tensor.shape is not None else None
        self.declared = declared_shape(info)
        # Convolutions slide over the other axes: in most files the batch alone is open.
        self.open_sizes = self.declared is None or any(not n for n in self.declared[1:])
        self.assumed = shape is None and (self.declared is None or None in self.declared)
        if shape is not None:
            if dims is not None and len(dims) != len(shape):
                raise UnsupportedNodeError(
                    f"has {len(dims)} axes, but its data or input_shapes have {list(shape)}"
                )
            self.shape = tuple(int(n) for n in shape)
        elif dims is None:
            self.shape = (stand_in.first,)
        else:
            axes = [axis_of(info, i) for i in range(len(dims))]
            self.shape = tuple(stand_in.of(name, i) if n is None else n for i, (n, name) in enumerate(axes))
        if len(self.shape) > 7:
            raise UnsupportedNodeError(f"has {len(self.shape)} axes, MegEngine supports 7")
