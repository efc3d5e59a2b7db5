"""One operator taken out of a model, as a testcase that fails by itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...base.errors import UsageError
from ...engines import Engine, make_engine
from ...engines.reference import ReferenceEngine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, StoredTensor, Var
from ...graph.dtypes import Array
from ...graph.params import Host2DeviceCopy
from ...testcase import Bundle, Testcase
from ..pack.capture import embed
from .matching import match
from .running import FileSide, taken

__all__ = ["extract"]


def extract(
    graph: Graph,
    opr: Opr,
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    maxerr: float = 1e-4,
    seed: int = 0,
) -> Bundle:
    """Make a bundle of one operator: its inputs and expected outputs are the reference's.

    Constants that the operator reads stay those of the model under suspicion, so that a wrong weight shows.

    Args:
        graph: the model under suspicion, without checks.
        opr: one of its operators.
        against: the reference: a graph without checks, ``"float64"``, the name of an engine, or the file that the graph
            was made of on a runtime.
        feeds: arrays by input name.
        maxerr: tolerance of the check, by MegEngine's measure.
        seed: seed of random operators.

    Raises:
        UsageError: the reference has no value for an input or the output of the operator.
    """
    known = dict(_reference(graph, opr, against, feeds, seed))
    alone = Graph()
    inputs: list[Var] = []
    arrays: dict[str, Array] = {}
    made: dict[int, Var] = {}
    for i, var in enumerate(opr.inputs):
        if var.id not in made:
            made[var.id] = _operand(alone, var, i, known, arrays)
        inputs.append(made[var.id])
    outs = alone.add(
        opr.type,
        *opr.params,
        inputs=inputs,
        n_outputs=len(opr.outputs),
        names=[v.name or f"output{v.index}" for v in opr.outputs],
        tensors=opr.tensors,
        output_dtype=opr.output_dtype,
    )
    alone.oprs[-1].name = opr.name
    checked = [v for v in opr.outputs if v.id in known]
    if not checked:
        raise UsageError("the reference has no value for the operator's outputs")
    alone.outputs = [outs[v.index] for v in checked]
    expects = {f"{outs[v.index].name}:expect": _in_storage_dtype(known[v.id], v) for v in checked}
    kinds = {v.name or "": v.owner.tensors[0].dtype for v in alone.inputs}
    kinds |= {f"{outs[v.index].name}:expect": v.dtype for v in checked if v.dtype is not None}
    case = Testcase({**arrays, **expects}, kinds)
    return embed(Bundle(alone), [case], maxerr=maxerr)


def _operand(alone: Graph, var: Var, i: int, known: Mapping[int, Array], arrays: dict[str, Array]) -> Var:
    """Add an input of the operator: the model's constant, or an input of the new model."""
    if var.owner.tensors and var.owner.type != "Host2DeviceCopy":
        tensor = var.owner.tensors[var.index]
        return alone.add("ImmutableTensor", names=[var.name], tensors=[tensor])[0]
    if var.id not in known:
        raise UsageError(f"the reference has no value for the operator's input {var.label!r}")
    value = _in_storage_dtype(known[var.id], var)
    name = var.name or f"input{i}"
    if name in arrays:
        name = f"{name}.{i}"
    assert var.dtype is not None
    arrays[name] = value
    tensor = StoredTensor(var.dtype, value.shape, name)
    return alone.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])[0]


def _in_storage_dtype(value: Array, var: Var) -> Array:
    """Cast a value to the variable's storage dtype; float64 results are rounded."""
    assert var.dtype is not None
    with np.errstate(all="ignore"):
        return value.astype(var.dtype.np)


def _reference(
    graph: Graph, opr: Opr, against: Graph | FileSide | str, feeds: Mapping[str, Array], seed: int
) -> list[tuple[int, Array]]:
    """Values of the operator's inputs and outputs in the reference, by the model's variable ids."""
    wanted = [*opr.inputs, *opr.outputs]
    if isinstance(against, FileSide):
        fed = [(v.id, feeds[v.name]) for v in opr.inputs if v.name is not None and v.name in feeds]
        found_values = [(v.id, against.value(v, feeds)) for v in wanted]
        return fed + [(i, a) for i, a in found_values if a is not None]
    if isinstance(against, str):
        partners = {v.id: v for v in wanted}
    else:
        found = match(graph, against).pairs
        partners = {v.id: found[v.id] for v in wanted if v.id in found}
    targets = list({p.id: p for p in partners.values()}.values())
    engine: Engine | ReferenceEngine | WideEngine
    if isinstance(against, str):
        engine = (
            WideEngine(graph, targets, seed=seed)
            if against == "float64"
            else make_engine(against, graph, targets, seed=seed)
        )
    else:
        engine = ReferenceEngine(against, targets, seed=seed)
    values = dict(
        zip(
            [t.id for t in targets],
            engine.run(taken(engine.inputs, feeds)),
            strict=True,
        )
    )
    return [(mine, values[p.id]) for mine, p in partners.items()]
