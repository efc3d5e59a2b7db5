"""Models measured: load, first run and steady state apart, several in turns.

A runtime's threads wait actively after a run for the next one, and would take the processors from another engine that
is measured meanwhile: in one process that made engines 4 to 5 times slower than they are. So subjects of different
runtimes have processes of their own, rounds take turns, and a round ends when the threads of its process sleep.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ...base.errors import LoadRunError
from ...base.stages import tell
from ...engines.registry import known_elsewhere
from ...ops.numeric.parallel import set_threads, threads
from .measurement import Measurement, Subject
from .processes import SubjectProcess
from .ready import Preparation, ReadySubject

_LEAST = 5
_MOST = 100_000
_ROUNDS = 10
"""Rounds that the least time is divided into, where subjects have processes of their own."""
_QUIET = ("reference", "float64", "numba")
"""Engines whose threads sleep when idle."""


def run_subjects(
    subjects: Sequence[Subject],
    *,
    seconds: float = 3.0,
    passes: int = _LEAST,
    testcase: int | None = None,
    seed: int = 0,
    read: Mapping[str, Any] | None = None,
    failed: Callable[[Subject, LoadRunError | OSError], None] | None = None,
) -> list[Measurement]:
    """Measure subjects in turns, so that what changes meanwhile changes all of them.

    Args:
        subjects: what to measure.
        seconds: the least time for each of them.
        passes: the minimum number of passes for each of them.
        testcase: the only testcase to run, default all.
        seed: seed of random inputs, and of the order within rounds.
        read: options of `loadrun.load` for ONNX models: input_shapes, constants.
        failed: told of a subject that cannot be read or run; the others are measured. None raises the error.

    Returns:
        what was measured.

    Raises:
        LoadRunError: a file cannot be read or run.
    """
    before = threads()
    with ExitStack() as stack:
        stack.callback(set_threads, before)
        ready: list[ReadySubject | SubjectProcess] = []
        apart = len(subjects) > 1 and any(s.engine not in _QUIET for s in subjects)
        for s in subjects:
            plan = Preparation(s.threads or before, testcase, seed, read or {})
            try:
                if apart and known_elsewhere(s.engine):
                    ready.append(stack.enter_context(SubjectProcess(s, plan)))
                else:
                    ready.append(ReadySubject(s, plan))
            except (LoadRunError, OSError) as e:
                if failed is None:
                    raise
                failed(s, e)
        length = seconds / _ROUNDS if apart else 0.0
        order = random.Random(seed)
        while not all(_enough(r.measured, seconds, passes) for r in ready):
            for r in order.sample(ready, len(ready)):
                r.measured.add(*r.round(length))
                if apart:
                    r.settle()
            least = min((sum(r.measured.spans) for r in ready), default=0.0)
            tell(f"measuring {min(least / seconds, 1.0) if seconds else 1.0:.0%}")
    return [r.measured for r in ready]


def _enough(m: Measurement, seconds: float, passes: int) -> bool:
    return len(m.wall) >= _MOST or (len(m.wall) >= passes and sum(m.spans) >= seconds)
