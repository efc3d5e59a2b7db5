"""Less memory by computing values again: a plan made before execution says which are dropped, and where they come back.

The plan follows the steps, as far as shapes are known, and counts the bytes of intermediate values. Where they would
exceed a threshold it drops the value whose loss costs least by MegEngine's measure (its graph-level DTR):

    recompute time ** time factor * recompute memory ** memory factor / (size * distance to the next use)

What is missing when a step needs it is computed again before. `DTRConfig` gives the threshold; for
`SublinearMemoryConfig` several are tried, and the plan with the lowest peak is taken.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count

from ..base.errors import UsageAssertionError
from ..ops.infer import Inference
from ..ops.registry import implementation
from .liveness import peak_bytes, predict_shares, stored_bytes
from .program import Step

_UNITS = ("b", "kb", "mb", "gb")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?b)", re.IGNORECASE)


def parse_bytes(size: int | str, name: str = "value") -> int:
    """Parse a number of bytes, or a text with a unit as MegEngine's ``dtr`` module takes it.

    Units are B, KB, MB and GB, powers of 1024, in any case.

    Raises:
        UsageAssertionError: the text does not hold exactly one number with such a unit.
        TypeError: neither an integer nor a text.

    >>> parse_bytes("1.5 KB"), parse_bytes("5GB") == 5 * 2**30, parse_bytes(7)
    (1536, True, 7)
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f"{name} must be a number of bytes or a text such as '5GB', found {size!r}")
    if isinstance(size, int):
        return size
    matches = _SIZE.findall(size)
    if len(matches) != 1:
        raise UsageAssertionError(f"{name} must be one number with a unit B, KB, MB or GB, found {size!r}")
    number, unit = matches[0]
    return int(float(number) * 1024 ** _UNITS.index(unit.lower()))


class DTRConfig:
    """Dynamic tensor rematerialization: values above a threshold are dropped and computed again where they are needed.

    Args:
        eviction_threshold: bytes of intermediate values above which values are evicted; an integer or a text
            as `parse_bytes` takes it.
        evictee_minimum_size: smaller values are never evicted; bytes or a text.
        recomp_memory_factor: exponent of the memory that recomputing a value takes: the larger, the rather are
            values evicted that take little.
        recomp_time_factor: exponent of the time that recomputing a value takes.

    Raises:
        UsageAssertionError: the threshold is not positive (its default is not, as in MegEngine), or another setting is
            negative.

    Source: MegEngine ``jit.DTRConfig``.

    >>> DTRConfig("5GB")
    DTRConfig(eviction_threshold=5368709120, evictee_minimum_size=1048576, recomp_memory_factor=1, recomp_time_factor=1)
    """

    def __init__(
        self,
        eviction_threshold: int | str = 0,
        evictee_minimum_size: int | str = 1 << 20,
        recomp_memory_factor: float = 1,
        recomp_time_factor: float = 1,
    ) -> None:
        self.eviction_threshold = parse_bytes(eviction_threshold, "eviction_threshold")
        if self.eviction_threshold <= 0:
            raise UsageAssertionError(
                f"eviction_threshold must be greater than zero, found {eviction_threshold!r}"
            )
        self.evictee_minimum_size = parse_bytes(evictee_minimum_size, "evictee_minimum_size")
        self.recomp_memory_factor = recomp_memory_factor
        self.recomp_time_factor = recomp_time_factor
        for name in ("evictee_minimum_size", "recomp_memory_factor", "recomp_time_factor"):
            _not_negative(name, getattr(self, name))

    def __repr__(self) -> str:
        return _config_text(self)


class SublinearMemoryConfig:
    """Sublinear memory: a plan of what to compute again is found before execution.

    Args:
        thresh_nr_try: how many thresholds of memory are tried between `lb_memory_mb` and the ordinary peak.
        genetic_nr_iter: accepted; nothing is drawn at random.
        genetic_pool_size: accepted.
        lb_memory_mb: peak memory in MB below which nothing is gained: recomputations that only push the peak
            further down are left out.
        num_worker: accepted; one thread searches.

    Raises:
        UsageAssertionError: a setting is negative, or there is no worker.

    Source: MegEngine ``jit.SublinearMemoryConfig``.

    >>> SublinearMemoryConfig(genetic_nr_iter=5).genetic_pool_size
    20
    """

    def __init__(
        self,
        thresh_nr_try: int = 10,
        genetic_nr_iter: int = 0,
        genetic_pool_size: int = 20,
        lb_memory_mb: int = 0,
        num_worker: int = 1,
    ) -> None:
        self.thresh_nr_try = thresh_nr_try
        self.genetic_nr_iter = genetic_nr_iter
        self.genetic_pool_size = genetic_pool_size
        self.lb_memory_mb = lb_memory_mb
        self.num_worker = num_worker
        for name in ("thresh_nr_try", "genetic_nr_iter", "genetic_pool_size"):
            _not_negative(name, getattr(self, name))
        if num_worker < 1:
            raise UsageAssertionError(f"num_worker must be greater or equal to one, found {num_worker!r}")

    def __repr__(self) -> str:
        return _config_text(self)


def _not_negative(name: str, number: float) -> None:
    # Written so that NaN is refused.
    if not number >= 0:
        raise UsageAssertionError(f"{name} must be greater or equal to zero, found {number!r}")


def _config_text(config: object) -> str:
    return f"{type(config).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(config).items())})"


_FLOPS_PER_BYTE = 4
"""Operations that take about the time of moving a byte."""
_MOST = 4
"""How often an operator is executed at most, on average over all."""
_EFFORT = 500
"""How many steps of ways back are looked at, by step; graphs in which much hangs together would take minutes."""
_TRIES = 8
"""Higher thresholds that are tried where one cannot be kept."""


def planned(
    steps: Sequence[Step], known: Inference, keep: Collection[int], config: DTRConfig | SublinearMemoryConfig
) -> list[Step]:
    """Return the steps, with those that are executed a second time marked `again`.

    Their peak is at most that of the steps as they are; equal inputs give equal plans.

    Args:
        steps: a program in order.
        known: shapes and operation counts for its input shapes; gains the shapes of what is computed again.
        keep: variables that the caller wants.
        config: what is asked for.
    """
    graph = _Graph(steps, known, keep)
    plain = peak_bytes(steps, keep, known.shapes)
    if isinstance(config, DTRConfig):
        enough, dtr, tries = config.eviction_threshold, config, _TRIES
    else:
        enough, dtr, tries = config.lb_memory_mb << 20, DTRConfig(1, 0), max(1, config.thresh_nr_try)
    higher = (plain - (plain - enough) * k // (tries + 1) for k in range(1, tries + 1))
    best = (plain, 0, list(steps))
    for threshold in (enough, *higher) if plain > enough else ():
        found = _Planner(graph, threshold, dtr).run()
        if found is None and threshold == enough:
            continue
        if found is None:
            break
        plan = (peak_bytes(found, keep, known.shapes), sum(s.again for s in found), found)
        best = min(best, plan, key=lambda p: p[:2])
        if best[0] <= enough:
            break
    return best[2]


class _Graph:
    """What all plans ask of the steps."""

    def __init__(self, steps: Sequence[Step], known: Inference, keep: Collection[int]) -> None:
        self.steps, self.known, self.keep = steps, known, frozenset(keep)
        self.producer = {v: i for i, s in enumerate(steps) for v in s.writes}
        self.uses: dict[int, list[int]] = {}
        for i, s in enumerate(steps):
            for v in dict.fromkeys(s.needs):
                self.uses.setdefault(v, []).append(i)
        for v in self.keep:
            self.uses.setdefault(v, []).append(len(steps))
        self.bytes = {
            v: n for s in steps for v, n in zip(s.writes, stored_bytes(s, known.shapes), strict=True)
        }
        self.cost = [
            sum(self.bytes.get(v, 0) for v in (*s.reads, *s.writes))
            + known.flops.get(s.call.opr.id, 0) / _FLOPS_PER_BYTE
            for s in steps
        ]
        guards = {s.guard for s in steps}
        # Random results would differ, and values that depend on branches may be missing.
        self.returns: set[int] = set()
        for s in steps:
            fixed = s.guard is not None or s.merges or implementation(s.call.opr.type).random
            if not fixed and all(v in self.returns or v not in self.producer for v in s.reads):
                self.returns.update(s.writes)
        self.stays = self.keep | guards
        self.new = count(1 + max((*keep, *(v for s in steps for v in (*s.needs, *s.writes))), default=0))

    def next_use(self, v: int, now: int) -> int | None:
        """Return the first step from one on that reads a variable."""
        uses = self.uses.get(v, ())
        at = bisect_left(uses, now)
        return uses[at] if at < len(uses) else None


class _Planner:
    """Writes the steps for one threshold."""

    def __init__(self, graph: _Graph, threshold: int, config: DTRConfig) -> None:
        self.g, self.threshold, self.config = graph, threshold, config
        self.out: list[Step] = []
        self.now = 0
        self.version: dict[int, int] = {}
        self.home: dict[int, int] = {}
        """By value that is there, the one in whose memory it lives."""
        self.places: dict[int, set[int]] = {}
        self.live = self.effort = 0
        self.strided: set[int] = set()

    def run(self) -> list[Step] | None:
        """Return the steps; None if there are far too many."""
        for i, s in enumerate(self.g.steps):
            self.now = i
            self._bring_back(s.needs)
            self._add(i, s.needs, [v for v in s.reads if self.g.next_use(v, i + 1) is None])
            self.now = i + 1
            self._leave([*s.needs, *s.writes])
            if len(self.out) > _MOST * len(self.g.steps) or self.effort > _EFFORT * len(self.g.steps):
                return None
        return self._moved()

    def _add(self, i: int, pinned: Collection[int], dying: Collection[int]) -> None:
        """Append a step whose inputs are there.

        Args:
            i: its number.
            pinned: values that must not be dropped for it.
            dying: inputs that nothing reads afterwards.
        """
        s = self.g.steps[i]
        again = bool(s.writes) and s.writes[0] in self.version
        shares = predict_shares(s, self.g.known.shapes, [v for v in dying if self._alone(v)], self.strided)
        self._free(sum(x.size for x in shares), pinned)
        reads = tuple(self.version.get(v, v) for v in s.reads)
        writes = tuple(next(self.g.new) for _ in s.writes) if again else s.writes
        self.out.append(replace(s, reads=reads, writes=writes, dying=(), again=again))
        for v, w, share in zip(s.writes, writes, shares, strict=True):
            if w != v and v in self.g.known.shapes:
                self.g.known.shapes[w] = self.g.known.shapes[v]
            if v in self.home:
                # What is there stays.
                continue
            self.version[v] = w
            # Memory of what is fed has no size.
            self.home[v] = home = v if share.source is None else self.home.get(share.source, share.source)
            self.places.setdefault(home, set()).add(v)
            self.live += self.g.bytes[v] if home == v else 0
            (self.strided.discard if share.contiguous else self.strided.add)(v)

    def _alone(self, v: int) -> bool:
        """Return whether a kernel may write into a value's memory."""
        return v in self.home and len(self.places[self.home[v]]) == 1

    def _drop(self, v: int) -> None:
        home = self.home.pop(v)
        self.places[home].discard(v)
        if not self.places[home]:
            del self.places[home]
            self.live -= self.g.bytes.get(home, 0)

    def _leave(self, values: Iterable[int], pinned: Collection[int] = ()) -> None:
        """Drop what nothing reads any more."""
        for v in dict.fromkeys(values):
            if v in self.home and v not in pinned and self.g.next_use(v, self.now) is None:
                self._drop(v)

    def _bring_back(self, wanted: Collection[int]) -> None:
        """Compute again what is missing."""
        missing = self._missing(wanted)
        chain = self._chain(missing)
        last = {v: j for j in chain for v in self.g.steps[j].reads}
        pinned = {*wanted, *last}
        for j in chain:
            s = self.g.steps[j]
            read = [v for v in s.reads if last[v] == j and v not in wanted]
            self._add(j, pinned, [v for v in read if self.g.next_use(v, self.now) is None])
            pinned.difference_update(read)
            self._leave([*s.reads, *s.writes], pinned)

    def _missing(self, values: Iterable[int]) -> list[int]:
        return [v for v in values if v in self.version and v not in self.home]

    def _chain(self, missing: Iterable[int]) -> list[int]:
        """Return the steps, in order, that bring values back."""
        needed: set[int] = set()
        stack = list(missing)
        while stack:
            j = self.g.producer[stack.pop()]
            if j not in needed:
                needed.add(j)
                stack += self._missing(self.g.steps[j].reads)
        return sorted(needed)

    def _free(self, more: int, pinned: Collection[int]) -> None:
        """Drop values until so many bytes fit under the threshold, as far as they may go."""
        while self.live + more > self.threshold:
            costs = {
                home: self._value(home, members)
                for home, members in self.places.items()
                if self.g.bytes.get(home, 0) >= max(1, self.config.evictee_minimum_size)
                and all(v in self.g.returns and v not in self.g.stays and v not in pinned for v in members)
            }
            if not costs:
                return
            for v in list(self.places[min(costs, key=lambda home: (costs[home], home))]):
                self._drop(v)

    def _value(self, home: int, members: Collection[int]) -> float:
        """Return the logarithm of what losing a piece of memory costs."""
        chain = self._chain(members)
        self.effort += len(chain)
        seconds = sum(self.g.cost[j] for j in chain)
        # Lost values that would need this one come back with it.
        readers = {r for v in members for r in self.g.uses.get(v, ()) if r < self.now}
        seconds *= 1 + sum(bool(self._missing(self.g.steps[r].writes)) for r in readers)
        memory = sum(self.g.bytes[v] for j in chain for v in self.g.steps[j].writes)
        uses = [n for v in members if (n := self.g.next_use(v, self.now)) is not None]
        distance = min(uses, default=len(self.g.steps)) - self.now + 1
        return (
            self.config.recomp_time_factor * math.log(max(seconds, 1.0))
            + self.config.recomp_memory_factor * math.log(max(memory, 1.0))
            - math.log(max(self.g.bytes[home], 1) * distance)
        )

    def _moved(self) -> list[Step]:
        """Return the steps but those that nothing reads before they are computed again: these only move."""
        first: dict[int, Step] = {}
        for s in self.out:
            if s.again:
                first.setdefault(s.call.opr.id, s)
        needed = {self.version.get(v, v) for v in self.g.keep}
        kept: list[Step] = []
        for s in reversed(self.out):
            following = first.get(s.call.opr.id)
            if following is not None and not s.again and not needed.intersection(s.writes):
                following.again = False
            else:
                needed.update(s.needs)
                kept.append(s)
        return kept[::-1]
