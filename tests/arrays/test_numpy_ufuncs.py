"""Traced ufuncs against numpy's own."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from loadrun.arrays.array import TracedArray
from tests.support.cases import check_all
from tests.support.numpy_cases import (
    Case,
    agree,
    cases,
    check,
    check_dumps,
    check_in_megengine,
    check_traced,
    expected,
    names,
)

ARITHMETIC = cases("""
f + g
f - v
f * 2
2 / p
f // p
f % p
-f // p + f % -p
f ** 2
p ** 0.5
p ** -1
p ** 3
f ** 4
p ** 1.7
p ** f
2 ** f
2.0 ** f
abs(f)
+f
-f
i + 1
i * j
i - j
i // j
i // -j
i % j
i % -j
i / j
i ** 2
i ** 5
j ** [0, 1, 2, 3, 4]
-i
abs(s)
s + s
s * s
s - 100
-u
u + u
u - u[::-1]
u * 3
u // 7
u % 7
u / 7
q + q
q * q
q // 3
q > 30000
k + s
u + s
u + k
s + 1.5
h + 1
h * g
h + i[0]
n + 1
n * 1.5
d * f
b + c
b * c
b + 1
b * 2.5
s / s
u / 2
divmod(i, j)
divmod(f, p)
np.fmod(f, p)
np.fmod(i, j)
np.fmod(s, 7)
np.fmod(u, 7)
np.add(f, g, dtype='f4')
np.add(s, u, dtype='i4')
np.multiply(f, np.float32(2))
np.float64(2) * f
np.negative(f)
np.positive(f)
np.reciprocal(p)
np.reciprocal(j)
np.reciprocal(-j)
np.square(f)
np.square(i)
np.sign(f)
np.sign(i)
np.absolute(nan)
np.fabs(i)
np.float_power(p, 2)
np.sum(p) ** 0.3
np.power(p[0, 0], np.float32(2.7))
np.power(i, 3)
np.true_divide(i, 4)
np.floor_divide(f, 0.75)
np.floor_divide(half, 0.5)
np.floor_divide(half - 1, half)
np.remainder(half, half)
np.remainder(f, -0.75)
np.remainder(nan, 2)
np.floor_divide(nan, 2)
""")

EXTREMES = cases("""
np.maximum(f, g)
np.minimum(f, 0)
np.maximum(i, 0)
np.maximum(u, 100)
np.maximum(q, 100)
np.fmax(nan, 1.5)
np.fmin(nan, nan[::-1])
np.fmax(f, g)
np.fmax(i, j)
np.maximum(b, c)
np.minimum(b, c)
np.fmin(b, c)
np.clip(f, -1, 1)
np.clip(f, -1, None)
np.clip(f, None, g)
np.clip(f, a_min=g, a_max=g + 1)
np.clip(i, -3, 3)
np.clip(u, 10, 200)
np.clip(q, 10, 200)
np.clip(h, -1, 0.5)
f.clip(0, 1)
f.clip(min=0)
np.clip(i, -2.5, 2.5)
""")

ROUNDING = cases("""
np.floor(f)
np.ceil(f)
np.trunc(half)
np.fix(half)
np.rint(half)
np.rint(f * 10)
np.round(half)
np.round(f, 1)
np.round(f * 100, -1)
np.round(i)
np.round(i * 10, -2)
np.around(h, 1)
f.round(2)
np.floor(i)
np.ceil(nan)
np.rint(nan)
np.modf(half)
""")

MATH = cases("""
np.exp(f)
np.exp2(f)
np.expm1(unit)
np.log(p)
np.log2(p)
np.log10(p)
np.log1p(unit)
np.log2(2.0 ** np.floor(f * 4))
np.log10(10.0 ** np.floor(f * 2))
np.log(unit)
np.sqrt(p)
np.sqrt(unit)
np.cbrt(f)
np.sin(f)
np.cos(f)
np.tan(unit)
np.arcsin(unit)
np.arccos(unit)
np.arctan(f)
np.arctan2(f, g)
np.sinh(unit)
np.cosh(unit)
np.tanh(f)
np.arcsinh(f)
np.arccosh(p + 1)
np.arctanh(unit)
np.hypot(f, g)
np.hypot(f * 1e30, g * 1e30)
np.hypot(z * 0, f)
np.logaddexp(f, g)
np.logaddexp(nan, nan)
np.logaddexp2(f, g)
np.deg2rad(f)
np.rad2deg(f)
np.degrees(f)
np.radians(f)
np.signbit(half)
np.signbit(i)
np.copysign(f, g)
np.copysign(2, f)
np.sinc(half)
np.exp(s / 30)
np.exp(s // 30)
np.sqrt(u)
np.sqrt(k)
np.log(j)
np.sin(h)
np.cbrt(h)
np.tanh(b)
np.conjugate(f)
np.conj(f)
f.conj()
np.real(f)
np.imag(f)
f.real
np.nan_to_num(nan)
np.nan_to_num(nan, nan=5, posinf=10, neginf=-10)
np.nan_to_num(i)
""")

LOGIC = cases("""
f > g
f >= 0
f < g
f <= v
f == f
f != g
i == j
i != 3
i < j
u < 300
u >= -1
u == 256
i > 1.5
b == c
b != c
b < c
b <= c
b > c
b & c
b | c
b ^ c
~b
b & True
np.logical_and(f > 0, i)
np.logical_or(f, g > 0)
np.logical_xor(b, c)
np.logical_not(i)
np.logical_not(b)
np.isnan(nan)
np.isinf(nan)
np.isfinite(nan)
np.isnan(i)
np.isinf(i)
np.isfinite(i)
np.isclose(f, g)
np.isclose(nan, nan)
np.isclose(nan, nan, equal_nan=True)
np.isclose(f, f + 1e-6)
np.isclose(i, i + 1, atol=1)
np.allclose(f, f)
np.allclose(f, g)
np.array_equal(f, f)
np.array_equal(f, g)
np.array_equal(nan, nan, equal_nan=True)
nan == nan
nan < 1
nan != nan
""")

NEW = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
# Older numpy promotes numpy scalars by value.
SCALARS = cases(
    """
np.int8(3) + u
np.float64(2) * h
np.int64(300) + u
"""
    if NEW
    else ""
)

BITS = cases("""
i & j
i | j
i ^ j
~i
u & 15
u & 12
u | 3
u ^ 255
~u
s & k
s | 7
k ^ s
~q
q & 255
q & 256
q ^ 1
i & 1
i & -4
3 & u
i << 2
i >> 1
u << 1
u >> 3
s << 3
s >> 2
i << j
i >> j
j << 40
j >> 40
-j >> 40
np.bitwise_and(i, 7)
np.left_shift(q, 3)
np.right_shift(q, 3)
np.invert(k)
""")

ALL = ARITHMETIC + EXTREMES + ROUNDING + MATH + LOGIC + BITS + SCALARS


@pytest.mark.filterwarnings("ignore:.*fix.*:DeprecationWarning")
@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", ALL[::7], ids=names(ALL[::7]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic)


DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "i8", "f2", "f4", "f8"]
BINARY = [
    "add",
    "multiply",
    "true_divide",
    "maximum",
    "minimum",
    "less",
    "equal",
    "logical_and",
    "fmax",
    "power",
]


@pytest.mark.parametrize("name", BINARY)
def test_promotion(name: str) -> None:
    check_all(product(DTYPES, DTYPES), partial(check_promotion, name))


def check_promotion(name: str, dtypes: tuple[str, str]) -> None:
    ufunc, (left, right) = getattr(np, name), dtypes
    x, y = np.array([1, 0, 3], left), np.array([1, 1, 1], right)
    wide = "u4" in str(np.result_type(x, y)) or "u8" in str(np.result_type(x, y))
    assert not wide
    try:
        want = expected(ufunc, [x, y])
    except TypeError:
        # numpy has no loop either.
        return
    if name == "power" and want.dtype.kind in "iub":
        found = ufunc(TracedArray(x), y)
    else:
        found = ufunc(TracedArray(x), TracedArray(y))
    agree(found, want)


@pytest.mark.parametrize("name", ["add", "multiply", "true_divide", "maximum", "less", "subtract"])
def test_promotion_of_numbers(name: str) -> None:
    if not NEW:
        pytest.skip("older numpy promotes by value")
    check_all(product(DTYPES, [True, 3, 2.5, -1]), partial(check_promotion_of_number, name))


def check_promotion_of_number(name: str, given: tuple[str, float]) -> None:
    ufunc, (dtype, number) = getattr(np, name), given
    x = np.array([1, 0, 1], dtype)
    for order in (lambda a: (a, number), lambda a: (number, a)):
        try:
            want = expected(lambda a, order=order: ufunc(*order(a)), [x])
        except (OverflowError, TypeError) as error:
            with pytest.raises(type(error)):
                ufunc(*order(TracedArray(x)))
        else:
            agree(ufunc(*order(TracedArray(x))), want)


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
