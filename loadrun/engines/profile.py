"""Time and memory of every operator of a run, in the structure of MegEngine's graph profiler."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ..base.errors import UsageError
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..ops.infer import Inference
from ..ops.registry import Shape
from .program import Step


@dataclass
class _Execution:
    """One execution of an operator, times in seconds since the run began."""

    opr: Opr
    start: float
    end: float
    inputs: list[Shape]
    outputs: list[Shape]
    memory: int
    flops: int | None
    fused: list[Opr]
    thread: str


class _Current(threading.local):
    """The run of one thread: when it began, and its executions."""

    began = 0.0
    runs: list[_Execution] | None = None


class Profile:
    """Records the last run of an engine; runs of several threads at once do not mix.

    Kernels are wrapped, so that an engine which is not profiled runs exactly as it would without this module.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._current = _Current()
        self._runs: list[_Execution] | None = None

    def watch(self, steps: Sequence[Step], known: Inference) -> None:
        """Make steps record what they take; once for each program."""
        for s in steps:
            flops = [known.flops.get(o.id) for o in (s.call.opr, *s.fused)]
            if s.bound is None:
                s.kernel = _Timed(s.kernel, s, self, flops)
            else:
                s.bound = _Timed(s.bound, s, self, flops)

    def start(self) -> None:
        """Begin a run; what the last one recorded is forgotten."""
        self._runs = self._current.runs = []
        self._current.began = perf_counter()

    def record(self, execution: _Execution) -> None:
        """Add an execution, its times still by the clock."""
        began = self._current.began
        execution.start -= began
        execution.end -= began
        if self._current.runs is not None:
            self._current.runs.append(execution)

    def to_json(self) -> dict[str, Any]:
        """Return the last run as MegEngine's ``get_profile`` gives it, ready for `json.dumps`.

        ``graph_exec`` holds the operators (``operator``), the variables (``var``) and the operators' ids in the
        order of execution (``comp_seq``). ``profiler`` holds seconds by operator id: ``device`` by computing node
        and ``host`` by thread, each with ``start``, ``kern`` and ``end``, and in ``opr_footprint`` the operations,
        the bytes read and written, and the shapes. An operator that is executed again is there with an id of
        its own and a name that ends in ``:dup0``. ``extra`` of an operator names the operators fused into it.

        Raises:
            UsageError: there was no run yet.
        """
        if self._runs is None:
            raise UsageError("there is no profile yet: run first")
        oprs: dict[str, Any] = {}
        variables: dict[str, Any] = {}
        device: dict[str, Any] = {}
        host: dict[str, Any] = {}
        footprint: dict[str, Any] = {}
        again: dict[int, int] = {}
        next_id = max((o.id for o in self._graph.oprs), default=-1) + 1
        for run in self._runs:
            nth = again.get(run.opr.id, 0)
            again[run.opr.id] = nth + 1
            key = str(run.opr.id if not nth else next_id)
            next_id += bool(nth)
            outputs = run.fused[-1].outputs if run.fused else run.opr.outputs
            inputs = _inputs(run)
            oprs[key] = _operator(run, key, f":dup{nth - 1}" if nth else "", inputs, outputs)
            for var, shape in zip((*inputs, *outputs), (*run.inputs, *run.outputs), strict=False):
                variables[str(var.id)] = _variable(var, shape)
            times = {"start": run.start, "kern": run.start, "end": run.end}
            device[key] = {_node(run.opr): times}
            host[key] = {run.thread: dict(times)}
            footprint[key] = _footprint(run.flops or None, run.memory, run.inputs, run.outputs)
        return _document(oprs, variables, device, host, footprint)


class _Timed:
    """A kernel, bound or not, that records when it began and ended."""

    def __init__(
        self, kernel: Callable[..., Any], step: Step, profile: Profile, flops: Sequence[int | None]
    ) -> None:
        self.kernel = kernel
        self.opr, self.fused = step.call.opr, step.fused
        self.profile = profile
        self.flops = None if flops[0] is None else sum(n or 0 for n in flops)

    def __call__(self, call: object, *args: Array) -> Any:  # noqa: ANN401 - one array or several
        start = perf_counter()
        result = self.kernel(call, *args)
        end = perf_counter()
        outs = result if isinstance(result, tuple) else (result,)
        self.profile.record(
            _Execution(
                self.opr,
                start,
                end,
                [a.shape for a in args],
                [a.shape for a in outs],
                sum(a.nbytes for a in (*args, *outs)),
                self.flops,
                list(self.fused),
                threading.current_thread().name,
            )
        )
        return result


def _inputs(run: _Execution) -> list[Var]:
    """Return what an operator reads, followed by what the operators fused into it read."""
    inside = {v.id for o in (run.opr, *run.fused) for v in o.outputs}
    operands = [v for o in run.fused for v in o.inputs if v.id not in inside]
    return [*run.opr.inputs, *dict.fromkeys(operands)]


def _operator(
    run: _Execution, key: str, suffix: str, inputs: Sequence[Var], outputs: Sequence[Var]
) -> dict[str, Any]:
    opr = run.opr
    extra = {
        "fused": [{"id": str(o.id), "type": o.called or o.type, "name": _display_name(o)} for o in run.fused]
    }
    return {
        "node_type": "operator",
        "id": key,
        "name": _display_name(opr) + suffix,
        "type": _kind(run),
        "input": [str(v.id) for v in inputs],
        "output": [str(v.id) for v in outputs],
        "extra": extra if run.fused else {},
        "waiting_spec": {},
    }


def _kind(run: _Execution) -> str:
    """Return an operator's type, or what the file of another format calls it and those that are fused into it."""
    opr = run.opr
    if opr.called is not None:
        return " + ".join([opr.called, *(o.title for o in run.fused)])
    return opr.title if opr.type == "Elemwise" else opr.type


def _display_name(opr: Opr) -> str:
    return opr.name or next((v.name for v in opr.outputs if v.name), None) or opr.title


def _variable(var: Var, shape: Shape) -> dict[str, Any]:
    return {
        "node_type": "var",
        "id": str(var.id),
        "name": var.label,
        "comp_node": var.comp_node or _node(var.owner),
        "mem_plan": {"layout": {"shape": list(shape), "dtype": var.dtype.name if var.dtype else None}},
    }


def _node(opr: Opr) -> str:
    return opr.dumped.comp_node[0] if opr.dumped.comp_node else "xpux:0"


Shapes = Sequence[Sequence[int]]


def _footprint(flops: int | None, nbytes: int, inputs: Shapes, outputs: Shapes) -> dict[str, Any]:
    return {
        "computation": flops,
        "memory": nbytes,
        "in_shapes": [list(s) for s in inputs],
        "out_shapes": [list(s) for s in outputs],
        "param": {},
    }


def _document(
    oprs: dict[str, Any],
    variables: dict[str, Any],
    device: dict[str, Any],
    host: dict[str, Any],
    footprint: dict[str, Any],
) -> dict[str, Any]:
    """Return a profile, of operators in the order of their execution."""
    return {
        "graph_exec": {"operator": oprs, "var": variables, "mem_chunk": {}, "comp_seq": list(oprs)},
        "profiler": {"device": device, "host": host, "opr_footprint": footprint, "opr_internal_pf": {}},
    }


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
        footprint[str(i)] = _footprint(e.flops, e.nbytes, e.inputs, e.outputs)
    return _document(oprs, {}, device, device, footprint)
