"""Names of dumps' outputs, of every recorded call that real MegEngine dumps: the test without it has a part of them."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path

import pytest

from fixtures.functional._case import Case
from tests.support.cases import check_all
from tests.support.oracle import ORACLE, TESTS
from tests.support.output_names import check_names

pytestmark = pytest.mark.oracle


@pytest.mark.filterwarnings(
    "ignore:the graph draws random numbers", "ignore:.*gives no elements at the traced sizes"
)
def test_outputs_are_called_as_megengine_calls_them(tmp_path: Path) -> None:
    table = tmp_path / "names.json"
    script = TESTS / "oracle" / "list_functional.py"
    subprocess.run(
        [str(ORACLE), str(script), str(table), "--all"], capture_output=True, timeout=3600, check=True
    )
    found = json.loads(table.read_text())
    assert len(found) > 10
    for family, names in found.items():
        cases: list[Case] = importlib.import_module(f"fixtures.functional.{family}_cases").CASES
        check_all(
            [c for c in cases if c.id in names],
            lambda c, family=family, names=names: check_names(family, c, names[c.id]),
            lambda c, family=family: f"{family}/{c.id}",
        )
