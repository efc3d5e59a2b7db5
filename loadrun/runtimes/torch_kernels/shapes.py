"""Operators that move values: shapes, slices, padding, joining."""

from __future__ import annotations

from typing import Any

import torch  # optional
import torch.nn.functional as F

from .elementwise import DTYPES
from .registry import Node, kernel

__all__ = ["numbers"]

Tensor = Any


def numbers(x: Tensor | None) -> list[int]:
    """Integers in a tensor."""
    return [] if x is None else [int(n) for n in x.reshape(-1).tolist()]


@kernel("Reshape")
def reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Return the same values in another shape; 0 keeps a size, -1 is what is left."""
    sizes = numbers(shape)
    if not node.get("allowzero", 0):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


@kernel("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    """Axes in another order."""
    return x.permute(node.get("perm") or list(range(x.dim()))[::-1])


@kernel("Squeeze")
def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without axes of size 1."""
    dims = node.get("axes") if axes is None else numbers(axes)
    gone = {a % x.dim() for a in dims} if dims else {i for i, n in enumerate(x.shape) if n == 1}
    return x.reshape([n for i, n in enumerate(x.shape) if i not in gone])


@kernel("Unsqueeze")
def unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """With further axes of size 1."""
    dims = node.get("axes") if axes is None else numbers(axes)
    rank = x.dim() + len(dims)
    new = {a % rank for a in dims}
    sizes = iter(x.shape)
    return x.reshape([1 if i in new else next(sizes) for i in range(rank)])


@kernel("Concat")
def concat(node: Node, *xs: Tensor) -> Tensor:
    """Join tensors along an axis."""
    return torch.cat(xs, node.get("axis"))


@kernel("Split")
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Parts along an axis."""
    axis = node.get("axis", 0)
    lengths = node.get("split") if sizes is None else numbers(sizes)
    if not lengths:
        most = -(-x.shape[axis] // node.outputs)
        lengths = [max(0, min(most, x.shape[axis] - i * most)) for i in range(node.outputs)]
    return tuple(torch.split(x, list(lengths), axis))


@kernel("Slice")
def slices(
    node: Node,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """Ranges along axes, with steps."""
    first, last = numbers(starts), numbers(ends)
    which = numbers(axes) or list(range(len(first)))
    by = numbers(steps) or [1] * len(first)
    for start, end, axis, step in zip(first, last, which, by, strict=True):
        size = x.shape[axis]
        wanted = range(*_bounds(start, end, step, size))
        if step == 1:
            x = x.narrow(axis, wanted.start if len(wanted) else 0, len(wanted))
        else:
            x = torch.index_select(x, axis, torch.tensor(list(wanted), dtype=torch.int64))
    return x


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size), step
    return min(max(start, -1), size - 1), min(max(end, -1), size - 1), step


@kernel("Expand")
def expand(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    """Repeated along axes of size 1."""
    return x.expand(torch.broadcast_shapes(x.shape, numbers(shape)))


@kernel("Tile")
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    """Repeated as a whole."""
    return x.repeat(numbers(repeats))


@kernel("Shape")
def shape(node: Node, x: Tensor) -> Tensor:
    """Return the sizes."""
    return torch.tensor(list(x.shape)[node.get("start", 0) : node.get("end")], dtype=torch.int64)


@kernel("ConstantOfShape")
def constant_of_shape(node: Node, sizes: Tensor) -> Tensor:
    """Fill a shape with one value."""
    value = node.get("value")
    if value is None:
        return torch.zeros(numbers(sizes))
    return torch.from_numpy(value.copy()).reshape(()).expand(numbers(sizes)).clone()


@kernel("Range")
def arange(node: Node, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    """Numbers with equal steps between them."""
    count = max(0, -int(-(limit.double() - start.double()) // step.double()))
    return start + step * torch.arange(count).to(start.dtype)


@kernel("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    """Ones on a diagonal."""
    kind = DTYPES[node.get("dtype")] if node.get("dtype") else x.dtype
    rows, columns = x.shape
    at = torch.arange(columns)[None, :] - torch.arange(rows)[:, None]
    return (at == node.get("k", 0)).to(kind)


@kernel("Trilu")
def trilu(node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    """Keep the upper or the lower triangle."""
    at = 0 if k is None else int(k)
    return torch.triu(x, at) if node.get("upper", 1) else torch.tril(x, at)


@kernel("Pad")
def pad(
    node: Node, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    """More at the borders, or less."""
    widths = numbers(pads)
    which = [a % x.dim() for a in numbers(axes)] or list(range(x.dim()))
    both = {a: (widths[i], widths[i + len(which)]) for i, a in enumerate(which)}
    mode = node.get("mode", "constant")
    if mode == "constant":
        flat = [n for a in reversed(range(x.dim())) for n in both.get(a, (0, 0))]
        number = 0 if value is None else value.reshape(()).item()
        if x.dtype == torch.bool:
            return F.pad(x.to(torch.uint8), flat, value=int(number)).to(torch.bool)
        return F.pad(x, flat, value=number)
    for axis, (before, after) in both.items():
        if before or after:
            at = torch.arange(-before, x.shape[axis] + after)
            x = torch.index_select(x, axis, _mirrored(at, x.shape[axis], mode))
    return x


def _mirrored(at: Tensor, size: int, mode: str) -> Tensor:
    if mode == "edge":
        return torch.clamp(at, 0, size - 1)
    if mode == "wrap":
        return torch.remainder(at, size)
    period = max(2 * (size - 1), 1)
    at = torch.remainder(at, period)
    return torch.where(at < size, at, period - at)
