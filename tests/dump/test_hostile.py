"""Any byte string gives a graph or a FormatError, in memory and time bounded by the file."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import loadrun
from loadrun import FormatError
from tests.support.cases import WHOLE, fewer
from tests.support.fixture_files import FIXTURES

SMALL = [
    "nets/mlp.mge",
    "nets/mlp.v1.mge",
    "ops/format/mgbs_testcases.mge",
    "ops/format/v2_version_1.mge",
]


def try_load(data: bytes) -> loadrun.Bundle | FormatError:
    """Load and touch every testcase; anything but a FormatError is a defect."""
    try:
        bundle = loadrun.loads(data)
        for testcase in bundle.testcases:
            assert testcase.arrays
    except FormatError as e:
        return e
    return bundle


@pytest.mark.parametrize("path", SMALL)
def test_truncation(path: str) -> None:
    data = (FIXTURES / path).read_bytes()
    for n in range(0, len(data), 1 if WHOLE else 7):
        found = try_load(data[:n])
        assert isinstance(found, FormatError), f"{n} of {len(data)} bytes were accepted"
        assert str(found)


def written(bundle: loadrun.Bundle) -> bytes:
    file = io.BytesIO()
    loadrun.save(bundle, file)
    return file.getvalue()


@pytest.mark.parametrize("path", SMALL)
def test_flipped_bits(path: str) -> None:
    data = bytearray((FIXTURES / path).read_bytes())
    rng, refused = random.Random(1), 0
    for _ in range(fewer(200)):
        at, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        data[at] ^= bit
        found = try_load(bytes(data))
        if isinstance(found, FormatError):
            assert str(found)
            refused += 1
        else:
            # What is accepted is a model: it can be written, and read back as the same.
            assert str(loadrun.loads(written(found)).graph) == str(found.graph)
        data[at] ^= bit
    assert 0 < refused < fewer(200)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"mgbtest0", b"MGBC\0\0\0\0", b"MGBS", b"\x40\0\0\0\x10\0\0\0mgv2"]),
)
def test_random_bytes(data: bytes, magic: bytes) -> None:
    found = try_load(magic + data)
    assert isinstance(found, (FormatError, loadrun.Bundle))


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "e.mge").write_bytes(b"")
    with pytest.raises(FormatError, match="the file is empty"):
        loadrun.load(tmp_path / "e.mge")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"\x08\x07\x12\x07pytorch:" + bytes(64), "ONNX"),
        (b"PK\x03\x04" + bytes(64), "zip archive"),
        (b"\x93NUMPY\x01\x00" + bytes(64), "npy"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "PNG"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"hello world, this is text", "expected a MegEngine dump"),
    ],
)
def test_other_kinds_of_files_are_named(head: bytes, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        loadrun.loads(head)


def test_count_that_lies() -> None:
    data = bytearray((FIXTURES / SMALL[0]).read_bytes())
    assert data[:8] == b"mgbtest0"
    (n,) = struct.unpack_from("<I", data, 8)
    struct.pack_into("<I", data, 8, 0xFFFFFFFF)
    with pytest.raises(FormatError, match=f"claims 4294967295 testcases, but the file ends after {n}"):
        loadrun.loads(bytes(data))


def test_trailing_bytes_are_counted() -> None:
    data = (FIXTURES / SMALL[0]).read_bytes()
    assert loadrun.loads(data + b"garbage").facts.trailing == 7


def test_error_names_file_and_offset(tmp_path: Path) -> None:
    path = tmp_path / "cut.mge"
    path.write_bytes((FIXTURES / SMALL[0]).read_bytes()[:100])
    with pytest.raises(FormatError, match=r"cut\.mge: .*truncated.*\(at byte 12\)"):
        loadrun.load(path)


def test_loading_opens_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    opened: list[str] = []

    def audit(event: str, args: tuple[object, ...]) -> None:
        # A number instead of a name is a descriptor of what is open already.
        if event == "open" and isinstance(args[0], int):
            return
        if event in ("open", "exec", "compile", "subprocess.Popen", "socket.connect") and watching[0]:
            opened.append(f"{event} {args[0]!r}")

    watching = [False]
    sys.addaudithook(audit)
    for small in SMALL[:2]:
        # What reads them is imported now.
        loadrun.run(FIXTURES / small)
    watching[0] = True
    try:
        loadrun.run(FIXTURES / SMALL[1])
    finally:
        watching[0] = False
    assert [o for o in opened if "mlp.v1.mge" not in o] == []
