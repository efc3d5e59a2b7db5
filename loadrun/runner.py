"""Replaying a bundle on an engine: one `Result` per testcase, with a verdict for every output."""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, ParamSpec, cast

import numpy as np

from .base.about import About
from .base.arguments import require_seed
from .base.errors import (
    EngineError,
    InputError,
    LoadRunError,
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
    out_of_memory,
)
from .base.registry import resolve
from .compare.judging import NARROW, Criteria, blind, judge, judge_empty, policy_for
from .compare.metrics import Formula
from .compare.policy import Policy, sequence_of
from .compare.record import narrowed_integers, packed_policies
from .compare.results import FileResult, OutputResult, Result, Verdict
from .engines import (
    Choice,
    Engine,
    check_engine,
    file_of,
    make_engine,
    make_file_engine,
    make_ready,
    runs_composites,
    runs_file,
)
from .graph import Graph, Var
from .graph.dtypes import Array, DType, dtype_of
from .inputs.feeds import fit_inputs, random_inputs
from .ops.infer import infer_dtypes
from .passes.checks import GET, Cone, Origins, compared, cone, formula, two_sided
from .testcase import EXPECT, Bundle, Check, FileValue, Testcase

if TYPE_CHECKING:
    from .engines.executed import Executed
    from .engines.file_replay import FileReplay

__all__ = [
    "FileResult",
    "OutputResult",
    "Result",
    "Runner",
    "Verdict",
    "check_errors",
    "faulty",
    "fit_inputs",
    "random_inputs",
    "run",
]

_P = ParamSpec("_P")
_KEPT = 16
"""How many sets of sizes keep their engines if each has its own graph; the most recent ones."""


@dataclass(eq=False)
class _Checked:
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
        extra = [self.cone.source, *self.cone.frontier.values()] if self.cone else []
        return [self.expect, self.get, *([self.error] if self.error else []), *extra]


@dataclass(eq=False)
class _OutputPlan:
    """The variables to compute: those of the checks, then the unchecked outputs."""

    checks: list[_Checked]
    plain: list[tuple[str, Var]]
    unread: dict[str, Var]

    @property
    def vars(self) -> list[Var]:
        return [v for c in self.checks for v in c.vars] + [v for _, v in self.plain]


def _memory_told(method: Callable[_P, Result]) -> Callable[_P, Result]:
    """Turn MemoryError into one of loadrun's errors."""

    @wraps(method)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except OutOfMemoryError:
            raise
        except MemoryError as e:
            raise OutOfMemoryError(out_of_memory(e)) from e

    return told


class Runner:
    """Executes a bundle's graph repeatedly.

    Args:
        bundle: what `loadrun.load` returned, or a path.
        engine: name of the engine, with an argument after a colon where it takes one, or a `loadrun.engines.Choice`.
        seed: seed of the graph's random operators.
        policies: what outputs must fulfil besides, by name, all others under the empty name; default is what the file
            was packed with.

    Raises:
        UnsupportedError: the graph holds an operator that cannot be executed.
        UsageError: the seed is negative or 2**64 and more, or there is no such engine.

    >>> import loadrun
    >>> runner = loadrun.Runner("fixtures/nets/mlp.mge")
    >>> [result.verdict.value for result in runner.replay()]
    ['pass', 'pass', 'pass']
    """

    def __init__(
        self,
        bundle: Bundle | str | os.PathLike[str],
        engine: str | Choice = "reference",
        *,
        seed: int = 0,
        policies: Mapping[str, Policy] | None = None,
    ) -> None:
        require_seed(seed)
        self.engine = check_engine(engine)
        load = resolve("loadrun.dump:load")
        self.bundle: Bundle = (
            bundle if isinstance(bundle, Bundle) else load(bundle, native=runs_file(self.engine))
        )
        if not runs_composites(self.engine) and file_of(self.bundle, self.engine) is None:
            self.bundle = self.bundle.lowered()
        self.seed = seed
        self._model: Engine | None = None
        self._engines: dict[tuple[int, ...], Engine] = {}
        self._outputs: dict[str, Var] = {}
        self._checked: tuple[_OutputPlan, Engine] | None = None
        self._others: OrderedDict[int, Runner] = OrderedDict()
        self._last = self
        self._integers = narrowed_integers(self.bundle.record)
        self._looked_at: object = None
        self.packed, self.loosened = packed_policies(self.bundle.record)
        self.policies = {**self.packed, **(policies or {})}

    @cached_property
    def _native(self) -> FileReplay | None:
        """The model's own file on the engine, where the engine runs such files and the graph is that of the file."""
        source = file_of(self.bundle, self.engine)
        if source is not None:
            from .engines.file_replay import FileReplay  # for start-up

            self.bundle.require_unchanged()
            return FileReplay(source, make_file_engine(self.engine, source), self.policies, self.loosened)
        source = self.bundle.file
        if source is not None and runs_composites(self.engine) and self.bundle.holds_objects:
            from .engines.file_replay import FileReplay  # for start-up
            from .engines.graph_file import GraphFile  # for start-up

            engine = GraphFile(self.bundle.graph, str(self.engine), self.seed)
            return FileReplay(source, engine, self.policies, self.loosened)
        if self.bundle.source.refusal is not None:
            raise UnsupportedError(f"not run by {self.engine}: {self.bundle.source.refusal}")
        return None

    def inputs_of(self, testcase: Testcase) -> Mapping[str, FileValue]:
        """Return the inputs of a testcase in the form that `run` passes on without change."""
        if self._native is None:
            return testcase.inputs
        from .engines.file_replay import file_inputs  # for start-up

        return file_inputs(testcase)

    @property
    def about(self) -> About:
        """Describe what executes the model, and how; what the engine cannot run is known after the first run."""
        if self._native is not None:
            return self._native.engine.about
        if self._last is not self:
            return self._last.about
        if self._checked is not None:
            return self._checked[1].about
        return self._outputs_engine().about

    def replay(self) -> Iterator[Result]:
        """Replay every testcase of the bundle; a failing one does not stop the others."""
        for i in range(len(self.bundle.testcases)):
            yield self.replay_one(i)

    def replay_one(self, index: int) -> Result:
        """Replay one testcase by its number.

        Raises:
            IndexError: there is no such testcase.
        """
        try:
            return self.check(self.bundle.testcases[index], index)
        except UsageError:
            # An engine that is not installed is not the testcase's fault.
            raise
        except LoadRunError as e:
            return Result(index, (), Verdict.ERROR, message=str(e))

    @_memory_told
    def check(self, testcase: Testcase, index: int | None = None) -> Result:
        """Feed a testcase and evaluate every check of the graph.

        Raises:
            InputError: the testcase does not fit the graph's inputs.
            EngineError: an operator failed.
            FormatError: the file changed while it was in use.
        """
        if testcase.steps:
            from .engines.scenario import replay_steps  # for start-up

            return replay_steps(testcase, index, self._step)
        if self._native is not None:
            self.bundle.require_unchanged()
            result = self._native.check(testcase, index)
            settled = _settled(result.outputs, testcase)
            return replace(result, outputs=tuple(settled), verdict=Verdict.of_outputs(settled))
        self._last = self._for(testcase.arrays)
        if self._last is not self:
            return self._last.check(testcase, index)
        if self._checked is None:
            plan = self._plan()
            self._checked = plan, self._checking(plan)
        plan, engine = self._checked
        self.bundle.require_unchanged()
        _check_dtypes(engine, testcase)
        make_ready(engine, testcase.arrays)
        start = time.perf_counter()
        values = iter(engine.run(testcase.arrays))
        seconds = time.perf_counter() - start
        outs = [self._judged(c, values) for c in plan.checks]
        for name, var in plan.plain:
            reason = _UNREAD if name in plan.unread else None
            outs.append(_unchecked_output(name, var, next(values), reason))
        alone = plan.unread.keys() - dict(plan.plain)
        outs += [_unread(n, v, testcase) for n, v in plan.unread.items() if n in alone]
        computed = {o.name for o in outs}
        outs += _without_arrays(testcase, computed)
        single = {o.name for o in outs if o.shape == (1,)}
        misranked = {n: s for n, s in testcase.misranked(self.bundle.scalars).items() if n in single}
        outs = _settled(faulty(outs, {**testcase.miscounted(computed), **misranked}), testcase)
        shown = _at_border(outs, self.bundle.scalars)
        return Result(index, shown, Verdict.of_outputs(outs), seconds, engine=engine.about)

    def steps_fed(self, testcase: Testcase) -> Iterator[Mapping[str, Array]]:
        """Yield what each step of a scenario is fed, with states as the steps before it compute them."""
        from .engines.scenario import steps_fed  # for start-up

        return steps_fed(testcase, self._step)

    def _step(self, case: Testcase) -> Result:
        """Run one step of a scenario, and judge the outputs of which it has an expected value.

        The checks of the graph are not run, since most steps lack values that some of them need.
        """
        if self._native is not None:
            return self._native.check(case, None)
        result = self.run(case.inputs)
        # At a scenario's border an output without axes is as the file holds it.
        expects = case.expects
        outs = [self._compared(o, expects.get(o.name)) for o in result.outputs]
        return replace(result, outputs=tuple(outs), verdict=Verdict.of_outputs(outs))

    def _compared(self, out: OutputResult, expect: Array | None) -> OutputResult:
        if expect is None or out.value is None:
            return out
        criteria, source = self._criteria.get(out.name), self.bundle.source.file
        if criteria is None and source is not None and source.error(out.name, expect, expect) is None:
            # An ONNX file with testcases of a dump.
            policy = policy_for(self.policies, out.name)
            criteria = Criteria(out.name, out.dtype, source.maxerr(out.name), policy=policy, by_shape=True)
        if criteria is None:
            return replace(out, reason=_UNREAD)
        value = out.value if out.value.ndim else out.value.reshape(1)
        return judge(criteria._replace(dtype=out.dtype), expect, value)

    @cached_property
    def _criteria(self) -> dict[str, Criteria]:
        """What outputs must fulfil, by name, by MegEngine's own measure."""
        return {
            c.check.name: c.criteria._replace(
                formula=Formula.REAL, fault=c.criteria.fault or _file_formula(c)
            )
            for c in self._plan().checks
        }

    def _plan(self) -> _OutputPlan:
        graph = self.bundle.graph
        checks = self.bundle.checks
        named = {c.name for c in checks}
        plain = [(n, v) for n, v in self.bundle.outputs.items() if n not in named]
        origins = Origins(graph)
        formulas = [formula(c) for c in checks]
        others = [c.err for c, f in zip(checks, formulas, strict=True) if f is Formula.OTHER]
        if others:
            infer_dtypes(graph.needed(others))
        checked = [self._asked(c, f, origins) for c, f in zip(checks, formulas, strict=True)]
        needed = {id(o) for o in graph.needed([c.expect for c in checks])}
        unused = [v for v in graph.inputs if (v.name or "").endswith(EXPECT) and id(v.owner) not in needed]
        unread = {(v.name or "")[: -len(EXPECT)]: v for v in unused}
        return _OutputPlan(checked, plain, unread)

    def _asked(self, check: Check, kind: Formula, origins: Origins) -> _Checked:
        """Set the criteria of a check, and return whether its error graph has to be run."""
        expect, get = compared(check)
        rule = self._rule(check.name)
        # Values whose shapes do not fit fail by the file's rule; the graph's operators would stop.
        kind = Formula.OTHER if rule is not None else kind
        fault = None if rule is not None else origins.fault(check)
        check_error = None if kind is Formula.REAL or rule is not None else check.err
        around: Cone | None = None
        policy = policy_for(self.policies, check.name)
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
            loosened=self.loosened.get(check.name),
            rounding=_rounding(kind, around),
            terms=self.bundle.file.terms(check.name) if rule is not None and self.bundle.file else "",
            by_shape=self.bundle.source.file is not None,
        )
        return _Checked(check, criteria, expect, get, check_error, around, rule)

    def _rule(self, name: str) -> Callable[[Array, Array], float] | None:
        """Return what computes an output's error by the rule of the file that the graph was made of, if it has one."""
        source = self.bundle.file
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

    def _judged(self, c: _Checked, values: Iterator[Array]) -> OutputResult:
        """Judge the next values; the file's own error graph is tested once whether it compares."""
        expect, get = next(values), next(values)
        check_error = next(values) if c.error is not None else None
        if c.rule is not None:
            check_error = np.array([c.rule(expect, get)])
        operands = [next(values) for _ in range(1 + len(c.cone.frontier))] if c.cone is not None else []

        def seen() -> str | None:
            if c.cone is None:
                return None
            if c.answer is None:
                c.answer = (self._answer(c.cone, c.check, operands),)
            return c.answer[0]

        criteria = c.criteria._replace(dtype=c.get.dtype or dtype_of(get))
        return judge(criteria, expect, get, check_error, seen)

    def _answer(self, around: Cone, check: Check, operands: Sequence[Array]) -> str | None:
        engine = make_engine("reference", around.graph, around.graph.outputs, seed=self.seed)
        feeds = dict(zip(around.frontier, operands[1:], strict=True))
        name = around.source.name or ""

        def errors(expect: Array) -> Array:
            return engine.run({name: expect, **feeds})[0]

        return blind(errors, operands[0], around.source.owner.tensors[0].dtype, check.maxerr)

    @_memory_told
    def run(self, inputs: Mapping[str, FileValue] | None = None) -> Result:
        """Run the model on given inputs, without its checks.

        Args:
            inputs: arrays by input name, of the inputs' dtypes or safely convertible to them; default
                `random_inputs`. Shapes may differ from the file's as far as the graph allows.

        Raises:
            InputError: an input is missing, unknown, or of another dtype.
            EngineError: an operator failed.
            FormatError: the file changed while it was in use.
        """
        if self._native is not None:
            self.bundle.require_unchanged()
            return self._native.run(random_inputs(self.bundle, self.seed) if inputs is None else inputs)
        arrays = cast("Mapping[str, Array] | None", inputs)
        feeds = random_inputs(self.bundle, self.seed) if arrays is None else fit_inputs(self.bundle, arrays)
        self._last = self._for(feeds)
        if self._last is not self:
            # An input that gives no more than a size is none of the graph for that size.
            known = {v.name for v in self._last.bundle.fed}
            return self._last.run({n: a for n, a in feeds.items() if n in known})
        self.bundle.require_unchanged()
        model = self._outputs_engine()
        make_ready(model, feeds)
        start = time.perf_counter()
        values = model.run(feeds)
        seconds = time.perf_counter() - start
        outs = tuple(
            _unchecked_output(n, v, a) for (n, v), a in zip(self._outputs.items(), values, strict=True)
        )
        shown = self._widths_told(_at_border(outs, self.bundle.scalars), feeds, inputs)
        return Result(None, shown, Verdict.NOT_COMPARED, seconds, engine=model.about)

    def _widths_told(
        self, outs: tuple[OutputResult, ...], feeds: Mapping[str, Array], given: object
    ) -> tuple[OutputResult, ...]:
        """Say where integers of the model, which the file narrowed, do not fit; once for the same data."""
        if not self._integers or (given is not None and self._looked_at is given):
            return outs
        from .engines.widths import first_overflow  # for start-up

        said = first_overflow(self.bundle.graph, list(self._outputs.values()), feeds, self._integers)
        self._looked_at = None if said else given
        return outs if said is None else tuple(replace(o, notes=(*o.notes, said)) for o in outs)

    def _for(self, arrays: Mapping[str, Array]) -> Runner:
        """Return the runner of the graph that is made for the sizes of some arrays; itself where one serves all."""
        bundle = self.bundle.for_data(arrays)
        if bundle is self.bundle:
            return self
        runner = self._others.pop(id(bundle), None)
        if runner is None or runner.bundle is not bundle:
            runner = copy(self)
            runner.bundle, runner._last = bundle, runner
            runner._model, runner._checked, runner._others = None, None, OrderedDict()
            runner._engines = {}
        self._others[id(bundle)] = runner
        while len(self._others) > _KEPT:
            self._others.popitem(last=False)
        return runner

    def executed(self) -> list[Executed] | None:
        """Return the time of operators in the last `run` from the engine's own profiler; None if it has none.

        The engine must be a `loadrun.engines.Choice` with ``profile=True``.
        """
        from .engines.executed import Profiling  # for start-up

        engine = self._native.engine if self._native is not None else self._last._model
        return engine.executed() if isinstance(engine, Profiling) else None

    def _outputs_engine(self) -> Engine:
        """Return the engine for the outputs alone, made on first use."""
        if self._model is None:
            self._outputs = self.bundle.outputs
            self._model = self._engine(list(self._outputs.values()))
        return self._model

    def _checking(self, plan: _OutputPlan) -> Engine:
        """Return the engine for a plan: the reference engine computes checks, whatever executes the model."""
        if self.engine.spec == "reference":
            return self._engine(plan.vars)
        from .engines.divided import Divided  # for start-up

        infer_dtypes(self.bundle.graph.needed(plan.vars))
        computed = {v.id: v for v in (*(v for c in plan.checks for v in c.read), *(v for _, v in plan.plain))}
        model = self._engine(list(computed.values()))
        return Divided(model, self.bundle.graph, computed.values(), plan.vars, self.seed)

    def _engine(self, targets: Sequence[Var]) -> Engine:
        key = tuple(v.id for v in targets)
        engine = self._engines.get(key)
        if engine is None:
            engine = make_engine(self.engine, self.bundle.graph, targets, seed=self.seed)
            self._engines[key] = engine
        return engine

    def take_engines(self, other: Runner) -> None:
        """Use the engines that another runner has prepared, if they are for the same graph."""
        if (
            other.bundle.graph is self.bundle.graph
            and other.engine == self.engine
            and other.seed == self.seed
        ):
            self._engines = other._engines


def check_errors(
    bundle: Bundle, engine: str = "reference"
) -> dict[str, Callable[[Array, Array], float] | None]:
    """Return what measures the error of each check that has a formula of its own, by the output's name.

    None stands for a formula that needs more than an expected and a computed value.
    """
    errors: dict[str, Callable[[Array, Array], float] | None] = {}
    if bundle.file is not None and len(bundle.testcases):
        from .engines.file_replay import file_errors  # for start-up

        return file_errors(bundle.file, bundle.testcases[0])
    for check in bundle.checks:
        if formula(check) is Formula.OTHER:
            infer_dtypes(bundle.graph.needed([check.err]))
            graph = two_sided(bundle.graph, check)
            errors[check.name] = None if graph is None else _measure(graph, engine)
    return errors


def _measure(graph: Graph, engine: str) -> Callable[[Array, Array], float]:
    asked = make_engine(engine, graph, graph.outputs)
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


def run(
    bundle: Bundle | str | os.PathLike[str],
    inputs: Mapping[str, Array] | None = None,
    engine: str | Choice = "reference",
    *,
    seed: int = 0,
) -> list[Result]:
    """Replay all testcases of a file, or run its model on given inputs.

    Args:
        bundle: a path, or what `loadrun.load` returned.
        inputs: arrays by input name; without them the embedded testcases are replayed, and a model
            without testcases runs once on `random_inputs`.
        engine: name of the engine.
        seed: seed of random operators and random inputs.

    Returns:
        a list of one `Result` per testcase, or a single one.

    >>> import loadrun
    >>> results = loadrun.run("fixtures/nets/mlp.mge")
    >>> [r.verdict.value for r in results]
    ['pass', 'pass', 'pass']
    """
    runner = Runner(bundle, engine, seed=seed)
    if inputs is None and len(runner.bundle.testcases):
        return list(runner.replay())
    return [runner.run(inputs)]


def _rounding(kind: Formula, around: Cone | None) -> float:
    """Machine epsilon of the narrowest float in which an error is computed, 0 for float32."""
    if kind is Formula.NARROW:
        return NARROW["Float16"]
    met = {v.dtype.name for v in around.graph.vars() if v.dtype is not None} if around is not None else set()
    return max((eps for name, eps in NARROW.items() if name in met), default=0.0)


def _file_formula(c: _Checked) -> str | None:
    """Explain why a check cannot be judged without its own operators."""
    is_own = c.cone is not None or c.rule is not None
    return "its check has a formula of its own, which is not supported for steps" if is_own else None


_UNREAD = "the testcases have an expected value for it, but no check uses it"


def _unread(name: str, var: Var, testcase: Testcase) -> OutputResult:
    """Report an expected value that no check uses."""
    value = testcase.arrays.get(name + EXPECT)
    shape = () if value is None else value.shape
    dtype = var.owner.tensors[0].dtype
    return OutputResult(name, shape, dtype, Verdict.NOT_COMPARED, reason=_UNREAD)


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


def _settled(outs: Sequence[OutputResult], testcase: Testcase) -> list[OutputResult]:
    """Return the outputs with what follows from the testcase, whatever was computed."""
    outputs = faulty(outs, testcase.faults)
    return [_not_in_full(o, testcase.left_out) for o in outputs] if testcase.left_out else outputs


def faulty(outs: Sequence[OutputResult], faults: Mapping[str, str]) -> list[OutputResult]:
    """Return the outputs with those that fail by what the testcase is, whatever was computed."""
    by_name = {o.name: o for o in outs}
    for name, why in faults.items():
        out = by_name.get(name) or OutputResult(name, (), DType("Float32"), Verdict.FAIL)
        by_name[name] = out.failing(why)
    return list(by_name.values())


def _not_in_full(out: OutputResult, left_out: str) -> OutputResult:
    """Mark an output whose expected value was cut before it was compared: it may fail, but not pass."""
    return replace(out, verdict=Verdict.NOT_COMPARED, reason=left_out) if out.verdict is Verdict.PASS else out


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
