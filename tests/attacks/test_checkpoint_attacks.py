"""Every attack on the reader of checkpoints ends as it must, within its memory and time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.checkpoint_attacks import ATTACKS

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    attack = ATTACKS[name]
    command = [sys.executable, "-m", "tests.attacks.run_checkpoint", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["end"] == attack.end, row
    assert attack.text in row["text"]
    assert row["opened"] == []
    assert row["seconds"] <= attack.seconds
    assert row["peak"] <= (48 << 20) + attack.factor * row["size"]
