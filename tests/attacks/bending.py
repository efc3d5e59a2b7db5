"""Ways to bend bytes, texts and protobuf messages that leave most of their structure as it was."""

from __future__ import annotations

import random
import struct

__all__ = ["EDGES", "bent", "bent_message", "words"]

EDGES = (0, 1, 2, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)


def bent(rng: random.Random, data: bytes) -> bytes:
    """A few places changed: a bit, a byte, a number of some width, a piece cut out, doubled or moved."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(out) + 1)
        action = rng.randrange(6)
        if action == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif action == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif action == 2:
            form = rng.choice(("<H", ">H", "<I", ">I", "<Q"))
            out[at : at + struct.calcsize(form)] = struct.pack(
                form, rng.choice(EDGES) % 256 ** struct.calcsize(form)
            )
        elif action == 3:
            del out[at : at + rng.randrange(1, 40)]
        elif action == 4:
            out[at:at] = out[at : at + rng.randrange(1, 40)]
        elif len(out) > 1:
            start = rng.randrange(len(out))
            out[at:at] = out[start : start + rng.randrange(1, 20)]
    return bytes(out)


def words(rng: random.Random, text: str, vocabulary: list[str]) -> str:
    """A few words of a text changed, doubled, swapped or left out."""
    parts = _split(text)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        at = rng.randrange(len(parts) + 1)
        action = rng.randrange(4)
        if action == 0:
            parts[at:at] = [rng.choice(vocabulary)]
        elif action == 1 and at < len(parts):
            parts[at] = rng.choice(vocabulary)
        elif action == 2:
            del parts[at : at + rng.randrange(1, 4)]
        else:
            start = rng.randrange(len(parts) + 1)
            parts[at:at] = parts[start : start + rng.randrange(1, 8)]
    return "".join(parts)


def _split(text: str) -> list[str]:
    found: list[str] = []
    for char in text:
        if found and char.isalnum() and found[-1][-1].isalnum():
            found[-1] += char
        else:
            found.append(char)
    return found


def fields(data: bytes) -> list[bytes]:
    """The fields of a protobuf message, tags included; what is none stays in one piece."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        start = at
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            _, at = _varint(data, at)
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            at += size
        elif tag & 7 in (1, 5):
            at += 8 if tag & 7 == 1 else 4
        else:
            return [data]
        if at > len(data) or not tag >> 3:
            return [data]
        found.append(data[start:at])
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            break
    return value, at


def _written(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def bent_message(rng: random.Random, data: bytes, depth: int = 0) -> bytes:
    """A message in which a field is doubled, moved, left out, given another number, or bent in turn."""
    parts = fields(data)
    at = rng.randrange(len(parts)) if parts else 0
    if len(parts) < 2 or depth > 6:
        return bent(rng, data)
    tag, start = _varint(parts[at], 0)
    action = rng.randrange(8)
    if action == 0:
        parts.insert(rng.randrange(len(parts)), parts[at])
    elif action == 1:
        del parts[at]
    elif action == 2:
        parts[at] = _written((rng.randrange(1, 30) << 3) | tag & 7) + parts[at][start:]
    elif tag & 7 == 2:
        _, inner = _varint(parts[at], start)
        body = bent_message(rng, parts[at][inner:], depth + 1)
        parts[at] = _written(tag) + _written(len(body)) + body
    elif tag & 7 == 0:
        parts[at] = _written(tag) + _written(rng.choice((*EDGES, rng.randrange(20))))
    return b"".join(parts)
