"""numpy's protocols: what happens when a numpy function is called with a tensor.

numpy hands over the call of every ufunc (``__array_ufunc__``) and of most functions (``__array_function__``) that
has a tensor among its arguments. Arguments that a lowering does not have are refused. What it returns as plain tensors
becomes a `TracedArray`, or a MegEngine-like Tensor where no `TracedArray` was among the arguments.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.errors import TraceError
from ..layers import emit as e
from ..tensors import Tensor, active
from ..tensors.access import dtype_of, is_scalar, session_of, snapshot, static_shape
from ..tensors.naming import WAY_OUT, refused
from ..tensors.switches import is_exact
from .array import TracedArray
from .promotion import all_tensors, list_as_tensor, loop, narrow, operand, weak
from .registry import FUNCTIONS, METHODS, UFUNCS, name_of, names


def apply_ufunc(target: np.ufunc, values: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a ufunc computes, as plain tensors: promoted, lowered, and given the dtype that numpy gives."""
    extra = set(kwargs) - {"out", "where", "dtype", "casting", "order", "subok"}
    if extra:
        raise refused(f"cannot trace {name_of(target)} with {', '.join(sorted(extra))}=")
    lowering, kind, instead, _ = UFUNCS[target]
    key = None if kwargs else _key(target, values)
    plan = _PLANS.get(key) if key is not None else None
    if plan is None:
        values = [list_as_tensor(v) for v in values]
        plan = _planned(target, kind, values, kwargs)
        if key is not None and len(_PLANS) < _MOST:
            _PLANS[key] = plan
    into, gives = plan
    operands = [operand(v, into) for v in values]
    if into == np.uint16:
        operands = [e.cast(x, instead) for x in operands]
    result = lowering(*operands)
    if isinstance(result, tuple):
        return tuple(e.cast(r, g) for r, g in zip(result, gives, strict=True))
    return e.cast(result, gives[0])


_Plan = tuple["np.dtype[Any] | None", tuple["np.dtype[Any]", ...]]
"""The dtype that operands are converted to, None if they stay as they are, and those of the results."""
_PLANS: dict[Any, _Plan] = {}
_MOST = 4096
"""So many plans are kept."""
_NUMBERS = (bool, int, float)


def _key(target: np.ufunc, values: Sequence[Any]) -> Any:
    """Return what the plan of a call follows from; None if that is more than dtypes, shapes and numbers."""
    key: list[Any] = [target, is_exact()]
    # Shapes only where they are checked, since reading one may mean computing it.
    shaped = target.nin > 1 and target.signature is None
    for v in values:
        if isinstance(v, Tensor):
            key += (dtype_of(v), static_shape(v) if shaped else None)
        elif isinstance(v, np.ndarray):
            key += (v.dtype, v.shape)
        elif type(v) in _NUMBERS:
            key += (type(v), v)
        else:
            return None
    return tuple(key)


def _planned(target: np.ufunc, kind: str, values: Sequence[Any], kwargs: Mapping[str, Any]) -> _Plan:
    """Check the operands against each other, and promote as numpy does."""
    if target.nin > 1 and target.signature is None:
        e.broadcast_shape([np.shape(v) if not isinstance(v, Tensor) else e.sizes(v) for v in values])
    both, gives = loop(target, values)
    if kwargs.get("dtype") is not None:
        both = np.dtype(kwargs["dtype"])
        gives = tuple(both for _ in gives)
    if kind == "given":
        return None, tuple(map(narrow, gives))
    into = np.dtype(np.bool_) if kind == "bool" else both
    if gives[0].kind == "b" and into.kind in "iu" and _beyond(values, narrow(into)):
        # A comparison with a number outside the array's dtype still has an answer.
        into = np.dtype(np.float64)
    if kind == "auto" and gives[0].kind == "f":
        into = gives[0]
    return narrow(into), tuple(map(narrow, gives))


def _beyond(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return any(weak(v) and not limits.min <= v <= limits.max for v in values)


_HINTS = {
    "np.unique": "the number of results depends on the data",
    "np.fft": "MegEngine has no complex arithmetic; multiply by a constant matrix of cosines",
    "np.vectorize": "write the function with whole-array operations",
    "np.apply_along_axis": "write the function with whole-array operations and an axis",
    "np.sliding_window_view": "take windows by index: x[:, np.arange(count)[:, None] * step + np.arange(size)]",
    "np.save": "return the array and save it outside",
}


_OF_TENSORS = frozenset(
    getattr(np, name)
    for name in (
        *"all amax amin any argmax argmin argsort around clip cumsum max mean min".split(),
        *"nonzero prod repeat reshape round squeeze sum swapaxes take transpose var".split(),
        *"array_split dsplit flip fliplr flipud hsplit moveaxis split vsplit".split(),
        *("copyto", "put_along_axis", "ndim", "shape", "size"),
    )
)
"""The functions that call a method of their argument, slice it or write to it, so that a plain tensor gives tensors.
All others give ndarrays outside of a trace, as they do for MegEngine's tensors."""


def _unknown(name: str) -> TraceError:
    hint = next((text for key, text in _HINTS.items() if name.startswith(key)), "")
    # Names that resemble each other by their letters alone (unique, square) have nothing to do with each other.
    bare = name.rpartition(".")[2]
    related = [
        n for _, n in names() if bare in (last := n.rpartition(".")[2]) or (len(last) > 2 and last in bare)
    ]
    near = difflib.get_close_matches(name, related, 3, 0.6)
    why = f"{name} has no lowering to MegEngine's operators" + (f" ({hint})" if hint else "")
    also = f"use {' or '.join(near)}, or " if near else ""
    return refused("cannot trace this call", why, also + WAY_OUT)


# Functions


def _wrapped(result: Any, arrays: bool, inputs: Sequence[Tensor]) -> Any:
    """Return results as the caller's kind of array; what is one already stays."""
    if isinstance(result, TracedArray):
        return result
    if isinstance(result, Tensor):
        if arrays:
            ordered = all(x._cell.ordered for x in inputs if isinstance(x, TracedArray))
            return TracedArray._around(result, ordered=ordered, scalar=is_scalar(result))
        fresh = session_of(result) is not None and not any(result is x for x in inputs)
        return result if fresh else snapshot(result)
    if isinstance(result, (list, tuple)):
        parts = [_wrapped(v, arrays, inputs) for v in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def store(out: Any, result: Any, where: Any = None) -> Any:
    """Write a result into the array that the caller gave for it.

    Raises:
        TypeError: numpy would not convert the result's dtype to the array's.
        TraceError: the array is not a traced one.
    """
    if not isinstance(out, Tensor):
        raise refused(
            f"out= and in-place operators cannot write into an {type(out).__name__} of the caller",
            "its contents would be constants of the graph",
            "make it inside the function from a traced array: np.zeros_like(x), np.zeros(shape, like=x), x.copy()",
        )
    value = e.cast(operand(result), dtype_of(out))
    made, stored = dtype_of(result).np, dtype_of(out).np
    # Int32 may be what numpy has as uint32 or uint64.
    if not np.can_cast(made, stored, "same_kind") and not (made == np.int32 and stored.kind == "u"):
        raise TypeError(f"Cannot cast output from {made!r} to {stored!r} with casting rule 'same_kind'")
    want = e.sizes(out)
    if e.sizes(value) != want:
        if e.broadcast_shape([e.sizes(value), want]) != want:
            raise ValueError(
                f"non-broadcastable output operand with shape {want} doesn't match the broadcast shape "
                f"{e.sizes(value)}"
            )
        value = e.broadcast(value, out.shape)
    if where is not None:
        value = e.where(where, value, operand(out))
    if isinstance(out, TracedArray):
        return out._written(value)
    out.set_value(value)
    return out


def lower_function(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record a numpy function; what ``__array_function__`` hands over.

    Raises:
        TraceError: it has no lowering, or not for these arguments.
    """
    if func not in FUNCTIONS and func.__module__ == "numpy":
        # With like= numpy before 1.25 hands over the function beneath that of its name.
        func = getattr(np, func.__name__, func)
    how = FUNCTIONS.get(func)
    if how is None:
        raise _unknown(name_of(func))
    keywords = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    out = None
    if not _fits(func, len(args), tuple(keywords)):
        try:
            bound = how.signature.bind(*args, **keywords)
        except TypeError as error:
            raise refused(f"cannot trace this call of {name_of(func)}", f"{error} in its lowering") from None
        out = bound.arguments.pop("out", None)
        args, keywords = bound.args, bound.kwargs
    inputs = [*all_tensors((*args, *keywords.values()))]
    result = how.function(*args, **keywords)
    arrays = not inputs or any(isinstance(x, TracedArray) for x in inputs)
    if out is not None:
        return store(out, result)
    output = _wrapped(result, arrays, inputs)
    if how.arrays and isinstance(output, TracedArray):
        output._cell.scalar = False
    return output


@lru_cache(maxsize=1024)
def _fits(func: Any, count: int, names: tuple[str, ...]) -> bool:
    """Return whether a function takes this many positional arguments and keywords of these names, except `out`."""
    try:
        bound = FUNCTIONS[func].signature.bind(*range(count), **dict.fromkeys(names))
    except TypeError:
        return False
    return "out" not in bound.arguments


# Ufuncs


def lower_ufunc(target: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record a ufunc or one of its methods; what ``__array_ufunc__`` hands over.

    Raises:
        TraceError: it has no lowering, or not for these arguments.
        TypeError: numpy has no loop for these dtypes.
    """
    tensors = [*all_tensors((*inputs, *kwargs.values()))]
    arrays = any(isinstance(x, TracedArray) for x in tensors)
    if method != "__call__":
        lowering = METHODS.get((target, method))
        if lowering is None:
            raise _unknown(f"{name_of(target)}.{method}")
        return _called_method(target, method, lowering.function, inputs, kwargs, arrays, tensors)
    if target not in UFUNCS:
        raise _unknown(name_of(target))
    outs = kwargs.get("out", ())
    result = apply_ufunc(target, inputs, kwargs)
    if any(o is not None for o in outs):
        results = result if isinstance(result, tuple) else (result,)
        mask = kwargs.get("where", True)
        where = None if mask is True else operand(mask, np.bool_)
        done = [
            store(o, r, where) if o is not None else _wrapped(r, arrays, tensors)
            for o, r in zip(outs, results, strict=True)
        ]
        return done[0] if len(done) == 1 else tuple(done)
    return _wrapped(result, arrays, tensors)


def _called_method(
    target: np.ufunc,
    method: str,
    lowering: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    arrays: bool,
    tensors: Sequence[Tensor],
) -> Any:
    keywords = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    out = keywords.pop("out", None)
    if keywords.get("where") is True:
        del keywords["where"]
    try:
        inspect.signature(lowering).bind(target, *inputs, **keywords)
    except TypeError as error:
        raise refused(f"cannot trace this call of {name_of(target)}.{method}", str(error)) from None
    result = lowering(target, *inputs, **keywords)
    if out is not None:
        return store(out[0], result)
    return _wrapped(result, arrays, tensors)


# Entry points of tensors


def array_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any], /) -> Any:
    """Compute or record a ufunc, or one of its methods, with a tensor among its arguments."""
    try:
        return lower_ufunc(ufunc, method, inputs, kwargs)
    except TraceError:
        if active() is not None:
            raise
    # Nothing needs to be recorded, so numpy itself can answer.
    return getattr(ufunc, method)(*_as_ndarrays(inputs), **_as_ndarrays(kwargs))


def array_function(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], /) -> Any:
    """Compute or record any other function of numpy with a tensor among its arguments."""
    if active() is None and func not in _OF_TENSORS and not _holds_array(args, kwargs):
        return func(*_as_ndarrays(args), **_as_ndarrays(kwargs))
    try:
        return lower_function(func, args, kwargs)
    except TraceError:
        if active() is not None:
            raise
    return func(*_as_ndarrays(args), **_as_ndarrays(kwargs))


def _holds_array(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a `TracedArray` is among the arguments, or a tensor to write to."""
    return isinstance(kwargs.get("out"), Tensor) or any(
        isinstance(x, TracedArray) for x in all_tensors((*args, *kwargs.values()))
    )


def _as_ndarrays(value: Any) -> Any:
    """Put ndarrays in the place of tensors."""
    if isinstance(value, Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {k: _as_ndarrays(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_ndarrays, value)) if type(value) in (list, tuple) else value
    return value
