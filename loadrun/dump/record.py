"""The record that loadrun keeps behind a file's testcases: where they come from, and digests of every tensor.

MegEngine reads a graph and as many testcases as the header says and looks at nothing after them. There stand the
8 bytes of `MAGIC`, the length of the rest as u64, and one JSON object a line: the first about the file, then one for
every testcase in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from struct import pack

import numpy as np

from ..base.errors import FormatError
from ..base.schema import either, items, number
from ..base.writing import scratch
from ..compare.policy import HEAD, MAGIC, header, lines
from ..graph import Graph
from ..graph.dtypes import Array, DType, dtype_of, encode
from ..graph.params import AxisDesc, Record
from ..testcase import Testcase

__all__ = [
    "RecordWriter",
    "fixed_shapes",
    "graph_digest",
    "input_order",
    "intermediates_at",
    "moved",
    "narrowings",
    "numbered",
    "provenances",
    "tensor_digest",
]


def input_order(record: memoryview) -> tuple[str, ...]:
    """Names of the inputs in the order of what the model was made of, where a record says it."""
    try:
        names = header(record).get("inputs")
    except FormatError:
        # What is wrong with a record is for `verify` to say.
        return ()
    return tuple(n for n in names if isinstance(n, str)) if isinstance(names, list) else ()


def fixed_shapes(record: memoryview) -> dict[str, tuple[int | None, ...]]:
    """Sizes of inputs for which alone the model is right, where a record says so; see `loadrun.graph.Graph`."""
    try:
        shapes = header(record).get("fixed_shapes")
    except FormatError:
        return {}
    if not isinstance(shapes, dict):
        return {}
    return {name: tuple(shape) for name, shape in shapes.items() if isinstance(shape, list)}


def provenances(record: object) -> Iterator[Mapping[str, object]]:
    """Yield where each testcase of a file comes from, as far as its record tells."""
    if not isinstance(record, memoryview):
        return
    entries = lines(record)
    try:
        common = next(entries, {}).get("provenance")
        for line in entries:
            provenance = line.get("provenance", common)
            yield provenance if isinstance(provenance, dict) else {}
    except FormatError:
        # A damaged record is no reason to refuse the testcases.
        return


def narrowings(record: memoryview) -> list[str]:
    """Return what a record says of dtypes that were narrowed although that changes values, as sentences."""
    try:
        entry = header(record).get("narrowed")
    except FormatError:
        return []
    if (
        not isinstance(entry, dict)
        or entry.get("asked") is not True
        or not isinstance(entry.get("dtypes"), dict)
    ):
        return []
    pairs = ", ".join(f"{wide} as {narrow}" for wide, narrow in entry["dtypes"].items())
    return [f"narrowed on writing, as --narrow requests: {pairs}; values may differ from those of the model"]


def intermediates_at(record: object, testcase: int) -> list[list[float | None]] | None:
    """Statistics of the intermediate values that a record holds for a testcase; None if it holds none."""
    if not isinstance(record, memoryview):
        return None
    line = next(islice(lines(record), testcase + 1, None), {})
    rows = line.get("intermediates")
    if not isinstance(rows, list):
        return None
    figures = either(number(finite=False))
    return items(items(figures))(
        rows, f"the record after the testcases: intermediates of testcase {testcase}"
    )


def moved(record: memoryview, old: Graph, new: Graph) -> bytes:
    """Rewrite a record for the rewritten form of a graph: its digest replaces the old one, if that is right."""

    about = header(record)
    if about.get("model") != graph_digest(old):
        return bytes(record)
    return _headed(record, {**about, "model": graph_digest(new)})


def numbered(record: memoryview, number: int) -> bytes:
    """Say in a record which dump of its file it is about; leave it as it is where it is damaged."""
    try:
        about = header(record)
    except FormatError:
        return bytes(record)
    return _headed(record, {**about, "dump": number})


def _headed(record: memoryview, about: Mapping[str, object]) -> bytes:
    """Give a record another first line."""
    import json  # for start-up

    rest = bytes(record[HEAD:])
    body = json.dumps(about, separators=(",", ":")).encode() + rest[rest.index(b"\n") :]
    return MAGIC + pack("<Q", len(body)) + body


def tensor_digest(value: Array, dtype: DType | None = None) -> str:
    """Hash dtype, shape and bytes.

    >>> tensor_digest(np.zeros(2, "f4")) == tensor_digest(np.zeros((2, 1), "f4"))
    False
    """
    from hashlib import blake2b  # for start-up

    dtype = dtype or dtype_of(value)
    digest = blake2b(f"{dtype} {list(value.shape or (1,))}".encode(), digest_size=16)
    digest.update(encode(value, dtype).data)
    return digest.hexdigest()


def graph_digest(graph: Graph) -> str:
    """Hash what a graph computes: operators, parameters, stored tensors and outputs, in either format.

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
    """Return a parameter record as a file gives it back: 32 bits of most numbers, steps as plain numbers."""
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
        model: digest of the graph of the file.
    """

    def __init__(self, about: Mapping[str, object], model: str) -> None:
        self.provenance = about.get("provenance")
        self.file = scratch()
        self._line({**about, "model": model})

    def add(self, case: Testcase, steps: str | None = None) -> None:
        """Note a testcase, and the digest of its further steps."""
        line: dict[str, object] = {
            "digests": {n: tensor_digest(a, case.dtypes.get(n)) for n, a in case.arrays.items()}
        }
        if case.provenance and dict(case.provenance) != self.provenance:
            line["provenance"] = dict(case.provenance)
        if steps is not None:
            line["steps"] = steps
        if case.intermediates:
            line["intermediates"] = case.intermediates
        self._line(line)

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes of the record, piece by piece."""
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
