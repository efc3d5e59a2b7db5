"""`loadrun convert` to a folder, and digests that `loadrun run` compares."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.compare.record import MAGIC, lines, packed_policies
from loadrun.graph.dtypes import DType
from loadrun.testcase import Testcase
from tests.support.small_models import unary

MLP = "fixtures/nets/mlp.mge"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    loadrun.save(unary(to=DType("QuantizedS8", 0.5)), tmp_path / "m.mge")
    specs = ["-d", "#rand(-9,9)", "-d", "#full(3,1,...)"]
    assert main(["pack", str(tmp_path / "m.mge"), *specs, "-o", str(tmp_path / "p.mge"), "-q"]) == 0
    return tmp_path / "p.mge"


@pytest.mark.parametrize("name", ["mlp", "many_inputs_outputs"])
@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
def test_files_without_names_are_packed_again(
    name: str, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, first, again = f"fixtures/nets/{name}.mge", tmp_path / "a.mge", tmp_path / "b.mge"
    assert main(["pack", source, "--keep-var-name", "0", "--format", format, "-o", str(first), "-q"]) == 0
    assert main(["convert", str(first), "-o", str(tmp_path / "f") + "/"]) == 0
    assert main(["pack", str(tmp_path / "f"), "-o", str(again), "-q"]) == 0
    made, was = loadrun.load(again), loadrun.load(source)
    assert [(c.name, c.maxerr) for c in made.checks] == [(c.name, c.maxerr) for c in was.checks]
    for i, case in enumerate(was.testcases):
        for output, value in case.expects.items():
            np.testing.assert_array_equal(made.testcases[i].expects[output], value)
    assert main([str(again), "-q"]) == 0


def test_unpack(packed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["convert", str(packed), "-o", str(out) + "/"]) == 0
    assert sorted(os.listdir(out)) == ["0", "1", "inputs.txt", "model.mge", "testcases.json"]
    assert np.load(out / "1" / "x.npy").tolist() == [[3, 3, 3]]
    assert np.load(out / "1" / "c.expect.npy").tolist() == [[-6, -6, -6]]
    about = json.loads((out / "testcases.json").read_text())
    assert about["checks"] == [{"output": "c", "maxerr": pytest.approx(1e-4), "verbose": True}]
    assert about["record"]["provenance"]["engine"] == "reference"
    assert about["testcases"][1]["c:expect"] == {
        "file": "1/c.expect.npy",
        "dtype": "QuantizedS8(scale=0.5)",
        "shape": [1, 3],
    }
    bundle = loadrun.load(out / "model.mge")
    assert ([v.name for v in bundle.graph.inputs], bundle.checks) == (["x"], [])


def test_packed_again(packed: Path, tmp_path: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again.mge"
    assert main(["convert", str(packed), "-o", str(out) + "/"]) == 0
    assert main(["pack", str(out / "model.mge"), "-d", f"@{out}/inputs.txt", "-o", str(again), "-q"]) == 0
    one, two = loadrun.load(packed), loadrun.load(again)
    for a, b in zip(one.testcases, two.testcases, strict=True):
        assert a.dtypes == b.dtypes
        assert all(np.array_equal(a.arrays[n], b.arrays[n]) for n in a.arrays)


def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    model = unary()
    model.oprs[0].tensors[0].name = model.oprs[0].outputs[0].name = "../a:b/ü"
    model.oprs[1].outputs[0].name = "../a:b/ö"
    loadrun.save(model, tmp_path / "m.mge")
    packed, out = tmp_path / "p.mge", tmp_path / "out"
    assert main(["pack", str(tmp_path / "m.mge"), "-d", "#ones", "-o", str(packed)]) == 0
    assert main(["convert", str(packed), "-o", str(out) + "/"]) == 0
    assert sorted(os.listdir(out / "0")) == [".._a_b__.expect.npy", ".._a_b__.npy"]
    again = tmp_path / "again.mge"
    assert main(["pack", str(out / "model.mge"), "-d", f"@{out}/inputs.txt", "-o", str(again)]) == 0


def test_unpack_needs_an_empty_folder(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", str(packed), "-o", str(tmp_path) + "/"]) == 2
    assert "already exists" in capsys.readouterr().err


def test_failed_unpack_leaves_nothing(packed: Path, tmp_path: Path) -> None:
    data = bytearray(packed.read_bytes())
    data[8] = 3
    broken = tmp_path / "b.mge"
    broken.write_bytes(data)
    before = sorted(os.listdir(tmp_path))
    assert main(["convert", str(broken), "-o", str(tmp_path / "out") + "/"]) == 2
    assert sorted(os.listdir(tmp_path)) == before


def test_verify(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(packed), "-v"]) == 0
    assert "  all digests agree (time " in capsys.readouterr().out
    assert main([MLP, "-v"]) == 0
    assert "digests" not in capsys.readouterr().out


def test_verify_finds_changed_values(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = loadrun.load(packed)
    cases = list(bundle.testcases)
    shifted = {n: a + a.dtype.type(2 if n == "x" else -4) for n, a in cases[1].arrays.items()}
    bundle.testcases = [cases[0], Testcase(shifted, cases[1].dtypes)]
    loadrun.save(bundle, packed)
    assert [r.verdict.value for r in loadrun.run(packed)] == ["pass", "pass"], "the checks see no change"
    assert main([str(packed)]) == 1
    shown = capsys.readouterr().out
    assert "testcase 1: the input 'x' has changed" in shown
    assert "testcase 1: the expected value of 'c' has changed" in shown
    bundle.testcases = cases[:1]
    loadrun.save(bundle, packed)
    assert main([str(packed)]) == 1
    assert "2 testcases were packed, the file has 1" in capsys.readouterr().out


def test_verify_finds_a_changed_tolerance(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = loadrun.load(packed)
    assert main(["pack", str(packed), "-d", "#ones", "--maxerr", "0.9", "--loosen", "-o", str(packed)]) == 0
    assert main([str(packed)]) == 0, "packing again records again"
    other = loadrun.load(packed)
    other.record = bundle.record
    loadrun.save(other, packed)
    assert main([str(packed)]) == 1
    assert "the model is not the one that was packed" in capsys.readouterr().out


def test_digests_are_those_of_the_numbers_that_a_file_holds(packed: Path) -> None:
    """A file holds 0.9 in 32 bits, as 0.8999999761581421."""
    assert main(["pack", str(packed), "-d", "#ones", "--replace", "--maxerr", "0.9", "-o", str(packed)]) == 0
    assert loadrun.load(packed).checks[0].maxerr == 0.8999999761581421
    assert main([str(packed)]) == 0


def test_digests_do_not_depend_on_the_format(packed: Path) -> None:
    loadrun.save(loadrun.load(packed), packed, format="FBS")
    assert main([str(packed)]) == 0


@pytest.mark.parametrize("tail", [b"[]\n", b"{}", b"\xff\n", b"[" * 5000 + b"\n"])
def test_damaged_record(
    tail: bytes, packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = packed.read_bytes()
    at = data.index(MAGIC)
    broken = tmp_path / "b.mge"
    broken.write_bytes(data[:at] + MAGIC + len(tail).to_bytes(8, "little") + tail)
    assert main([str(broken)]) == 2
    assert "the record after the testcases is damaged" in capsys.readouterr().out
    for command in (["run"], ["pack", "-d", "#ones", "-o", str(tmp_path / "o.mge")]):
        assert main([*command, str(broken)]) == 2


def test_verify_reads_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.mge").write_bytes(b"no dump")
    assert main([str(tmp_path / "x.mge")]) == 2
    assert "expected a MegEngine dump" in capsys.readouterr().out


def test_a_folder_is_packed_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values, tolerances, policies and silence come back although the model computes something else."""
    loadrun.save(unary(), tmp_path / "m.mge")
    np.save(tmp_path / "golden.npy", np.full((2, 3), 0.5, np.float32))
    model, first, again = str(tmp_path / "m.mge"), tmp_path / "p.mge", tmp_path / "again.mge"
    given = [
        "--expect",
        str(tmp_path / "golden.npy"),
        "--maxerr",
        "0.75",
        "--check",
        "cosine>=-0.99",
        "--silent",
    ]
    assert main(["pack", model, "-d", "#ones", *given, "-o", str(first), "-q"]) == 0
    assert main(["convert", str(first), "-o", str(tmp_path / "out") + "/"]) == 0
    assert main(["pack", str(tmp_path / "out"), "-o", str(again), "-q"]) == 0
    capsys.readouterr()
    old, new = loadrun.load(first), loadrun.load(again)
    (a,), (b,) = old.testcases, new.testcases
    assert {n: v.tolist() for n, v in a.arrays.items()} == {n: v.tolist() for n, v in b.arrays.items()}
    assert [(c.name, c.maxerr, c.verbose) for c in new.checks] == [(c.name, 0.75, False) for c in old.checks]
    assert packed_policies(new.record) == packed_policies(old.record)
    assert main(["info", "--json", str(again)]) == 0
    assert main([str(again), "-q"]) == 1, "the digests agree, the value that was given does not"
    lines_ = list(lines(new.record))
    assert lines_[1]["provenance"]["given_from"] == ["testcases.json"]
    assert lines_[1]["provenance"]["unpacked"]["engine"] == "reference"


def test_a_folder_of_inputs_alone(tmp_path: Path) -> None:
    loadrun.save(unary(), tmp_path / "m.mge")
    first, again = tmp_path / "p.mge", tmp_path / "again.mge"
    assert main(["pack", str(tmp_path / "m.mge"), "-d", "#ones", "--no-assert", "-o", str(first), "-q"]) == 0
    assert main(["convert", str(first), "-o", str(tmp_path / "out") + "/"]) == 0
    assert main(["pack", str(tmp_path / "out"), "-o", str(again), "-q"]) == 0
    assert loadrun.load(again).checks == []
    (tmp_path / "out" / "testcases.json").write_text("[]")
    assert main(["pack", str(tmp_path / "out"), "-o", str(again), "-q"]) == 2


def test_large_weights_are_hashed_beside_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of its own takes the same digest, and a changed weight still shows."""
    monkeypatch.setattr("loadrun.dump.store._LARGE", 0)
    out = tmp_path / "m.mge"
    argv = ["pack", MLP, "-d", "#rand(0,1)", "-o", str(out), "--replace", "-q"]
    assert main(argv) == 0
    assert main([str(out)]) == 0
    bundle = loadrun.load(out)
    tensor = max(
        (t for o in bundle.graph.oprs for t in o.tensors if t.data is not None), key=lambda t: t.data.size
    )
    data = bytearray(out.read_bytes())
    data[data.index(bytes(tensor.data))] ^= 1
    out.write_bytes(data)
    assert main([str(out)]) == 1
