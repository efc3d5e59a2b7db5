"""Every call that real MegEngine answered gives the same dtypes, shapes and numbers here, eagerly and traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import loadrun
from fixtures.functional._case import Case, arrays
from tests.support.cases import WHOLE, check_all, in_groups
from tests.support.recorded import (
    ERRORS,
    FAMILIES,
    TRACED,
    VALUES,
    Recorded,
    cases,
    check_values,
    family_of,
    name_of,
    recorded,
    some_calls,
)


def run(function: Callable[..., Any], case: Case) -> list[np.ndarray]:
    return arrays(function(*[loadrun.tensor(x) for x in case.inputs]))


def test_every_family_is_recorded() -> None:
    assert FAMILIES
    for family in FAMILIES:
        for case in cases(family):
            key = f"{case.id}.error" if case.raises else f"{case.id}.0"
            assert key in recorded(family), f"{family}: {case.id} is not recorded"


@pytest.mark.parametrize("some", in_groups(VALUES, family_of))
def test_eager(some: list[Recorded]) -> None:
    check_all(some, eager, name_of)


def eager(one: Recorded) -> None:
    family, case = one
    check_values(family, case, run(case.make(loadrun.megengine), case))


@pytest.mark.parametrize("symbolic", [False, True], ids=["recorded", "symbolic"])
@pytest.mark.parametrize("some", in_groups(TRACED, family_of))
def test_traced(some: list[Recorded], symbolic: bool) -> None:
    """The first call records, the second runs the compiled graph."""
    # Symbolic tracing is the way of dumps; the other does the same but for the first call.
    chosen = some_calls(some)
    check_all(chosen if symbolic or WHOLE else chosen[::4], partial(traced, symbolic), name_of)


def traced(symbolic: bool, one: Recorded) -> None:
    family, case = one
    function = loadrun.tracing.trace(symbolic=symbolic)(case.make(loadrun.megengine))
    for _ in range(2):
        check_values(family, case, run(function, case))


@pytest.mark.parametrize("some", in_groups(ERRORS, family_of))
def test_errors(some: list[Recorded]) -> None:
    """The same class as MegEngine's, or one derived from it."""
    check_all(some, fails, name_of)


def fails(one: Recorded) -> None:
    family, case = one
    want = str(recorded(family)[f"{case.id}.error"])
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(case.make(loadrun.megengine), case)
    assert want in {kind.__name__ for kind in type(caught.value).__mro__}, repr(caught.value)
