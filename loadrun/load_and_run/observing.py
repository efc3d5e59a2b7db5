"""A runner that also does what MegEngine would execute besides, and shows every operator to plugins."""

from collections.abc import Mapping, Sequence

from ..base.about import About
from ..engines import Engine
from ..engines.reference import ReferenceEngine
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..runner import Runner
from ..testcase import Bundle
from .plan import ExecutionPlan
from .plugins import Plugin


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
        self._graph = graph
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
