from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

from loadrun.base.errors import UsageError
from loadrun.engines.recompute_config import (
    DTRConfig,
    SublinearMemoryConfig,
    parse_bytes,
    sublinear_from_environment,
)


def signature(config: type) -> dict[str, Any]:
    return {n: p.default for n, p in inspect.signature(config).parameters.items()}


def test_signatures_are_those_of_megengine() -> None:
    assert signature(DTRConfig) == {
        "eviction_threshold": 0,
        "evictee_minimum_size": 1048576,
        "recomp_memory_factor": 1,
        "recomp_time_factor": 1,
    }
    assert signature(SublinearMemoryConfig) == {
        "thresh_nr_try": 10,
        "genetic_nr_iter": 0,
        "genetic_pool_size": 20,
        "lb_memory_mb": 0,
        "num_worker": max(1, (os.cpu_count() or 1) // 2),
    }


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 << 30), ("1.5kb", 1536), ("7 b", 7), ("2 Mb", 2 << 20), (12, 12), ("0.5GB", 1 << 29)],
)
def test_sizes(text: int | str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "5", "5TB", "1KB 2KB", "GB"])
def test_sizes_without_one_unit(text: str) -> None:
    with pytest.raises(ValueError, match="must be one number with a unit B, KB, MB or GB"):
        parse_bytes(text)


@pytest.mark.parametrize("size", [1.5, None, True])
def test_sizes_of_another_type(size: Any) -> None:
    with pytest.raises(TypeError, match="eviction_threshold must be a number of bytes or a text"):
        DTRConfig(size)


@pytest.mark.parametrize("kind", [AssertionError, ValueError, UsageError])
def test_the_default_threshold_is_refused_as_in_megengine(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="eviction_threshold must be greater than zero"):
        DTRConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evictee_minimum_size", -1),
        ("recomp_memory_factor", -0.1),
        ("recomp_time_factor", -1),
        ("recomp_time_factor", float("nan")),
    ],
)
def test_dtr_settings_outside_their_range(name: str, value: float) -> None:
    with pytest.raises(AssertionError, match=f"{name} must be greater or equal to zero"):
        DTRConfig(1, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("thresh_nr_try", -1), ("genetic_nr_iter", -1), ("genetic_pool_size", -1), ("num_worker", 0)],
)
def test_sublinear_settings_outside_their_range(name: str, value: int) -> None:
    with pytest.raises(AssertionError, match=f"{name} must be greater or equal to"):
        SublinearMemoryConfig(**{name: value})


def test_the_environment_goes_before_the_arguments() -> None:
    given = SublinearMemoryConfig(7, 1, 5, 3, 2)
    assert vars(given.resolve({})) == {
        "thresh_nr_try": 7,
        "genetic_nr_iter": 1,
        "genetic_pool_size": 5,
        "lower_bound": 3 << 20,
        "workers": 2,
    }
    env = {
        "MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY": "1",
        "MGB_SUBLINEAR_MEMORY_GENETIC_NR_ITER": "2",
        "MGB_SUBLINEAR_MEMORY_GENETIC_POOL_SIZE": "3",
        "MGB_SUBLINEAR_MEMORY_LOWER_BOUND_MB": "4",
        "MGB_SUBLINEAR_MEMORY_WORKERS": "5",
    }
    assert list(vars(given.resolve(env)).values()) == [1, 2, 3, 4 << 20, 5]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"THRESH_NR_TRY": "many"}, "THRESH_NR_TRY must be a whole number, found 'many'"),
        ({"GENETIC_NR_ITER": "-2"}, "GENETIC_NR_ITER must be greater or equal to zero"),
        ({"WORKERS": "0"}, "WORKERS must be at least 1"),
        ({"GENETIC_NR_ITER": "1", "GENETIC_POOL_SIZE": "0"}, "genetic_pool_size of at least 1"),
    ],
)
def test_unusable_environments(env: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SublinearMemoryConfig().resolve({f"MGB_SUBLINEAR_MEMORY_{k}": v for k, v in env.items()})


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("", False),
        ("enable_sublinear_memory_opt=1", True),
        ("a=2;enable_sublinear_memory_opt=1", True),
        ("enable_sublinear_memory_opt=0", False),
        ("enable_sublinear_memory_opt=10", False),
    ],
)
def test_what_the_environment_asks_for(text: str, asked: bool) -> None:
    assert (sublinear_from_environment({"MGB_COMP_GRAPH_OPT": text}) is not None) is asked
