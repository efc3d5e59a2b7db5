"""numpy's protocols: which lowering stands for which numpy function.

numpy hands over the call of every ufunc (``__array_ufunc__``) and of most functions (``__array_function__``) that
has a tensor among its arguments. A lowering registers itself with `lowers` for the function that it stands for, and
takes that function's arguments; arguments that it does not have are refused. What it returns as plain tensors
becomes an `Array`, or a MegEngine-like Tensor where no `Array` was among the arguments.
"""

from __future__ import annotations

import difflib
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from ..errors import TraceError
from ..imperative import Tensor
from ..imperative.source import here
from . import emit as e
from .promotion import loop, narrow, operand, weak

__all__ = ["lower_function", "lower_ufunc", "lowers", "refused", "registered", "table", "ufunc", "user_line"]

F = TypeVar("F", bound=Callable[..., Any])
_FAMILIES = (
    "arithmetic",
    "math",
    "logic",
    "reductions",
    "nan",
    "sorting",
    "manipulation",
    "joining",
    "selection",
    "products",
    "linalg",
    "einsum",
    "creation",
    "series",
    "statistics",
    "miscellaneous",
)
_FUNCTIONS: dict[Any, Callable[..., Any]] = {}
_SIGNATURES: dict[Any, inspect.Signature] = {}
_FAMILY: dict[Any, str] = {}
_UFUNCS: dict[np.ufunc, tuple[Callable[..., Any], str, str]] = {}
_TABLE: list[tuple[str, Sequence[str], str]] = []
_METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {}

_WAY_OUT = (
    "compute it outside the traced function and pass the result in, or leave the region out of the trace with "
    "loadrun.jit.exclude_from_trace()"
)


# Registration


def lowers(*names: str) -> Callable[[F], F]:
    """Register a lowering for numpy functions of these names (``concatenate``, ``linalg.inv``).

    Names that this version of numpy does not have are skipped.
    """

    def register(func: F) -> F:
        _TABLE.append((func.__module__.rpartition(".")[2], names, func.__doc__ or ""))
        for name in names:
            target: Any = np
            for part in name.split("."):
                target = getattr(target, part, None)
            if target is None:
                continue
            _FUNCTIONS[target] = func
            _SIGNATURES[target] = inspect.signature(func)
            _FAMILY[target] = func.__module__.rpartition(".")[2]
        return func

    return register


def ufunc(*names: str, loop: str = "auto", method: str = "", uint16: str = "int32") -> Callable[[F], F]:
    """Register what a ufunc computes on tensors of one dtype, or one of its methods.

    Args:
        names: the ufuncs.
        loop: the dtype in which it computes: "auto" is the result's where that is a float, else the operands'
            common one; "common" always the common one, "bool" the truth of the operands, "given" the operands as
            they are.
        method: a method of the ufunc, whose arguments the lowering takes as they are.
        uint16: the dtype that stands for uint16, which MegEngine's elementwise kernels do not know: int16 where
            only the low bits count and int32 would not hold the result.
    """

    def register(func: F) -> F:
        _TABLE.append(
            (
                func.__module__.rpartition(".")[2],
                [n + "." * bool(method) + method for n in names],
                func.__doc__ or "",
            )
        )
        for name in names:
            target = getattr(np, name, None)
            if not isinstance(target, np.ufunc):
                continue
            if method:
                _METHODS[target, method] = func
            else:
                _UFUNCS[target] = func, loop, uint16
            _FAMILY.setdefault(target, func.__module__.rpartition(".")[2])
        return func

    return register


@cache
def _load() -> None:
    for family in _FAMILIES:
        import_module(f"{__package__}.{family}")


def registered() -> dict[str, list[str]]:
    """Names of the lowered numpy functions, by family."""
    _load()
    found: dict[str, list[str]] = {f: [] for f in _FAMILIES}
    for target, family in _FAMILY.items():
        found[family].append(_name(target))
    for (target, method), _ in _METHODS.items():
        found[_FAMILY[target]].append(f"{_name(target)}.{method}")
    return {f: sorted(set(names)) for f, names in found.items()}


def table() -> list[tuple[str, Sequence[str], str]]:
    """Family, names and description of every lowering, also of names that this version of numpy does not have."""
    _load()
    return sorted(_TABLE, key=lambda row: _FAMILIES.index(row[0]))


def _name(target: Any) -> str:
    module = getattr(target, "__module__", None) or "numpy"
    prefix = "np.linalg" if module.startswith("numpy.linalg") else "np"
    return f"{prefix}.{target.__name__}"


# Errors


def user_line() -> str:
    """The innermost line of the running code that is neither loadrun's nor numpy's, with its text."""
    path, number = here()
    text = linecache.getline(path, number).strip()
    return f"{path}:{number}" + (f": {text}" if text else "")


def refused(what: str, why: str = "", way_out: str = "") -> TraceError:
    """The error for code that cannot be recorded: what it is, where it stands in the user's code, what to do."""
    return TraceError(f"{what}{': ' + why if why else ''}\n  in {user_line()}\n  {way_out or _WAY_OUT}")


_HINTS = {
    "np.unique": "the number of results depends on the data",
    "np.fft": "MegEngine has no complex arithmetic; multiply by a constant matrix of cosines",
    "np.vectorize": "write the function with whole-array operations",
    "np.apply_along_axis": "write the function with whole-array operations and an axis",
    "np.save": "return the array and save it outside",
}


def _unknown(name: str, all_names: Iterable[str]) -> TraceError:
    hint = next((text for key, text in _HINTS.items() if name.startswith(key)), "")
    near = difflib.get_close_matches(name, list(all_names), 3, 0.6)
    why = f"{name} has no lowering to MegEngine's operators" + (f" ({hint})" if hint else "")
    also = f"use {' or '.join(near)}, or " if near else ""
    return refused("cannot trace this call", why, also + _WAY_OUT)


# Functions


def _all_tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _all_tensors(value)
        elif isinstance(value, dict):
            yield from _all_tensors(value.values())


def _wrapped(result: Any, arrays: bool, inputs: Sequence[Tensor]) -> Any:
    """Results as the caller's kind of array; what is one already stays."""
    from .array import Array

    if isinstance(result, Array):
        return result
    if isinstance(result, Tensor):
        if arrays:
            return Array._around(result, ordered=_ordered(inputs), scalar=result._scalar)
        fresh = result._session is not None and not any(result is x for x in inputs)
        return result if fresh else result._frozen()
    if isinstance(result, (list, tuple)):
        parts = [_wrapped(v, arrays, inputs) for v in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _ordered(inputs: Sequence[Tensor]) -> bool:
    from .array import Array

    return all(x._cell.ordered for x in inputs if isinstance(x, Array))


def store(out: Any, result: Any, where: Any = None) -> Any:
    """Write a result into the array that the caller gave for it.

    Raises:
        TypeError: numpy would not convert the result's dtype to the array's.
        TraceError: the array is no traced one.
    """
    from .array import Array

    if not isinstance(out, Tensor):
        raise refused(
            f"out= and in-place operators cannot write into an {type(out).__name__} of the caller",
            "its contents would be constants of the graph",
            "make it inside the function from a traced array: np.zeros_like(x), np.zeros(shape, like=x), x.copy()",
        )
    value = e.cast(operand(result), out._dtype)
    if not np.can_cast(result._dtype.np, out._dtype.np, "same_kind"):
        raise TypeError(
            f"Cannot cast output from {result._dtype.np!r} to {out._dtype.np!r} with casting rule 'same_kind'"
        )
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
    if isinstance(out, Array):
        return out._written(value)
    out._reset(value)
    return out


def lower_function(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record a numpy function; what ``__array_function__`` hands over.

    Raises:
        TraceError: it has no lowering, or not for these arguments.
    """
    from .array import Array

    _load()
    lowering = _FUNCTIONS.get(func)
    if lowering is None:
        raise _unknown(_name(func), map(_name, _FAMILY))
    given = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    try:
        bound = _SIGNATURES[func].bind(*args, **given)
    except TypeError as error:
        raise refused(f"cannot trace this call of {_name(func)}", f"{error} in its lowering") from None
    out = bound.arguments.pop("out", None)
    inputs = [*_all_tensors(bound.arguments.values())]
    result = lowering(*bound.args, **bound.kwargs)
    arrays = not inputs or any(isinstance(x, Array) for x in inputs)
    if out is not None:
        return store(out, result)
    return _wrapped(result, arrays, inputs)


# Ufuncs


def lower_ufunc(target: np.ufunc, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Record a ufunc or one of its methods; what ``__array_ufunc__`` hands over.

    Raises:
        TraceError: it has no lowering, or not for these arguments.
        TypeError: numpy has no loop for these dtypes.
    """
    from .array import Array

    _load()
    tensors = [*_all_tensors((*inputs, *kwargs.values()))]
    arrays = any(isinstance(x, Array) for x in tensors)
    if method != "__call__":
        found = _METHODS.get((target, method))
        if found is None:
            names = (f"{_name(u)}.{m}" for u, m in _METHODS)
            raise _unknown(f"{_name(target)}.{method}", (*names, *map(_name, _FAMILY)))
        return _called_method(target, method, found, inputs, kwargs, arrays, tensors)
    if target not in _UFUNCS:
        raise _unknown(_name(target), map(_name, _FAMILY))
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
    given = {k: v for k, v in kwargs.items() if v is not np._NoValue}
    out = given.pop("out", None)
    if given.get("where") is True:
        del given["where"]
    try:
        inspect.signature(lowering).bind(target, *inputs, **given)
    except TypeError as error:
        raise refused(f"cannot trace this call of {_name(target)}.{method}", str(error)) from None
    result = lowering(target, *inputs, **given)
    if out is not None:
        return store(out[0], result)
    return _wrapped(result, arrays, tensors)


def apply_ufunc(target: np.ufunc, values: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a ufunc computes, as plain tensors: promoted, lowered, and given the dtype that numpy gives."""
    extra = set(kwargs) - {"out", "where", "dtype", "casting", "order", "subok"}
    if extra:
        raise refused(f"cannot trace {_name(target)} with {', '.join(sorted(extra))}=")
    lowering, kind, instead = _UFUNCS[target]
    values = [_plain_list(v) for v in values]
    if target.nin > 1 and target.signature is None:
        e.broadcast_shape([np.shape(v) if not isinstance(v, Tensor) else e.sizes(v) for v in values])
    both, gives = loop(target, values)
    if kwargs.get("dtype") is not None:
        both = np.dtype(kwargs["dtype"])
        gives = tuple(both for _ in gives)
    if kind == "given":
        result = lowering(*(operand(v) for v in values))
    else:
        into = np.dtype(np.bool_) if kind == "bool" else both
        if gives[0].kind == "b" and into.kind in "iu" and _beyond(values, narrow(into)):
            # A comparison with a number that the array's dtype cannot hold has an answer all the same.
            into = np.dtype(np.float64)
        if kind == "auto" and gives[0].kind == "f":
            into = gives[0]
        result = _in_loop(lowering, values, narrow(into), instead)
    if isinstance(result, tuple):
        return tuple(e.cast(r, narrow(g)) for r, g in zip(result, gives, strict=True))
    return e.cast(result, narrow(gives[0]))


def _beyond(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return any(weak(v) and not limits.min <= v <= limits.max for v in values)


def _in_loop(lowering: Callable[..., Any], values: Sequence[Any], dtype: np.dtype[Any], instead: str) -> Any:
    if dtype == np.uint16:
        return lowering(*(e.cast(operand(v, dtype), instead) for v in values))
    return lowering(*(operand(v, dtype) for v in values))


def _plain_list(value: Any) -> Any:
    """A nested list that holds tensors as one tensor."""
    if isinstance(value, (list, tuple)) and next(_all_tensors(value), None) is not None:
        from .joining import stacked

        return stacked(value)
    return value
