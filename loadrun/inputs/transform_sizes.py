"""The functions that an input_transform expression may call, and the sizes of results before they are computed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

__all__ = ["FUNCTIONS", "MAX_ELEMENTS", "METHODS", "NUMBERS", "Budget", "bound", "index_bound", "total"]

MAX_ELEMENTS = 2**26
"""Maximum elements of an array in an expression."""
_MAX_ALIVE = 2**30
"""Maximum bytes of live values, in addition to eight times the data."""
_MAX_WORK = 2**31
"""Maximum work of all operations in rough nanoseconds, in addition to `_WORK_A_NUMBER` per number of the data."""
_WORK_A_NUMBER = 512
_ELEMENT = 8
"""Work for an element that is computed or moved."""
_SORTED = frozenset(["argsort", "sort", "median", "percentile", "quantile"])
_MAX_PAD = 2**13

_BROADCAST = """
    abs absolute add arccos arcsin arctan arctan2 bitwise_and bitwise_or bitwise_xor cbrt ceil clip cos cosh divide
    equal exp exp2 expm1 fabs fix floor floor_divide fmax fmin fmod greater greater_equal hypot invert isfinite isinf
    isnan less less_equal log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum mod
    multiply nan_to_num negative not_equal positive power reciprocal remainder rint sign sin sinh sqrt square subtract
    tan tanh true_divide trunc where
"""
_ONE = """
    all amax amin any argmax argmin argsort around array_split ascontiguousarray asarray average copy
    count_nonzero cumprod cumsum diff
    expand_dims flip fliplr flipud max mean median min moveaxis nanmax nanmean nanmin nanstd nansum prod ptp ravel
    reshape roll rot90 round sort split squeeze std sum swapaxes transpose var zeros_like ones_like full_like
"""
_JOIN = "array concatenate dstack hstack stack vstack"
_OWN = "arange broadcast_to dot einsum eye full linspace matmul ones pad percentile quantile repeat take tile zeros"
_METHOD = """
    all any argmax argmin argsort astype clip copy cumprod cumsum dot flatten max mean min prod ravel repeat reshape
    round
    squeeze std sum swapaxes take transpose var
"""
_NUMBER = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_"
_JOINED = frozenset(_JOIN.split())
_LOOSE = frozenset(_BROADCAST.split())
NUMBERS = tuple(_NUMBER.split())
"""Number types of numpy that can be named and called."""
FUNCTIONS = frozenset((_BROADCAST + _ONE + _JOIN + " " + _OWN).split())
"""Names of numpy that can be called; each is an ordinary function of arrays that touches no file."""
METHODS = frozenset(_METHOD.split())
"""Methods of arrays that can be called."""


def total(value: object) -> int:
    """Count the numbers in an array, or in nested lists of arrays and numbers."""
    if isinstance(value, (tuple, list)):
        return sum(map(total, value))
    return int(value.size) if isinstance(value, np.ndarray) else 1


class Budget:
    """The limits of one application of an expression: bytes of the values alive at once, and work of all operations.

    Args:
        data: the array that the expression is applied to; both grow with it.
    """

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.alive = 0
        self.most_alive = _MAX_ALIVE + 8 * max(data.nbytes, 8 * data.size)
        self.work = _MAX_WORK + _WORK_A_NUMBER * data.size

    def spend(self, work: int) -> None:
        """Charge an operation to the budget before it is done.

        Raises:
            ValueError: nothing is left.
        """
        self.work -= work
        if self.work < 0:
            raise ValueError("the expression takes too many operations for the size of the data")

    def reserve(self, size: int) -> None:
        """Check that a result of that many bytes fits beside the values that are alive.

        Raises:
            ValueError: it does not.
        """
        if self.alive + size > self.most_alive:
            raise ValueError(
                f"the values of the expression would take more than {self.most_alive} bytes at once"
            )

    def keep(self, alive: int, value: object, *, new: bool) -> None:
        """Note that a node is evaluated: its value alone is added to the `alive` bytes before it."""
        self.alive = alive + (_bytes(value) if new else 0)


def _bytes(value: object) -> int:
    if isinstance(value, (tuple, list)):
        return 64 + sum(map(_bytes, value))
    return int(value.nbytes) if isinstance(value, np.ndarray) else 64


def bound(name: str, args: Sequence[Any], named: dict[str, Any], budget: Budget) -> None:
    """Check that a call's result cannot be too large, and pay for it.

    Args:
        name: function or method; a method's array is the first argument.
        args: positional arguments.
        named: keyword arguments.
        budget: what the expression may still take.

    Raises:
        ValueError: it would be, or the budget does not suffice, or a size is negative.
        TypeError: a size is not an integer, or arrays are in a list where one array is expected.
    """
    if name not in _JOINED and any(
        isinstance(v, (tuple, list)) and total(v) > 1000 for v in (*args, *named.values())
    ):
        raise TypeError("expected an array, such as np.array([...]) or np.stack([...])")
    if name in _LOOSE:
        size = math.prod(np.broadcast_shapes(*(np.shape(a) for a in (*args, *named.values()) if _sized(a))))
    else:
        size = _size(name, list(args), named)
    _limit(size)
    budget.reserve(8 * size)
    numbers = max(size, sum(map(total, args))) * (64 if name == "norm" else 1)
    budget.spend(_ELEMENT * numbers * (4 if name in _SORTED else 1) + _products(name, args))


def _limit(size: int) -> None:
    if size > MAX_ELEMENTS:
        shown = size if size < 2**63 else "more than 2**63"
        raise ValueError(f"the result would have {shown} elements; at most {MAX_ELEMENTS} are allowed")


def _sized(value: object) -> bool:
    return isinstance(value, (np.ndarray, list, tuple))


class _Arguments:
    """The arguments of a call."""

    def __init__(self, args: list[Any], named: dict[str, Any]) -> None:
        self.args = args
        self.named = named

    def get(self, index: int, *names: str, default: object = None) -> Any:  # noqa: ANN401 - whatever the expression says
        """Return an argument by its place or its names."""
        for n in names:
            if n in self.named:
                return self.named[n]
        return self.args[index] if index < len(self.args) else default

    @property
    def first(self) -> int:
        """Elements of the first argument."""
        return total(self.args[0]) if self.args else 0


def _size(name: str, args: list[Any], named: dict[str, Any]) -> int:
    arguments = _Arguments(args, named)
    if name in _SIZES:
        return _SIZES[name](arguments)
    if name.endswith("_like"):
        if len(args) > 3:
            raise TypeError(f"np.{name} takes at most 3 arguments here")
        return _element_count(named["shape"]) if "shape" in named else total(args)
    return sum(map(total, args)) + sum(map(total, named.values()))


def _eye(arguments: _Arguments) -> int:
    rows, columns = arguments.get(0, "N"), arguments.get(1, "M")
    return _element_count([rows, rows if columns is None else columns])


def _linspace(arguments: _Arguments) -> int:
    return _element_count([arguments.get(2, "num", default=50)]) * max(
        total(a) for a in arguments.args or [0]
    )


def _tiled(arguments: _Arguments) -> int:
    return _element_count(arguments.get(1, "reps", "repeats", default=1)) * arguments.first


def _repeated(arguments: _Arguments) -> int:
    times = np.ravel(arguments.get(1, "reps", "repeats", default=1)).tolist()
    return arguments.first * max(max(map(operator.index, times), default=0), 0)


def _quantiles(arguments: _Arguments) -> int:
    return arguments.first * total(arguments.get(1, "q", default=0)) if arguments.args else 0


def _element_count(shape: object) -> int:
    axes: list[Any] = np.ravel(shape).tolist() if isinstance(shape, (tuple, list, np.ndarray)) else [shape]
    sizes = [operator.index(n) for n in axes]
    if any(n < 0 for n in sizes):
        raise ValueError(f"an axis of {min(sizes)} elements")
    return math.prod(sizes)


def _steps(args: list[Any], named: dict[str, Any]) -> int:
    start, stop, step = ([*args, None, None, None])[:3]
    stop, step = named.get("stop", stop), named.get("step", step)
    if stop is None:
        start, stop = named.get("start", 0), start
    span = float(stop) - float(named.get("start", start))
    count = span / (1.0 if step is None else float(step))
    if not math.isfinite(count):
        raise ValueError("a range without an end")
    return max(0, math.ceil(count))


def _taken(args: list[Any], indices: object, axis: SupportsIndex | None) -> int:
    if axis is None:
        return total(indices)
    shape = np.shape(args[0])
    return total(args[0]) // max(1, shape[operator.index(axis)]) * total(indices)


def _matrix(args: list[Any]) -> int:
    one, two = (np.shape(a) for a in args[:2])
    if not one or not two:
        return total(args[0]) * total(args[1])
    inner = max(1, one[-1])
    return (math.prod(one) // inner) * (math.prod(two) // inner)


def _products(name: str, args: Sequence[Any]) -> int:
    """Work of a matrix product; only float32 and float64 have a library for it."""
    if name == "einsum":
        return 2 * _contracted(args)[1]
    if name not in ("dot", "matmul") or len(args) < 2:
        return 0
    inner = max(1, (np.shape(args[0]) or (1,))[-1])
    fast = all(isinstance(a, np.ndarray) and a.dtype.kind == "f" and a.itemsize > 2 for a in args[:2])
    return _matrix(list(args)) * inner // (8 if fast else 1) * (1 if fast else 2)


def _contracted(args: Sequence[Any]) -> tuple[int, int]:
    """Return the elements of np.einsum's result, and the products that are summed for it.

    Raises:
        TypeError: the first argument is not text of subscripts, or it does not fit the others.
    """
    text = str(args[0]).replace(" ", "") if args and isinstance(args[0], str) else ""
    terms, arrow, out = text.partition("->")
    parts = terms.split(",")
    if not text or [len(p) for p in parts] != [np.ndim(a) for a in args[1:]]:
        raise TypeError("np.einsum takes subscripts such as 'ij,jk->ik' and an array for each of them")
    sizes = {c: n for p, a in zip(parts, args[1:], strict=True) for c, n in zip(p, np.shape(a), strict=True)}
    kept = out if arrow else "".join(c for c in sizes if terms.count(c) == 1)
    if any(c not in sizes for c in kept):
        raise TypeError(f"np.einsum: {kept!r} has a subscript that no array has")
    return math.prod(sizes[c] for c in kept), math.prod(sizes.values())


def _padded(args: list[Any], width: object) -> int:
    shape = np.shape(args[0])
    widths = np.broadcast_to(np.asarray(width, np.int64), (len(shape), 2)).tolist()
    if any(n > _MAX_PAD for pair in widths for n in pair):
        raise ValueError(f"at most {_MAX_PAD} elements can be padded at an end")
    return math.prod(n + sum(pair) for n, pair in zip(shape, widths, strict=True))


def index_bound(shape: tuple[int, ...], index: object, budget: Budget) -> None:
    """Check that indexing an array of that shape by arrays or lists of numbers does not give too much.

    Raises:
        ValueError: it would.
    """
    items = index if isinstance(index, tuple) else (index,)
    axes = [i for i in items if i is not None]
    picked: list[tuple[int, ...]] = []
    kept = math.prod(shape)
    position = 0
    for after, item in enumerate(axes, 1):
        if isinstance(item, (bool, np.bool_)):
            raise ValueError("a single truth value is not an index")
        if item is Ellipsis:
            position = len(shape) - sum(1 if not _mask(i) else np.ndim(i) for i in axes[after:])
        elif _mask(item):
            position += np.ndim(item)
        else:
            if isinstance(item, (np.ndarray, list, tuple)) and position < len(shape):
                picked.append(np.shape(item))
                kept //= max(1, shape[position])
            position += 1
    if picked:
        size = kept * math.prod(np.broadcast_shapes(*picked))
        _limit(size)
        budget.reserve(8 * size)
        budget.spend(_ELEMENT * size)


def _mask(item: object) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


_SIZES: dict[str, Callable[[_Arguments], int]] = {
    **dict.fromkeys(("zeros", "ones", "full"), lambda g: _element_count(g.get(0, "shape"))),
    **dict.fromkeys(("percentile", "quantile"), _quantiles),
    **dict.fromkeys(("dot", "matmul"), lambda g: _matrix(g.args)),
    "einsum": lambda g: _contracted(g.args)[0],
    "broadcast_to": lambda g: _element_count(g.get(1, "shape")),
    "eye": _eye,
    "linspace": _linspace,
    "arange": lambda g: _steps(g.args, g.named),
    "tile": _tiled,
    "repeat": _repeated,
    "take": lambda g: _taken(g.args, g.get(1, "indices"), g.get(2, "axis")),
    "pad": lambda g: _padded(g.args, g.get(1, "pad_width", default=0)),
}
"""Return how many elements a function produces, if that differs from its input."""
