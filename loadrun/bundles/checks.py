"""The checks of a graph: AssertEqual operators, by the names of the outputs that they look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Graph, Opr, Var
from ..graph.params import AssertEqual
from ..ops.catalog import select, types
from ..ops.op import Trait
from .cases import EXPECT

FORWARDING = types(Trait.FORWARDS) | select(lambda op: op.family == "typecvt")
"""Operators that forward their input, at most converted."""


@dataclass(frozen=True)
class Check:
    """One AssertEqual operator: `get` must agree with `expect` within `maxerr`.

    The operator passes when its third input, `err`, is in [0, maxerr]; dumps compute it in the graph as
    ``max(|expect - get| / max(1, min(|expect|, |get|)))``.
    """

    name: str
    opr: Opr
    expect: Var
    get: Var
    err: Var
    maxerr: float
    verbose: bool


def checks_of(graph: Graph) -> list[Check]:
    """List the checks that the graph's outputs depend on, in the order of the outputs."""
    order: dict[int, Opr] = {}
    behind = _Behind()
    for out in graph.outputs:
        opr = behind(out.owner)
        if opr.type == "AssertEqual":
            order.setdefault(id(opr), opr)
    for opr in graph.needed():
        if opr.type == "AssertEqual":
            order.setdefault(id(opr), opr)
    checks: dict[str, Check] = {}
    unique = _Unique(checks)
    for opr in order.values():
        expect, get, err = opr.inputs
        source = behind(expect.owner).outputs[0].name or ""
        name = unique(source[: -len(EXPECT)] if source.endswith(EXPECT) else get.label)
        param = opr.get(AssertEqual)
        checks[name] = Check(name, opr, expect, get, err, param.maxerr, param.verbose)
    return list(checks.values())


def outputs_of(graph: Graph) -> dict[str, Var]:
    """Return the outputs by name, in the graph's order: what checks look at, and outputs without a check."""
    by_name: dict[str, Var] = {}
    names: dict[int, str] = {}
    for check in checks_of(graph):
        by_name[check.name] = _converted(check)
        names[id(check.opr)] = check.name
    behind, unique = _Behind(), _Unique(by_name)
    order: dict[str, None] = {}
    for var in graph.outputs:
        name = names.get(id(behind(var.owner)))
        if name is None and behind(var.owner).type != "AssertEqual":
            by_name[name := unique(var.label)] = var
        if name is not None:
            order.setdefault(name)
    return {n: by_name[n] for n in (*order, *(n for n in by_name if n not in order))}


def _converted(check: Check) -> Var:
    """Return what the model computes: before the conversion where a check converts both values alike."""
    expect, get = check.expect.owner, check.get.owner
    alike = expect.type == get.type == "TypeCvtV2" and expect.params == get.params
    return get.inputs[0] if alike and expect.inputs[0].owner.type == "Host2DeviceCopy" else check.get


class _Behind:
    """Looks through conversions and copies for the operator that they forward."""

    def __init__(self) -> None:
        self.known: dict[int, Opr] = {}

    def __call__(self, opr: Opr) -> Opr:
        passed = []
        while opr.type in FORWARDING and opr.inputs and id(opr) not in self.known:
            passed.append(id(opr))
            opr = opr.inputs[0].owner
        source = self.known.get(id(opr), opr)
        self.known.update(dict.fromkeys(passed, source))
        return source


class _Unique:
    """Gives names that are not yet keys of `used`: a taken ``y`` becomes ``y#2``."""

    def __init__(self, used: Mapping[str, object]) -> None:
        self.used = used
        self.count: dict[str, int] = {}

    def __call__(self, base: str) -> str:
        name = base
        while name in self.used:
            n = self.count[base] = self.count.get(base, 1) + 1
            name = f"{base}#{n}"
        return name
