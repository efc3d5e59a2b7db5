"""What is known of operators and modes stands in their lines: tables of them elsewhere are few."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
MOST = 15
"""MegEngine has tables of its own, of names and of the inputs that it wants on the host; some operators of ONNX have
the names of MegEngine's; the rest are traits."""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "operator_tables.py"))


@pytest.mark.slow
def test_tables_outside_the_catalog_are_few(script: dict[str, Any]) -> None:
    found = script["tables"]()
    assert len(found) <= MOST, "\n".join(
        ["make them traits (CONTRIBUTING.md, Add an operator):", *map(str, found)]
    )


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('A = ("Softmax", "Concat")', ["Softmax", "Concat"]),
        ('A = frozenset({*("Softmax", "Concat"), "Dot"})', ["Softmax", "Concat", "Dot"]),
        ('A = {"Softmax": {"axis"}, "x": ["Dot"]}', ["Softmax", "Dot"]),
        ('def f(o): return o.type in ("ConvolutionForward", "Dot")', ["ConvolutionForward", "Dot"]),
        ('A = "Softmax Concat Dot".split()', ["Softmax", "Concat", "Dot"]),
        ("from x.params import ElemwiseMode as E\nA = [E.ADD, E.MUL]", ["ADD", "MUL"]),
        ("_M = P.ElemwiseMode\nclass C:\n    A = {_M.ADD: f, _M.MUL: g}", ["ADD", "MUL"]),
        ("A = {P.ElemwiseMultiTypeMode.EQ: 1, P.ElemwiseMultiTypeMode.LT: 2}", ["EQ", "LT"]),
    ],
)
def test_what_is_a_table(script: dict[str, Any], source: str, names: list[str]) -> None:
    assert [list(t.names) for t in script["tables_of"](source, "loadrun/x.py")] == [names]


@pytest.mark.parametrize(
    "source",
    [
        '__all__ = ["Softmax", "Concat"]',
        '@kernel("Softmax", "Concat")\ndef f(): ...',
        "LT, EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.EQ",
        'A = ("Softmax", "softmax")',
        "from x.params import ReduceMode as M\nA = (M.MAX, M.MIN)",
        '"""Softmax and Concat."""',
    ],
)
def test_what_is_none(script: dict[str, Any], source: str) -> None:
    assert list(script["tables_of"](source, "loadrun/x.py")) == []


def test_texts_of_onnx_name_other_operators(script: dict[str, Any]) -> None:
    source = 'A = ("Softmax", "Concat")\nB = (ElemwiseMode.ADD, ElemwiseMode.MUL)'
    found = script["tables_of"](source, "loadrun/onnx/traced/x.py")
    assert [t.names for t in found] == [("ADD", "MUL")]
