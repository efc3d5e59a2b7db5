"""What numpy's views are to a trace.

A graph's values never change, numpy's arrays do, and several arrays may share one memory. A `MemoryCell` is such a
memory or a part of it: a root holds the value, a view knows how to read its part out of its parent's value and how to
rebuild the parent's value when the part is assigned to. So a write through a view shows in its base and the other way
round, as in numpy.

Whether `reshape` and `ravel` give a view depends on the memory layout. It is followed as far as it is certain; where
it is not, the result is a copy, and to write to one side and then read the other is an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..dtypes import Array as NDArray
from ..errors import TraceError
from ..imperative import Tensor
from ..imperative import emit as e
from ..imperative.source import here, shown

__all__ = ["MemoryCell", "ViewPart", "permuted", "reshaped", "whole"]


_WHOLE = "whole"


@dataclass(frozen=True, eq=False)
class ViewPart:
    """How a view reads and writes its parent.

    Attributes:
        get: the part's value from the parent's.
        put: the parent's new value from its old one and the part's new one; None where numpy forbids writing.
        shadow: the same view of an ndarray, to follow the memory layout.
        ordered: whether axes stay in the order of the memory.
        key: what two reads of the same part have in common, to know an assignment of a part to itself.
    """

    get: Callable[[Tensor], Tensor]
    put: Callable[[Tensor, Tensor], Tensor] | None
    shadow: Callable[[NDArray], NDArray]
    ordered: bool = True
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
        # None at the root itself: a cell that holds itself would keep its values until a garbage collection.
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
        """Return a view of this memory; it is read when it is asked for."""
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
                    f"this array was reshaped in {where}, where whether numpy copies depends on a memory layout that "
                    f"the trace does not know, and one of both was written to in {shown(here())}; reshape a .copy(), "
                    "or write before reshaping"
                )

    def _write(self, value: Tensor) -> None:
        if self.parent is None or self.part is None:
            self.value = value
            return
        if self.part.put is None:
            raise ValueError("assignment destination is read-only")
        self.parent._write(self.part.put(self.parent.read(), value))

    def is_same(self, other: MemoryCell) -> bool:
        """Tell whether both are the same elements of one memory in the same order."""
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

    def shadow(self) -> NDArray | None:
        """Return an ndarray without contents of this memory's layout; None where that is not known."""
        if self.parent is not None and self.part is not None:
            above = self.parent.shadow()
            return None if above is None else self.part.shadow(above)
        assert self.value is not None
        # The pages of an array that nobody writes to are never made.
        return np.empty(e.sizes(self.value), np.bool_) if self.ordered else None

    def is_dense(self) -> bool:
        """Tell whether it is known that the elements lie one behind the other."""
        shadow = self.shadow()
        return shadow is not None and shadow.flags.c_contiguous

    def shares_when_reshaped(self, shape: Sequence[int]) -> bool | None:
        """Tell whether reshaping to this shape gives a view; None where the layout is not known."""
        shadow = self.shadow()
        if shadow is None:
            return None
        return _views(shadow, tuple(map(int, shape)))


def _views(array: NDArray, shape: tuple[int, ...]) -> bool:
    """Whether ``array.reshape(shape)`` can be a view: runs of axes that lie evenly in memory cover both shapes."""
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


def whole() -> ViewPart:
    """Return all of the parent."""
    return ViewPart(lambda x: x, lambda _, v: v, lambda a: a, key=_WHOLE)


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
        lambda a: a.transpose(axes),
        ordered=list(axes) == list(range(len(axes))),
        key=("permuted", *axes),
    )


def reshaped(shape: Sequence[int]) -> ViewPart:
    """Return the parent in another shape, in the same order of elements."""
    plain = tuple(map(int, shape))
    return ViewPart(
        lambda x: e.reshape(x, shape),
        lambda x, v: e.reshape(v, x.shape),
        lambda a: a.reshape(plain),
        key=("reshaped", *plain),
    )
