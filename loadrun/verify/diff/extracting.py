"""An operator extracted from a model, as a testcase that fails on its own."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...base.errors import UsageError
from ...compare.results import Verdict
from ...engines import make_engine
from ...engines.wide import WideEngine
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array, DType, dtype_of
from ...graph.excerpts import excerpt
from ...ops.infer import infer_dtypes
from ...runner import Runner
from ...testcase import Bundle, Testcase
from ..pack.capture import embed
from .matching import Matching, is_constant, match
from .running import FileSide, GraphSide, taken


def extract(
    graph: Graph,
    opr: Opr,
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    *,
    before: Sequence[Opr] = (),
    matching: Matching | None = None,
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
        matching: the partners of the variables in another graph, where they are known.
        seed: seed of random operators.

    Raises:
        UsageError: the reference has no value for an output of the operator.
    """
    infer_dtypes(graph.needed(opr.outputs))
    inside = {v.id for o in (*before, opr) for v in o.outputs}
    border = {v.id: v for o in (*before, opr) for v in o.inputs if v.id not in inside and not is_constant(v)}
    known = reference_values(graph, [*border.values(), *opr.outputs], against, feeds, seed, matching)
    targets = [v for v in opr.outputs if v.id in known]
    if not targets:
        raise UsageError("the reference has no value for the operator's outputs")
    values = computed_values(graph, list(border.values()), feeds, seed)
    for number in border:
        value = known.get(number)
        if value is None or (number in values and value.shape != values[number].shape):
            # The reference has another layout.
            known.update({number: values[number]} if number in values else {})
    dtypes = reference_dtypes(border.values(), matching)
    return as_testcase(graph, border.values(), targets, known, dtypes)


def reference_dtypes(variables: Iterable[Var], matching: Matching | None) -> dict[int, DType]:
    """List the quantized dtypes of the reference, by the model's variable ids, where scales or zero points differ."""
    dtypes = {}
    for var in variables:
        other = matching.pairs.get(var.id) if matching is not None else None
        mine, there = var.dtype, other.dtype if other is not None else None
        if mine is not None and there is not None and mine != there and mine.name == there.name:
            dtypes[var.id] = there
    return dtypes


def as_testcase(
    graph: Graph,
    border: Iterable[Var],
    targets: Sequence[Var],
    values: Mapping[int, Array],
    dtypes: Mapping[int, DType] | None = None,
    *,
    maxerr: float | None = None,
) -> Bundle:
    """Make a bundle of what is between some variables, with values for them as its testcase.

    Args:
        graph: the model, whose dtypes are inferred.
        border: the variables that become inputs.
        targets: the variables that are checked.
        values: arrays by id for all of them, in storage form.
        dtypes: dtypes of inputs that are not the model's, by id.
        maxerr: tolerance of the checks, by MegEngine's measure.

    Raises:
        UsageError: a variable has no value.
    """
    names: dict[int, str] = {}
    arrays: dict[str, Array] = {}
    for var in border:
        if var.id not in values:
            raise UsageError(f"there is no value for the operator's input {var.label!r}")
        name = var.name or f"input{len(names)}"
        names[var.id] = name = f"{name}.{len(names)}" if name in arrays else name
        arrays[name] = values[var.id]
    for var in targets:
        if var.id not in values:
            raise UsageError(
                f"there is no value for {var.label!r}, since the model stops before it; give inputs that it takes"
            )
    alone, copies = excerpt(graph, targets, names)
    others = {names[i]: d for i, d in (dtypes or {}).items() if i in names}
    for var in alone.inputs:
        var.shape = arrays[var.name or ""].shape
        var.owner.tensors[0].shape = var.shape
        var.dtype = var.owner.tensors[0].dtype = others.get(var.name or "", var.owner.tensors[0].dtype)
    for var in targets:
        copies[var.id].name = var.name or f"output{var.id}"
    expects = {f"{copies[v.id].name}:expect": values[v.id] for v in targets}
    kinds = {v.name or "": v.owner.tensors[0].dtype for v in alone.inputs}
    kinds |= {f"{copies[v.id].name}:expect": v.dtype for v in targets if v.dtype is not None}
    used = {v.name for v in alone.inputs}
    inputs = {n: a for n, a in arrays.items() if n in used}
    # What has no elements compares nothing, as the verdict says.
    case = Testcase({**inputs, **expects}, kinds)
    return embed(Bundle(alone), [case], maxerr=maxerr, warn=lambda _: None)


def fails_alone(bundle: Bundle) -> bool:
    """Return whether an extracted operator gives other values than the reference's on the reference's inputs."""
    return Runner(bundle).replay_one(0).verdict is not Verdict.PASS


_KEPT = 1 << 26
"""Bytes of values of the reference that are kept."""


def computed_values(
    graph: Graph, variables: Sequence[Var], feeds: Mapping[str, Array], seed: int
) -> dict[int, Array]:
    """Compute values in the model itself, as far as it goes."""
    fed = _fed(variables, feeds)
    wanted = {v.id for v in variables} - fed.keys()
    run = ((v, a) for v, a in GraphSide(graph, seed).values(feeds) if v.id in wanted)
    return fed | {v.id: stored_as(a, v.dtype, v) for v, a in islice(run, len(wanted))}


def _fed(variables: Sequence[Var], feeds: Mapping[str, Array]) -> dict[int, Array]:
    return {v.id: feeds[v.name] for v in variables if v.name and v.name in feeds and not v.owner.inputs}


def stored_as(value: Array, dtype: DType | None, var: Var) -> Array:
    """Return numbers in the storage dtype of a variable.

    Args:
        value: the numbers that a variable of the reference stands for.
        dtype: that variable's dtype; the integers of quantized values stay what they are, whatever the scale.
        var: the variable of the model under suspicion.
    """
    # An operator that failed has outputs without dtype.
    mine = var.dtype or dtype_of(value)
    source = dtype if dtype is not None and dtype.is_quantized else mine
    if source.is_quantized and (value.dtype.kind == "f") and (mine.is_quantized or mine.np.kind in "iu"):
        limits = np.iinfo(mine.np)
        value = np.clip(np.rint(value / float(source.scale)) + source.zero_point, limits.min, limits.max)
    with np.errstate(all="ignore"):
        return value.astype(mine.np)


def reference_values(
    graph: Graph,
    wanted: Sequence[Var],
    against: Graph | FileSide | str,
    feeds: Mapping[str, Array],
    seed: int,
    matching: Matching | None = None,
    kept: dict[int, Array] | None = None,
) -> dict[int, Array]:
    """Compute values in the reference, in storage form, by the model's variable ids.

    Args:
        kept: small values of a reference graph by its own variable ids, of the same data; they are not computed again.
    """
    fed = _fed(wanted, feeds)
    if isinstance(against, FileSide):
        asked = [(v, against.value(v, feeds)) for v in wanted if v.id not in fed]
        return fed | {v.id: stored_as(a, v.dtype, v) for v, a in asked if a is not None}
    if isinstance(against, Graph):
        pairs = (matching or match(graph, against)).pairs
        mine = {pairs[v.id].id: v for v in wanted if v.id in pairs and v.id not in fed}
        kept = {} if kept is None else kept
        if not mine.keys() <= kept.keys():
            left, room = len(mine), _KEPT
            kept.clear()
            for var, value in GraphSide(against, seed).values(feeds):
                room -= value.nbytes
                if room >= 0 or var.id in mine:
                    kept[var.id] = value.copy()
                left -= var.id in mine
                if not left and room < 0:
                    break
        found = {v: kept[i] for i, v in mine.items() if i in kept}
        return fed | {v.id: stored_as(a, pairs[v.id].dtype, v) for v, a in found.items()}
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
