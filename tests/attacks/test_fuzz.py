"""A few hundred mutants of everything that comes from outside; ``--fuzz-seconds N`` goes on with new ones."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.attacks.fuzz import KEPT, KINDS, fuzz, judge
from tests.support.cases import fewer

COUNT = {"dump": 150, "run": 60, "list": 60, "file": 200, "command": 60}


@pytest.mark.parametrize("kind", KINDS)
def test_mutants(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Each is taken or refused with a reason; without the option they are the same ones every time."""
    seconds = request.config.getoption("--fuzz-seconds")
    if seconds:
        seed, end = time.time_ns(), time.monotonic() + seconds
        ends, faults = fuzz(kind, random.Random(seed), lambda _: time.monotonic() < end, tmp_path)
    else:
        seed = 0
        ends, faults = fuzz(kind, random.Random(kind), lambda n: n < fewer(COUNT.get(kind, 400), 3), tmp_path)
    print(f"{kind}, seed {seed}: {dict(ends)}")
    assert not faults, f"see {tmp_path}"
    assert ends["refused"] > 3
    assert ends["taken"] > 0


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.*")), ids=lambda p: p.name)
def test_kept(path: Path) -> None:
    """What once ended in a traceback, or took too long, is refused or taken."""
    assert judge(path.name.split("_")[0], path.read_bytes()) in ("taken", "refused")
