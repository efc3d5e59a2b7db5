"""Writing files that appear when they are complete, under names that no other file has."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, TextIO

from .errors import UsageError, clean
from .files import nameable
from .registry import late

with late(__name__):
    import pathlib
    import secrets
    import shutil
    import tempfile

_PART = ".part"
_LONGEST = 100


def check_targets(
    written: Mapping[str, str | os.PathLike[str] | None], read: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Check that no file is written twice or both read and written, under whatever names, links or capitalization.

    Args:
        written: what will be written, by the option that says so; None and ``-`` for standard output are no files.
        read: what is read meanwhile.

    Raises:
        UsageError: two options name one file, or one names a file that is read.

    >>> check_targets({"--json": "r.json", "--html": "./r.json"})
    Traceback (most recent call last):
    loadrun.base.errors.UsageError: --json and --html both write r.json; choose different files
    """
    known: dict[object, str] = {}
    for option, path in written.items():
        if path is None or path == "-":
            continue
        other = known.setdefault(_identity(path), option)
        if other != option:
            raise UsageError(
                f"{other} and {option} both write {clean(os.fspath(written[other] or ''))}; choose different files"
            )
    for path in read:
        option = known.get(_identity(path), "")
        if option:
            raise UsageError(
                f"{option} would overwrite {clean(os.fspath(path))}, an input of this command; choose another file"
            )


def _identity(path: str | os.PathLike[str]) -> object:
    """Identify a file independently of its names."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.normcase(os.path.realpath(path))
    except ValueError:
        # No file can have that name; opening it will report that.
        return path
    # A device may be written to more than once.
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else object()


@contextmanager
def growing(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing whose contents are visible while they are written.

    Raises:
        OSError: it cannot be written to.
    """
    with io.BufferedWriter(_Raw(nameable(target), "wb", target)) as f:
        yield f


@contextmanager
def replacing(target: str | os.PathLike[str], *, append: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `target` when all is written, flushed and closed.

    An error or an interrupt leaves `target` as it was. A link is replaced, and what it leads to stays as it is,
    unless that is a device or a pipe: such is written to directly.

    Args:
        target: the file.
        append: begin with what the file holds.

    Raises:
        OSError: the folder is not there or cannot be written to.
    """
    path = pathlib.Path(nameable(target))
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "expected the name of a file to write, found a folder", str(target)
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder to write to does not exist", str(path.parent))
    if path.exists() and not path.is_file():
        with _naming_short_writes(target), io.BufferedWriter(_Raw(path, "wb", target)) as f:
            yield f
        return

    # The name is known before the file exists, so that a signal cannot come between creating and removing it.
    temporary = path.parent / f"{_prefix(path)}{secrets.token_hex(8)}{_PART}"
    try:
        raw = _Raw(temporary, "xb", target)
        with _naming_short_writes(target), io.BufferedWriter(raw) as f:
            if append and path.exists():
                with path.open("rb") as old:
                    while piece := old.read(1 << 20):
                        f.write(piece)
            yield f
            f.flush()
            raw.sync()
        mode = path.lstat().st_mode if path.exists() and not path.is_symlink() else 0o666 & ~_umask()
        os.chmod(temporary, mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def text_file(target: str | os.PathLike[str], encoding: str = "ascii") -> Iterator[TextIO]:
    """Open a text file that appears when it is complete; ``-`` is standard output."""
    if target == "-":
        yield sys.stdout
        return
    with replacing(target) as raw:
        file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", newline="\n")
        yield file
        file.detach()


class _Raw(io.FileIO):
    """A file whose errors of writing name what is meant to be written, not its temporary.

    Args:
        path: what to open.
        mode: how.
        target: the name for errors.
    """

    def __init__(self, path: str | os.PathLike[str] | int, mode: str, target: str | os.PathLike[str]) -> None:
        # Others cannot read a new file before it is complete.
        private = (lambda name, flags: os.open(name, flags, 0o600)) if mode == "xb" else None
        super().__init__(path, mode, opener=private)
        self._target = os.fspath(target)

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer; its type has a name since Python 3.12
        """Write bytes and return how many were written."""
        try:
            return super().write(data)
        except OSError as e:
            raise OSError(e.errno, e.strerror, self._target) from None

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        try:
            os.fsync(self.fileno())
        except OSError as e:
            raise OSError(e.errno, e.strerror, self._target) from None


@contextmanager
def _naming_short_writes(target: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in numpy's error, which only counts the elements written."""
    try:
        yield
    except OSError as e:
        if e.errno is None and "written" in str(e):
            raise OSError(errno.ENOSPC, f"could not be written completely ({e})", os.fspath(target)) from None
        raise


@contextmanager
def temporary() -> Iterator[IO[bytes]]:
    """Open a named file for writing and reading that is removed afterwards."""
    fd, name = tempfile.mkstemp(prefix=".loadrun.", suffix=_PART)
    os.close(fd)
    try:
        with io.BufferedRandom(_Raw(name, "w+b", name)) as f:
            yield f
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def scratch() -> IO[bytes]:
    """Open a temporary file for writing and reading; write errors name the folder of temporary files."""
    fd, name = tempfile.mkstemp(prefix=".loadrun.", suffix=_PART)
    with suppress(OSError):
        os.unlink(name)
    return io.BufferedRandom(_Raw(fd, "w+b", tempfile.gettempdir()))


@contextmanager
def new_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make a folder to fill that appears as `target`, which must be missing or empty, when all is done."""
    nameable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_PART, dir=target.parent))
    try:
        yield folder
        folder.chmod(0o777 & ~_umask())
        os.replace(folder, target)
    except BaseException as e:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(e, OSError) and isinstance(e.filename, str):
            # The final folder's name, not the temporary one.
            e.filename = e.filename.replace(str(folder), str(target), 1)
        raise


def _prefix(path: pathlib.Path) -> str:
    return f".{path.name[:100]}."


class FileNames:
    """File names for names that come from a file: those that become equal when they are cleaned stay apart.

    Args:
        plain: letters of ASCII alone, for folders that go elsewhere.

    >>> names = FileNames()
    >>> [names.file(n) for n in ("a~", "a__2", "a/", "A_", "")]
    ['a_', 'a__2', 'a__3', 'A__4', 'value']
    """

    def __init__(self, *, plain: bool = False) -> None:
        self._flags = re.A if plain else re.U
        self._used: set[str] = set()
        self._count: dict[str, int] = {}

    def file(self, name: str, lead: str = "") -> str:
        """Return a name of letters, digits and ``_.+-`` that was not given before, whatever the capitals.

        Args:
            name: what it is to remind of.
            lead: what it begins with, taken as it is.
        """
        stem = re.sub(r"[^\w.+-]", "_", name, flags=self._flags)[:_LONGEST]
        while len(stem.encode()) > _LONGEST:
            stem = stem[:-1]
        stem = unique = lead + (stem or "value")
        while _folded_name(unique) in self._used:
            n = self._count[_folded_name(stem)] = self._count.get(_folded_name(stem), 1) + 1
            unique = f"{stem}_{n}"
        self._used.add(_folded_name(unique))
        return unique


def _folded_name(name: str) -> str:
    """Return the name as a case-insensitive file system may fold it."""
    return unicodedata.normalize("NFKC", name).casefold()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
