"""What is computed of a model at one set of sizes, and how each of its checks is judged."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .base.about import About
from .base.errors import EngineError, InputError
from .base.registry import late
from .compare.judging import NARROW, Criteria, blind, judge, judge_empty, policy_for
from .compare.metrics import Formula
from .compare.policy import Policy, sequence_of
from .compare.results import OutputResult, Result, Verdict
from .engines import Engine, make_engine, make_ready
from .graph import Graph, Var
from .graph.dtypes import Array, DType, dtype_of
from .ops.infer import infer_dtypes
from .passes.checks import GET, Cone, Origins, compared, cone, formula, two_sided
from .testcase import EXPECT, Bundle, Check, SourceFile, Testcase

with late(__name__):
    from .engines import divided as divided_engine, file_replay, wide


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


Make = Callable[[Graph, Sequence[Var]], Engine]
"""Gives an engine for some variables of a graph."""


class Specialization:
    """Runs the graph that a bundle has for one set of sizes.

    Args:
        bundle: the model at these sizes.
        settings: what holds at all sizes.
        make: gives an engine.
        divided: whether the engine computes the model alone, and the reference engine the checks.

    Attributes:
        engines: the engines by the ids of what they compute.
    """

    def __init__(self, bundle: Bundle, settings: Settings, make: Make, divided: bool) -> None:
        self.bundle = bundle
        self.engines: dict[tuple[int, ...], Engine] = {}
        self._settings = settings
        self._make = make
        self._divided = divided
        self._checking: Engine | None = None
        self._model: Engine | None = None
        self._looked_at: object = None

    @cached_property
    def plan(self) -> OutputPlan:
        """What is computed, and how it is judged."""
        return plan_outputs(self.bundle, self._settings)

    @cached_property
    def outputs(self) -> Mapping[str, Var]:
        """The model's outputs by name."""
        return self.bundle.outputs

    @property
    def about(self) -> About:
        """Describe what executes the model, and how."""
        return (self._checking or self.model).about

    @property
    def model(self) -> Engine:
        """The engine for the outputs alone, made on first use."""
        if self._model is None:
            self._model = self._engine(list(self.outputs.values()))
        return self._model

    @property
    def checking(self) -> Engine:
        """The engine for the plan, made on first use; the reference engine computes checks, whatever runs the model."""
        if self._checking is None:
            self._checking = self._for_checks(self.plan)
        return self._checking

    def _for_checks(self, plan: OutputPlan) -> Engine:
        if not self._divided:
            return self._engine(plan.vars)

        infer_dtypes(self.bundle.graph.needed(plan.vars))
        computed = {v.id: v for v in (*(v for c in plan.checks for v in c.read), *(v for _, v in plan.plain))}
        model = self._engine(list(computed.values()))
        return divided_engine.Divided(
            model, self.bundle.graph, computed.values(), plan.vars, self._settings.seed
        )

    def _engine(self, targets: Sequence[Var]) -> Engine:
        key = tuple(v.id for v in targets)
        engine = self.engines.get(key)
        if engine is None:
            engine = self.engines[key] = self._make(self.bundle.graph, targets)
        return engine

    def check(self, testcase: Testcase, index: int | None) -> Result:
        """Feed a testcase and evaluate every check of the graph."""
        plan, engine = self.plan, self.checking
        self.bundle.require_unchanged()
        _check_dtypes(engine, testcase)
        make_ready(engine, testcase.arrays)
        start = time.perf_counter()
        values = iter(engine.run(testcase.arrays))
        seconds = time.perf_counter() - start
        outs = [c.judged(values, self._settings.seed) for c in plan.checks]
        for name, var in plan.plain:
            reason = UNREAD if name in plan.unread else None
            outs.append(_unchecked_output(name, var, next(values), reason))
        alone = plan.unread.keys() - dict(plan.plain)
        outs += [_unread(n, v, testcase) for n, v in plan.unread.items() if n in alone]
        computed = {o.name for o in outs}
        outs += _without_arrays(testcase, computed)
        single = {o.name for o in outs if o.shape == (1,)}
        misranked = {n: s for n, s in testcase.misranked(self.bundle.scalars).items() if n in single}
        outs = settled(faulty(outs, {**testcase.miscounted(computed), **misranked}), testcase)
        shown = _at_border(outs, self.bundle.scalars)
        return Result(index, shown, Verdict.of_outputs(outs), seconds, engine=engine.about)

    def run(self, feeds: Mapping[str, Array], given: object) -> Result:
        """Run the model on inputs, without its checks.

        Args:
            feeds: all inputs, fitted to the graph.
            given: what they were made of, None for random ones.
        """
        self.bundle.require_unchanged()
        model = self.model
        make_ready(model, feeds)
        start = time.perf_counter()
        values = model.run(feeds)
        seconds = time.perf_counter() - start
        outs = tuple(
            _unchecked_output(n, v, a) for (n, v), a in zip(self.outputs.items(), values, strict=True)
        )
        shown = self._widths_told(_at_border(outs, self.bundle.scalars), feeds, given)
        return Result(None, shown, Verdict.NOT_COMPARED, seconds, engine=model.about)

    def _widths_told(
        self, outs: tuple[OutputResult, ...], feeds: Mapping[str, Array], given: object
    ) -> tuple[OutputResult, ...]:
        """Say where integers of the model, which the file narrowed, do not fit; once for the same data."""
        graph = self.bundle.graph
        if not graph.integers or (given is not None and self._looked_at is given):
            return outs

        said = wide.first_overflow(graph, list(self.outputs.values()), feeds, graph.integers)
        self._looked_at = None if said else given
        return outs if said is None else tuple(replace(o, notes=(*o.notes, said)) for o in outs)


UNREAD = "the testcases have an expected value for it, but no check uses it"
"""Why an output is not compared."""


def _unread(name: str, var: Var, testcase: Testcase) -> OutputResult:
    """Report an expected value that no check uses."""
    value = testcase.arrays.get(name + EXPECT)
    shape = () if value is None else value.shape
    dtype = var.owner.tensors[0].dtype
    return OutputResult(name, shape, dtype, Verdict.NOT_COMPARED, reason=UNREAD)


def _without_arrays(testcase: Testcase, computed: Set[str]) -> Iterator[OutputResult]:
    """Yield the outputs that a file's data expect and a graph does not compute: text, and what has no values."""
    sequences = set(map(sequence_of, computed))
    for name, value in (testcase.file_values or {}).items():
        output = name.removesuffix(EXPECT)
        if output == name or output in computed:
            continue
        if output not in sequences and (value is None or (isinstance(value, list) and not value)):
            yield judge_empty(output)
        elif isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
            why = "text is not compared here; --engine onnxruntime compares it"
            yield OutputResult(output, value.shape, DType("String"), Verdict.NOT_COMPARED, reason=why)


def settled(outs: Sequence[OutputResult], testcase: Testcase) -> list[OutputResult]:
    """Return the outputs with what follows from the testcase, whatever was computed."""
    outputs = faulty(outs, testcase.faults)
    if not testcase.left_out:
        return outputs
    # Where expected values were cut before they were compared, an output may fail, but not pass.
    return [
        replace(o, verdict=Verdict.NOT_COMPARED, reason=testcase.left_out) if o.verdict is Verdict.PASS else o
        for o in outputs
    ]


def faulty(outs: Sequence[OutputResult], faults: Mapping[str, str]) -> list[OutputResult]:
    """Return the outputs with those that fail by what the testcase is, whatever was computed."""
    by_name = {o.name: o for o in outs}
    for name, why in faults.items():
        out = by_name.get(name) or OutputResult(name, (), DType("Float32"), Verdict.FAIL)
        by_name[name] = out.failing(why)
    return list(by_name.values())


def _unchecked_output(name: str, var: Var, value: Array, reason: str | None = None) -> OutputResult:
    dtype = var.dtype or dtype_of(value)
    return OutputResult(name, value.shape, dtype, Verdict.NOT_COMPARED, value=value, reason=reason)


def _at_border(outs: Iterable[OutputResult], scalars: frozenset[str]) -> tuple[OutputResult, ...]:
    """Return the outputs, those without axes in the model as a scalar again."""
    return tuple(
        replace(o, shape=(), value=o.value.reshape(()))
        if o.name in scalars and o.value is not None and o.value.size == 1
        else o
        for o in outs
    )


def _check_dtypes(engine: Engine, testcase: Testcase) -> None:
    for name, var in engine.inputs.items():
        stored = testcase.dtypes.get(name)
        if stored is not None and var.dtype is not None and stored != var.dtype:
            raise InputError(f"the testcase stores {stored} for the input {name!r}, which takes {var.dtype}")
