"""The example scripts run and end with everything verified."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(path))["main"]
    assert main(["--output", str(tmp_path / path.stem)]) == 0
    assert "pass" in capsys.readouterr().out


def test_there_are_examples() -> None:
    assert [p.stem for p in EXAMPLES] == ["autoencoder", "numpy_pipeline", "resnet50"]
