"""Expressions of numpy code on named arrays, and how a traced result is compared with numpy's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import loadrun
from loadrun.arrays.array import TracedArray
from loadrun.arrays.promotion import narrow
from loadrun.engines.reference import ReferenceEngine
from tests.support import oracle
from tests.support.cases import some_of


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    # floats
    "f": _rng(1).normal(size=(3, 4, 5)).astype("f4") * 3,
    "g": _rng(2).normal(size=(4, 5)).astype("f4") * 3,
    "p": _rng(3).uniform(0.25, 4, (4, 5)).astype("f4"),
    "unit": _rng(4).uniform(-0.95, 0.95, (4, 5)).astype("f4"),
    "v": _rng(5).normal(size=5).astype("f4"),
    "w": np.sort(_rng(6).normal(size=7)).astype("f4"),
    "h": _rng(7).normal(size=(4, 5)).astype("f2"),
    "d": _rng(8).normal(size=(4, 5)),
    "sq": _rng(9).normal(size=(4, 4)).astype("f4"),
    "st": _rng(10).normal(size=(2, 3, 3)).astype("f4"),
    "half": np.array([-3.5, -2.5, -1.5, -0.5, -0.25, 0.0, 0.25, 0.5, 1.5, 2.5, 3.5, 4.75], "f4"),
    "nan": np.array([[1, np.nan, -3, np.inf], [np.nan, 2, -np.inf, 0], [4, 3, 2, 1]], "f4"),
    "z": np.array(2.5, "f4"),
    # integers
    "i": _rng(11).integers(-9, 10, (3, 4, 5)).astype("i4"),
    "j": _rng(12).integers(1, 10, (4, 5)).astype("i4"),
    "n": _rng(13).integers(-9, 10, (4, 5)).astype("i8"),
    "s": _rng(14).integers(-100, 100, (4, 5)).astype("i1"),
    "k": _rng(15).integers(-300, 300, (4, 5)).astype("i2"),
    "u": _rng(16).integers(0, 256, (4, 5)).astype("u1"),
    "q": _rng(17).integers(0, 60000, (4, 5)).astype("u2"),
    "idx": np.array([[2, 0, 3], [1, 1, -1]], "i4"),
    "col": np.array([[0, 4], [1, 3], [2, 2], [3, 1]], "i8"),
    # booleans
    "b": _rng(18).random((4, 5)) < 0.5,
    "c": _rng(19).random((4, 5)) < 0.5,
    "m": np.array([True, False, True, True]),
}

Case = tuple[str, Callable[..., Any], list[np.ndarray[Any, Any]]]
_NAME = re.compile(r"\b[a-z]\w*\b")


def case(text: str, **extra: Any) -> Case:
    """An expression of the arrays above as a function of those that it names; statements end with a semicolon."""
    names = [v for v in dict.fromkeys(_NAME.findall(re.sub(r"\.\w+|'[^']*'|\w+=", " ", text))) if v in ARRAYS]
    scope: dict[str, Any] = {"np": np, **extra}
    *steps, last = text.split("; ")
    body = "".join(f"    {step}\n" for step in steps)
    exec(f"def func({', '.join(names)}):\n{body}    return {last}\n", scope)
    return text, scope["func"], [ARRAYS[v].copy() for v in names]


def cases(text: str) -> list[Case]:
    """One case a line."""
    return [case(line.strip()) for line in text.strip().splitlines() if line.strip()]


def names(found: Iterable[Case]) -> list[str]:
    """Test names."""
    return [c[0].replace(" ", "") for c in found]


def flat(value: Any) -> list[Any]:
    """The arrays of a nested result."""
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flat(v)]
    return [value]


def agree(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-5) -> None:
    """Dtypes, shapes and numbers are those of numpy, dtypes narrowed."""
    got, want = flat(found), flat(expected)
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        right = np.asarray(y)
        left = x.numpy() if isinstance(x, TracedArray) else np.asarray(x)
        assert left.shape == right.shape
        assert narrow(left.dtype) == narrow(right.dtype)
        kind = narrow(right.dtype)
        if kind.kind == "f":
            few = 2e-3 if kind == np.float16 else 0
            np.testing.assert_allclose(
                left.astype("f8"), right.astype("f8"), rtol=max(rtol, few), atol=max(atol, few)
            )
        else:
            np.testing.assert_array_equal(left, right.astype(kind))


def expected(func: Callable[..., Any], inputs: list[np.ndarray[Any, Any]]) -> Any:
    """What numpy itself computes, on arrays of the narrowed dtypes' values."""
    with np.errstate(all="ignore"):
        return func(*(x.copy() for x in inputs))


def check(found: Case, rtol: float = 2e-5, atol: float = 2e-5) -> None:
    """The function of arrays that stand for a trace's gives what it gives of ndarrays."""
    _, func, inputs = found
    agree(func(*(TracedArray(x) for x in inputs)), expected(func, inputs), rtol, atol)


def _other(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Other numbers of the same kind: indices stay valid, what is sorted stays sorted."""
    if x.ndim < 2:
        return np.array(x * 2, x.dtype) if x.dtype.kind == "f" else x
    return np.flip(x, 0).copy()


def check_traced(found: Case, symbolic: bool, rtol: float = 2e-5, atol: float = 2e-5) -> None:
    """The same traced: the recorded call, and a later one that runs the compiled graph on other numbers."""
    from loadrun.tracing import trace

    _, func, inputs = found
    traced = trace(func, symbolic=symbolic, capture_as_const=True)
    agree(traced(*(x.copy() for x in inputs)), expected(func, inputs), rtol, atol)
    others = [_other(x) for x in inputs]
    agree(traced(*(x.copy() for x in others)), expected(func, others), rtol, atol)


def dump(found: Case, path: Path) -> list[Any]:
    """Trace a case, write its graph, and return what numpy computes for each output; nothing where none can be run."""
    _, func, inputs = found
    names = func.__code__.co_varnames[: func.__code__.co_argcount]
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(
        lambda *xs: [y for y in flat(func(*xs)) if isinstance(y, loadrun.Tensor)]
    )
    outs = traced(*(x.copy() for x in inputs))
    wanted = [y for y in flat(expected(func, inputs)) if isinstance(y, (np.ndarray, np.generic, int, float))]
    if not outs or any(not y.size for y in outs) or len(wanted) != len(outs):
        return []
    traced.dump(path, arg_names=[*names])
    return wanted


def feeds() -> dict[str, np.ndarray[Any, Any]]:
    """The arrays as a dump takes them."""
    with np.errstate(all="ignore"):
        return {n: np.atleast_1d(x.astype(narrow(x.dtype))) for n, x in ARRAYS.items()}


def shaped(found: Iterable[Any], wanted: Iterable[Any]) -> list[Any]:
    """Outputs of a dump, where a scalar has the shape ``[1]``, in numpy's shapes."""
    return [x.reshape(np.shape(y)) if x.size == 1 else x for x, y in zip(found, wanted, strict=True)]


def check_dumps(cases: list[Case], folder: Path) -> None:
    """The dumps of cases run on loadrun's engine, and give what numpy gives."""
    arrays, wrong, count = feeds(), {}, 0
    for found in some_of(cases, 8, lambda c: (re.findall(r"\w+(?=\()", c[0]) or [""])[0]):
        path = folder / "case.mge"
        if not (wanted := dump(found, path)):
            continue
        count += 1
        graph = loadrun.load(path).graph
        with np.errstate(all="ignore"):
            outs = ReferenceEngine(graph).run({v.name or "": arrays[v.name or ""] for v in graph.inputs})
        try:
            agree(shaped(outs, wanted), wanted, 5e-4, 5e-4)
        except AssertionError as error:
            wrong[found[0]] = str(error)
    assert count > 10
    assert not wrong


KNOWN = {
    "np.sort(nan)": "NaN is sorted anywhere",
    "np.hypot(f * 1e30, g * 1e30)": "the square of a quotient becomes a quotient of squares, which overflow",
}
"""Cases in which MegEngine 1.13.0 itself computes something else, and why."""


def check_in_megengine(cases: list[Case], folder: Path) -> None:
    """The dumps of all cases give in real MegEngine what they give in numpy."""
    files: dict[str, tuple[str, list[Any]]] = {}
    for i, found in enumerate(cases):
        path = folder / f"{i}.mge"
        if found[0] not in KNOWN and (wanted := dump(found, path)):
            files[str(path)] = found[0], wanted
    assert len(files) > 30
    feed = folder / "feed.npz"
    np.savez(feed, **feeds())
    results = oracle.run([Path(f) for f in files], "--feed", str(feed))
    wrong = {}
    for file, (text, wanted) in files.items():
        if results.get(file, {}).get("result") != "loaded":
            wrong[text] = str(results.get(file))
            continue
        with np.load(file + ".out.npz") as outs:
            got = [outs[f"out.{i}"] for i in range(len(wanted))]
        try:
            agree(shaped(got, wanted), wanted, 5e-4, 5e-4)
        except (AssertionError, ValueError) as error:
            wrong[text] = str(error)
    assert not wrong
