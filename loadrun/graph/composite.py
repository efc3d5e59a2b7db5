"""Composite operators: one operator of another framework, computed by one function in numpy's names.

A graph that was read from an ONNX file has one of them for each node. A dump cannot hold them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

from .dtypes import Array, DType
from .params import Record

if TYPE_CHECKING:
    from .graph import Graph

Known = Annotated[Array, "decides shapes"]
"""An input whose values decide the shapes of the results (axes, sizes, pads), as definitions annotate parameters."""


Flag = Annotated[int, "0 or 1"]
"""An attribute that is a truth value, 0 or 1. So the parameters of definitions are annotated."""


class TensorAttribute(NamedTuple):
    """The value of an attribute that is a tensor, and its type."""

    value: Array
    dtype: DType


class GraphAttribute:
    """The value of an attribute that is a graph: a branch, or the body of a loop.

    Attributes:
        graph: the graph.
        inputs: the names of its own inputs, in order.
        captured: the names of further inputs, which are values from around.
    """

    graph: Graph
    inputs: list[str]
    captured: list[str]

    def over(self, graph: Graph, names: Mapping[str, str]) -> GraphAttribute:
        """Return the same with another graph of the same operators.

        Args:
            graph: the graph.
            names: what its inputs are called, by their names here.
        """
        raise NotImplementedError


class ObjectType(DType):
    """The type of a sequence, map or optional value, which says what it holds; equal to all others of them.

    Args:
        kind: "sequence", "map" or "optional".
        element: the type of the elements, None for a map, or where it is not known.

    >>> held = ObjectType("sequence", DType("Float32"))
    >>> held == DType("Object"), str(held.element)
    (True, 'Float32')
    """

    kind: str
    element: DType | None

    def __init__(self, kind: str, element: DType | None = None) -> None:
        super().__init__("Object")
        # As of all types, nothing of it changes.
        self.__dict__.update(kind=kind, element=element)

    def __reduce__(self) -> Any:  # noqa: ANN401 - as object has it
        return ObjectType, (self.kind, self.element)


class NodeTypes(NamedTuple):
    """What a definition may ask of its node besides arrays and attributes.

    Attributes:
        inputs: the types of the inputs, None for those left out.
        outputs: the types of the outputs; empty in a rule of types.
        opset: the version of the node's domain.
        wanted: for every output that the node names, whether it has a name.
    """

    inputs: tuple[DType | None, ...]
    outputs: tuple[DType, ...]
    opset: int
    wanted: tuple[bool, ...]


OutRule = int | str | Callable[[NodeTypes, Mapping[str, Any]], "DType"]
"""The type of an output: the number of the input that it is like, a name, or a function of types and attributes."""
OutRules = Sequence[OutRule] | Callable[[NodeTypes, Mapping[str, Any]], Sequence["DType"]]
"""The types of the outputs, the last one for all that follow; or a function that gives them all."""


class Native(NamedTuple):
    """MegEngine's operator that computes a composite one at given shapes.

    Attributes:
        type, params: the operator.
        shapes: by input, the shape in which the operator reads it; only of inputs that are the same in every run.
    """

    type: str
    params: tuple[Record, ...]
    shapes: Mapping[int, tuple[int, ...]] = {}


CostRule = Callable[["Composite", Sequence["tuple[int, ...]"], "tuple[int, ...]"], int]
"""Gives the operations of a composite operator from the shapes of its inputs and of its first output."""
NativeRule = Callable[["Composite", Sequence["tuple[int, ...]"]], "Native | None"]


@dataclass(eq=False)
class Definition:
    """What an operator computes, and what is known of it before it runs.

    Args:
        domain, name: the operator's, "" for ONNX's own domain.
        function: takes the inputs as arrays by position (None for one that is left out), attributes as keywords; a
            keyword ``types`` gets the `NodeTypes`, ``stream`` the random numbers, ``out`` of a pointwise one memory for
            the result, which may be that of the first input. It returns an array, or a tuple of them.
        since: the first version of the domain that it holds for.
        out: see `OutRules`.
        pointwise: whether an element depends on the elements in its place alone, inputs broadcast as numpy does. With
            `shape` too, that holds where each input has the shape of the result or one element.
        shape: takes what `function` takes, or by keywords alone what it names of that, and returns the shape of the
            result, or a list of them. Arrays hold zeros, but for inputs that are annotated `Known`. Without it,
            `function` itself is called with these where they are few.
        views: whether the results are views of the inputs, so that without `shape` zeros are never too many.
        native: gives the operator of MegEngine whose kernel computes the same, faster, from the shapes of the inputs
            that are present, all of Float32; None where none does.
        flops: see `CostRule`; without it, as many as the results have elements.

    Attributes:
        known: places of the inputs that are annotated `Known`.
    """

    domain: str
    name: str
    function: Callable[..., Any]
    _: KW_ONLY
    since: int = 1
    out: OutRules = (0,)
    pointwise: bool = False
    shape: Callable[..., Any] | None = None
    views: bool = False
    native: NativeRule | None = None
    flops: CostRule | None = None

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the function."""
        return inspect.signature(self.function).parameters

    @cached_property
    def known(self) -> frozenset[int]:
        """Places of the inputs whose values decide shapes."""
        annotations = [p.annotation for p in self.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        return frozenset(i for i, a in enumerate(annotations) if Known in (a, *get_args(a)))

    @cached_property
    def shape_names(self) -> frozenset[str] | None:
        """What the rule of shapes takes by name; None if it takes what the function does."""
        assert self.shape is not None
        named = inspect.signature(self.shape).parameters.values()
        if not named or any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in named):
            return None
        every = any(p.kind is p.VAR_KEYWORD for p in named)
        return frozenset(self.parameters if every else (p.name for p in named))

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """The attributes that must be 0 or 1, which runtimes take one way or the other where they are not."""
        return tuple(n for n, p in self.parameters.items() if p.annotation == Flag)

    @cached_property
    def takes_more(self) -> bool:
        """Whether it takes any number of inputs."""
        return any(p.kind is p.VAR_POSITIONAL for p in self.parameters.values())

    @cached_property
    def random(self) -> bool:
        """Whether it draws random numbers."""
        return "stream" in self.parameters

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes that it takes."""
        keywords = {n for n, p in self.parameters.items() if p.kind is p.KEYWORD_ONLY}
        return frozenset(keywords - {"types", "stream", "out"})

    @cached_property
    def writes_into(self) -> bool:
        """Whether it can write its result into given memory."""
        return "out" in self.parameters

    def types_of(self, types: NodeTypes, attributes: Mapping[str, Any]) -> tuple[DType, ...]:
        """Return the types of all outputs that the node names.

        Raises:
            ValueError: an input that an output is like is missing.
        """
        if callable(self.out):
            return tuple(self.out(types, attributes))
        dtypes = []
        for i in range(len(types.wanted)):
            rule = self.out[min(i, len(self.out) - 1)]
            if isinstance(rule, int):
                like = types.inputs[rule] if rule < len(types.inputs) else None
                if like is None:
                    raise ValueError(f"its input {rule} is missing")
                dtypes.append(like)
            else:
                dtypes.append(DType(rule) if isinstance(rule, str) else rule(types, attributes))
        return tuple(dtypes)


class Composite(Record, code=1 << 16):
    """The parameters of a composite operator.

    Args:
        definition: what it computes.
        attributes: the node's attributes as Python has them.
        types: the types of its inputs and outputs.
        seed: starts its random numbers where the node has no seed of its own.

    Raises:
        ValueError: an attribute that is a truth value is neither 0 nor 1.

    >>> import numpy as np
    >>> from loadrun.graph.dtypes import DType
    >>> double = Definition("", "Double", lambda x, *, factor=2: x * factor, pointwise=True)
    >>> f = DType("Float32")
    >>> p = Composite(double, {}, NodeTypes((f,), (f,), 1, (True,)))
    >>> p.title, p.call([np.ones(2)]).tolist()
    ('Double', [2.0, 2.0])
    """

    def __init__(
        self, definition: Definition, attributes: Mapping[str, Any], types: NodeTypes, seed: int = 0
    ) -> None:
        for name in definition.flags:
            if attributes.get(name, 0) not in (0, 1):
                raise ValueError(f"its {name} is {attributes[name]}, expected 0 or 1")
        known = self.__dict__
        known["definition"], known["attributes"], known["types"] = definition, dict(attributes), types
        known["present"] = tuple(t is not None for t in types.inputs)
        known["seed"] = int(abs(attributes.get("seed") or 0) * 1000) % (1 << 31) or seed
        taken = {n: v for n, v in attributes.items() if n in definition.attributes}
        known["keywords"] = taken | ({"types": types} if "types" in definition.parameters else {})

    definition: Definition
    attributes: dict[str, Any]
    types: NodeTypes
    present: tuple[bool, ...]
    keywords: dict[str, Any]
    seed: int

    @classmethod
    def fields(cls) -> tuple[Any, ...]:
        """Return no fields: none is written to a dump."""
        return ()

    @property
    def title(self) -> str:
        """The operator, with its domain where that is not ONNX's own."""
        domain = self.definition.domain
        return f"{domain}.{self.definition.name}" if domain else self.definition.name

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Return pairs of attribute and value."""
        return iter(self.attributes.items())

    def placed(self, inputs: Sequence[Any]) -> list[Any]:
        """Put None where the node has no input."""
        present = iter(inputs)
        return [next(present) if here else None for here in self.present]

    def call(self, inputs: Sequence[Any], **more: Any) -> Any:  # noqa: ANN401 - what the function returns
        """Call the function on the inputs that are present."""
        args = inputs if len(inputs) == len(self.present) else self.placed(inputs)
        return _of_axes(self.definition.function, args, {**self.keywords, **more})

    def shapes(self, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
        """Return the shapes that the definition's rule gives."""
        rule, names = self.definition.shape, self.definition.shape_names
        assert rule is not None
        args, keywords = self.placed(inputs), self.keywords
        if names is not None:
            taken = {**dict(zip(self.definition.parameters, args, strict=False)), **keywords}
            args, keywords = [], {n: v for n, v in taken.items() if n in names}
        shapes = _of_axes(rule, args, keywords)
        return shapes[: len(self.types.outputs)] if isinstance(shapes, list) else [shapes]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Composite)
            and self.definition is other.definition
            and self.types == other.types
            and self.seed == other.seed
            and self.attributes.keys() == other.attributes.keys()
            and all(alike(v, other.attributes[n]) for n, v in self.attributes.items())
        )

    def __hash__(self) -> int:
        return hash((id(self.definition), self.types))

    def __repr__(self) -> str:
        return f"{self.title}({', '.join(f'{n}={_shown(v)}' for n, v in self.attributes.items())})"


# No dump names it, so no dump can ask for it.
del Record.by_code[Composite.code]


def holds_composites(graph: Graph) -> bool:
    """Return whether a graph has composite operators: it is made of the nodes of a file of another format."""
    return any(isinstance(p, Composite) for o in graph.oprs for p in o.params)


def _of_axes(function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Call a function that takes shapes apart; tell those of too few or too many axes."""
    try:
        return function(*args, **keywords)
    except (IndexError, ValueError) as e:
        if str(e).startswith("zip() argument"):
            raise ValueError("two of its lists have different lengths") from e
        if not str(e).startswith(("tuple index out of range", "not enough values to", "too many values to")):
            raise
        raise ValueError("an input has too few or too many axes") from e


def alike(a: object, b: object) -> bool:
    """Return whether two values of attributes are the same."""
    if isinstance(a, TensorAttribute) and isinstance(b, TensorAttribute):
        return a.dtype == b.dtype and a.value.shape == b.value.shape and bool((a.value == b.value).all())
    return type(a) is type(b) and bool(a == b)


def _shown(value: object) -> str:
    if isinstance(value, TensorAttribute):
        few = value.value.size <= 8
        return f"{value.value.tolist() if few else list(value.value.shape)}"
    if isinstance(value, list) and len(value) > 8:
        return f"[{', '.join(map(repr, value[:8]))}, ...]"
    return repr(value)
