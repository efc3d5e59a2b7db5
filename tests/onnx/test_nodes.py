"""ONNX's own node tests through the importer and the engines of loadrun."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import loadrun
from loadrun.base.errors import LoadRunError
from tests.support.cases import BOTH, slow_but

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
def measured(part: int, engine: str) -> list[Any]:
    cases = list(nodes().cases())
    return [(c, nodes().attempt(c, engine)) for c in cases[part::PARTS]]


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("part", slow_but([0], range(PARTS)))
def test_none_is_wrong_and_enough_pass(part: int, engine: str) -> None:
    found = measured(part, engine)
    bad = [f"{c.name}: {o.reason}" for c, o in found if o.kind in ("wrong", "fault")]
    assert not bad, "\n".join(bad)
    groups = nodes().GROUPS
    for group, least in zip(groups, (0.97, 0.9, 0.5), strict=False):
        count = Counter(o.kind for c, o in found if c.group == group)
        assert count["pass"] >= least * sum(count.values()), (group, count)


# Written as .mge and as ONNX again, three times

OTHERWISE = re.compile(
    r"bf16|bfloat16|bernoulli|training_dropout"  # rounding to bfloat16 has other names; random numbers
    r"|bitshift_left_u?int(8|16)|cumprod_2d_(axis_0|int32)|unique_length_1"
    r"|attention_\w*(gqa|mode3_softmax_precision|ext_cache_float16_mask)\w*"
    r"|dropout_default_mask|sequence_(insert_at_back|map_identity_1_sequence_1_tensor)"
    r"|nonmaxsuppression|gridsample_reflection_padding"
    r"|resize_downsample_(scales|sizes)_linear|slice_default_axes"
    r"|nonzero_example"  # the number of an operator is in the name of a value that has none
)
"""Tests whose model is settled at the second trip only, or not at all where data decide bounds."""


def trips(case: Any) -> list[bytes] | None:
    """The ONNX models of three round trips, None for what no .mge holds."""
    inputs, _ = case.sets[0]
    try:
        bundle, feeds = nodes()._written(case, inputs)
        file = io.BytesIO()
        loadrun.save(replace(bundle, record=None, testcases=[loadrun.Testcase(dict(feeds))]), file)
        written: list[bytes] = []
        for _ in range(3):
            if written:
                file = io.BytesIO()
                loadrun.save(loadrun.load(written[-1]), file)
            written.append(bare(loadrun.onnx.export(loadrun.load(file.getvalue())).data))
    except LoadRunError:
        return None
    return written


def bare(data: bytes) -> bytes:
    """A model without what its proof says of the testcases, which later trips do not have."""
    made = onnx.load_from_string(data)
    kept = [m for m in made.metadata_props if m.key != "loadrun:not_proven"]
    del made.metadata_props[:]
    made.metadata_props.extend(kept)
    return bytes(made.SerializeToString(deterministic=True))


@pytest.mark.parametrize("part", slow_but(["few"], ["few", *range(PARTS)]))
@pytest.mark.filterwarnings("ignore:testcases hold")
def test_later_trips_change_nothing(part: Any) -> None:
    cases = list(nodes().cases())
    made = {c.name: trips(c) for c in (cases[7::45] if part == "few" else cases[part::PARTS])}
    done = {n: t for n, t in made.items() if t is not None}
    assert len(done) > 0.85 * len(made)
    assert [n for n, t in done.items() if len({*t}) > 1 and not OTHERWISE.search(n)] == []


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
