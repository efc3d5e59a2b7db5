"""The plugin for pytest: names, xdist, lists, what a failure prints, and that it costs nothing without models."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.configuration import matches
from loadrun.testcase import Bundle
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.support.forks import python as forked
from tests.support.small_models import unary

ROOT = Path(__file__).resolve().parent.parent.parent
NETS = ROOT / "fixtures" / "nets"
tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 has no tomllib")


def run(folder: Path, *args: str, python: Sequence[str] | None = None) -> tuple[int, str]:
    """A run of pytest by itself, with the plugin and nothing of this project's configuration."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("PYTEST_ADDOPTS", None)
    plugins = [
        "-p",
        "no:loadrun",
        "-p",
        "loadrun.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
    ]
    done = subprocess.run(
        [*(python or forked()), "-m", "pytest", *plugins, *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind in folders of their own."""
    made = tmp_path_factory.mktemp("models")
    (made / "nets").mkdir()
    shutil.copy(NETS / "mlp.mge", made / "nets")
    shutil.copy(NETS / "xfail_quant_unet_minmax.mge", made / "nets" / "unet.mge")
    (made / "twice.mge").write_bytes((NETS / "mlp.mge").read_bytes() * 2)
    shutil.copytree(ROOT / "fixtures" / "onnx" / "names", made / "onnx")
    shutil.copy(made / "onnx" / "model.onnx", made / "alone.onnx")
    loadrun.save(unary(), made / "plain.mge")
    cases = [{"x": np.full((1, 3), 1e-5, np.float32)}]
    Packer(Bundle(unary()), PackOptions(maxerr=10.0), warn=lambda _: None).pack(cases, made / "absurd.mge")
    (made / "pytest.ini").write_text(
        "[pytest]\nloadrun_skip =\n    onnx/*\nloadrun_xfail =\n    nets/unet.mge::*::mask  # min and max differ\n"
    )
    return made


def test_everything(folder: Path) -> None:
    code, out = run(folder, ".", "-rA", "-n", "2")
    assert code == 1
    found = {
        (kind, name)
        for kind, name in re.findall(r"^(PASSED|FAILED|XFAIL|SKIPPED|ERROR) (?:\[\d+\] )?(\S+)", out, re.M)
    }
    assert {n for k, n in found if k == "PASSED"} == {
        *(f"nets/mlp.mge::{i}::out" for i in range(3)),
        *(f"twice.mge::{lead}{i}::out" for i in range(3) for lead in ("", "dump2-")),
    }
    assert {n for k, n in found if k == "XFAIL"} == {"nets/unet.mge::0::mask", "nets/unet.mge::1::mask"}
    failed = {
        *("nets/unet.mge::0::gate", "nets/unet.mge::1::gate"),
        *("absurd.mge::0::y", "plain.mge::run::y"),
    }
    assert {n for k, n in found if k == "FAILED"} == failed
    assert "min and max differ" in out
    assert "listed in loadrun_skip" in out
    assert "nothing was compared: the output has no check" in out, "plain.mge"
    assert re.search(r"4 failed, 9 passed, 3 skipped, 2 xfailed", out), out[-500:]


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_pytest_alone_takes_the_models_that_are_listed(tmp_path: Path, workers: tuple[str, ...]) -> None:
    for place in ("data", "models"):
        (tmp_path / place).mkdir()
        shutil.copy(NETS / "mlp.mge", tmp_path / place)
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")

    def passed(*args: str) -> tuple[str, ...]:
        code, out = run(tmp_path, *args, *workers, "-rA")
        assert code == 0, out
        found = re.findall(r"^PASSED (\S+)", out, re.M)
        return tuple(sorted({name.partition("::")[0] for name in found}))

    data, model, code = "data/mlp.mge", "models/mlp.mge", "test_it.py"
    assert passed() == (code,)
    assert passed(".") == (data, model, code)
    if not workers:
        assert passed("models") == (model,)
    (tmp_path / "pytest.ini").write_text("[pytest]\nloadrun_models =\n    models/*  # the released ones\n")
    assert passed() == (model, code)
    if not workers:
        assert passed(".") == (model, code)
        assert passed(data) == (data,)


def test_a_failure_prints_the_comparison(folder: Path) -> None:
    code, out = run(folder, "nets/unet.mge::1::gate", "absurd.mge")
    assert code == 1
    assert "unet.mge, testcase 1, output gate" in out
    assert "E   assert error <= tolerance: 0.0153794 <= 0.0001\n" in out
    assert "325 of 2048 values exceed the tolerance; error 0.0153794 at [0, 2, 1, 1]" in out
    assert "--testcase 1 --against GOOD" in out
    assert "its tolerance of 10 lets zeros and the negated values pass" in out
    assert "plugin.py" not in out, "no traceback through the plugin"


def test_an_expected_value_of_no_output_fails(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fixtures" / "onnx" / "names", tmp_path / "net")
    values = tmp_path / "net" / "test_data_set_0"
    shutil.copy(values / "output_2.pb", values / "output_3.pb")
    code, out = run(tmp_path, ".")
    assert code == 1
    assert "output_3.pb: the model has no such output" in out


def test_a_broken_file_is_an_error_of_the_collection(tmp_path: Path) -> None:
    (tmp_path / "bad.mge").write_bytes(b"nothing")
    code, out = run(tmp_path, ".")
    assert code == 2
    assert "expected a MegEngine dump" in out


def test_it_costs_nothing_without_models(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_it():\n"
        "    found = [m for m in sys.modules if m == 'numpy' or m.startswith('loadrun.')]\n"
        "    base, testing = 'loadrun.base', 'loadrun.testing'\n"
        "    assert sorted(found) == [base, base + '.registry', testing, testing + '.plugin']\n"
    )
    code, out = run(tmp_path, python=[sys.executable])
    assert code == 0, out


def test_it_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"loadrun": "loadrun.testing.plugin"}


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("nets/a.mge::0::y", True),
        ("a.mge::0", True),
        ("models/nets", False),
        ("*.mge::*::y", True),
        ("*.mge::1::*", False),
        ("", False),
    ],
)
def test_patterns(pattern: str, wanted: bool) -> None:
    assert matches("models/nets/a.mge::0::y", pattern) is wanted


def test_the_configuration_of_the_project(tmp_path: Path) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path / "a.mge")
    shutil.copy(NETS / "xfail_quant_unet_minmax.mge", tmp_path / "b.mge")
    (tmp_path / "c.mge").write_bytes(b"nothing")
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.loadrun.files]]\nmatch = ["b.mge"]\nxfail = "min and max differ"\n'
        '[[tool.loadrun.files]]\nmatch = ["c.mge"]\nskip = "no model yet"\n'
        '[[tool.loadrun.files]]\nmatch = ["a.mge"]\nengines = ["float64"]\ncheck = ["exact"]\n'
    )
    code, out = run(tmp_path, ".", "-rA")
    assert code == 1
    # Double precision is not float32 to the last bit.
    assert re.search(r"FAILED a\.mge::0::out", out)
    assert "exact is violated" in out
    assert re.search(r"XFAIL b\.mge\S* - min and max differ", out)
    assert "no model yet" in out
    code, out = run(tmp_path, "a.mge", "--loadrun-timeout", "60", "--loadrun-engine", "reference")
    assert code == 0 or "exact is violated" in out


def test_a_pattern_that_matches_no_file_is_an_error(tmp_path: Path) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path / "a.mge")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    entry = '[[tool.loadrun.files]]\nmatch = ["a.mge", "gone/*.mge"]\ncheck = ["rtol=1e-3"]\n'
    (tmp_path / "pyproject.toml").write_text(entry)
    code, out = run(tmp_path, ".")
    assert (code, "pyproject.toml: match 'gone/*.mge' matches no file" in out) == (2, True), out
    assert run(tmp_path)[0] == 0, "no model is collected"
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pytest.ini").write_text("[pytest]\nloadrun_models =\n    a.mge\n    gone/*.mge\n")
    for args in ((), ("-n", "1")):
        code, out = run(tmp_path, *args)
        assert (code, "loadrun_models: 'gone/*.mge' matches no file" in out) == (4, True), out


def test_a_pass_of_what_is_expected_to_fail_fails(tmp_path: Path) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path / "a.mge")
    loadrun.save(unary(), tmp_path / "b.mge")
    entry = '[[tool.loadrun.files]]\nmatch = ["*.mge"]\nxfail = "rounds halves up"\n'
    (tmp_path / "pyproject.toml").write_text(entry)
    code, out = run(tmp_path, ".", "-rA")
    assert code == 1
    assert "it passes, but was expected to fail: rounds halves up; remove its entry" in out
    # Nor does it excuse what compares nothing.
    assert set(re.findall(r"^FAILED (\S+)", out, re.M)) == {"a.mge::xfail", "b.mge::run::y"}
    (tmp_path / "pyproject.toml").write_text(entry + "xfail_strict = false\n")
    assert run(tmp_path, "a.mge")[0] == 0
    (tmp_path / "pyproject.toml").unlink()
    (tmp_path / "pytest.ini").write_text("[pytest]\nloadrun_xfail =\n    a.mge::1::*  # rounds halves up\n")
    code, out = run(tmp_path, "a.mge")
    assert (code, "1 failed, 2 passed" in out, "[XPASS(strict)]" in out) == (1, True, True), out


def test_endings_are_those_of_the_command(tmp_path: Path) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path / "A.MGE")
    shutil.copytree(ROOT / "fixtures" / "onnx" / "names", tmp_path / "net")
    (tmp_path / "net" / "model.onnx").rename(tmp_path / "net" / "model.Onnx")
    code, out = run(tmp_path, ".", "-rA")
    assert code == 0, out
    assert {n.partition("::")[0] for n in re.findall(r"^PASSED (\S+)", out, re.M)} == {
        "A.MGE",
        "net/model.Onnx",
    }


@pytest.mark.parametrize("value", ["0", "nan", "inf"])
def test_a_time_limit_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path)
    code, out = run(tmp_path, "mlp.mge", f"--loadrun-timeout={value}")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"expected a number of seconds above 0, found '{value}'" in out


@pytest.mark.parametrize("value", ["-1", "9" * 5000])
def test_a_seed_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    shutil.copy(NETS / "mlp.mge", tmp_path)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nloadrun_seed = {value}\n")
    code, out = run(tmp_path, "mlp.mge")
    assert code == 1
    assert "UsageError: loadrun_seed: expected a whole number from 0 to 2**64 - 1" in out
    assert "Traceback" not in out


def test_a_damaged_program_is_not_passed_over(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="reads a file of torch")
    (tmp_path / "net.pt2").write_bytes(b"PK\x03\x04 and nothing of an archive")
    code, said = run(tmp_path, "net.pt2")
    assert code == 2, said
    assert "net.pt2: the archive is damaged or not complete" in said
    assert "Traceback" not in said
