"""Results, reports, records and indexes of wrong types, sizes and ranges end in a sentence; nothing raw is printed."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from loadrun.cli import main
from tests.support.cases import WHOLE

MLP = Path("fixtures/nets/mlp.mge")
ESCAPE = "\x1b[31m\x9b2J"
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 1.5, 10**400, 1e999, float("nan"), ESCAPE, "", [], [[]], {}),
    *({"a": ESCAPE}, [None], [ESCAPE], 2**63, "9" * 5000),
)
"""What stands in turn for every member."""


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to every part of some JSON data; of lists to the first entry."""
    yield path
    if isinstance(data, dict):
        for name, part in data.items():
            yield from places(part, (*path, name))
    elif isinstance(data, list) and data:
        yield from places(data[0], (*path, 0))


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another part; the part goes where the value is `...`."""
    if not path:
        return value
    made = json.loads(json.dumps(data))
    at = made
    for name in path[:-1]:
        at = at[name]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


def mutants(data: Any, every: int = 1) -> Iterator[tuple[str, Any]]:
    """Every part of some data replaced by wrong values, and left out; with a name for failures.

    Each part meets one of `every` so many values; so many parts after each other meet all.
    """
    for number, path in enumerate(places(data)):
        values = (*WRONG, *((...,) if path else ()))
        for value in values if WHOLE else values[number % every :: every]:
            yield f"{path} = {str(value)[:30] if value is not ... else 'gone'!r}", changed(data, path, value)


def ends_well(args: list[str], capsys: pytest.CaptureFixture[str], what: str, codes: tuple[int, ...]) -> int:
    """Run a command, which may end with one of the codes and prints no control characters; gives the code."""
    code = main(args)
    out, err = capsys.readouterr()
    assert code in codes, (what, code, err)
    assert not any((c < " " and c not in "\n") or "\x7f" <= c <= "\x9f" for c in out + err), (what, out, err)
    assert "bug in loadrun" not in out + err, what
    if code == 2:
        assert len(err) < 4000, what
    return code


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "r.npz"
    assert main([str(MLP), "--output", str(path), "-q"]) == 0
    return path


def rezipped(source: Path, target: Path, entry: str, data: bytes) -> None:
    """An archive with another entry."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, data if name == entry else old.read(name))


def test_results(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends_well([str(results)], capsys, "as it is", (0,)) == 0
    target = tmp_path / "r.npz"
    refused = tried = 0
    for entry in ("0/0.json", "0/file.json"):
        with zipfile.ZipFile(results) as archive:
            data = json.loads(archive.read(entry))
        for what, mutant in mutants(data, 3):
            rezipped(results, target, entry, json.dumps(mutant).encode())
            tried += 1
            refused += ends_well([str(target)], capsys, f"{entry} {what}", (0, 1, 2, 3)) == 2
    # The rest are texts in the place of texts, numbers in that of numbers.
    assert refused > 0.7 * tried


@pytest.mark.parametrize(
    "data",
    [b"", b"[" * 100_000, b"\xff", b"{}", b"9" * 5000, b"[" + b"[]," * 2_000_000 + b"[]]", b"\0" * 50],
)
@pytest.mark.parametrize("entry", ["0/0.json", "0/file.json", "format", "0/0.0.got.npy"])
def test_damaged_entries_of_results(
    entry: str, data: bytes, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "r.npz"
    rezipped(results, target, entry, data)
    ends_well([str(target)], capsys, entry, (2,))


def test_values_of_another_type(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import io

    import numpy as np

    for value in (np.array("text"), np.zeros(3, "M8[s]"), np.zeros(2, "V3")):
        raw = io.BytesIO()
        np.save(raw, value)
        rezipped(results, tmp_path / "r.npz", "0/0.0.got.npy", raw.getvalue())
        ends_well([str(tmp_path / "r.npz")], capsys, str(value.dtype), (2,))
        assert "bug" not in capsys.readouterr().err
    for value in (np.zeros((3, 7), np.float32), np.zeros((1, 4), np.int8), np.array(0.5)):
        raw = io.BytesIO()
        np.save(raw, value)
        rezipped(results, tmp_path / "r.npz", "0/0.0.got.npy", raw.getvalue())
        ends_well([str(tmp_path / "r.npz")], capsys, str(value.dtype), (1,))


def test_encrypted_and_unknown_archives(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = bytearray(results.read_bytes())
    for at, value in ((6, 1), (8, 99)):
        made = bytearray(raw)
        # The same in the local header and in the directory.
        made[at] = value
        made[raw.index(b"PK\x01\x02") + at + 2] = value
        (tmp_path / "r.npz").write_bytes(made)
        ends_well([str(tmp_path / "r.npz")], capsys, str(at), (2,))


def test_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert main([str(MLP), "--json", str(old), "-q"]) == 0
    capsys.readouterr()
    refused = tried = 0
    for what, mutant in mutants(json.loads(old.read_bytes()), 5):
        new.write_text(json.dumps(mutant))
        pair = (old, new) if tried % 2 else (new, old)
        tried += 1
        refused += ends_well(["report", *map(str, pair)], capsys, what, (0, 1, 2, 3)) == 2
    # What of a report nobody looks at may be anything.
    assert refused > 0.1 * tried


@pytest.mark.parametrize(("name", "value"), [("testcase", -1), ("testcase", 2**33), ("seconds", -1.0)])
def test_numbers_out_of_range(
    name: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert main([str(MLP), "--json", str(old), "-q"]) == 0
    capsys.readouterr()
    new.write_text(
        json.dumps(changed(json.loads(old.read_bytes()), ("files", 0, "testcases", 0, name), value))
    )
    assert main(["report", str(old), str(new)]) == 2
    assert f"{name}: expected " in capsys.readouterr().err


def test_baselines(tmp_path: Path) -> None:
    from loadrun.base.errors import InputError
    from loadrun.verify.bench.files import VERSION, regressions, require_baseline

    subject = {"file": "a.mge", "engine": "reference", "threads": None, "batch": None, "wall_seconds": [0.1]}
    data = {"benchmark": VERSION, "subjects": [subject], "environment": {"processor": "x"}}

    def compared(content: Any) -> None:
        require_baseline(content, "the baseline")
        regressions([], content, 0.1)

    for what, mutant in mutants(data):
        with pytest.raises(InputError, match="baseline"):
            compared(mutant)
        assert what


def with_record(change: Callable[[Any], Any], line: int) -> bytes:
    """A packed file whose record has another line."""
    raw = Path("fixtures/nets/mlp.mge").read_bytes()
    at = raw.rfind(b"loadrun\x01")
    rows = [json.loads(x) for x in raw[at + 16 :].splitlines()] if at >= 0 else [{"record": 1}, {}, {}, {}]
    rows[line] = change(rows[line])
    body = b"".join(json.dumps(r).encode() + b"\n" for r in rows)
    return (raw[:at] if at >= 0 else raw) + b"loadrun\x01" + struct.pack("<Q", len(body)) + body


HEADER = {
    "record": 1,
    "dump": 0,
    "model": "0" * 32,
    "provenance": {"engine": "reference", "seed": 0, "time": "now", "loadrun": "0.2.0"},
    "policy": {"out": {"check": "cosine>=0.5", "loosened": 0.5}},
}
CASE = {
    "digests": {"data": "0" * 32},
    "provenance": {
        "witness": {"name": "n", "error": None, "outputs": {"out": {"error": 0.5, "maxerr": 0.1}}}
    },
}


@pytest.mark.parametrize("line", [0, 1])
def test_records(line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mge"
    # Each command in turn, which meets every member with some of the values.
    commands = cycle((["run", "-v"], ["info", "--quiet"], ["run", "-q"]))
    for (what, mutant), args in zip(mutants((HEADER, CASE)[line], 4), commands):  # noqa: B905
        path.write_bytes(with_record(lambda _, mutant=mutant: mutant, line))
        ends_well([*args, str(path)], capsys, f"{args[0]} {what}", (0, 1, 2, 3))


def test_unpacked_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "unpacked"
    assert main(["convert", str(MLP), "-o", str(folder) + "/"]) == 0
    capsys.readouterr()
    index = folder / "testcases.json"
    whole = json.loads(index.read_bytes())
    for what, mutant in mutants(whole, 7):
        index.write_text(json.dumps(mutant))
        out = str(tmp_path / "out.mge")
        ends_well(["pack", str(folder), "-o", out, "-q"], capsys, what, (0, 1, 2, 3))


def test_limits_in_the_metadata_of_an_onnx_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tests.onnx.wire_models import field, graph, node

    path = tmp_path / "m.onnx"
    for what, mutant in mutants({"y": {"maxerr": 0.5, "check": "cosine>=0.5", "loosened": 0.1}}):
        said = field(14, field(1, "loadrun:checks") + field(2, json.dumps(mutant)))
        path.write_bytes(graph(node("Neg", ["x"], ["y"])) + said)
        ends_well(["info", str(path)], capsys, what, (0, 2))
        ends_well(["run", str(path)], capsys, what, (2, 3))
