"""What Python's `zipfile` raises for archives that are damaged."""

import lzma
import struct
import zipfile
import zlib

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""It lets through whatever its parts raise at damaged offsets, sizes, names and methods."""
