"""Weights of few bits in blocks, as com.microsoft.MatMulNBits stores them."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array
from ...ops.registry import pay
from ...tensors import Tensor, const
from ..call import NodeCall, front
from ..values import UINT8, UnsupportedNodeError

__all__ = ["gathered_table", "unpacked", "weight_of"]


def weight_of(c: NodeCall) -> Tensor:
    """Unpack the weight to float32 (K, N).

    B is (N, blocks, bytes of a block), scales (N, blocks), zero points packed like B or none (the middle then). A group
    index says for each of K whose scale and zero point it has, instead of its block's.
    """
    bits, block = c.number("bits", 4), c.number("block_size")
    k, n = c.number("K"), c.number("N")
    if bits not in (2, 4, 8) or block < 1:
        raise UnsupportedNodeError(f"weights of {bits} bits in blocks of {block} cannot be expressed")
    if c.has(4) and c.has(3):
        raise UnsupportedNodeError(
            "zero points beside a group index, with which ONNX Runtime leaves them out"
        )
    blocks = -(-k // block)
    pay(16 * n * k)
    values = unpacked(c.constant(1, "weight").reshape(n, blocks, -1), bits)[:, :, :block]
    values = values.reshape(n, -1)[:, :k].astype(np.float32)
    scales = c.constant(2, "scales").astype(np.float32).reshape(n, blocks)
    zero: Array = np.full((n, blocks), float(1 << (bits - 1)), np.float32)
    if c.has(3):
        zero_points = c.constant(3, "zero points")
        if zero_points.dtype == np.uint8:
            zero_points = unpacked(zero_points.reshape(n, -1), bits)[:, :blocks]
        zero = zero_points.astype(np.float32).reshape(n, blocks)
    of = c.constant(4, "group index")[:k] if c.has(4) else np.arange(k) // block
    if of.size and not 0 <= of.min() <= of.max() < blocks:
        raise UnsupportedNodeError(f"its group index goes from {of.min()} to {of.max()}, of {blocks} blocks")
    return const(np.ascontiguousarray(((values - zero[:, of]) * scales[:, of]).T))


def unpacked(raw: Array, bits: int) -> Array:
    """Return the numbers in bytes, the first in the lowest bits, along the last axis."""
    if bits == 8:
        return raw
    parts = [raw >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*raw.shape[:-1], -1)


def gathered_table(c: NodeCall) -> tuple[Tensor, int]:
    """Unpack the table of GatherBlockQuantized to float32; return it and the axis along which rows are taken.

    uint8 data of fewer than 8 bits hold several numbers in a byte along the last axis. Without zero points that is the
    middle of uint8 data, and 0 of other types.
    """
    bits, block = c.number("bits", 4), c.number("block_size", 128)
    data = c.constant(0, "table")
    raw = data.dtype == np.uint8 and c.kind(0) == UINT8
    if bits not in (2, 4, 8) or block < 16:
        raise UnsupportedNodeError(f"tables of {bits} bits in blocks of {block} cannot be expressed")
    packed = raw and bits < 8
    values = unpacked(data, bits) if packed else data
    axis = front(c.number("quantize_axis", 1), values.ndim)
    scales = c.constant(2, "scales").astype(np.float32)
    zero: Array = np.zeros_like(scales)
    if c.has(3):
        zero_points = c.constant(3, "zero points")
        zero = (unpacked(zero_points, bits) if packed else zero_points)[..., : scales.shape[-1]].astype(
            np.float32
        )
    elif raw:
        zero = np.full_like(scales, float(1 << (bits - 1)))
    n = values.shape[axis]
    pay(12 * values.size)
    wide = (np.repeat(v, block, axis).take(np.arange(n), axis) for v in (scales, zero))
    scale, less = wide
    whole = (values.astype(np.float32) - less) * scale
    return const(np.ascontiguousarray(whole)), front(c.number("gather_axis", 0), values.ndim)
