"""MegEngine's load_and_run reads nothing behind the testcases: its reading, step by step, on files that carry more.

The steps are those of ModelMdl::load_model, TestcaseOption::config_model, GraphLoaderOSS::load and
GraphLoaderOSSV2::load: which bytes they read, how far they skip, where they stand afterwards.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.compare.record import PROMISE
from loadrun.dump.options import DumpOptions
from loadrun.testcase import Bundle
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.support.small_models import unary

NETS = Path(__file__).resolve().parents[2] / "fixtures" / "nets"
V2, V1 = "FBS_V2", "FBS"


class InputFile:
    """A file that a C++ program reads: a short read fails, and so does standing outside."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.furthest = 0

    def read(self, size: int) -> bytes:
        assert self.at + size <= len(self.data), "a short read"
        self.at += size
        self.furthest = max(self.furthest, self.at)
        return self.data[self.at - size : self.at]

    def skip(self, size: int) -> None:
        self.at += size
        assert 0 <= self.at <= len(self.data)

    def uint(self, size: int) -> int:
        return int.from_bytes(self.read(size), "little")

    def peek(self, size: int) -> bytes:
        found = self.read(size)
        self.skip(-size)
        return found


def identify(file: InputFile) -> str:
    """The format of the dump at which the file stands, without moving."""
    if file.peek(8) in (b"MGBC" + bytes(4), b"MGBS" + bytes(4)):
        return V1
    assert file.peek(25)[8:12] == b"mgv2"
    return V2


def load(file: InputFile, format: str) -> bytes:
    """Read one dump; the file stands behind it afterwards."""
    start = file.at
    if format == V2:
        size = file.uint(4)
        file.skip(-4)
        file.read(size + 4)
        return file.data[start : file.at]
    if file.read(4) == b"MGBC":
        file.read(8)
    file.skip(4)
    area = file.uint(8)
    tensors = file.at
    file.skip(area)
    size = file.uint(4)
    file.skip(-4)
    file.read(size + 4)
    file.at = tensors
    # Operators read their tensors from here on; then the rest of the area and the graph are passed over.
    file.read(area)
    end = tensors + area + 4 + size
    assert end > file.at
    file.skip(end - file.at)
    return file.data[start : file.at]


def load_and_run(data: bytes, *, forward: bool) -> tuple[list[bytes], int]:
    """The model and what is read as its testcases, and where the reading ended at the furthest.

    Args:
        forward: go on from testcase to testcase, as the layout option does. For a replay the tool of 1.13 goes back to
            where the testcases begin before each of them, so that it sees the first one every time.
    """
    file = InputFile(data)
    count = 0
    if file.read(8) == b"mgbtest0":
        count = file.uint(4)
    else:
        file.at = 0
    format = identify(file)
    parts = [load(file, format)]
    for _ in range(count):
        offset = file.at
        parts.append(load(file, format))
        if not forward:
            file.at = 0
            file.skip(offset)
    return parts, file.furthest


def packed(format: str, record: bool) -> bytes:
    stream = io.BytesIO()
    options = PackOptions(file=DumpOptions(dump_format=format), record=record)
    packer = Packer(Bundle(unary()), options, warn=print)
    inputs = ({"x": np.full((n, 3), n, np.float32)} for n in (1, 2, 7))
    packer.pack(inputs, stream)
    return stream.getvalue()


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("format", [V2, V1])
def test_nothing_behind_the_testcases_is_read(format: str, forward: bool) -> None:
    whole = packed(format, record=True)
    bundle = loadrun.loads(whole)
    assert isinstance(bundle.record, memoryview)
    end = len(whole) - len(bundle.record)
    assert end == bundle.facts.size
    parts, furthest = load_and_run(whole, forward=forward)
    assert len(parts) == 4
    assert furthest == end if forward else furthest < end
    for tail in (b"", b"\xff" * 999, whole[end:] * 2, whole):
        assert load_and_run(whole[:end] + tail, forward=forward) == (parts, furthest)


@pytest.mark.parametrize("format", [V2, V1])
def test_without_a_record_the_rest_is_the_same(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the promise that a record follows, and the size of the FlatBuffer at whose end it stands."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    whole, plain = packed(format, record=True), packed(format, record=False)
    model = loadrun.loads(plain).facts.model
    assert model is not None
    end = 12 + len(model)
    without = bytearray(whole[:end] + whole[end + PROMISE :])[: len(plain)]
    size = next(i for i in range(end) if without[i] != plain[i])
    assert (
        int.from_bytes(whole[size : size + 4], "little") - int.from_bytes(plain[size : size + 4], "little")
        == PROMISE
    )
    without[size : size + 4] = plain[size : size + 4]
    assert without == plain
    assert whole[len(plain) + PROMISE :][:7] == b"loadrun"


@pytest.mark.parametrize("format", [V2, V1])
def test_what_it_reads_are_the_testcases(format: str) -> None:
    """Each part is a dump of its own that holds the inputs, sorted by name, as stored tensors."""
    whole = packed(format, record=True)
    bundle = loadrun.loads(whole)
    parts, _ = load_and_run(whole, forward=True)
    assert [v.name for v in bundle.graph.inputs] == ["x", "y:expect"]
    for part, case in zip(parts[1:], bundle.testcases, strict=True):
        found = loadrun.loads(part)
        assert (found.graph.header.format, found.facts.size) == (format, len(part))
        oprs = [v.owner for v in found.graph.outputs]
        assert [o.type for o in oprs] == ["SharedDeviceTensor"] * 2
        values = [o.tensors[0].value().tobytes() for o in oprs]
        assert values == [case.arrays[n].tobytes() for n in ("x", "y:expect")]


@pytest.mark.parametrize("name", ["mlp.mge", "resnet_basic.mge", "lstm_2_both.mge"])
def test_the_same_reading_fits_files_of_megengine(name: str) -> None:
    """The offsets are those of files that MegEngine wrote, whose end is the end of the last testcase."""
    data = (NETS / name).read_bytes()
    (count,) = struct.unpack_from("<I", data, 8)
    parts, furthest = load_and_run(data, forward=True)
    assert (len(parts) - 1, furthest) == (count, len(data))


def test_testcases_have_the_format_of_the_model() -> None:
    """The tool makes a loader of the model's format for the testcases, so those that MegEngine's Python writes behind
    a version 1 model cannot be read; loadrun's can."""
    theirs = (NETS / "mlp.v1.mge").read_bytes()
    with pytest.raises(AssertionError):
        load_and_run(theirs, forward=True)
    stream = io.BytesIO()
    loadrun.save(loadrun.loads(theirs), stream)
    parts, _ = load_and_run(stream.getvalue(), forward=True)
    assert [loadrun.loads(p).graph.header.format for p in parts] == [V1] * 4
