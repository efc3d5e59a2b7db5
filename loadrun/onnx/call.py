"""One node as its lowering sees it, the facts that follow from the file alone, and the registry of lowerings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import numpy as np

from ..base.registry import Registry
from ..build.emit import cast, fluid, subtensor
from ..graph.dtypes import Array
from ..tensors import Tensor
from ..tensors.access import dtype_of, session_of
from ..tensors.convert import TracedInt
from ..tensors.switches import active
from .lowering import HOMES
from .messages import AttributeProto, GraphProto, TensorProto
from .required import Required
from .tensors import ExternalData
from .values import Bound, Items, Scope, Unheld, UnsupportedNodeError, Value

__all__ = [
    "LOWERINGS",
    "NodeCall",
    "NodeLowering",
    "Result",
    "find",
    "lower",
]

Outcome = Tensor | Bound | Unheld
"""One output of a lowering."""
Result = Outcome | tuple[Outcome, ...]
"""The result of a lowering."""
Lower = Callable[["NodeCall"], Result]
LowerT = TypeVar("LowerT", bound=Lower)
CONTRIB = "com.microsoft"
_KINDS = {
    1: "a float",
    2: "an integer",
    3: "text",
    4: "a tensor",
    5: "a graph",
    6: "floats",
    7: "integers",
    8: "texts",
}
"""Attributes by their type in the file."""


class NodeLowering:
    """The lowering of one operator.

    Attributes:
        run: the function.
        like: which input's type the outputs have, unless they say otherwise.
        foldable: whether constant inputs give constant outputs.
    """

    def __init__(self, run: Lower, like: int, foldable: bool) -> None:
        self.run = run
        self.like = like
        self.foldable = foldable


LOWERINGS: Registry[tuple[str, str], NodeLowering] = Registry(
    "lowering of ONNX",
    {key: f"{__package__}.lowering.{family}" for key, family in HOMES.items()},
)
"""Lowerings by the domain and the name of an operator."""


def lower(*names: str, domain: str = "", like: int = 0, foldable: bool = True) -> Callable[[LowerT], LowerT]:
    """Register the lowering of some operators.

    Args:
        names: the operators.
        domain: their domain.
        like: which input's type the outputs have.
        foldable: False for operators that are random or use more than their inputs' values.
    """

    def register(run: LowerT) -> LowerT:
        for name in names:
            LOWERINGS.add((domain, name), NodeLowering(run, like, foldable))
        return run

    return register


def find(domain: str, op: str) -> NodeLowering | None:
    """Return the lowering of an operator, or None if there is none."""
    return LOWERINGS.get(("" if domain == "ai.onnx" else domain, op))


class NodeReader(Protocol):
    """The importer, as far as lowerings use it.

    Attributes:
        external: the bytes that the model keeps in separate files.
        assumed: whether a size was needed that neither the file nor an argument gives.
        open_sizes: whether the file leaves another size open than that of the first axis.
        required: values for which the graph holds.
    """

    external: ExternalData
    assumed: bool
    open_sizes: bool
    required: Required

    def stored(self, tensor: TensorProto) -> Value:
        """Return a stored tensor as a constant."""

    def inputs_behind(self, tensor: Tensor) -> list[str]:
        """Return the names of the graph inputs that a tensor is computed from."""

    def ask_value(self, tensor: Tensor) -> None:
        """Remember that a value must be known, if it is computed from small inputs alone."""

    def run_branch(self, graph: GraphProto, call: NodeCall, mark: Callable[[Value], Value]) -> list[Value]:
        """Lower a branch that data choose; everything from outside is marked as belonging to it."""

    def note(self, text: str) -> None:
        """Remember something that the caller should know."""

    def expect(self, nodes: int) -> None:
        """Refuse the model if it cannot have so many more nodes."""

    def name_of(self, value: Value) -> str:
        """Return the name of the graph input that a value is, empty for any other value."""

    def run_subgraph(
        self, graph: GraphProto, inputs: Sequence[Value | Items | None], scope: Scope, call: NodeCall
    ) -> list[Value | Items]:
        """Lower a subgraph in the scope of a node and return its outputs."""


class NodeCall:
    """A node: inputs, attributes, and the version of its operators.

    Attributes:
        op: the operator.
        opset: the version of its domain that the file imports.
        inputs: values, sequences, or None for those left out.
        wanted: for every output, whether anything reads it.
        opsets: versions by domain, for its subgraphs.
        call_attributes: attributes of the function around, for its subgraphs.
    """

    def __init__(
        self,
        op: str,
        opset: int,
        inputs: Sequence[Value | Items | None],
        attributes: Mapping[str, AttributeProto],
        wanted: Sequence[bool],
        importer: NodeReader,
        scope: Scope,
    ) -> None:
        self.op = op
        self.opset = opset
        self.inputs = list(inputs)
        self.attributes = attributes
        self.wanted = wanted
        self.importer = importer
        self.scope = scope
        self.opsets: Mapping[str, int] = {}
        self.call_attributes: Mapping[str, AttributeProto] = {}

    # Inputs

    def has(self, i: int) -> bool:
        """Return whether an input is present."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        """Return an input that must be present and a tensor.

        Raises:
            UnsupportedNodeError: it is not.
        """
        value = self.inputs[i] if i < len(self.inputs) else None
        if value is None:
            raise UnsupportedNodeError(f"its input {i} is missing")
        if isinstance(value, list):
            raise UnsupportedNodeError(f"its input {i} is a sequence, expected a tensor")
        return value

    def items(self, i: int) -> Items:
        """Return an input that must be a sequence."""
        value = self.inputs[i] if i < len(self.inputs) else None
        if not isinstance(value, list):
            raise UnsupportedNodeError(f"its input {i} is not a sequence")
        return value

    def t(self, i: int) -> Tensor:
        """Return the tensor of an input."""
        return self.value(i).tensor

    def maybe(self, i: int) -> Tensor | None:
        """Return the tensor of an input that may be left out."""
        return self.t(i) if self.has(i) else None

    def kind(self, i: int) -> int:
        """Return ONNX's element type of an input."""
        return self.value(i).kind

    def constant(self, i: int, what: str) -> Array:
        """Return the value of an input that MegEngine takes as a parameter.

        Args:
            what: what the input is, for the error.

        Raises:
            UnsupportedNodeError: it is not known; the text says how to provide it.
        """
        value = self.value(i)
        constant = value.constant()
        if constant is not None:
            return constant
        constant = value.supposed()
        if constant is None or value.follows_data():
            self.importer.ask_value(value.stored)
            name = self.importer.name_of(value)
            hint = (
                f'constants={{"{name}": ...}}' if name else "constants={...} of the input that it comes from"
            )
            raise UnsupportedNodeError(
                f"its {what} must be known when the model is loaded, but it depends on data; give it as {hint}"
            )
        self.importer.required.add(value, constant)
        return constant

    def open_space(self, x: Tensor) -> bool:
        """Return whether windows over a tensor must fit other sizes: the file leaves them open, or data decide them."""
        return self.importer.open_sizes or fluid(x)

    def integers(self, i: int, what: str) -> list[int]:
        """Return the constant integers of an input."""
        return [int(v) for v in self.constant(i, what).reshape(-1)]

    def sizes(self, i: int, what: str) -> list[int]:
        """Return the integers of an input, symbolic where they come from sizes."""
        value = self.value(i)
        if value.sizes is not None:
            return list(value.sizes.reshape(-1))
        return _followed(value) or self.integers(i, what)

    # Attributes

    def _get(self, name: str, kind: int) -> AttributeProto | None:
        attribute = self.attributes.get(name)
        if attribute is not None and attribute.type not in (0, kind) and not _is_empty(attribute):
            was = _KINDS.get(attribute.type, f"of type {attribute.type}")
            raise UnsupportedNodeError(f"its attribute {name} is {was}, expected {_KINDS[kind]}")
        return attribute

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        attribute = self._get(name, 2)
        return default if attribute is None else attribute.i

    def flag(self, name: str, default: int = 0) -> bool:
        """Return an integer attribute that is a truth value.

        Raises:
            UnsupportedNodeError: it is neither 0 nor 1, which runtimes take one way or the other.
        """
        number = self.number(name, default)
        if number not in (0, 1):
            raise UnsupportedNodeError(f"its {name} is {number}, expected 0 or 1")
        return bool(number)

    def real(self, name: str, default: float = 0.0) -> float:
        """Return a float attribute."""
        attribute = self._get(name, 1)
        return default if attribute is None else attribute.f

    def finite(self, name: str, default: float) -> float:
        """Return a float attribute that must be a number.

        Raises:
            UnsupportedNodeError: it is NaN or infinite.
        """
        value = self.real(name, default)
        if not np.isfinite(value):
            raise UnsupportedNodeError(f"its {name} is {value:g}, expected a finite number")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a string attribute."""
        attribute = self._get(name, 3)
        return default if attribute is None else bytes(attribute.s).decode("utf-8", "replace")

    def choice(self, name: str, *known: str) -> str:
        """Return a string attribute that is one of some; the first of them if it is left out.

        Raises:
            UnsupportedNodeError: it is none of them.
        """
        chosen = self.text(name, known[0])
        if chosen not in known:
            raise UnsupportedNodeError(f"its {name} is {chosen!r}, expected {', '.join(filter(None, known))}")
        return chosen

    def ints(self, name: str) -> list[int] | None:
        """Return a list of integers, or None if it is left out."""
        attribute = self._get(name, 7)
        if attribute is None:
            return None
        return [int(v) for row in attribute.ints for v in row]

    def floats(self, name: str) -> list[float] | None:
        """Return a list of floats, or None if it is left out."""
        attribute = self._get(name, 6)
        if attribute is None:
            return None
        return [float(v) for row in attribute.floats for v in row]

    def texts(self, name: str) -> list[str] | None:
        """Return a list of strings, or None if it is left out."""
        attribute = self._get(name, 8)
        return None if attribute is None else [bytes(s).decode("utf-8", "replace") for s in attribute.strings]

    def tensor(self, name: str) -> TensorProto | None:
        """Return a tensor attribute, or None if it is left out."""
        attribute = self._get(name, 4)
        return None if attribute is None else attribute.t

    def graph(self, name: str) -> GraphProto:
        """Return a subgraph.

        Raises:
            UnsupportedNodeError: there is none.
        """
        attribute = self._get(name, 5)
        if attribute is None or attribute.g is None:
            raise UnsupportedNodeError(f"its subgraph {name!r} is missing")
        return attribute.g

    def axis(self, name: str, default: int, rank: int) -> int:
        """Return an attribute that names an axis, counted from the front."""
        return front(self.number(name, default), rank)

    def run_graph(self, graph: GraphProto, inputs: Sequence[Value | Items | None]) -> list[Value | Items]:
        """Lower a subgraph with these inputs; gives its outputs."""
        return self.importer.run_subgraph(graph, inputs, self.scope, self)


def _followed(value: Value) -> list[int]:
    """Convert integers that were computed from sizes through floats to symbolic sizes; else return None."""
    if value.constant() is not None or value.rank != 1:
        return []
    tensor, known = value.stored, value.supposed()
    session = active()
    if known is None or session is None or session_of(tensor) is not session:
        return []
    if dtype_of(tensor).name not in ("Int32", "Int64"):
        return []
    tensor = cast(tensor, "int32")

    def entry(x: Tensor, k: int) -> Tensor:
        return subtensor(x, [(0, None, None, None, k)])

    return [TracedInt(int(n), (entry, tensor, k), session) for k, n in enumerate(known)]


def _is_empty(attribute: AttributeProto) -> bool:
    """Return whether an attribute is a list without entries, whose type says nothing."""
    rows = (*attribute.ints, *attribute.floats)
    return attribute.type in (6, 7, 8) and not attribute.strings and not any(map(len, rows))


def front(axis: int, rank: int) -> int:
    """Count an axis from the front.

    Raises:
        UnsupportedNodeError: there is no such axis.
    """
    position = axis + rank if axis < 0 else axis
    if not 0 <= position < max(rank, 1):
        raise UnsupportedNodeError(f"axis {axis} does not exist in {rank} axes")
    return position
