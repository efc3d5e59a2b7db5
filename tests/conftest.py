from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def fixtures() -> Path:
    return ROOT / "fixtures"


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths such as fixtures/nets/mlp.mge hold from the repository root."""
    monkeypatch.chdir(ROOT)
