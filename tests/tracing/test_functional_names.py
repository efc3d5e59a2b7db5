"""Names of outputs of the recorded calls of MegEngine's API, held against what MegEngine's ``dump`` returned.

`tests/oracle/list_functional.py` makes the table under MegEngine 1.13.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cases import check_all
from tests.support.output_names import check_names
from tests.support.recorded import cases, name_of, some_calls

NAMES: dict[str, dict[str, list[list[str]]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "functional_names.json").read_text()
)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.filterwarnings(
    "ignore:the graph draws random numbers", "ignore:.*gives no elements at the traced sizes"
)
def test_outputs_are_called_as_megengine_calls_them(family: str) -> None:
    names = NAMES[family]
    named = [(family, c) for c in cases(family) if c.id in names]
    check_all(some_calls(named), lambda one: check_names(*one, names[one[1].id]), name_of)
