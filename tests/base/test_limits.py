"""Limits of time."""

import math
import signal

import pytest

from loadrun.base.errors import TimeLimitError
from loadrun.base.limits import time_limited

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="time limits take a POSIX system")


def test_time_that_is_up_at_any_moment() -> None:
    before = signal.getsignal(signal.SIGALRM)
    ended = 0
    for i in range(2000):
        try:
            with time_limited((1e-9, 1e-6, 1e-5, 3e-5, 1e-4)[i % 5]):
                sum(range(i % 7 * 300))
        except TimeLimitError:
            ended += 1
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert ended


@pytest.mark.parametrize("seconds", [1e300, math.inf])
def test_more_time_than_a_timer_counts(seconds: float) -> None:
    with time_limited(seconds):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 1e6
