"""Two ONNX files compared as they are: opsets, nodes, and stored tensors, by the names that their users know."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..base.files import contents
from ..graph.dtypes import Array
from .messages import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, read_model
from .nodes import title_of
from .tensors import STRING, ExternalData, UnsupportedTensorTypeError, array, dense, texts


def file_changes(mine: str | bytes, other: str | bytes) -> Iterator[str]:
    """Describe what a file has otherwise than another one, without running either.

    Nodes are the same if they make a value of the same name, as in two versions of one export. Of files that have few
    such names in common, only opsets are compared.

    Args:
        mine, other: the files' paths, or their bytes.

    Raises:
        FormatError: a file is no ONNX model.
    """
    models = [_read(where) for where in (mine, other)]
    yield from _opsets(*(m for m, _ in models))
    graphs = [m.graph or GraphProto() for m, _ in models]
    names = [{n for node in g.nodes for n in node.outputs if n} for g in graphs]
    if 2 * len(names[0] & names[1]) < min(map(len, names)):
        return
    yield from _nodes(graphs[0], graphs[1], models[0][1], models[1][1])
    yield from _tensors(*(_stored(g, e) for g, (_, e) in zip(graphs, models, strict=True)))


def _read(where: str | bytes) -> tuple[ModelProto, ExternalData]:
    if isinstance(where, bytes):
        return read_model(memoryview(where)), ExternalData(None)
    return read_model(memoryview(contents(where, "an ONNX model"))), ExternalData(
        Path(where).absolute().parent
    )


def _opsets(mine: ModelProto, other: ModelProto) -> Iterator[str]:
    versions = [{o.domain or "ai.onnx": o.version for o in m.opsets} for m in (mine, other)]
    for domain in dict.fromkeys([*versions[0], *versions[1]]):
        x, y = (v.get(domain, "none") for v in versions)
        if x != y:
            yield f"opset {x} of {domain} against {y}"


def _nodes(mine: GraphProto, other: GraphProto, ours: ExternalData, theirs: ExternalData) -> Iterator[str]:
    left, right = ({n: node for node in g.nodes for n in node.outputs[:1]} for g in (mine, other))
    lost = [node for n, node in right.items() if n not in left and not _stands(node, mine.nodes)]
    more = [node for n, node in left.items() if n not in right and not _stands(node, other.nodes)]
    yield from (f"node {title_of(node)} is missing" for node in lost)
    yield from (f"node {title_of(node)} is not in the reference" for node in more)
    # Another value where a node was taken out or put in is told with that node.
    rewired = {n for node in (*lost, *more) for n in (*node.inputs, *node.outputs)}
    for name, node in left.items():
        there = right.get(name) or _stands(node, other.nodes)
        if there is not None and (said := [*_unlike(node, there, rewired, ours, theirs)]):
            yield f"node {title_of(node)}: {'; '.join(said)}"


def _stands(node: NodeProto, there: Sequence[NodeProto]) -> NodeProto | None:
    """Find the node of one's own name and operator, whose value has another name."""
    if not node.name:
        return None
    return next((n for n in there if n.name == node.name and n.op == node.op), None)


def _unlike(
    node: NodeProto, there: NodeProto, rewired: set[str], ours: ExternalData, theirs: ExternalData
) -> Iterator[str]:
    if (node.domain, node.op) != (there.domain, there.op):
        yield f"{node.op} against {there.op}"
        return
    mine, other = ({a.name: a for a in n.attributes} for n in (node, there))
    for name in dict.fromkeys([*mine, *other]):
        x, y = _value(mine.get(name), ours), _value(other.get(name), theirs)
        if x != y:
            yield f"{name} {_shown(x)} against {_shown(y)}"
    if len(node.inputs) != len(there.inputs):
        yield f"{len(node.inputs)} inputs against {len(there.inputs)}"
        return
    for i, (one, two) in enumerate(zip(node.inputs, there.inputs, strict=True)):
        if one != two and not (one in rewired or two in rewired):
            yield f"input {i} is {one!r} against {two!r}"


def _value(attribute: AttributeProto | None, external: ExternalData) -> object:
    """Return an attribute's value as one that can be compared; None where it is not there."""
    a = attribute
    if a is None:
        return None
    if a.t is not None:
        return _listed(_array(a.t, external))
    if a.g is not None or a.graphs:
        graphs = [a.g] if a.g is not None else a.graphs
        return tuple(_body(g, external) for g in graphs)
    lists = [v for rows in (a.floats, a.ints) for row in rows for v in np.asarray(row).tolist()]
    if lists or a.type in (6, 7):
        return tuple(lists)
    if a.strings:
        return tuple(bytes(s) for s in a.strings)
    return {1: a.f, 2: a.i, 3: bytes(a.s)}.get(a.type, a.f or a.i or bytes(a.s))


def _body(graph: GraphProto, external: ExternalData) -> object:
    """Return what a branch or loop does as a value that can be compared."""
    nodes = [
        (n.op, n.domain, *n.inputs, *n.outputs, *((a.name, _value(a, external)) for a in n.attributes))
        for n in graph.nodes
    ]
    return (*nodes, *((n, _listed(v)) for n, v in _stored(graph, external).items()))


def _listed(value: Array) -> tuple[object, ...]:
    return value.dtype.str, value.shape, value.tobytes() if value.dtype != object else tuple(value.ravel())


def _shown(value: object) -> str:
    if value is None:
        return "by default"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return f"{value:.9g}"
    if not isinstance(value, tuple):
        return str(value)
    if all(isinstance(v, int | float) for v in value):
        return f"[{', '.join(map(_shown, value))}]"
    return "of other contents"


def _stored(graph: GraphProto, external: ExternalData) -> dict[str, Array]:
    """Read the tensors that are stored, by name."""
    values = {t.name: _array(t, external) for t in graph.initializers}
    values.update((s.values.name, dense(s, external)) for s in graph.sparse if s.values is not None)
    return values


def _array(tensor: TensorProto, external: ExternalData) -> Array:
    if tensor.data_type == STRING:
        return texts(tensor)
    try:
        return array(tensor, external)
    except UnsupportedTensorTypeError:
        # The bytes tell as well.
        return np.frombuffer(tensor.raw or b"", np.uint8)


def _tensors(mine: Mapping[str, Array], other: Mapping[str, Array]) -> Iterator[str]:
    yield from (f"initializer {n!r} is missing" for n in other if n not in mine)
    yield from (f"initializer {n!r} is not in the reference" for n in mine if n not in other)
    for name, x in mine.items():
        y = other.get(name)
        if y is None or y is x:
            continue
        if x.dtype != y.dtype or x.shape != y.shape:
            yield f"initializer {name!r} is {x.dtype} {list(x.shape)} against {y.dtype} {list(y.shape)}"
            continue
        wrong = np.asarray((x != y) & ~((x != x) & (y != y)))
        if wrong.any():
            count = f"{np.count_nonzero(wrong)} of {x.size}"
            yield f"initializer {name!r} differs in {count} elements, {_worst(x, y, wrong)}"


def _worst(x: Array, y: Array, wrong: Array) -> str:
    apart = wrong.astype(np.float64)
    if x.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            apart = np.where(wrong, np.nan_to_num(np.abs(x.astype(np.float64) - y), nan=np.inf), -1.0)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), x.shape))
    one, two = (f"{a[at]:.9g}" if a.dtype.kind == "f" else str(a[at]) for a in (x, y))
    return f"most at {list(at)}: {one} against {two}"
