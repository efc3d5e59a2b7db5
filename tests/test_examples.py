"""The example scripts run and end with everything verified."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.support.cases import slow_but

FOLDER = Path(__file__).resolve().parents[1] / "examples"
EXAMPLES = sorted(p.stem for p in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", slow_but(["autoencoder", "numpy_pipeline"], EXAMPLES))
def test_examples(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(FOLDER / f"{name}.py"))["main"]
    assert main(["--output", str(tmp_path / name)]) == 0
    assert "pass" in capsys.readouterr().out


def test_there_are_examples() -> None:
    assert EXAMPLES == ["autoencoder", "numpy_pipeline", "resnet50"]
