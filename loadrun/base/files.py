"""Files: names and patterns, and reading files that must not change."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from weakref import WeakSet

from .registry import late

with late(__name__):
    import mmap

MODELS = (".mge", ".onnx", ".pt2")
"""File name endings of models, which a folder stands for."""


def files_of(
    names: Iterable[str], endings: tuple[str, ...] = MODELS, skipped: list[str] | None = None
) -> Iterator[str]:
    """Yield the files that a user's names stand for.

    ``~`` is the home folder.
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
        name = os.path.expanduser(text)
        paths = [name]
        if not os.path.lexists(name) and glob.has_magic(name):
            paths = sorted(glob.glob(name, recursive=True)) or paths
        for path in paths:
            inside = list(_within(path, endings, skipped)) if os.path.isdir(path) else []
            yield from inside or [path]


def nothing_there(text: str) -> str | None:
    """Explain why a folder or a pattern matches no file; None for other names.

    >>> nothing_there("fixtures/*.nothing")
    'no file matches the pattern'
    """
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


def one_file(name: str) -> str:
    """Return the one file that a name, a pattern or a folder stands for.

    Raises:
        OSError: it stands for several.
    """
    paths = list(files_of([name]))
    if len(paths) > 1:
        raise OSError(
            errno.EINVAL, f"expected one file, found {len(paths)}: {paths[0]}, {paths[1]} ...", name
        )
    return paths[0]


def nameable(path: str | os.PathLike[str]) -> str:
    """Return the name of a file as text; not every Python string is one: a lone surrogate has no bytes, and 0 ends it.

    Raises:
        OSError: no file can have it.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise OSError(
            errno.EINVAL, "no file can hold a null character in its name", name.replace("\0", "\\0")
        )
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        shown = name.encode("ascii", "backslashreplace").decode()
        raise OSError(
            errno.EINVAL, "a file name cannot contain a lone surrogate, half of a character", shown
        ) from None
    return name


def opened(path: str | os.PathLike[str], what: str) -> BinaryIO:
    """Open a regular file for reading, at once.

    A pipe would block until somebody writes to it and can be read only once, a device may never end.

    Args:
        path: the file.
        what: what it is taken for, such as "a model", for the message.

    Raises:
        OSError: it cannot be opened or is not a regular file.
    """
    name = nameable(path)
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
            sort = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
            raise OSError(errno.EINVAL, f"{what} must be a regular file, not a {sort}; copy it first", name)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def contents(path: str | os.PathLike[str], what: str) -> bytes:
    """Return the bytes of a regular file; see `opened`."""
    with opened(path, what) as f:
        return f.read()


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
        _mapped.add(mapping)
        return memoryview(mapping), FileWatch(os.fspath(path), status)


_mapped: WeakSet[mmap.mmap] = WeakSet()
"""Every file that is mapped."""
_LARGE = 1 << 26
"""Bytes of a file from which on its pages are worth giving back."""


def give_back_pages() -> None:
    """Take large mapped files out of this process's memory; they come back where they are read again."""
    advice = getattr(mmap, "MADV_DONTNEED", None)
    for mapping in list(_mapped):
        if advice is not None and len(mapping) >= _LARGE:
            mapping.madvise(advice)
