"""Sublinear memory: a plan made before execution says which values are dropped and recomputed.

The steps are divided into blocks. A value that outlives its block is dropped in its longest pause and computed again
before the reader that ends it, from the inputs of its block, which stay until then. The division into blocks is
searched: block sizes on a logarithmic and a linear scale, and sizes around the best. The method is that of MegEngine's
sublinear memory optimization (Chen et al., Training Deep Nets with Sublinear Memory Cost); every operator is executed
at most twice.
"""

from bisect import bisect_left
from collections import ChainMap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

from ..ops.infer import Inference
from ..ops.registry import Shape, implementation
from .liveness import peak_bytes, stored_bytes
from .program import Step
from .recompute_config import SublinearMemoryConfig

_SMALLEST = 16
"""The smallest block size in bytes that is tried."""
_TRIES = 64
"""How many recomputations are tried to be left out."""
_FLOPS_PER_BYTE = 4
"""Operations that take about the time of moving a byte."""

Division = tuple[int, ...]
"""The last step of every block."""


@dataclass(frozen=True, eq=False)
class SublinearPlan:
    """Steps with duplicates, and what they need.

    Attributes:
        steps: the program's steps and, marked `again`, those that are executed a second time.
        peak: the most bytes of intermediate values at once, as far as shapes are known.
        plain_peak: the same for the steps without the plan.
        cost: bytes moved by the second executions, operations converted.
    """

    steps: list[Step]
    peak: int
    plain_peak: int
    cost: float

    @property
    def recomputations(self) -> int:
        """The number of steps that are executed a second time."""
        return sum(s.again for s in self.steps)


def plan_sublinear(
    steps: Sequence[Step], known: Inference, keep: Collection[int], config: SublinearMemoryConfig
) -> SublinearPlan:
    """Find the steps with the lowest peak of intermediate values; equal inputs give equal plans.

    Args:
        steps: a program in order.
        known: shapes and operation counts for its input shapes; values of unknown shape count nothing.
        keep: variables that the caller wants.
        config: how much is searched.
    """
    planner = _Planner(steps, known, keep)
    if len(steps) < 3:
        return planner.build((), (), False).plan
    return _Searcher(planner, config).run()


@dataclass(frozen=True, eq=False)
class _Candidate:
    division: Division
    plan: SublinearPlan
    recomputed: frozenset[int]
    loose: bool

    @property
    def rank(self) -> tuple[int, float, int, Division]:
        return (self.plan.peak, self.plan.cost, len(self.division), self.division)


class _Planner:
    """Turns a division into blocks into a plan."""

    def __init__(self, steps: Sequence[Step], known: Inference, keep: Collection[int]) -> None:
        self.steps = steps
        self.known = known
        self.producer = {v: i for i, s in enumerate(steps) for v in s.writes}
        self.access: dict[int, list[int]] = {v: [i] for v, i in self.producer.items()}
        for i, s in enumerate(steps):
            for v in dict.fromkeys(s.needs):
                if v in self.access:
                    self.access[v].append(i)
        guards = {s.guard for s in steps if s.guard is not None}
        self.keep = frozenset(keep)
        self.stays = self.keep | guards
        self.fixed = [
            s.guard is not None or s.merges or implementation(s.call.opr.type).random for s in steps
        ]
        self.bytes = [stored_bytes(s, known.shapes) for s in steps]
        self.plain_peak = peak_bytes(steps, keep, known.shapes)
        self.first_new = 1 + max((*keep, *(v for s in steps for v in (*s.needs, *s.writes))), default=0)

    def divide(self, threshold: int) -> Division:
        """Divide into blocks that end where the values they leave behind reach a size."""
        ends = []
        inside: dict[int, int] = {}
        for i, s in enumerate(self.steps):
            inside.update(zip(s.writes, self.bytes[i], strict=True))
            for v in s.needs:
                if v in inside and self.access[v][-1] == i:
                    del inside[v]
            if sum(inside.values()) >= threshold:
                ends.append(i)
                inside.clear()
        if not ends or ends[-1] != len(self.steps) - 1:
            ends.append(len(self.steps) - 1)
        return tuple(ends)

    def best(self, division: Division) -> _Candidate:
        """Return the better one of the two plans for a division."""
        return min((self.build(division, (), loose) for loose in (False, True)), key=lambda c: c.rank)

    def build(self, division: Division, barred: Collection[int], loose: bool) -> _Candidate:
        """Build the plan for a division without dropping the values in `barred`.

        Args:
            loose: whether values are also dropped that a block ends with or that only the next block reads.
        """
        due: dict[int, list[int]] = {}
        gone: dict[int, tuple[int, int]] = {}
        for v, pause in self._pauses(division, loose):
            if v not in barred:
                gone[v] = pause
                due.setdefault(pause[1], []).append(v)
        if not gone:
            plain = SublinearPlan(list(self.steps), self.plain_peak, self.plain_peak, 0.0)
            return _Candidate(division, plain, frozenset(), loose)
        written = _Writer(self, division, gone)
        for i, s in enumerate(self.steps):
            for v in due.get(i, ()):
                written.again(v, i)
            written.copy(s)
        done = written.finish()
        shapes = ChainMap(written.shapes, self.known.shapes)
        peak = peak_bytes(done, self.keep, shapes)
        cost = sum(self.cost(i) for i, s in written.copies if s.again)
        plan = SublinearPlan(done, peak, self.plain_peak, cost)
        return _Candidate(division, plan, frozenset(gone), loose)

    def _pauses(self, division: Division, loose: bool) -> Iterable[tuple[int, tuple[int, int]]]:
        """Find values worth dropping, each with the reader before the pause and the one after it."""
        for v, access in self.access.items():
            producer = access[0]
            at = bisect_left(division, producer)
            if at == len(division) or v in self.stays or self.fixed[producer]:
                continue
            end = division[at]
            following = division[at + 1] if at + 1 < len(division) else end
            # The values at a block's end are the inputs of the next one.
            if (producer == end and not loose) or access[-1] <= end:
                continue
            pairs = [(b - a, a, b) for a, b in pairwise(access) if b > end and b - a > 1]
            if not pairs:
                continue
            _, before, after = max(pairs)
            if loose or after > following or before > end:
                yield v, (before, after)

    def cost(self, i: int) -> float:
        """Return what a step costs, in bytes moved."""
        s = self.steps[i]
        moved = sum(self.bytes[i]) + sum(
            self.bytes[self.producer[v]][self.steps[self.producer[v]].writes.index(v)]
            for v in s.reads
            if v in self.producer
        )
        return moved + self.known.flops.get(s.call.opr.id, 0) / _FLOPS_PER_BYTE


class _Writer:
    """Writes a program with duplicated steps."""

    def __init__(self, planner: _Planner, division: Division, gone: dict[int, tuple[int, int]]) -> None:
        self.p = planner
        self.division = division
        self.gone = gone
        self.steps: list[Step] = []
        self.shapes: dict[int, Shape] = {}
        self.copies: list[tuple[int, Step]] = []
        self.version: dict[int, int] = {}
        self.new = count(planner.first_new)

    def copy(self, s: Step) -> None:
        """Copy the next step of the program, reading what is there now."""
        reads = tuple(self.version.get(v, v) for v in s.reads)
        self.steps.append(s if reads == s.reads else replace(s, reads=reads))

    def again(self, v: int, now: int) -> None:
        """Compute a value a second time before step `now`, with what it takes from its block."""
        if v in self.version:
            return
        block = bisect_left(self.division, self.p.producer[v])
        chain: set[int] = set()
        stack = [v]
        while stack:
            i = self.p.producer[stack.pop()]
            if i not in chain:
                chain.add(i)
                stack += [w for w in self.p.steps[i].reads if self._to_compute(w, block, now)]
        for i in sorted(chain):
            self._duplicate(i, now)

    def _to_compute(self, v: int, block: int, now: int) -> bool:
        """Return whether a value must be computed a second time, too."""
        if v in self.version or v not in self.p.producer or self._is_alive(v, now):
            return False
        producer = self.p.producer[v]
        return not self.p.fixed[producer] and bisect_left(self.division, producer) == block

    def _is_alive(self, v: int, now: int) -> bool:
        """Return whether a value is alive at step `now` anyway."""
        if v in self.p.stays:
            return True
        before, after = self.gone.get(v, (now, now))
        return self.p.access[v][-1] >= now and not before < now <= after

    def _duplicate(self, i: int, now: int) -> None:
        s = self.p.steps[i]
        reads = tuple(self.version.get(v, v) for v in s.reads)
        writes = tuple(next(self.new) for _ in s.writes)
        for v, w in zip(s.writes, writes, strict=True):
            if v in self.p.known.shapes:
                self.shapes[w] = self.p.known.shapes[v]
            if v not in self.version and not self._is_alive(v, now):
                self.version[v] = w
        self.steps.append(replace(s, reads=reads, writes=writes, dying=(), again=True))
        self.copies.append((i, self.steps[-1]))

    def finish(self) -> list[Step]:
        """Return all steps but those whose results are not read before they are computed again: these only move."""
        first = dict(reversed(self.copies))
        needed = set(self.p.keep)
        kept: list[Step] = []
        for s in reversed(self.steps):
            producer = self.p.producer.get(s.writes[0], -1) if s.writes else -1
            if producer in first and not needed.intersection(s.writes):
                first[producer].again = False
            else:
                needed.update(s.needs)
                kept.append(s)
        return kept[::-1]


class _Searcher:
    """Tries divisions and keeps the best plan."""

    def __init__(self, planner: _Planner, config: SublinearMemoryConfig) -> None:
        self.planner = planner
        self.config = config
        self.tried: dict[Division, _Candidate] = {}
        self.sizes: dict[Division, int] = {}

    def run(self) -> SublinearPlan:
        """Return the best plan of all searches."""
        self._by_size()
        return self._with_less_work(self.best).plan

    @property
    def best(self) -> _Candidate:
        return min(self.tried.values(), key=lambda c: c.rank)

    def _try(self, divisions: Iterable[Division]) -> None:
        for division in divisions:
            if division not in self.tried:
                self.tried[division] = self.planner.best(division)

    def _try_sizes(self, sizes: Iterable[int]) -> None:
        for size in sizes:
            self.sizes.setdefault(self.planner.divide(size), size)
        self._try(list(self.sizes))

    def _by_size(self) -> None:
        whole = self.planner.plain_peak
        n = self.config.thresh_nr_try
        self._try([(len(self.planner.steps) - 1,)])
        self._try_sizes(whole >> k for k in range(1, whole.bit_length()) if whole >> k >= _SMALLEST)
        self._try_sizes(whole // (n + 1) * k for k in range(1, n + 1))
        best = self.sizes.get(self.best.division)
        if best is not None and n:
            start = best // 2
            step = (2 * best - start) / max(1, n - 1)
            self._try_sizes(int(start + step * k) for k in range(n))

    def _with_less_work(self, best: _Candidate) -> _Candidate:
        """Remove recomputations that do not lower the peak, or lower it below the bound."""
        allowed = max(best.plan.peak, self.config.lb_memory_mb << 20)
        barred: frozenset[int] = frozenset()
        weights = {v: -self.planner.cost(self.planner.producer[v]) for v in best.recomputed}
        for v in sorted(weights, key=lambda v: (weights[v], v))[:_TRIES]:
            candidate = self.planner.build(best.division, barred | {v}, best.loose)
            if candidate.plan.peak <= allowed and candidate.plan.cost <= best.plan.cost:
                best, barred = candidate, barred | {v}
        return best
