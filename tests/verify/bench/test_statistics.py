"""Statistics on samples whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.replay.profiling import _least
from loadrun.verify.bench import Timing, needed
from loadrun.verify.bench.timing import Ratio, paired_ratio, ratio


def test_percentiles_need_samples() -> None:
    """The numbers are those of MLPerf's early stopping at 99 % confidence."""
    few, many = Timing(tuple(range(1, 64))), Timing(tuple(range(1, 664)))
    assert (few.percentile(50), few.percentile(90), few.percentile(99)) == (32, None, None)
    assert (many.percentile(50), many.percentile(90), many.percentile(99)) == (332, 597, 657)
    assert [needed(p) for p in (50, 90, 99, 99.9)] == [1, 64, 662, 6620]


def test_a_constant_ratio_has_no_width() -> None:
    found = paired_ratio([1.18 * t for t in (1.0, 2.0, 3.0, 4.0)], [1.0, 2.0, 3.0, 4.0])
    assert found.value == pytest.approx(1.18)
    assert found.low == pytest.approx(1.18)
    assert found.high == pytest.approx(1.18)
    assert found.text("b", "a") == "b is 1.18x [1.18, 1.18] faster than a"
    assert found.inverse.text("a", "b") == "a is 1.18x [1.18, 1.18] slower than b"


def test_rounds_cancel_what_slows_down_both() -> None:
    """The clock halves in the middle: the paired interval stays narrow, the unpaired one does not."""
    rng = np.random.default_rng(0)
    clock = np.repeat([1.0, 2.0], 50)
    a, b = clock * 1.2, clock * rng.normal(1, 0.01, 100)
    paired, apart = paired_ratio(a, b), ratio(a, b)
    assert paired.low < 1.2 < paired.high
    assert paired.high - paired.low < 0.1
    assert apart.high - apart.low > 5 * (paired.high - paired.low)


def test_the_interval_holds_the_truth() -> None:
    """Of 200 pairs of samples with a ratio of medians of 1.5 at least 90 % of the 95 % intervals hold it."""
    rng = np.random.default_rng(1)
    held = 0
    for i in range(200):
        a, b = 1.5 * rng.lognormal(0, 0.2, 60), rng.lognormal(0, 0.2, 60)
        found = ratio(a, b, seed=i)
        held += found.low <= 1.5 <= found.high
    assert 180 <= held <= 200


def test_no_difference_is_told_as_none() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(1, 0.1, 40), rng.normal(1, 0.1, 40)
    found = ratio(a, b)
    assert not found.told
    assert "do not differ measurably" in found.text("b", "a")
    assert Ratio(0.5, 0.4, 0.6).text("b", "a") == "b is 2.00x [1.67, 2.50] slower than a"


def test_the_share_of_a_processor() -> None:
    assert Timing((2.0, 2.0), processor=(1.0, 2.0)).share == 0.75


def test_operators_count_with_their_least_time() -> None:
    def profile(**seconds: float) -> dict[str, object]:
        times = {k: {"cpu": {"start": 1.0, "kern": 1.0, "end": 1.0 + s}} for k, s in seconds.items()}
        return {"profiler": {"device": times, "host": {}}}

    found = _least([profile(a=0.5, b=2.0), profile(a=4.0, b=0.25), profile(a=1.0, b=1.0)])
    took = {k: t["cpu"]["end"] - t["cpu"]["start"] for k, t in found["profiler"]["device"].items()}
    assert took == {"a": 0.5, "b": 0.25}
