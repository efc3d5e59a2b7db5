"""Sizes that may be others in another run."""

from collections.abc import Sequence

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
