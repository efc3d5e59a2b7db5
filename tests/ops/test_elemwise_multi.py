"""ElemwiseMultiType, AffineInt, FakeQuant, TQT and LSQ against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import (
    LSQ,
    TQT,
    ElemwiseMode,
    ElemwiseMultiType,
    ElemwiseMultiTypeMode as M,
    Empty,
    FakeQuant,
    Record,
)
from loadrun.ops.elemwise.table import ARITY
from loadrun.ops.infer import infer_dtypes, infer_shapes
from loadrun.testing import operator_graph as graph_of, run_operator as run

S8, U8, S32 = DType("QuantizedS8", 0.25), DType("Quantized8Asymm", 0.125, 100), DType("QuantizedS32", 0.0625)
BOOL = DType("Bool")


def multi(mode: M, *xs: Array, dtypes: dict[int, DType] | None = None, out: DType | None = None) -> Array:
    """Return the operator's output, whose dtype and shape the rules must predict."""
    g = graph_of("ElemwiseMultiType", ElemwiseMultiType(mode=mode), xs, dtypes=dtypes, output_dtype=out)
    infer_dtypes(g.oprs)
    shape = infer_shapes(g).shapes[g.outputs[0].id]
    (got,) = ReferenceEngine(g).run({f"i{i}": x for i, x in enumerate(xs)})
    assert got.shape == shape
    assert g.outputs[0].dtype is not None
    assert got.dtype == g.outputs[0].dtype.np
    return got


EXACT = {
    M.QADD: lambda x, y: x + y,
    M.QSUB: lambda x, y: x - y,
    M.QMUL: lambda x, y: x * y,
    M.QMIN: min,
    M.QMAX: max,
    M.QRELU: lambda x: max(x, 0),
    M.QABS: abs,
    M.QNEGATE: lambda x: -x,
    M.QFUSE_ADD_RELU: lambda x, y: max(x + y, 0),
    M.QFUSE_MUL_ADD3: lambda x, y, z: x * y + z,
    M.QCEIL: math.ceil,
    M.QFLOOR: math.floor,
    M.QROUND: lambda x: round_away(Fraction(x)),
    M.QSWITCH_GT0: lambda x, y: y if x > 0 else 0,
    M.QABS_GRAD: lambda x, y: y if x > 0 else -y,
    M.QLT: lambda x, y: x < y,
    M.QLEQ: lambda x, y: x <= y,
    M.QEQ: lambda x, y: x == y,
    M.QCOND_LEQ_MOV: lambda x, y, z: z if x <= y else 0,
    M.QCOND_LT_MOV: lambda x, y, z: z if x < y else 0,
    M.QTANH_GRAD: lambda x, y: (1 - x * x) * y,
    M.QSIGMOID_GRAD: lambda x, y: x * (1 - x) * y,
}


def round_away(x: Fraction) -> int:
    n = math.floor(abs(x) + Fraction(1, 2))
    return n if x >= 0 else -n


@pytest.mark.parametrize("source", [S8, U8, S32], ids=str)
@pytest.mark.parametrize("target", [S8, U8, S32], ids=str)
@pytest.mark.parametrize("mode", EXACT, ids=lambda m: m.name)
def test_quantized_modes(mode: M, source: DType, target: DType) -> None:
    """Scales are powers of two, so every step is exact in float32 and ties round away from zero."""
    r = np.random.default_rng(0)
    n = ARITY[ElemwiseMode[mode.name[1:]]]
    low, high = max(source.range[0], -200), min(source.range[1], 200)
    xs = [r.integers(low, high + 1, (4, 33)).astype(source.np) for _ in range(n)]
    got = multi(mode, *xs, dtypes=dict.fromkeys(range(n), source), out=target)
    want = []
    for stored in zip(*(x.reshape(-1).tolist() for x in xs), strict=True):
        real = [(Fraction(v) - source.zero_point) * Fraction(source.scale) for v in stored]
        q = round_away(Fraction(EXACT[mode](*real)) / Fraction(target.scale)) + target.zero_point
        want.append(min(max(q, target.range[0]), target.range[1]))
    assert got.reshape(-1).tolist() == want


def test_quantized_broadcast_and_pieces() -> None:
    r = np.random.default_rng(1)
    x = r.integers(-128, 128, (2, 3, 80, 90)).astype("i1")
    y = r.integers(-128, 128, (1, 3, 1, 1)).astype("i1")
    got = multi(M.QADD, x, y, dtypes={0: S8, 1: S8}, out=S8)
    np.testing.assert_array_equal(got, np.clip(x.astype("i4") + y, -128, 127))


def test_comparisons() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf, -0.0], "f4")
    y = np.array([1, np.nan, 1, 1, 0], "f4")
    expected = {
        M.EQ: [1, 0, 0, 0, 1],
        M.NEQ: [0, 1, 1, 1, 0],
        M.LT: [0, 0, 0, 1, 0],
        M.LEQ: [1, 0, 0, 1, 1],
    }
    for mode, want in expected.items():
        assert multi(mode, x, y, out=BOOL).tolist() == [bool(v) for v in want]
    assert multi(M.ISNAN, x, out=BOOL).tolist() == [False, True, False, False, False]
    assert multi(M.ISINF, x, out=BOOL).tolist() == [False, False, True, True, False]
    assert multi(M.EQ, np.array([2], "i4"), np.array([2.5, 2], "f4"), out=BOOL).tolist() == [False, True]
    assert multi(M.LT, np.array([0, 1], "?"), np.array([1], "?"), out=BOOL).tolist() == [True, False]


def test_products_of_mixed_types() -> None:
    x = np.array([[-300, 7], [32767, -32768]], "i2")
    k, b = np.array([[3, -70000]], "i4"), np.array([[5, 1]], "i4")
    got = multi(M.FUSE_MUL_ADD3_INT16x32x32x32, x, k, b)
    # -32768 * -70000 + 1 passes 2^31 and wraps.
    assert got.tolist() == [[-895, -489999], [98306, 32768 * 70000 + 1 - 2**32]]
    kf, bf = np.array([0.5, 2], "f4"), np.array([1, -1], "f4")
    assert multi(M.FUSE_MUL_ADD3_INT16xF32xF32xF32, x, kf, bf).tolist() == [[-149, 13], [16384.5, -65537]]
    assert multi(M.MUL_INT16xF32xF32, x, kf).tolist() == [[-150, 14], [16383.5, -65536]]
    u = np.array([0, 255], "u1")
    assert multi(M.FUSE_MUL_ADD3_UINT8xF32xF32xF32, u, kf, bf).tolist() == [1, 509]


def test_affine_rounds_to_even() -> None:
    x = np.array([1, 3, -1, 1000, -1000], "i4")
    half, zero = np.array([0.5], "f4"), np.array([0], "f4")
    want = [0, 2, 0, 127, -128]
    assert multi(M.FUSE_MUL_ADD3_IXxF32xF32xI8, x, half, zero).tolist() == want
    assert run("AffineInt", Empty(), x, half, zero)[0].tolist() == want


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4"])
def test_round_shift(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(info.min, int(info.max) + 1, 200).astype(dtype)
    x[:4] = [6, -6, 2, -2]
    for shift in range(1, 7):
        k = np.array([shift], "i1")
        want = [round_away(Fraction(int(v), 2**shift)) for v in x]
        assert multi(M.ROUND_SHR_SATURATE_IXxI8xI8, x, k).tolist() == [min(max(v, -128), 127) for v in want]
        if dtype != "i1":
            got = multi(M.ROUND_SHR_SATURATE_IXxI8xI16, x, np.full(200, shift, "i1"))
            assert got.tolist() == [min(max(v, -32768), 32767) for v in want]


def test_fused_fixed_point() -> None:
    mode = M.FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8
    x, b = np.array([1000, -70000, 2**29], "i4"), np.array([24], "i4")
    multiplier = np.array([2**30], "i4")
    args = [x, b, multiplier, *(np.array([v], "i1") for v in (3, -100, 120))]
    # (x + b) * 2^30 / 2^31, rounded up on ties; then / 8 away from zero; then clamped.
    assert multi(mode, *args).tolist() == [64, -100, 120]


@pytest.mark.parametrize(
    ("mode", "arrays", "dtypes", "out", "text"),
    [
        (M.QADD, [np.zeros(2, "i1")] * 2, {0: S8, 1: S8}, None, "needs a configured output dtype"),
        (M.QADD, [np.zeros(2, "i1")] * 2, {}, S8, "takes and gives quantized types"),
        (M.QADD, [np.zeros(2, "i1"), np.zeros(2, "u1")], {0: S8, 1: U8}, S8, "one quantized type"),
        (M.QADD, [np.zeros(2, "i1")], {0: S8}, S8, "takes 2 inputs, found 1"),
        (M.EQ, [np.zeros(2, "f4")] * 2, {}, DType("Int8"), "gives Bool, not Int8"),
        (M.EQ, [np.zeros(2, "i1"), np.zeros(2, "u1")], {}, BOOL, "signedness"),
        (M.ISNAN, [np.zeros(2, "i4")], {}, BOOL, "takes a float input"),
        (M.MUL_INT16xF32xF32, [np.zeros(2, "i4"), np.zeros(2, "f4")], {}, None, "takes Int16, Float32"),
        (M.QADD, [np.zeros(2, "i1"), np.zeros(3, "i1")], {0: S8, 1: S8}, S8, "do not broadcast"),
    ],
)
def test_refused(
    mode: M, arrays: list[Array], dtypes: dict[int, DType], out: DType | None, text: str
) -> None:
    with pytest.raises(EngineError, match=text):
        multi(mode, *arrays, dtypes=dtypes, out=out)


FAKE = [
    ("FakeQuant", FakeQuant(qmin=-4, qmax=3), 3),
    ("LSQ", LSQ(qmin=-4, qmax=3), 4),
    ("TQT", TQT(qmin=-4, qmax=3), 2),
]


@pytest.mark.parametrize(("name", "params", "count"), FAKE)
@pytest.mark.parametrize("shape", [(1,), (3, 1), (4,)])
def test_fake_quantization(name: str, params: Record, count: int, shape: tuple[int, ...]) -> None:
    r = np.random.default_rng(4)
    x = (r.integers(-40, 40, (2, 3, 4)) / 16).astype("f4")
    scale = np.exp2(r.integers(-3, 0, shape)).astype("f4")
    zero = r.integers(-2, 3, shape).astype("f4")
    args = [x, np.log2(scale) if name == "TQT" else scale, zero, zero][:count]
    (got,) = run(name, params, *args)
    s, z = np.broadcast_to(scale, x.shape), np.broadcast_to(zero if name != "TQT" else 0 * zero, x.shape)
    for at in np.ndindex(x.shape):
        v = Fraction(float(x[at])) / Fraction(float(s[at]))
        zero_point = int(z[at])
        if name == "LSQ":
            q = round_away(min(max(v + zero_point, Fraction(-4)), Fraction(3)))
        else:
            q = min(max(round_away(v) + zero_point, -4), 3)
        assert got[at] == float((q - zero_point) * Fraction(float(s[at])))


def test_fake_quantization_of_other_shapes_and_types() -> None:
    x, s = np.zeros((2, 3), "f4"), np.ones(2, "f4")
    with pytest.raises(EngineError, match=r"shape \[2\] does not broadcast to the input's \[2, 3\]"):
        run("FakeQuant", FakeQuant(qmin=0, qmax=9), x, s, s)
    with pytest.raises(EngineError, match="one dtype, Float32, found"):
        run("TQT", TQT(qmin=0, qmax=9), x.astype("f2"), s[:1])
