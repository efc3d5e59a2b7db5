"""Plugins that look at values while a model runs: ``--range`` and ``--check_var_value``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, UsageError
from ..compare import errors
from ..engines import Engine
from ..engines.reference import ReferenceEngine
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..runner import Runner
from ..testcase import Bundle
from .dumps import number
from .plan import ExecutionPlan, shape_text

_FLOATS = ("Float32", "Float16", "BFloat16")
_TOLERANCE = 1e-4


class Plugin(Protocol):
    """Sees every operator that MegEngine would execute, with its outputs, and the end of each run."""

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Note that an operator ran."""
        ...

    def end(self) -> None:
        """Note that a run ended."""
        ...


class WrongValueError(EngineError):
    """A value that a check of ``--range`` or ``--check_var_value`` does not allow."""


class RangeCheck:
    """Refuses floating-point values that are not smaller than a limit, NaN included, as ``--range LIMIT`` does."""

    def __init__(self, limit: float, plan: ExecutionPlan) -> None:
        self.limit = np.float32(limit)
        self.plan = plan

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Look at the outputs of an operator.

        Raises:
            WrongValueError: a number is out of range; the message has MegEngine's form.
        """
        for var, array in zip(opr.outputs, outputs, strict=True):
            if var.dtype is None or var.dtype.name not in _FLOATS:
                continue
            bad = ~(np.abs(array) < self.limit)
            if bad.any():
                place = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
                raise WrongValueError(
                    f"float value out of range: var: {self.plan.info(var)}\n"
                    f" value={number(float(array[place]), 6)} range={number(float(self.limit), 6)} "
                    f"index={shape_text(place)}/{shape_text(array.shape)}"
                )

    def end(self) -> None:
        """Note that a run ended."""


def interval(text: str) -> tuple[int, int]:
    """Parse the numbers of ``--check_var_value INTERVAL[:FIRST]``.

    Raises:
        UsageError: they are not numbers, or the interval is 0.

    >>> interval("2:5"), interval("3")
    ((2, 5), (3, 0))
    """
    runs, _, first = text.partition(":")
    if not (runs.isdigit() and (first or "0").isdigit() and int(runs)):
        raise UsageError(
            f"--check_var_value takes INTERVAL or INTERVAL:FIRST in whole numbers, found {text!r}"
        )
    return int(runs), int(first or 0)


class ValueCheck:
    """Compares variables with the first run, one after another, each for some runs, as ``--check_var_value`` does.

    Args:
        text: ``INTERVAL`` or ``INTERVAL:FIRST``: for how many runs each, and which comes first.
        plan: numbers and order.
        say: told which variable is next.
    """

    def __init__(self, text: str, plan: ExecutionPlan, say: Callable[[str], None]) -> None:
        self.runs, self.current = interval(text)
        self.plan = plan
        self.say = say
        self._vars: list[Var] = [v for o in plan.order for v in o.outputs]
        self._first: dict[int, Array] = {}
        self._filled = False
        self._count = 0

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Keep or compare the outputs of an operator.

        Raises:
            WrongValueError: a value is not what it was in the first run.
        """
        for var, array in zip(opr.outputs, outputs, strict=True):
            if not self._filled:
                self._first[var.id] = array.copy()
            elif var is self._vars[self.current]:
                self._compare(var, array)

    def _compare(self, var: Var, array: Array) -> None:
        first = self._first[var.id]
        if first.shape != array.shape:
            raise WrongValueError(
                f"the shape changed: {shape_text(first.shape)} and {shape_text(array.shape)}: {self.plan.info(var)}"
            )
        error = errors(first, array)
        worst = float(error.max()) if error.size else 0.0
        if not worst <= _TOLERANCE:
            raise WrongValueError(
                f"a value changed from one run to another, error {number(worst, 6)}: {self.plan.info(var)}"
            )

    def end(self) -> None:
        """End a run: go on to the next variable where it is time."""
        if self._filled:
            self._count += 1
            if self._count != self.runs:
                return
            self._count = 0
            self.current += 1
        self._filled = True
        if self.current >= len(self._vars):
            self.say("VarValueChecker: all check passed; start from beginning")
            self.current = 0
        var = self._vars[self.current]
        self.say(f"VarValueChecker: going to check #{self.current}: {self.plan.info(var)}")


class ObservedRunner(Runner):
    """A runner on the reference engine whose runs can be watched.

    Args:
        bundle: what to run.
        profile: measure every operator.

    Attributes:
        plugins: what sees each run, operator by operator; without any, operators stay fused and run fast.
        plan: numbers and names for the plugins.
        reference: the engine that ran last.
    """

    def __init__(self, bundle: Bundle, *, seed: int = 0, profile: bool = False) -> None:
        super().__init__(bundle, seed=seed)
        self.plugins: list[Plugin] = []
        self.plan: ExecutionPlan | None = None
        self.reference: ReferenceEngine | None = None
        self._measured = profile

    def _make(self, graph: Graph, targets: Sequence[Var]) -> Engine:
        return _Observed(self, graph, targets, self._measured)


class _Observed:
    """An engine that computes a graph's outputs besides the targets, and shows operators as it goes."""

    def __init__(self, runner: ObservedRunner, graph: Graph, targets: Sequence[Var], profile: bool) -> None:
        self._runner = runner
        self._targets = list(targets)
        self._measured = profile
        wanted = [*targets, *graph.outputs] if profile or runner.plugins else targets
        self._engine = ReferenceEngine(graph, wanted, seed=runner.seed, profile=profile)
        runner.reference = self._engine

    @property
    def inputs(self) -> dict[str, Var]:
        return self._engine.inputs

    @property
    def about(self) -> About:
        return self._engine.about

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        self._runner.reference = self._engine
        plan = self._runner.plan
        if not self._runner.plugins or plan is None:
            return self._engine.run(feeds)[: len(self._targets)]
        wanted = {v.id for v in self._targets}
        values: dict[int, Array] = {}
        inputs = [(v.owner, [feeds[n]]) for n, v in self._engine.inputs.items() if n in feeds]
        for opr, arrays in inputs:
            self._show(plan, opr.outputs, arrays)
            values.update((v.id, a) for v, a in zip(opr.outputs, arrays, strict=True) if v.id in wanted)
        for opr, outputs in self._engine.walk(feeds):
            self._show(plan, opr.outputs, outputs)
            values.update((v.id, a) for v, a in zip(opr.outputs, outputs, strict=True) if v.id in wanted)
        for plugin in self._runner.plugins:
            plugin.end()
        if self._measured:
            # Times are those of a run that nobody looks at.
            self._engine.run(feeds)
        return [values[v.id] for v in self._targets]

    def _show(self, plan: ExecutionPlan, variables: Sequence[Var], arrays: Sequence[Array]) -> None:
        for var, array in zip(variables, arrays, strict=True):
            plan.note(var, array)
        if variables and variables[0].id in plan.on_device:
            for plugin in self._runner.plugins:
                plugin(variables[0].owner, arrays)
