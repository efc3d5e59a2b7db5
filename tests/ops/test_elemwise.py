"""Elemwise and PowC against Python's math, value by value, and the rules of promotion and broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import Array, DType, encode
from loadrun.graph.params import Elemwise, ElemwiseMode as M, Host2DeviceCopy, PowC
from loadrun.ops.elemwise.modes import promote
from loadrun.ops.elemwise.table import ARITY, BOOL, FLOAT, INTEGER
from loadrun.ops.numeric import special
from loadrun.ops.numeric.special import broadcast, in_chunks
from loadrun.ops.registry import Call
from loadrun.testing import operator_graph as graph_of, run_operator as run
from tests.support.cases import fewer

F32, F16, I8, U8, I16, I32, B = (
    DType(n) for n in ("Float32", "Float16", "Int8", "Uint8", "Int16", "Int32", "Bool")
)


Q = DType("QuantizedS8", 1.0)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def away(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


SCALAR: dict[M, Callable[..., float]] = {
    M.RELU: lambda x: max(x, 0),
    M.ABS: abs,
    M.ACOS: lambda x: math.acos(x / 4),
    M.ASIN: lambda x: math.asin(x / 4),
    M.CEIL: math.ceil,
    M.COS: math.cos,
    M.EXP: math.exp,
    M.EXPM1: math.expm1,
    M.FLOOR: math.floor,
    M.LOG: lambda x: math.log(x + 5),
    M.LOG1P: lambda x: math.log1p(x + 4.5),
    M.NEGATE: lambda x: -x,
    M.SIGMOID: sigmoid,
    M.SIN: math.sin,
    M.TANH: math.tanh,
    M.FAST_TANH: lambda x: x * (27 + x * x) / (27 + 9 * x * x),
    M.ROUND: away,
    M.ERF: math.erf,
    M.ERFC: math.erfc,
    M.H_SWISH: lambda x: x * min(max(x + 3, 0), 6) / 6,
    M.SILU: lambda x: x * sigmoid(x),
    M.GELU: lambda x: x * phi(x),
    M.SINH: math.sinh,
    M.COSH: math.cosh,
    M.ASINH: math.asinh,
    M.ACOSH: lambda x: math.acosh(x + 5.1),
    M.ATANH: lambda x: math.atanh(x / 4.1),
    M.TAN: math.tan,
    M.SOFTPLUS: softplus,
    M.RELU6: lambda x: min(max(x, 0), 6),
    M.HSIGMOID: lambda x: min(max(x + 3, 0), 6) / 6,
    M.LOGSIGMOID: lambda x: -softplus(-x),
    M.SQRT: lambda x: math.sqrt(x + 5),
    M.SQUARE: lambda x: x * x,
    M.SIGN: lambda x: (x > 0) - (x < 0),
    M.ABS_GRAD: lambda x, y: y if x > 0 else -y,
    M.ADD: lambda x, y: x + y,
    M.FLOOR_DIV: lambda x, y: math.floor(x / y),
    M.MAX: max,
    M.MIN: min,
    M.MOD: math.fmod,
    M.MUL: lambda x, y: x * y,
    M.POW: lambda x, y: (x + 4.5) ** y,
    M.SIGMOID_GRAD: lambda x, y: x * (1 - x) * y,
    M.SUB: lambda x, y: x - y,
    M.SWITCH_GT0: lambda x, y: y if x > 0 else 0,
    M.TANH_GRAD: lambda x, y: (1 - x * x) * y,
    M.TRUE_DIV: lambda x, y: x / y,
    M.LOG_SUM_EXP: lambda x, y: math.log(math.exp(x) + math.exp(y)),
    M.LT: lambda x, y: x < y,
    M.LEQ: lambda x, y: x <= y,
    M.EQ: lambda x, y: x == y,
    M.FUSE_ADD_RELU: lambda x, y: max(x + y, 0),
    M.FUSE_ADD_SIGMOID: lambda x, y: sigmoid(x + y),
    M.FUSE_ADD_TANH: lambda x, y: math.tanh(x + y),
    M.ATAN2: math.atan2,
    M.FUSE_ADD_H_SWISH: lambda x, y: (x + y) * min(max(x + y + 3, 0), 6) / 6,
    M.ASINH_GRAD: lambda x, y: y / math.sqrt(x * x + 1),
    M.ACOSH_GRAD: lambda x, y: y / math.sqrt((x + 5.1) ** 2 - 1),
    M.ATANH_GRAD: lambda x, y: y / (1 - (x / 4.1) ** 2),
    M.PRELU: lambda x, y: x if x > 0 else x * y,
    M.RELU6_GRAD: lambda x, y: y if 0 < x < 6 else 0,
    M.HSIGMOID_GRAD: lambda x, y: y / 6 if -3 < x < 3 else 0,
    M.COND_LEQ_MOV: lambda x, y, z: z if x <= y else 0,
    M.COND_LT_MOV: lambda x, y, z: z if x < y else 0,
    M.FUSE_MUL_ADD3: lambda x, y, z: x * y + z,
    M.FUSE_MUL_ADD4: lambda x, y, z, w: x * y + z * w,
    M.CLIP: lambda x, y, z: y if x <= y else min(x, z),
    M.PRELU_GRAD: lambda x, y, z: y if x >= 0 else y * z,
}
# What the kernel is given instead of x where the formula above needs its first argument in a range.
SHIFT: dict[M, Callable[[Array], Array]] = {
    M.ACOS: lambda x: x / 4,
    M.ASIN: lambda x: x / 4,
    M.LOG: lambda x: x + 5,
    M.LOG1P: lambda x: x + 4.5,
    M.ACOSH: lambda x: x + 5.1,
    M.ATANH: lambda x: x / 4.1,
    M.SQRT: lambda x: x + 5,
    M.POW: lambda x: x + 4.5,
    M.ACOSH_GRAD: lambda x: x + 5.1,
    M.ATANH_GRAD: lambda x: x / 4.1,
}
# Gradients, by the difference quotient of the function (first argument x, second the outer gradient).
SLOPES: dict[M, Callable[[float], float]] = {
    M.SILU_GRAD: SCALAR[M.SILU],
    M.GELU_GRAD: SCALAR[M.GELU],
    M.FAST_TANH_GRAD: SCALAR[M.FAST_TANH],
    M.H_SWISH_GRAD: SCALAR[M.H_SWISH],
}


def values(n: int, size: int, seed: int = 0) -> list[Array]:
    r = np.random.default_rng(seed)
    return [(r.integers(-250, 250, size) / 64).astype("f4") for _ in range(n)]


def test_every_mode_is_covered() -> None:
    unloadable = {M.NEQ, M.ISNAN, M.ISINF}
    assert set(FLOAT) | set(INTEGER) | set(BOOL) | unloadable == set(M)
    tested = set(SCALAR) | set(SLOPES) | {M.ERFINV, M.ERFCINV, M.SOFTPLUS_GRAD}
    assert tested == set(FLOAT)


@pytest.mark.parametrize("mode", SCALAR, ids=lambda m: m.name)
@pytest.mark.parametrize("size", [1, 7, 300, 70_000])
def test_formula(mode: M, size: int) -> None:
    xs = values(ARITY[mode], size)
    if mode in (M.FLOOR_DIV, M.MOD, M.TRUE_DIV):
        xs[1][np.abs(xs[1]) < 0.1] = 0.7
    raw = [x.astype("f8") for x in xs]
    if mode in SHIFT:
        xs[0] = SHIFT[mode](xs[0]).astype("f4")
    few = slice(0, size, max(1, size // 300))
    want = [float(SCALAR[mode](*v)) for v in zip(*(r[few].tolist() for r in raw), strict=True)]
    (got,) = run("Elemwise", Elemwise(mode=mode), *xs)
    np.testing.assert_allclose(got[few], want, rtol=4e-6, atol=2e-6)


@pytest.mark.parametrize("mode", SLOPES, ids=lambda m: m.name)
def test_gradient_is_the_slope(mode: M) -> None:
    x, g = values(2, 200, 3)
    if mode is M.H_SWISH_GRAD:
        x = x[np.abs(np.abs(x) - 3) > 0.01]
        g = g[: x.size]
    (got,) = run("Elemwise", Elemwise(mode=mode), x, g)
    f, h = SLOPES[mode], 1e-5
    want = [(f(v + h) - f(v - h)) / (2 * h) * u for v, u in zip(x.tolist(), g.tolist(), strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "inverse", "points"),
    [
        (M.ERFINV, math.erf, np.concatenate([np.linspace(-0.9999, 0.9999, 501), [1e-8, -3e-5]])),
        (M.ERFCINV, math.erfc, np.concatenate([np.linspace(0.001, 1.999, 501), [1e-30, 1e-10]])),
    ],
)
def test_inverse_error_functions(mode: M, inverse: Callable[[float], float], points: Array) -> None:
    x = points.astype("f4")
    (got,) = run("Elemwise", Elemwise(mode=mode), x)
    back = np.array([inverse(float(v)) for v in got])
    # The error of y is that of float32, seen through the slope of the function.
    slope = 2 / math.sqrt(math.pi) * np.exp(-(got.astype("f8") ** 2))
    assert (np.abs(back - x) <= 3e-7 * np.abs(got) * slope + 1e-7 * np.abs(x)).all()


def test_error_functions_at_the_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, 40.0, -40.0], "f4")
    expected = {
        M.ERF: [1, -1, np.nan, 0, 1, -1],
        M.ERFC: [0, 2, np.nan, 1, 0, 2],
        M.ERFINV: [np.nan, np.nan, np.nan, 0, np.nan, np.nan],
        M.ERFCINV: [np.nan, np.nan, np.nan, np.inf, np.nan, np.nan],
        # minus infinity times zero, as the formula has it
        M.GELU: [np.inf, np.nan, np.nan, 0, 40, 0],
    }
    for mode, want in expected.items():
        np.testing.assert_allclose(
            run("Elemwise", Elemwise(mode=mode), x)[0], want, atol=1e-7, err_msg=mode.name
        )
    # Exactly 1: infinity times what is left of the difference to 1 would be infinity.
    (got,) = run("Elemwise", Elemwise(mode=M.ERF), np.repeat(x[[0, 1, 4, 5]], 9))
    assert got.tolist() == np.repeat([1.0, -1.0, 1.0, -1.0], 9).tolist()


@pytest.mark.parametrize("quick", [True, False])
def test_error_function_by_tanh_and_by_quotient(monkeypatch: pytest.MonkeyPatch, quick: bool) -> None:
    monkeypatch.setattr(special, "_QUICK_TANH", quick)
    x = np.linspace(-7, 7, 3001, dtype="f4")
    want = np.array([math.erf(v) for v in x.tolist()])
    np.testing.assert_allclose(special.erf(x), want, rtol=4e-7, atol=0)
    # As ONNX Runtime's: gelu is 0 there, which its tests compare within 1e-7.
    assert (special.erf(x[np.abs(x) > 3.95]) == np.sign(x[np.abs(x) > 3.95])).all()
    half = np.array([math.erf(v / math.sqrt(2)) for v in x.tolist()]) / 2 + 0.5
    np.testing.assert_allclose(special.normal_cdf(x), half, rtol=0, atol=2e-7)
    np.testing.assert_allclose(special.gelu(x), x * half, rtol=0, atol=1e-6)


def test_softplus_gradient_is_its_slope() -> None:
    x, g = values(2, 100, 5)
    x = x[x != 0]
    g = g[: x.size]
    (got,) = run("Elemwise", Elemwise(mode=M.SOFTPLUS_GRAD), x, g)
    np.testing.assert_allclose(
        got, [sigmoid(v) * u for v, u in zip(x.tolist(), g.tolist(), strict=True)], rtol=1e-5
    )


def c_int(value: int, dtype: np.dtype[np.generic]) -> int:
    """Wrap a Python integer as a C type does."""
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


INT_SCALAR: dict[M, Callable[..., int]] = {
    M.RELU: lambda x: max(x, 0),
    M.ABS: abs,
    M.NEGATE: lambda x: -x,
    M.RELU6: lambda x: min(max(x, 0), 6),
    M.SQUARE: lambda x: x * x,
    M.SIGN: lambda x: (x > 0) - (x < 0),
    M.ADD: lambda x, y: x + y,
    M.SUB: lambda x, y: x - y,
    M.MAX: max,
    M.MIN: min,
    M.FLOOR_DIV: lambda x, y: x // y,
    M.MOD: lambda x, y: x % y,
    M.ABS_GRAD: lambda x, y: y if x > 0 else -y,
    M.SIGMOID_GRAD: lambda x, y: x * (1 - x) * y,
    M.TANH_GRAD: lambda x, y: (1 - x * x) * y,
    M.SWITCH_GT0: lambda x, y: y if x > 0 else 0,
    M.PRELU: lambda x, y: x if x > 0 else x * y,
    M.LT: lambda x, y: x < y,
    M.LEQ: lambda x, y: x <= y,
    M.EQ: lambda x, y: x == y,
    M.SHL: lambda x, y: x << y,
    M.SHR: lambda x, y: x >> y,
    M.COND_LEQ_MOV: lambda x, y, z: z if x <= y else 0,
    M.COND_LT_MOV: lambda x, y, z: z if x < y else 0,
    M.CLIP: lambda x, y, z: y if x <= y else min(x, z),
}


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4"])
@pytest.mark.parametrize("mode", INT_SCALAR, ids=lambda m: m.name)
def test_integers_wrap(mode: M, dtype: str) -> None:
    r = np.random.default_rng(1)
    info = np.iinfo(dtype)
    xs = [r.integers(info.min, int(info.max) + 1, 97).astype(dtype) for _ in range(ARITY[mode])]
    if mode in (M.SHL, M.SHR):
        xs[1] = r.integers(0, 8, 97).astype(dtype)
    if mode in (M.FLOOR_DIV, M.MOD):
        xs[1][xs[1] == 0] = 3
    want = [c_int(int(INT_SCALAR[mode](*map(int, v))), np.dtype(dtype)) for v in zip(*xs, strict=True)]
    assert run("Elemwise", Elemwise(mode=mode), *xs)[0].tolist() == want


@pytest.mark.parametrize("dtype", ["i1", "i2", "u1"])
def test_narrow_products_wrap(dtype: str) -> None:
    x = np.arange(-128 if dtype[0] == "i" else 0, 128).astype(dtype)
    y = np.full_like(x, 77)
    want = [c_int(int(a) * 77, x.dtype) for a in x]
    assert run("Elemwise", Elemwise(mode=M.MUL), x, y)[0].tolist() == want


def test_int32_products_in_the_memory_of_an_input() -> None:
    x = np.array([81, 2401, -6, 9] * 4, np.int32)
    INTEGER[M.MUL](x, x, np.array([7] * 16, np.int32))
    assert x.tolist() == [567, 16807, -42, 63] * 4


def test_int32_products_are_those_of_megengine() -> None:
    """Eight at a time in float32, as recorded from MegEngine; the rest of the array exactly."""
    x = np.array([-21335, -4401, 3, 65536, 0, 0, 0, 0, -21335], "i4")
    y = np.array([-18909, -7493, 5, 65536, 0, 0, 0, 0, -18909], "i4")
    got = run("Elemwise", Elemwise(mode=M.MUL), x, y)[0]
    assert got.tolist() == [403423520, 32976692, 15, -(2**31), 0, 0, 0, 0, 403423515]


def test_rmulh() -> None:
    x = np.array([2**30, -(2**31), 12345678, -7], "i4")
    y = np.array([2**30, -(2**31), 87654321, 2**30], "i4")
    assert run("Elemwise", Elemwise(mode=M.RMULH), x, y)[0].tolist() == [2**29, 2**31 - 1, 503916, -3]


def test_bool_modes() -> None:
    a, b = np.array([0, 0, 1, 1], "?"), np.array([0, 1, 0, 1], "?")
    expected = {
        M.AND: [0, 0, 0, 1],
        M.OR: [0, 1, 1, 1],
        M.XOR: [0, 1, 1, 0],
        M.LT: [0, 1, 0, 0],
        M.LEQ: [1, 1, 0, 1],
        M.EQ: [1, 0, 0, 1],
    }
    for mode, want in expected.items():
        assert run("Elemwise", Elemwise(mode=mode), a, b)[0].tolist() == [bool(v) for v in want]
    assert run("Elemwise", Elemwise(mode=M.NOT), b)[0].tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("types", "want"),
    [
        ((I32, F32), F32),
        ((I8, I32), I32),
        ((F16, F16), F16),
        ((F16, F32), F32),
        ((F16, I32), F32),
        ((B, I32), F32),
        ((U8, DType("Uint16")), DType("Uint16")),
        ((DType("QuantizedS8", 0.5), F32), DType("QuantizedS8", 0.5)),
    ],
)
def test_promotion(types: tuple[DType, DType], want: DType) -> None:
    assert promote(types) == want
    assert promote(types[::-1]) == want


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ((I8, U8), "signedness"),
        ((DType("QuantizedS8", 0.5), DType("QuantizedS8", 0.7)), "no common type"),
        ((DType("Byte"), I8), "do not take"),
    ],
)
def test_what_does_not_promote(types: tuple[DType, DType], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        promote(types)


def test_integers_become_float_for_float_modes() -> None:
    (got,) = run("Elemwise", Elemwise(mode=M.TRUE_DIV), np.array([7], "i4"), np.array([2], "i4"))
    assert got.dtype == np.float32
    assert got.tolist() == [3.5]


def test_quantized_values_are_computed_as_integers() -> None:
    q = DType("QuantizedS8", 0.25)
    x, y = np.array([100, -3], "i1"), np.array([100, 5], "i1")
    (got,) = run("Elemwise", Elemwise(mode=M.ADD), x, y, dtypes={0: q, 1: q})
    assert got.tolist() == [-56, 2]


@pytest.mark.parametrize(
    ("mode", "arrays", "dtypes", "text"),
    [
        (M.ADD, [np.zeros(2, "?"), np.zeros(2, "?")], {}, "does not take Bool"),
        (M.AND, [np.zeros(2, "f4"), np.zeros(2, "f4")], {}, "does not take Float32"),
        (M.MUL, [np.zeros(2, "i1"), np.zeros(2, "i1")], {0: Q, 1: Q}, "does not take QuantizedS8"),
        (M.ADD, [np.zeros(2, "f4")], {}, "takes 2 inputs, found 1"),
        (M.ADD, [np.zeros((2, 3), "f4"), np.zeros((2, 4), "f4")], {}, r"\[2, 3\], \[2, 4\] do not broadcast"),
        (M.NEQ, [np.zeros(2, "f4"), np.zeros(2, "f4")], {}, "NEQ does not take"),
    ],
)  # fmt: skip
def test_refused(mode: M, arrays: list[Array], dtypes: dict[int, DType], text: str) -> None:
    with pytest.raises(EngineError, match=text):
        run("Elemwise", Elemwise(mode=mode), *arrays, dtypes=dtypes)


def test_empty_axes_win() -> None:
    assert broadcast([(0, 3), (1, 3)]) == (0, 3)
    assert broadcast([(0, 3), (5, 1)]) == (0, 3)
    (got,) = run("Elemwise", Elemwise(mode=M.ADD), np.zeros((2, 0, 3), "f4"), np.zeros((1,), "f4"))
    assert got.shape == (2, 0, 3)


@settings(max_examples=fewer(60, 2), deadline=None)
@given(st.data())
def test_pieces_equal_the_whole(data: st.DataObject) -> None:
    """Splitting into pieces for cache and threads never changes a result, whatever the broadcast."""
    ndim = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 17, 40])) for _ in range(ndim))
    shapes = [
        tuple(data.draw(st.sampled_from([1, n])) for n in shape)[data.draw(st.integers(0, ndim - 1)) :]
        for _ in range(3)
    ]
    out_shape = broadcast(shapes)
    r = np.random.default_rng(0)
    xs = [r.standard_normal(s).astype("f4") for s in shapes]
    out = np.empty(out_shape, np.float32)
    in_chunks(FLOAT[M.FUSE_MUL_ADD3], out, xs, data.draw(st.booleans()))
    np.testing.assert_array_equal(out, xs[0] * xs[1] + xs[2])


@pytest.mark.parametrize("mode", sorted(FLOAT), ids=lambda m: m.name)
def test_writing_over_an_input(mode: M) -> None:
    """A kernel may be handed a dying input's memory; the result is the same."""
    base = [np.abs(x) / 5 + 0.05 for x in values(ARITY[mode], 300, 9)]
    want = np.empty(300, np.float32)
    with np.errstate(all="ignore"):
        FLOAT[mode](want, *(x.copy() for x in base))
        for i in range(len(base)):
            xs = [x.copy() for x in base]
            FLOAT[mode](xs[i], *xs)
            np.testing.assert_array_equal(xs[i], want, err_msg=f"input {i}")


def test_result_takes_the_memory_of_a_dying_input() -> None:
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", tensors=[StoredTensor(F32, (4,), "x")], names=["x"])
    (y,) = g.add("Elemwise", Elemwise(mode=M.RELU), inputs=[x])
    call = Call(y.owner, (F32,), (F32,))
    a = np.array([-1.0, 2.0, -3.0, 4.0], "f4")
    call.donated = [a]
    from loadrun.ops.elemwise.modes import elemwise

    out = elemwise(call, a)
    assert out is a
    assert a.tolist() == [0, 2, 0, 4]


@pytest.mark.parametrize("mode", [M.ADD, M.GELU, M.MAX])
def test_views_of_any_layout(mode: M) -> None:
    raw = np.frombuffer(b"\0" + np.arange(24, dtype="f4").tobytes(), np.uint8)[1:].view("f4")
    assert not raw.flags.aligned
    views = [
        raw.reshape(4, 6).T,
        np.broadcast_to(np.float32(2), (6, 4)),
        np.arange(48, dtype="f4").reshape(6, 8)[:, ::-2],
    ]
    args = views[:1] if ARITY[mode] == 1 else views[:2]
    plain = [np.ascontiguousarray(v) for v in args]
    np.testing.assert_array_equal(
        run("Elemwise", Elemwise(mode=mode), *args)[0], run("Elemwise", Elemwise(mode=mode), *plain)[0]
    )
    if ARITY[mode] == 2:
        got = run("Elemwise", Elemwise(mode=mode), views[2], views[0])[0]
        assert got.shape == (6, 4)


def test_float16_rounds_once_and_ties_away_from_zero() -> None:
    x, y = np.array([2048.0], "f2"), np.array([1.0], "f2")
    assert run("Elemwise", Elemwise(mode=M.ADD), x, y)[0].tolist() == [2050.0]
    # 0.1 * 0.1 + 1: the product of FUSE_MUL_ADD3 is rounded, too.
    a = np.array([0.333, 1.777, 100.06], "f2")
    got = run("Elemwise", Elemwise(mode=M.FUSE_MUL_ADD3), a, a, a)[0]
    product = (a.astype("f8") ** 2).astype("f4").astype("f2").astype("f8")
    np.testing.assert_array_equal(got, (product + a).astype("f2"))


# Powers of [-2.5, 2.5, 0, inf] as MegEngine 1.13 computes them on x86; inf by hand.
POWERS = {
    2.0: [6.25, 6.25, 0, math.inf],
    3.0: [-15.625, 15.625, 0, math.inf],
    5.0: [-97.65625, 97.65625, 0, math.inf],
    -1.0: [-0.4, 0.4, math.inf, 0],
    -3.0: [-0.064, 0.064, math.inf, 0],
    0.5: [math.nan, 1.5811388, 0, math.inf],
    # Other powers take the absolute value.
    1.5: [3.9528471, 3.9528471, 0, math.inf],
    1 / 3: [-1.3572088, 1.3572088, 0, math.inf],
    0.0: [1, 1, 1, 1],
    math.inf: [math.inf, math.inf, 0, math.inf],
}


@pytest.mark.parametrize("exponent", POWERS)
def test_constant_powers(exponent: float) -> None:
    x = np.array([-2.5, 2.5, 0.0, np.inf], "f4")
    np.testing.assert_allclose(run("PowC", PowC(exp=exponent), x)[0], POWERS[exponent], rtol=1e-6)


@pytest.mark.parametrize("exact", [False, True])
def test_powers_by_a_stored_number_are_constant_powers(exact: bool) -> None:
    """MegEngine makes them PowC when it compiles a graph; other frameworks have NaN."""
    x = np.array([-2.5, 2.5, 0.0, np.inf], "f4")
    for exponent in (0.5, 1.5, 1 / 3, 3.0):
        g = Graph(exact=exact)
        (base,) = g.add(
            "Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[StoredTensor(F32, (4,), "x")]
        )
        stored = StoredTensor(F32, (1,), None, encode(np.array([exponent], "f4"), F32))
        (power,) = g.add("ImmutableTensor", tensors=[stored])
        g.outputs = g.add("Elemwise", Elemwise(mode=M.POW), inputs=[base, power])
        want = np.array(POWERS[exponent])
        want[0] = math.nan if exact and exponent != 3 else want[0]
        np.testing.assert_allclose(ReferenceEngine(g).run({"x": x})[0], want, rtol=1e-6)


def test_powc_takes_floats() -> None:
    with pytest.raises(EngineError, match="PowC takes float inputs, found Int32"):
        run("PowC", PowC(exp=2.0), np.zeros(3, "i4"))


def nan_pattern(
    mode: M, first: tuple[int, ...], second: tuple[int, ...], which: int, dtype: str = "f4"
) -> str:
    """Describe which elements are NaN when one operand is: ``.16 N4`` for 16 numbers, then 4 NaN."""
    operands = [np.ones(first, dtype), np.ones(second, dtype)]
    operands[which][...] = np.nan
    (found,) = run("Elemwise", Elemwise(mode=mode), *operands)
    marks = "".join("N" if np.isnan(v) else "." for v in found.ravel())
    return " ".join(f"{k}{len(list(g))}" for k, g in groupby(marks))


# (first, second operand): what is NaN where the first is, and where the second is. Printed by MegEngine 1.13.0.
MAX_OF_NAN: list[tuple[tuple[int, ...], tuple[int, ...], str, str]] = [
    ((1,), (1,), "N1", ".1"),
    ((15,), (15,), "N15", ".15"),
    ((16,), (16,), ".16", "N16"),
    ((33,), (33,), ".32 N1", "N32 .1"),
    ((1003,), (1003,), ".992 N11", "N992 .11"),
    ((1, 40), (40,), ".32 N8", "N32 .8"),
    ((33,), (1,), ".32 N1", "N32 .1"),
    ((1,), (33,), "N32 .1", ".32 N1"),
    ((2, 3, 20), (2, 1, 1), ".48 N12 .48 N12", "N48 .12 N48 .12"),
    ((2, 20), (2, 1), ".16 N4 .16 N4", "N16 .4 N16 .4"),
    ((1, 2, 20), (1, 2, 1), ".16 N4 .16 N4", "N16 .4 N16 .4"),
    ((2, 1), (2, 20), "N16 .4 N16 .4", ".16 N4 .16 N4"),
    ((20, 3), (20, 1), "N60", ".60"),
    ((3, 20), (1, 20), ".60", "N60"),
    ((1, 20), (3, 20), ".60", "N60"),
    ((2, 3, 20), (2, 1, 20), ".120", "N120"),
    ((2, 3, 4, 20), (2, 1, 4, 1), ".480", "N480"),
    ((20, 1), (1, 20), ".400", "N400"),
]


@pytest.mark.parametrize(("first", "second", "one", "other"), MAX_OF_NAN)
def test_max_of_nan(first: tuple[int, ...], second: tuple[int, ...], one: str, other: str) -> None:
    assert nan_pattern(M.MAX, first, second, 0) == one
    assert nan_pattern(M.MAX, first, second, 1) == other


@pytest.mark.parametrize("n", [1, 15, 16, 33])
def test_min_of_nan_gives_the_second(n: int) -> None:
    assert nan_pattern(M.MIN, (n,), (n,), 0) == f".{n}"
    assert nan_pattern(M.MIN, (n,), (n,), 1) == f"N{n}"
    # A single number counts as the second, on whichever side it stands.
    assert nan_pattern(M.MIN, (n + 1,), (1,), 0) == nan_pattern(M.MIN, (1,), (n + 1,), 1) == f".{n + 1}"


@pytest.mark.parametrize("mode", [M.MAX, M.MIN])
@pytest.mark.parametrize("n", [3, 33])
def test_float16_gives_the_second(mode: M, n: int) -> None:
    assert nan_pattern(mode, (n,), (n,), 0, "f2") == f".{n}"
    assert nan_pattern(mode, (1,), (n,), 1, "f2") == f"N{n}"


@pytest.mark.parametrize("mode", [M.RELU, M.RELU6, M.EXP, M.SIGMOID, M.FUSE_ADD_RELU])
def test_float16_keeps_nan(mode: M) -> None:
    """In real MegEngine 1.13, too; its vectors of float32 give numbers in its place."""
    x = np.full(33, np.nan, "f2")
    assert np.isnan(run("Elemwise", Elemwise(mode=mode), *[x] * ARITY[mode])[0]).all()


def test_floor_of_a_quotient_keeps_the_sign_of_zero() -> None:
    """As real MegEngine 1.13: quotients below the least normal number are zeros of their sign."""
    x, y = np.array([0.0, 1e-38, -1e-38, -0.0], "f4"), np.array([-np.inf, 1e30, 1e30, -2.0], "f4")
    got = run("Elemwise", Elemwise(mode=M.FLOOR_DIV), x, y)[0]
    assert (got == 0).all()
    assert np.signbit(got).tolist() == [True, False, True, False]


def test_max_takes_its_inputs_in_the_order_of_the_file() -> None:
    nan = np.array([np.nan, 1.0], "f4")
    one = np.array([2.0, np.nan], "f4")
    g = graph_of("Elemwise", Elemwise(mode=M.MAX), [nan, one])
    g.oprs[-1].inputs.reverse()
    got = ReferenceEngine(g).run({"i0": nan, "i1": one})[0]
    np.testing.assert_array_equal(got, np.array([np.nan, 1], "f4"))


def test_vector_exponential() -> None:
    """MegEngine's vector code keeps exp below 2.4e38, NaN included, except in the last elements of an array."""
    x = np.full(18, 1000.0, "f4")
    x[3] = np.nan
    got = run("Elemwise", Elemwise(mode=M.EXP), x)[0]
    assert got[:16].tolist() == [np.float32(2.4061436e38)] * 16
    assert got[16:].tolist() == [math.inf, math.inf]
    assert run("Elemwise", Elemwise(mode=M.SIGMOID), x)[0][3] == 0


SUM_RELU = np.array([0, 1, -1, 2.5, np.inf, -np.inf, np.nan], "f4")
# MegEngine 1.13.0: FUSE_ADD_RELU(x, y), a row for each of these values of x and a column for each of y.
X_PER_CHANNEL = """
0   1   0   2.5 inf 0   0
1   2   0   3.5 inf 0   0
0   0   0   1.5 inf 0   0
2.5 3.5 1.5 5   inf 0   0
inf inf inf inf inf nan nan
nan nan nan nan nan nan nan
nan nan nan nan nan nan nan"""
X_PER_COLUMN = """
0   1   0   2.5 inf nan nan
1   2   0   3.5 inf nan nan
0   0   0   1.5 inf nan nan
2.5 3.5 1.5 5   inf nan nan
inf inf inf inf inf nan nan
0   0   0   0   nan nan nan
0   0   0   0   nan nan nan"""


@pytest.mark.parametrize("long", [8, 1 << 13])
def test_sum_with_relu_of_values_that_are_not_finite(long: int) -> None:
    """One number per channel, on whichever side, is what shows infinities and NaN; else it is the second operand."""
    n, mode = len(SUM_RELU), Elemwise(mode=M.FUSE_ADD_RELU)
    values = {text: np.array(text.split(), "f4").reshape(n, n) for text in (X_PER_CHANNEL, X_PER_COLUMN)}
    full = np.repeat(SUM_RELU, long)
    channel = np.repeat(values[X_PER_CHANNEL], long, 1).reshape(1, n, 1, -1)
    for x, y in ((0, 1), (1, 0)):
        given = [SUM_RELU.reshape(1, n, 1, 1), np.tile(full, (n, 1)).reshape(channel.shape)]
        (found,) = run("Elemwise", mode, given[x], given[y])
        np.testing.assert_array_equal(found, channel)
    rows = np.repeat(SUM_RELU, long)[:, None].repeat(n, 1)
    column = np.repeat(values[X_PER_COLUMN].T, long, 0)
    (found,) = run("Elemwise", mode, SUM_RELU, rows)
    np.testing.assert_array_equal(found, column)


@pytest.mark.parametrize("mode", sorted(FLOAT, key=int))
def test_the_order_in_memory_changes_nothing(mode: M) -> None:
    """Images whose channels lie innermost, with numbers that MegEngine's vectors treat in their own way."""
    rng = np.random.default_rng(int(mode))
    count = ARITY[mode]
    lying = [rng.normal(size=(1, 7, 5, 9)).astype("f4") * 5 for _ in range(count)]
    for value in (np.nan, np.inf, -np.inf, 100.0):
        for x in lying:
            x.reshape(-1)[rng.integers(x.size, size=9)] = value
    turned = [x.transpose(0, 3, 1, 2) for x in lying]
    plain = [np.ascontiguousarray(x) for x in turned]
    (want,), (found,) = (run("Elemwise", Elemwise(mode=mode), *xs) for xs in (plain, turned))
    np.testing.assert_allclose(found, want, rtol=1e-6)
