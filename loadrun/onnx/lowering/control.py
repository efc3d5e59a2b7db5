"""If, Loop and Scan: conditional branches, and bodies that are repeated a known number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, apply, const
from ...tensors.access import (
    dtype_of,
    is_scalar,
    recorded_variable,
    session_of,
    static_shape,
    stored_shape,
    variable_of,
)
from ...tracing.recorder import TraceRecorder
from ..call import NodeCall, front, lower
from ..messages import GraphProto
from ..types import declared_shape
from ..unrolling import least_unrolled, takes_all_turns
from ..values import BOOL, INT64, Items, UnsupportedNodeError, Value
from . import cast, of_length

__all__ = ["index_value"]

_MOST_TURNS = 4096


def _known(value: Value) -> bool | None:
    """Return a condition that is the same for all inputs, or None if data decide it."""
    constant = value.constant()
    if constant is not None and constant.size == 1:
        return bool(constant.reshape(-1)[0])
    return None


def _decided(c: NodeCall, value: Value) -> bool | None:
    """Return a condition that sizes decide, which the graph then requires, or None if data do."""
    known = _known(value)
    if known is None:
        condition = value.supposed()
        if condition is not None and condition.size == 1 and not value.follows_data():
            known = bool(condition.reshape(-1)[0])
            c.importer.required.add(value, condition)
    return known


@lower("If", foldable=False)
def _if(c: NodeCall) -> tuple[Any, ...]:
    chosen = _decided(c, c.value(0))
    if chosen is None:
        return _conditional_branches(c)
    return tuple(c.run_graph(c.graph("then_branch" if chosen else "else_branch"), []))


def _conditional_branches(c: NodeCall) -> tuple[Any, ...]:
    """Run both branches by conditional execution: only nodes of the branch taken are computed."""
    pred = cast(e.reshape(c.t(0), (1,)), "int32")
    keys = [const(np.array([k], np.int32)) for k in (1, 0)]
    case = P.CondExecPred(mode=P.CondExecPredMode.CASE)
    taken = apply("CondExecPred", case, inputs=[*keys, pred], n=2, scalar=False)
    branches: list[list[Value]] = []
    for name, ppv in zip(("then_branch", "else_branch"), taken, strict=True):
        marked: dict[int, Value] = {}

        def mark(value: Value, ppv: Tensor = ppv, marked: dict[int, Value] = marked) -> Value:
            if id(value) not in marked:
                stored = value.stored
                (inside,) = apply(
                    "CondExecMark", P.CondExecMark(), inputs=[stored, ppv], n=1, scalar=is_scalar(stored)
                )
                marked[id(value)] = Value(value.kind, inside)
            return marked[id(value)]

        try:
            outs = c.importer.run_branch(c.graph(name), c, mark)
        except UnsupportedNodeError as why:
            c.importer.ask_value(pred)
            behind = " and ".join(map(repr, c.importer.inputs_behind(pred)))
            raise type(why)(
                f"{why}; this branch depends on data: for the other one, give {behind or 'its condition'} as "
                "constants={...}"
            ) from None
        branches.append(outs)
    results = []
    for one, other in zip(*branches, strict=True):
        if one.kind != other.kind or dtype_of(one.stored) != dtype_of(other.stored):
            raise UnsupportedNodeError("its branches return different types")
        if one.rank != other.rank:
            c.importer.ask_value(pred)
            raise UnsupportedNodeError(
                f"its branches return {one.rank} and {other.rank} axes, and the choice depends on data; give the "
                "condition as constants={...}"
            )
        merge = P.CondExecMerge(nr_output=1, mode=P.CondExecMergeMode.EXACT_ONE)
        (merged,) = apply(
            "CondExecMerge", merge, inputs=[one.stored, other.stored], n=1, scalar=is_scalar(one.stored)
        )
        session = session_of(merged)
        if isinstance(session, TraceRecorder) and variable_of(merged) is not None:
            # Data choose between two shapes; while the graph is built, the first stands for both.
            session.recording.known.shapes[recorded_variable(merged).id] = stored_shape(one.stored)
        results.append(Value(one.kind, merged))
    return tuple(results)


def index_value(value: Value, axis: int, i: int) -> Value:
    """Return one entry of an axis, without the axis."""
    constant = value.constant()
    if constant is not None:
        return Value(value.kind, array=np.take(constant, i, axis))
    x = value.tensor
    at = i if i >= 0 else static_shape(x)[axis] + i
    return Value(value.kind, e.subtensor(x, [(axis, None, None, None, at)]))


def _stacked(values: Sequence[Value], axis: int) -> Value:
    """Stack values of one shape along a new axis."""
    if not values:
        raise UnsupportedNodeError("it has an output from no iterations, whose shape is unknown")
    constants = [v.constant() for v in values]
    if all(h is not None for h in constants):
        return Value(values[0].kind, array=np.stack([h for h in constants if h is not None], axis))
    axis = front(axis, values[0].rank + 1)
    parts = [e.add_axes(v.tensor, [axis]) for v in values]
    if e.is_bool(parts[0]):
        return Value(values[0].kind, cast(e.concat([cast(p, "uint8") for p in parts], axis), "bool"))
    return Value(values[0].kind, e.concat(parts, axis))


@lower("Loop", foldable=False)
def _loop(c: NodeCall) -> tuple[Any, ...]:
    body = c.graph("body")
    most = int(c.constant(0, "number of iterations").reshape(-1)[0]) if c.has(0) else None
    going: bool | None = True
    if c.has(1):
        going = _decided(c, c.value(1))
        if going is None:
            c.importer.ask_value(c.value(1).stored)
            raise UnsupportedNodeError(
                "whether it begins depends on data; give its condition as constants={...}"
            )
    state = list(c.inputs[2:])
    count = len(state)
    collected: list[list[Value]] = [[] for _ in body.outputs[1 + count :]]
    turn = 0
    shapes = [_shape_of_one(body, i) for i in (0, 1)]
    if going and takes_all_turns(body):
        _expect(c, body, _MOST_TURNS + 1 if most is None else most)
    while going and (most is None or turn < most):
        _within(turn + 1)
        count_and_go = (
            Value(INT64, array=np.full(shapes[0], turn)),
            Value(BOOL, array=np.full(shapes[1], True)),
        )
        outs = c.run_graph(body, [*count_and_go, *state])
        if isinstance(outs[0], list):
            raise UnsupportedNodeError("its condition is a sequence")
        going = _decided(c, outs[0])
        if going is None:
            c.importer.ask_value(outs[0].stored)
            behind = " and ".join(map(repr, c.importer.inputs_behind(outs[0].stored)))
            raise UnsupportedNodeError(
                "when it ends depends on data, and MegEngine's Loop cannot be stored; give "
                f"{behind or 'its condition'} as constants={{...}}"
            )
        state = list(outs[1 : 1 + count])
        for rows, value in zip(collected, outs[1 + count :], strict=True):
            if isinstance(value, list):
                raise UnsupportedNodeError("it collects sequences")
            rows.append(value)
        turn += 1
    if turn:
        return (*state, *(_stacked(rows, 0) for rows in collected))
    first = [Value(INT64, array=np.full(shapes[0], 0)), Value(BOOL, array=np.full(shapes[1], True)), *state]
    return (*state, *(_empty(c, body, 1 + count + i, first) for i in range(len(collected))))


def _within(turns: int) -> None:
    if turns > _MOST_TURNS:
        raise UnsupportedNodeError(f"it takes more than {_MOST_TURNS} iterations")


def _expect(c: NodeCall, body: GraphProto, turns: int) -> None:
    """Refuse more turns than can be unrolled, before the first."""
    _within(turns)
    c.importer.expect(max(turns, 0) * least_unrolled(body))


def _shape_of_one(body: GraphProto, i: int) -> tuple[int, ...]:
    """Return the shape that ONNX Runtime gives the count and the condition: with an axis if the body declares one."""
    declared = declared_shape(body.inputs[i]) if i < len(body.inputs) else None
    return (1,) if declared is not None and len(declared) == 1 else ()


def _empty(c: NodeCall, body: GraphProto, i: int, first: Sequence[Value | Items | None]) -> Value:
    """Build what a loop collects in no iterations: of the declared shape, or of scalars as the first one would be."""
    from ..tensors import HELD  # for start-up

    info = body.outputs[i].type
    tensor = info.tensor if info is not None else None
    if (
        tensor is not None
        and tensor.shape is not None
        and all(d.value is not None for d in tensor.shape.dims)
    ):
        shape = [0, *(int(d.value or 0) for d in tensor.shape.dims)]
        return Value(tensor.elem, array=np.zeros(shape, HELD.get(tensor.elem, np.float32)))
    one = c.run_graph(body, first)[i]
    if not isinstance(one, Value) or one.rank:
        raise UnsupportedNodeError("it has an output from no iterations, whose shape is unknown")
    return Value(one.kind, array=np.zeros(0, HELD.get(one.kind, np.float32)))


@lower("Scan", foldable=False)
def _scan(c: NodeCall) -> tuple[Any, ...]:
    body = c.graph("body")
    inputs = c.inputs[(1 if c.opset < 9 else 0) :]
    values: list[Value] = []
    for v in inputs:
        if not isinstance(v, Value):
            raise UnsupportedNodeError("an input is missing or a sequence")
        values.append(v)
    scanned = c.number("num_scan_inputs")
    if c.opset < 9:
        return _scan_batches(c, body, values, scanned)
    n = len(values) - scanned
    in_axes = c.ints("scan_input_axes") or [0] * scanned
    in_turned = c.ints("scan_input_directions") or [0] * scanned
    return tuple(_scanned(c, body, values, n, in_axes, in_turned))


def _scan_batches(c: NodeCall, body: GraphProto, values: list[Value], scanned: int) -> tuple[Any, ...]:
    """Lower version 8: axis 0 is a batch, each entry of which is scanned along its own first axis."""
    if c.has(0):
        raise UnsupportedNodeError("sequence lengths differ within a batch")
    values = [_of_length(v, 0) for v in values]
    batch = values[0].numbers[0]
    turned = c.ints("directions") or [0] * scanned
    n = len(values) - scanned
    rows = [
        _scanned(c, body, [index_value(v, 0, b) for v in values], n, [0] * scanned, turned)
        for b in range(batch)
    ]
    return tuple(_stacked(column, 0) for column in zip(*rows, strict=True))


def _of_length(value: Value, axis: int) -> Value:
    """Pin the size of a scanned axis; another size is an error at run time."""
    if value.constant() is not None or value.sizes is not None:
        return value
    return Value(value.kind, of_length(value.tensor, axis))


def _scanned(
    c: NodeCall, body: GraphProto, values: list[Value], n: int, in_axes: list[int], in_turned: list[int]
) -> list[Value]:
    state: list[Value | Items] = list(values[:n])
    inputs = values[n:]
    axes = [front(a, v.rank) for a, v in zip(in_axes, inputs, strict=True)]
    inputs = [_of_length(v, a) for v, a in zip(inputs, axes, strict=True)]
    turns = {v.numbers[a] for a, v in zip(axes, inputs, strict=True)}
    if len(turns) != 1:
        raise UnsupportedNodeError(f"the axes that it scans have the sizes {sorted(turns)}")
    count = turns.pop()
    _expect(c, body, count)
    collected: list[list[Value]] = [[] for _ in body.outputs[n:]]
    for turn in range(count):
        parts = [
            index_value(v, a, count - 1 - turn if back else turn)
            for v, a, back in zip(inputs, axes, in_turned, strict=True)
        ]
        outs = c.run_graph(body, [*state, *parts])
        state = outs[:n]
        for rows, value in zip(collected, outs[n:], strict=True):
            if isinstance(value, list):
                raise UnsupportedNodeError("it collects sequences")
            rows.append(value)
    out_axes = c.ints("scan_output_axes") or [0] * len(collected)
    out_turned = c.ints("scan_output_directions") or [0] * len(collected)
    result: list[Value] = [v for v in state if isinstance(v, Value)]
    for rows, axis, back in zip(collected, out_axes, out_turned, strict=True):
        result.append(_stacked(rows[::-1] if back else rows, axis))
    return result
