"""The registry of lowerings for operators of torch's exported graphs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ..base.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
FAMILIES = tuple(
    """
    windows layers activation elementwise reduce shape index create resample linalg special quantized random
    """.split()
)


DATA_SIZED = frozenset({"aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"})
"""Operators whose lowering takes sizes from data although torch knows the shapes of their results."""


class UnsupportedCallError(Exception):
    """An operator that is lowered, but not with these arguments; the text says why and what to do instead."""


class DynamicSizeError(UnsupportedCallError):
    """An operator that is lowered where a size is known, but not for a dynamic one.

    Args:
        text: why, and what to do instead.
        symbols: the symbols of which the size is made.
    """

    def __init__(self, text: str, symbols: Iterable[Any]) -> None:
        super().__init__(text)
        self.symbols = frozenset(symbols)


@dataclass(frozen=True)
class OperatorLowering:
    """One row of the table of lowerings.

    Attributes:
        function: takes the `FxCall` and the operator's arguments, with tensors in place of torch's.
        family: its file or folder, or "yours" for one that a user registered.
    """

    function: Callable[..., Any]
    family: str


_HOMES = [f"{__package__}.lower.{family}" for family in FAMILIES]
_TABLE: Registry[str, OperatorLowering] = Registry("lowering of torch", _HOMES)
_YOURS: dict[str, OperatorLowering] = {}
"""Lowerings registered by users, which take precedence over loadrun's own."""


def aten(*targets: str) -> Callable[[F], F]:
    """Register a lowering for operators by torch's names, overload included.

    The function gets a `FxCall` (the node's context) and then the operator's own arguments; tensors among them
    are loadrun's, dynamic sizes are symbolic ints. It computes with
    `loadrun.layers` or numpy and returns a tensor, or a tuple where the operator returns one. A lowering of a
    custom operator is registered in the same way.

    Args:
        targets: such as ``"aten.relu.default"`` or ``"mylib.scale.default"``.

    >>> @aten("mylib.doubled.default")
    ... def doubled(call, x):
    ...     return x * 2
    >>> lowering_of("mylib.doubled.default").family
    'yours'
    """

    def register(func: F) -> F:
        module, package = func.__module__, f"{__package__}.lower."
        family = module.removeprefix(package).partition(".")[0]
        for target in targets:
            if module.startswith(package):
                _TABLE.add(target, OperatorLowering(func, family))
            else:
                _YOURS[target] = OperatorLowering(func, "yours")
        return func

    return register


def lowering_of(target: str) -> OperatorLowering | None:
    """Return the lowering of an operator, or None if there is none."""
    return _YOURS.get(target) or _TABLE.get(target)


def lowerings() -> Iterator[tuple[str, OperatorLowering]]:
    """List all operators that are lowered, with their lowerings, in the order of the families."""
    order = {f: i for i, f in enumerate((*FAMILIES, "yours"))}
    table = {**_TABLE, **_YOURS}
    yield from sorted(table.items(), key=lambda row: (order[row[1].family], row[0]))
