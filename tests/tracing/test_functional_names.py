"""Names of outputs of the recorded calls of MegEngine's API, held against what MegEngine's ``dump`` returned.

`tests/oracle/list_functional.py` makes the table under MegEngine 1.13.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from fixtures.functional._case import Case
from tests.support.cases import check_all, some_of
from tests.support.output_names import OTHER_NAMES, check_names
from tests.support.recorded import function_of

NAMES: dict[str, dict[str, list[list[str]]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "functional_names.json").read_text()
)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.filterwarnings(
    "ignore:the graph draws random numbers", "ignore:.*gives no elements at the traced sizes"
)
def test_outputs_are_called_as_megengine_calls_them(family: str) -> None:
    cases: list[Case] = importlib.import_module(f"fixtures.functional.{family}_cases").CASES
    names = NAMES[family]
    named = [c for c in cases if c.id in names]
    check_all(
        # Hundreds of pairs of dtypes differ in nothing else.
        some_of(
            named,
            12 if family == "promotion" else 4,
            lambda c: (function_of(c), f"{family}/{c.id}" in OTHER_NAMES),
        ),
        lambda c: check_names(family, c, names[c.id]),
        lambda c: c.id,
    )
