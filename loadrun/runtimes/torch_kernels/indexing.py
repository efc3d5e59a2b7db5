"""Operators that pick and place values by their indices, and that order them."""

from __future__ import annotations

from typing import Any

import torch  # optional

from .registry import Node, kernel

__all__: list[str] = []

Tensor = Any


def _positive(at: Tensor, size: int) -> Tensor:
    """Count indices from the front, as int64."""
    wide = at.to(torch.int64)
    return torch.where(wide < 0, wide + size, wide)


@kernel("Gather")
def gather(node: Node, x: Tensor, at: Tensor) -> Tensor:
    """Slices along an axis."""
    axis = node.get("axis", 0) % x.dim()
    result = torch.index_select(x, axis, _positive(at, x.shape[axis]).reshape(-1))
    return result.reshape([*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]])


@kernel("GatherElements")
def gather_elements(node: Node, x: Tensor, at: Tensor) -> Tensor:
    """Elements along an axis."""
    axis = node.get("axis", 0)
    return torch.gather(x, axis, _positive(at, x.shape[axis]))


def _coordinates(x: Tensor, at: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Return what a tensor is indexed with, for tuples of indices along the last axis of another."""
    depth = at.shape[-1]
    leading = []
    for i in range(batch):
        sizes = [1] * (at.dim() - 1)
        sizes[i] = at.shape[i]
        leading.append(torch.arange(at.shape[i]).reshape(sizes))
    return (*leading, *(_positive(at[..., i], x.shape[batch + i]) for i in range(depth)))


@kernel("GatherND")
def gather_nd(node: Node, x: Tensor, at: Tensor) -> Tensor:
    """Elements or slices at tuples of indices."""
    return x[_coordinates(x, at, node.get("batch_dims", 0))]


@kernel("ScatterND")
def scatter_nd(node: Node, x: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Copy a tensor with other values at tuples of indices; of several for one place the last holds."""
    mode = node.get("reduction", "none")
    copy = x.clone()
    return copy.index_put_(_coordinates(x, at, 0), values, accumulate=mode == "add")


@kernel("ScatterElements")
def scatter_elements(node: Node, x: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Copy a tensor with other elements along an axis."""
    axis = node.get("axis", 0)
    wide = _positive(at, x.shape[axis])
    if node.get("reduction", "none") == "add":
        return x.scatter_add(axis, wide, values)
    return x.scatter(axis, wide, values)


@kernel("Compress")
def compress(node: Node, x: Tensor, mask: Tensor) -> Tensor:
    """Select what a mask keeps, of the flat tensor or along an axis."""
    axis = node.get("axis")
    flat = x.reshape(-1) if axis is None else x
    return torch.index_select(flat, 0 if axis is None else axis, torch.nonzero(mask).reshape(-1))


@kernel("NonZero")
def non_zero(node: Node, x: Tensor) -> Tensor:
    """Return the indices of values that are not 0, an axis a row."""
    return torch.nonzero(x).T


@kernel("OneHot")
def one_hot(node: Node, at: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """Set one value at an index, another elsewhere."""
    size = int(depth.reshape(()))
    axis = node.get("axis", -1) % (at.dim() + 1)
    sizes = [1] * (at.dim() + 1)
    sizes[axis] = size
    hit = torch.arange(size).reshape(sizes) == _positive(at, size).unsqueeze(axis)
    return torch.where(hit, values[1], values[0])


@kernel("ArgMax", "ArgMin")
def arg(node: Node, x: Tensor) -> Tensor:
    """Return the index of the first extreme."""
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    find = torch.argmax if node.op == "ArgMax" else torch.argmin
    if node.get("select_last_index", 0):
        return x.shape[axis] - 1 - find(torch.flip(x, (axis,)), axis, keep)
    return find(x, axis, keep)


@kernel("TopK")
def topk(node: Node, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Select the first in order, of equal ones that with the lower index."""
    axis = node.get("axis", -1)
    values, at = torch.sort(x, dim=axis, descending=bool(node.get("largest", 1)), stable=True)
    count = int(k.reshape(()))
    return values.narrow(axis, 0, count), at.narrow(axis, 0, count)
