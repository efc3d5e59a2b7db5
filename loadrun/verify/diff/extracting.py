"""An operator taken out of a model, as a testcase that fails by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageError
from ...compare.results import Verdict
from ...engines import make_engine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array, DType
from ...graph.excerpts import excerpt
from ...ops.infer import infer_dtypes
from ...runner import Runner
from ...testcase import Bundle, Testcase
from ..pack.capture import MAXERR, embed
from .matching import is_constant, match
from .running import FileSide, GraphSide, taken

__all__ = ["extract", "fails_alone"]


def extract(
    graph: Graph,
    opr: Opr,
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    before: Sequence[Opr] = (),
    maxerr: float = MAXERR,
    seed: int = 0,
) -> Bundle:
    """Make a bundle of one operator: its inputs and expected outputs are the reference's.

    Constants that the operator reads stay those of the model under suspicion, so that a wrong weight shows. An input
    that the reference does not have is the model's own.

    Args:
        graph: the model under suspicion, without checks.
        opr: one of its operators.
        against: the reference: a graph without checks, ``"float64"``, the name of an engine, or the file that the graph
            was made of on a runtime.
        feeds: arrays by input name.
        before: operators before it that go along, since the reference has no values between them.
        maxerr: tolerance of the check, by MegEngine's measure.
        seed: seed of random operators.

    Raises:
        UsageError: the reference has no value for an output of the operator.
    """
    infer_dtypes(graph.needed(opr.outputs))
    inside = {v.id for o in (*before, opr) for v in o.outputs}
    border = {v.id: v for o in (*before, opr) for v in o.inputs if v.id not in inside and not is_constant(v)}
    known = _reference(graph, [*border.values(), *opr.outputs], against, feeds, seed)
    targets = [v for v in opr.outputs if v.id in known]
    if not targets:
        raise UsageError("the reference has no value for the operator's outputs")
    own = _own_values(graph, list(border.values()), feeds, seed)
    names: dict[int, str] = {}
    arrays: dict[str, Array] = {}
    for number, var in border.items():
        value = known.get(number)
        if value is None or (number in own and value.shape != own[number].shape):
            value = own.get(number)
        if value is None:
            raise UsageError(f"nothing has a value for the operator's input {var.label!r}")
        name = var.name or f"input{len(names)}"
        names[number] = name = f"{name}.{len(names)}" if name in arrays else name
        arrays[name] = value
        var.shape = value.shape
    alone, copies = excerpt(graph, targets, names)
    for var in targets:
        copies[var.id].name = var.name or f"output{var.index}"
    expects = {f"{copies[v.id].name}:expect": known[v.id] for v in targets}
    kinds = {v.name or "": v.owner.tensors[0].dtype for v in alone.inputs}
    kinds |= {f"{copies[v.id].name}:expect": v.dtype for v in targets if v.dtype is not None}
    return embed(Bundle(alone), [Testcase({**arrays, **expects}, kinds)], maxerr=maxerr)


def fails_alone(bundle: Bundle) -> bool:
    """Tell whether an extracted operator gives other values than the reference's on the reference's inputs."""
    return Runner(bundle).replay_one(0).verdict is not Verdict.PASS


def _own_values(
    graph: Graph, variables: Sequence[Var], feeds: Mapping[str, Array], seed: int
) -> dict[int, Array]:
    """Compute values in the model itself, as far as it goes."""
    wanted = {v.id for v in variables}
    run = GraphSide(graph, seed).values(feeds)
    fed = {v.id: feeds[n] for v in variables if (n := v.name or "") in feeds and not v.owner.inputs}
    return fed | {v.id: _stored(a, v.dtype, v) for v, a in run if v.id in wanted}


def _stored(value: Array, dtype: DType | None, var: Var) -> Array:
    """Give numbers in the storage dtype of a variable.

    Args:
        value: the numbers that a variable of the reference stands for.
        dtype: that variable's dtype; the integers of quantized values stay what they are, whatever the scale.
        var: the variable of the model under suspicion.
    """
    assert var.dtype is not None
    mine = var.dtype
    source = dtype if dtype is not None and dtype.is_quantized else mine
    if source.is_quantized and (value.dtype.kind == "f") and (mine.is_quantized or mine.np.kind in "iu"):
        limits = np.iinfo(mine.np)
        value = np.clip(np.rint(value / float(source.scale)) + source.zero_point, limits.min, limits.max)
    with np.errstate(all="ignore"):
        return value.astype(mine.np)


def _reference(
    graph: Graph,
    wanted: Sequence[Var],
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    seed: int,
) -> dict[int, Array]:
    """Compute values in the reference, in storage form, by the model's variable ids."""
    fed = {v.id: feeds[n] for v in wanted if (n := v.name or "") in feeds and not v.owner.inputs}
    if isinstance(against, FileSide):
        asked = [(v, against.value(v, feeds)) for v in wanted if v.id not in fed]
        return fed | {v.id: _stored(a, v.dtype, v) for v, a in asked if a is not None}
    if isinstance(against, Graph):
        pairs = match(graph, against).pairs
        mine = {pairs[v.id].id: v for v in wanted if v.id in pairs}
        run = GraphSide(against, seed).values(feeds)
        return fed | {mine[v.id].id: _stored(a, v.dtype, mine[v.id]) for v, a in run if v.id in mine}
    targets = [v for v in wanted if v.id not in fed]
    engine = (
        WideEngine(graph, targets, seed=seed)
        if against == "float64"
        else make_engine(against, graph, targets, seed=seed)
    )
    values = engine.run(taken(engine.inputs, feeds))
    return fed | {v.id: a.astype(_np(v), copy=False) for v, a in zip(targets, values, strict=True)}


def _np(var: Var) -> np.dtype[Any]:
    assert var.dtype is not None
    return var.dtype.np
