"""Calls that real MegEngine answered: its answers, and what a result must be to equal them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fixtures.functional._case import Case
from tests.support.cases import some_of

ROOT = Path(__file__).resolve().parents[2]

FOLDER = ROOT / "fixtures" / "functional"
FAMILIES = sorted(p.name.removesuffix("_cases.py") for p in FOLDER.glob("*_cases.py"))


@cache
def recorded(family: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{family}.npz") as file:
        return {key: file[key] for key in file}


def cases(family: str) -> list[Case]:
    found: list[Case] = importlib.import_module(f"fixtures.functional.{family}_cases").CASES
    return found


ALL = [(family, case) for family in FAMILIES for case in cases(family)]
VALUES = [one for one in ALL if one[1].raises is None]
ERRORS = [one for one in ALL if one[1].raises is not None]
# In a graph MegEngine raises the absolute value to a stored power, where its eager result has none.
GRAPHS_DIFFER = ("ipow-float-to-int",)
TRACED = [one for one in VALUES if one[1].traceable and one[1].id not in GRAPHS_DIFFER]

Recorded = tuple[str, Case]
"""The family of a recorded call, and the call."""


def family_of(one: Recorded) -> str:
    return one[0]


def some_calls(calls: Iterable[Recorded]) -> list[Recorded]:
    """A part of a family's calls, with every function; the calls of promotion differ in dtypes alone."""
    found = [*calls]
    if found and family_of(found[0]) == "promotion":
        return some_of(found, 12)
    return some_of(found, 4, lambda one: one[1].id.partition("-")[0])


def name_of(one: Recorded) -> str:
    return f"{one[0]}-{one[1].id}"


def expected(family: str, case: Case) -> list[np.ndarray]:
    """What MegEngine answered; quantized arrays are their stored integers."""
    store = recorded(family)
    found: list[np.ndarray] = []
    while f"{case.id}.{len(found)}" in store:
        found.append(store[f"{case.id}.{len(found)}"])
    assert found, f"nothing recorded for {case.id}"
    return found


def check_values(family: str, case: Case, got: list[np.ndarray]) -> None:
    want = expected(family, case)
    assert len(got) == len(want)
    for n, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape, f"output {n}: shape {a.shape}, MegEngine {b.shape}"
        assert a.dtype == b.dtype, f"output {n}: dtype {a.dtype}, MegEngine {b.dtype}"
        kind = recorded(family).get(f"{case.id}.{n}.dtype")
        if kind is not None:
            check_dtype(a.dtype, json.loads(str(kind)), n)
        if b.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b, err_msg=f"output {n}")
            continue
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        with np.errstate(all="ignore"):
            error = np.abs(x - y) / np.maximum(1, np.minimum(np.abs(x), np.abs(y)))
        worst = np.max(np.where(same, 0, error), initial=0)
        assert worst <= case.maxerr, f"output {n}: error {worst} > {case.maxerr}\n{a}\n{b}"


def check_dtype(found: np.dtype[Any], kind: dict[str, Any], n: int) -> None:
    """A quantized dtype carries MegEngine's description: its name, scale and zero point."""
    ours = (found.metadata or {}).get("mgb_dtype")
    assert ours is not None, f"output {n}: {found} is not quantized, MegEngine {kind}"
    assert ours["name"] == kind["name"]
    assert np.float32(ours["scale"]) == np.float32(kind["scale"])
    assert ours.get("zero_point") == kind.get("zero_point")
