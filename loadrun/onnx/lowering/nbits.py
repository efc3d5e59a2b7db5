"""Weights of few bits in blocks, as com.microsoft.MatMulNBits stores them."""

from __future__ import annotations

import numpy as np

from ...dtypes import Array
from ...imperative import Tensor, const
from ..call import Call
from ..values import Refused

__all__ = ["weight_of"]


def weight_of(c: Call) -> Tensor:
    """The weight as float32 (K, N).

    B is (N, blocks, bytes of a block), scales (N, blocks), zero points packed like B or none (the middle then).
    """
    bits, block = c.int("bits", 4), c.int("block_size")
    k, n = c.int("K"), c.int("N")
    if bits not in (4, 8) or block < 1 or c.has(4):
        raise Refused(f"weights of {bits} bits, or with a group index, cannot be expressed")
    blocks = -(-k // block)
    packed = c.constant(1, "weight").reshape(n, blocks, -1)
    scales = c.constant(2, "scales").astype(np.float32).reshape(n, blocks, 1)
    values = _unpacked(packed, bits)[:, :, :block].astype(np.float32)
    zero: Array = np.full((n, blocks, 1), float(1 << (bits - 1)), np.float32)
    if c.has(3):
        given = c.constant(3, "zero points")
        if given.dtype == np.uint8:
            zero = _unpacked(given.reshape(n, -1), bits)[:, :blocks].astype(np.float32)[:, :, None]
        else:
            zero = given.astype(np.float32).reshape(n, blocks, 1)
    whole = ((values - zero) * scales).reshape(n, -1)[:, :k]
    return const(np.ascontiguousarray(whole.T))


def _unpacked(raw: Array, bits: int) -> Array:
    if bits == 8:
        return raw
    return np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:-1], -1)
