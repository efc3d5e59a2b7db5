"""Putting a dump behind those that a file holds: loadrun's records stand after the last of them all.

Readers that go by lengths, from one dump to the next, meet nothing else in between.
"""

from __future__ import annotations

import os

from ..base.errors import LoadRunError
from ..compare.record import PROMISE, record_at
from ..testcase import Bundle
from .container import MAGIC, load_all, mapped, promises
from .record import digest_of, numbered, promise


class ExistingFile:
    """The contents of a file to which a dump is appended.

    Attributes:
        dumps: the bytes of its dumps, which promise these records.
        records: the bytes of their records, each with the number of its dump.
        damaged: whether something else is in it.
    """

    def __init__(self, path: str) -> None:
        self.dumps: list[bytes | memoryview] = []
        self.records: list[bytes] = []
        self.damaged = False
        data, _, _ = mapped(path)
        at = 0
        for i, bundle in enumerate(load_all(path)):
            self.damaged |= bool(bundle.defects)
            dump: bytes | memoryview = data[at : at + bundle.facts.size]
            at += bundle.facts.size
            while (record := record_at(data[at:])) is not None:
                at += len(record)
            if isinstance(bundle.record, memoryview):
                self.records.append(numbered(bundle.record, i))
                dump = _promising(dump, bundle, self.records[-1])
            self.dumps.append(dump)

    @classmethod
    def of(cls, target: object) -> ExistingFile | None:
        """Read what a file holds; None if there is none, or where something but dumps and records is in it."""
        if not isinstance(target, (str, os.PathLike)) or not os.path.isfile(target):
            return None
        try:
            file = cls(os.fspath(target))
        except LoadRunError:
            return None
        return file if file.records and not file.damaged else None


def _promising(dump: bytes | memoryview, bundle: Bundle, record: bytes) -> bytes | memoryview:
    """Return a dump that promises another record; as it is where it promises none, as older ones do."""
    if bundle.facts.model is None or not promises(bundle.facts.model):
        return dump
    end = len(bundle.facts.model) + (len(MAGIC) + 4 if bundle.facts.is_container else 0)
    return b"".join((dump[: end - PROMISE], promise(digest_of([record])), dump[end:]))
