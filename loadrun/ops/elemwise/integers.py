"""Elemwise modes on integers (values wrap as in C): functions ``(out, *inputs)`` that write into `out`."""

from __future__ import annotations

import numpy as np

from ...graph.dtypes import Array
from .floats import Function


def fuse_add_relu(out: Array, x: Array, y: Array) -> None:
    if x.dtype.kind == "u":
        np.add(x, y, out=out)
        return
    # Where the sum overflows, this form and "add, then compare with 0" differ. MegEngine's vector kernels, which
    # take 64 bytes at a time, have this one, the rest of an array the other.
    same = x.shape == y.shape or 1 in (x.size, y.size)
    rest = slice(out.size - out.size % (64 // x.dtype.itemsize) if same else out.size, None)
    tail = [v.reshape(-1)[rest] if v.size > 1 else v.reshape(-1) for v in (x, y)]
    total = np.maximum(np.add(*tail, dtype=np.int32), 0).astype(out.dtype)
    t = np.negative(y)
    np.add(np.maximum(x, t), y, out=out)
    out.reshape(-1)[rest] = total[: out.reshape(-1)[rest].size]


def product(out: Array, x: Array, y: Array) -> None:
    if x.dtype.itemsize == 4:
        # The output may be the memory of an input.
        t = x * y
        _inexact(t, x, y, None)
        np.copyto(out, t)
    else:
        np.multiply(x, y, out=out)


def fuse_mul_add3(out: Array, x: Array, y: Array, z: Array) -> None:
    t = x * y
    if x.dtype.itemsize == 4:
        _inexact(t, x, y, z)
    np.add(t, z, out=out)


def _inexact(out: Array, x: Array, y: Array, z: Array | None) -> None:
    """Replace int32 products by what MegEngine's x86 kernels compute.

    They multiply eight elements at a time in float32, so that products from 2^24 on are rounded and those that
    overflow become -2^31; the rest of an array, and inputs that broadcast in other ways, are multiplied exactly.
    """
    if not out.size or (x.shape != y.shape and 1 not in (x.size, y.size)):
        return
    if z is not None and z.size > 1 and z.shape != out.shape:
        return
    real = np.multiply(x, y, dtype=np.float32, casting="unsafe")
    size = np.abs(real)
    if size.max() < 2**24:
        return
    wrong = np.greater_equal(size, 2**24, order="C")
    wrong.reshape(-1)[out.size // 8 * 8 :] = False
    values = np.where(size < 2**31, real, np.float32(-(2**31)))[wrong]
    out[wrong] = values.astype(np.int32)


def rmulh(out: Array, x: Array, y: Array) -> None:
    """Compute the high half of the doubled product, rounded; the one product that overflows saturates."""
    info = np.iinfo(x.dtype)
    digits = info.bits - (info.min < 0)
    wide = x.astype(np.int64) * y
    wide += np.int64(1) << np.int64(digits - 1)
    wide >>= np.int64(digits)
    # The lowest value times itself counts as overflow, also where it is the 0 of an unsigned type.
    wide[(x == y) & (x == info.min)] = info.max
    np.copyto(out, wide, casting="unsafe")


def shift(ufunc: np.ufunc) -> Function:
    """Shift what C holds in an int."""

    def apply(out: Array, x: Array, y: Array) -> None:
        # C shifts an int, and x86 takes the count modulo 32.
        np.copyto(out, ufunc(x.astype(np.int32), y.astype(np.int32) & 31), casting="unsafe")

    return apply


def exact_shift(ufunc: np.ufunc) -> Function:
    """Shift numbers of their own width, the count modulo the bits that they have."""

    def apply(out: Array, x: Array, y: Array) -> None:
        np.copyto(out, ufunc(x, y & y.dtype.type(8 * x.dtype.itemsize - 1)), casting="unsafe")

    return apply
