"""A graph that came from an ONNX file as an ONNX model again: every composite operator is one node, as in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import __version__
from ..base.errors import UnsupportedError
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.composite import Composite, ObjectType, TensorAttribute
from ..graph.dtypes import Array, DType
from ..ops.infer import describe, infer_dtypes
from .encode import (
    OPTIONAL,
    SEQUENCE,
    Attribute,
    GraphMessage,
    ModelMessage,
    NodeMessage,
    TensorMessage,
    ValueMessage,
    unused,
)
from .lasting import HeldTensor
from .model import DEFAULT_OPSET, WrittenModel, ir_version
from .nodes import Subgraph, versions_of
from .source import ExportSource
from .tensors import ElemType
from .types import kind_of_dtype

Sizes = tuple[int | str | None, ...]
_HELD = {"sequence": SEQUENCE, "optional": OPTIONAL}
_EMPTY = {"6": np.float32, "8": np.str_}
"""Dtypes of empty lists by the kind of the attribute; others hold integers."""


def rewritten(source: ExportSource, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> WrittenModel:
    """Write the nodes of a graph, with their operators, attributes and names and in the opset of their file.

    Nodes of functions stand where the functions were called, and values of Constant nodes among the initializers. Where
    names would stand for two values the later one gets a number.

    Args:
        source: the graph, its inputs and outputs, and testcases, whose sizes are declared where the file declares none;
            it learns which of its ends have no axes.
        inputs, outputs: new names of both.

    Raises:
        UnsupportedError: the graph has another operator, functions of other opsets, or a map as input or output.
    """
    oprs = source.graph.needed(source.outputs.values())
    infer_dtypes(oprs)
    fed = {v.name or "": v for v in source.graph.inputs}
    common = _Common(source.graph)
    writer = _GraphWriter(common, None)
    ends = [(fed[i.name], inputs[i.name]) for i in source.inputs]
    names = writer.write(oprs, ends, [(v, outputs[n]) for n, v in source.outputs.items()], {})
    graph = writer.message
    fixed = dict(_shapes(source))
    declared = source.graph.declared
    graph.inputs = [
        _value(inputs[i.name], i.dtype, declared.get(i.name, fixed.get(i.name))) for i in source.inputs
    ]
    graph.outputs = [
        _value(name, v.dtype, declared.get(n, fixed.get(n)))
        for name, (n, v) in zip(names, source.outputs.items(), strict=True)
    ]
    opsets = common.opsets()
    values = [*zip(inputs, graph.inputs, strict=True), *zip(outputs, graph.outputs, strict=True)]
    source.scalars |= {n for n, v in values if v.shape == () and not v.held}
    counts = Counter(f"{n.domain}.{n.op_type}".lstrip(".") for n in graph.nodes)
    return WrittenModel(
        ModelMessage(
            graph, opsets, ir_version(opsets[""]), producer_version=__version__, metadata=source.metadata
        ),
        opsets[""],
        dict(inputs),
        dict(outputs),
        {},
        dict(sorted(counts.items())),
        [{i.name: i.shape for i in source.inputs}],
        [],
    )


def _shapes(source: ExportSource) -> Iterator[tuple[str, Sizes]]:
    """Yield the sizes that inputs and outputs have in all testcases, None for those that differ."""
    for var in source.graph.inputs:
        stored = var.owner.tensors[0]
        if stored.shape is not None and stored.dtype.name != "Object":
            yield var.name or "", stored.shape
    cases = [] if source.graph.declared else source.testcases
    seen: dict[str, list[tuple[int, ...]]] = {}
    for case in cases:
        for name, array in {**case.expects, **case.inputs}.items():
            seen.setdefault(name, []).append(array.shape)
    for name, shapes in seen.items():
        if len({len(s) for s in shapes}) == 1:
            yield name, tuple(n[0] if len({*n}) == 1 else None for n in zip(*shapes, strict=True))


class _Common:
    """What the graphs of a model share: versions of operators, and stored tensors that several graphs read."""

    def __init__(self, graph: Graph) -> None:
        self._versions: dict[str, dict[str, set[int]]] = {}
        readers = Counter(key for g in _graphs(graph) for key in {*_stored(g)})
        self.shared = {k: t for g in _graphs(graph) for k, t in _stored(g).items() if readers[k] > 1}
        self.names: dict[int, str] = {}

    def use(self, domain: str, name: str, opset: int) -> None:
        """Note an operator and its version."""
        self._versions.setdefault(domain, {}).setdefault(name, set()).add(opset)

    def opsets(self) -> dict[str, int]:
        """Return the version of each domain.

        Raises:
            UnsupportedError: an operator is used in two versions, as functions may.
        """
        opsets = {"": DEFAULT_OPSET}
        for domain, used in self._versions.items():
            opsets[domain] = newest = max(o for versions in used.values() for o in versions)
            for name, versions in used.items():
                changes = [s.since for s in versions_of(domain, name)]
                if any(o < since <= newest for o in versions for since in changes):
                    raise UnsupportedError(
                        f"the model's functions use {name} in version {min(versions)} of {domain or 'ai.onnx'}, and "
                        f"other nodes need version {newest}; opset_version (--opset) writes all of them in one"
                    )
        return opsets


def _graphs(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and those that its operators hold."""
    yield graph
    for opr in graph.oprs:
        for param in opr.params:
            if isinstance(param, Composite):
                for value in param.attributes.values():
                    if isinstance(value, Subgraph):
                        yield from _graphs(value.graph)


def _key(tensor: StoredTensor) -> int:
    """Return what copies of a stored tensor have in common."""
    return id(tensor.array if isinstance(tensor, HeldTensor) else tensor.data)


def _stored(graph: Graph) -> dict[int, StoredTensor]:
    return {_key(t): t for o in graph.oprs if o.type != "Host2DeviceCopy" for t in o.tensors}


class _GraphWriter:
    """Writes one graph.

    Args:
        common: what it shares with others.
        outer: the graph around, whose names it may not use for other values.
    """

    def __init__(self, common: _Common, outer: _GraphWriter | None) -> None:
        self._common, self._outer = common, outer
        self._taken: set[str] = set() if outer is None else {*outer._taken}
        self._names: dict[int, str] = {}
        self._titles: set[str] = set()
        self.message = GraphMessage("main_graph")

    def write(
        self,
        oprs: Sequence[Opr],
        inputs: Iterable[tuple[Var, str]],
        outputs: Sequence[tuple[Var, str]],
        captured: Mapping[int, str],
    ) -> list[str]:
        """Write operators and return the names that the outputs have.

        Args:
            oprs: the operators in order.
            inputs, outputs: the graph's ends with their names.
            captured: the names of values from around, by id.
        """
        for var, name in inputs:
            self._names[var.id] = self._claim(name)
        renamed = dict(self._names)
        self._names.update(captured)
        ends = [self._end(var, name, renamed) for var, name in outputs]
        computed = [(o, i, v) for o in oprs if o.type != "Host2DeviceCopy" for i, v in enumerate(o.outputs)]
        for opr, i, var in computed:
            shared = self._common.names.get(_key(opr.tensors[i])) if opr.tensors else None
            if var.id not in self._names:
                self._names[var.id] = shared or self._claim(var.name or f"value{var.id}")
            if opr.tensors and self._names[var.id] != shared:
                self._store(opr.tensors[i], self._names[var.id])
        if self._outer is None:
            for key, tensor in self._common.shared.items():
                if key not in self._common.names:
                    self._store(tensor, self._claim(tensor.name or f"stored{len(self._common.names)}"))
        for opr in oprs:
            if not opr.tensors and opr.type != "Host2DeviceCopy":
                self._node(opr)
        for (var, _), name in zip(outputs, ends, strict=True):
            if self._names[var.id] != name:
                self.message.nodes.append(NodeMessage("Identity", [self._names[var.id]], [name]))
                self._common.use("", "Identity", 1)
        return ends

    def name(self, var: Var) -> str:
        """Return the name of a value."""
        return self._names[var.id]

    def _end(self, var: Var, name: str, names_of: Mapping[int, str]) -> str:
        """Return the name of an output: that of the value, or a new one where the value has a name already."""
        source = var.owner.inputs[0] if var.owner.type == "Identity" else var
        if names_of.get(source.id) == name:
            self._names[var.id] = name
            return name
        claimed = self._claim(name)
        outside = var.owner.tensors and _key(var.owner.tensors[var.index]) in self._common.names
        if not outside:
            self._names.setdefault(var.id, claimed)
        return claimed

    def _claim(self, name: str) -> str:
        return unused(name, self._taken, "_", 1)

    def _store(self, tensor: StoredTensor, name: str) -> None:
        self.message.initializers.append(_tensor(name, tensor.value(), tensor.dtype))
        if _key(tensor) in self._common.shared:
            self._common.names.setdefault(_key(tensor), name)

    def _node(self, opr: Opr) -> None:
        p = opr.params[0] if opr.params else None
        inputs = [self._names[v.id] for v in opr.inputs]
        outputs = [self._names[v.id] for v in opr.outputs]
        title = unused(opr.name, self._titles, "_", 1) if opr.name else ""
        if opr.type == "Identity":
            if inputs != outputs:
                self._common.use("", "Identity", 1)
                self.message.nodes.append(NodeMessage("Identity", inputs, outputs, name=title))
            return
        if not isinstance(p, Composite):
            raise UnsupportedError(
                f"{describe(opr)} is no operator of ONNX, and cannot be written among them"
            )
        domain, op = p.definition.domain, p.definition.name
        self._common.use(domain, op, p.types.opset)
        placed = [n or "" for n in p.placed(inputs)]
        graphs = [v for v in p.attributes.values() if isinstance(v, Subgraph)]
        around = placed[len(placed) - len({n for g in graphs for n in g.captured}) :]
        kinds = _kinds(p)
        attributes = {n: self._attribute(v, around, kinds.get(n, "7")) for n, v in p.attributes.items()}
        self.message.nodes.append(
            NodeMessage(
                op,
                placed[: len(placed) - len(around)],
                [n if wanted else "" for n, wanted in zip(outputs, p.types.wanted, strict=True)],
                attributes,
                title,
                domain,
            )
        )

    def _attribute(self, value: Any, around: Sequence[str], kind: str) -> Attribute:  # noqa: ANN401 - any
        if isinstance(value, Subgraph):
            return self._subgraph(value, around)
        if isinstance(value, TensorAttribute):
            return _tensor("", value.value, value.dtype)
        if isinstance(value, DType):
            return _value("", value, None)
        if isinstance(value, list) and not value:
            return np.zeros(0, _EMPTY.get(kind, np.int64))
        attribute: Attribute = value
        return attribute

    def _subgraph(self, sub: Subgraph, around: Sequence[str]) -> GraphMessage:
        writer = _GraphWriter(self._common, self)
        fed = {v.name or "": v for v in sub.graph.inputs}
        captured = {fed[n].id: around[i] for n, i in sub.places.items()}
        inputs, outputs = [(fed[n], n) for n in sub.inputs], [(v, v.name or "") for v in sub.graph.outputs]
        names = writer.write(sub.graph.needed(), inputs, outputs, captured)
        message, declared = writer.message, sub.graph.declared
        message.name = "graph"
        message.inputs = [_value(writer.name(v), v.dtype, declared.get(n)) for v, n in inputs]
        message.outputs = [
            _value(name, v.dtype, declared.get(n)) for name, (v, n) in zip(names, outputs, strict=True)
        ]
        return message


def _kinds(p: Composite) -> Mapping[str, str]:
    """Return the kinds of an operator's attributes by its schema."""
    versions = [s for s in versions_of(p.definition.domain, p.definition.name) if s.since <= p.types.opset]
    return {n: k.rstrip("!") for n, k in versions[-1].attributes.items()} if versions else {}


def _tensor(name: str, value: Array, dtype: DType) -> TensorMessage:
    return TensorMessage(name, ElemType(kind_of_dtype(dtype)), value.shape, value)


def _value(name: str, dtype: DType | None, shape: Sizes | None) -> ValueMessage:
    bits: list[int] = []
    while isinstance(dtype, ObjectType) and dtype.kind in _HELD:
        bits.append(_HELD[dtype.kind])
        dtype = dtype.element
    if dtype is None or dtype.name == "Object":
        raise UnsupportedError(
            f"{name!r} is a map, or a sequence of what is not known, whose type cannot be declared"
        )
    return ValueMessage(name, ElemType(kind_of_dtype(dtype)), shape, tuple(bits))
