"""Tables in narrow terminals."""

from __future__ import annotations

import re

import pytest

import loadrun
from loadrun.report import text
from loadrun.report.text import Rows, Style


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
def test_results_fit_and_lose_no_digit_and_no_verdict(width: int) -> None:
    results = loadrun.run("fixtures/nets/mlp.mge")
    block = Rows(Style(width=width)).block(results)
    assert max(map(len, block.splitlines())) <= width
    assert block.count("pass") == 3
    for result in results:
        (out,) = result.outputs
        for told in (f"{out.error:.4g}", "1e-05", f"{result.seconds * 1e3:.2f}", text.shape_text(out.shape)):
            assert told in block
    assert "float32" in block


def test_names_are_shortened_in_their_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "window", lambda out: 48)
    rows = [(f"backbone.layer{i}.conv2.weight", "1x64x112x112", f"{i}.250", "pass") for i in range(3)]
    shown = text.table(rows, ("name", "shape", "ms", "verdict"), (2,))
    assert max(map(len, shown.splitlines())) <= 48
    assert shown.count("pass") == 3
    assert re.findall(r"\d\.250", shown) == ["0.250", "1.250", "2.250"]
    assert "every row: shape 1x64x112x112" in shown
    assert "backbone.layer1.conv2.weight" in shown, "what was left out made room"
    rows = [(name.replace("backbone", "a.very.long.backbone"), *rest) for name, *rest in rows]
    shown = text.table(rows, ("name", "shape", "ms", "verdict"), (2,))
    assert max(map(len, shown.splitlines())) <= 48
    assert "..." in shown
    assert "weight" in shown


def test_a_wide_terminal_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", 1), ("b", 1)]
    before = text.table(rows, ("name", "ms"), (1,))
    monkeypatch.setattr(text, "window", lambda out: 200)
    assert text.table(rows, ("name", "ms"), (1,)) == before
