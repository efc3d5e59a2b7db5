"""`loadrun.testing.assert_close`: what torch's says (count, percentage, worst differences, allowed), and more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import UsageTypeError
from loadrun.testing import assert_close


def said(*args: Any, **named: Any) -> str:
    with pytest.raises(AssertionError) as e:
        assert_close(*args, **named)
    return str(e.value)


def test_the_message_of_torch() -> None:
    """The numbers are those that torch 2.13 prints for the same arrays; the values there are told besides.

    torch: Mismatched elements: 2 / 6 (33.3%), Greatest absolute difference: 0.5 at index (1, 2) (up to 1e-05 allowed),
    Greatest relative difference: 0.10000000149011612 at index (0, 0) (up to 1.3e-06 allowed).
    """
    expected = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    actual = np.array([[1.1, 2, 3], [4, 5, 6.5]], np.float32)
    assert said(actual, expected).splitlines() == [
        "arrays are not close",
        "",
        "Mismatched elements: 2 / 6 (33.3%)",
        "Greatest absolute difference: 0.5 at index (1, 2): 6.5, expected 6 (up to 1e-05 allowed)",
        "Greatest relative difference: 0.1 at index (0, 0): 1.10000002, expected 1 (up to 1.3e-06 allowed)",
    ]


def test_against_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is absent")
    rng = np.random.default_rng(5)
    for _ in range(20):
        expected = rng.normal(size=(3, 4)).astype("f4")
        actual = expected + rng.choice([0, 1e-6, 1e-3], size=(3, 4)).astype("f4")
        try:
            torch.testing.assert_close(torch.from_numpy(actual), torch.from_numpy(expected))
        except AssertionError as e:
            theirs, mine = str(e).splitlines(), said(actual, expected).splitlines()
            assert mine[2] == theirs[2]
            for ours, line in zip(mine[3:], theirs[3:], strict=True):
                words = line.split()
                assert float(ours.split("difference: ")[1].split()[0]) == pytest.approx(
                    float(words[3]), rel=1e-5
                )
                assert line.split("index ")[1].split(")")[0] in ours
        else:
            assert_close(actual, expected)


def test_containers() -> None:
    good = {"a": np.zeros(2, "f4"), "b": [np.ones(3, "f4"), np.ones((), "i4")]}
    assert_close(good, {"a": np.zeros(2, "f4"), "b": [np.ones(3, "f4"), np.ones((), "i4")]})
    bad = {"a": np.zeros(2, "f4"), "b": [np.ones(3, "f4"), np.zeros((), "i4")]}
    assert "The failure is at ['b'][1]\n\nMismatched elements: 1 / 1 (100.0%)" in said(bad, good)
    assert "Keys differ: ['a'], expected ['a', 'b']" in said({"a": 1}, good)
    assert "Lengths differ: 1, expected 2" in said({**good, "b": [np.ones(3, "f4")]}, good)


def test_what_is_not_finite_is_counted() -> None:
    text = said(np.array([np.nan, 1, np.inf]), np.array([np.nan, 1, 2.0]))
    assert "Mismatched elements: 2 / 3 (66.7%)" in text
    assert text.endswith("NaN: 1, expected 1; infinite: 1, expected 0")
    assert_close(np.array([np.nan]), np.array([np.nan]), equal_nan=True)


def test_words_of_ones_own() -> None:
    assert said([1.0], [2.0], msg="logits").startswith("logits\n\nMismatched")
    assert said([1.0], [2.0], msg=lambda text: f"<{text}>").startswith("<arrays are not close\n\nMismatched")


def test_shapes_dtypes_tolerances() -> None:
    assert "Shapes differ: (2,), expected (3,)" in said(np.zeros(2), np.zeros(3))
    assert "Dtypes differ: float32, expected float64" in said(np.zeros(2, "f4"), np.zeros(2))
    assert_close(np.zeros(2, "f4"), np.zeros(2), check_dtype=False)
    assert "1 / 1" in said(np.array([2**53 + 1]), np.array([2**53]))
    with pytest.raises(ValueError, match="pass both"):
        assert_close(1.0, 1.0, rtol=0.1)


def test_numbers_without_axes_and_what_is_no_number() -> None:
    assert_close({"n": 2}, {"n": 2})
    assert "1 / 1" in said(np.int64(2**53 + 1), np.int64(2**53))
    with pytest.raises(UsageTypeError, match="numbers and truth values, found object"):
        assert_close(None, None)
