"""Writing files that appear when they are complete."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["replacing"]


@contextmanager
def replacing(target: str | os.PathLike[str], *, append: bool = False) -> Iterator[IO[bytes]]:
    """A file to write to that takes the place of `target` when all is written, flushed and closed.

    An error or an interrupt leaves `target` as it was. A link stays a link; a device or a pipe is written to directly.

    Args:
        target: the file.
        append: begin with what the file holds.

    Raises:
        OSError: the folder is not there or cannot be written to.
    """
    path = Path(os.path.realpath(target))
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "expected the name of a file to write, found a folder", str(target)
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    if path.exists() and not path.is_file():
        with path.open("wb") as f:
            yield f
        return
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as f:
            if append and path.exists():
                with path.open("rb") as old:
                    shutil.copyfileobj(old, f)
            yield f
            f.flush()
            os.fsync(f.fileno())
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
