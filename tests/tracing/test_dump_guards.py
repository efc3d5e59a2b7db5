"""Dumps hold nothing that MegEngine 1.13 computes otherwise; the oracle tests run the same programs in it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Opr, Var
from loadrun.graph.params import Elemwise, ElemwiseMode, PowC
from loadrun.tensors import elemwise
from loadrun.tracing import trace
from tests.support.guard_cases import INTEGERS, MODES, POWERS, ROWS, STEPS, SUMS, TENSORS, X, Y

M = ElemwiseMode


def dumped(f: Callable[..., Any], tensors: bool, **options: Any) -> loadrun.Bundle:
    t = trace(f, symbolic=True, capture_as_const=True)
    t(loadrun.tensor(X), loadrun.tensor(Y)) if tensors else t(X.copy(), Y.copy())
    file = io.BytesIO()
    t.dump(file, arg_names=["x", "y"], output_names=["out"], **options)
    return loadrun.loads(file.getvalue())


def value(bundle: loadrun.Bundle) -> Any:
    names = {v.name for v in bundle.graph.inputs}
    feeds = {n: v for n, v in (("x", X), ("y", Y)) if n in names}
    return loadrun.run(bundle, feeds)[0].outputs[0].value


def exponent(opr: Opr) -> float | None:
    """The exponent that MegEngine multiplies others with."""
    if opr.type == "PowC":
        return opr.get(PowC).exp
    if opr.type != "Elemwise" or opr.get(Elemwise).mode != M.POW:
        return None
    held = opr.inputs[1].owner
    return float(held.tensors[0].value()[0]) if held.type == "ImmutableTensor" else None


def joined(graph: Graph) -> list[str]:
    """The roots that MegEngine's rule joins with the product or power before them, and powers it cannot load."""
    found = []
    for opr in graph.oprs:
        power = exponent(opr)
        if opr.type == "PowC" and power in (0, 1):
            found.append(f"PowC {power}")
        base: Var = opr.inputs[0] if opr.inputs else graph.outputs[0]
        before = base.owner.type == "Elemwise" and base.owner.get(Elemwise).mode in (M.MUL, M.TRUE_DIV, M.POW)
        if power is not None and power != int(power) and (before or base.owner.type == "PowC"):
            found.append(f"{base.owner.title} ** {power}")
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", POWERS)
@pytest.mark.filterwarnings("ignore")
def test_roots_stay_apart_from_powers(name: str, mode: str) -> None:
    bundle = dumped(POWERS[name], False, **MODES[mode])
    assert joined(bundle.graph) == []
    np.testing.assert_allclose(value(bundle), POWERS[name](X, Y), rtol=2e-5)


def test_the_rule_sees_what_it_is_to_see() -> None:
    plain = Graph()
    held = loadrun.graph.StoredTensor(loadrun.graph.dtypes.DType("Float32"), (2,), "x")
    (x,) = plain.add("Host2DeviceCopy", loadrun.graph.params.Host2DeviceCopy(), names=["x"], tensors=[held])
    (square,) = plain.add("PowC", PowC(exp=2.0), inputs=[x])
    plain.outputs = plain.add("PowC", PowC(exp=0.5), inputs=[square])
    assert joined(plain) == ["PowC ** 0.5"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SUMS)
def test_large_numbers_take_no_digits_from_others(name: str, mode: str) -> None:
    bundle = dumped(SUMS[name], False, **MODES[mode])
    np.testing.assert_allclose(value(bundle), SUMS[name](X, Y), rtol=1e-6)
    # MegEngine reorders sums and products; it does not look through max(v, v).
    apart = [
        o.inputs
        for o in bundle.graph.oprs
        if o.type == "Elemwise" and o.get(Elemwise).mode == M.MAX and o.inputs[0] is o.inputs[1]
    ]
    assert apart


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ROWS)
def test_what_meets_a_row_is_made_dense(name: str, mode: str) -> None:
    bundle = dumped(ROWS[name], False, **MODES[mode])
    np.testing.assert_allclose(value(bundle), ROWS[name](X, Y), rtol=2e-6, atol=1e-6)
    assert any(o.type == "ReshapeV1" for o in bundle.graph.oprs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_give_what_they_give_eagerly(name: str, mode: str) -> None:
    bundle = dumped(TENSORS[name], True, **MODES[mode])
    want = TENSORS[name](loadrun.tensor(X), loadrun.tensor(Y)).numpy()
    np.testing.assert_allclose(value(bundle), want, rtol=2e-6)
    several = [o for o in bundle.graph.oprs if len(o.outputs) > 1]
    for opr in bundle.graph.oprs:
        if opr.type == "Elemwise" and any(v.owner in several for v in opr.inputs):
            held = [v.owner.tensors[0].value().tolist() for v in opr.inputs if v.owner.tensors]
            assert held not in ([[0]], [[1]])


@pytest.mark.parametrize("mode", MODES)
def test_bounds_in_the_wrong_order_are_kept(mode: str) -> None:
    def clipped(x: Any, y: Any) -> Any:
        return elemwise(M.CLIP, x, np.float32(0.5), np.float32(-0.5)) + 0 * y

    bundle = dumped(clipped, True, **MODES[mode])
    np.testing.assert_allclose(value(bundle), np.where(X <= 0.5, 0.5, np.minimum(X, -0.5)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STEPS)
def test_what_a_step_shows_is_divided_by_what_megengine_does_not_look_into(name: str, mode: str) -> None:
    bundle = dumped(STEPS[name], False, **MODES[mode])
    np.testing.assert_array_equal(value(bundle), STEPS[name](X.copy(), Y.copy()))
    quotients = [o for o in bundle.graph.oprs if o.title == "TRUE_DIV"]
    assert {o.inputs[1].owner.type for o in quotients} <= {"SharedDeviceTensor", "MultipleDeviceTensorHolder"}
    assert quotients


@pytest.mark.parametrize("name", INTEGERS)
def test_nothing_is_divided_by_an_integer_zero(name: str) -> None:
    """MegEngine's process ends there."""
    bundle = dumped(INTEGERS[name], False)
    graph = bundle.graph
    divisors = [
        o.inputs[1]
        for o in graph.oprs
        if o.type == "Elemwise" and o.get(Elemwise).mode in (M.FLOOR_DIV, M.MOD)
    ]
    graph.outputs = [*divisors, *graph.outputs]
    *found, got = ReferenceEngine(graph).run({"x": X, "y": Y})
    assert len(found) == 4
    assert all(v.all() for v in found)
    np.testing.assert_array_equal(got, INTEGERS[name](X, Y))
