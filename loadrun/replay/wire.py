"""Messages between a process and the workers that it started, over pipes that nobody else holds."""

from __future__ import annotations

import pickle
from struct import pack, unpack
from typing import IO, Any

__all__ = ["receive", "send"]

_HEAD = 8


def send(pipe: IO[bytes], message: object) -> None:
    """Write one message."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(pack("<Q", len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[Any, int]:
    """Wait for a message.

    Returns:
        it, and its size in bytes.

    Raises:
        EOFError: the other side is gone.
    """
    data = _exactly(pipe, unpack("<Q", _exactly(pipe, _HEAD))[0])
    return pickle.loads(data), len(data)


def _exactly(pipe: IO[bytes], n: int) -> bytes:
    found = pipe.read(n)
    if len(found) < n:
        raise EOFError
    return found
