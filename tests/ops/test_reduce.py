"""Reduce and Cumsum against double precision and Python integers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.base.errors import EngineError
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Cumsum, Reduce, ReduceDataType as Kind, ReduceMode as Mode
from loadrun.ops.reduce import target_axes
from loadrun.testing import run_operator as run
from tests.support.arrays import ints
from tests.support.cases import fewer

DOUBLE = {
    Mode.SUM: np.sum,
    Mode.SUM_SQR: lambda x, **k: np.sum(np.square(x), **k),
    Mode.PRODUCT: np.prod,
    Mode.MIN: np.min,
    Mode.MAX: np.max,
    Mode.MEAN: np.mean,
}


@pytest.mark.parametrize("mode", Mode, ids=lambda m: m.name)
@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 0), ((3, 4, 5), 1), ((2, 3, 4, 5), -1), ((9000, 2), 0), ((2, 3, 5000), 2)]
)
def test_float_axis(mode: Mode, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, shape).astype("f4")
    if mode == Mode.PRODUCT:
        x = x ** np.float32(0.01)
    (got,) = run("ReduceV2", Reduce(mode=mode, axis=axis), x)
    want = DOUBLE[mode](x.astype("f8"), axis=axis, keepdims=True)
    # Thousands of float32 products drift.
    np.testing.assert_allclose(got, want, rtol=2e-3 if mode == Mode.PRODUCT else 2e-6)


@pytest.mark.parametrize(("dtype", "largest"), [("Float32", 3.4028234663852886e38), ("Float16", 65504)])
def test_the_maximum_of_minus_infinity_is_finite(dtype: str, largest: float) -> None:
    """As real MegEngine 1.13 gives it, NaN in float16 included; graphs of other frameworks keep infinities."""
    inf = math.inf
    x = np.array([[-inf, -inf], [-inf, 1], [math.nan, -inf], [inf, inf]], DType(dtype).np)
    column = [inf, 1, math.nan if dtype == "Float32" else -largest, inf]
    for mode, sign in ((Mode.MAX, 1), (Mode.MIN, -1)):
        for y in (sign * x, sign * x[:, :1]):
            want = np.array([-largest, *(column[1:] if y.shape[1] == 2 else [-largest, column[2], inf])])
            (got,) = run("ReduceV2", Reduce(mode=mode, axis=1), y)
            assert got[:, 0].astype("f8").tolist() == pytest.approx((sign * want).tolist(), nan_ok=True)


@settings(max_examples=fewer(80, 2), deadline=None)
@given(st.data())
def test_target_shape(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.sampled_from([1, 2, 3, 5])) for _ in range(ndim))
    gone = tuple(data.draw(st.booleans()) for _ in range(ndim))
    target = tuple(1 if g else n for g, n in zip(gone, shape, strict=True))
    mode = data.draw(st.sampled_from(sorted(Mode)))
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape).astype("f4")
    (got,) = run("ReduceV2", Reduce(mode=mode), x, ints(*target), known=(1,))
    want = DOUBLE[mode](x.astype("f8"), axis=tuple(i for i, g in enumerate(gone) if g), keepdims=True)
    if target == (1,):
        want = DOUBLE[mode](x.astype("f8")).reshape(1)
    np.testing.assert_allclose(got, want, rtol=5e-6)


def test_targets_of_fewer_dimensions() -> None:
    x = np.arange(24, dtype="f4").reshape(2, 3, 4)
    assert run("ReduceV2", Reduce(), x, ints(1), known=(1,))[0].tolist() == [276]
    assert run("ReduceV2", Reduce(), x, ints(4), known=(1,))[0].tolist() == [60, 66, 72, 78]
    assert run("ReduceV2", Reduce(), x, ints(3, 1), known=(1,))[0].tolist() == [[60], [92], [124]]
    assert target_axes((2, 1, 4), (2, 1, 4)) == ()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4"])
@pytest.mark.parametrize("mode", [Mode.SUM, Mode.SUM_SQR, Mode.PRODUCT, Mode.MEAN, Mode.MAX, Mode.MIN])
def test_integers_wrap_and_means_truncate(mode: Mode, dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(2).integers(info.min, int(info.max) + 1, (4, 7)).astype(dtype)
    (got,) = run("ReduceV2", Reduce(mode=mode, axis=1), x)

    def wrapped(v: int) -> int:
        v &= (1 << info.bits) - 1
        return v - (1 << info.bits) if info.min < 0 and v >> (info.bits - 1) else v

    want = []
    for row in x.tolist():
        if mode in (Mode.MAX, Mode.MIN):
            want.append(max(row) if mode == Mode.MAX else min(row))
        elif mode == Mode.MEAN:
            want.append(math.trunc(wrapped(sum(row)) / len(row)))
        else:
            total = (
                math.prod(row)
                if mode == Mode.PRODUCT
                else sum(v * v if mode == Mode.SUM_SQR else v for v in row)
            )
            want.append(wrapped(total))
    assert got.reshape(-1).tolist() == want


def test_mean_of_several_axes_truncates_at_each() -> None:
    """The longest axis first: [[7, 0], [7, 0], [8, 1]] over both axes of the middle-separated shape."""
    x = np.array([[[7, 1]], [[7, 1]], [[9, 2]]], "i4").reshape(3, 1, 2)
    target = ints(1, 1, 1)
    # All axes are neighbours, so they are one: 27 / 6.
    assert run("ReduceV2", Reduce(mode=Mode.MEAN), x, target, known=(1,))[0].tolist() == [[[4]]]
    y = np.array([[[7, 1], [7, 0]], [[7, 1], [7, 0]], [[9, 2], [7, 0]]], "i4")
    # Axis 0 (three elements) first: [[7, 1], [7, 0]], then axis 2: [4, 3].
    assert run("ReduceV2", Reduce(mode=Mode.MEAN), y, ints(1, 2, 1), known=(1,))[0].tolist() == [[[4], [3]]]


def test_nan_wins() -> None:
    x = np.array([[1, np.nan, 3], [np.nan, 1, 2]], "f4")
    for mode in Mode:
        assert np.isnan(run("ReduceV2", Reduce(mode=mode, axis=1), x)[0]).all()


def test_float16_sum_stops_growing() -> None:
    x = np.ones((1, 4000), "f2")
    # 2048 + 1 is a tie and rounds away from zero to 2050; 4096 + 1 is less than half a step.
    assert run("ReduceV2", Reduce(axis=1), x)[0].tolist() == [[4096]]
    x = np.full((1, 3000), 0.5, "f2")
    x[0, 0] = 2048
    assert run("ReduceV2", Reduce(axis=1), x)[0].tolist() == [[2048]]
    (wide,) = run("ReduceV2", Reduce(axis=1, data_type=Kind.FLOAT_O32xC32), x)
    assert wide.dtype == np.float32
    assert wide.tolist() == [[2048 + 2999 / 2]]
    (narrow,) = run("ReduceV2", Reduce(axis=1, data_type=Kind.FLOAT_O16xC32), x)
    assert narrow.dtype == np.float16
    assert narrow.tolist() == [[3548]]


def test_quantized() -> None:
    s8, u8 = DType("QuantizedS8", 0.5), DType("Quantized8Asymm", 0.5, 10)
    x = np.array([[100, 90, -3], [-5, -4, -4]], "i1")
    assert run("ReduceV2", Reduce(axis=1), x, dtypes={0: s8})[0].tolist() == [[127], [-13]]
    assert run("ReduceV2", Reduce(axis=1, mode=Mode.MEAN), x, dtypes={0: s8})[0].tolist() == [[62], [-4]]
    assert run("ReduceV2", Reduce(axis=1, data_type=Kind.QINT_I8xO32), x, dtypes={0: s8})[0].tolist() == [
        [187],
        [-13],
    ]
    y = np.array([[250, 30, 11]], "u1")
    assert run("ReduceV2", Reduce(axis=1, mode=Mode.MEAN), y, dtypes={0: u8})[0].tolist() == [[97]]
    assert run("ReduceV2", Reduce(axis=1, mode=Mode.MAX), y, dtypes={0: u8})[0].tolist() == [[250]]
    (real,) = run("ReduceV2", Reduce(axis=1, mode=Mode.MIN, data_type=Kind.FLOAT_O32xC32), y, dtypes={0: u8})
    assert real.tolist() == [[0.5]]


def test_without_elements() -> None:
    x = np.zeros((2, 0), "f4")
    expected = {Mode.SUM: 0, Mode.SUM_SQR: 0, Mode.PRODUCT: 1, Mode.MEAN: np.nan}
    for mode, want in expected.items():
        np.testing.assert_array_equal(
            run("ReduceV2", Reduce(mode=mode, axis=1), x)[0], np.full((2, 1), want, "f4")
        )
    assert run("ReduceV2", Reduce(mode=Mode.MAX, axis=0), x)[0].shape == (1, 0)
    with pytest.raises(EngineError, match="MAX of an array without elements"):
        run("ReduceV2", Reduce(mode=Mode.MAX, axis=1), x)


@pytest.mark.parametrize(
    ("params", "inputs", "dtypes", "text"),
    [
        (Reduce(axis=3), [np.zeros((2, 3), "f4")], {}, "no axis 3 in a tensor of 2 dimensions"),
        (Reduce(axis=0), [np.zeros(2, "f4"), ints(1)], {}, "takes 1 inputs, found 2"),
        (Reduce(), [np.zeros(2, "f4")], {}, "takes 2 inputs, found 1"),
        (Reduce(), [np.zeros((2, 3), "f4"), ints(2, 2)], {}, r"\[2, 3\] cannot be reduced to \[2, 2\]"),
        (Reduce(), [np.zeros(2, "f4"), ints(2, 2)], {}, r"\[2\] cannot be reduced to \[2, 2\]"),
        (
            Reduce(axis=0),
            [np.zeros(2, "u1")],
            {0: DType("Quantized8Asymm", 1.0, 3)},
            "SUM does not take Quantized8Asymm",
        ),
        (
            Reduce(axis=0, data_type=Kind.FLOAT_O16xC32),
            [np.zeros(2, "i4")],
            {},
            "takes float inputs, found Int32",
        ),
        (Reduce(axis=0, mode=Mode.MEAN), [np.zeros(256, "u1")], {}, "which wraps to 0"),
        (Cumsum(axis=2), [np.zeros((2, 3), "f4")], {}, "no axis 2 "),
        (Cumsum(), [np.zeros((2, 3), "f4")], {}, "no axis 2147483647"),
        (Cumsum(axis=0), [np.zeros(3, "?")], {}, "Cumsum does not take Bool"),
    ],
)
def test_refused(
    params: Reduce | Cumsum, inputs: list[np.ndarray], dtypes: dict[int, DType], text: str
) -> None:
    name = "ReduceV2" if isinstance(params, Reduce) else "CumsumV1"
    with pytest.raises(EngineError, match=text):
        run(name, params, *inputs, dtypes=dtypes, known=(1,) if len(inputs) > 1 else ())


@pytest.mark.parametrize("dtype", ["f4", "i4", "i1", "u1"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(dtype: str, axis: int) -> None:
    x = np.random.default_rng(3).integers(0, 100, (3, 4, 5)).astype(dtype)
    for exclusive, reverse in itertools.product((False, True), repeat=2):
        (got,) = run("CumsumV1", Cumsum(axis=axis, exclusive=exclusive, reverse=reverse), x)
        rows = np.moveaxis(x, axis, 0)
        want = np.zeros(rows.shape, dtype)
        for i in range(len(rows)):
            if reverse:
                part = rows[i + 1 :] if exclusive else rows[i:]
            else:
                part = rows[:i] if exclusive else rows[: i + 1]
            want[i] = sum((p.astype("i8") for p in part), np.zeros(rows.shape[1:], "i8")).astype(dtype)
        np.testing.assert_array_equal(got, np.moveaxis(want, 0, axis))


def test_cumsum_of_float16_rounds_every_sum() -> None:
    x = np.array([2048, 0.75, 0.75, 0.75], "f2")
    (got,) = run("CumsumV1", Cumsum(axis=0, exclusive=False), x)
    assert got.tolist() == [2048, 2048, 2048, 2048]
    (empty,) = run("CumsumV1", Cumsum(axis=0), np.zeros((0, 3), "f4"))
    assert empty.shape == (0, 3)
