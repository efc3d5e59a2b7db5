"""The protocol of engines that `Runner` works with, and what an engine says of itself.

An engine is made for one graph and some of its variables and then executed any number of times:

    class Mine:
        def __init__(self, graph, targets, setup): ...
        inputs = {...}              # the graph inputs that the targets need, by name
        about = About("mine", "1.0", "float32")
        def run(self, feeds): ...   # one array for every target

    loadrun.register_engine("mine", Mine)

Values are numpy arrays in storage dtype (`DType.np`): quantized ones are their stored integers, bfloat16 is float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..base.about import About
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..testcase import FileValue, SourceFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NATIVE", "TRANSLATED", "Choice", "Engine", "Factory", "FileEngine", "FileFactory", "Setup"]

NATIVE, TRANSLATED = "native", "translated"
"""The ways that a model takes into a runtime: its own file, or what loadrun wrote of its graph."""


class Engine(Protocol):
    """A graph made ready for repeated execution."""

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        ...

    @property
    def about(self) -> About:
        """The executing engine, and how it computes."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the targets from arrays by input name.

        An engine that has to convert or compile may have a method ``prepare(feeds)`` besides, which is called before
        the first run; so the time of a run is that of the execution alone.

        Raises:
            InputError: an input is missing or has another dtype.
            EngineError: an operator failed.
            UnsupportedError: an operator cannot be executed.
        """
        ...


class FileEngine(Protocol):
    """A model's own file made ready for repeated execution by a runtime that reads such files.

    Attributes:
        about: what executes, and how it computes.
    """

    about: About

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """Make what `run` takes of values by input name; inputs that the file has a value for may be missing.

        Raises:
            InputError: an input is missing, unknown, or holds what its type cannot.
        """
        ...

    def run(self, given: Mapping[str, object]) -> Mapping[str, FileValue]:
        """Execute the file: values by output name.

        Raises:
            EngineError: the runtime fails.
        """
        ...


@dataclass(frozen=True)
class Choice:
    """An engine's name and how it is to be made; functions that take an engine's name take this as well.

    Attributes:
        spec: the name, with an argument after a colon where the engine takes one.
        strict: refuse what the engine cannot run, instead of leaving it to the reference engine.
        cache: a folder that keeps converted models.
        profile: let the runtime's own profiler watch the runs; see `loadrun.engines.executed.Profiling`.

    >>> str(Choice("openvino:bf16", strict=True))
    'openvino:bf16'
    """

    spec: str
    strict: bool = False
    cache: Path | None = None
    profile: bool = False

    def __str__(self) -> str:
        return self.spec


class Setup(NamedTuple):
    """The arguments of an engine's factory.

    Attributes:
        argument: what follows the colon in the engine's name: a provider, a precision, a program.
        seed: seed of the random operators.
        strict: refuse what the engine cannot run, instead of leaving it to the reference engine.
        cache: a folder that keeps converted models.
        profile: let the runtime's own profiler watch the runs; an engine that has none need not look at it.
    """

    argument: str = ""
    seed: int = 0
    strict: bool = False
    cache: Path | None = None
    profile: bool = False


class FileFactory(Protocol):
    """Makes an engine that runs a file as it is."""

    def __call__(self, source: SourceFile, setup: Setup, /) -> FileEngine:
        """Load a file into the runtime.

        Raises:
            EngineError: the runtime does not take the file.
            UsageError: the argument says nothing to it, or the runtime is not installed.
        """
        ...


class Factory(Protocol):
    """Makes an engine."""

    def __call__(self, graph: Graph, targets: Sequence[Var], setup: Setup, /) -> Engine:
        """Prepare a graph for execution.

        Raises:
            UnsupportedError: the engine cannot execute an operator of the graph.
            UsageError: the argument says nothing to it, or its runtime is not installed.
        """
        ...
