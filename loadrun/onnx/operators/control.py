"""Branches, loops and maps, whose attributes are graphs; sequences and optional values."""

from collections.abc import Mapping
from typing import Any

from ...arrays.names import np
from ...graph.composite import Known, NodeTypes, ObjectType
from ...graph.dtypes import Array, DType
from ..nodes import Subgraph
from . import operator
from .common import axis_of, integers, refuse_unless, tensor_type, unknown_shape


@operator("If", out=lambda types, a: a["then_branch"].dtypes, shape=unknown_shape)
def if_(cond: Array, *captured: Any, then_branch: Subgraph, else_branch: Subgraph) -> tuple[Any, ...]:
    """Run the graph of one branch."""
    return tuple((then_branch if _truth(cond) else else_branch)((), captured))


def _truth(value: Array) -> bool:
    """Return a condition, which has one element.

    Raises:
        ValueError: it has another number of them.
    """
    if np.size(value) != 1:
        raise ValueError(f"its condition has {np.size(value)} elements, expected one")
    return bool(np.reshape(value, -1)[0])


@operator("Loop", out=lambda types, a: a["body"].dtypes[1:], shape=unknown_shape)
def loop(count: Array | None, cond: Array | None, *rest: Any, body: Subgraph) -> tuple[Any, ...]:
    """Run the body until its count or its condition ends it."""
    states = len(body.inputs) - 2
    state, captured = list(rest[:states]), rest[states:]
    most = None if count is None else int(np.reshape(count, -1)[0])
    going = cond is None or _truth(cond)
    collected: list[list[Any]] = [[] for _ in body.dtypes[1 + states :]]
    turn = 0
    while going and (most is None or turn < most):
        counter, flag = (
            np.full(_of_one(body, i), v) for i, v in enumerate((np.int64(turn), np.bool_(going)))
        )
        outs = body([counter, flag, *state], captured)
        going = _truth(outs[0])
        state = outs[1 : 1 + states]
        for rows, value in zip(collected, outs[1 + states :], strict=True):
            rows.append(value)
        turn += 1
    if not turn and collected:
        counter, flag = (np.zeros(_of_one(body, i), k) for i, k in enumerate((np.int64, np.bool_)))
        return (*state, *body.no_rows(1 + states, [counter, flag, *state], captured))
    return (*state, *map(np.stack, collected))


def _of_one(body: Subgraph, i: int) -> tuple[int, ...]:
    """Return the shape of the count and the condition in the body: with an axis if it declares one."""
    declared = body.input_shapes[i]
    return (1,) if declared is not None and len(declared) == 1 else ()


@operator("Scan", since=9, out=lambda types, a: a["body"].dtypes, shape=unknown_shape)
def scan(
    *values: Array,
    body: Subgraph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> tuple[Any, ...]:
    """Run the body on the parts of inputs along an axis, one after another."""
    count = len(body.inputs)
    values, captured = values[:count], values[count:]
    states = count - num_scan_inputs
    state, inputs = list(values[:states]), list(values[states:])
    axes, turned = scan_input_axes or [0] * len(inputs), scan_input_directions or [0] * len(inputs)
    counts = sorted({x.shape[a] for x, a in zip(inputs, axes, strict=True)})
    if len(counts) != 1:
        raise ValueError(f"the axes that it scans have the sizes {counts}, expected one size")
    outputs = len(body.dtypes) - states
    collected: list[list[Any]] = [[] for _ in range(outputs)]
    for turn in range(counts[0]):
        parts = [
            np.take(x, counts[0] - 1 - turn if back else turn, a)
            for x, a, back in zip(inputs, axes, turned, strict=True)
        ]
        outs = body([*state, *parts], captured)
        state = outs[:states]
        for rows, value in zip(collected, outs[states:], strict=True):
            rows.append(value)
    out_axes, out_turned = scan_output_axes or [0] * outputs, scan_output_directions or [0] * outputs
    if not counts[0]:
        parts = [np.zeros(np.delete(x.shape, a), x.dtype) for x, a in zip(inputs, axes, strict=True)]
        empty = body.no_rows(states, [*state, *parts], captured)
        return (*state, *(np.moveaxis(y, 0, a) for y, a in zip(empty, out_axes, strict=True)))
    stacked = [
        np.stack(rows[::-1] if back else rows, a)
        for rows, a, back in zip(collected, out_axes, out_turned, strict=True)
    ]
    return (*state, *stacked)


@operator("Scan", since=8, out=lambda types, a: a["body"].dtypes, shape=unknown_shape)
def scan_8(
    lengths: Array | None,
    *values: Array,
    body: Subgraph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
) -> tuple[Any, ...]:
    """Scan every entry of a batch, the first axis, by itself."""
    if lengths is not None:
        raise ValueError("its sequence lengths are given, which is not supported; leave them out")
    count = len(body.inputs)
    rows = [
        scan(
            *(v[b] for v in values[:count]),
            *values[count:],
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        for b in range(values[0].shape[0])
    ]
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


@operator(
    "SequenceMap",
    since=17,
    out=lambda types, a: [ObjectType("sequence", d) for d in a["body"].dtypes],
    shape=unknown_shape,
)
def sequence_map(items: list[Any], *rest: Any, body: Subgraph) -> tuple[list[Any], ...]:
    """Run the body on every item of a sequence; further sequences are read beside it, tensors as they are."""
    count = len(body.inputs) - 1
    others, captured = rest[:count], rest[count:]
    rows = [
        body([item, *(v[i] if isinstance(v, list) else v for v in others)], captured)
        for i, item in enumerate(items)
    ]
    return tuple(list(column) for column in zip(*rows, strict=True)) if rows else ([],) * len(body.dtypes)


Items = list[Any]


def _sequence(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return ObjectType(
        "sequence", types.inputs[0] if types.inputs else tensor_type(attributes.get("dtype", 1))
    )


def _element(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type of what the first input holds."""
    outer = types.inputs[0]
    element = outer.element if isinstance(outer, ObjectType) else None
    refuse_unless(element is not None, "what its input holds has no type")
    assert element is not None
    return element


operator("SequenceConstruct", since=11, out=(_sequence,))(lambda *xs: list(xs))
operator("SequenceEmpty", since=11, out=(_sequence,))(lambda *, dtype=1: [])


def _place(position: Array, count: int, *, behind: bool = False) -> int:
    at = int(position.item())
    at = at + count if at < 0 else at
    refuse_unless(0 <= at < count + behind, f"position {at} of {count}")
    return at


@operator("SequenceAt", since=11, out=(_element,))
def sequence_at(items: Items, position: Array) -> Any:  # noqa: ANN401 - what it holds
    """Return one element."""
    return items[_place(position, len(items))]


@operator("SequenceInsert", since=11)
def sequence_insert(items: Items, x: Any, position: Array | None = None) -> Items:  # noqa: ANN401
    """Return the sequence with one more element, by default at its end."""
    at = len(items) if position is None else _place(position, len(items), behind=True)
    return [*items[:at], x, *items[at:]]


@operator("SequenceErase", since=11)
def sequence_erase(items: Items, position: Array | None = None) -> Items:
    """Return the sequence without an element, by default the last."""
    refuse_unless(bool(items), "the sequence is empty")
    at = len(items) - 1 if position is None else _place(position, len(items))
    return items[:at] + items[at + 1 :]


operator("SequenceLength", since=11, out=("Int64",))(lambda items: np.array(len(items), np.int64))


@operator("SplitToSequence", since=11, out=(_sequence,), shape=lambda x, parts=None, axis=0, keepdims=1: ())
def split_to_sequence(x: Array, parts: Known | None = None, *, axis: int = 0, keepdims: int = 1) -> Items:
    """Cut an axis into parts: single entries, parts of one size, or parts of their own sizes each."""
    axis = axis_of(axis, x.ndim)
    n = x.shape[axis]
    if parts is None and not keepdims:
        return [np.take(x, i, axis) for i in range(n)]
    each = 1 if parts is None else int(parts.item()) if not parts.ndim else 0
    if parts is None or not parts.ndim:
        refuse_unless(each > 0, f"parts of {each}")
        ends = list(range(each, n, each))
    else:
        sizes = integers(parts)
        fits = min(sizes, default=0) >= 0 and sum(sizes) == n
        refuse_unless(fits, f"parts of {sizes} do not make up the {n} of axis {axis}")
        ends = np.cumsum(sizes)[:-1].tolist()
    return np.split(x, ends, axis) if n or ends else []


@operator("ConcatFromSequence", since=11, out=(_element,))
def concat_from_sequence(items: Items, *, axis: int, new_axis: int = 0) -> Array:
    """Join the elements along an axis, or along a new one."""
    refuse_unless(bool(items), "the sequence is empty")
    if new_axis:
        return np.stack(items, axis_of(axis, items[0].ndim + 1))
    return np.concatenate(items, axis_of(axis, items[0].ndim))


# Optional values


def _optional(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return ObjectType("optional", types.inputs[0] if types.inputs else attributes.get("type"))


@operator("Optional", since=15, out=(_optional,))
def optional(x: Any = None, *, type: DType | None = None) -> Any:  # noqa: ANN401
    """Return the value itself, or none."""
    return x


@operator("OptionalHasElement", since=15, out=("Bool",))
def optional_has_element(x: Any = None) -> Array:  # noqa: ANN401
    """Tell whether there is a value."""
    return np.array(x is not None)


def _given(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type of an optional value; one that is no optional is given itself."""
    outer = types.inputs[0]
    assert outer is not None
    optional = isinstance(outer, ObjectType) and outer.kind == "optional"
    return _element(types, attributes) if optional else outer


@operator("OptionalGetElement", since=15, out=(_given,))
def optional_get_element(x: Any) -> Any:  # noqa: ANN401
    """Return the value, which must be there."""
    refuse_unless(x is not None, "the optional value has no element")
    return x
