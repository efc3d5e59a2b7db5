"""Shapes that are values of the graph: sizes of inputs, and what is computed from them."""

from math import floor
from typing import Any

from ...arrays import creation
from ...arrays.array import TracedArray
from ...arrays.names import np
from ...layers import emit as e
from ...tensors import Tensor, TracedInt, active
from ...tensors.access import recorded_variable
from ..nodes import Subgraph
from ..operators import common, kernels, resizing, shapes
from . import Untraceable, instead, operand, traced
from .session import Session

__all__: list[str] = []

_FAR = 2**31 - 1


def _session() -> Session:
    session = active()
    assert isinstance(session, Session)
    return session


@instead(common.integers)
def integers(values: TracedArray) -> list[Any]:
    vector = operand(values.reshape(-1))
    return [
        _session().number(e.subtensor(vector, [(0, None, None, None, i)]))
        for i in range(int(vector.shape[0]))
    ]


@instead(shapes.positions)
def positions(values: TracedArray) -> list[Any]:
    # A part may begin and end where data say.
    return integers(values) if _session().sized(recorded_variable(values)) else [*values.reshape(-1)]


instead(kernels.broadcast_shapes)(lambda *shapes: e.broadcast_shape(shapes))


@instead("Reshape", since=5)
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    """Leave the size that follows from the others to the operator."""
    if allowzero or 0 in x.shape:
        return NotImplemented
    sizes = common.integers(shape)
    free = [not isinstance(n, TracedInt) and n == -1 for n in sizes]
    if free.count(True) != 1:
        return NotImplemented
    kept = [x.shape[i] if not isinstance(n, TracedInt) and n == 0 else n for i, n in enumerate(sizes)]
    return traced(x).reshape(kept)


@instead("Expand")
def expand(x: Any, shape: Any) -> Tensor:
    x = operand(x)
    return e.broadcast(x, e.broadcast_shape([x, common.integers(shape)]))


@instead("Range")
def counted(start: Any, limit: Any, delta: Any, *, stash_type: int = 1) -> Tensor:
    bounds = [
        _session().number(operand(v)) if isinstance(v, Tensor) else v.item() for v in (start, limit, delta)
    ]
    return creation.arange(*bounds, dtype=start.dtype)


@instead(shapes.cut)
def cut(start: Any, end: Any, step: int, n: Any) -> slice:
    if step < 0:
        ends = (
            isinstance(start, int) and isinstance(end, int) and (start == -1 or start >= _FAR) and end < -_FAR
        )
        if not ends or isinstance(start, TracedInt) or isinstance(end, TracedInt):
            raise Untraceable("it goes back from a position to another on an axis whose size is left open")
        return slice(None, None, step)
    if isinstance(start, Tensor) or isinstance(end, Tensor):
        # Data decide: no position is outside.
        start, end = (np.clip(np.where(v < 0, v + n, v), 0, n) for v in (start, end))
    elif not isinstance(start, TracedInt) and (start == 0 or start < -_FAR):
        start = None
    return slice(start, None if type(end) is int and end >= _FAR else end, step)


@instead(resizing.single)
def single(number: Any) -> Tensor:
    return operand(number, np.float32)


instead(resizing.scaled)(lambda size, scale: floor(size * float(np.float32(scale))))


@instead("If")
def if_(cond: Any, *captured: Any, then_branch: Subgraph, else_branch: Subgraph) -> Any:
    """Compute both branches where data decide, and select the values of one."""
    if not isinstance(cond, TracedArray) or _session().sized(recorded_variable(cond)):
        return NotImplemented
    pairs = zip(then_branch((), captured), else_branch((), captured), strict=True)
    return tuple(_selected(cond.reshape(()), a, b) for a, b in pairs)


def _selected(cond: Any, a: Any, b: Any) -> Any:
    shapes = [getattr(v, "shape", None) for v in (a, b)]
    if None in shapes or shapes[0] != shapes[1]:
        raise Untraceable(
            f"data decide between values of the shapes {shapes[0]} and {shapes[1]}, which no graph of MegEngine does"
        )
    return np.where(cond, a, b)
