"""Operator type ids: XXH64 of the registered name, as MegEngine's operator registry computes them."""

from __future__ import annotations

import re
from struct import unpack_from

__all__ = ["SEED", "type_id", "unversioned_id", "xxh64"]

SEED = 20160701
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_M = 2**64 - 1


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & _M


def _round(acc: int, lane: int) -> int:
    return _rotl((acc + lane * _P2) & _M, 31) * _P1 & _M


def xxh64(data: bytes, seed: int = 0) -> int:
    """Compute the 64-bit xxHash of some bytes.

    >>> hex(xxh64(b""))
    '0xef46db3751d8e999'
    """
    n, pos = len(data), 0
    if n >= 32:
        acc = [(seed + _P1 + _P2) & _M, (seed + _P2) & _M, seed, (seed - _P1) & _M]
        while pos + 32 <= n:
            acc = [_round(a, lane) for a, lane in zip(acc, unpack_from("<4Q", data, pos), strict=True)]
            pos += 32
        h = sum(_rotl(a, r) for a, r in zip(acc, (1, 7, 12, 18), strict=True)) & _M
        for a in acc:
            h = ((h ^ _round(0, a)) * _P1 + _P4) & _M
    else:
        h = (seed + _P5) & _M
    h = (h + n) & _M
    while pos + 8 <= n:
        h = (_rotl(h ^ _round(0, unpack_from("<Q", data, pos)[0]), 27) * _P1 + _P4) & _M
        pos += 8
    if pos + 4 <= n:
        h = (_rotl(h ^ unpack_from("<I", data, pos)[0] * _P1 & _M, 23) * _P2 + _P3) & _M
        pos += 4
    for byte in data[pos:]:
        h = _rotl(h ^ byte * _P5 & _M, 11) * _P1 & _M
    h = (h ^ h >> 33) * _P2 & _M
    h = (h ^ h >> 29) * _P3 & _M
    return h ^ h >> 32


def type_id(name: str) -> int:
    """Return the id of a registered name with its closing zero byte: FBS v1 (MGBC) files and opr_version 2.

    >>> type_id("ImmutableTensor")
    6977527550664090289
    """
    return xxh64(name.encode() + b"\0", SEED) or 1


def unversioned_id(name: str) -> int:
    """Return the id of a name less one trailing ``V<digit>``: MGBS files and opr_version 1.

    >>> unversioned_id("ReduceV2") == unversioned_id("Reduce")
    True
    """
    return xxh64(re.sub(r"V\d$", "", name).encode(), SEED) or 1
