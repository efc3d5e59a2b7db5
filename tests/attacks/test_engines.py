"""Engines of other packages that misbehave, in this process and in workers: a sentence each, and an exit code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.forks import python

MLP = "fixtures/nets/mlp.mge"
MODULE = """
import ctypes, os, signal, sys
import numpy as np
from loadrun.base.about import About
from loadrun.engines.reference import ReferenceEngine

if os.environ.get("AT_IMPORT") == "segfault":
    ctypes.string_at(0)
if os.environ.get("AT_IMPORT") == "exit":
    sys.exit(0)


class Odd(np.ndarray):
    def __array_finalize__(self, of):
        if of is not None and type(of) is Odd:
            raise ZeroDivisionError("no reason")


class Bad:
    about = About("bad", "1.0", "float32")

    def __init__(self, graph, targets, setup):
        self.what = setup.argument
        if self.what == "exit_at_once":
            sys.exit(0)
        self.engine = ReferenceEngine(graph, targets, seed=setup.seed)
        self.inputs = self.engine.inputs

    def run(self, feeds):
        values = self.engine.run(feeds)
        what = self.what
        if what == "exit":
            raise SystemExit(0)
        if what == "interrupt":
            raise KeyboardInterrupt
        if what == "raise":
            raise ZeroDivisionError("no reason")
        if what == "memory":
            np.ones(1 << 50)
        if what == "recursion":
            return self.run(feeds)
        if what == "print":
            print("hello from the engine")
            os.write(1, b"and from below\\n")
        if what == "nan":
            return [v * np.nan for v in values]
        if what == "none":
            return None
        if what == "texts":
            return ["a"] * len(values)
        if what == "objects":
            return [v.astype(object) for v in values]
        if what == "complex":
            return [v.astype(complex) for v in values]
        if what == "odd":
            return [v.view(Odd) for v in values]
        if what == "masked":
            return [np.ma.masked_invalid(v * np.nan) for v in values]
        if what == "few":
            return values[:-1]
        if what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "segfault":
            ctypes.string_at(0)
        if what == "os_exit":
            os._exit(0)
        return values
"""
ERRORS = {
    "exit": "the engine 'bad' failed to run: SystemExit: 0",
    "exit_at_once": "the engine 'bad' failed to take the model: SystemExit: 0",
    "raise": "the engine 'bad' failed to run: ZeroDivisionError: no reason",
    "memory": "out of memory: this needs more than is available",
    "recursion": "the engine 'bad' failed to run: RecursionError",
    "none": "the engine 'bad' failed to run: TypeError",
    "texts": "the engine 'bad' returned a str for 'out', expected a numpy.ndarray of numbers",
    "odd": "the engine 'bad' returned a Odd for 'out', expected a numpy.ndarray of numbers",
    "masked": "the engine 'bad' returned a MaskedArray for 'out'",
    "objects": "the engine 'bad' returned an array of object for 'out'",
    "complex": "the engine 'bad' returned an array of complex",
    "few": "the engine 'bad' returned 0 values, expected 1",
}
CRASHES = {
    "killed": "was killed by SIGKILL, as happens when memory runs out",
    "segfault": "was killed by SIGSEGV",
    "os_exit": "the process that ran it ended with exit code 0",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package whose engine does what its argument says."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "bad_engine.py").write_text(MODULE)
    about = folder / "bad_engine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-engine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[loadrun.engines]\nbad = bad_engine:Bad\n")
    return folder


def replayed(
    package: Path, *args: str, at_import: str = "", program: tuple[str, ...] = ("-m", "loadrun")
) -> subprocess.CompletedProcess[str]:
    """A replay by the engine in a process of its own."""
    path = os.pathsep.join([str(package), os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "AT_IMPORT": at_import}
    return subprocess.run([*python(), *program, *args], capture_output=True, text=True, env=env, timeout=120)


@pytest.mark.parametrize(
    ("what", "jobs"),
    # A worker tells what its engine raised or gave in the same way, whatever it was.
    [
        *((what, []) for what in ERRORS),
        ("exit", ["-j", "2"]),
        *(pytest.param(what, ["-j", "2"], marks=pytest.mark.slow) for what in ("recursion", "few")),
    ],
)
def test_errors(what: str, jobs: list[str], package: Path) -> None:
    done = replayed(package, MLP, "--engine", f"bad:{what}", *jobs)
    assert done.returncode == 2, done
    assert ERRORS[what] in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "bug in loadrun" not in done.stdout + done.stderr


@pytest.mark.parametrize("what", CRASHES)
def test_crashes_of_workers(what: str, package: Path) -> None:
    done = replayed(package, MLP, "--engine", f"bad:{what}", "-j", "2")
    assert done.returncode == 5, done
    assert CRASHES[what] in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_interrupt_that_nobody_sent(package: Path) -> None:
    done = replayed(package, MLP, "--engine", "bad:interrupt", "-j", "2")
    assert done.returncode == 2
    assert "the engine 'bad' failed to run: KeyboardInterrupt" in done.stdout
    assert done.stderr == ""
    # A script that runs the tests in its background has them ignore SIGINT, and so what they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run = "import sys; from loadrun.cli import main; sys.exit(main(sys.argv[1:]))"
    done = replayed(package, MLP, "--engine", "bad:interrupt", program=("-c", heard + run))
    assert (done.returncode, done.stderr) == (130, "loadrun: interrupted\n")


@pytest.mark.parametrize("jobs", [[], ["-j", "2"]])
def test_values_that_are_not_numbers_fail(jobs: list[str], package: Path) -> None:
    done = replayed(package, MLP, "--engine", "bad:nan", *jobs)
    assert done.returncode == 1
    assert "3 checks: 0 passed, 3 failed" in done.stdout


def test_what_an_engine_prints_in_a_worker_is_no_result(package: Path) -> None:
    done = replayed(package, MLP, "--engine", "bad:print", "-j", "2", "--json", "-")
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert "and from below" in done.stderr


@pytest.mark.parametrize("jobs", [[], ["-j", "2"]])
def test_an_engine_whose_module_ends_the_program(jobs: list[str], package: Path) -> None:
    done = replayed(package, MLP, "--engine", "bad", *jobs, at_import="exit")
    assert done.returncode == 2
    assert "the engine 'bad' (bad_engine:Bad) cannot be loaded: SystemExit: 0" in done.stdout + done.stderr


def test_an_engine_whose_module_kills_the_worker(package: Path) -> None:
    done = replayed(package, MLP, "--engine", "bad", "-j", "2", at_import="segfault")
    assert done.returncode == 5
    assert "was killed by SIGSEGV" in done.stdout
