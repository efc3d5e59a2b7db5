"""A model at one set of sizes: its graph, the engines for it, and what is computed of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..base.about import About
from ..base.errors import InputError
from ..base.registry import late
from ..compare.judging import judge_empty
from ..compare.policy import sequence_of
from ..compare.results import OutputResult, Result, Verdict
from ..engines import Engine, make_ready
from ..graph import Graph, Var
from ..graph.dtypes import Array, DType, dtype_of
from ..ops.infer import infer_dtypes
from ..testcase import EXPECT, Bundle, Testcase
from .plan import OutputPlan, Settings, plan_outputs

with late(__name__):
    from ..engines import divided as divided_engine
    from ..engines import widths

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

        said = widths.first_overflow(graph, list(self.outputs.values()), feeds, graph.integers)
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
