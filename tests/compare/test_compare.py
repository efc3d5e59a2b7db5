from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from loadrun.compare import Comparison, assert_equal_error, compare, passes
from loadrun.compare.comparison import with_places
from loadrun.compare.tolerances import error_of
from loadrun.graph.dtypes import DType

INF = math.inf
NAN = math.nan

# What a pair of special values (expected, computed) gives: MegEngine's error, whether positions and signs of
# non-finite values agree. The check fails for every pair but those with a finite error within its tolerance: equal
# infinities and equal NaN fail, too, as they do in MegEngine.
TRUTH = [
    (NAN, NAN, NAN, True),
    (NAN, 1.0, NAN, False),
    (1.0, NAN, NAN, False),
    (NAN, INF, NAN, False),
    (NAN, -INF, NAN, False),
    (INF, NAN, NAN, False),
    (INF, INF, NAN, True),
    (-INF, -INF, NAN, True),
    (INF, -INF, NAN, False),
    (-INF, INF, NAN, False),
    (INF, 0.0, INF, False),
    (0.0, INF, INF, False),
    (1.0, -INF, INF, False),
    (INF, 6e4, INF, False),
    (0.0, -0.0, 0.0, True),
    (0.0, 1.0, 1.0, True),
    (1.0, 0.0, 1.0, True),
    (1.0, 1.0, 0.0, True),
]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize(("expect", "get", "error", "agree"), TRUTH)
def test_special_values(expect: float, get: float, error: float, agree: bool, dtype: str) -> None:
    if (dtype == "f2" and abs(expect) == 1e30) or abs(get) == 1e30:
        pytest.skip("not a float16 value")
    e, g = np.array([expect], dtype), np.array([get], dtype)
    found = compare(e, g)
    measured = assert_equal_error(e, g)
    assert measured.dtype == np.float32
    assert np.array_equal([measured, found.max_error], [error, error], equal_nan=True)
    assert found.nonfinite_agree is agree
    for maxerr in (0.0, 0.5, 1e30):
        assert passes(float(measured), maxerr) is (math.isfinite(error) and error <= maxerr)
    assert (found.expected.nan, found.got.nan) == (math.isnan(expect), math.isnan(get))
    assert (found.expected.inf, found.got.inf) == (math.isinf(expect), math.isinf(get))
    assert found.mismatches == (expect != get)
    assert found.equal is (expect == get or (math.isnan(expect) and math.isnan(get)))
    if math.isfinite(expect) and math.isfinite(get):
        assert found.measures.max_abs == abs(expect - get)
    else:
        assert found.measures.max_abs is None
        assert found.measures.cosine is None
        assert found.measures.ulp is None


@pytest.mark.parametrize("place", [0, 7, 40_000, 99_999])
def test_one_special_value_among_many(place: int) -> None:
    """A single NaN or infinity anywhere fails the check and leaves the metrics of the others alone."""
    e = np.linspace(-3, 3, 100_000, dtype="f4")
    g = e + np.float32(0.25)
    plain = compare(e, g)
    assert plain.measures.max_abs == pytest.approx(0.25, abs=1e-6)
    for bad in (NAN, INF, -INF):
        g2 = g.copy()
        g2[place] = bad
        found = compare(e, g2)
        assert not passes(float(assert_equal_error(e, g2)), 1e9)
        assert found.worst_index == (place,)
        assert found.measures.max_abs == pytest.approx(0.25, abs=1e-6)
        assert found.measures.mean_abs == pytest.approx(0.25, abs=1e-6)
        assert found.got.nan + found.got.inf == 1
        assert found.finite == 99_999
        assert "these measures are of the 99999 of 100000 pairs that are finite" in found.explain()
        assert not found.nonfinite_agree
    assert passes(float("nan"), float("nan")) is False
    assert passes(-1.0, 1.0) is False
    assert passes(0.0, float("nan")) is False


def test_numbers_by_hand() -> None:
    e = np.array([[1, -2, 0], [4, 100, -8]], "f4")
    g = np.array([[1, -2.5, 0.25], [4, 102, -8]], "f4")
    found = compare(e, g)
    assert found.size == 6
    assert found.mismatches == 3
    assert found.max_error == 0.25
    assert found.worst_index == (0, 1)
    assert (found.expected.worst, found.got.worst) == (-2.0, -2.5)
    assert found.measures.max_abs == 2.0
    assert found.measures.max_rel == 0.25
    assert found.measures.mean_abs == (0.5 + 0.25 + 2) / 6
    assert found.measures.snr_db == pytest.approx(
        10 * math.log10((1 + 4 + 16 + 1e4 + 64) / (0.25 + 0.0625 + 4))
    )
    dot, gg = 1 + 5 + 16 + 10200 + 64, 1 + 6.25 + 0.0625 + 16 + 102 * 102 + 64
    assert found.measures.cosine == pytest.approx(dot / math.sqrt(10085 * gg))
    assert found.measures.top1 == 1.0
    # 0.25 is 125 * 2^23 steps above zero: exponents 1 to 125, of 2^23 values each.
    assert found.measures.ulp == 125 * 2**23
    assert found.measures.off_by is None
    assert found.same_shape
    assert not found.equal
    assert float(assert_equal_error(e, g)) == 0.25


# Numbers that MegEngine 1.13.0 gave for max(abs(e - g) / maximum(minimum(abs(e), abs(g)), 1)).
@pytest.mark.parametrize(
    ("dtype", "e", "g", "error"),
    [
        ("u1", 2, 1, 1.0),
        ("u1", 255, 0, 255.0),
        ("i1", 1, 2, 1.0),
        ("i2", 100, -100, 2.0),
        ("i2", 11521, 11522, 8.679802e-05),
        ("i4", 100, -100, 2.0),
        ("i4", 20000001, 20000002, 5e-08),
        ("f2", 100, -100, 2.0),
        ("f4", 255, 0, 255.0),
    ],
)
def test_recorded_errors(dtype: str, e: int, g: int, error: float) -> None:
    found = assert_equal_error(np.array([e], dtype), np.array([g], dtype))
    assert found == np.float32(error)


def test_integers_do_not_wrap() -> None:
    """MegEngine subtracts in the integer type, where -128 - 127 is 1; here a big difference stays big."""
    e, g = np.array([-128], "i1"), np.array([127], "i1")
    assert float(assert_equal_error(e, g)) == pytest.approx(255 / 127)
    assert compare(e, g).measures.off_by == 255
    assert float(assert_equal_error(np.array([1], "u1"), np.array([2], "u1"))) == 1.0
    lo, hi = -(2**63), 2**63 - 1
    assert compare(np.array([lo, 5]), np.array([hi, 5])).measures.off_by == 2**64 - 1
    assert compare(np.array([2**64 - 1], "u8"), np.array([0], "u8")).measures.off_by == 2**64 - 1
    assert compare(np.array([2**64 - 1], "u8"), np.array([-1], "i8")).measures.off_by == 2**64
    assert compare(np.array([-(2**31)], "i4"), np.array([2**31 - 1], "i4")).measures.off_by == 2**32 - 1


@pytest.mark.parametrize(
    "dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
)
def test_every_dtype(dtype: str) -> None:
    e = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    g = e.copy()
    same = compare(e, g)
    assert same.equal
    assert same.mismatches == 0
    assert same.worst_index is None
    assert (same.max_error, same.measures.max_abs, same.measures.cosine, same.measures.snr_db) == (
        0.0,
        0.0,
        1.0,
        INF,
    )
    assert same.measures.top1 == (None if dtype[0] == "c" else 1.0)
    g[1, 0] = 0
    found = compare(e, g)
    assert found.mismatches == 1
    assert found.worst_index == (1, 0)
    assert found.expected.worst == 1
    assert found.got.worst == 0
    assert found.measures.max_abs == 1
    assert found.measures.off_by == (1 if np.dtype(dtype).kind in "iub" else None)
    assert type(found.worst_index[0]) is int
    assert found.expected.dtype == np.dtype(dtype).name
    if dtype[0] != "c":
        assert float(assert_equal_error(e, g)) == 1.0


def test_shapes() -> None:
    found = compare(np.zeros((2, 3), "f4"), np.zeros((3, 2), "f4"))
    assert not found.same_shape
    assert not found.equal
    assert math.isnan(found.max_error)
    assert found.explain() == "the shapes differ: expected [2, 3], got [3, 2]"
    assert found.size == 0
    assert found.mismatches == 6
    with pytest.raises(ValueError, match=r"shapes differ: expected \[2, 3\], got \[3, 2\]"):
        assert_equal_error(np.zeros((2, 3), "f4"), np.zeros((3, 2), "f4"))
    empty = compare(np.zeros((0, 3), "f4"), np.zeros((0, 3), "f4"))
    assert empty.equal
    assert empty.max_error == 0
    assert empty.measures.max_abs is None
    assert empty.measures.top1 is None
    assert empty.explain() == "no values to compare"
    assert assert_equal_error(np.zeros((0,), "f4"), np.zeros((0,), "f4")) == 0
    point = compare(np.float32(1), np.float32(2))
    assert point.worst_index == ()
    assert point.got.worst == 2.0
    with pytest.raises(TypeError, match="cannot be compared as numbers"):
        compare(np.array(["a"]), np.array(["a"]))
    with pytest.raises(TypeError, match="cannot be compared as numbers"):
        assert_equal_error(np.array([1j]), np.array([1j]))


def _numbers(found: Comparison) -> dict[str, object]:
    return {**found._asdict(), "measures": None, **found.measures._asdict()}


def test_layouts_and_byte_order_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    e = rng.standard_normal((37, 53, 41)).astype("f4")
    g = e + rng.standard_normal(e.shape).astype("f4") * np.float32(1e-3)
    want = compare(e, g)
    err = assert_equal_error(e, g)
    raw = np.empty(e.nbytes + 1, "u1")
    crooked = raw[1:].view("f4").reshape(e.shape)
    crooked[...] = g
    crooked.flags.writeable = False
    variants = [
        (np.asfortranarray(e), g),
        (e, np.asfortranarray(g)),
        (np.repeat(e, 2, axis=1)[:, ::2], g[::-1][::-1]),
        (e.astype(">f4"), g),
        (e, crooked),
    ]
    for a, b in variants:
        found = compare(a, b)
        for name, y in _numbers(want).items():
            x = _numbers(found)[name]
            assert x == (pytest.approx(y, rel=1e-12) if isinstance(y, float) else y), name
        assert assert_equal_error(a, b) == err


def test_against_plain_float64() -> None:
    rng = np.random.default_rng(1)
    e = (rng.standard_normal((300, 1000)) * 10).astype("f4")
    g = (e + rng.standard_normal(e.shape) * 1e-3).astype("f4")
    g[5] = -g[5]
    e[7, :100] = 0
    a, b = e.astype("f8"), g.astype("f8")
    err = np.abs(a - b) / np.maximum(1, np.minimum(np.abs(a), np.abs(b)))
    found = compare(e, g)
    assert found.max_error == err.max()
    assert found.worst_index == tuple(np.unravel_index(err.argmax(), err.shape))
    assert found.measures.max_abs == np.abs(a - b).max()
    keep = a != 0
    assert found.measures.max_rel == (np.abs(a - b)[keep] / np.abs(a[keep])).max()
    assert found.measures.mean_abs == pytest.approx(np.abs(a - b).mean(), rel=1e-12)
    assert found.measures.cosine == pytest.approx(
        (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), rel=1e-12
    )
    assert found.measures.snr_db == pytest.approx(
        10 * np.log10((a * a).sum() / ((a - b) ** 2).sum()), rel=1e-12
    )
    assert found.measures.top1 == (a.argmax(1) == b.argmax(1)).mean()
    assert found.measures.top1 < 1
    assert found.mismatches == (e != g).sum()
    assert float(assert_equal_error(e, g)) == pytest.approx(err.max(), rel=1e-6)


@pytest.mark.parametrize(("dtype", "bits"), [("f4", "i4"), ("f2", "i2")])
def test_ulp_counts_representable_values(dtype: str, bits: str) -> None:
    one = np.array([1.0], dtype)
    for steps in (1, 2, 1000):
        assert compare(one, (one.view(bits) + np.array(steps, bits)).view(dtype)).measures.ulp == steps
    tiny = np.array([1], bits).view(dtype)
    assert compare(tiny, -tiny).measures.ulp == 2
    assert compare(np.array([0.0], dtype), np.array([-0.0], dtype)).measures.ulp == 0
    top = np.finfo(dtype).max
    assert compare(np.array([top], dtype), np.array([-top], dtype)).measures.ulp == 2 * int(
        np.array([top], dtype).view(bits)[0]
    )
    mixed = compare(np.array([1, -1, 1], dtype), np.array([-1, 1, 1], dtype))
    assert mixed.measures.ulp == 2 * int(one.view(bits)[0])
    assert compare(one, one.astype("f8") + 1).measures.ulp is None


def test_ulp_of_bfloat16_counts_its_own_values() -> None:
    """Values of bfloat16 are in memory as float32, which has 65536 steps between two of them."""
    kind = DType("BFloat16")
    one = np.array([1.0, -1.0], "f4")
    for steps in (1, 2, 100):
        # bfloat16 has 8 bits of precision: between 1 and 2 its values are 2^-7 apart.
        assert compare(one, one * np.float32(1 + steps / 128), kind).measures.ulp == steps
    least = np.array([2.0**-133], "f4")
    assert compare(least, -least, kind).measures.ulp == 2
    assert compare(one, one, kind).measures.ulp == 0
    assert compare(one, one * np.float32(1.125), DType("Float8E4M3FN")).measures.ulp is None


def test_pairs_of_complex_numbers_that_are_finite() -> None:
    e = np.array([1, 2, complex(1, NAN), INF], "c8")
    assert compare(e, e).finite == 2
    assert compare(e[:2], e[:2]).partial == ""


def test_zero_vectors() -> None:
    zero, one = np.zeros(4, "f4"), np.ones(4, "f4")
    assert (compare(zero, zero).measures.cosine, compare(zero, zero).measures.snr_db) == (1.0, INF)
    assert (compare(zero, one).measures.cosine, compare(zero, one).measures.snr_db) == (0.0, -INF)
    assert (compare(one, zero).measures.cosine, compare(one, zero).measures.snr_db) == (0.0, 0.0)
    assert compare(one, -one).measures.cosine == -1.0
    assert compare(zero, one).measures.max_rel == 0.0


def test_explanations() -> None:
    assert compare(np.ones(4, "f4"), np.ones(4, "f4")).explain() == "all 4 values are equal"
    text = compare(np.array([1, 2, 3], "u1"), np.array([1, 2, 4], "u1")).explain()
    assert text.splitlines()[0] == "1 of 3 values differs; error 0.333333 at [2]: expected 3, got 4"
    assert "off by 1" in text
    assert "ULP" not in text
    text = compare(np.array([1, NAN], "f4"), np.array([INF, NAN], "f8")).explain()
    assert text.splitlines() == [
        "2 of 2 values differ; error nan at [1]: expected nan, got nan",
        "expected values are float32, computed ones float64",
        "top-1 agrees in 100 %",
        "NaN: expected 1, got 1; infinite: expected 0, got 1; at different places or with different signs",
    ]


def test_equal_infinities_are_not_the_worst() -> None:
    """MegEngine's error is NaN there; the text names what differs."""
    found = compare(np.array([INF, 1.5, 4], "f4"), np.array([INF, 1, 4], "f4"))
    assert math.isnan(found.max_error)
    assert found.explain().startswith("1 of 3 values differs; error 0.5 at [1]: expected 1.5, got 1.0\n")
    assert compare(np.array([INF, 1], "f4"), np.array([INF, 1], "f4")).worst_index is None


@given(st.data())
def test_agrees_with_the_formula_on_any_floats(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    floats = hnp.arrays("f4", shape, elements=st.floats(width=32))
    e, g = data.draw(floats), data.draw(floats)
    with np.errstate(all="ignore"):
        want = (np.abs(e - g) / np.maximum(np.float32(1), np.minimum(np.abs(e), np.abs(g)))).max()
    found = assert_equal_error(e, g)
    assert np.array_equal(found, want, equal_nan=True)
    whole = compare(e, g)
    assert math.isnan(whole.max_error) == math.isnan(want)
    assert whole.mismatches == np.count_nonzero(e != g)
    assert whole.equal == np.array_equal(e, g, equal_nan=True)
    assert compare(e, e).equal


def test_what_exceeds_the_tolerance_is_counted_with_places() -> None:
    expect = np.array([[1.0, -2.0, 0.0], [100.0, 0.001, np.nan]], "f4")
    get = np.array([[1.00001, -2.5, 0.0], [101.0, 0.002, 1.0]], "f4")
    found = with_places(compare(expect, get), expect, get, 0.005)
    # By hand: errors 1e-5, 0.5 / 2, 0, 1 / 100, 0.001, NaN.
    assert (found.places.exceeding, found.mismatches) == (3, 5)
    assert (found.places.abs_index, found.places.rel_index) == ((1, 0), (1, 1))
    assert "3 of 6 values exceed the tolerance" in found.explain()
    assert "max abs 1 at [1, 0], max rel 1 at [1, 1]" in found.explain()


@pytest.mark.parametrize(
    ("dtype", "got", "error"),
    [
        ("u1", [9, 201], 0.0),  # a number that is rounded the other way
        ("i1", [10, 98], 1.0),
        ("i4", [10, 201], 0.005),  # of the largest one
        ("f4", [10, 201], 0.005),
    ],
)
def test_errors_by_size(dtype: str, got: list[int], error: float) -> None:
    expect = np.array([10, 100 if dtype == "i1" else 200], dtype)
    assert error_of(expect, np.array(got, dtype)) == pytest.approx(error, rel=0.01)
