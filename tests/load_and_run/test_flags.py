"""Every flag that was tried on the C++ tool: what happens here, and the command line read as gflags reads it."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.graph.dtypes import Array
from loadrun.load_and_run.flags import FLAGS, Flag, ParsedFlags, parse
from loadrun.load_and_run.rules import check_together
from loadrun.testcase import Bundle
from tests.support.small_models import unary

ROOT = Path(__file__).resolve().parents[2]
ROWS = json.loads((ROOT / "tests" / "data" / "load_and_run" / "flags.json").read_text())
NETS = ROOT / "fixtures" / "nets"

OTHERWISE = {
    "container --enable_jit": 0,  # aborts there because that build has no compiler
    "container --enable_nhwcd4": 0,  # an assertion there; the layout is right here
    "container --enable_ioc16": 1,  # a failed check ends the C++ tool by abort
    "container --range 0.5": 1,
    "container --multithread 2 --multi_thread_core_ids 0,1": None,  # depends on the processors of the machine
    "container --bin_io_dump X/nodir": 0,  # the folder is made here
    "container --bin_out_dump X/nodir2": 0,
    "tampered --record_comp_seq2 --no_sanity_check": 1,  # checks are left out there
}
"""Exit codes where they are not 0 for a run and 2 for an abort of the C++ tool."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    bundle = loadrun.load(NETS / "mlp.mge")
    case = bundle.testcases[0]
    arrays = {n: a + 1 if n.endswith(":expect") else a for n, a in case.arrays.items()}
    tampered = folder / "tampered.mge"
    plain = folder / "plain.mge"
    loadrun.save(Bundle(unary()), plain)
    loadrun.save(replace(bundle, testcases=[replace(case, arrays=arrays)], record=None), tampered)
    return {
        "container": str(NETS / "mlp.mge"),
        "convolutions": str(NETS / "resnet_basic.mge"),
        "plain": str(plain),
        "tampered": str(tampered),
    }


def expected(row: dict[str, str]) -> int | None:
    key = f"{row['file']} {row['flags']}"
    if key in OTHERWISE:
        return OTHERWISE[key]
    if row["file"] == "tampered":
        return 0 if row["outcome"] == "runs" else 1
    return 2 if row["outcome"] in ("aborts", "refused") else 0


@pytest.mark.parametrize("row", ROWS, ids=[f"{r['file']} {r['flags']}" for r in ROWS])
def test_outcome(
    row: dict[str, str], models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("bio", "bout", "pbout", "mem"):
        (tmp_path / folder).mkdir()
    (tmp_path / "ff").write_text("--iter=1\n# a comment\nwarmup_iter=0\n")
    argv = row["flags"].replace("X/", f"{tmp_path}/").split()
    if argv[0] == "--range" and row["outcome"] == "runs":
        argv[1] = "1e6"
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    layouts = row["file"] == "container" and argv[0].startswith("--enable_")
    model = models["convolutions" if layouts else row["file"]]
    code = main(["load_and_run", model, "--iter", "1", *argv])
    captured = capsys.readouterr()
    want = expected(row)
    assert code == want if want is not None else code in (0, 2), captured.err
    assert "Traceback" not in captured.err
    if before is not None:
        assert os.sched_getaffinity(0) == before
    if code == 2:
        assert captured.err.strip().splitlines()[-1].startswith("loadrun: ")
    said = row["says"].split(" / ")[0].strip().replace("X/", f"{tmp_path}/")
    if row["outcome"] == "runs" and said and row["file"] != "tampered":
        assert said.split(" stdout=")[0] in captured.err


def test_every_flag_that_was_tried_is_known() -> None:
    """The table of flags is not shorter than what the C++ tool was seen to take."""
    tried = {f.lstrip("-") for r in ROWS for f in r["flags"].split() if f.startswith("--")}
    assert tried <= {f.name for f in FLAGS}
    assert len(tried) == 60


@pytest.mark.parametrize("flag", [f for f in FLAGS if not f.works], ids=lambda f: f.name)
def test_a_flag_without_effect_says_why(
    flag: Flag, models: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"layout_transform": "cpu", "c_opr_lib": models["plain"], "fast_run_algo_policy": models["plain"]}
    name, kind = flag.name, flag.kind
    value = [] if kind is bool else [given.get(name, "7")]
    with_it = {"fast_run_shared_batch_size": ["--fast_run"], "record_comp_seq2": ["--no_sanity_check"]}.get(
        name, []
    )
    assert main(["load_and_run", models["plain"], "--iter", "0", f"--{name}", *value, *with_it]) == 0
    lines = [n for n in capsys.readouterr().err.splitlines() if f"--{name} has no effect" in n]
    assert len(lines) == 1
    assert flag.what in lines[0]


@pytest.mark.parametrize(
    ("args", "values"),
    [
        (["-iter", "3"], {"iter": 3}),
        (["--iter=3", "--iter", "4"], {"iter": 4}),
        (["--warmup-iter=0"], {"warmup_iter": 0}),
        (["--fast-run"], {"fast_run": True}),
        (["--fast_run=false", "--cpu=t"], {"fast_run": False, "cpu": True}),
        (["--nocpu"], {"cpu": False}),
        (["--no_sanity_check"], {"no_sanity_check": True}),
        (["--nono_sanity_check"], {"no_sanity_check": False}),
        (["--multithread", "-1"], {"multithread": -1}),
        (["--range", "1e6"], {"range": 1e6}),
        (["--undefok=gone", "--gone"], {"undefok": "gone"}),
    ],
)
def test_parse(args: list[str], values: dict[str, object]) -> None:
    found = parse(["m.mge", *args])
    assert found.files == ["m.mge"]
    assert found.values == values


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--nosuch"], "unknown command line flag 'nosuch'"),
        (["--iter"], "--iter is missing its value"),
        (["--iter", "x"], "takes a whole number, found 'x'"),
        (["--range", "wide"], "takes a number"),
        (["--range", "nan"], "takes a number"),
        (["--range", "inf"], "takes a number"),
        (["--cpu=maybe"], "takes true or false"),
        (["--flagfile", "/nonexistent"], "No such file"),
        (["--fromenv", "iter"], "FLAGS_iter is not in the environment"),
    ],
)
def test_refused(args: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(["m.mge", *args])


def test_flags_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAGS_iter", "7")
    inner = tmp_path / "inner"
    inner.write_text("cpu\n")
    outer = tmp_path / "outer"
    outer.write_text(f"# flags\n--flagfile={inner}\n--warmup_iter=2\n")
    found = parse([f"--flagfile={outer}", "--tryfromenv=iter,thread"])
    assert (found.number("iter"), found.number("warmup_iter"), found.on("cpu")) == (7, 2, True)
    assert found.number("thread") == 1
    inner.write_text(f"--flagfile={inner}\n")
    with pytest.raises(UsageError, match="include each other"):
        parse([f"--flagfile={inner}"])


@pytest.mark.parametrize(
    "values",
    [
        {"iter": -1},
        {"thread": 0},
        {"batch_size": 0},
        {"multi_thread_core_ids": "0"},
        {"multithread": 1, "multi_thread_core_ids": "a"},
        {"record_comp_seq2": True, "no_sanity_check": True, "fake_first": True},
        {"io_dump": "a", "io_dump_stdout": True},
        {"check_var_value": "0"},
        {"fast_run_algo_policy": "/nonexistent"},
        {"lite": True, "range": 1.0},
    ],
    ids=str,
)
def test_nonsense(values: dict[str, bool | int | float | str]) -> None:
    with pytest.raises(UsageError):
        check_together(ParsedFlags(["m.mge"], values))


def test_names_take_dashes() -> None:
    assert (
        parse(["--bin-io-dump", "d"]).values == parse(["--bin_io_dump", "d"]).values == {"bin_io_dump": "d"}
    )


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*argv: str) -> tuple[int, str, str]:
        code = main(["load_and_run", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_help_and_usage(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(f"--{f.name}" in out for f in FLAGS)
    assert run()[0] == 2
    assert run("/nonexistent.mge")[0] == 2
    code, out, _ = run("--version")
    assert code == 0
    assert "load_and_run of loadrun" in out


def test_names_of_files_are_escaped(
    run: Callable[..., tuple[int, str, str]], models: dict[str, str], tmp_path: Path
) -> None:
    code, _, err = run(models["plain"], "--profile", f"{tmp_path}/a\x1b[31m\n.json")
    assert code == 0
    assert r"a\x1b[31m\n.json" in err
    assert "\x1b" not in err


def test_data(run: Callable[..., tuple[int, str, str]], models: dict[str, str], tmp_path: Path) -> None:
    """The plain model negates: zeros without data, and what is given with --input."""
    folder = tmp_path / "out"
    folder.mkdir()

    def value(*argv: str) -> Array:
        code, _, err = run(models["plain"], "--iter", "0", "--bin_out_dump", str(folder), *argv)
        assert code == 0, err
        (path,) = folder.iterdir()
        data = path.read_bytes()
        path.unlink()
        shape = [n for n in np.frombuffer(data, "<u4", 7, 12) if n]
        return np.frombuffer(data[40 + int(np.frombuffer(data, "<u4", 1)[0]) :], "<f4").reshape(shape)

    np.testing.assert_array_equal(value(), np.zeros((2, 3), "f4"))
    np.testing.assert_array_equal(value("--input", "x:[[1,2,3]]"), -np.array([[1, 2, 3]], "f4"))
    np.testing.assert_array_equal(
        value("--input", "x:[[1,2,3],[4,5,6]]", "--batch_size", "3"),
        -np.array([[1, 2, 3], [4, 5, 6], [1, 2, 3]], "f4"),
    )
    # Of a shape alone every byte is 1.
    ones = np.frombuffer(b"\x01" * 4, "<f4")[0]
    np.testing.assert_array_equal(value("--input", "x:{4,3}"), np.full((4, 3), -ones))
    code, _, err = run(models["plain"], "--input", "z:{1,3}")
    assert code == 2
    assert "no input 'z'" in err


def test_threads_and_copies(run: Callable[..., tuple[int, str, str]], models: dict[str, str]) -> None:
    code, out, err = run(models["container"], "--thread", "2", "--iter", "1", "--multithread", "1")
    assert code == 0
    assert out.count("AssertEqual: err=") == 4
    assert err.count("=== finished test #0") == 2


def test_a_failed_check_ends_the_run(
    run: Callable[..., tuple[int, str, str]], models: dict[str, str]
) -> None:
    code, out, err = run(models["tampered"])
    assert code == 1
    assert out.count("AssertEqual") == 1
    assert "Unequal value\nValue of: {id:" in err
    assert "iter 0" not in err
    code, out, _ = run(models["tampered"], "--disable_assert_throw", "--iter", "2")
    assert (code, out.count("AssertEqual")) == (0, 3)


def test_the_page_of_all_flags_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "load_and_run_flags.py"))["page"]()
    page = (ROOT / "docs" / "load_and_run.md").read_text(encoding="utf-8")
    assert page == made, "run python scripts/load_and_run_flags.py"
    tried = {f.lstrip("-") for r in ROWS for f in r["flags"].split() if f.startswith("--")}
    assert all(f"| `--{name}` |" in page for name in tried)
