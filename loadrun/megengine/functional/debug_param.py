"""How MegEngine chooses among the algorithms of an operator: settings that are kept, though numpy has but one.

They are ``config.benchmark_kernel`` and ``config.deterministic_kernel`` under other names (MegEngine's
``functional/debug_param.py``).
"""

from __future__ import annotations

import warnings

from ...graph.params import Strategy
from ...tensors.switches import SWITCHES

__all__ = [
    "get_conv_execution_strategy",
    "get_execution_strategy",
    "set_conv_execution_strategy",
    "set_execution_strategy",
]


def get_execution_strategy() -> Strategy:
    """Return the strategy in force: HEURISTIC or PROFILE, with or without REPRODUCIBLE.

    >>> get_execution_strategy() == Strategy.HEURISTIC
    True
    """
    chosen = Strategy.PROFILE if SWITCHES.benchmark_kernel else Strategy.HEURISTIC
    return chosen | Strategy.REPRODUCIBLE if SWITCHES.deterministic_kernel else chosen


def set_execution_strategy(option: Strategy | str) -> None:
    """Choose a strategy; the results stay what they are.

    Args:
        option: a `Strategy`, or names of "HEURISTIC", "PROFILE" and "REPRODUCIBLE" joined by ``_``.

    Raises:
        AssertionError: the option is neither.
        ValueError: a name is none of these.

    >>> set_execution_strategy("PROFILE_REPRODUCIBLE")
    >>> get_execution_strategy() == Strategy.PROFILE | Strategy.REPRODUCIBLE
    True
    >>> set_execution_strategy("HEURISTIC")
    """
    chosen = option if isinstance(option, Strategy) else _strategy_of(option)
    SWITCHES.benchmark_kernel = Strategy.PROFILE in chosen
    SWITCHES.deterministic_kernel = Strategy.REPRODUCIBLE in chosen


def _strategy_of(option: str) -> Strategy:
    if not isinstance(option, str):
        raise AssertionError(
            f"a strategy is a Strategy or a name, found {type(option).__name__} {option!r:.60}"
        )
    known = {s.name: s for s in (Strategy.HEURISTIC, Strategy.PROFILE, Strategy.REPRODUCIBLE)}
    chosen = Strategy(0)
    for name in option.split("_"):
        if name not in known:
            raise ValueError(
                f"a strategy is made of {', '.join(map(str, known))} joined by '_'; found {option!r}"
            )
        chosen |= known[name]
    return chosen


def get_conv_execution_strategy() -> Strategy:
    """`get_execution_strategy` under its name before MegEngine 1.3."""
    _old("get")
    return get_execution_strategy()


def set_conv_execution_strategy(option: Strategy | str) -> None:
    """`set_execution_strategy` under its name before MegEngine 1.3."""
    _old("set")
    set_execution_strategy(option)


def _old(verb: str) -> None:
    warnings.warn(
        f"{verb}_conv_execution_strategy is the name before MegEngine 1.3, call {verb}_execution_strategy",
        DeprecationWarning,
        stacklevel=3,
    )
