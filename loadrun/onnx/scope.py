"""Names of a graph and its subgraphs, and what a model says of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .messages import ValueInfoProto
from .tensors import STRING
from .values import Absent, Items, UnsupportedNodeError, Value, graph_type

__all__ = ["Bound", "DeclaredInput", "Given", "Scope"]

Bound = Value | Items | Absent | None
"""What a name stands for: None for an input that is left out, `Absent` for an optional value without an element."""

Given = Value | Items | None
"""What a node reads: None for what is left out or has no element."""


class Scope:
    """Names and what they stand for; a subgraph's scope lies in the one around it.

    Args:
        outer: the scope around.
        mark: called with what is found outside, for a branch that must take it in.
    """

    def __init__(self, outer: Scope | None = None, mark: Callable[[Value], Value] | None = None) -> None:
        self.names: dict[str, Bound] = {}
        self.missing: set[str] = set()
        self.outer = outer
        self.mark = mark

    def find(self, name: str) -> tuple[bool, Bound]:
        """Whether a name is known, and what it stands for; None for what could not be made."""
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
    """What an input is that is no tensor."""
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
        symbolic: whether the file leaves a size open.
        open_sizes: whether the file leaves another size open than that of the first axis.
        assumed: whether such a size was taken as 1.
    """

    def __init__(self, info: ValueInfoProto, shape: Sequence[int] | None) -> None:
        tensor = info.type.tensor if info.type else None
        hint = f"give its value as constants={{{info.name!r}: ...}}"
        if tensor is not None and tensor.elem == STRING:
            raise UnsupportedNodeError(f"is text, of which MegEngine has none; {hint}")
        if tensor is None:
            raise UnsupportedNodeError(f"is {_container(info)}, of which MegEngine has none; {hint}")
        self.name = info.name
        self.kind = tensor.elem
        graph_type(self.kind)
        dims = tensor.shape.dims if tensor.shape is not None else None
        self.symbolic = dims is None or any(d.value is None or d.value < 1 or d.param for d in dims)
        # What convolutions move over: the batch alone is open in most files.
        self.open_sizes = dims is None or any(d.value is None or d.value < 1 for d in dims[1:])
        self.assumed = shape is None and self.symbolic
        if shape is not None:
            if dims is not None and len(dims) != len(shape):
                raise UnsupportedNodeError(f"has {len(dims)} axes, input_shapes gives it {list(shape)}")
            self.shape = tuple(int(n) for n in shape)
        elif dims is None:
            raise UnsupportedNodeError("has no declared shape; give it as input_shapes")
        else:
            self.shape = tuple(1 if d.value is None or d.value < 0 else d.value for d in dims)
        if len(self.shape) > 7:
            raise UnsupportedNodeError(f"has {len(self.shape)} axes, MegEngine knows 7")
