"""Whether a model is still what it was: sizes and times of its file and of what belongs to it."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b

__all__ = ["state_of"]

_APART = (".mge", ".onnx", ".pt2", ".json", ".jsonl", ".xml", ".html", ".zip")
"""Endings of other models and of reports, which say nothing of a model beside them."""


def state_of(
    path: str | os.PathLike[str], others: Iterable[str] = (), known: dict[str, bytes] | None = None
) -> str:
    """Return a digest of names, sizes and times of a model's file and of all that may belong to it; "" for a URL.

    These are the files and folders beside it whose names begin like its own, and those that are neither models nor
    reports: weights and data sets.

    Args:
        path: the file.
        others: files that are read besides.
        known: digests by folder of what may belong to all its models, which calls right behind each other share.
    """
    name = os.fspath(path)
    if "://" in name:
        return ""
    folder, own = os.path.split(os.path.abspath(name))
    try:
        named, free = _listed(folder, os.stat(folder).st_mtime_ns)
    except OSError:
        named, free = [], []
    known = {} if known is None else known
    if folder not in known:
        known[folder] = _digest(os.path.join(folder, n) for n in free)
    return _digest((os.path.join(folder, own), *_beside(folder, own, named), *others), known[folder]).hex()


def _digest(places: Iterable[str], before: bytes = b"") -> bytes:
    digest = blake2b(before, digest_size=16)
    for place in places:
        for file in _files(place):
            try:
                about = os.stat(file)
            except OSError:
                continue
            # Only the second time changes where a file is replaced by one of the same age.
            said = f"{file}\0{about.st_size}\0{about.st_mtime_ns}\0{about.st_ctime_ns}\n"
            digest.update(said.encode(errors="surrogateescape"))
    return digest.digest()


def _beside(folder: str, own: str, named: list[str]) -> Iterator[str]:
    stem = own.rpartition(".")[0] + "."
    for name in named[bisect_left(named, stem) :]:
        if not name.startswith(stem):
            break
        yield os.path.join(folder, name)


@lru_cache(maxsize=16)
def _listed(folder: str, changed: int) -> tuple[list[str], list[str]]:
    """List what is in a folder, data that belong to some model, and what may belong to all."""
    names = sorted(os.listdir(folder))
    models = {n.rpartition(".")[0] for n in names if n.endswith(_APART[:3])}
    data = [n for n in names if not n.endswith(_APART)]
    return data, [n for n in data if n.partition(".")[0] not in models]


def _files(place: str) -> list[str]:
    if not os.path.isdir(place):
        return [place]
    try:
        return [os.path.join(place, n) for n in sorted(os.listdir(place))]
    except OSError:
        return []
