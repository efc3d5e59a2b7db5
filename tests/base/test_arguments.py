"""Calls with values of wrong types are refused where they enter, and say what was expected and found."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError, UsageTypeError
from loadrun.base.limits import memory_limited, time_limited
from loadrun.graph.params import Elemwise, ElemwiseMode
from loadrun.testcase import Testcase
from loadrun.testing import GraphBuilder, assert_close, operator_graph, random_feeds, run_operator
from loadrun.verify.diff import between

FILE = "fixtures/nets/mlp.mge"
EXP = Elemwise(mode=ElemwiseMode.EXP)
X = np.ones((2, 3), "f4")


def saved(where: str, name: str, value: object) -> object:
    """Save a model of which an attribute has a wrong type."""
    bundle = loadrun.load(FILE)
    opr = next(o for o in bundle.graph.oprs if o.type == "MatrixMulV2")
    part: Any = {"bundle": bundle, "graph": bundle.graph, "opr": opr}[where]
    object.__setattr__(part, name, value)
    return loadrun.save(bundle, io.BytesIO())


def case(**attributes: Any) -> object:
    arrays = loadrun.load(FILE).testcases[0].arrays
    return loadrun.save(loadrun.load(FILE), io.BytesIO(), testcases=[Testcase(arrays, **attributes)])


WRONG: list[tuple[Callable[..., object], str]] = [
    (
        lambda: assert_close(X, X, rtol="x", atol=0),
        "rtol of assert_close.. must be a number or None, found the text 'x'",
    ),
    (lambda: assert_close(X, X, equal_nan=X), "equal_nan of .* must be True or False, found a ndarray"),
    (lambda: random_feeds(None), "graph of random_feeds.. must be a Graph, found None"),
    (lambda: random_feeds(loadrun.load(FILE).graph, 1.5), "seed of .* must be an integer, found float 1.5"),
    (
        lambda: operator_graph("Elemwise", [None], [X]),
        r"params\[0\] of operator_graph.. must be a Record, found None",
    ),
    (lambda: run_operator("Elemwise", EXP, X, dtypes={"a": 1}), "dtypes.* of run_operator.. must be a "),
    (
        lambda: GraphBuilder().elemwise("EXP", 3),
        "inputs of GraphBuilder.elemwise.. must be a Var, found int 3",
    ),
    (
        lambda: GraphBuilder().input("x", 2.5),
        "shape of GraphBuilder.input.. must be an integer, found float 2.5",
    ),
    (
        lambda: loadrun.load(FILE, input_shapes={"x": [1, "b"]}),
        r"input_shapes\['x'\]\[1\] of load.. must be an integer",
    ),
    (lambda: loadrun.loads(3), "data of loads.. must be bytes, found int 3"),
    (
        lambda: loadrun.save(loadrun.load(FILE), io.BytesIO(), 1.5),
        "options of save.. must be a DumpOptions or None",
    ),
    (
        lambda: loadrun.Runner(FILE, policies=[]),
        "policies of Runner.. must be a mapping of texts to Policy objects or None",
    ),
    (
        lambda: loadrun.check(3, FILE),
        "function of check.. must be a function, a module or a session, found a int",
    ),
    (lambda: loadrun.run(FILE, seed="1"), "seed of run.. must be an integer, found the text '1'"),
    (lambda: loadrun.replay_files("a.mge"), "files of replay_files.. must be a collection of texts or paths"),
    (
        lambda: loadrun.RunOptions(jobs="3"),
        "jobs must be an integer or None, found the text '3'",
    ),
    (lambda: loadrun.DiffOptions(weights="dir"), "weights must be a collection of texts"),
    (
        lambda: loadrun.register_engine("none", None),
        "factory of register_engine.. must be a Factory, found None",
    ),
    (lambda: between(loadrun.load(FILE).graph, 1, {}), "against of between.. must be "),
    (lambda: saved("bundle", "graph", None), "graph of the bundle must be a Graph, found None"),
    (
        lambda: saved("graph", "input_order", [None]),
        r"input_order\[0\] of the graph must be a text, found None",
    ),
    (lambda: saved("opr", "id", None), "id of operator None must be an integer, found None"),
    (lambda: case(dtypes=1), "dtypes of testcase 0 must be a mapping of texts to DType objects, found int 1"),
    (lambda: case(steps=[3]), r"steps\[0\] of testcase 0 must be a mapping"),
]
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


def test_wrong_types_are_told_at_the_border() -> None:
    for call, message in WRONG:
        with pytest.raises(UsageTypeError, match=message):
            call()


def test_values_that_make_no_sense() -> None:
    for call, message in NONSENSE:
        with pytest.raises(UsageError, match=message):
            call()
    for name, message in (("a\0b", "a null character"), ("\ud800", "half a character")):
        with pytest.raises(OSError, match=message):
            loadrun.compare_reports(name, name)


def test_classes_stand_for_themselves() -> None:
    strategies = pytest.importorskip("loadrun.testing.strategies")
    for kind in (3, int):
        with pytest.raises(UsageTypeError, match=r"kind of records\(\) must be a class"):
            strategies.records(kind)


def test_what_stands_for_a_type() -> None:
    """Numbers of numpy, any collection for a tuple, a text that is a subclass of one."""

    class Text(str):
        """A text of its own."""

    loadrun.run(Text(FILE), seed=np.int64(3))
    assert loadrun.RunOptions(testcases=[np.int32(1)], optimize=["x"]).optimize == ["x"]  # type: ignore[arg-type,comparison-overlap]
    assert_close(X, X, rtol=np.float32(0), atol=0, equal_nan=np.bool_(True))  # type: ignore[arg-type]
