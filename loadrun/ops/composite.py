"""Composite operators: the kernel, the rules and the cost of an operator that a function in numpy's names defines."""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from ..base.errors import OutOfMemoryError
from ..base.limits import memory_limit
from ..graph import Opr
from ..graph.composite import Composite, Native
from ..graph.dtypes import Array, DType, held_array, nbytes
from .numeric.special import broadcast_shapes
from .registry import Bound, Call, Shape, ShapeCall, UnknownShape, implementation, kernel

_PIECE = 1 << 14
"""Elements of a piece of a pointwise operator: several passes over so many stay in the cache."""
_CALLED, _MADE = 1 << 20, 1 << 24
"""Elements of inputs, and of what is made of them, up to which a function is called to learn shapes of results."""


def _composite(opr: Opr) -> Composite:
    params = opr.params[0]
    assert isinstance(params, Composite)
    return params


def _dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    return _composite(opr).types.outputs


def _shape(s: ShapeCall) -> Sequence[Shape | None]:
    p = _composite(s.opr)
    definition = p.definition
    if definition.pointwise and definition.shape is None:
        return (broadcast_shapes(*(s.shape(i) for i in range(len(s.shapes)))),)
    if definition.shape is None and not definition.views and sum(map(prod, filter(None, s.shapes))) > _CALLED:
        raise UnknownShape
    places = [i for i, here in enumerate(p.present) if here]
    args: list[Array] = []
    for i, (place, dtype) in enumerate(zip(places, s.inputs, strict=True)):
        if place in definition.known:
            value = s.values[i]
            if value is None:
                raise UnknownShape
            args.append(_plain(dtype, value))
        elif dtype.np.kind == "O":
            raise UnknownShape
        else:
            kind = np.float32 if dtype.name == "Float16" else dtype.np
            args.append(np.broadcast_to(np.zeros((), kind), s.shape(i)))
    with np.errstate(all="ignore"):
        if definition.shape is not None:
            return p.shapes(args)
        if not definition.views and _made(p, places, args) > _MADE:
            raise UnknownShape
        results = result_arrays(p, p.call(args))
    return [r.shape for r in results]


def _made(p: Composite, places: Sequence[int], args: Sequence[Array]) -> float:
    """Bound what a call makes of its inputs: broadcast together, and enlarged by every number that it is told."""
    told = [
        *p.attributes.values(),
        *(a for i, a in zip(places, args, strict=True) if i in p.definition.known),
    ]
    numbers = [x for x in map(np.asarray, told) if x.dtype.kind in "iuf"]
    aligned = zip_longest(*(a.shape[::-1] for a in args if isinstance(a, np.ndarray)), fillvalue=1)
    return prod(map(max, aligned)) * prod(float(np.prod(x[x > 1], dtype=np.float64)) for x in numbers)


def _check_size(c: Call, inputs: Sequence[Any]) -> None:
    """Refuse results that fit in no memory before there is an array of them.

    Raises:
        OutOfMemoryError: they do not fit.
    """
    p = _composite(c.opr)
    if p.definition.shape is None or p.definition.views or not p.definition.known:
        return
    limit = memory_limit()
    for shape, dtype in zip(p.shapes(inputs), c.outputs, strict=True):
        if (size := nbytes(shape, dtype)) > limit:
            raise OutOfMemoryError(
                f"it gives {dtype} {list(shape)}, {size / 2**30:.1f} GiB, "
                f"more than the {limit / 2**30:.1f} GiB of memory"
            )


def _plain(dtype: DType, value: Array) -> Any:  # noqa: ANN401 - a sequence is a list
    """Return a value as functions take it: halves as float32, what an Object holds."""
    if dtype.name == "Float16":
        return value.astype(np.float32)
    return value[()] if dtype.name == "Object" else value


def widened(c: Call, arrays: Sequence[Array]) -> list[Any]:
    """Return the inputs as functions take them."""
    return [_plain(d, a) for d, a in zip(c.inputs, arrays, strict=True)]


def result_arrays(p: Composite, result: Any) -> list[Array]:  # noqa: ANN401 - what a function returns
    """Return one array for every output; what is no array (a sequence, a map, nothing) in one without axes."""
    results = result if isinstance(result, tuple) else (result,)
    return [held_array(v, dtype) for v, dtype in zip(results, p.types.outputs, strict=False)]


_FLOAT = "Float32"


def native(
    opr: Opr, inputs: Sequence[DType], outputs: Sequence[DType], shapes: Sequence[Shape]
) -> Native | None:
    """Return the operator of MegEngine whose kernel computes a composite one at these shapes, None if none does."""
    p = opr.params[0] if opr.params else None
    if not isinstance(p, Composite) or p.definition.native is None or len(outputs) != 1:
        return None
    if any(d.name != _FLOAT for d in (*inputs, *outputs)):
        return None
    return p.definition.native(p, shapes)


def _flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    p = _composite(opr)
    types = [t for t in p.types.inputs if t is not None]
    operator = native(opr, types, p.types.outputs, inputs)
    if operator is None:
        cost = p.definition.flops
        return sum(map(prod, outputs)) if cost is None else cost(p, inputs, outputs[0])
    shapes = [operator.shapes.get(i, s) for i, s in enumerate(inputs)]
    twin = Opr(operator.type, operator.params, list(opr.inputs), list(opr.outputs))
    return implementation(operator.type).flops(twin, shapes, outputs)


def _bind(c: Call, s: ShapeCall) -> Bound | None:
    """Leave nothing but the function: sizes are in memory's limits, and all inputs are as it takes them."""
    p = _composite(c.opr)
    if not p.definition.domain and p.definition.name in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        try:
            shape = _shape(s)[0]
        except UnknownShape:
            return None
        assert shape is not None
        return lambda out, x, *rest: x.reshape(shape)
    if any(d.name in ("Float16", "Object") for d in (*c.inputs, *c.outputs)):
        return None
    return lambda out, *arrays: _results(c, p.call(arrays))


def _bind_pointwise(c: Call, s: ShapeCall) -> Bound | None:
    """Do the same where there are few numbers."""
    return None if any(prod(shape or ()) > _PIECE for shape in s.shapes) else _bind(c, s)


@kernel("Composite", "CompositeLayer", "CompositeSizes", dtype=_dtype, shape=_shape, flops=_flops, bind=_bind)
def composite(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
    """Call the function."""
    inputs = widened(c, arrays)
    _check_size(c, inputs)
    return _results(c, _composite(c.opr).call(inputs))


@kernel("CompositeRandom", dtype=_dtype, shape=_shape, flops=_flops)
def random_composite(c: Call, *arrays: Array) -> Array | tuple[Array, ...]:
    """Call the function with the run's random numbers."""
    return _results(c, _composite(c.opr).call(widened(c, arrays), stream=c.stream()))


def _results(c: Call, result: Any) -> Any:  # noqa: ANN401
    if isinstance(result, np.ndarray) and result.dtype == c.outputs[0].np:
        return result
    p = _composite(c.opr)
    outs = tuple(_typed(out, d) for out, d in zip(result_arrays(p, result), c.outputs, strict=True))
    return outs if len(outs) > 1 else outs[0]


def _typed(out: Array, dtype: DType) -> Array:
    """Round floats to the type of the result; other types must be right."""
    if out.dtype != dtype.np and out.dtype.kind == dtype.np.kind == "f":
        return out.astype(dtype.np)
    return out


@kernel("CompositePointwise", dtype=_dtype, shape=_shape, flops=_flops, bind=_bind_pointwise)
def pointwise(c: Call, *arrays: Array) -> Array:
    """Call the function on pieces that stay in the cache, since it goes over its numbers several times."""
    p = _composite(c.opr)
    call: Callable[..., Any] = p.call
    args = widened(c, arrays)
    shape = max((np.shape(a) for a in args), key=lambda s: (prod(s), len(s)))
    size = prod(shape)
    if size <= _PIECE or not all(_piecewise(a, shape) for a in args):
        return _typed(np.asarray(call(args)), c.outputs[0])
    out = c.reuse(shape)
    flat = [a.reshape(-1) if a.size == size else a.reshape(()) for a in args]
    target, into = out.reshape(-1), p.definition.writes_into and c.outputs[0].name != "Float16"
    for start in range(0, size, _PIECE):
        piece = slice(start, start + _PIECE)
        pieces = [a[piece] if a.ndim else a for a in flat]
        if into:
            call(pieces, out=target[piece])
        else:
            target[piece] = call(pieces)
    return out


def _piecewise(a: Array, shape: Shape) -> bool:
    return (a.size == 1 and a.ndim <= len(shape)) or (a.shape == shape and a.flags.c_contiguous)
