"""Inputs end as they must, within their memory and time; all in one child whose memory is limited."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.input_attacks import ATTACKS


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_attacks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.attacks.input_attacks", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["name"] for row in rows] == list(ATTACKS)
    for row in rows:
        attack = ATTACKS[row["name"]]
        assert row["code"] == attack.code, row
        assert attack.text in row["text"], row
        assert row["seconds"] <= attack.seconds, row
