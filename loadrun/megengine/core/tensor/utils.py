"""Conversions under the name of ``megengine.core.tensor.utils``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....tensors import Tensor, TracedNumber, shape_tensor
from ....tensors.access import as_vector, set_device, snapshot
from ....tensors.device import placed
from ....tensors.shaping import concat
from ...network.editing import SESSION
from ...network.graphs import VarNode
from ...subgraphs import interpret_subgraph, subgraph, subgraph_fn

__all__ = [
    "astensor1d",
    "interpret_subgraph",
    "isscalar",
    "make_shape_tuple",
    "subgraph",
    "subgraph_fn",
]


def make_shape_tuple(shape: Any) -> tuple[int, ...]:
    """Return sizes as a flat tuple of numbers.

    Args:
        shape: a number, or sizes, arrays and tensors of them, nested.

    >>> make_shape_tuple((2, (3, Tensor([4, 5]))))
    (2, 3, 4, 5)
    """
    if isinstance(shape, Tensor):
        shape = shape.numpy()
    if isinstance(shape, np.ndarray):
        return tuple(int(n) for n in shape.reshape(-1))
    if isinstance(shape, Iterable):
        return tuple(n for part in shape for n in make_shape_tuple(part))
    return (int(shape),)


def astensor1d(x: Any, *reference: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """Return numbers, or tensors of them, as one tensor with one axis.

    Args:
        x: a tensor or an array of one axis or none, or a sequence of numbers, sizes and such tensors. A tensor is
            returned as it is.
        reference: where the first tensor of these is a variable of an edited graph, the result is one too.
        dtype: the dtype of the result.
        device: the device that the result names.

    Raises:
        ValueError: more than one axis.
        TypeError: `x` is none of these.

    >>> astensor1d([1, Tensor(2)], dtype="int32").tolist()
    [1, 2]
    """
    if isinstance(x, (Tensor, np.ndarray)):
        if x.ndim > 1:
            raise ValueError(f"ndim != 1 or 0, get : {x.ndim}; reshape it to one axis")
        if isinstance(x, Tensor):
            return x
        tensor = Tensor(x)
    elif isinstance(x, (Sequence, np.generic)) and not isinstance(x, str):
        tensor = _joined(x) if isinstance(x, Sequence) else Tensor(x)
    else:
        raise TypeError(
            f"expected a tensor, an array or a sequence of numbers, found {type(x).__name__} {x!r:.60}"
        )
    if dtype is not None and tensor.dtype != np.dtype(dtype):
        tensor = tensor.astype(dtype)
    first = next((r for r in reference if isinstance(r, Tensor)), None)
    if isinstance(first, VarNode) and not isinstance(tensor, VarNode):
        tensor = SESSION.node(tensor)
    if device is not None and device != tensor.device:
        tensor = snapshot(tensor)
        set_device(tensor, placed(device))
    return tensor


def _joined(parts: Sequence[Any]) -> Tensor:
    """Return the tensor of a sequence, whose sizes and tensors a graph follows."""
    if not any(isinstance(p, (Tensor, TracedNumber)) for p in parts):
        return Tensor(parts)
    if all(isinstance(p, (int, np.integer)) for p in parts):
        return shape_tensor(parts)
    return concat([p if isinstance(p, Tensor) and p.ndim else as_vector(Tensor(p)) for p in parts])


def isscalar(x: Any) -> bool:
    """Return whether a value has no axes.

    >>> isscalar(Tensor(1)), isscalar([1])
    (True, False)
    """
    return x.shape == () if isinstance(x, (Tensor, np.ndarray)) else bool(np.isscalar(x))
