"""Strategies are settings, with the names and values that MegEngine's documentation gives them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loadrun.graph.params import Strategy
from loadrun.megengine import config
from loadrun.megengine.functional import debug_param


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    yield
    debug_param.set_execution_strategy("HEURISTIC")


@pytest.mark.parametrize(
    ("name", "strategy", "settings"),
    [
        ("HEURISTIC", 1, (False, False)),
        ("PROFILE", 2, (True, False)),
        ("HEURISTIC_REPRODUCIBLE", 5, (False, True)),
        ("PROFILE_REPRODUCIBLE", 6, (True, True)),
    ],
)
def test_names_and_settings(name: str, strategy: int, settings: tuple[bool, bool]) -> None:
    debug_param.set_execution_strategy(name)
    assert debug_param.get_execution_strategy() == strategy
    assert (config.benchmark_kernel, config.deterministic_kernel) == settings
    debug_param.set_execution_strategy("HEURISTIC")
    debug_param.set_execution_strategy(Strategy(strategy))
    assert debug_param.get_execution_strategy() == strategy


def test_what_is_no_strategy() -> None:
    with pytest.raises(ValueError, match="found 'PROFILE_FAST'"):
        debug_param.set_execution_strategy("PROFILE_FAST")
    with pytest.raises(AssertionError, match="found int 2"):
        debug_param.set_execution_strategy(2)  # type: ignore[arg-type]


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="set_execution_strategy"):
        debug_param.set_conv_execution_strategy("PROFILE")
    with pytest.warns(DeprecationWarning, match="get_execution_strategy"):
        assert debug_param.get_conv_execution_strategy() == Strategy.PROFILE
