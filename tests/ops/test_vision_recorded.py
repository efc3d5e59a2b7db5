"""Image operators against numbers recorded from real MegEngine (fixtures/make/recorded_vision.py)."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array
from loadrun.ops.infer import infer_dtypes, infer_shapes
from tests.support.cases import check_all, in_groups
from tests.support.fixture_files import FIXTURES
from tests.support.vision_cases import FAMILIES, Case

RECORDED = {family: dict(np.load(FIXTURES / "ops" / family / "recorded.npz")) for family in FAMILIES}
CASES = [(f, c) for f, cases in FAMILIES.items() for c in cases() if c.name in RECORDED[f]]


def run(case: Case) -> Array:
    return ReferenceEngine(case.graph()).run({})[0]


@pytest.mark.parametrize("some", in_groups(CASES, lambda one: one[0], 200))
def test_equals_megengine(some: list[tuple[str, Case]]) -> None:
    check_all(some, equals_megengine, lambda one: one[1].name)


def equals_megengine(one: tuple[str, Case]) -> None:
    family, case = one
    want = RECORDED[family][case.name]
    got = run(case)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype == np.float32:
        np.testing.assert_allclose(got, want, 5e-6, 5e-6)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("family", FAMILIES)
def test_shape_rules_agree(family: str) -> None:
    for case in FAMILIES[family]():
        want = RECORDED[family].get(case.name)
        if want is None:
            continue
        graph = case.graph()
        infer_dtypes(graph.oprs)
        assert infer_shapes(graph).shapes[graph.outputs[0].id] == want.shape, case.name


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_is_recorded_or_refused(family: str) -> None:
    names = [case.name for case in FAMILIES[family]()]
    assert len(set(names)) == len(names)
    assert set(RECORDED[family]) == {n if n in RECORDED[family] else f"refused/{n}" for n in names}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_megengine_refuses_is_computed_or_refused_in_words(family: str) -> None:
    refused = [case for case in FAMILIES[family]() if case.name not in RECORDED[family]]
    check_all(refused, refused_in_words, lambda case: case.name)


def refused_in_words(case: Case) -> None:
    graph = case.graph()
    try:
        infer_dtypes(graph.oprs)
        shape = infer_shapes(graph).shapes[graph.outputs[0].id]
        got = run(case)
    except EngineError as e:
        words = str(e)
    else:
        words = case.type
        assert got.shape == shape
        assert got.dtype.kind != "f" or np.isfinite(got).all()
    assert case.type in words
