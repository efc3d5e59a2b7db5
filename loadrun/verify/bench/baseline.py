"""What was measured beside what was measured some time ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.errors import InputError
from ...base.text import clean
from .comparing import ratio
from .environment import environment
from .running import Measurement

__all__ = ["VERSION", "Regression", "regressions"]

VERSION = 1
"""Version of the files that baselines stand in."""


@dataclass(frozen=True)
class Regression:
    """A subject beside its baseline.

    Attributes:
        text: one line.
        failed: whether it is slower than allowed.
        compared: whether the baseline has it.
    """

    text: str
    failed: bool
    compared: bool = True


def regressions(
    found: Sequence[Measurement], baseline: Mapping[str, Any], allowed: float
) -> list[Regression]:
    """Compare with what `loadrun.report.benchmark.benchmark_json` gave some time ago.

    A subject fails when its median is slower by more than `allowed` and the 95 % interval of the ratio says that it is
    slower at all.

    Args:
        found: what was measured.
        baseline: the data of the baseline.
        allowed: the largest slowdown, 0.1 for 10 %.

    Raises:
        InputError: the baseline holds none of the subjects, or is none.
    """
    if baseline.get("benchmark") != VERSION or not isinstance(baseline.get("subjects"), list):
        raise InputError("the baseline is not a file of `loadrun bench --save-baseline`")
    subjects = [m.subject for m in found]
    known = {tuple(s[k] for k in m.subject.key): s for m in found for s in baseline["subjects"]}
    lines = []
    for m in found:
        label = clean(m.subject.label(subjects), 80)
        was = known.get(tuple(m.subject.key.values()))
        if was is None:
            lines.append(Regression(f"{label}: not compared, it is not in the baseline", False, False))
            continue
        speed = ratio(was["wall_seconds"], m.wall)
        slower = 1 / speed.value - 1
        failed = slower > allowed and speed.high < 1
        verdict = f"FAIL: {slower:.1%} slower, allowed {allowed:.0%}" if failed else "ok"
        lines.append(Regression(f"{speed.text(label, 'its baseline')}: {verdict}", failed))
    if not any(line.compared for line in lines):
        raise InputError(
            "the baseline holds none of what was measured: same file name, engine, threads and batch"
        )
    was_there = baseline.get("environment", {}).get("processor")
    here = environment()["processor"]
    if was_there != here:
        lines.append(
            Regression(f"the baseline was measured on another processor: {was_there}, here {here}", False)
        )
    return lines
