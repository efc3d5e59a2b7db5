"""load_and_run's files: values of variables, graphs, profiles, the plan of memory."""

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..base.writing import growing, replacing
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType, encode, nbytes
from ..ops.catalog import CATALOG
from ..ops.op import Trait
from ..verify.diff.stored import TYPE_NUMBERS
from .plan import NONE, RUNTIME, STATIC_NAMES, ExecutionPlan, host_inputs, packed

# Values of variables in load_and_run's files: ``--bin_io_dump``, ``--bin_out_dump``, ``--io_dump``.
#
# A binary file holds one variable; `loadrun.verify.diff.stored` reads it and says what its bytes mean. A folder of
# ``--bin_io_dump`` has a file for each variable that is executed, called by its number in hexadecimal, a folder of
# ``--bin_out_dump`` has ``runR-varN`` for each output of each run.

_AXES = 7
_NUMBERS = {name: number for number, name in TYPE_NUMBERS.items()}
_SHOWN = 5


def binary(text: str, array: Array, dtype: DType) -> bytes:
    """Return the bytes of a file of a binary dump.

    Args:
        text: how the variable is printed.
        array: its value in storage form.
        dtype: its type.

    >>> import numpy as np
    >>> binary("var=x", np.ones((2, 3), "f4"), DType("Float32"))[:20].hex()
    '0500000000000000070000000200000003000000'
    """
    data = text.encode("utf-8", "replace")
    shape = [*array.shape, *[0] * (_AXES - array.ndim)]
    raw = bytes(encode(np.ascontiguousarray(array), dtype))
    return struct.pack("<3I7I", len(data), _NUMBERS[dtype.name], _AXES, *shape) + data + raw


class BinaryDump:
    """Writes every variable to a separate file, as ``--bin_io_dump DIR`` does; each run overwrites the last.

    Raises:
        UsageError: the folder does not exist.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: ExecutionPlan) -> None:
        self.folder = _folder(folder)
        self.plan = plan

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Write the outputs of an operator."""
        for var, array in zip(opr.outputs, outputs, strict=True):
            text = f"var={self.plan.info(var)} owner_opr_inputs={self.plan.infos(opr)}"
            path = self.folder / f"{self.plan.numbers.var(var)[0]:06x}"
            _write(path, binary(text, array, _dtype(var)))

    def end(self) -> None:
        """Note that a run ended."""


class OutputDump:
    """Writes the outputs of every run, as ``--bin_out_dump DIR`` does.

    Raises:
        UsageError: the folder does not exist.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: ExecutionPlan) -> None:
        self.folder = _folder(folder)
        self.plan = plan
        self.run = 0
        self._outputs = {v.id for v in plan.graph.outputs}

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Write those outputs of an operator that are outputs of the model."""
        for var, array in zip(opr.outputs, outputs, strict=True):
            if var.id in self._outputs:
                loaded = self.plan.loaded
                # MegEngine writes two different spaces here and in --bin_io_dump.
                text = f"var={self.plan.info(var, loaded)} owner_opr_inputs= {self.plan.infos(opr, loaded)}"
                path = self.folder / f"run{self.run}-var{loaded.var(var)[0]}"
                _write(path, binary(text, array, _dtype(var)))

    def end(self) -> None:
        """Note that a run ended."""
        self.run += 1


class TextDump:
    """Prints every variable with the first of its numbers, as ``--io_dump FILE`` does."""

    def __init__(self, out: TextIO, plan: ExecutionPlan) -> None:
        self.out = out
        self.plan = plan
        self._heads: dict[int, str] = {}
        self._blocks: dict[int, str] = {}

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Note the outputs of an operator."""
        plan = self.plan
        owner = plan.numbers.oprs[opr.id]
        lines = []
        for var, array in zip(opr.outputs, outputs, strict=True):
            self._heads[var.id] = numbers(array)
            n, name = plan.numbers.var(var)
            lines.append(
                f"var{n} produced: name={name} layout={plan.layout(var)} "
                f"owner_opr={owner.name}{{{owner.cls}}} opr{owner.id}\n deps:\n"
            )
            lines += [self._dependency(opr, i, v) for i, v in enumerate(plan.numbers.inputs(opr))]
            lines.append(f" val: {self._heads[var.id]}{_statistics(array)} {plan.storage(var)}\n")
        self._blocks[opr.id] = "".join(lines)

    def _dependency(self, opr: Opr, i: int, var: Var) -> str:
        plan = self.plan
        n = plan.numbers.var(var)[0]
        if i in host_inputs(opr):
            value = plan.known.values.get(var.id)
            known = "d" if value is None else "s"
            shown = "<invalid>" if value is None else numbers(value)
            return f"  [i{i}]var{n}:  <host value[{known}]> {shown} {plan.storage(var)}\n"
        return f"  [i{i}]var{n}: {self._heads.get(var.id, '<invalid>')} {plan.storage(var)}\n"

    def end(self) -> None:
        """End a run: write what was noted, in the order in which MegEngine executes."""
        for opr in self.plan.order:
            self.out.write(self._blocks.pop(opr.id, ""))
        self.out.flush()
        self._blocks.clear()
        self._heads.clear()


def numbers(array: Array) -> str:
    """Format the first numbers of an array, as MegEngine prints them.

    >>> import numpy as np
    >>> numbers(np.array([1, 2.5, 1e-9, 4, 5, 6], "f4"))
    '[1, 2.5, 1e-09, 4, 5, ...]'
    """
    flat = array.reshape(-1)[: _SHOWN + 1] if array.flags.c_contiguous else _first(array)
    shown = [number(float(n), 4) for n in flat[:_SHOWN]]
    return "[" + ", ".join([*shown, *(["..."] if len(flat) > _SHOWN else [])]) + "]"


def _first(array: Array) -> Array:
    """Return the first elements of an array without a copy of all of it."""
    return np.array([array.flat[i] for i in range(min(array.size, _SHOWN + 1))])


def number(value: float, digits: int) -> str:
    """Format a number as C's %g prints it."""
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:.{digits}g}"


def _statistics(array: Array) -> str:
    """Smallest, largest, mean, root of the mean square and deviation; float64 sums as there."""
    if not array.size:
        return ""
    real = array.astype(np.float64, copy=False)
    total, squares, n = float(real.sum()), float(np.square(real).sum()), array.size
    text = (
        f"min={number(float(real.min()), 3)} max={number(float(real.max()), 3)} "
        f"mean={number(total / n, 3)} l2={number(math.sqrt(squares / n), 3)}"
    )
    if n == 1:
        return f"{text} sd=N/A"
    spread = (squares * n - total * total) / (n * (n - 1))
    return f"{text} sd={number(math.sqrt(max(spread, 0.0)) if not math.isnan(spread) else spread, 3)}"


def _folder(name: str | os.PathLike[str]) -> Path:
    """Return a folder, which is made where it is not there; MegEngine's tool writes nothing then."""
    path = Path(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _dtype(var: Var) -> DType:
    return var.dtype or DType("Float32")


def _write(path: Path, data: bytes) -> None:
    with growing(path) as f:
        f.write(data)


# JSON of MegEngine's tools: a graph (``graph.json``), a profile (``--profile``), the plan of memory
# (``StaticMemoryInfo.json``).

_ALIGNMENT = 64
_LARGE = 16


def graph_json(plan: ExecutionPlan) -> dict[str, Any]:
    """Operators, variables and the order of execution, as MegEngine writes a compiled graph."""
    needed = {o.id for o in plan.graph.needed(plan.graph.outputs)}
    oprs = [o for o in plan.graph.oprs if o.id in needed]
    scratch = [plan.numbers.scratch[o.id] for o in oprs if o.id in plan.numbers.scratch]
    return {
        "comp_seq": [str(plan.numbers.oprs[o.id].id) for o in plan.order],
        "mem_chunk": {},
        "operator": {str(plan.numbers.oprs[o.id].id): _operator(plan, o) for o in oprs},
        "var": {
            **{str(plan.numbers.var(v)[0]): _variable(plan, v) for o in oprs for v in o.outputs},
            **{str(n): _scratch(plan, n, name) for n, name in scratch},
        },
    }


def _operator(plan: ExecutionPlan, opr: Opr) -> dict[str, Any]:
    names = plan.numbers.oprs[opr.id]
    scratch = plan.numbers.scratch.get(opr.id)
    outputs = [plan.numbers.var(v)[0] for v in opr.outputs] + ([scratch[0]] if scratch else [])
    return {
        "node_type": "operator",
        "id": str(names.id),
        "name": names.name,
        "type": names.cls,
        "input": [str(plan.numbers.var(v)[0]) for v in opr.inputs],
        "output": [str(n) for n in outputs],
        "extra": {},
        "waiting_spec": {},
    }


def _scratch(plan: ExecutionPlan, number: int, name: str) -> dict[str, Any]:
    """Describe the variable of an operator's scratch memory, whose size is MegEngine's own."""
    return {
        **_common(plan, number, name),
        "flag": ["VOLATILE_CONTENT", "ALLOW_EMPTY_SHAPE"],
        "static_infer_tags": {"SHAPE": _tag(RUNTIME, None), "VALUE": _tag(NONE, None)},
        "mem_plan": None,
    }


def _common(plan: ExecutionPlan, number: int, name: str) -> dict[str, Any]:
    return {
        "node_type": "var",
        "id": str(number),
        "name": name,
        "comp_node": plan.node,
        "dev_ptr": None,
        "prev_dev_ptr": 0,
        "force_update_src": None,
        "mem_readonly_fwd_src": None,
    }


def _variable(plan: ExecutionPlan, var: Var) -> dict[str, Any]:
    number, name = plan.numbers.var(var)
    shape, value = plan.infer_type(var)
    size = plan.known.shapes.get(var.id)
    constant = plan.known.values.get(var.id)
    small = (
        None
        if constant is None
        else "Large Array"
        if constant.size > _LARGE
        else constant.reshape(-1).tolist()
    )
    return {
        **_common(plan, number, name),
        "flag": ["ALLOW_EMPTY_SHAPE"],
        "static_infer_tags": {
            "SHAPE": _tag(shape, None if size is None else list(size)),
            "VALUE": _tag(value, small),
        },
        "mem_plan": _memory(var, size),
    }


def _tag(kind: int, result: object) -> dict[str, Any]:
    return {
        "node_type": "static_infer_tag",
        "infer_type": STATIC_NAMES[kind],
        "inferred_result": result,
        "deps": [],
    }


def _memory(var: Var, size: tuple[int, ...] | None) -> dict[str, Any] | None:
    if size is None or var.dtype is None:
        return None
    layout = {"dtype": var.dtype.name, "shape": list(size), "stride": packed(size)}
    return {"offset_byte": 0, "layout": layout, "mem_chunk_id": None}


def profile_json(measured: Mapping[str, Any], plan: ExecutionPlan) -> dict[str, Any]:
    """Write a profile of the engine with MegEngine's numbers, names and classes.

    Args:
        measured: what `loadrun.engines.reference.ReferenceEngine.get_profile` gave.
        plan: numbers and names of the graph that was measured.
    """
    graph = graph_json(plan)
    measured_graph = measured["graph_exec"]
    renamed = {str(i): str(n.id) for i, n in plan.numbers.oprs.items()}
    for key in measured_graph["comp_seq"]:
        renamed.setdefault(key, str(plan.numbers.next + int(key)))
    for key, said in measured_graph["operator"].items():
        fused = [{**one, "id": renamed[one["id"]]} for one in said["extra"].get("fused", ())]
        graph["operator"].setdefault(renamed[key], said)["extra"] = {"fused": fused} if fused else {}
    graph["comp_seq"] = [renamed[k] for k in measured_graph["comp_seq"]]
    times = measured["profiler"]
    return {
        "graph_exec": graph,
        "profiler": {
            "device": {renamed[k]: {plan.node: next(iter(v.values()))} for k, v in times["device"].items()},
            "host": {renamed[k]: v for k, v in times["host"].items()},
            "opr_footprint": {renamed[k]: v for k, v in times["opr_footprint"].items()},
            "opr_internal_pf": {},
        },
    }


def memory_json(plan: ExecutionPlan) -> dict[str, Any]:
    """Plan when each piece of memory is needed and where it would lie, as if nothing were written in place.

    Views take no piece of their own. Times count executed operators, addresses bytes; weights and inputs, which stay,
    come last.
    """
    steps = {o.id: i for i, o in enumerate(plan.order)}
    end = len(plan.order)
    roots: dict[int, Var] = {}
    last: dict[int, int] = {}
    for opr in plan.order:
        for var in opr.outputs:
            view = Trait.VIEW in CATALOG[opr.type].traits and opr.inputs
            roots[var.id] = roots.get(opr.inputs[0].id, opr.inputs[0]) if view else var
            last.setdefault(roots[var.id].id, steps[opr.id] + 1)
        for var in opr.inputs:
            if var.id in roots:
                last[roots[var.id].id] = steps[opr.id] + 1
    for var in plan.graph.outputs:
        if var.id in roots:
            last[roots[var.id].id] = end
    owners = [v for i, v in ((i, v) for i, v in roots.items()) if i == v.id]
    kept = [v for v in owners if not v.owner.inputs]
    passing = [(v, steps[v.owner.id], last[v.id], _byte_size(plan, v)) for v in owners if v not in kept]
    places, top = _addresses([(begin, stop, size) for _, begin, stop, size in passing])
    chunks = [
        _chunk(i, "static_mem", begin, stop, place, size)
        for i, ((_, begin, stop, size), place) in enumerate(zip(passing, places, strict=True))
    ]
    for var in kept:
        size = _byte_size(plan, var)
        chunks.append(_chunk(len(chunks), "weight_mem", 0, end, top, size))
        top += size
    return {
        "opr": {
            str(i): {"id": str(i), "name": plan.numbers.oprs[o.id].name} for i, o in enumerate(plan.order)
        },
        "chunk": {c["id"]: c for c in chunks},
    }


def _byte_size(plan: ExecutionPlan, var: Var) -> int:
    shape = plan.known.shapes.get(var.id)
    size = 0 if shape is None or var.dtype is None else nbytes(shape, var.dtype)
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _chunk(i: int, kind: str, begin: int, stop: int, place: int, size: int) -> dict[str, str]:
    return {
        "id": str(i),
        "type": kind,
        "time_begin": str(begin),
        "time_end": str(stop),
        "logic_addr_begin": str(place),
        "logic_addr_end": str(place + size),
        "overwrite_dest_id": "-1",
    }


def _addresses(pieces: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Choose an address for each piece (begin, end, size), the largest first, at the lowest place free meanwhile."""
    places = [0] * len(pieces)
    done: list[int] = []
    for i in sorted(range(len(pieces)), key=lambda i: -pieces[i][2]):
        begin, stop, size = pieces[i]
        taken = sorted(
            (places[j], places[j] + pieces[j][2])
            for j in done
            if pieces[j][0] < stop and begin < pieces[j][1]
        )
        at = 0
        for low, high in taken:
            if at + size <= low:
                break
            at = max(at, high)
        places[i] = at
        done.append(i)
    return places, max((p + s[2] for p, s in zip(places, pieces, strict=True)), default=0)


def write_memory(folder: str | os.PathLike[str], plan: ExecutionPlan) -> None:
    """Write ``graph.json`` and ``StaticMemoryInfo.json``, as ``--get_static_mem_info DIR`` does; make the folder."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    for name, content in (("graph.json", graph_json(plan)), ("StaticMemoryInfo.json", memory_json(plan))):
        with replacing(path / name) as f:
            f.write(json.dumps(content).encode())
