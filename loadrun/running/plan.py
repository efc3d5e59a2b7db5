"""What a replay computes of a graph, and how each of its checks is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..base.errors import EngineError
from ..base.registry import late
from ..compare.judging import NARROW, Criteria, blind, judge, policy_for
from ..compare.metrics import Formula
from ..compare.policy import Policy, sequence_of
from ..compare.results import OutputResult
from ..engines import make_engine
from ..graph import Graph, Var
from ..graph.dtypes import Array, DType, dtype_of
from ..ops.infer import infer_dtypes
from ..passes.checks import GET, Cone, Origins, compared, cone, formula, two_sided
from ..testcase import EXPECT, Bundle, Check, SourceFile

with late(__name__):
    from ..engines import file_replay


class Settings(NamedTuple):
    """What holds for a model at all sizes.

    Attributes:
        seed: seed of the graph's random operators.
        policies: what outputs must fulfil besides, by name.
        loosened: original tolerances of checks that were loosened, by output name.
    """

    seed: int
    policies: Mapping[str, Policy]
    loosened: Mapping[str, float]


@dataclass(eq=False)
class PlannedCheck:
    """A check, its criteria, and the variables that judging it takes.

    Attributes:
        error: the error that the file computes, where that is looked at.
        cone: the error graph by itself, where it has to be asked whether it compares.
        rule: computes the error instead, by the rule of the file that the graph was made of.
        answer: what it said, None before it was asked; a tuple so that no answer is one, too.
    """

    check: Check
    criteria: Criteria
    expect: Var
    get: Var
    error: Var | None
    cone: Cone | None
    rule: Callable[[Array, Array], float] | None = None
    answer: tuple[str | None] | None = None

    @property
    def read(self) -> list[Var]:
        """List the variables of the model that it reads."""
        return [self.get, *(self.cone.frontier.values() if self.cone else ())]

    @property
    def vars(self) -> list[Var]:
        """List what is computed for it, in the order in which `judged` takes the values."""
        extra = [self.cone.source, *self.cone.frontier.values()] if self.cone else []
        return [self.expect, self.get, *([self.error] if self.error else []), *extra]

    def judged(self, values: Iterator[Array], seed: int) -> OutputResult:
        """Judge the next values; the file's own error graph is tested once whether it compares."""
        expect, get = next(values), next(values)
        check_error = next(values) if self.error is not None else None
        if self.rule is not None:
            check_error = np.array([self.rule(expect, get)])
        operands = [next(values) for _ in range(1 + len(self.cone.frontier))] if self.cone is not None else []

        def seen() -> str | None:
            if self.cone is None:
                return None
            if self.answer is None:
                self.answer = (_answer(self.cone, self.check, operands, seed),)
            return self.answer[0]

        criteria = self.criteria._replace(dtype=self.get.dtype or dtype_of(get))
        return judge(criteria, expect, get, check_error, seen)


@dataclass(eq=False)
class OutputPlan:
    """The variables to compute: those of the checks, then the unchecked outputs."""

    checks: list[PlannedCheck]
    plain: list[tuple[str, Var]]
    unread: dict[str, Var]

    @property
    def vars(self) -> list[Var]:
        """List what is computed, in this order."""
        return [v for c in self.checks for v in c.vars] + [v for _, v in self.plain]


def plan_outputs(bundle: Bundle, settings: Settings) -> OutputPlan:
    """Say what is computed of a graph, and how each check is judged."""
    graph = bundle.graph
    checks = bundle.checks
    named = {c.name for c in checks}
    plain = [(n, v) for n, v in bundle.outputs.items() if n not in named]
    origins = Origins(graph)
    formulas = [formula(c) for c in checks]
    others = [c.err for c, f in zip(checks, formulas, strict=True) if f is Formula.OTHER]
    if others:
        infer_dtypes(graph.needed(others))
    checked = [_asked(bundle, settings, c, f, origins) for c, f in zip(checks, formulas, strict=True)]
    needed = {id(o) for o in graph.needed([c.expect for c in checks])}
    unused = [v for v in graph.inputs if (v.name or "").endswith(EXPECT) and id(v.owner) not in needed]
    unread = {(v.name or "")[: -len(EXPECT)]: v for v in unused}
    return OutputPlan(checked, plain, unread)


def _asked(bundle: Bundle, settings: Settings, check: Check, kind: Formula, origins: Origins) -> PlannedCheck:
    """Set the criteria of a check, and return whether its error graph has to be run."""
    expect, get = compared(check)
    rule = _rule(bundle.file, check.name)
    # Values whose shapes do not fit fail by the file's rule; the graph's operators would stop.
    kind = Formula.OTHER if rule is not None else kind
    fault = None if rule is not None else origins.fault(check)
    check_error = None if kind is Formula.REAL or rule is not None else check.err
    around: Cone | None = None
    policy = policy_for(settings.policies, check.name)
    if kind is Formula.OTHER and fault is None and rule is None and not policy.loosens:
        taken = cone(check, origins)
        if isinstance(taken, str):
            fault, check_error = taken, None
        else:
            around = taken
            infer_dtypes(around.graph.oprs)
            check_error = check.err if taken.direct else None
    criteria = Criteria(
        check.name,
        expect.dtype or DType("Float32"),
        check.maxerr,
        kind if check_error is not None or rule is not None else Formula.REAL,
        fault,
        policy,
        loosened=settings.loosened.get(check.name),
        rounding=_rounding(kind, around),
        terms=bundle.file.terms(check.name) if rule is not None and bundle.file else "",
        by_shape=bundle.source.file is not None,
    )
    return PlannedCheck(check, criteria, expect, get, check_error, around, rule)


def _rule(source: SourceFile | None, name: str) -> Callable[[Array, Array], float] | None:
    """Return what computes an output's error by the rule of the file that the graph was made of, if it has one."""
    if source is None:
        return None
    output = name if name in source.outputs else sequence_of(name)
    probe = np.zeros(1, np.float32)
    if output not in source.outputs or source.error(output, probe, probe) is None:
        return None

    def error(expect: Array, get: Array) -> float:
        ratio = source.error(output, expect, get)
        return math.nan if ratio is None else ratio

    return error


def _rounding(kind: Formula, around: Cone | None) -> float:
    """Machine epsilon of the narrowest float in which an error is computed, 0 for float32."""
    if kind is Formula.NARROW:
        return NARROW["Float16"]
    met = {v.dtype.name for v in around.graph.vars() if v.dtype is not None} if around is not None else set()
    return max((eps for name, eps in NARROW.items() if name in met), default=0.0)


def _answer(around: Cone, check: Check, operands: Sequence[Array], seed: int) -> str | None:
    engine = make_engine("reference", around.graph, around.graph.outputs, seed=seed)
    feeds = dict(zip(around.frontier, operands[1:], strict=True))
    name = around.source.name or ""

    def errors(expect: Array) -> Array:
        return engine.run({name: expect, **feeds})[0]

    return blind(errors, operands[0], around.source.owner.tensors[0].dtype, check.maxerr)


def check_errors(bundle: Bundle) -> dict[str, Callable[[Array, Array], float] | None]:
    """Return what measures the error of each check that has a formula of its own, by the output's name.

    None stands for a formula that needs more than an expected and a computed value.
    """
    errors: dict[str, Callable[[Array, Array], float] | None] = {}
    if bundle.file is not None and len(bundle.testcases):
        return file_replay.file_errors(bundle.file, bundle.testcases[0])
    for check in bundle.checks:
        if formula(check) is Formula.OTHER:
            infer_dtypes(bundle.graph.needed([check.err]))
            graph = two_sided(bundle.graph, check)
            errors[check.name] = None if graph is None else _measure(graph)
    return errors


def _measure(graph: Graph) -> Callable[[Array, Array], float]:
    asked = make_engine("reference", graph, graph.outputs)
    (expected,) = (name for name in asked.inputs if name != GET)
    dtypes = {name: v.owner.tensors[0].dtype.np for name, v in asked.inputs.items()}

    def error(expect: Array, get: Array) -> float:
        feeds = {expected: expect.astype(dtypes[expected]), GET: get.astype(dtypes[GET])}
        try:
            (value,) = asked.run(feeds)
        except EngineError:
            # The computed value has another layout than the expected one.
            return math.nan
        return float(value.reshape(-1)[0]) if value.size == 1 else math.nan

    return error
