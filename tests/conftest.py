from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same tree gives the same answer everywhere, unless new examples are asked for.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("explore" if os.environ.get("LOADRUN_EXPLORE") else "same")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return ROOT / "fixtures"


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths such as fixtures/nets/mlp.mge hold from the repository root."""
    monkeypatch.chdir(ROOT)
