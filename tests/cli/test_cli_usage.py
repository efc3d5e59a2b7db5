"""What is typed in haste: commands and options that there are not, outputs that cannot be written, appended dumps."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.cli.parsers import help_text, parsers
from tests.support.small_models import unary

MLP = "fixtures/nets/mlp.mge"
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two dumps in one file, of 3 and 2 testcases."""
    first, second = Path(MLP).read_bytes(), tmp_path / "u.mge"
    loadrun.save(unary(), tmp_path / "m.mge")
    assert (
        main(["pack", str(tmp_path / "m.mge"), "-d", "#ones", "-d", "#zeros", "-o", str(second), "-q"]) == 0
    )
    path = tmp_path / "two.mge"
    path.write_bytes(first + second.read_bytes())
    return path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(["inof", MLP], "info"), (["Pack", MLP, "-o", "x.mge"], "pack"), (["redcue"], "reduce")],
)
def test_a_mistyped_command(typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    said = capsys.readouterr()
    assert f"there is no file and no command '{typed[0]}'; did you mean `loadrun {meant}`?" in said.err
    assert not said.out


def test_a_file_called_like_a_mistyped_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(MLP).read_bytes()
    monkeypatch.chdir(tmp_path)
    Path("inof").write_bytes(data)
    assert main(["inof", "-q"]) == 0


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ([MLP, "--ite", "2"], "did you mean --iter for --ite?"),
        ([MLP, "--iterr=2"], "did you mean --iter for --iterr?"),
        (["pack", MLP, "--outp", "x.mge"], "did you mean --output for --outp?"),
        (["info", MLP, "--constan"], "did you mean --constant for --constan?"),
        (["diff", MLP, "--test"], "did you mean --testcase for --test?"),
        ([MLP, "--against", MLP], "--against belongs to `loadrun diff` and `loadrun reduce`"),
        (["diff", MLP, "--warmup_iter=2"], "--warmup_iter belongs to `loadrun load_and_run`"),
    ],
)
def test_options_have_one_name(typed: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    assert hint in capsys.readouterr().err


def test_data_to_pack_have_the_name_that_they_have_for_a_run(tmp_path: Path) -> None:
    assert main(["pack", MLP, "--input", "#rand(0,1)", "-o", str(tmp_path / "m.mge"), "-q"]) == 0
    assert len(loadrun.load(tmp_path / "m.mge").testcases) == len(loadrun.load(MLP).testcases) + 1


def test_the_nearest_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("resnet.mge", ".resnet.mgf"):
        Path(name).touch()
    for typed in (["resnte.mge"], ["info", "resnte.mge"]):
        assert main(typed) == 2
        printed = capsys.readouterr()
        assert "No such file or directory; did you mean resnet.mge?" in printed.out + printed.err


def test_the_format_of_onnx_runtime_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.ort").write_bytes(b"\x14\0\0\0ORTM" + bytes(64))
    assert main([str(tmp_path / "m.ort")]) == 2
    assert "give the .onnx file it was made of" in capsys.readouterr().out


def test_an_option_of_several_beginnings_gets_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", MLP, "--keep", "-o", "x.mge"]) == 2
    assert "did you mean" not in capsys.readouterr().err


@needs_full
@pytest.mark.parametrize(
    "typed",
    [
        [MLP, "-q", "--json", str(FULL)],
        ["pack", MLP, "-d", "#ones", "-o", str(FULL)],
        ["diff", MLP, "--json", str(FULL)],
    ],
)
def test_a_full_disk_is_named(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 2
    said = capsys.readouterr().err
    assert "/dev/full: No space left on device" in said or "cannot write /dev/full" in said


@needs_full
def test_standard_output_on_a_full_disk() -> None:
    with FULL.open("wb") as out:
        command = [sys.executable, "-m", "loadrun", MLP]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "loadrun: standard output: No space left on device\n")


@pytest.mark.parametrize(
    "typed",
    [["pack", MLP, "-d", "#ones", "-o", "-"], ["convert", MLP, "-o", "-"], [MLP, "--output", "-"]],
)
def test_models_do_not_go_to_standard_output(
    typed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [os.path.abspath(t) if t == MLP else t for t in typed]
    monkeypatch.chdir(tmp_path)
    assert main(typed) == 2
    assert "cannot go to standard output (-)" in capsys.readouterr().err
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="needs pipes of POSIX")
@pytest.mark.parametrize("typed", [["info", MLP], ["--help"]])
def test_a_reader_that_leaves(typed: list[str]) -> None:
    command = [sys.executable, "-m", "loadrun", *typed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.close()
        assert run.stderr is not None
        said = run.stderr.read()
        assert (run.wait(), said) == (141, b"")


def test_appended_dumps_are_not_dropped(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.mge")
    assert main(["pack", str(two), "-d", "#ones", "-o", out]) == 2
    assert "holds 2 dumps; choose one with --dump N" in capsys.readouterr().err
    assert main(["pack", str(two), "--dump", "2", "-d", "#ones", "-o", out, "-q"]) == 0
    assert len(loadrun.load(out).testcases) == 3
    assert main(["pack", str(two), "--dump", "3", "-d", "#ones", "-o", out, "-q"]) == 2
    assert "holds dumps 1 to 2, found --dump 3" in capsys.readouterr().err
    assert main(["convert", str(two), "-o", str(tmp_path / "all") + "/"]) == 0
    assert "2 models and 5 testcases" in capsys.readouterr().out
    assert [len(list((tmp_path / "all" / n).glob("[0-9]"))) for n in ("1", "2")] == [3, 2]
    assert main(["convert", str(two), "--dump", "1", "-o", str(tmp_path / "one") + "/"]) == 0
    assert (tmp_path / "one" / "2").is_dir()
    assert main(["diff", str(two)]) == 2
    assert main(["diff", str(two), "--dump", "1"]) == 0
    assert main(["convert", str(two), str(tmp_path / "c.onnx")]) == 2


def test_outputs_of_equal_names_stay_apart(two: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.mge").write_bytes(two.read_bytes())
    out = tmp_path / "out"
    assert main([str(tmp_path / "a"), str(tmp_path / "b"), "--output", str(out), "-q"]) == 0
    assert len(os.listdir(out)) == 10


def test_options_for_pictures_may_meet_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    picture = np.arange(40 * 40 * 3, dtype=np.uint32).reshape(40, 40, 3) % 251
    cv2.imwrite(str(tmp_path / "a.png"), picture.astype(np.uint8))
    np.save(tmp_path / "b.npy", np.ones((1, 3, 32, 32), np.float32))
    (tmp_path / "list.txt").write_text("a.png\n#rand(0,1)\n")
    model, out = "fixtures/nets/detector_yolo.mge", str(tmp_path / "o.mge")
    data = ["-d", f"@{tmp_path}/list.txt", "-d", f"{tmp_path}/b.npy"]
    assert main(["pack", model, "--replace", *data, "--resize-input", "-o", out, "-q"]) == 0
    assert len(loadrun.load(out).testcases) == 3
    assert main(["pack", model, "--replace", "-d", f"{tmp_path}/b.npy", "--resize-input", "-o", out]) == 2
    assert "there is no image to resize" in capsys.readouterr().err


def test_patterns_of_data(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"x{i}.npy", np.full((1, 20), i, np.float32))
    (tmp_path / "notes.txt").write_text("not data")
    (tmp_path / "list.txt").write_text("data:x[12].npy\n")
    for spec, rows in ((f"data:{tmp_path}/x*.npy", 3), (str(tmp_path), 3), (f"@{tmp_path}/list.txt", 2)):
        out = tmp_path / "o.mge"
        assert main(["pack", MLP, "--replace", "-d", spec, "-o", str(out), "-q"]) == 0
        found = [int(c.arrays["data"][0, 0]) for c in loadrun.load(out).testcases]
        assert found == [0, 1, 2][-rows:]
        out.unlink()


def test_a_run_on_random_data_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loadrun.save(unary(), tmp_path / "m.mge")
    assert main([str(tmp_path / "m.mge"), "--seed", "5"]) == 3
    assert "no testcases, so the model ran once on random data (seed 5)" in capsys.readouterr().out


def test_names_that_are_loaded_later_are_listed() -> None:
    code = (
        "import loadrun; print(sorted(set(dir(loadrun)) & {'trace', 'megengine', 'onnx', 'check', 'tensor'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['check', 'megengine', 'onnx', 'tensor', 'trace']"


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "x"])
@pytest.mark.parametrize(
    "typed",
    [
        ["diff", "--passes", MLP, "--maxerr"],
        ["reduce", MLP, "-o", "o.mge", "--against", "float64", "--maxerr"],
    ],
)
def test_tolerances_are_numbers(typed: list[str], value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything would be within NaN."""
    assert main([*typed, value]) == 2
    assert "expected a number of at least 0, found" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["bench"], ["audit"]])
def test_what_holds_no_model_is_said(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (
        (str(tmp_path), "models (.mge, .onnx, .pt2)"),
        (f"{tmp_path}/*.mge", "no file matches"),
    ):
        assert main([*command, name]) == 2
        printed = capsys.readouterr()
        assert said in printed.out + printed.err


def test_options_fit_on_a_screen() -> None:
    commands = runpy.run_path("scripts/options.py")["counted"]()
    assert {name: len(options) for name, options in commands.items() if len(options) > 40} == {}
    assert len({o for options in commands.values() for o in options}) <= 85


def test_every_option_says_what_it_does() -> None:
    """Also those whose help is the text of a field, in which no sentence for Python is left."""
    for name, (_, parser) in parsers().items():
        for action in parser._actions:
            said = help_text(action)
            assert len(said) > 10 or name == "load_and_run", (name, action.option_strings)
            assert "In Python" not in said, (name, action.option_strings)
            assert "``" not in said, (name, action.option_strings)
