"""Names of a graph and its subgraphs, and the declared inputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .messages import ValueInfoProto
from .tensors import STRING
from .values import Absent, Items, UnsupportedNodeError, Value, graph_type

__all__ = ["Bound", "DeclaredInput", "Given", "Scope", "StandIn", "axis_of", "declared_shape"]

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
        """Tell whether a name is known, and return its value, or None if it could not be lowered."""
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


def declared_shape(info: ValueInfoProto) -> tuple[int | None, ...] | None:
    """Return the shape of an input as the file declares it, with None for open sizes; None without one."""
    tensor = info.type.tensor if info.type else None
    if tensor is None or tensor.shape is None:
        return None
    return tuple(None if d.value is None or d.value < 0 else d.value for d in tensor.shape.dims)


def axis_of(info: ValueInfoProto, axis: int) -> tuple[int | None, str]:
    """Return the declared size of an input's axis (None if open) and its name, or a name made up for it."""
    declared = declared_shape(info)
    if declared is None:
        return None, f"{info.name} {axis}"
    tensor = info.type.tensor if info.type else None
    name = tensor.shape.dims[axis].param if tensor is not None and tensor.shape is not None else ""
    return declared[axis], name or f"{info.name} {axis}"


class StandIn:
    """Sizes to assume where none are given: of the first axes, and of the others.

    Args:
        infos: the model's inputs; a first axis that shares its name with a later axis has the size of those.

    Attributes:
        first, other: the sizes; 1 by default.
    """

    def __init__(self, infos: Sequence[ValueInfoProto] = (), first: int = 1, other: int = 1) -> None:
        self.first, self.other = first, other
        self._other: set[str] = set()
        for info in infos:
            tensor = info.type.tensor if info.type else None
            dims = tensor.shape.dims if tensor is not None and tensor.shape is not None else []
            self._other |= {d.param for d in (dims[1:] if len(dims) > 1 else dims) if d.param}
            if len(dims) == 1:
                self._other.add(f"{info.name} 0")

    def of(self, name: str, axis: int) -> int:
        """Return the size of an axis by its name and number."""
        return self.other if axis or name in self._other else self.first


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
                raise UnsupportedNodeError(f"has {len(dims)} axes, but input_shapes has {list(shape)}")
            self.shape = tuple(int(n) for n in shape)
        elif dims is None:
            raise UnsupportedNodeError("has no declared shape; give it as input_shapes")
        else:
            axes = [axis_of(info, i) for i in range(len(dims))]
            self.shape = tuple(stand_in.of(name, i) if n is None else n for i, (n, name) in enumerate(axes))
        if len(self.shape) > 7:
            raise UnsupportedNodeError(f"has {len(self.shape)} axes, MegEngine supports 7")
