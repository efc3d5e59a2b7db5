"""Values of arguments that make no sense, and those that would be taken for something else, are refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.base.limits import memory_limited, time_limited
from loadrun.graph.params import Elemwise, ElemwiseMode
from loadrun.testing import GraphBuilder, assert_close, operator_graph, random_feeds

FILE = "fixtures/nets/mlp.mge"
EXP = Elemwise(mode=ElemwiseMode.EXP)
X = np.ones((2, 3), "f4")


NONSENSE: list[tuple[Callable[..., object], str]] = [
    (lambda: assert_close(X, X, rtol=float("nan"), atol=0.0), "at least 0, found rtol=nan"),
    (lambda: random_feeds(loadrun.load(FILE).graph, -1), "a seed must be a whole number from 0"),
    (lambda: operator_graph("Elemwise", EXP, [X], known=[7]), r"from 0 to 0, found \[7\]"),
    (lambda: GraphBuilder().elemwise("NONE"), "Elemwise has no mode 'NONE'"),
    (lambda: GraphBuilder().const(None), "an array of real numbers, found object values"),
    (lambda: GraphBuilder().input("x", -1), "sizes must be at least 0"),
    (
        lambda: loadrun.random_inputs(loadrun.load(FILE), -1),
        "from 0 to 2..64 - 1, found -1",
    ),
    (lambda: loadrun.check(len, FILE, maxerr=float("inf")), "maxerr must be a finite number >= 0, found inf"),
    (
        lambda: time_limited(float("nan")).__enter__(),
        "a time limit must be a number of seconds above 0, found nan",
    ),
    (lambda: memory_limited(-1).__enter__(), "a memory limit must be a number of bytes above 0, found -1"),
]


def test_values_that_make_no_sense() -> None:
    for call, message in NONSENSE:
        with pytest.raises(UsageError, match=message):
            call()


def test_what_would_be_taken_for_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a collection of names, found the single name 'a.mge'"):
        loadrun.replay_files("a.mge")
    with pytest.raises(
        UsageError, match=r"function of check.. must be a function, a module or a session, found a int"
    ):
        loadrun.check(3, FILE)
    with pytest.raises(UsageError, match=r"a seed must be a whole number from 0 .* found '1'"):
        loadrun.run(FILE, seed="1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"a model is given as a path, as bytes or as a file .* of type int"):
        loadrun.loads(3)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    loadrun.run(FILE, seed=np.int64(3))  # type: ignore[arg-type]
    assert_close(X, X, rtol=np.float32(0), atol=0, equal_nan=np.bool_(True))  # type: ignore[arg-type]
