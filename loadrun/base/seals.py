"""JSON objects whose last member is a digest of the text before it, so that damage is seen whatever it hits."""

import os
import re
from typing import BinaryIO

from .errors import FormatError
from .registry import late

with late(__name__):
    import hashlib

_MEMBER = ', "digest": "{}"}}'
_SIZE = 32


def digest_of(text: bytes) -> str:
    """Hash a text.

    >>> digest_of(b"{}")[:8]
    '2afb9b83'
    """
    return hashlib.blake2b(text, digest_size=_SIZE // 2).hexdigest()


def sealed(text: str) -> str:
    """Give a JSON object, which has members, the digest of its text.

    >>> sealed('{"y": 1}')
    '{"y": 1, "digest": "296dc9bad857e3f047061e99b7458e84"}'
    """
    return text[:-1] + _MEMBER.format(digest_of(text.encode()))


def seal(file: BinaryIO) -> None:
    """Add the digest of its text to the JSON object that is a file and ends with its brace; see `sealed`."""
    digest = hashlib.blake2b(digest_size=_SIZE // 2)
    file.seek(0)
    while piece := file.read(1 << 20):
        digest.update(piece)
    file.seek(-1, os.SEEK_END)
    file.write(_MEMBER.format(digest.hexdigest()).encode())


def unsealed(data: bytes) -> tuple[bytes, str | None]:
    """Take the digest off a JSON object; it is None where the text has none, as those of older versions.

    >>> unsealed(sealed('{"y": 1}').encode())
    (b'{"y": 1}', '296dc9bad857e3f047061e99b7458e84')
    """
    end = len(_MEMBER.format("0" * _SIZE))
    member = re.fullmatch(_MEMBER.format(f"([0-9a-f]{{{_SIZE}}})").encode(), data[-end:])
    return (data, None) if member is None else (data[:-end] + b"}", member[1].decode())


def require_digest(text: bytes, digest: str | None, where: str) -> None:
    """Check what `unsealed` gave.

    Args:
        text, digest: the text and its digest; None fits every text.
        where: where it stands, for the message.

    Raises:
        FormatError: the text is not what the digest was made of.
    """
    if digest not in (None, digest_of(text)):
        raise FormatError(
            f"{where} does not have the digest that stands in it: it was changed after it was written, so that what "
            "outputs must fulfil is not known; restore it, or write it anew"
        )
