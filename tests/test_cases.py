"""A test over many cases fails where one of them does, and says which."""

from __future__ import annotations

import pytest

from tests.support.cases import check_all, in_groups


def one_over(n: int) -> None:
    assert 1 / n > 0, f"{n} is negative"


def test_every_case_is_looked_at_and_those_that_fail_are_named() -> None:
    check_all([1, 2], one_over)
    seen: list[int] = []
    with pytest.raises(pytest.fail.Exception) as caught:
        check_all([1, 0, -3, 2], lambda n: (seen.append(n), one_over(n)), lambda n: f"case {n}")
    text = str(caught.value)
    assert text.startswith("2 of 4 cases failed")
    assert "case 0\ncase -3\n" in text
    assert "ZeroDivisionError" in text
    assert "-3 is negative" in text
    assert seen == [1, 0, -3, 2]


def test_groups_hold_every_case_once() -> None:
    found = in_groups(["a1", "b1", "a2", "a3"], lambda s: s[0], 2)
    assert [(p.id, p.values[0]) for p in found] == [("a-0", ["a1", "a2"]), ("a-1", ["a3"]), ("b", ["b1"])]
