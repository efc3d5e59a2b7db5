"""What the operators of a run took by a runtime's own profiler, in the structure of MegEngine's graph profiler."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

Shapes = Sequence[Sequence[int]]


class Executed(NamedTuple):
    """One execution of an operator.

    Attributes:
        name, type: the operator's, as the runtime has it; one that it fused has the runtime's own type.
        start, seconds: when it began, in seconds since the run began, and how long it took.
        lane: the thread, or what else tells that executions overlap.
        inputs, outputs: shapes, where the runtime tells them.
        nbytes: bytes read and written, 0 if it does not tell.
        flops: operations, None if they are unknown.
    """

    name: str
    type: str
    start: float
    seconds: float
    lane: str = "main"
    inputs: Shapes = ()
    outputs: Shapes = ()
    nbytes: int = 0
    flops: int | None = None


@runtime_checkable
class Profiling(Protocol):
    """An engine, or a session of a runtime, that was made with `Setup.profile` and can tell what operators took."""

    def executed(self) -> list[Executed]:
        """Return the executions of the last run, in order."""
        ...


def profile_data(executed: Sequence[Executed]) -> dict[str, Any]:
    """Return executions as MegEngine's ``get_profile`` gives them, ready for `json.dumps`.

    >>> found = profile_data([Executed("/fc/Gemm", "Gemm", 0.0, 0.5, outputs=[[1, 10]])])
    >>> found["graph_exec"]["comp_seq"], found["profiler"]["device"]["0"]["main"]["end"]
    (['0'], 0.5)
    """
    oprs: dict[str, Any] = {}
    device: dict[str, Any] = {}
    footprint: dict[str, Any] = {}
    for i, e in enumerate(executed):
        oprs[str(i)] = {
            "node_type": "operator",
            "id": str(i),
            "name": e.name,
            "type": e.type,
            "input": [],
            "output": [],
            "extra": {},
            "waiting_spec": {},
        }
        device[str(i)] = {e.lane: {"start": e.start, "kern": e.start, "end": e.start + e.seconds}}
        footprint[str(i)] = {
            "computation": e.flops,
            "memory": e.nbytes,
            "in_shapes": [list(s) for s in e.inputs],
            "out_shapes": [list(s) for s in e.outputs],
            "param": {},
        }
    return {
        "graph_exec": {"operator": oprs, "var": {}, "mem_chunk": {}, "comp_seq": list(oprs)},
        "profiler": {"device": device, "host": device, "opr_footprint": footprint, "opr_internal_pf": {}},
    }


def executed_of(profile: Mapping[str, Any]) -> list[Executed]:
    """Return the executions of a profile of the reference engine, or of `profile_data`."""
    executions = []
    for key in profile["graph_exec"]["comp_seq"]:
        opr, cost = profile["graph_exec"]["operator"][key], profile["profiler"]["opr_footprint"][key]
        ((lane, time),) = profile["profiler"]["host"][key].items()
        took = time["end"] - time["start"]
        shapes = cost["in_shapes"], cost["out_shapes"]
        executions.append(
            Executed(
                opr["name"],
                opr["type"],
                time["start"],
                took,
                lane,
                *shapes,
                cost["memory"],
                cost["computation"],
            )
        )
    return executions
