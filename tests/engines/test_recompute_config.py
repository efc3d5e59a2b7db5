from __future__ import annotations

import inspect
import os
from typing import Any

import pytest

from loadrun.base.errors import UsageError
from loadrun.engines.recompute import (
    DTRConfig,
    SublinearMemoryConfig,
    parse_bytes,
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
