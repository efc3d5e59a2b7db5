"""A witness in a thread of its own."""

from __future__ import annotations

import subprocess
import sys

ENDLESS = """
import threading
import numpy as np
from loadrun import Testcase
from loadrun.verify.pack.witness import Opinions, Witness

asked = threading.Event()

def run(feeds):
    asked.set()
    threading.Event().wait()

case = Testcase({"x": np.zeros(2, np.float32), "y:expect": np.zeros(2, np.float32)})
with Opinions(Witness("endless", run)) as opinions:
    opinions.ask("testcase 0", case, None)
    asked.wait()
    raise SystemExit(4)
"""


def test_a_witness_that_never_answers_keeps_nobody_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], timeout=60, check=False)
    assert done.returncode == 4
