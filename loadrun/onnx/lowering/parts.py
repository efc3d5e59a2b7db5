"""What several families of lowerings are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...build import emit as e
from ...graph import params as P
from ...tensors import Tensor, apply1, const, suspended
from ...tensors.sizes import TracedInt, shape_tensor

__all__ = [
    "M",
    "cast",
    "const_like",
    "flags",
    "floats",
    "folded",
    "in_float",
    "is_open",
    "limits",
    "of_length",
    "transposed",
]

M = P.ElemwiseMode
cast = e.cast


def const_like(value: Any, x: Tensor) -> Tensor:
    """A constant scalar in the type of a tensor."""
    return const(np.asarray(value), x._dtype)


def floats(x: Tensor) -> Tensor:
    """The tensor itself where it is of floats, else as float32."""
    return x if x._dtype.is_float else cast(x, "float32")


def in_float(x: Tensor) -> Tensor:
    """The tensor as float32."""
    return cast(x, "float32")


def transposed(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The axes in another order; a scalar as it is."""
    return x if list(axes) == list(range(x.ndim)) else e.permute(x, axes)


def limits(kind: int) -> tuple[int, int]:
    """Smallest and largest number of an ONNX integer type."""
    small = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1), 2: (0, 255), 3: (-128, 127), 4: (0, 65535)}
    return small.get(kind) or {5: (-32768, 32767)}.get(kind, (-(2**31), 2**31 - 1))


def of_length(x: Tensor, axis: int, what: str = "") -> Tensor:
    """The tensor itself, and an error where its axis has another size than while the graph was made.

    What is unrolled over an axis reads as many entries as there were then: of a longer one it would leave out the rest.
    The operator that fails is named after what to do, or as is said.
    """
    if not isinstance(x.shape[axis], TracedInt):
        return x
    sizes = [int(n) if i == axis else n for i, n in enumerate(x.shape)]
    made = apply1("ReshapeV1", P.OptionalAxisV1(axis=7), inputs=[x, shape_tensor(sizes)], scalar=False)
    if made._var is not None:
        made._var.owner.name = what or (
            f"axis {axis} has size {sizes[axis]} as the model was loaded, input_shapes gives another"
        )
    return made


def is_open(*sizes: int) -> bool:
    """Whether one of some sizes may differ in another run."""
    return any(isinstance(n, TracedInt) for n in sizes)


def folded(func: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """What a function gives for tensors; a constant where all of them are constants."""
    if any(x._session is not None for x in xs):
        return func(*xs)
    with suspended():
        result = func(*xs)
    result._const = True
    return result


def flags(values: Sequence[Any] | None, count: int, default: int) -> list[int]:
    """One number for each axis of space."""
    return [default] * count if values is None else [int(v) for v in values]
