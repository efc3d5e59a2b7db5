from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.support.cases import WHOLE, fewer
from tests.support.fixture_files import FIXTURES
from tests.support.forks import forks

# The same tree gives the same answer everywhere, unless new examples are asked for.
settings.register_profile("same", derandomize=True, deadline=None, max_examples=fewer(100, 2))
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("LOADRUN_EXPLORE") else "same")

ROOT = Path(__file__).resolve().parent.parent
# Models there are for tests; they are no tests by themselves, as loadrun's plugin would have it.
collect_ignore = ["data"]

# What tests write need not outlast a loss of power; each wait for the disk takes milliseconds.
os.fsync = lambda fd: None

# Hundreds of processes import loadrun here, which takes them twice as long where nothing keeps the compiled files.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-seconds", type=float, default=0, metavar="N", help="fuzz every kind of input for N seconds"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Let no garbage be looked for while tests are collected: all that is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later search for garbage, which would walk through it again and again."""
    gc.enable()
    gc.collect()
    gc.freeze()
    # Tests that parse the package take twice as long with few.
    gc.set_threshold(50_000, 50, 50)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same random numbers: `trace.dump` draws from numpy's global generator, as MegEngine's does.

    Nobody has chosen a seed of MegEngine's generator yet, whatever tests before did.
    """
    np.random.seed(0)
    if "loadrun.tensors.applying" in sys.modules:
        sys.modules["loadrun.tensors.applying"].seed(None)


def pytest_unconfigure() -> None:
    """End the process that forks, if there is one."""
    if forks.cache_info().currsize:
        forks().close()


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return FIXTURES


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths such as fixtures/nets/mlp.mge hold from the repository root."""
    monkeypatch.chdir(ROOT)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is slow, unless all or that is asked for; skip what needs real MegEngine where there is none."""
    named = any("::" in argument for argument in config.args)
    if not (WHOLE or named or "slow" in config.option.markexpr):
        left = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if os.environ.get("LOADRUN_ORACLE"):
        return
    absent = pytest.mark.skip(reason="real MegEngine is absent; scripts/oracle.sh sets it up")
    for item in items:
        if item.get_closest_marker("oracle"):
            item.add_marker(absent)
