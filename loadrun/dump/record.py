"""What loadrun keeps behind the testcases of a file: where they come from, and digests of every tensor.

MegEngine reads a graph and as many testcases as the header says and looks at nothing behind them. There stand the
8 bytes of `MAGIC`, the length of the rest as u64, and one JSON object a line: the first about the file, then one for
every testcase in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from struct import pack, unpack_from
from typing import Any

import numpy as np

from ..base.errors import FormatError, LoadRunError
from ..compare.policy import Policy, parse
from ..graph import Graph
from ..graph.dtypes import Array, DType, dtype_of, encode
from ..graph.params import AxisDesc, Record
from ..testcase import Testcase

__all__ = [
    "MAGIC",
    "RecordWriter",
    "graph_digest",
    "header",
    "input_order",
    "intermediates_at",
    "lines",
    "moved",
    "numbered",
    "packed_policies",
    "record_at",
    "record_damage",
    "tensor_digest",
]

MAGIC = b"loadrun\x01"
_HEAD = 16
_LONGEST = 1 << 24


def record_at(data: memoryview) -> memoryview | None:
    """The record that some bytes begin with, whole, or None."""
    if len(data) < _HEAD or bytes(data[:8]) != MAGIC:
        return None
    (length,) = unpack_from("<Q", data, 8)
    return data[: _HEAD + length] if length <= len(data) - _HEAD else None


def record_damage(data: memoryview) -> str | None:
    """What is wrong where bytes begin as a record does that `record_at` does not take; None where they do not."""
    head = bytes(data[:8])
    if not head or not MAGIC.startswith(head):
        return None
    if len(data) < _HEAD:
        return f"the record behind the testcases is cut off within its first {_HEAD} bytes"
    (length,) = unpack_from("<Q", data, 8)
    if length <= len(data) - _HEAD:
        return None
    return f"the record behind the testcases claims {length} bytes, the file ends after {len(data) - _HEAD}"


def lines(record: memoryview) -> Iterator[dict[str, Any]]:
    """The objects of a record, one after another.

    Raises:
        FormatError: a line is no JSON object.
    """
    import json  # for start-up

    at = _HEAD
    while at < len(record):
        # A line is found within a window, so that no more than it is copied.
        window = 1 << 12
        while (end := bytes(record[at : at + window]).find(b"\n")) < 0:
            if at + window >= len(record) or window > _LONGEST:
                raise FormatError("the record behind the testcases is damaged: a line has no end")
            window *= 4
        try:
            found = json.loads(bytes(record[at : at + end]))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise FormatError("the record behind the testcases is damaged: a line is no JSON object")
        yield found
        at += end + 1


def header(record: memoryview) -> dict[str, Any]:
    """The first object of a record, about the file."""
    for found in lines(record):
        return found
    raise FormatError("the record behind the testcases is empty")


def packed_policies(record: object) -> tuple[dict[str, Policy], dict[str, float]]:
    """What a record says of the outputs: their policies, and the tolerances of checks that were loosened.

    A record that is damaged or says nothing of the kind gives none; `verify` is what looks at records.
    """
    policies: dict[str, Policy] = {}
    loosened: dict[str, float] = {}
    try:
        about = header(record) if isinstance(record, memoryview) else record
        found = about.get("policy") if isinstance(about, Mapping) else None
        for name, said in found.items() if isinstance(found, Mapping) else ():
            if isinstance(said, Mapping) and isinstance(said.get("check"), str):
                policies[str(name)] = parse(str(said["check"]))
            before = said.get("loosened") if isinstance(said, Mapping) else None
            if isinstance(before, (int, float)):
                loosened[str(name)] = float(before)
    except LoadRunError:
        return {}, {}
    return policies, loosened


def input_order(record: memoryview) -> tuple[str, ...]:
    """Names of the inputs in the order of what the model was made of, where a record says it."""
    try:
        found = header(record).get("inputs")
    except FormatError:
        # What is wrong with a record is for `verify` to say.
        return ()
    return tuple(n for n in found if isinstance(n, str)) if isinstance(found, list) else ()


def intermediates_at(record: object, testcase: int) -> list[list[float | None]] | None:
    """Statistics of the intermediate values that a record holds for a testcase; None where it holds none."""
    if not isinstance(record, memoryview):
        return None
    line = next(islice(lines(record), testcase + 1, None), {})
    found = line.get("intermediates")
    if not isinstance(found, list):
        return None
    return [
        [x if isinstance(x, (int, float)) else None for x in part] for part in found if isinstance(part, list)
    ]


def moved(record: memoryview, old: Graph, new: Graph) -> bytes:
    """A record for the rewritten form of a graph: its digest takes the place of the old one, if that is right."""

    about = header(record)
    if about.get("model") != graph_digest(old):
        return bytes(record)
    return _headed(record, {**about, "model": graph_digest(new)})


def numbered(record: memoryview, number: int) -> bytes:
    """A record that says which dump of its file it is about; as it is where it is damaged."""
    try:
        about = header(record)
    except FormatError:
        return bytes(record)
    return _headed(record, {**about, "dump": number})


def _headed(record: memoryview, about: Mapping[str, object]) -> bytes:
    """A record with another first line."""
    import json  # for start-up

    rest = bytes(record[_HEAD:])
    body = json.dumps(about, separators=(",", ":")).encode() + rest[rest.index(b"\n") :]
    return MAGIC + pack("<Q", len(body)) + body


def tensor_digest(value: Array, dtype: DType | None = None) -> str:
    """A digest of dtype, shape and bytes.

    >>> tensor_digest(np.zeros(2, "f4")) == tensor_digest(np.zeros((2, 1), "f4"))
    False
    """
    from hashlib import blake2b  # for start-up

    dtype = dtype or dtype_of(value)
    digest = blake2b(f"{dtype} {list(value.shape or (1,))}".encode(), digest_size=16)
    digest.update(encode(value, dtype).data)
    return digest.hexdigest()


def graph_digest(graph: Graph) -> str:
    """A digest of what a graph computes: operators, parameters, stored tensors and outputs, in either format.

    Names of variables and operators do not count, those of inputs do.
    """
    from hashlib import blake2b  # for start-up

    numbers = {id(v): i for i, v in enumerate(graph.vars())}
    digest = blake2b(digest_size=16)
    for opr in graph.oprs:
        ins = [numbers[id(v)] for v in opr.inputs]
        params = tuple(map(_as_read_back, opr.params))
        digest.update(f"{opr.type} {ins} {len(opr.outputs)} {params!r} {opr.output_dtype}\n".encode())
        for tensor in opr.tensors:
            name = tensor.name if opr.type == "Host2DeviceCopy" else ""
            digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode("utf-8", "surrogateescape"))
            if tensor.data is not None:
                digest.update(np.ascontiguousarray(tensor.data).data)
    digest.update(f"{[numbers[id(v)] for v in graph.outputs]}".encode())
    return digest.hexdigest()


def _as_read_back(param: Record) -> Record:
    """A parameter record as it is read from a file, which holds 32 bits of most numbers, and steps as plain numbers."""
    stored: dict[str, object] = {}
    for f, (_, value) in zip(param.fields(), param.pairs(), strict=True):
        if f.wire == "float" and value != f.default:
            stored[f.name] = float(np.float32(value))
        elif f.wire == "[AxisDesc]":
            stored[f.name] = tuple(AxisDesc(int(step.method), int(step.axis)) for step in value)
    return param.replace(**stored) if stored else param


class RecordWriter:
    """Collects a record while testcases are written, outside of memory.

    Args:
        about: what to say about the file; its "provenance" is taken as that of every testcase without its own.
        graph: the graph of the file.
    """

    def __init__(self, about: Mapping[str, object], graph: Graph) -> None:
        import tempfile  # for start-up

        self.provenance = about.get("provenance")
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` ends it
        self._line({**about, "model": graph_digest(graph)})

    def add(self, case: Testcase) -> None:
        """Note a testcase."""
        line: dict[str, object] = {
            "digests": {n: tensor_digest(a, case.dtypes.get(n)) for n, a in case.arrays.items()}
        }
        if case.provenance and dict(case.provenance) != self.provenance:
            line["provenance"] = dict(case.provenance)
        if case.intermediates:
            line["intermediates"] = case.intermediates
        self._line(line)

    def parts(self) -> Iterator[bytes]:
        """The bytes of the record, piece by piece."""
        length = self.file.tell()
        self.file.seek(0)
        yield MAGIC + pack("<Q", length)
        while part := self.file.read(1 << 20):
            yield part

    def close(self) -> None:
        """Give the temporary file back."""
        self.file.close()

    def _line(self, value: Mapping[str, object]) -> None:
        import json  # for start-up

        self.file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
