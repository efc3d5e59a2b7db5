"""Memory layouts: whether numpy reshapes an array to a view, and whether it would do so at other sizes as well.

A trace sees an array at one set of sizes, its graph runs at others. Whether ``reshape`` shares memory follows from
sizes and strides, so the question is asked again for arrays that are strides alone: of sizes that have nothing in
common, and of sizes that coincide with each other and with the numbers of the program. An answer that is the same in
all of them is certain. Axes that become 1 only at such sizes are left out: nearly any reshape of them is a view.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..graph.dtypes import Array as NDArray
from ..tensors import Tensor, TracedInt
from ..tensors.access import recorded_variable, variable_of
from ..tensors.other_sizes import at_other_sizes

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
