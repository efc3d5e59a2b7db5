"""numpy's views in a trace.

A graph's values never change, numpy's arrays do, and several arrays may share one memory. A `MemoryCell` is such a
memory or a part of it: a root holds the value, a view knows how to read its part out of its parent's value and how to
rebuild the parent's value when the part is assigned to. So a write through a view shows in its base and vice versa,
as in numpy.

Whether `reshape` and `ravel` give a view depends on the memory layout. It is tracked as far as it is certain; where
it is not, or depends on the sizes, the result is a copy, and writing to one side and then reading the other is an
error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..base.errors import TraceError
from ..graph.dtypes import Array as NDArray
from ..layers import emit as e
from ..tensors import Tensor, TracedInt
from ..tensors.access import recorded_variable, session_of, variable_of
from ..tensors.naming import here, shown
from ..tensors.other_sizes import at_other_sizes

# Memory layouts: whether numpy reshapes an array to a view, and whether it would do so at other sizes as well.
#
# A trace sees an array at one set of sizes, its graph runs at others. Whether ``reshape`` shares memory
# follows from sizes and strides, so the question is asked again for arrays that are strides alone: of sizes
# that have nothing in common, and of sizes that coincide with each other and with the numbers of the program.
# An answer that is the same in all of them is certain. Axes that become 1 only at such sizes are left out:
# nearly any reshape of them is a view.

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)
_EQUAL = 61
_LARGEST_FACTOR = 10_000
_LARGEST_ARRAY = 1 << 62


class UnknownLayoutError(Exception):
    """An array's layout at other sizes is not known."""


def is_view(array: NDArray, shape: Sequence[int]) -> bool:
    """Return whether ``array.reshape(shape)`` can be a view: runs of axes that lie evenly in memory cover both shapes.

    >>> x = np.empty((3, 4))
    >>> is_view(x[:, ::2], (3, 2, 1)), is_view(x.T, (12,))
    (True, False)
    """
    if prod(array.shape) == 0 or array.flags.c_contiguous:
        return True
    old = [(n, s) for n, s in zip(array.shape, array.strides, strict=True) if n != 1]
    new = [n for n in shape if n != 1]
    i = j = 0
    while i < len(old) and j < len(new):
        i_end, j_end, left, right = i + 1, j + 1, old[i][0], new[j]
        while left != right:
            if left < right:
                left *= old[i_end][0]
                i_end += 1
            else:
                right *= new[j_end]
                j_end += 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(i, i_end - 1)):
            return False
        i, j = i_end, j_end
    return True


class OtherSizes:
    """Sizes that a trace's arrays might have in another call.

    Args:
        factor: what all of them are multiples of.
        chosen: sizes by the running number of what is free; the others are primes times `factor`.

    Attributes:
        free: how many sizes were chosen so far.
        constants: the numbers of the program that were met.
    """

    def __init__(self, factor: int = 1, chosen: dict[int, int] | None = None) -> None:
        self.free = 0
        self.constants: set[int] = set()
        self._factor = factor
        self._chosen = chosen or {}
        self._known: dict[Hashable, int] = {}

    def root(self, value: Tensor, ndim: int) -> NDArray:
        """Return an array in C order for a value that is a memory of its own."""
        return self.noted(value, _dense([self._fresh() for _ in range(ndim)]))

    def noted(self, value: Tensor | None, array: NDArray) -> NDArray:
        """Remember that a value has the sizes of an array, and return the array."""
        if value is not None and variable_of(value) is not None:
            for axis, n in enumerate(array.shape):
                self._known.setdefault((recorded_variable(value).id, axis), n)
        return array

    def reshaped(self, array: NDArray, shape: Sequence[int]) -> NDArray:
        """Return any array in C order of such a shape; sizes that nothing is known of are free."""
        sizes = [-1 if n == -1 else self._or_fresh(n) for n in shape]
        rest = prod(n for n in sizes if n != -1)
        last = array.size // rest if rest and array.size % rest == 0 else None
        return _dense([(last or self._fresh()) if n == -1 else n for n in sizes])

    def number(self, value: int) -> int:
        """Return a size or bound of the program.

        Raises:
            UnknownLayoutError: what it would be is not known.
        """
        if not isinstance(value, TracedInt):
            self.constants.add(abs(int(value)))
            return int(value)
        if id(value) in self._known:
            return self._known[id(value)]
        size = at_other_sizes(value, self._size)
        if size is None:
            raise UnknownLayoutError
        return size

    def _size(self, x: Tensor, axis: int) -> int | None:
        return None if recorded_variable(x) is None else self._known.get((recorded_variable(x).id, axis))

    def _or_fresh(self, value: int) -> int:
        try:
            return self.number(value)
        except UnknownLayoutError:
            # Referenced by the program, so that its id is not reused.
            return self._known.setdefault(id(value), self._fresh())

    def _fresh(self) -> int:
        self.free += 1
        i = self.free - 1
        return self._chosen.get(i, self._factor * _PRIMES[i % len(_PRIMES)])


def _dense(sizes: Sequence[int]) -> NDArray:
    """Describe an array by strides alone, in C order."""
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return as_strided(np.empty(1, np.bool_), tuple(sizes), strides)


def agrees_at_other_sizes(
    answer: bool,
    layout: Callable[[OtherSizes], NDArray],
    ask: Callable[[NDArray, Callable[[int], int]], bool | None],
) -> bool:
    """Return whether a question about a layout has the same answer at other sizes.

    Args:
        answer: the one at the sizes of this call.
        layout: the array at other sizes.
        ask: the question of such an array and of the numbers that sizes are there; None if the program could not
            meet such sizes. Where it could meet none of those that are tried, as with a target shape of numbers
            alone, the answer stands.
    """
    try:
        first = OtherSizes()
        ask(layout(first), first.number)
        usual = None
        for sizes in _others(first):
            try:
                array = layout(sizes)
            except ValueError:
                # numpy describes no array as large.
                continue
            ones = [n == 1 for n in array.shape]
            usual = usual or ones
            if ones == usual and ask(array, sizes.number) not in (None, answer):
                return False
    except UnknownLayoutError:
        return False
    return True


def _others(first: OtherSizes) -> Iterator[OtherSizes]:
    """Yield sizes without anything in common, those that are numbers of the program, and pairs that are equal."""
    constants = sorted(c for c in first.constants if c > 1)
    # So many axes as large as this still make an array.
    largest = int(_LARGEST_ARRAY ** (1 / max(first.free, 1))) // _EQUAL
    factor = 1
    for c in constants:
        factor = factor * c if factor * c <= min(largest, _LARGEST_FACTOR) else factor
    yield OtherSizes(factor)
    near = sorted({*constants, *(c * factor for c in constants)})
    for i in range(first.free):
        for c in near:
            yield OtherSizes(factor, {i: c})
    for i, j in combinations(range(first.free), 2):
        yield OtherSizes(factor, dict.fromkeys((i, j), _EQUAL * factor))


_WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class ViewPart:
    """The way a view reads and writes its parent.

    Attributes:
        get: the part's value from the parent's.
        put: the parent's new value from its old one and the part's new one; None if numpy forbids writing.
        shadow: the same view of an ndarray, to follow the memory layout; the second argument gives the numbers for
            sizes and bounds.
        ordered: whether axes stay in the order of the memory.
        steady: whether it is contiguous where its parent is, whatever the sizes are.
        shape: what the parent is reshaped to.
        key: what two reads of the same part have in common, to know an assignment of a part to itself.
    """

    get: Callable[[Tensor], Tensor]
    put: Callable[[Tensor, Tensor], Tensor] | None
    shadow: Callable[[NDArray, Callable[[int], int]], NDArray]
    ordered: bool = True
    steady: bool = False
    shape: Sequence[int] | None = None
    key: Any = None


class MemoryCell:
    """A memory, or a view of one.

    Args:
        value: a root's value.
        ordered: whether a root is in C order; unknown where False.
        scalar: whether it stands for a numpy scalar, which cannot be assigned to.
        parent: a view's parent.
        part: how a view reads and writes it.
    """

    def __init__(
        self,
        value: Tensor | None,
        *,
        ordered: bool = True,
        scalar: bool = False,
        parent: MemoryCell | None = None,
        part: ViewPart | None = None,
    ) -> None:
        self.value = value
        self.scalar = scalar
        self.parent = parent
        self.part = part
        # None at the root itself: a self-reference would keep its values alive until garbage collection.
        self._root: MemoryCell | None = None if parent is None else parent.root
        self.ordered: bool = ordered if parent is None or part is None else parent.ordered and part.ordered
        self.version = 0
        self._seen = -1
        self._rivals: list[tuple[weakref.ref[MemoryCell], str]] = []
        self._lost = ""

    @property
    def root(self) -> MemoryCell:
        """The memory that the cell is a part of."""
        return self if self._root is None else self._root

    def view(self, part: ViewPart) -> MemoryCell:
        """Return a view of this memory; it is read on demand."""
        return MemoryCell(None, parent=self, part=part)

    def read(self) -> Tensor:
        """Return the value now.

        Raises:
            TraceError: something was written that may or may not share this memory.
        """
        root = self._root or self
        if root._lost:
            raise TraceError(root._lost)
        if self.parent is None or self.part is None:
            assert self.value is not None
            return self.value
        if self.value is None or self._seen != root.version:
            self.value = self.part.get(self.parent.read())
            self._seen = root.version
        return self.value

    def write(self, value: Tensor) -> None:
        """Replace the value by one of the same shape and dtype, also in what the memory is shared with.

        Raises:
            ValueError: numpy forbids writing here (broadcast arrays, diagonals).
        """
        self._write(value)
        self.root.version += 1
        if self.parent is not None:
            self.value, self._seen = value, self.root.version
        for other, where in self.root._rivals:
            rival = other()
            if rival is not None and rival is not self.root:
                rival._lost = (
                    f"this array was reshaped in {where}, where whether numpy copies depends on sizes or on a memory "
                    f"layout that the trace does not know, and one of both was written to in {shown(here())}; "
                    "reshape a .copy(), or write before reshaping"
                )

    def _write(self, value: Tensor) -> None:
        if self.parent is None or self.part is None:
            self.value = value
            return
        if self.part.put is None:
            raise ValueError("assignment destination is read-only")
        self.parent._write(self.part.put(self.parent.read(), value))

    def is_same(self, other: MemoryCell) -> bool:
        """Return whether both are the same elements of one memory in the same order."""
        a, b = _bare(self), _bare(other)
        if a is b:
            return True
        if a.parent is None or a.part is None or b.parent is None or b.part is None:
            return False
        return a.part.key is not None and a.part.key == b.part.key and a.parent.is_same(b.parent)

    def rival(self, other: MemoryCell) -> None:
        """Note that another root may or may not share this memory."""
        where = shown(here())
        self.root._rivals.append((weakref.ref(other.root), where))
        other.root._rivals.append((weakref.ref(self.root), where))

    def is_dense(self) -> bool | None:
        """Return whether the array is contiguous; None if that is not known or depends on sizes."""
        return self._certain(lambda array, number: bool(array.flags.c_contiguous))

    def shares_when_reshaped(self, shape: Sequence[int]) -> bool | None:
        """Return whether reshaping to this shape gives a view; None if that is not known or depends on sizes."""

        def ask(array: NDArray, number: Callable[[int], int]) -> bool | None:
            if array.flags.c_contiguous:
                return True
            want = _complete([number(n) for n in shape], array.size)
            return None if want is None else is_view(array, want)

        return self._certain(ask)

    def _certain(self, ask: Callable[[NDArray, Callable[[int], int]], bool | None]) -> bool | None:
        """Answer a question about the layout; None if the answer is not known or depends on the sizes."""
        if not self.root.ordered:
            return None
        if self._is_steady():
            return True
        try:
            here = ask(self._shadow(), int)
        except UnknownLayoutError:
            return None
        value = self.root.value
        assert value is not None
        session = session_of(value)
        if here is None or session is None or not session.symbolic_shape or session.detached(value):
            return here
        return here if agrees_at_other_sizes(here, self._elsewhere, ask) else None

    def _is_steady(self) -> bool:
        """Return whether the array is contiguous at all sizes, as most are."""
        if self.parent is None or self.part is None:
            return True
        return self.part.steady and self.parent._is_steady()

    def _shadow(self) -> NDArray:
        """Return an ndarray without contents of this memory's layout."""
        if self.parent is not None and self.part is not None:
            return self.part.shadow(self.parent._shadow(), int)
        assert self.value is not None
        # Memory pages that nobody writes to are never allocated.
        return np.empty(e.sizes(self.value), np.bool_)

    def _elsewhere(self, sizes: OtherSizes) -> NDArray:
        """Return an ndarray of this memory's layout at other sizes."""
        if self.parent is None or self.part is None:
            assert self.value is not None
            return sizes.root(self.value, len(e.sizes(self.value)))
        above = self.parent._elsewhere(sizes)
        shape = self.part.shape
        if shape is not None and above.flags.c_contiguous:
            return sizes.noted(self.value, sizes.reshaped(above, shape))
        if shape is not None:
            want = _complete([sizes.number(n) for n in shape], above.size)
            if want is None or not is_view(above, want):
                raise UnknownLayoutError
        try:
            return sizes.noted(self.value, self.part.shadow(above, sizes.number))
        except (ValueError, IndexError):
            raise UnknownLayoutError from None


def _complete(shape: list[int], size: int) -> list[int] | None:
    """Return a shape without -1 for so many elements, None if there is none."""
    rest = prod(n for n in shape if n != -1)
    if -1 in shape:
        return [size // rest if n == -1 else n for n in shape] if rest and size % rest == 0 else None
    return shape if rest == size else None


def whole() -> ViewPart:
    """Return all of the parent."""
    return ViewPart(lambda x: x, lambda _, v: v, lambda a, _: a, steady=True, key=_WHOLE)


def _bare(cell: MemoryCell) -> MemoryCell:
    """Return a cell without the views of all of it."""
    while cell.parent is not None and cell.part is not None and cell.part.key == _WHOLE:
        cell = cell.parent
    return cell


def permuted(axes: Sequence[int]) -> ViewPart:
    """Return the parent with its axes in another order."""
    back = [int(i) for i in np.argsort(axes)]
    return ViewPart(
        lambda x: e.permute(x, axes),
        lambda _, v: e.permute(v, back),
        lambda a, _: a.transpose(axes),
        ordered=list(axes) == list(range(len(axes))),
        steady=list(axes) == list(range(len(axes))),
        key=("permuted", *axes),
    )


def reshaped(shape: Sequence[int]) -> ViewPart:
    """Return the parent in another shape, in the same order of elements."""
    plain = tuple(map(int, shape))
    return ViewPart(
        lambda x: e.reshape(x, shape),
        lambda x, v: e.reshape(v, x.shape),
        lambda a, number: a.reshape([number(n) for n in shape]),
        steady=True,
        shape=shape,
        key=("reshaped", *plain),
    )
