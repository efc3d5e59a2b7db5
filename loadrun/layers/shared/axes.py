"""More axes than MegEngine's seven: they exist between a reshape and the next one alone."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

from ...tensors import Tensor, TracedInt
from .. import emit as e

MOST_AXES = 7


class ManyAxes:
    """A tensor of more than seven axes that nothing has computed: what it is read from, and how its axes lie there.

    Args:
        x: the elements, in any shape.
        sizes: the sizes of the axes as they lie in it.
        order: the axes in the order of the tensor.

    >>> import numpy as np
    >>> x = reshaped(Tensor(np.arange(256)), [2] * 8)
    >>> x.shape, reshaped(permuted(x, [7, 0, 1, 2, 3, 4, 5, 6]), [2, 128])[1, :2].tolist()
    ((2, 2, 2, 2, 2, 2, 2, 2), [1, 3])
    """

    def __init__(self, x: Tensor, sizes: Sequence[int], order: Sequence[int]) -> None:
        self.x = x
        self.sizes = sizes
        self.order = order

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple(self.sizes[axis] for axis in self.order)

    @property
    def refusal(self) -> str:
        """Why nothing computes with it."""
        return (
            f"a tensor of {len(self.order)} axes can be permuted and reshaped to at most {MOST_AXES}, as many as "
            "MegEngine has, not computed with"
        )


def permuted(x: Tensor | ManyAxes, order: Sequence[int]) -> Tensor | ManyAxes:
    """Return the axes in another order."""
    if isinstance(x, ManyAxes):
        return ManyAxes(x.x, x.sizes, [x.order[axis] for axis in order])
    return e.permute(x, order)


def reshaped(x: Tensor | ManyAxes, shape: Sequence[int]) -> Tensor | ManyAxes:
    """Return the values in another shape of any number of axes; one entry may be -1, which follows from the others."""
    if len(shape) <= MOST_AXES:
        return e.reshape(_in_order(x.x, x.sizes, x.order) if isinstance(x, ManyAxes) else x, shape)
    sizes = list(shape)
    free = [i for i, n in enumerate(sizes) if not isinstance(n, TracedInt) and n == -1]
    for i in free:
        sizes[i] = _product(x.shape) // _product([n for k, n in enumerate(sizes) if k != i])
    flat = _in_order(x.x, x.sizes, x.order) if isinstance(x, ManyAxes) else x
    return ManyAxes(flat, sizes, range(len(sizes)))


def _in_order(x: Tensor, sizes: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return the elements as they lie when the axes have an order.

    Axes that stay together are one, and those of size 1 none. Where more than seven remain, one after the other moves
    to its place, until the others are few enough.
    """
    order = [axis for axis in order if isinstance(sizes[axis], TracedInt) or sizes[axis] != 1]
    runs: list[list[int]] = []
    for axis in order:
        if runs and runs[-1][-1] < axis and not set(range(runs[-1][-1] + 1, axis)) & set(order):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) < 2:
        return x
    lying = sorted(runs)
    now = [_product([sizes[axis] for axis in run]) for run in lying]
    want = [lying.index(run) for run in runs]
    if len(runs) <= MOST_AXES:
        return e.permute(e.reshape(x, now), want)
    place = next(i for i, axis in enumerate(want) if i != axis)
    at = want[place]
    parts = [now[:place], now[place:at], now[at : at + 1], now[at + 1 :]]
    moved = e.permute(e.reshape(x, [*map(_product, parts)]), [0, 2, 1, 3])
    after = [*range(place), at, *range(place, at), *range(at + 1, len(now))]
    return _in_order(moved, [now[axis] for axis in after], [after.index(axis) for axis in want])


def _product(sizes: Sequence[int]) -> int:
    return reduce(mul, sizes, 1)
