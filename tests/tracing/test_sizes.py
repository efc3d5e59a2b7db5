"""Arithmetic on sizes follows them in a dump: traced at one shape, run at others, against numpy at those."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.base.errors import LoadRunError
from loadrun.tensors import Tensor, TracedBool, TracedFloat, TracedInt, tensor
from loadrun.tracing import trace

BOTH = (
    lambda x: x * (x.shape[1] / 4) + 1.0 / x.shape[0],
    lambda x: x * x.shape[1] ** -0.5 - x.shape[1] / 2,
    lambda x: x * (0.5 * x.shape[1]) + 2.0 ** x.shape[0] - 7.5 // x.shape[0] + 9.5 % x.shape[0],
    lambda x: x * abs(x.shape[0] - x.shape[1]) + abs(x.shape[0] - x.shape[1] / 2),
    lambda x: x * (x.shape[1] > 5) + (x.shape[1] != 4) - (x.shape[0] <= 3.5) + (x.shape[0] == 2),
    lambda x: x + (x.shape[1] << 1) + (1 << x.shape[0]) + (x.shape[1] >> 1) + ~x.shape[1],
    lambda x: x + (-x.shape[1]) % 8 + (-x.shape[1] * 1.5) % 4 + x.shape[1] % -3,
    lambda x: x + divmod(x.shape[1], 3)[1] + divmod(x.shape[1], 2.5)[0] + 7 % x.shape[1],
    lambda x: x[:, : math.ceil(x.shape[1] / 2)] + math.floor(x.shape[1] * 0.3) + math.trunc(-x.shape[1] / 2),
    lambda x: x + round(x.shape[1] / 2) + round(x.shape[1] / 3, 2) + round(x.shape[1]),
    lambda x: x + x.shape[1] ** 2 + 2 ** x.shape[1] + x.shape[1] ** x.shape[0] + x.shape[1] ** 1.5,
    lambda x: x / math.prod(x.shape) + sum(x.shape) / 8,
    lambda x: x + 1 * ((x.shape[1] > 5) & (x.shape[0] < 4)) + 2 * ((x.shape[1] > 5) ^ (x.shape[0] < 4)),
)
NUMPY = (
    lambda x: x / np.sqrt(x.shape[-1]) + np.log(x.shape[1]) + np.floor(x.shape[1] / 2),
    lambda x: x * np.float32(2) / x.shape[1] + np.float64(3) * x.shape[1] - np.int32(3) // x.shape[0],
    lambda x: x + np.maximum(x.shape[1], 5) + np.minimum(x.shape[1], 5.5) + np.abs(x.shape[0] - 3),
    lambda x: np.full((2,), x.shape[1] / 3, like=x) + np.array([x.shape[1] / 3, x.shape[0] ** 0.5], like=x),
    lambda x: np.where(x > x.shape[1] / 8, x, x.shape[0] / 3) + np.arange(x.shape[1] / 1, like=x) * 0.5,
    lambda x: (x > 0) * (x.shape[1] > 4),
    lambda x: x / np.prod(x.shape) + np.sum(x.shape) + np.prod(x.shape[1:]) / np.mean(x.shape),
    lambda x: x + np.max(x.shape) - np.min(x.shape, axis=0) / np.amax(x.shape[:1]),
)
MEGENGINE = (
    (lambda x: x / F.sqrt(x.shape[1] / 2.0), lambda x: x / np.sqrt(x.shape[1] / 2)),
    (lambda x: F.full(x.shape, x.shape[1] / 3), lambda x: np.full(x.shape, x.shape[1] / 3)),
    (lambda x: x + F.arange(x.shape[1] / 1), lambda x: x + np.arange(x.shape[1])),
    (lambda x: x * (x.shape[1] >= 6), lambda x: x * (x.shape[1] >= 6)),
)
CASES = [
    *((f, f, False) for f in (*BOTH, *NUMPY)),
    *((f, f, True) for f in BOTH),
    *((*pair, True) for pair in MEGENGINE),
]


def array(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(("f", "expected", "tensors"), CASES)
def test_a_dump_follows_arithmetic_on_sizes(
    f: Callable[..., Any], expected: Callable[..., Any], tensors: bool, optimize: bool
) -> None:
    t = trace(f, symbolic=True, capture_as_const=True)
    t(loadrun.tensor(array(2, 4)) if tensors else array(2, 4))
    file = io.BytesIO()
    t.dump(file, arg_names=["x"], output_names=["y"], optimize_for_inference=optimize)
    model = loadrun.loads(file.getvalue())
    for x in (array(2, 4), array(2, 9), array(5, 6)):
        got = loadrun.run(model, {"x": x})[0].outputs[0].value
        want = expected(x)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_followed_numbers_behave_as_python_s_own() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        n = x.shape[0]
        half, more = n / 2, n > 2
        seen.append((type(n), type(half), type(more)))
        assert isinstance(n, int)
        assert isinstance(half, float)
        assert isinstance(more, bool)
        assert (n, half, more) == (3, 1.5, True)
        assert (repr(n), f"{half:.2f}", str(more), f"{n:03d}") == ("3", "1.50", "True", "003")
        assert {3: "three"}[n] == "three"
        assert [*range(n)] == [0, 1, 2]
        assert [1, 2, 3, 4][n] == 4
        assert n != "3"
        assert n is not None
        assert pickle.loads(pickle.dumps((n, half, more))) == (3, 1.5, True)
        assert json.dumps({"n": int(n), "half": float(half)}) == '{"n": 3, "half": 1.5}'
        assert np.asarray([n, n]).dtype == np.int64
        assert np.asarray(half).dtype == np.float64
        assert (n.bit_length(), half.is_integer(), complex(half)) == (2, False, 1.5 + 0j)
        assert (max(n, 2), sorted([n, 1]), math.sqrt(n + 1)) == (3, [1, 3], 2.0)
        assert np.ones(2).reshape(n - 1).shape == (2,)
        with pytest.raises(ZeroDivisionError):
            n / (n - 3)
        with pytest.raises(TypeError):
            n + "1"
        return x * n

    trace(f, symbolic=True)(np.ones(3, np.float32))
    assert seen == [(TracedInt, TracedFloat, TracedBool)]


def test_other_functions_of_shapes_see_numbers() -> None:
    def f(x: Any) -> Any:
        assert np.cumsum(x.shape).tolist() == [2, 6]
        assert np.prod(x.shape[:0]) == 1.0
        assert np.sum(x.shape, dtype=np.float64).dtype == np.float64
        assert np.ndim(x.shape) == 1
        # MegEngine has no bits of sizes, either: "Elemwise.Mode.AND requires 2 bool tensors".
        for bits in (lambda n: n & 6, lambda n: n | 1, lambda n: 3 ^ n):
            with pytest.raises(TypeError, match="unsupported operand"):
                bits(x.shape[1])
        return x * 2

    trace(f, symbolic=True)(array(2, 4))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("x.shape * 2", [8, 12]),
        ("2 * x.shape", [8, 12]),
        ("x.shape + (1,)", [5, 7]),
        ("(1,) + x.shape", [5, 7]),
        ("x.shape + np.array([1, 2], 'int32')", [5, 8]),
        ("x.shape // 2", [2, 3]),
        ("-x.shape", [-4, -6]),
        ("x.shape % 4", [0, 2]),
        ("x.shape > 4", [False, True]),
        ("x.shape / 2", [2, 3]),
        ("x.shape.prod()", 24),
        ("x.shape.astype('float32')", [4, 6]),
        ("x.shape.reshape(1, 2)", [[4, 6]]),
        ("F.zeros(x.shape * 2).shape", [8, 12]),
        ("x.shape[:1] + x.shape[1:]", [10]),
        ("x.shape == x.shape", [True, True]),
        ("x.shape == [4, 5]", [True, False]),
        ("x.shape != x.shape[1:]", [True, False]),
        ("x.shape == 4", [True, False]),
        ("abs(-x.shape)", [4, 6]),
        ("x.shape[[1, 0]]", [6, 4]),
        ("x.shape[np.array([1, 0])]", [6, 4]),
        ("x.shape[None]", [[4, 6]]),
        ("x.shape[...]", [4, 6]),
        ("np.maximum(x.shape, 5)", [5, 6]),
        ("F.where(x.shape == 4, x.shape, x.shape * 0)", [4, 0]),
        ("F.cond_take(x.shape > 4, x.shape)[0]", [6]),
        ("F.stack([x.shape[0], x.shape[1]])", [[4], [6]]),
        ("F.stack([x.shape, x.shape])", [[4, 6], [4, 6]]),
        ("F.concat([x.shape, x.shape[:1]])", [4, 6, 4]),
    ],
)
def test_sizes_compute_as_tensors(form: str, expected: object) -> None:
    """What MegEngine 1.13.0 gives for each, in a trace."""
    names = {"F": F, "np": np}
    traced = trace(lambda x: eval(form, {**names, "x": x}), symbolic=True)
    for _ in range(2):
        assert traced(tensor(np.zeros((4, 6), "f4"))).numpy().tolist() == expected


def test_sizes_are_tuples_where_python_wants_one() -> None:
    def f(x: Tensor) -> Tensor:
        rows, columns = x.shape
        assert isinstance(x.shape, tuple)
        assert x.shape == (4, 6)
        assert x.shape != (4, 5)
        assert x.shape != (4, 6, 1)
        assert x.shape not in [(), (4,), [4, 6, 1], None, "4"]
        assert x.shape in [(4, 6)]
        assert np.concatenate([x.shape, x.shape]).tolist() == [4, 6, 4, 6]
        assert len(x.shape) == 2
        assert x.shape.index(6) == 1
        assert hash(x.shape) == hash((4, 6))
        return x * rows + columns

    assert trace(f, symbolic=True)(tensor(np.zeros((4, 6), "f4"))).numpy().max() == 6


def test_a_running_product_holds_for_its_own_length() -> None:
    """It takes as many steps as the length has bits: of a longer axis it would leave factors out."""
    traced = loadrun.trace(lambda x: np.cumprod(x), symbolic=True, symbolic_shape=True, capture_as_const=True)
    traced(np.full(4, 1.5, "f4"))
    file = io.BytesIO()
    traced.dump(file)
    runner = loadrun.Runner(loadrun.loads(file.getvalue()))
    np.testing.assert_allclose(
        runner.run({"arg_0": np.full(4, 1.5, "f4")}).outputs[0].value, 1.5 ** np.arange(1, 5)
    )
    with pytest.raises(LoadRunError, match="traced for 4 entries along axis 0"):
        runner.run({"arg_0": np.full(9, 1.5, "f4")})


def test_thousands_of_steps_of_arithmetic_on_a_size() -> None:
    """Deeper than Python's stack, and with every size read twice, so that a walk of all paths would not end."""

    def stepped(x: Tensor) -> Tensor:
        size = x.shape[0]
        for _ in range(700):
            size = (size + size) // 2
        return x.reshape(size, -1) * size

    traced = trace(stepped, symbolic=True, capture_as_const=True)
    traced(tensor(np.ones((2, 3), "f4")))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"], output_names=["y"], optimize_for_inference=False)
    (result,) = loadrun.run(loadrun.loads(file.getvalue()), {"x": np.ones((5, 2), "f4")})
    np.testing.assert_array_equal(result["y"], np.full((5, 2), 5.0, "f4"))


def test_sizes_beyond_what_graphs_hold_are_refused() -> None:
    with pytest.raises(LoadRunError, match="4294967296: too large for Int32"):
        trace(symbolic=True)(lambda x: x.reshape(x.shape[0] * 2**32 // 2**32, -1))(tensor(np.ones((2, 3))))
