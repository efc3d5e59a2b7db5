"""docs/megengine.md says of every public name of MegEngine 1.13.0 whether it is offered, and why not."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "megengine_api.py"))


def test_the_page_is_up_to_date(script: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "megengine.md").read_text(encoding="utf-8")
    assert text == script["page"](), "run python scripts/megengine_api.py"


def test_what_inference_needs_is_offered(script: dict[str, Any]) -> None:
    """Of these modules nothing is missing but what the page gives a reason for that is not `INNER`."""
    whole = (
        "functional",
        "module",
        "quantization",
        "random",
        "data.transform",
        "utils.network",
        "utils.module_stats",
    )
    found = dict(script["modules"]())
    for name in whole:
        missing = found[f"megengine.{name}"].absent.get(script["INNER"], [])
        assert not missing, f"megengine.{name}: {missing}"


def test_the_list_is_that_of_a_whole_release() -> None:
    names = json.loads((ROOT / "tests" / "data" / "megengine_names.json").read_text(encoding="utf-8"))
    assert len(names["megengine.functional"]) == 150
    assert "conv2d" in names["megengine.functional"]
    assert len(names["megengine.module"]) == 57
