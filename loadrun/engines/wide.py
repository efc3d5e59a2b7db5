"""The wide engine: a float32 model computed in float64, to see what float32 rounding does to it.

Every Float32 variable is stored as float64 where the operator that makes it has a float64 formula (`formulas`) or
only moves numbers. Other operators run on the reference engine's float32 kernels, on inputs rounded to float32;
`WideEngine.narrow` says which. Integer, quantized and half-precision operators are part of what a model means, so they
run as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base import __version__
from ..base.about import About, Island
from ..base.errors import EngineError, InputError
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array, DType
from ..ops.control import find_branches
from ..ops.formulas import FORMULAS, MOVING
from ..ops.infer import describe, infer_dtypes
from ..ops.numeric.parallel import blas_serial
from ..ops.numeric.stream import OperatorStreams, RandomNumbers
from ..ops.registry import Call, Shape, ShapeCall, UnknownShape, implementation
from .program import ABSENT, Step, make_step, mark_dying, run_step
from .protocol import ranked

__all__ = ["Float64Engine", "WideEngine"]

_F32 = DType("Float32")


@dataclass(frozen=True)
class _Wide(DType):
    """Float32 held as float64."""

    @property
    def np(self) -> np.dtype[Any]:
        return np.dtype(np.float64)


_WIDE = _Wide("Float32")


class WideEngine:
    """Executes a graph once in float64, operator by operator.

    Args:
        graph: the graph to execute.
        targets: the variables to compute, default the graph's outputs.
        seed: seed of the random operators.

    Attributes:
        wide: how many operators on Float32 values the last run computed in float64.
        narrow: the types of those that it computed in float32, with their number.

    Raises:
        UnsupportedError: an operator that the targets need has no kernel.

    >>> import loadrun
    >>> bundle = loadrun.load("fixtures/nets/mlp.mge")
    >>> engine = WideEngine(bundle.graph, [bundle.checks[0].get])
    >>> engine.run(bundle.testcases[0].arrays)[0].dtype, engine.wide, dict(engine.narrow)
    (dtype('float64'), 19, {})
    """

    def __init__(self, graph: Graph, targets: Iterable[Var] | None = None, *, seed: int = 0) -> None:
        self.targets = list(graph.outputs if targets is None else targets)
        self.seed = seed
        self.wide = 0
        self.narrow: Counter[str] = Counter()
        oprs = graph.needed(self.targets)
        infer_dtypes(oprs)
        branches = find_branches(oprs)
        self._inputs = {o.outputs[0].name or "": o.outputs[0] for o in oprs if o.type == "Host2DeviceCopy"}
        self._steps = [make_step(o, (), branches) for o in oprs if o.type != "Host2DeviceCopy"]
        self._count = sum(not o.tensors for o in oprs)
        mark_dying(self._steps, {v.id for v in self.targets})

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; Float32 targets come as float64 where they were computed so.

        Raises:
            InputError: an input is missing.
            EngineError: an operator failed.
        """
        values: dict[int, Array] = {}
        for _ in self._walk(feeds, values):
            pass
        for var in self.targets:
            if var.id not in values:
                raise EngineError(f"{var.label!r} has no value: it is in a branch that was not taken")
        return [values[var.id] for var in self.targets]

    def walk(self, feeds: Mapping[str, Array]) -> Iterator[tuple[Opr, list[Array]]]:
        """Execute once, operator by operator: each comes with its outputs when it has run.

        Raises:
            InputError: an input is missing.
            EngineError: an operator failed.
        """
        return self._walk(feeds, {})

    def _walk(
        self, feeds: Mapping[str, Array], values: dict[int, Array]
    ) -> Iterator[tuple[Opr, list[Array]]]:
        """Do `walk`; `values` keeps the targets."""
        self.wide, self.narrow = 0, Counter()
        for name, var in self._inputs.items():
            tensor = var.owner.tensors[0]
            if name not in feeds and tensor.data is None:
                raise InputError(f"input {name!r} is missing")
            value = feeds[name] if name in feeds else tensor.value()
            values[var.id] = ranked(value, var)
        rng = OperatorStreams(self.seed)
        for step in self._steps:
            if step.guard is None or (step.guard in values and values[step.guard].any()):
                with np.errstate(all="ignore"), blas_serial():
                    self._execute(step, values, rng)
                yield step.call.opr, [values[v] for v in step.writes]
            for v in step.dying:
                values.pop(v, None)

    def _execute(self, step: Step, values: dict[int, Array], rng: RandomNumbers | None) -> None:
        call = step.call
        args = [values.get(v) if step.merges else values[v] for v in step.reads]
        counted = _F32 in call.inputs and _F32 in call.outputs
        outs = self._widely(step, args) if counted else None
        if outs is None:
            self.narrow.update([call.opr.title] if counted else [])
            plain = [
                ABSENT if a is None else a.astype(d.np, copy=False)
                for a, d in zip(args, call.inputs, strict=True)
            ]
            outs = run_step(step, plain, [], rng)
        else:
            self.wide += 1
        values.update(zip(step.writes, outs, strict=True))

    def _widely(self, step: Step, args: list[Array | None]) -> Sequence[Array] | None:
        """Compute an operator in float64; None if it is no operator on plain numbers or has no formula."""
        call = step.call
        dtypes = (*call.inputs, *call.outputs)
        kind = call.opr.type
        if any(d.is_quantized or (d.is_float and d != _F32) for d in dtypes) or any(a is None for a in args):
            return None
        if kind not in FORMULAS and kind not in MOVING:
            return None
        wide = [
            a.astype(np.float64) if d == _F32 else a
            for a, d in zip(args, call.inputs, strict=True)
            if a is not None
        ]
        try:
            shapes = _shapes(call, wide)
            result = FORMULAS[kind](call, *wide) if kind in FORMULAS else step.kernel(_widened(call), *wide)
        except Exception as e:
            raise EngineError(f"{describe(call.opr)} failed: {e}") from e
        if result is None:
            return None
        outs: Sequence[Array] = result if isinstance(result, tuple) else (result,)
        for out, shape in zip(outs, shapes, strict=True):
            if shape is not None and out.shape != shape:
                raise EngineError(
                    f"{describe(call.opr)} returned shape {list(out.shape)}, but its shape rule says {list(shape)}"
                )
        return outs


def _shapes(call: Call, args: list[Array]) -> Sequence[Shape | None]:
    """Check inputs by the operator's shape rule, so that formulas see only what goes together."""
    rule = implementation(call.opr.type).shape
    try:
        return rule(ShapeCall(call.opr, call.inputs, tuple(a.shape for a in args), tuple(args)))
    except UnknownShape:
        return [None] * len(call.outputs)


def _widened(call: Call) -> Call:
    """Return the call with float64 where the operator has Float32."""
    inputs, outputs = (
        tuple(_WIDE if d == _F32 else d for d in dtypes) for dtypes in (call.inputs, call.outputs)
    )
    return replace(call, inputs=inputs, outputs=outputs, memo={}, donated=[])


def computed_alike(opr: Opr) -> bool:
    """Tell whether the reference engine has the same code for an operator as this one: its numbers are float64 already.

    Such an operator cannot be judged by computing it again.
    """
    return opr.type not in MOVING and any(
        v.dtype is not None and v.dtype.name == "Float64" for v in (*opr.inputs, *opr.outputs)
    )


class Float64Engine(WideEngine):
    """A `WideEngine` whose results are rounded to the dtypes that the model gives.

    Operators on float64 are the reference engine's; `about` lists them.

    >>> import loadrun
    >>> loadrun.Runner("fixtures/nets/mlp.mge", "float64").replay_one(0).verdict.value
    'pass'
    """

    @property
    def about(self) -> About:
        """The executing engine, and how it computes."""
        why = "it already computes in float64, with the same code, so only another engine can judge it"
        alike = [s.call.opr for s in self._steps if computed_alike(s.call.opr)]
        islands = tuple(Island(describe(o), o.title, why) for o in alike)
        numpy = f"numpy {np.__version__}"
        return About("float64", __version__, "float64", numpy, islands, operators=self._count)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `WideEngine.run`."""
        values = super().run(feeds)
        with np.errstate(all="ignore"):
            return [
                a.astype(v.dtype.np, copy=False) if v.dtype is not None else a
                for v, a in zip(self.targets, values, strict=True)
            ]
