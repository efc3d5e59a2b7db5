"""Files of other machines (``s3://``, ``gs://``, ``https://``), by fsspec: fetched once, and written at the end."""

from __future__ import annotations

import errno
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any

from .errors import FormatError, LoadRunError, UsageError
from .extras import install

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_VALIDATORS = set("etag generation versionid blobid sha sha256 md5 md5hash contentmd5 digest".split())
_VALIDATORS |= set("crc crc32c checksum lastmodified mtime modified modify modificationtime updated".split())
"""What file systems of fsspec call what changes with a file, in small letters."""
_DATA_SETS = re.compile(r"(.+\.)?test_data_set_\d+")


def fetched(url: str) -> str:
    """Return a local copy of a remote file, which is fetched unless it is there already.

    Copies lie in ``LOADRUN_CACHE``, or ``loadrun`` in the user's folder of caches, below a digest of the URL and of
    what its server says of the file (size, time, ETag); another version is another copy. A file of which it tells
    nothing that another version would change is fetched each time, and lies below a digest of its bytes. What belongs
    to an ONNX model comes with it: its folders of test data, and files that begin with its name, where the server
    lists folders.

    Raises:
        OSError: it cannot be fetched.
        FormatError: it has another length than its server says.
        UsageError: fsspec, or its part for this kind of server, is not installed.
    """
    with _naming(url):
        fs, path = _system(url)
        parts = {posixpath.basename(path): fs.info(path)}
        if path.lower().endswith(".onnx"):
            parts = {**_beside(fs, path), **parts}
        os.makedirs(_cache(), exist_ok=True)
        # Under another name until it is complete: other processes look there as well.
        with tempfile.TemporaryDirectory(dir=_cache()) as scratch:
            pieces: dict[str, str] = {}
            told = []
            for name, info in sorted(parts.items()):
                said = sorted(map(str, info.items()))
                if not _is_told_apart(info):
                    pieces[name] = _piece(fs, path, name, info, scratch)
                    said = [_digest(pieces[name])]
                told.append((name, said))
            folder = os.path.join(
                _cache(), sha256(url.encode()).hexdigest()[:16], sha256(repr(told).encode()).hexdigest()[:16]
            )
            for name, info in parts.items():
                target = os.path.join(folder, *name.split("/"))
                if not os.path.exists(target):
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    os.replace(pieces.get(name) or _piece(fs, path, name, info, scratch), target)
        return os.path.join(folder, posixpath.basename(path))


def _is_told_apart(info: Mapping[str, Any]) -> bool:
    """Return whether what a server says of a file would be otherwise for another version of the same length."""
    return any(re.sub("[^a-z0-9]", "", key.lower()) in _VALIDATORS for key, value in info.items() if value)


def _piece(fs: AbstractFileSystem, path: str, name: str, info: Mapping[str, Any], folder: str) -> str:
    """Fetch a file into a folder.

    Args:
        path: of the model.
        name: of the file, from the model's folder.
        info: what the server says of it.
        folder: a local one.

    Raises:
        FormatError: what came has another length than the server says.
    """
    piece = os.path.join(folder, *name.split("/"))
    os.makedirs(os.path.dirname(piece), exist_ok=True)
    remote = posixpath.join(posixpath.dirname(path), name)
    fs.get_file(remote, piece)
    size, said = os.path.getsize(piece), info.get("size")
    if said is not None and size != said:
        raise FormatError(
            f"{fs.unstrip_protocol(remote)}: the server tells a length of {said} bytes and gives {size}"
        )
    return piece


def _digest(path: str) -> str:
    digest = sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def listed(url: str, endings: tuple[str, ...]) -> list[str]:
    """Return the files that a URL stands for: those of a pattern or of a folder, in order of their names, else itself.

    Args:
        url: of a file or a folder, or with ``*``, ``?`` and ``[...]``, as in `files_of`.
        endings: of the files that are meant in folders, in small letters; empty for all.

    Raises:
        OSError: the server refuses it.
        UsageError: fsspec, or its part for this kind of server, is not installed.
    """
    with _naming(url):
        fs, path = _system(url)
        if any(c in path for c in "*[") or ("?" in path and not url.startswith("http")):
            hidden = posixpath.basename(path).startswith(".")
            matches = [p for p in fs.glob(path) if hidden or not posixpath.basename(p).startswith(".")]
            return sorted(map(fs.unstrip_protocol, matches)) or [url]
        if (endings and path.lower().endswith(endings)) or not fs.isdir(path):
            return [url]
        inside = [p for p in fs.find(path) if not endings or p.lower().endswith(endings)]
        shown = [p for p in inside if not re.search(r"/\.", p[len(path.rstrip("/")) :])]
        return sorted(map(fs.unstrip_protocol, shown)) or [url]


@contextmanager
def writing(url: str) -> Iterator[IO[bytes]]:
    """Open a file to write to that is sent to a URL when all is written; an error leaves the other file as it was.

    Raises:
        OSError: it cannot be sent.
        UsageError: fsspec, or its part for this kind of server, is not installed.
    """
    with _naming(url):
        fs, path = _system(url)
    with tempfile.TemporaryDirectory() as folder:
        whole = os.path.join(folder, "file")
        with open(whole, "wb") as file:
            yield file
        with _naming(url):
            fs.put_file(whole, path)


def _system(url: str) -> tuple[AbstractFileSystem, str]:
    """Return fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs  # an optional package
    except ImportError:
        raise UsageError(f"{url} is a remote file; reading it requires fsspec: {install('remote')}") from None
    try:
        fs, path = url_to_fs(url)
    except ImportError as e:
        raise UsageError(f"{url}: fsspec needs another package for it: {e}") from None
    except ValueError as e:
        raise UsageError(f"{url}: {e}; expected a file, or a URL that fsspec knows") from None
    # What it was told of a folder before may have changed since.
    fs.invalidate_cache()
    return fs, path


def _beside(fs: AbstractFileSystem, path: str) -> dict[str, Any]:
    """Return what belongs to an ONNX model, by names from its folder, with what the server says of it."""
    folder, name = posixpath.split(path)
    stem = name[: -len(".onnx")]
    try:
        entries = fs.ls(folder, detail=True)
    except Exception:  # a server that lists nothing raises what its package likes
        return {}
    files: dict[str, Any] = {}
    for entry in entries:
        basename = posixpath.basename(entry["name"].rstrip("/"))
        if (
            entry["type"] == "directory"
            and (sets := _DATA_SETS.fullmatch(basename))
            and sets[1] in (None, f"{stem}.")
        ):
            inside = fs.find(entry["name"], detail=True)
            files |= {f"{basename}/{posixpath.basename(p)}": info for p, info in inside.items()}
        elif entry["type"] == "file" and basename.startswith(
            (f"{name}.", f"{name}_data", f"{stem}.data", f"{stem}.bin")
        ):
            files[basename] = entry
    return files


def _cache() -> str:
    chosen = os.environ.get("LOADRUN_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return chosen or os.path.join(home, "loadrun")


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Turn what a server's package raises into an OSError that names the URL."""
    try:
        yield
    except LoadRunError:
        raise
    except Exception as e:  # of packages for servers, which raise what they like
        # By HTTP, a file that is not found stands for whatever went wrong.
        cause = e.__cause__ if isinstance(e, FileNotFoundError) else e
        if cause is None or getattr(cause, "status", None) == 404:
            raise FileNotFoundError(errno.ENOENT, "there is no such remote file", url) from None
        raise OSError(
            errno.EIO, f"the remote file cannot be reached: {type(cause).__name__}: {str(cause)[:300]}", url
        ) from None
