"""Dataclasses of `loadrun.base.records` behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from loadrun.base import records


def _classes(dataclass: Any) -> dict[str, type]:
    @dataclass
    class Plain:
        """Has everything that fields can be."""

        shared: ClassVar[int] = 7
        a: int
        b: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False, compare=False)
        late: int = field(default=0, kw_only=True)
        derived: str = field(default="d", init=False)
        unset: int = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            self.derived += str(self.a)

    @dataclass(frozen=True)
    class Frozen:
        """Cannot be changed."""

        a: int
        b: tuple[int, ...] = ()

    @dataclass(frozen=True)
    class Child(Frozen):
        """Has a field more."""

        c: int = 5

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Named:
        """Takes names only, and is equal to itself alone."""

        a: int = 1
        b: int

    @dataclass(slots=True)
    class Slots:
        """Has no dictionary."""

        a: int = 1
        b: dict[str, int] = field(default_factory=dict)

    @dataclass(frozen=True)
    class Own:
        """Has methods of its own."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __hash__(self) -> int:
            return 11

        def __repr__(self) -> str:
            return "own"

    return {c.__name__: c for c in (Plain, Frozen, Child, Named, Slots, Own)}


OURS, THEIRS = _classes(records.dataclass), _classes(dataclasses.dataclass)
EXPRESSIONS = """
Plain(1)
Plain(1, [2], 4, late=5)
Plain(1) == Plain(1, hidden=9)
Plain(1) == Plain(2)
Plain(1) == 1
Plain(1).b is Plain(1).b
Plain(1, derived='x')
Plain()
Plain(1, 2, 3, 4)
hash(Plain(1))
Plain.shared
Plain(1).unset
dataclasses.replace(Plain(1), a=2)
dataclasses.asdict(Frozen(1))
[f.name for f in dataclasses.fields(Plain)]
Frozen(1)
hash(Frozen(1, (2,)))
{Frozen(1): 2}[Frozen(1)]
Frozen(1) == Child(1)
setattr(Frozen(1), 'a', 2)
setattr(Frozen(1), 'new', 2)
delattr(Frozen(1), 'a')
Child(1)
Child(1, c=2) == Child(1, (), 2)
setattr(Child(1), 'c', 2)
dataclasses.replace(Child(1), c=9)
Named(1, 2)
Named(b=2)
Named(b=2) == Named(b=2)
Slots()
Slots(2, {'a': 1}) == Slots(2, {'a': 1})
setattr(Slots(), 'c', 1)
Slots.__slots__
copy.deepcopy(Slots(3))
Own(1)
Own(1) == Own(2), hash(Own(1))
[str(inspect.signature(c)) for c in (Plain, Frozen, Child, Named, Slots, Own)]
"""


def outcome(expression: str, classes: dict[str, type]) -> str:
    """What an expression gives, or the class of its error and, for calls, what it says."""
    try:
        return repr(
            eval(expression, {"dataclasses": dataclasses, "copy": copy, "inspect": inspect, **classes})
        )
    except TypeError as e:
        return str(e)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("expression", EXPRESSIONS.strip().splitlines())
def test_they_do_what_those_of_the_standard_library_do(expression: str) -> None:
    assert outcome(expression, OURS) == outcome(expression, THEIRS)


@records.dataclass(frozen=True)
class Kept:
    """Is found by pickle."""

    a: int
    b: Any = None


def test_they_are_copied_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, [2]))) == Kept(1, [2])
    assert copy.copy(Kept(1)) == Kept(1)


def test_one_that_holds_itself_is_shown() -> None:
    kept = Kept(1, [])
    kept.b.append(kept)
    assert repr(kept) == "Kept(a=1, b=[...])"
