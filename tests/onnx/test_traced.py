"""Definitions on traced arrays: what ONNX models become in .mge files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import LoadRunError
from loadrun.engines.reference import ReferenceEngine
from loadrun.onnx.traced.recording import recorded

onnx = pytest.importorskip("onnx", reason="ONNX's node tests come with the package onnx")

from tests.onnx.contrib_cases import CASES  # noqa: E402

PARTS = 4
KINDS = frozenset(
    [
        "bool",
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ]
)
WITHOUT_EXAMPLE = """
"""
"""Operators of which neither ONNX's node tests nor the cases of com.microsoft have one node alone."""


def examples() -> Iterator[tuple[str, bytes, dict[str, np.ndarray]]]:
    """Yield models of one node, at most two of each operator, with inputs."""
    from tests.onnx.contrib_models import proto  # needs onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    count: dict[str, int] = {}
    for case in cases:
        nodes = case.model.graph.node
        values = case.data_sets[0][0]
        key = f"{nodes[0].domain}.{nodes[0].op_type}".removeprefix(".")
        numbers = all(isinstance(v, np.ndarray) for v in values) and any(
            v.dtype.name in KINDS for v in values
        )
        if len(nodes) != 1 or count.get(key, 0) > 1 or not numbers:
            continue
        count[key] = count.get(key, 0) + 1
        fed = {i.name: v for i, v in zip(case.model.graph.input, values, strict=False)}
        yield case.name, case.model.SerializeToString(), fed
    for name, case in CASES.items():
        inputs = enumerate(case.inputs)
        yield name, proto(case), {f"i{i}": v for i, v in inputs if v is not None and i not in case.stored}


def places() -> Iterator[tuple[str, bytes, dict[str, np.ndarray], str]]:
    """Yield examples with each of their inputs that hold numbers."""
    for name, data, fed in examples():
        for place, value in fed.items():
            if value.dtype.name in KINDS:
                yield name, data, fed, place


@cache
def all_places() -> list[tuple[str, bytes, dict[str, np.ndarray], str]]:
    return [*places()]


def results(graph: Any, fed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    engine = ReferenceEngine(graph)
    return engine.run({n: fed[n] if fed[n].ndim or n not in engine.inputs else fed[n] for n in engine.inputs})


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_no_traced_input_becomes_a_constant(part: int) -> None:
    """One input is traced, all others are known; the graph must follow other numbers as the definition does."""
    wrong, followed = [], 0
    for name, data, fed, place in all_places()[part::PARTS]:
        others = {n: v for n, v in fed.items() if n != place}
        try:
            bundle = loadrun.load(data, constants=others, input_shapes={place: fed[place].shape})
            if bundle.lower is None:
                continue
            graph = recorded(bundle.graph, {place: fed[place].shape})
        except LoadRunError:
            continue
        turned = np.roll(fed[place].reshape(-1), 1).reshape(fed[place].shape)
        for value in (fed[place], turned):
            given = value if value.ndim else value.reshape(1)
            try:
                want = ReferenceEngine(bundle.graph).run({place: value})
            except LoadRunError:
                continue
            random = any(o.type.endswith(("RNGV1", "Random")) for o in (*graph.oprs, *bundle.graph.oprs))
            got = want if random else ReferenceEngine(graph).run({place: given})
            for a, b in zip(want, got, strict=True):
                quanta = 1 if a.dtype.kind in "iu" and a.dtype.itemsize == 1 else 0
                if a.size != b.size or not np.allclose(
                    a.reshape(-1).astype("f8"),
                    b.reshape(-1).astype("f8"),
                    2e-3,
                    1e-4 + quanta,
                    equal_nan=True,
                ):
                    wrong.append(f"{name}: {place}")
        followed += 1
    assert not wrong, "\n".join(dict.fromkeys(wrong))
    assert followed > 100
