"""Results that are printed, counted and reported as they come."""

from __future__ import annotations

import gc
import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.writing import replacing
from loadrun.cli import main, stream
from loadrun.report import json as json_report
from loadrun.runner import FileResult, Result, Verdict
from loadrun.testcase import Bundle
from loadrun.verify.pack.packing import Packer
from tests.support.small_models import unary

MLP = "fixtures/nets/mlp.mge"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file of 1000 testcases."""
    inputs = ({"x": np.full((1, 3), i, np.float32)} for i in range(1000))
    Packer(Bundle(unary()), warn=print).pack(inputs, tmp_path / "many.mge")
    return tmp_path / "many.mge"


def test_blocks_make_one_table(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(many)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [
        "testcase",
        "output",
        "shape",
        "dtype",
        "max",
        "error",
        "tolerance",
        "verdict",
        "ms",
    ]
    assert [line.split()[0] for line in lines[3:1003]] == [str(i) for i in range(1000)]
    assert {line[: line.index("pass")].count(" ") >= 6 for line in lines[3:1003]} == {True}
    assert len({line.index("1x3") for line in lines[3:1003]}) == 1, "the columns stand below one another"
    assert lines[-1] == "1 file, 1000 testcases, 1000 checks: 1000 passed, 0 failed"


def test_rows_come_before_the_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow model shows what it did so far."""
    monkeypatch.setattr(stream, "_SECONDS", -1.0)
    (first, *_) = loadrun.run(MLP)
    out, seen = io.StringIO(), []

    def results() -> Iterator[Result]:
        for i in range(3):
            seen.append(len(out.getvalue().splitlines()))
            yield replace(first, index=i)

    stream.show(FileResult("f.mge"), results(), out)
    # The file's name, two lines of headers and a row after the first.
    assert seen == [0, 4, 5]


def test_error_in_between(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was computed before the error is shown and reported."""
    report = tmp_path / "r.json"
    argv = [MLP, "--input", "#zeros", "--input", "#ones", "--input", "missing.npy", "--json", str(report)]
    assert main(argv) == 2
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[3:5]] == ["0", "1"]
    assert "error:" in shown[5]
    assert "missing.npy" in shown[5]
    (file,) = json.loads(report.read_text())["files"]
    assert ([t["testcase"] for t in file["testcases"]], file["verdict"]) == ([0, 1], "error")
    assert "missing.npy" in file["message"]


def test_report_of_files_and_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "r.json"
    two = tmp_path / "two.mge"
    two.write_bytes(Path(MLP).read_bytes() * 2)
    (tmp_path / "bad.mge").write_bytes(b"nothing")
    assert main([str(two), str(tmp_path / "bad.mge"), "-q", "--json", str(report), "--iter", "2"]) == 2
    shown = capsys.readouterr()
    first, bad, last = shown.out.splitlines()
    assert (first, last) == ("not passed:", "3 files, 6 testcases, 6 checks: 6 passed, 0 failed, 1 error")
    assert bad.startswith(f"  {tmp_path / 'bad.mge'}: error: expected a MegEngine dump")
    assert "error: expected a MegEngine dump" in shown.err, "also when only the summary is wanted"
    data = json.loads(report.read_text(encoding="ascii"))
    assert (data["version"], data["exit_code"], data["loadrun"]) == (2, 2, loadrun.__version__)
    assert [len(f["testcases"]) for f in data["files"]] == [3, 3, 0]
    assert [f["verdict"] for f in data["files"]] == ["pass", "pass", "error"]
    assert [[len(t["samples"]) for t in f.get("timings", ())] for f in data["files"]] == [
        [2] * 3,
        [2] * 3,
        [],
    ]
    assert sorted(os.listdir(tmp_path)) == ["bad.mge", "r.json", "two.mge"]


@pytest.mark.slow
def test_memory_does_not_grow(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is alive at the end of a run with a report does not depend on the number of testcases."""
    held: list[int] = []
    close = json_report.JsonWriter.close

    def measured(self: json_report.JsonWriter, code: int) -> None:
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
        close(self, code)

    monkeypatch.setattr(json_report.JsonWriter, "close", measured)
    bundle = loadrun.load(many)
    few, more = tmp_path / "few.mge", tmp_path / "more.mge"
    loadrun.save(Bundle(bundle.graph, bundle.testcases[:50]), few)
    loadrun.save(Bundle(bundle.graph, bundle.testcases[:500]), more)
    for path in (few, few, more):
        tracemalloc.start()
        try:
            assert main([str(path), "-q", "--json", str(tmp_path / "r.json")]) == 0
        finally:
            tracemalloc.stop()
    # A number for each testcase says where it lies in the file.
    assert held[2] < held[1] + 450 * 40 + 10_000
    assert len(json.loads((tmp_path / "r.json").read_text())["files"][0]["testcases"]) == 500


def test_counts() -> None:
    found = FileResult("f")
    assert found.verdict is Verdict.NOT_COMPARED
    for result in loadrun.run(MLP):
        found.add(result)
    n = found.counts
    assert (n.testcases, n.passed, n.failed, n.errors, found.verdict.value) == (3, 3, 0, 0, "pass")
    found.add(Result(3, (), Verdict.ERROR, message="no"))
    assert (n.errors, found.verdict) == (1, Verdict.ERROR)


def test_warnings_have_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from loadrun.graph.params import ElemwiseMode

    loadrun.save(unary(ElemwiseMode.LOG), tmp_path / "m.mge")
    argv = ["pack", str(tmp_path / "m.mge"), "-o", str(tmp_path / "o.mge"), "-q"]
    for _ in range(50):
        argv += ["-d", "#full(-1)"]
    assert main(argv) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "warning: and 30 more warnings"


def test_replacing(tmp_path: Path) -> None:
    target, link = tmp_path / "t", tmp_path / "l"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)

    def fail() -> None:
        with replacing(link) as f:
            f.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (target.read_bytes(), link.is_symlink()) == (b"old", True)
    with replacing(link) as f:
        f.write(b"other")
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"old", b"other", False)
    with replacing(target) as f:
        f.write(b"new")
        assert target.read_bytes() == b"old"
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o640)
    with replacing(target, append=True) as f:
        f.write(b"er")
    assert target.read_bytes() == b"newer"
    assert sorted(os.listdir(tmp_path)) == ["l", "t"]
    with pytest.raises(FileNotFoundError):
        replacing(tmp_path / "no" / "t").__enter__()


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="a system without devices")
def test_devices_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "null"
    pipe.symlink_to("/dev/null")
    with replacing(pipe) as f:
        f.write(b"gone")
    assert not Path("/dev/null").is_file()
    assert main([MLP, "-q", "--json", str(pipe)]) == 0
    assert pipe.is_symlink()
