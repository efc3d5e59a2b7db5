"""Fixtures of the engines' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def compiled() -> Iterator[None]:
    """Compile small models at their first run, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadrun.engines.reference._WORTH", -1)
        yield
