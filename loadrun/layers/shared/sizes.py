"""Sizes that may be others in another run, and more axes than MegEngine's seven."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

from ...graph import params as P
from ...tensors import Tensor, TracedInt, apply1, shape_tensor
from ...tensors.access import as_scalar, recorded_variable, session_of, static_shape, variable_of
from .. import emit as e


def is_open(*sizes: int) -> bool:
    """Return whether one of some sizes may differ in another run."""
    return any(isinstance(n, TracedInt) for n in sizes)


def of_length(x: Tensor, axis: int, what: str = "") -> Tensor:
    """Return the tensor itself, and an error where its axis has another size than while the graph was made.

    What is unrolled over an axis reads as many entries as there were then: of a longer one it would leave out the rest.
    The operator that fails is named after what to do, or as `what` says.
    """
    size = x.shape[axis]
    if not is_open(size):
        return x
    what = what or f"axis {axis} has size {int(size)} as the model was loaded, input_shapes gives another"
    return _checked(x, axis, size, size - (int(size) - 1), what)


def refused_where(x: Tensor, broken: int, what: str, axis: int = 0) -> Tensor:
    """Return the tensor itself, and an error where a symbolic number is not 0.

    Args:
        x: the tensor.
        broken: 0 where the graph holds.
        what: the name of the operator that fails.
        axis: an axis of it.
    """
    if not x.ndim:
        return refused_where(e.add_axes(x, [0]), broken, what)[0]
    return _checked(x, axis, x.shape[axis], broken + 1, what)


def _checked(x: Tensor, axis: int, size: int, length: int, what: str) -> Tensor:
    """Return the tensor with an axis of some size, where a number is 1, and an error where it is not."""
    session = session_of(x)
    if is_open(length) and session is not None:
        # An empty tensor can be reshaped to any other empty shape: one number is to become more, or less, than one.
        # It is the size, as MegEngine looks through reshapes of constants.
        one = _reshaped(shape_tensor([size]), [length], what)
        size = TracedInt(int(size), (lambda t, _: as_scalar(t), one, 0), session)
    return _reshaped(x, [size if i == axis else n for i, n in enumerate(x.shape)], what)


def _reshaped(x: Tensor, sizes: Sequence[int], what: str) -> Tensor:
    shape = shape_tensor(sizes)
    checked = apply1("ReshapeV1", P.OptionalAxisV1(axis=7), inputs=[x, shape], scalar=False)
    if variable_of(checked) is not None:
        recorded_variable(checked).owner.name = what
    return checked


def per_channel(v: Tensor, rank: int) -> Tensor:
    """Return a vector as (1, C, 1, ...), to broadcast with `rank` axes."""
    return e.folded(lambda t: e.reshape(t, (1, -1, *[1] * (rank - 2))), v)


def joined(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors one behind the other along an axis; empty ones left out."""
    full = [x for x in xs if static_shape(x)[axis] != 0 or is_open(x.shape[axis])]
    xs = full or list(xs[:1])
    if e.is_bool(xs[0]):
        return e.cast(e.concat([e.cast(x, "uint8") for x in xs], axis), "bool")
    return e.concat(xs, axis)


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
