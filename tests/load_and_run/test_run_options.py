"""Options of load_and_run beside an ordinary replay of all testcases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.ops.numeric.parallel import threads
from loadrun.passes.options import LAYOUTS
from loadrun.replay.serial import prepared
from loadrun.testcase import Bundle
from loadrun.testing import GraphBuilder

NETS = Path(__file__).resolve().parents[2] / "fixtures" / "nets"
MODEL, MLP = str(NETS / "resnet_basic.mge"), str(NETS / "mlp.mge")


@pytest.mark.parametrize(
    "flag", ["--enable-nchw44", "--enable_nchw4", "--enable-fuse-conv-bias-nonlinearity"]
)
def test_the_optimized_graph_still_passes(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MODEL, flag]) == 0
    assert "3 checks: 3 passed" in capsys.readouterr().out


def test_float16_fails_its_checks(capsys: pytest.CaptureFixture[str]) -> None:
    """The checks ask for 1e-4; halves have three digits."""
    assert main([MODEL, "--enable-ioc16"]) == 1
    assert "0 passed, 3 failed" in capsys.readouterr().out


def test_every_layout_is_an_option() -> None:
    graph = loadrun.load(MODEL).graph
    for flag in LAYOUTS:
        assert prepared(loadrun.load(MODEL), (flag,)).graph is not graph
    bundle = loadrun.load(MODEL)
    assert prepared(bundle) is bundle
    assert main([MODEL, "--enable-nchw4", "--enable-nchw44"]) == 2


def test_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MODEL, "--batch-size", "4"]) == 0
    out = capsys.readouterr().out
    assert out.count("4x10") == 3
    assert main([MODEL, "--batch-size", "0"]) == 2
    case = prepared(loadrun.load(MODEL), batch=5).testcases[1]
    given = loadrun.load(MODEL).testcases[1].arrays["data"]
    np.testing.assert_array_equal(case.arrays["data"], given[[0, 1, 0, 1, 0]])


def test_threads() -> None:
    before = threads()
    assert main([MLP, "--threads", "1"]) == 0
    assert threads() == before
    assert main([MLP, "--threads", "0"]) == 2
    assert main([MLP, "--threads", "1", "-j", "2"]) == 2


def test_every_variable_of_every_testcase_as_text(tmp_path: Path) -> None:
    text = tmp_path / "io.txt"
    assert main([MODEL, "--io-dump", str(text)]) == 0
    assert text.read_text().count("produced: name=data ") == 3
    assert main([MLP, "--io-dump", str(tmp_path / "nowhere" / "io.txt")]) == 2


def test_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MODEL, "--range", "1e6"]) == 0
    assert main([MODEL, "--range", "inf"]) == 0
    assert main([MODEL, "--range", "nan"]) == 2
    assert main([MODEL, "--range", "0.5"]) == 1
    assert "out of range begins at" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["-j", "2"]])
def test_what_is_not_finite_is_found_where_it_begins(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The logarithm of a negative number is NaN, which the maximum of MegEngine hides in the first operand."""
    graph = GraphBuilder()
    x = graph.input("x", 2)
    hidden = graph.elemwise("MAX", graph.elemwise("LOG", x, name="log"), graph.const(0.0))
    loadrun.save(Bundle(graph.done(hidden)), tmp_path / "m.mge")
    command = [str(tmp_path / "m.mge"), "--allow-uncompared", "--range", "inf", *more]
    assert main([*command, "--input", "x:[1,2]"]) == 0
    assert main([*command, "--input", "x:[1,2]", "--input", "x:[1,-2]"]) == 1
    out = capsys.readouterr().out
    assert "m.mge, testcase 1:" in out
    assert "m.mge, testcase 0:" not in out
    assert "NaN begins at Elemwise 'log'" in out


def test_top(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--top", "2"]) == 0
    assert "GFLOP/s" in capsys.readouterr().out
