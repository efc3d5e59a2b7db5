"""Files: names and patterns, reading files that must not change, writing files that appear when they are complete."""

from __future__ import annotations

import errno
import glob
import io
import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TextIO
from weakref import finalize, ref

from .errors import UsageError, clean

if TYPE_CHECKING:
    import mmap
    from pathlib import Path

    import numpy as np

__all__ = [
    "MODELS",
    "FileNames",
    "FileWatch",
    "check_targets",
    "contents",
    "fetched",
    "files_of",
    "give_back_pages",
    "growing",
    "is_remote",
    "mapped_at",
    "mapped_file",
    "new_folder",
    "nothing_there",
    "one_file",
    "opened",
    "replacing",
    "scratch",
    "skipped_line",
    "temporary",
    "text_file",
]

MODELS = (".mge", ".onnx", ".pt2")
"""File name endings of models, which a folder stands for."""
_URL = r"[a-zA-Z][a-zA-Z0-9+.-]+://."
_PART = ".part"
_LONGEST = 100
_STALE = 24 * 3600.0
"""Age in seconds at which a temporary file is considered abandoned by a killed process."""


def is_remote(name: object) -> bool:
    """Tell whether a name is a URL.

    >>> is_remote("s3://bucket/net.mge"), is_remote("models/net.mge"), is_remote("C:\\\\net.mge")
    (True, False, False)
    """
    return isinstance(name, str) and "://" in name and re.match(_URL, name) is not None


def fetched(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the local copy of a remote file, and any other name as it is; see `loadrun.base.remote.fetched`."""
    if not is_remote(path):
        return path
    from . import remote  # for start-up, and its package is optional

    return remote.fetched(str(path))


@contextmanager
def _sent(url: str) -> Iterator[IO[bytes]]:
    from . import remote  # for start-up, and its package is optional

    with remote.writing(url) as f:
        yield f


def files_of(
    names: Iterable[str], endings: tuple[str, ...] = MODELS, skipped: list[str] | None = None
) -> Iterator[str]:
    """Return the files that a user's names stand for.

    URLs (``s3://bucket/models/*.mge``) are listed by their server. ``~`` is the home folder.
    What is there under its name is that; else ``*``, ``?`` and ``[...]`` are a pattern, in
    which ``**`` goes through folders. A folder stands for the files in it and its folders whose names have one of the
    endings; those that begin with a dot, and what links to folders lead to, are left out. Files of a pattern or a
    folder come in order of their names. What stands for nothing is given as it is, for the reader to say so.

    Args:
        names: names, patterns and folders.
        endings: of the files that are meant in folders, in small letters; empty for all.
        skipped: takes the folders that are left out, and files that begin with a dot and have one of the endings.

    >>> [p.replace(os.sep, "/") for p in files_of(["fixtures/nets/ml*.mge", "absent"])]
    ['fixtures/nets/mlp.mge', 'fixtures/nets/mlp.v1.mge', 'absent']
    """
    for text in names:
        if is_remote(text):
            yield from _reachable(text, endings)
            continue
        name = os.path.expanduser(text)
        paths = [name]
        if not os.path.lexists(name) and glob.has_magic(name):
            paths = sorted(glob.glob(name, recursive=True)) or paths
        for path in paths:
            inside = list(_within(path, endings, skipped)) if os.path.isdir(path) else []
            yield from inside or [path]


def _reachable(url: str, endings: tuple[str, ...]) -> list[str]:
    """List the files of a URL; one that cannot be reached is left for its reader to say so."""
    from . import remote  # for start-up, and its package is optional

    try:
        return remote.listed(url, endings)
    except OSError:
        return [url]


def nothing_there(text: str) -> str | None:
    """Explain why a folder or a pattern matches no file; None for other names.

    >>> nothing_there("fixtures/*.nothing")
    'no file matches the pattern'
    """
    if is_remote(text):
        return None
    if os.path.isdir(text):
        return f"the folder has no models ({', '.join(MODELS)})"
    return "no file matches the pattern" if glob.has_magic(text) and not os.path.lexists(text) else None


def _within(folder: str, endings: tuple[str, ...], skipped: list[str] | None) -> Iterator[str]:
    """List the files of a folder and its subfolders, in order of their names."""
    out = [] if skipped is None else skipped
    for place, folders, names in os.walk(folder):
        inside = sorted(folders)
        folders[:] = [
            n for n in inside if not n.startswith(".") and not os.path.islink(os.path.join(place, n))
        ]
        out += [os.path.join(place, n) for n in inside if n not in folders]
        for name in sorted(names):
            if not endings or name.lower().endswith(endings):
                path = os.path.join(place, name)
                if name.startswith("."):
                    out.append(path)
                else:
                    yield path


def skipped_line(skipped: Iterable[str]) -> str:
    """Return one line on how many files `files_of` left out; empty if none.

    >>> skipped_line(["models/.old.mge", "models/.new.mge"])
    'skipped in folders: 2 hidden files (name them to take them)'
    """
    counts = {"hidden folder": 0, "linked folder": 0, "hidden file": 0}
    for path in skipped:
        linked = os.path.islink(path) and os.path.isdir(path)
        hidden = "hidden folder" if os.path.isdir(path) else "hidden file"
        counts["linked folder" if linked else hidden] += 1
    parts = [f"{n} {what}{'s' * (n != 1)}" for what, n in counts.items() if n]
    return f"skipped in folders: {', '.join(parts)} (name them to take them)" if parts else ""


def one_file(name: str, endings: tuple[str, ...] = MODELS) -> str:
    """Return the one file that a name, a pattern or a folder stands for.

    Raises:
        OSError: it stands for several.
    """
    paths = list(files_of([name], endings))
    if len(paths) > 1:
        raise OSError(
            errno.EINVAL, f"expected one file, found {len(paths)}: {paths[0]}, {paths[1]} ...", name
        )
    return paths[0]


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
    if is_remote(target):
        with _sent(str(target)) as f:
            yield f
        return
    with io.BufferedWriter(_Raw(_nameable(target), "wb", target)) as f:
        yield f


def _nameable(path: str | os.PathLike[str]) -> str:
    """Return the name of a file as text; not every Python string is one: a lone surrogate has no bytes.

    Raises:
        OSError: no file can have it.
    """
    name = os.fspath(path)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        shown = name.encode("ascii", "backslashreplace").decode()
        raise OSError(errno.EINVAL, "no file can have this name: it holds half a character", shown) from None
    return name


def opened(path: str | os.PathLike[str], what: str) -> BinaryIO:
    """Open a regular file for reading, at once.

    A pipe would block until somebody writes to it and can be read only once, a device may never end.

    Args:
        path: the file; a URL is fetched first.
        what: what it is taken for, such as "a model", for the message.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """
    name = _nameable(fetched(path))
    try:
        fd = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        if (pattern := nothing_there(os.fspath(name))) is None:
            raise
        raise FileNotFoundError(errno.ENOENT, pattern, name) from None
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            empty = "mge" in what and next(_within(os.fspath(name), MODELS, None), None) is None
            said = f"expected {what}, found a folder" + f" without models ({', '.join(MODELS)})" * empty
            raise IsADirectoryError(errno.EISDIR, said, name)
        if not stat.S_ISREG(mode):
            raise OSError(
                errno.EINVAL, f"{what} must be a regular file, not a {_sort(mode)}; copy it first", name
            )
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def contents(path: str | os.PathLike[str], what: str) -> bytes:
    """Return the bytes of a regular file; see `opened`."""
    with opened(path, what) as f:
        return f.read()


def _sort(mode: int) -> str:
    return "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"


class FileWatch:
    """Tells whether a file that is mapped into memory is still as it was.

    A mapped file that is cut short kills the process that reads past its end. A file that is replaced by another
    (as loadrun writes files) does no harm: the mapping keeps the old one.

    Args:
        path: the file.
        status: its `os.stat_result` when it was opened.
    """

    def __init__(self, path: str, status: os.stat_result) -> None:
        self.path = os.path.abspath(path)
        self.status = status

    def changed(self) -> bool:
        """Return whether the file's size or modification time has changed."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        old = self.status
        if now.st_mtime_ns == old.st_mtime_ns and now.st_size == old.st_size:
            return False
        return now.st_ino == old.st_ino and now.st_dev == old.st_dev


def mapped_file(
    path: str | os.PathLike[str], what: str, copy: bool = False, plain: bool = False
) -> tuple[memoryview, FileWatch | None]:
    """Map the bytes of a regular file where possible, and return what tells whether a mapped file changed.

    Args:
        path: the file.
        what: what it is taken for, for the message; see `opened`.
        copy: read it into memory now.
        plain: take no link, not even one that was put there a moment ago.

    Raises:
        OSError: it cannot be read.
    """
    import mmap  # for start-up

    path = fetched(path)
    with opened(path, what) as f:
        status = os.fstat(f.fileno())
        if plain and not os.path.samestat(status, os.lstat(path)):
            raise OSError(errno.ELOOP, f"{what} must be a file, found a link", os.fspath(path))
        if copy:
            return memoryview(f.read()).toreadonly(), None
        try:
            mapping = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return memoryview(f.read()).toreadonly(), None
        data = memoryview(mapping)
        import numpy as np  # for start-up

        start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
        _mapped[start] = len(data), os.path.abspath(path), ref(mapping)
        finalize(mapping, _mapped.pop, start, None)
        return data, FileWatch(os.fspath(path), status)


_mapped: dict[int, tuple[int, str, ref[mmap.mmap]]] = {}
"""Size, path and mapping of every file that is mapped, by its address."""
_LARGE = 1 << 26
"""Bytes of a file from which on its pages are worth giving back."""


def give_back_pages() -> None:
    """Take large mapped files out of this process's memory; they come back where they are read again."""
    import mmap  # for start-up

    advice = getattr(mmap, "MADV_DONTNEED", None)
    for size, _, mapping in list(_mapped.values()):
        mapped = mapping()
        if advice is not None and mapped is not None and size >= _LARGE:
            mapped.madvise(advice)


def mapped_at(data: np.ndarray[Any, Any]) -> tuple[str, int] | None:
    """Return the file that an array is a view of, and its offset there; None where it is no view of a mapped file."""
    at = data.__array_interface__["data"][0]
    for start, (size, path, _) in _mapped.items():
        if start <= at and at + data.nbytes <= start + size and data.flags.c_contiguous:
            return path, at - start
    return None


@contextmanager
def replacing(target: str | os.PathLike[str], *, append: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `target` when all is written, flushed and closed.

    An error or an interrupt leaves `target` as it was. A link is replaced, and what it leads to stays as it is,
    unless that is a device or a pipe: such is written to directly. A temporary that a killed process left for the same
    target is removed when it is a day old.

    Args:
        target: the file.
        append: begin with what the file holds.

    Raises:
        OSError: the folder is not there or cannot be written to.
    """
    if is_remote(target):
        with _sent(str(target)) as f:
            yield f
        return
    from pathlib import Path  # for start-up

    path = Path(_nameable(target))
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
    import secrets  # for start-up

    _sweep(path)
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
    """Open a text file that appears when it is complete."""
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
        super().__init__(path, mode, opener=_private if mode == "xb" else None)
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


def _private(name: str, flags: int) -> int:
    """Open a file that others cannot read before it is complete."""
    return os.open(name, flags, 0o600)


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
    import tempfile  # for start-up

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
    import tempfile  # for start-up

    fd, name = tempfile.mkstemp(prefix=".loadrun.", suffix=_PART)
    with suppress(OSError):
        os.unlink(name)
    return io.BufferedRandom(_Raw(fd, "w+b", tempfile.gettempdir()))


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Make a folder to fill that appears as `target`, which must be missing or empty, when all is done."""
    import shutil  # for start-up
    import tempfile  # for start-up
    from pathlib import Path  # for start-up

    _nameable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    folder = Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=_PART, dir=target.parent))
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


def _prefix(path: Path) -> str:
    return f".{path.name[:100]}."


@lru_cache(maxsize=8)
def _hidden_parts(folder: Path) -> tuple[str, ...]:
    """List the temporary files in a folder, only once, since a command may write thousands of files into it."""
    with os.scandir(folder) as entries:
        return tuple(e.name for e in entries if e.name.startswith(".") and e.name.endswith(_PART))


def _sweep(path: Path) -> None:
    """Remove temporary files that killed processes left when writing the same file or folder."""
    random = re.compile(re.escape(_prefix(path)) + r"[a-z0-9_]{8,16}" + re.escape(_PART))
    for old in (os.path.join(path.parent, n) for n in _hidden_parts(path.parent) if random.fullmatch(n)):
        try:
            status = os.lstat(old)
            if time.time() - status.st_mtime < _STALE:
                continue
            if stat.S_ISDIR(status.st_mode):
                import shutil  # for start-up

                shutil.rmtree(old, ignore_errors=True)
            elif stat.S_ISREG(status.st_mode):
                os.unlink(old)
        except OSError:
            # Already removed by another process, or in use.
            continue


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
