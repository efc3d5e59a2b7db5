"""Replaying a bundle on an engine: one `Result` per testcase, with a verdict for every output."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, wraps
from typing import ParamSpec, cast

from .base.about import About
from .base.arguments import require_seed
from .base.errors import (
    LoadRunError,
    OutOfMemoryError,
    UnsupportedError,
    UsageError,
    out_of_memory,
)
from .base.registry import late, resolve
from .compare.policy import Policy
from .compare.record import packed_policies
from .compare.results import FileResult, OutputResult, Result, Verdict
from .engines import (
    Engine,
    check_engine,
    file_of,
    make_engine,
    make_file_engine,
    runs_composites,
    runs_file,
)
from .graph import Graph, Var
from .graph.dtypes import Array
from .inputs.feeds import fit_inputs, random_inputs
from .running import Settings, Specialization, check_errors, faulty, settled
from .testcase import Bundle, FileValue, Testcase

with late(__name__):
    from .engines import file_replay, profile

__all__ = ["Runner", "check_errors", "faulty", "fit_inputs", "random_inputs", "run"]
__all__ += ["FileResult", "OutputResult", "Result", "Verdict"]

_P = ParamSpec("_P")
_KEPT = 16
"""How many sets of sizes keep their engines if each has its own graph; the most recent ones."""


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
        engine: name of the engine, with an argument after a colon where it takes one.
        seed: seed of the graph's random operators.
        policies: what outputs must fulfil besides, by name, all others under the empty name; default is what the file
            was packed with.
        profile: let the runtime's own profiler watch the runs; see `executed`.

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
        engine: str = "reference",
        *,
        seed: int = 0,
        policies: Mapping[str, Policy] | None = None,
        profile: bool = False,
    ) -> None:
        require_seed(seed)
        self.engine = check_engine(engine)
        load = resolve("loadrun.dump:load")
        self.bundle: Bundle = (
            bundle if isinstance(bundle, Bundle) else load(bundle, native=runs_file(self.engine))
        )
        if not runs_composites(self.engine) and file_of(self.bundle, self.engine) is None:
            self.bundle = self.bundle.lowered()
        self.seed, self._profile = seed, profile
        self.packed, self.loosened = packed_policies(self.bundle.record)
        self.policies = {**self.packed, **(policies or {})}
        self._settings = Settings(seed, self.policies, self.loosened)
        self._declared = self._specialized(self.bundle)
        self._others = lru_cache(_KEPT)(self._specialized)
        self._last = self._declared

    @cached_property
    def _native(self) -> file_replay.FileReplay | None:
        """The model's own file on the engine, where the engine runs such files and the graph is that of the file."""
        source = file_of(self.bundle, self.engine)
        if source is not None:
            self.bundle.require_unchanged()
            runtime = make_file_engine(self.engine, source, profile=self._profile)
            return file_replay.FileReplay(source, runtime, self.policies, self.loosened)
        source = self.bundle.file
        if source is not None and runs_composites(self.engine) and self.bundle.holds_objects:
            engine = file_replay.GraphFile(self.bundle.graph, self.engine, self.seed)
            return file_replay.FileReplay(source, engine, self.policies, self.loosened)
        if self.bundle.source.refusal is not None:
            raise UnsupportedError(f"not run by {self.engine}: {self.bundle.source.refusal}")
        return None

    def inputs_of(self, testcase: Testcase) -> Mapping[str, FileValue]:
        """Return the inputs of a testcase in the form that `run` passes on without change."""
        if self._native is None:
            return testcase.inputs

        return file_replay.file_inputs(testcase)

    @property
    def about(self) -> About:
        """Describe what executes the model, and how."""
        if self._native is not None:
            return self._native.engine.about
        return self._last.about

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
        if self._native is not None:
            self.bundle.require_unchanged()
            result = self._native.check(testcase, index)
            outs = settled(result.outputs, testcase)
            return replace(result, outputs=tuple(outs), verdict=Verdict.of_outputs(outs))
        self._last = self._for(testcase.arrays)
        return self._last.check(testcase, index)

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
        feeds = (
            random_inputs(self.bundle, self.seed)
            if arrays is None
            else fit_inputs(self.bundle, arrays, self._inputs)
        )
        self._last = self._for(feeds)
        if self._last is not self._declared:
            # An input that gives no more than a size is none of the graph for that size.
            bundle = self._last.bundle
            known = {v.name for v in bundle.fed}
            feeds = fit_inputs(bundle, {n: a for n, a in feeds.items() if n in known})
        return self._last.run(feeds, inputs)

    @cached_property
    def _inputs(self) -> dict[str, Var]:
        return {v.name or "": v for v in self.bundle.fed}

    def _for(self, arrays: Mapping[str, Array]) -> Specialization:
        """Return what runs the graph that is made for the sizes of some arrays."""
        bundle = self.bundle.for_data(arrays)
        if bundle is self.bundle:
            return self._declared
        return self._others(bundle)

    def _specialized(self, bundle: Bundle) -> Specialization:
        return Specialization(bundle, self._settings, self._make, self.engine != "reference")

    def _make(self, graph: Graph, targets: Sequence[Var]) -> Engine:
        """Return an engine for some variables of a graph."""
        return make_engine(self.engine, graph, targets, seed=self.seed, profile=self._profile)

    def executed(self) -> list[profile.Executed] | None:
        """Return the time of operators in the last `run` from the engine's own profiler; None if it has none.

        The runner must have been made with ``profile=True``.
        """
        engine = self._native.engine if self._native is not None else self._last.model
        return engine.executed() if isinstance(engine, profile.Profiling) else None

    def take_engines(self, other: Runner) -> None:
        """Use the engines that another runner has prepared, if they are for the same graph."""
        if (
            other.bundle.graph is self.bundle.graph
            and other.engine == self.engine
            and other.seed == self.seed
        ):
            self._declared.engines = other._declared.engines


def run(
    bundle: Bundle | str | os.PathLike[str],
    inputs: Mapping[str, Array] | None = None,
    engine: str = "reference",
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
