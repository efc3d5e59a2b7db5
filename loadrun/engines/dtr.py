"""Dynamic tensor rematerialization: values are evicted while memory is short and recomputed on demand.

`DTRProgram` executes steps as usual and counts the bytes that its intermediate values own. Where they would exceed
the threshold it drops the memory whose loss costs least by MegEngine's measure (its graph-level DTR):

    recompute time ** time factor * recompute memory ** memory factor / (size * distance to the next use)

Recompute time includes the values that would have to come back first, times the number of lost values that would
need this one. What is missing when a step needs it is computed again in the program's own order; so the values held
meanwhile were also held together in the ordinary run, and the peak stays within what that run takes (or the threshold,
or what may not be evicted).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..graph.dtypes import Array
from ..ops.infer import Inference
from ..ops.registry import implementation
from .liveness import predict_shares
from .program import Observer, Program, Step, donatable, root, run_step
from .recompute_config import DTRConfig

if TYPE_CHECKING:
    from ..ops.numeric.stream import RandomNumbers

_ABSENT = np.empty(0, np.bool_)
_FLOPS_PER_BYTE = 4
"""Operations that take about the time of moving a byte."""


@dataclass
class DTRCounts:
    """Counts of what the last run did.

    Attributes:
        evictions: pieces of memory that were dropped.
        recomputations: executions of operators beyond the first.
        peak: the most bytes of intermediate values at once, as the executor counts them.
        plain_peak: the same without evictions.
    """

    evictions: int = 0
    recomputations: int = 0
    peak: int = 0
    plain_peak: int = 0


class DTRProgram(Program):
    """A program that keeps its intermediate values below a threshold where it can.

    Args:
        program: steps with `dying` marked, and constants.
        keep: variables that the caller wants; they are evicted only where others could not come back within the
            ordinary run's memory, and are there in the end.
        known: shapes and operation counts for the program's input shapes.
        config: threshold and factors.
    """

    def __init__(self, program: Program, keep: Collection[int], known: Inference, config: DTRConfig) -> None:
        super().__init__(program.steps, program.constants)
        self.keep = frozenset(keep)
        self.config = config
        self.known = known
        self.counts = DTRCounts()
        self.producer = {v: i for i, s in enumerate(self.steps) for v in s.writes}
        self.uses: dict[int, list[int]] = {}
        for i, s in enumerate(self.steps):
            for v in dict.fromkeys(s.needs):
                self.uses.setdefault(v, []).append(i)
        for v in self.keep:
            self.uses.setdefault(v, []).append(len(self.steps))
        # Random results would differ, and values that depend on branches may be missing.
        self.fixed = [
            s.guard is not None or s.merges or implementation(s.call.opr.type).random for s in self.steps
        ]
        self.any_fixed = any(self.fixed)
        self.guards = frozenset(s.guard for s in self.steps if s.guard is not None)

    def execute(
        self,
        values: dict[int, Array],
        rng: RandomNumbers | None,
        observe: Observer | None = None,
        every: Observer | None = None,
    ) -> None:
        """Run the steps; `counts` tells what was done, `every` also sees executions beyond the first."""
        run = _Execution(self, values, rng, every)
        for i, s in enumerate(self.steps):
            run.now = i
            if s.guard is None or (s.guard in values and values[s.guard].any()):
                run.step(i)
                if observe is not None:
                    observe(s.call.opr, [values[v] for v in s.writes])
                if every is not None:
                    every(s.call.opr, [values[v] for v in s.writes])
            run.leave(i)
        run.bring_back(self.keep)
        self.counts = run.counts


@dataclass(eq=False)
class _Memory:
    """A piece of memory: its bytes and the variables that live in it."""

    size: int
    vars: set[int] = field(default_factory=set)


class _Execution:
    """The state of one execution."""

    def __init__(
        self, program: DTRProgram, values: dict[int, Array], rng: RandomNumbers | None, every: Observer | None
    ) -> None:
        self.p = program
        self.producer = program.producer
        self.values = values
        self.rng = rng
        self.every = every
        self.now = 0
        self.live = 0
        self.plain_live = 0
        self.counts = DTRCounts()
        self.memory: dict[int, _Memory] = {}
        self.place: dict[int, _Memory] = {}
        self.done = [False] * len(program.steps)
        self.cost = [0.0] * len(program.steps)
        self.size: dict[int, int] = {}
        self.view_of: dict[int, int] = {}
        self.strided: set[int] = set()
        self.evicted: set[int] = set()
        self.deferred: set[int] = set()
        self.plain: dict[int, _Memory] = {}

    # Steps

    def step(self, i: int) -> None:
        """Execute a step for the first time, with everything that it needs brought back."""
        s = self.p.steps[i]
        self.bring_back(s.needs)
        self.compute(i, s.dying, {*s.needs, *s.writes})
        self.plain_live += self._settle(s, self.plain, s.dying)
        self.counts.plain_peak = max(self.counts.plain_peak, self.plain_live)

    def compute(self, i: int, dying: Collection[int], pinned: Collection[int]) -> None:
        """Execute a step whose inputs are there; `dying` are inputs that are not needed afterwards."""
        s = self.p.steps[i]
        args = [self.values.get(v, _ABSENT) if s.merges else self.values[v] for v in s.reads]
        free = [v for v in dict.fromkeys(s.reads) if v in dying and v not in self.deferred and self._alone(v)]
        strided = [v for v in s.reads if v in self.values and not self.values[v].flags.c_contiguous]
        shares = predict_shares(s, self.p.known.shapes, free, strided)
        self.free_memory(sum(x.size for x in shares), pinned)
        self.hold(dying)
        free = [v for v in free if v not in self.deferred]
        donated = [self.values[v] for v in free]
        outs = run_step(s, args, donated, self.rng)
        left = {id(a) for a in donated}
        taken = {v for v in free if id(self.values[v]) not in left}
        roots = {id(root(a)): v for v, a in zip(s.reads, args, strict=True)}
        moved = sum(a.nbytes for a in args)
        for v, out in zip(s.writes, outs, strict=True):
            moved += out.nbytes
            self._put(v, out, roots, taken)
            roots.setdefault(id(root(out)), v)
        self.cost[i] = float(moved + self.p.known.flops.get(s.call.opr.id, 0) / _FLOPS_PER_BYTE)
        self.done[i] = True
        self.counts.peak = max(self.counts.peak, self.live)

    def _alone(self, v: int) -> bool:
        """Return whether a value owns its memory and a kernel may write into it."""
        place = self.place.get(v)
        return place is not None and len(place.vars) == 1 and donatable(self.values[v])

    def _put(self, v: int, out: Array, roots: Mapping[int, int], taken: Collection[int]) -> None:
        base = root(out)
        key = id(base)
        self.values[v] = out
        self.evicted.discard(v)
        self.size[v] = base.nbytes if isinstance(base, np.ndarray) else 0
        if out.flags.c_contiguous:
            self.strided.discard(v)
        else:
            self.strided.add(v)
        if key in roots:
            # Its size where it cannot live in its input's memory.
            self.size[v] = out.nbytes
            if roots[key] not in taken:
                self.view_of[v] = roots[key]
        place = self.memory.get(key)
        if place is None:
            if key in roots or not isinstance(base, np.ndarray):
                return
            place = self.memory[key] = _Memory(base.nbytes)
            self.live += base.nbytes
        place.vars.add(v)
        self.place[v] = place

    def drop(self, v: int) -> None:
        """Let go of a value; its memory goes with its last variable."""
        array = self.values.pop(v, None)
        self.evicted.discard(v)
        place = self.place.pop(v, None)
        if array is None or place is None:
            return
        place.vars.discard(v)
        if not place.vars:
            self.live -= place.size
            del self.memory[id(root(array))]

    def leave(self, i: int) -> None:
        """Drop, after a step, the values that the rest of the program does not read."""
        s = self.p.steps[i]
        self.plain_live -= _vacate(self.plain, s.dying)
        self.now = i + 1
        self.hold(s.dying)
        for v in s.dying:
            # Fed values stay: others may have to be computed again from them.
            if v in self.producer and v not in self.deferred:
                self.drop(v)
        if self.deferred:
            wanted = self._needed_to_return()
            for v in [v for v in self.deferred if v not in wanted]:
                self.deferred.discard(v)
                self.drop(v)

    def hold(self, dying: Iterable[int]) -> None:
        """Keep dying values that could not come back and without which evicted ones could not either."""
        if not self.p.any_fixed or not self.evicted:
            return
        gone: set[int] = set()
        for v in dying:
            if v not in self.values or v not in self.producer:
                continue
            if v in self._needed_to_return(gone) and self._irreplaceable([v], gone):
                self.deferred.add(v)
            else:
                gone.add(v)

    def _needed_to_return(self, gone: Collection[int] = ()) -> set[int]:
        return {v for j in self.chain(self.evicted, gone) for v in self.p.steps[j].reads}

    def _irreplaceable(self, group: Iterable[int], gone: Collection[int] = ()) -> bool:
        """Return whether values could not be computed again from those that are there and not in `gone`."""
        producers = {self.producer[v] for v in group}
        reads = {v for j in producers for v in self.p.steps[j].reads if v not in self.values or v in gone}
        return any(self.p.fixed[j] for j in producers.union(self.chain(reads, gone)))

    def next_use(self, v: int) -> int | None:
        """Return the first step from now on that reads a variable."""
        uses = self.p.uses.get(v, ())
        at = bisect_left(uses, self.now)
        return uses[at] if at < len(uses) else None

    def chain(self, missing: Iterable[int], gone: Collection[int] = ()) -> list[int]:
        """Return the steps, in order, that bring values back from those that are there and not in `gone`."""
        needed: set[int] = set()
        stack = list(missing)
        while stack:
            j = self.producer[stack.pop()]
            if j not in needed:
                needed.add(j)
                stack.extend(v for v in self.p.steps[j].reads if v not in self.values or v in gone)
        return sorted(needed)

    # Recomputing

    def bring_back(self, wanted: Collection[int]) -> None:
        """Compute again what is missing of the values in `wanted`, which stay until the caller is done."""
        if not any(v in self.evicted for v in wanted):
            return
        plan, first_out = self._way_back(wanted)
        for m in first_out:
            self.evict(m)
        last = {v: j for j in plan for v in self.p.steps[j].reads}
        needed = {*wanted, *last}
        for j in plan:
            s = self.p.steps[j]
            # An output that is still alive would be stored twice.
            for v in s.writes:
                self.drop(v)
            dying = {v for v in s.reads if last[v] == j and self._over(v, wanted)}
            self.compute(j, dying, needed.union(s.writes))
            self.counts.recomputations += 1
            if self.every is not None:
                self.every(s.call.opr, [self.values[v] for v in s.writes])
            for v in dict.fromkeys((*s.reads, *s.writes)):
                if last.get(v, j) == j and self._over(v, wanted):
                    self.drop(v)
            needed.difference_update(v for v in s.reads if last[v] == j and v not in wanted)

    def _way_back(self, wanted: Collection[int]) -> tuple[list[int], list[_Memory]]:
        """Return the steps that bring values back with the least memory, and what is to be evicted before them."""
        limit = max(self.p.config.eviction_threshold, self.counts.peak)
        out: list[_Memory] = []
        best: tuple[int, list[int], list[_Memory]] | None = None
        while True:
            gone = {v for m in out for v in m.vars}
            plan = self.chain((v for v in wanted if v in self.evicted or v in gone), gone)
            peak = self.peak_of(plan, wanted, gone)
            if best is None or peak < best[0]:
                best = peak, plan, list(out)
            # Younger values did not exist when the plan's first step first ran; they wait their turn.
            young = [
                m
                for m in self.memory.values()
                if m not in out
                and self.evictable(m, True)
                and any(self.producer[v] > plan[0] for v in m.vars)
            ]
            if peak <= limit or not young:
                return best[1:]
            out += young

    def _lose(self, v: int) -> None:
        again = self.next_use(v) is not None
        self.drop(v)
        if again:
            self.evicted.add(v)

    def _over(self, v: int, wanted: Collection[int]) -> bool:
        """Return whether a value has no reader outside the plan that brings values back."""
        if v in wanted or v in self.deferred or v not in self.producer:
            return False
        return self.next_use(v) is None

    def peak_of(self, plan: Sequence[int], wanted: Collection[int], gone: set[int]) -> int:
        """Return the most bytes alive while a plan runs, when `gone` and all that it does not need is evicted."""
        last = {v: j for j in plan for v in self.p.steps[j].reads}
        resident = [
            m
            for m in self.memory.values()
            if not gone.intersection(m.vars)
            and (not self.evictable(m) or any(v in last or v in wanted for v in m.vars))
        ]
        at: dict[int, _Memory] = {}
        live = peak = sum(m.size for m in resident)
        for m in resident:
            at.update(dict.fromkeys(m.vars, _Memory(m.size, set(m.vars))))
        for j in plan:
            s = self.p.steps[j]
            over = {v for v in (*s.reads, *s.writes) if last.get(v, j) == j and self._over(v, wanted)}
            live += self._settle(s, at, over)
            peak = max(peak, live)
            live -= _vacate(at, over)
        return peak

    def _settle(self, s: Step, at: dict[int, _Memory], over: Collection[int]) -> int:
        """Place a step's outputs where its kernel would, in simulated memory; return the bytes that are new."""
        donated = [v for v in s.reads if v in over and v in at and len(at[v].vars) == 1]
        shares = predict_shares(s, self.p.known.shapes, donated, self.strided)
        new = 0
        for v, share in zip(s.writes, shares, strict=True):
            source = self.view_of.get(v, share.source if share.source in donated else None)
            if source is None:
                at[v] = _Memory(self.size[v])
                new += self.size[v]
            elif source in at:
                at[v] = at[source]
            else:
                continue
            at[v].vars.add(v)
        return new

    # Evicting

    def evictable(self, m: _Memory, targets: bool = False) -> bool:
        """Return whether all that lives in a piece of memory may go and could come back.

        Args:
            targets: whether what the caller wants may go for a while.
        """
        if m.size < self.p.config.evictee_minimum_size:
            return False
        if any(
            v in self.deferred or v in self.p.guards or (v in self.p.keep and not targets) for v in m.vars
        ):
            return False
        return not self.p.any_fixed or not self._irreplaceable(m.vars)

    def evict(self, m: _Memory) -> None:
        """Drop a piece of memory."""
        self.counts.evictions += 1
        for v in list(m.vars):
            self._lose(v)

    def free_memory(self, wanted: int, pinned: Collection[int]) -> None:
        """Evict until `wanted` more bytes fit under the threshold, as far as values may go."""
        while self.live + wanted > self.p.config.eviction_threshold:
            best = self._cheapest(pinned)
            if best is None:
                return
            self.evict(best)

    def _cheapest(self, pinned: Collection[int]) -> _Memory | None:
        open_to = [
            m for m in self.memory.values() if not any(v in pinned for v in m.vars) and self.evictable(m)
        ]
        if not open_to:
            return None
        time, memory = self._back()
        ahead = self._ahead()
        return min(open_to, key=lambda m: (self._value(m, time, memory, ahead), min(m.vars)))

    def _value(
        self, m: _Memory, time: Sequence[float], memory: Sequence[float], ahead: Mapping[int, float]
    ) -> float:
        """Return the logarithm of what losing a piece of memory costs."""
        producers = {self.producer[v] for v in m.vars}
        before = {
            self.producer[v] for j in producers for v in self.p.steps[j].reads if v not in self.values
        } - producers
        seconds = sum(self.cost[j] for j in producers) + sum(time[j] for j in before)
        seconds *= 1 + sum(ahead.get(v, 0.0) for v in m.vars)
        size = m.size + sum(memory[j] for j in before)
        uses = [n for v in m.vars if (n := self.next_use(v)) is not None]
        distance = min(uses, default=len(self.p.steps)) - self.now + 1
        c = self.p.config
        return (
            c.recomp_time_factor * math.log(max(seconds, 1.0))
            + c.recomp_memory_factor * math.log(max(size, 1.0))
            - math.log(max(m.size, 1) * distance)
        )

    def _back(self) -> tuple[list[float], list[float]]:
        """Return for every executed step the cost and bytes of running it with all missing values before it."""
        time = [0.0] * len(self.done)
        memory = [0.0] * len(self.done)
        for j, s in enumerate(self.p.steps):
            if not self.done[j]:
                continue
            before = {self.producer[v] for v in s.reads if v not in self.values and v in self.producer}
            # Shared ancestors count for each path; the cap keeps deep graphs finite.
            time[j] = min(self.cost[j] + sum(time[k] for k in before), 1e300)
            memory[j] = min(
                sum(self.size.get(v, 0) for v in s.writes) + sum(memory[k] for k in before), 1e300
            )
        return time, memory

    def _ahead(self) -> dict[int, float]:
        """Count for every variable the lost steps, along all paths, that would read it to run again."""
        count: dict[int, float] = {}
        for j in reversed(self.chain(self.evicted)):
            s = self.p.steps[j]
            paths = 1 + sum(count.get(v, 0.0) for v in s.writes)
            for v in set(s.reads):
                count[v] = min(count.get(v, 0.0) + paths, 1e300)
        return count


def _vacate(at: dict[int, _Memory], over: Iterable[int]) -> int:
    """Remove values from imagined memory; the bytes that are free then."""
    freed = 0
    for v in over:
        place = at.pop(v, None)
        if place is not None:
            place.vars.discard(v)
            freed += 0 if place.vars else place.size
    return freed
