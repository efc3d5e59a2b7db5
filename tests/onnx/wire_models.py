"""ONNX files written field by field, so that they can say what the package onnx would refuse to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["KINDS", "attribute", "field", "graph", "model", "node", "number", "tensor", "value"]


KINDS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
"""The element types of numpy's dtypes."""


def number(value: int) -> bytes:
    """A varint."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def field(at: int, value: int | str | bytes) -> bytes:
    """One field of a message: a number, or bytes with their length."""
    if isinstance(value, int):
        return number(at << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(at << 3 | 2) + number(len(data)) + data


def node(op: str, inputs: list[str], outputs: list[str], *attributes: bytes, domain: str = "") -> bytes:
    """A node of a graph."""
    parts = [field(1, i) for i in inputs] + [field(2, o) for o in outputs] + [field(4, op)]
    parts += [field(5, a) for a in attributes] + ([field(7, domain)] if domain else [])
    return field(1, b"".join(parts))


def value(name: str, kind: int = 1, shape: tuple[int, ...] = (2,)) -> bytes:
    """A name with an element type and a shape."""
    dims = b"".join(field(1, field(1, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def model(*parts: bytes, opset: int = 17, functions: bytes = b"") -> bytes:
    """A file with the parts of its graph."""
    return field(1, 8) + field(8, field(2, opset)) + field(7, b"".join(parts)) + functions


def graph(*nodes: bytes, out: str = "y", shape: tuple[int, ...] = (2,)) -> bytes:
    """A file with an input x and one output."""
    return model(*nodes, field(11, value("x", shape=shape)), field(12, value(out)))


def tensor(array: np.ndarray, name: str = "") -> bytes:
    """A stored tensor."""
    kind = KINDS[array.dtype.name]
    dims = b"".join(field(1, d) for d in array.shape)
    return dims + field(2, kind) + (field(8, name) if name else b"") + field(9, array.tobytes())


def attribute(name: str, held: int | str | np.ndarray | Sequence[Any]) -> bytes:
    """An attribute: a number, a text, a list of integers, floats or texts, or an array as a tensor."""
    if isinstance(held, int):
        return field(1, name) + field(3, held) + field(20, 2)
    if isinstance(held, str):
        return field(1, name) + field(4, held) + field(20, 3)
    if isinstance(held, np.ndarray):
        return field(1, name) + field(5, tensor(held)) + field(20, 4)
    if held and isinstance(held[0], str):
        return field(1, name) + b"".join(field(9, v) for v in held) + field(20, 8)
    if held and isinstance(held[0], float):
        return field(1, name) + field(7, np.array(held, "<f4").tobytes()) + field(20, 6)
    return field(1, name) + field(8, b"".join(number(v) for v in held)) + field(20, 7)
