"""Enumerations of `loadrun.base.enums` behave as those of the standard library."""

from __future__ import annotations

import copy
import enum
import pickle
from typing import Any

import pytest

from loadrun.base import enums


def _classes(flag: Any, integers: Any) -> dict[str, Any]:
    class Colour(integers):
        """Has a second name for a number."""

        RED = 0
        BLUE = 3
        AZURE = 3

    class Trait(flag):
        """Has bits."""

        NONE = 0
        QUICK = enum.auto()
        SMALL = enum.auto()
        LOUD = enum.auto()

    return {"Colour": Colour, "Trait": Trait}


OURS, THEIRS = _classes(enums.Flag, enums.IntEnum), _classes(enum.Flag, enum.IntEnum)
EXPRESSIONS = """
Colour(3), Colour(0).name, Colour['AZURE'].name, Colour(Colour.RED)
Colour(3) is Colour.BLUE is Colour.AZURE
Colour(7)
Colour([])
Colour['GREEN']
Colour.GREEN
[*Colour], len(Colour), list(Colour.__members__)
repr(Colour.BLUE), '%d' % Colour.BLUE
Colour.BLUE == 3, Colour.BLUE > Colour.RED, hash(Colour.BLUE) == hash(3), {3: 1}[Colour.BLUE]
Colour.BLUE in Colour, isinstance(Colour.BLUE, Colour), isinstance(3, Colour)
Colour.BLUE + 1, bool(Colour.RED), [1, 2, 3, 4][Colour.BLUE]
copy.copy(Colour.BLUE) is Colour.BLUE, copy.deepcopy(Colour.BLUE) is Colour.BLUE
[t.value for t in Trait if t.value], [t.name for t in Trait if t.value]
(Trait.QUICK | Trait.LOUD).value
Trait.QUICK in Trait.QUICK | Trait.LOUD, Trait.SMALL in Trait.QUICK | Trait.LOUD, Trait.NONE in Trait.QUICK
bool(Trait.QUICK & Trait.LOUD), bool(Trait.QUICK & (Trait.LOUD | Trait.QUICK)), bool(Trait.NONE)
(Trait.QUICK | Trait.LOUD) == (Trait.LOUD | Trait.QUICK)
"""


def outcome(expression: str, classes: dict[str, Any]) -> str:
    """What an expression gives, or the class of its error and what it says."""
    try:
        return repr(eval(expression, {"copy": copy, **classes}))
    except Exception as e:
        return f"{type(e).__name__}: {str(e).partition('<locals>.')[2]}"


@pytest.mark.parametrize("expression", EXPRESSIONS.strip().splitlines())
def test_they_do_what_those_of_the_standard_library_do(expression: str) -> None:
    assert outcome(expression, OURS) == outcome(expression, THEIRS)


def test_they_are_shown_as_numbers() -> None:
    """As those of Python 3.11 and later are."""
    assert f"{OURS['Colour'].BLUE} {OURS['Colour'].RED!s}" == "3 0"


class Kept(enums.IntEnum):
    """Is found by pickle."""

    ONE = 1


def test_members_stay_themselves_when_they_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept.ONE)) is Kept.ONE
