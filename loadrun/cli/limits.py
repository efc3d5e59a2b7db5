"""Options that say how near is near enough."""

from __future__ import annotations

import argparse

from ..base.errors import UsageError

__all__ = ["add_policy_option", "tolerances"]


def add_policy_option(p: argparse._ActionsContainer, what: str) -> None:
    """Add ``--check``, whose texts `loadrun.compare.policy.parse_all` takes (``args.check``)."""
    p.add_argument(
        "--check",
        metavar="[NAME:]TERMS",
        action="append",
        help='what an output must fulfil besides its tolerance, such as "prob: cosine>=0.9999, top1=1", "ids: exact" '
        f'or "x: rtol=1e-3, atol=1e-6"; {what}',
    )


def tolerances(given: list[str] | None) -> float | dict[str, float] | None:
    """Read ``--maxerr``: tolerances by output name, that of all others under the empty name.

    Raises:
        UsageError: no number, or two for one name.

    >>> tolerances(["a=0.5", "b:0=1e-3", "1e-6"])
    {'a': 0.5, 'b:0': 0.001, '': 1e-06}
    """
    if not given:
        return None
    found: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        name = name if equals else ""
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"--maxerr takes a number or NAME=NUMBER, found {text!r}") from None
        if name in found:
            raise UsageError(
                f"--maxerr gives two tolerances for {f'the output {name!r}' if name else 'all outputs'}"
            )
        found[name] = value
    return found[""] if list(found) == [""] else found
