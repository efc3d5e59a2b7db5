"""Models in which one thing was broken on purpose, and what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

import loadrun
from loadrun.graph import Graph, Opr
from loadrun.graph.dtypes import encode
from loadrun.graph.params import Elemwise, ElemwiseMode as M
from loadrun.ops.infer import infer_dtypes
from loadrun.passes.constants import bare, subgraph

ROOT = Path(__file__).resolve().parents[2] / "fixtures" / "nets"
OTHER = {
    M.RELU: M.SIGMOID,
    M.SIGMOID: M.TANH,
    M.TANH: M.SIGMOID,
    M.ADD: M.SUB,
    M.MUL: M.ADD,
    M.SUB: M.ADD,
    M.EXP: M.SIGMOID,
    M.FUSE_ADD_RELU: M.ADD,
}


def model(name: str, *, named: bool) -> tuple[Graph, dict[str, np.ndarray]]:
    """A fixture's model and the inputs of its first testcase, without the names of inner variables on request."""
    bundle = loadrun.load(ROOT / f"{name}.mge")
    graph = bare(bundle)
    if not named:
        keep = {v.id for v in (*graph.inputs, *graph.outputs)}
        for var in graph.vars():
            if var.id not in keep:
                var.name = None
        for opr in graph.oprs:
            opr.name = None
            for tensor in opr.tensors:
                if opr.type != "Host2DeviceCopy":
                    tensor.name = None
    return graph, bundle.testcases[0].inputs


def copied(graph: Graph) -> Graph:
    made, _ = subgraph(graph, graph.outputs, everything=True)
    return made


def reads(graph: Graph) -> dict[int, list[Opr]]:
    found: dict[int, list[Opr]] = {}
    for opr in graph.oprs:
        for var in opr.inputs:
            found.setdefault(var.id, []).append(opr)
    return found


def weight_changed(graph: Graph, rng: Random) -> Opr | None:
    """Change an eighth of a weight's elements; the operator that reads it is the guilty one."""
    readers = reads(graph)
    places = [
        (o, i)
        for o in graph.oprs
        if o.type != "Host2DeviceCopy"
        for i, t in enumerate(o.tensors)
        if t.data is not None and t.dtype.name == "Float32" and len(readers.get(o.outputs[i].id, ())) == 1
    ]
    if not places:
        return None
    opr, i = rng.choice(places)
    tensor = opr.tensors[i]
    value = tensor.value().copy()
    flat = value.reshape(-1)
    at = rng.sample(range(flat.size), max(1, flat.size // 8))
    flat[at] = flat[at] * np.float32(-1.5) + np.float32(0.25)
    opr.tensors[i] = replace(tensor, data=encode(value, tensor.dtype))
    return readers[opr.outputs[i].id][0]


def mode_changed(graph: Graph, rng: Random) -> Opr | None:
    """Replace an elementwise operator on floats by another one."""
    infer_dtypes(graph.oprs)
    places = [
        o
        for o in graph.oprs
        if o.type == "Elemwise" and o.get(Elemwise).mode in OTHER and str(o.outputs[0].dtype) == "Float32"
    ]
    if not places:
        return None
    opr = rng.choice(places)
    opr.params = (Elemwise(mode=OTHER[opr.get(Elemwise).mode]),)
    return opr


BREAK: tuple[Callable[[Graph, Random], Opr | None], ...] = (weight_changed, mode_changed)


def broken(seeds: Iterable[int]) -> Iterator[tuple[str, Graph, Graph, dict[str, np.ndarray], Opr]]:
    """Title, broken graph, good graph, inputs, and the operator that is to blame."""
    names = sorted(p.stem for p in ROOT.glob("*.mge") if loadrun.load(p).testcases)
    for seed in seeds:
        rng = Random(seed)
        name = rng.choice(names)
        how = BREAK[seed % len(BREAK)]
        graph, feeds = model(name, named=bool(rng.randrange(2)))
        bad = copied(graph)
        opr = how(bad, rng)
        if opr is not None:
            yield f"{name}-{how.__name__}-{seed}", bad, graph, feeds, opr
