"""A few thousand mutants of dumps that real MegEngine wrote; ``mutate.py`` goes on for as long as one likes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.attacks.execute import execute, run
from tests.attacks.mutate import Seed, examine
from tests.support.cases import fewer
from tests.support.fixture_files import FIXTURES

FILES = [
    "nets/mlp.mge",
    "nets/mlp.v1.mge",
    "ops/format/mgbs_testcases_old.mge",
    "ops/format/v2_surplus_params.mge",
    "ops/format/v2_output_alias.mge",
]


@pytest.mark.parametrize("path", FILES)
def test_loading(path: str) -> None:
    """Every mutant is refused with a FormatError, or read, written and read again the same."""
    seed, rng = Seed((FIXTURES / path).read_bytes()), random.Random(path)
    ends = Counter(examine(seed.mutant(rng)) for _ in range(fewer(250)))
    assert set(ends) == {"refused", "loaded"}
    assert min(ends.values()) > 3


@pytest.mark.parametrize("path", FILES)
def test_running(path: str) -> None:
    """What loads also runs to a verdict or a LoadRunError, in bounded memory and time."""
    seed, rng = Seed((FIXTURES / path).read_bytes(), meaning=True), random.Random(path)
    assert run(seed.data) in ("pass", "not compared")
    ends = Counter(execute(seed.mutant(rng)) for _ in range(fewer(40)))
    assert ends
