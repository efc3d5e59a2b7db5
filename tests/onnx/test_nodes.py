"""ONNX's own node tests through the importer and the reference engine."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import slow_but

onnx = pytest.importorskip("onnx", reason="ONNX's node tests come with the package onnx")

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "onnx_nodes.py"
PARTS = 4


@cache
def nodes() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_nodes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onnx_nodes"] = module
    spec.loader.exec_module(module)
    return module


@cache
def measured(part: int) -> list[Any]:
    cases = list(nodes().cases())
    return [(c, nodes().attempt(c)) for c in cases[part::PARTS]]


@pytest.mark.parametrize("part", slow_but([0], range(PARTS)))
def test_none_is_wrong_and_enough_pass(part: int) -> None:
    found = measured(part)
    bad = [f"{c.name}: {o.reason}" for c, o in found if o.kind in ("wrong", "fault")]
    assert not bad, "\n".join(bad)
    groups = nodes().GROUPS
    for group, least in zip(groups, (0.97, 0.9, 0.5), strict=False):
        count = Counter(o.kind for c, o in found if c.group == group)
        assert count["pass"] >= least * sum(count.values()), (group, count)


def test_the_page_counts_all_node_tests() -> None:
    page = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    counted = re.search(r"the (\d+) node tests of onnx ([\d.]+),", page)
    assert counted is not None
    if onnx.__version__ != counted[2]:
        pytest.skip(f"the page was written with onnx {counted[2]}")
    assert len(list(nodes().cases())) == int(counted[1])


def test_refusals_say_why() -> None:
    (case,) = nodes().cases("test_image_decoder_decode_bmp")
    outcome = nodes().attempt(case)
    assert outcome.kind == "refused"
    assert "decodes images; feed them as arrays" in outcome.reason


def test_a_wrong_value_is_found() -> None:
    (case,) = nodes().cases("^test_relu$")
    case.sets[0][1][0][0, 0, 0] += 1
    assert nodes().attempt(case).kind == "wrong"
