"""Time of operators: a table of the most expensive ones, and a trace for the Perfetto viewer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..base.errors import clean
from ..engines.liveness import PeakMeter
from .text import shape_text, table

_SHOWN = 20


@dataclass(frozen=True)
class Cost:
    """The cost of a group of operators in one run.

    Attributes:
        name: what they have in common.
        count: how many there are.
        seconds: their time.
        flops: their operations.
        nbytes: bytes that they read and wrote.
    """

    name: str
    count: int
    seconds: float
    flops: int
    nbytes: int


def costs(profile: Mapping[str, Any], by: str = "type") -> list[Cost]:
    """Sum up a profile, the most expensive first.

    Args:
        profile: what an engine's ``get_profile`` gave.
        by: ``type``, ``name``, or ``prefix`` with a depth after a colon: the first parts of names, which are those of
            modules; what is fused into an operator names it.

    >>> times = {"x": {"start": 0.0, "kern": 0.0, "end": 0.25}}
    >>> said = {"name": "body.conv", "type": "ConvolutionV2", "extra": {}}
    >>> footprint = {"computation": 100, "memory": 8}
    >>> profile = {"graph_exec": {"operator": {"1": said}, "comp_seq": ["1"]},
    ...            "profiler": {"device": {"1": times}, "opr_footprint": {"1": footprint}}}
    >>> costs(profile, "prefix:1")
    [Cost(name='body', count=1, seconds=0.25, flops=100, nbytes=8)]
    """
    totals: dict[str, Cost] = {}
    for key in profile["graph_exec"]["comp_seq"]:
        said = profile["graph_exec"]["operator"][key]
        (time,) = profile["profiler"]["device"][key].values()
        footprint = profile["profiler"]["opr_footprint"][key]
        name = _group(said, by)
        was = totals.get(name, Cost(name, 0, 0.0, 0, 0))
        totals[name] = Cost(
            name,
            was.count + 1,
            was.seconds + time["end"] - time["start"],
            was.flops + (footprint["computation"] or 0),
            was.nbytes + footprint["memory"],
        )
    return sorted(totals.values(), key=lambda c: -c.seconds)


def _group(said: Mapping[str, Any], by: str) -> str:
    if by == "type":
        return str(said["type"])
    name = str(said["name"])
    if by == "name":
        return name
    depth = int(by.partition(":")[2] or 1)
    fused = [one["name"] for one in said["extra"].get("fused", ())]
    plain = (fused[-1] if fused else name).partition("(")[0].partition("[")[0]
    # ONNX files of torch have names such as /layer1/conv/Conv.
    parts = plain.strip("/").split("/") if plain.startswith("/") else plain.split(".")
    # The last part names the operator itself.
    return ".".join(parts[: min(depth, len(parts) - 1)]) or "(no module)"


def cost_table(profile: Mapping[str, Any], by: str = "type", most: int = _SHOWN) -> str:
    """Return the most expensive groups of operators as a text table."""
    rows = costs(profile, by)
    total = sum(c.seconds for c in rows) or 1.0
    shown = [
        (
            clean(c.name, 60),
            c.count,
            f"{c.seconds * 1e3:.3f}",
            f"{c.seconds / total:.1%}",
            f"{c.flops / c.seconds / 1e9:.2f}" if c.flops and c.seconds else "-",
            bytes_text(c.nbytes) if c.nbytes else "-",
        )
        for c in rows[:most]
    ]
    head = by.partition(":")[0]
    text = table(shown, (head, "count", "ms", "share", "GFLOP/s", "bytes"), range(1, 6))
    left = rows[most:]
    if left:
        text += f"\nand {len(left)} more, {sum(c.seconds for c in left) / total:.1%}"
    return text


def bytes_text(count: int) -> str:
    """Return bytes in a suitable unit.

    >>> bytes_text(100), bytes_text(5 << 20)
    ('100 B', '5.0 MiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def memory_table(meter: PeakMeter) -> str:
    """Return peak memory of intermediate values, and which were alive then."""
    if meter.at is None:
        return "no operator was executed"
    at = meter.at.outputs[0].label if meter.at.outputs else meter.at.title
    head = f"peak: {bytes_text(meter.peak)} of intermediate values, after {clean(at, 80)} ({meter.at.type})"
    rows = [(clean(a.name, 70), shape_text(a.shape), bytes_text(a.nbytes)) for a in meter.alive[:_SHOWN]]
    text = f"{head}\n{table(rows, ('alive', 'shape', 'bytes'), (2,))}"
    left = meter.alive[_SHOWN:]
    if left:
        text += f"\nand {len(left)} more, {bytes_text(sum(a.nbytes for a in left))}"
    return text


def trace_events(profile: Mapping[str, Any], model: str = "model") -> dict[str, Any]:
    """Return a profile as Chrome's trace events, which Perfetto's viewer opens; times in microseconds."""
    lanes: dict[str, int] = {}
    events: list[dict[str, Any]] = [_name_event("process_name", 0, model)]
    for key in profile["graph_exec"]["comp_seq"]:
        said = profile["graph_exec"]["operator"][key]
        footprint = profile["profiler"]["opr_footprint"][key]
        ((lane, time),) = profile["profiler"]["host"][key].items()
        if lane not in lanes:
            lanes[lane] = len(lanes) + 1
            events.append(_name_event("thread_name", lanes[lane], lane))
        events.append(
            {
                "name": said["name"],
                "cat": said["type"],
                "ph": "X",
                "pid": 1,
                "tid": lanes[lane],
                "ts": time["start"] * 1e6,
                "dur": (time["end"] - time["start"]) * 1e6,
                "args": {
                    "type": said["type"],
                    "inputs": footprint["in_shapes"],
                    "outputs": footprint["out_shapes"],
                    "operations": footprint["computation"],
                    "bytes": footprint["memory"],
                    "fused": [one["name"] for one in said["extra"].get("fused", ())],
                },
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _name_event(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 1, "tid": lane, "args": {"name": name}}
