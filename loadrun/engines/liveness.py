"""The memory that steps need, known before execution: which values share memory, and the peak of a program.

Kernels return views where they can, and write into the memory of a dying input where `Call.reuse` lets them. The
rules here predict that from operator types and shapes; where they cannot tell they assume new memory.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array
from ..graph.params import Axis, Reduce, ReduceMode
from ..ops.catalog import types
from ..ops.op import Trait
from ..ops.registry import Shape
from .program import MemoryMeter, Step, root

_VIEWS, _STAYS_CONTIGUOUS = types(Trait.VIEW), types(Trait.CONTIGUOUS)
_IN_PLACE, _WRITES_FIRST = types(Trait.IN_PLACE), types(Trait.INTO_FIRST)


@dataclass(frozen=True)
class Share:
    """The place where an output lives.

    Attributes:
        size: bytes of new memory, 0 when it lives in an input's.
        source: the variable whose memory it lives in, None for new memory.
        contiguous: whether it covers its memory in order, so that it can be reshaped or written into.
    """

    size: int
    source: int | None = None
    contiguous: bool = True


def stored_bytes(step: Step, shapes: Mapping[int, Shape]) -> list[int]:
    """Return the bytes in memory of every output; 0 if the shape is unknown."""
    return [
        prod(shapes[v]) * d.np.itemsize if v in shapes else 0
        for v, d in zip(step.writes, step.call.outputs, strict=True)
    ]


def predict_shares(
    step: Step, shapes: Mapping[int, Shape], donated: Collection[int], strided: Collection[int]
) -> list[Share]:
    """Predict where the outputs of a step will live.

    Args:
        donated: inputs whose memory the step may write into.
        strided: variables that are not contiguous.
    """
    sizes = stored_bytes(step, shapes)
    kind = step.call.opr.type
    if not step.reads:
        return [Share(n) for n in sizes]
    first = step.reads[0]
    if kind in _VIEWS:
        return _views(step, shapes, sizes, strided)
    if kind == "ReduceV2" and _passes_on(step, shapes, strided):
        return [Share(0, first)]
    if kind == "Concat":
        # numpy joins transposed arrays into a transposed one.
        return [Share(n, None, not any(v in strided for v in step.reads)) for n in sizes]
    taken = _written_into(step, shapes, donated, strided)
    if taken is None:
        return [Share(n) for n in sizes]
    return [Share(0, taken)] + [Share(n) for n in sizes[1:]]


def _views(
    step: Step, shapes: Mapping[int, Shape], sizes: Sequence[int], strided: Collection[int]
) -> list[Share]:
    """Return the outputs of an operator that gives views."""
    kind, first = step.call.opr.type, step.reads[0]
    if kind == "ReshapeV1" and first in strided:
        return [Share(n) for n in sizes]
    contiguous = kind in _STAYS_CONTIGUOUS and first not in strided
    if kind == "CondExecMark":
        return [Share(0, v, contiguous) for v, _ in zip(step.reads, sizes, strict=False)]
    if kind == "Split":
        if first in shapes:
            axis = step.call.opr.get(Axis).axis
            contiguous = first not in strided and prod(shapes[first][: axis % len(shapes[first])]) == 1
        return [Share(0, first, contiguous) for _ in sizes]
    return [Share(0, first, contiguous)] + [Share(n) for n in sizes[1:]]


def _passes_on(step: Step, shapes: Mapping[int, Shape], strided: Collection[int]) -> bool:
    """Return whether a reduction has nothing to reduce, so that its input is passed on."""
    first = step.reads[0]
    if first not in shapes or shapes.get(step.writes[0]) != shapes[first] or first in strided:
        return False
    same_type = step.call.inputs[0] == step.call.outputs[0]
    return same_type and step.call.opr.get(Reduce).mode != ReduceMode.SUM_SQR


def _written_into(
    step: Step, shapes: Mapping[int, Shape], donated: Collection[int], strided: Collection[int]
) -> int | None:
    """Return the input that the first output will be written into."""
    kind = step.call.opr.type
    out = step.writes[0] if step.writes else None
    if out is None or (kind not in _IN_PLACE and kind not in _WRITES_FIRST):
        return None
    if kind in _IN_PLACE and step.call.outputs[0].name in ("Float16", "BFloat16"):
        return None
    reads = step.reads[:1] if kind in _WRITES_FIRST else step.reads
    for v, dtype in zip(reads, step.call.inputs, strict=False):
        if v in donated and v not in strided and v in shapes and shapes[v] == shapes.get(out):
            if kind in _WRITES_FIRST and v == step.reads[1]:
                continue
            if dtype.np == step.call.outputs[0].np:
                return v
    return None


def peak_bytes(steps: Sequence[Step], keep: Collection[int], shapes: Mapping[int, Shape]) -> int:
    """Return the most bytes of intermediate values that are alive at once when the steps are executed.

    Values count as `MemoryMeter` counts them: what is fed and constants do not, views once. A value of unknown
    shape counts nothing; all branches count as taken.
    """
    last = {v: i for i, s in enumerate(steps) for v in (*s.needs, *s.writes)}
    slot: dict[int, int] = {}
    size: dict[int, int] = {}
    users: dict[int, int] = {}
    strided: set[int] = set()
    live = peak = 0
    for i, s in enumerate(steps):
        dying = {v for v in (*s.needs, *s.writes) if last[v] == i and v not in keep}
        donated = {v for v in dying if v in s.reads and v in slot and users[slot[v]] == 1}
        for v, share in zip(s.writes, predict_shares(s, shapes, donated, strided), strict=True):
            if not share.contiguous:
                strided.add(v)
            if share.source is None:
                slot[v] = v
                size[v] = share.size
                users[v] = 1
                live += share.size
            elif share.source in slot:
                slot[v] = slot[share.source]
                users[slot[v]] += 1
        peak = max(peak, live)
        for v in dying:
            if v in slot:
                users[slot[v]] -= 1
                if not users[slot[v]]:
                    live -= size[slot[v]]
    return peak


@dataclass(frozen=True)
class LiveValue:
    """A value that was alive at the peak.

    Attributes:
        name: the variable's name, with the operator's type.
        shape: its shape.
        nbytes: bytes of memory that it holds.
    """

    name: str
    shape: tuple[int, ...]
    nbytes: int


class PeakMeter(MemoryMeter):
    """Counts as `MemoryMeter` does, and remembers who was alive at the peak.

    Args:
        ignore: arrays that are not intermediate values.

    Attributes:
        at: the operator after which the peak was reached, None before a run.
    """

    def __init__(self, ignore: Iterable[Array] = ()) -> None:
        super().__init__(ignore)
        self.at: Opr | None = None
        self._known: dict[int, tuple[int, LiveValue]] = {}
        # Only what happened since the peak is kept: listing the values at every new peak would be quadratic.
        self._changed: set[int] = set()
        self._before: list[tuple[int, LiveValue]] = []

    @property
    def alive(self) -> tuple[LiveValue, ...]:
        """The values that were alive at the peak, the largest first."""
        kept = (self._known[k] for k in self._held if k in self._known and k not in self._changed)
        return tuple(value for _, value in sorted([*self._before, *kept], key=lambda v: (-v[1].nbytes, v[0])))

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Count an operator's outputs, and note when there never was more."""
        before = self.peak
        for i, array in enumerate(outputs):
            base = root(array)
            if isinstance(base, np.ndarray):
                name = opr.outputs[i].label if i < len(opr.outputs) else opr.title
                value = LiveValue(f"{name} ({opr.type})", array.shape, base.nbytes)
                first = self._known[id(base)][0] if id(base) in self._held else self.executions
                self._change(id(base))
                self._known[id(base)] = first, value
        super().__call__(opr, outputs)
        if self.peak > before:
            self.at = opr
            self._changed.clear()
            self._before.clear()

    def release(self, key: int, size: int) -> None:
        """Stop counting a value whose memory was freed."""
        self._change(key)
        self._known.pop(key, None)
        super().release(key, size)

    def _change(self, key: int) -> None:
        """Keep what a value was at the peak, before it changes."""
        if key not in self._changed:
            self._changed.add(key)
            if key in self._held:
                self._before.append(self._known[key])
