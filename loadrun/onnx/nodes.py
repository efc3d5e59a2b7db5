"""Nodes: what follows from the file alone, what ONNX's schemas say, and the graphs that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays.names import kernel
from ..base.files import contents
from ..base.registry import late
from ..engines.reference import ReferenceEngine
from ..graph import Graph
from ..graph.composite import GraphAttribute
from ..graph.dtypes import Array, DType, held_array
from ..graph.graph import same_graph
from ..ops.infer import infer_shapes
from .messages import AttributeProto, GraphProto, NodeProto
from .types import kind_of_dtype

with late(__name__):
    from ..engines import wide


def in_order(nodes: list[NodeProto]) -> list[NodeProto]:
    """Put nodes behind those whose results they read, as converters may leave them and ONNX Runtime does.

    Nodes that wait for each other stay where they are.
    """
    makers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    reads = [{makers[n] for n in (*node.inputs, *names_captured(node)) if n in makers} for node in nodes]
    if all(j < i for i, sources in enumerate(reads) for j in sources):
        return nodes
    readers: dict[int, list[int]] = {}
    for i, sources in enumerate(reads):
        for j in sources:
            readers.setdefault(j, []).append(i)
    waits = [len(sources) for sources in reads]
    ready = [i for i, n in enumerate(waits) if not n]
    order = []
    while ready:
        order.append(heappop(ready))
        for i in readers.get(order[-1], ()):
            waits[i] -= 1
            if not waits[i]:
                heappush(ready, i)
    return [nodes[i] for i in order] if len(order) == len(nodes) else nodes


def nodes_needed(graph: GraphProto) -> set[int]:
    """Return the places of the nodes that the graph's outputs depend on."""
    wanted = {o.name for o in graph.outputs}
    needed = set()
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if wanted.isdisjoint(n for n in node.outputs if n):
            continue
        needed.add(i)
        wanted.update(node.inputs)
        wanted.update(names_captured(node))
    return needed


def attributes_of(
    node: NodeProto, call_attributes: Mapping[str, AttributeProto]
) -> dict[str, AttributeProto]:
    """Return the attributes of a node by name.

    Args:
        call_attributes: those of the surrounding function's call, to which the node's own may refer.
    """
    attributes = {}
    for a in node.attributes:
        if a.ref:
            if a.ref in call_attributes:
                attributes[a.name] = call_attributes[a.ref]
        else:
            attributes[a.name] = a
    return attributes


def names_captured(node: NodeProto) -> set[str]:
    """Return the names that the subgraphs of a node read."""
    names: set[str] = set()
    for a in node.attributes:
        for graph in [*([a.g] if a.g is not None else []), *a.graphs]:
            for inner in graph.nodes:
                names.update(inner.inputs)
                names |= names_captured(inner)
            names.update(o.name for o in graph.outputs)
    return names


def title_of(node: NodeProto) -> str:
    """Return how messages call a node: its name or that of its first output, and its operator."""
    name = node.name or next((o for o in node.outputs if o), "")
    domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
    return f"{name!r} ({domain}{node.op})"


# What ONNX's schemas say of a node: its inputs, their types, its attributes and the versions of its operator.
#
# `schemas.txt` has them, a line for each version of an operator; `scripts/onnx_schemas.py` writes it.

_KINDS = dict(
    enumerate(("a float", "an integer", "text", "a tensor", "a graph", "floats", "integers", "texts"), 1)
)


class Schema(NamedTuple):
    """One version of an operator.

    Attributes:
        since: the first version of the domain.
        deprecated: whether the operator ends with it.
        inputs: pairs of a type constraint and "", "?" (may be left out), "*" or "+" (repeats, of one type or any).
        outputs: the most outputs.
        types: allowed types by constraint: numbers of element types, "s", "o", "m" for containers.
        attributes: the kind of each attribute, as a number, with "!" where it is required.
    """

    since: int
    deprecated: bool
    inputs: tuple[tuple[str, str], ...]
    outputs: int
    types: Mapping[str, frozenset[str]]
    attributes: Mapping[str, str]


@cache
def _table() -> str:
    return "\n" + bytes(contents(Path(__file__).with_name("schemas.txt"), "the schemas")).decode()


@cache
def versions_of(domain: str, op: str) -> tuple[Schema, ...]:
    """Return the versions of an operator, the oldest first; none if the table does not have it.

    >>> [s.since for s in versions_of("", "Clip")]
    [1, 6, 11, 12, 13]
    """
    table, head = _table(), f"\n{domain}\t{op}\t"
    versions = []
    at = table.find(head)
    while at >= 0:
        versions.append(_parsed(table[at + len(head) : table.index("\n", at + 1)]))
        at = table.find(head, at + 1)
    return tuple(versions)


def _parsed(line: str) -> Schema:
    since, inputs, outputs, types, attributes = line.split("\t")
    pairs = [(t.rstrip("?*+"), t[len(t.rstrip("?*+")) :]) for t in inputs.split(",") if t]
    constraints = dict(c.split("=") for c in types.split(",") if c)
    return Schema(
        abs(int(since)),
        since.startswith("-"),
        tuple(pairs),
        int(outputs),
        {n: frozenset(t.split()) for n, t in constraints.items()},
        dict(a.split(":") for a in attributes.split(",") if a),
    )


def check(
    domain: str,
    op: str,
    opset: int,
    inputs: Sequence[DType | None],
    outputs: int,
    attributes: Mapping[str, AttributeProto],
) -> None:
    """Check a node against the schema of its operator; one that the table does not have is not checked.

    Args:
        domain, op, opset: the operator and the version of its domain that the model imports.
        inputs: the types of the inputs, None for those left out.
        outputs: how many outputs the node names.
        attributes: its attributes.

    Raises:
        ValueError: it contradicts the schema; the text says how, in words that follow the node's name.
    """
    versions = versions_of(domain, op)
    if not versions:
        return
    where = domain or "ai.onnx"
    # Runtimes go on running what newer versions advise against.
    schema = next((s for s in reversed(versions) if s.since <= opset and not s.deprecated), None)
    if schema is None:
        raise ValueError(
            f"{op} is new in version {versions[0].since} of {where}, and the model imports version {opset}"
        )
    for problem in (
        *_attribute_problems(schema, attributes),
        *_count_problems(schema, inputs, outputs),
        *_type_problems(schema, inputs),
    ):
        raise ValueError(f"{problem}, in version {opset} of {where}")


def _attribute_problems(schema: Schema, attributes: Mapping[str, AttributeProto]) -> Iterator[str]:
    for name, attribute in attributes.items():
        kind = schema.attributes.get(name)
        if kind is None:
            others = ", ".join(schema.attributes) or "none"
            yield f"it has the attribute {name!r}, which its operator does not have ({others})"
        elif attribute.type not in (0, int(kind.rstrip("!"))) and not _is_empty(attribute):
            was = _KINDS.get(attribute.type, f"of type {attribute.type}")
            yield f"its attribute {name} is {was}, expected {_KINDS.get(int(kind.rstrip('!')), kind)}"
    for name, kind in schema.attributes.items():
        if kind.endswith("!") and name not in attributes:
            yield f"its attribute {name} is missing"


def _is_empty(attribute: AttributeProto) -> bool:
    """Return whether an attribute is a list without entries, whose type says nothing."""
    rows = (*attribute.ints, *attribute.floats)
    return attribute.type in (6, 7, 8) and not attribute.strings and not any(map(len, rows))


def _count_problems(schema: Schema, inputs: Sequence[DType | None], outputs: int) -> Iterator[str]:
    repeats = bool(schema.inputs) and schema.inputs[-1][1] in ("*", "+")
    if len(inputs) > len(schema.inputs) and not repeats:
        yield f"it has {len(inputs)} inputs, but its operator takes {len(schema.inputs)}"
    for i, (_, mark) in enumerate(schema.inputs):
        if mark == "" and (i >= len(inputs) or inputs[i] is None):
            yield f"its input {i} is missing"
    if outputs > schema.outputs:
        yield f"it has {outputs} outputs, but its operator gives {schema.outputs}"


def _type_problems(schema: Schema, inputs: Sequence[DType | None]) -> Iterator[str]:
    bound: dict[str, DType] = {}
    for i, dtype in enumerate(inputs):
        constraint, mark = schema.inputs[min(i, len(schema.inputs) - 1)]
        if dtype is None:
            continue
        allowed = schema.types[constraint]
        if dtype.name == "Object":
            if not allowed & {"s", "o", "m"}:
                yield f"its input {i} is a sequence, map or optional value, expected a tensor"
            continue
        if str(kind_of_dtype(dtype)) not in allowed:
            yield f"its input {i} is {dtype.spelling}, which its operator does not take"
        elif mark != "+" and bound.setdefault(constraint, dtype) != dtype:
            yield f"its input {i} is {dtype.spelling}, but another one of the same type {bound[constraint].spelling}"


class Subgraph(GraphAttribute):
    """A graph with an engine of its own.

    Args:
        graph: the graph.
        inputs: the names of its inputs, in order.
        captured: the names of the values that it reads from around, which are inputs of the graph, too.
        input_shapes, output_shapes: the shapes that it declares, None for an open size or a shape left out.

    Attributes:
        dtypes: the types of its outputs.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[str],
        captured: Sequence[str],
        input_shapes: Sequence[tuple[int | None, ...] | None],
        output_shapes: Sequence[tuple[int | None, ...] | None],
    ) -> None:
        self.graph, self.inputs, self.captured = graph, list(inputs), list(captured)
        self.input_shapes, self.output_shapes = list(input_shapes), list(output_shapes)
        self.dtypes: list[DType] = [v.dtype for v in graph.outputs if v.dtype is not None]
        self.places: dict[str, int] = {}

    def place(self, captured: Sequence[str]) -> None:
        """Tell which values from around the node gets, in which order: those of all its graphs."""
        self.places = {name: captured.index(name) for name in self.captured}

    def over(self, graph: Graph, names: Mapping[str, str]) -> Subgraph:
        """See `loadrun.graph.composite.GraphAttribute.over`."""
        inputs, captured = [names[n] for n in self.inputs], [names[n] for n in self.captured]
        renamed = Subgraph(graph, inputs, captured, self.input_shapes, self.output_shapes)
        renamed.places = {names[n]: i for n, i in self.places.items()}
        return renamed

    @cached_property
    def _engine(self) -> ReferenceEngine:
        return ReferenceEngine(self.graph)

    @kernel
    def __call__(self, inputs: Sequence[Any], captured: Sequence[Any] = ()) -> list[Any]:
        """Run the graph.

        Args:
            inputs: its inputs in order; lists, maps and None as they are.
            captured: the values from around that the node gets.

        Returns:
            its outputs in order.
        """
        values = self.named(inputs, captured)
        used = self._engine.inputs
        feeds = {n: _held(v, used[n].owner.tensors[0].dtype) for n, v in values.items() if n in used}
        if any(a.dtype == np.float64 != used[n].owner.tensors[0].dtype.np for n, a in feeds.items()):
            results = wide.WideEngine(self.graph).run(feeds)
        else:
            results = self._engine.run(feeds)
        return [r[()] if r.dtype == object and not r.ndim else r for r in results]

    def no_rows(self, start: int, inputs: Sequence[Any], captured: Sequence[Any]) -> list[Array]:
        """Return what outputs from one on give of no runs, stacked; see `__call__`.

        Sizes that its outputs declare open are 0. What declares no shape has that which follows from the inputs.

        Raises:
            ValueError: a shape depends on data.
        """
        shapes = {n: np.shape(v) for n, v in self.named(inputs, captured).items()}
        inferred = infer_shapes(self.graph, inputs=shapes).shapes
        rows = []
        outputs = list(zip(self.graph.outputs, self.output_shapes, self.dtypes, strict=True))
        for var, declared, dtype in outputs[start:]:
            shape = inferred.get(var.id) if declared is None else tuple(n or 0 for n in declared)
            if shape is None:
                raise ValueError(f"its output {var.name!r} of no iterations has no shape that is known")
            rows.append(np.zeros((0, *shape), dtype.np))
        return rows

    def named(self, inputs: Sequence[Any], captured: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs, and what the graph reads from around, by name."""
        values = dict(zip(self.inputs, inputs, strict=False))
        values.update((name, captured[i]) for name, i in self.places.items())
        return values

    def __repr__(self) -> str:
        return f"<{sum(not o.tensors for o in self.graph.oprs)} operators>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and (
            self.graph is other.graph or same_graph(self.graph, other.graph)
        )

    def __hash__(self) -> int:
        return len(self.graph.oprs)


def _held(value: Any, dtype: DType) -> Array:  # noqa: ANN401 - a list or a map may be fed
    array = held_array(value, dtype)
    # Halves come as float32, and float64 stays what it is in a graph that is computed so.
    return array.astype(dtype.np) if dtype.name == "Float16" else array
