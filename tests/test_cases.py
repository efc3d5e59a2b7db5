"""A test over many cases fails where one of them does, and says which."""

from __future__ import annotations

import pytest

from tests.support import cases
from tests.support.cases import check_all, fewer, in_groups, kind_of_file, slow_but, some_of


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


def test_a_part_has_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "WHOLE", False)
    assert some_of(["a1", "a2", "b1", "a3", "a4", "c1", "b2"], 2, lambda s: s[0]) == [
        "a1",
        "b1",
        "a3",
        "c1",
        "b2",
    ]
    assert (fewer(10), fewer(10, 2), fewer(1)) == (3, 5, 1)
    monkeypatch.setattr(cases, "WHOLE", True)
    assert some_of("abcab", 2) == [*"abcab"]
    assert fewer(10) == 10


def test_kinds_of_files() -> None:
    names = ("ops/conv/conv2d_same.v1.mge", "ops/conv/conv2d.mge", "nets/mlp.mge")
    assert [kind_of_file(n) for n in names] == [
        ("ops/conv", "conv2d", True),
        ("ops/conv", "conv2d", False),
        ("nets", "mlp", False),
    ]


def test_slow_ones_are_marked() -> None:
    kept, slow = slow_but(["a"], ["a", "b"])
    assert kept == "a"
    assert (slow.values, [mark.name for mark in slow.marks]) == (("b",), ["slow"])
