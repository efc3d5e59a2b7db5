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

import signal
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, InputError, LoadRunError
from ..base.limits import EndedBySignal
from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..testcase import FileValue, SourceFile

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


def make_ready(engine: Engine, feeds: Mapping[str, Array]) -> None:
    """Let an engine convert and compile for the shapes of some feeds, if it has to."""
    prepare = getattr(engine, "prepare", None)
    if prepare is not None:
        prepare(feeds)


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

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, FileValue]:
        """Execute the file: values by output name.

        Raises:
            EngineError: the runtime fails.
        """
        ...


class Setup(NamedTuple):
    """The arguments of an engine's factory.

    Attributes:
        argument: what follows the colon in the engine's name: a provider, a precision, a program.
        seed: seed of the random operators.
        profile: let the runtime's own profiler watch the runs; an engine that has none need not look at it.
    """

    argument: str = ""
    seed: int = 0
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


def graph_inputs(oprs: Iterable[Opr]) -> dict[str, Var]:
    """Return the inputs among operators, by name."""
    return {o.outputs[0].name or "": o.outputs[0] for o in oprs if o.type == "Host2DeviceCopy"}


def checked_feeds(inputs: Mapping[str, Var], feeds: Mapping[str, Array]) -> dict[int, Array]:
    """Return the values of all inputs by variable id, scalars as arrays of one element where MegEngine reads them.

    Args:
        inputs: the inputs by name.
        feeds: arrays by input name, in the inputs' storage dtype.

    Raises:
        InputError: an input is missing or has another dtype.
    """
    values = ((var, fed_value(name, var, feeds)) for name, var in inputs.items())
    return {var.id: ranked(array, var) for var, array in values}


def given(targets: Iterable[Var], values: Mapping[int, Array]) -> list[Array]:
    """Return the values of variables: those that are known by their ids, else those that the graph stores."""
    return [values[v.id] if v.id in values else v.owner.tensors[v.index].value() for v in targets]


def ranked(array: Array, var: Var) -> Array:
    """Give an array of one element the rank that its input has: none only where the graph's operators know it.

    >>> import numpy as np
    >>> from loadrun.graph import Graph, StoredTensor
    >>> from loadrun.graph.dtypes import DType
    >>> (x,) = Graph().add("Host2DeviceCopy", tensors=[StoredTensor(DType("Float32"), (1,))])
    >>> ranked(np.float32(2), x).shape
    (1,)
    """
    tensor = var.owner.tensors[0]
    if not tensor.ranked:
        return array.reshape(1) if np.ndim(array) == 0 else array
    return array.reshape(()) if tensor.shape == () and array.size == 1 else array


def fed_value(name: str, var: Var, feeds: Mapping[str, Array]) -> Array:
    """Return what is fed to an input, or what the file holds for it.

    Raises:
        InputError: it is missing or has another dtype.
    """
    tensor = var.owner.tensors[0]
    if name not in feeds and tensor.data is None:
        shape = "of any shape" if tensor.shape is None else str(list(tensor.shape))
        names = ", ".join(feeds) or "none"
        raise InputError(f"input {name!r} ({tensor.dtype} {shape}) is missing; found {names}")
    array = feeds[name] if name in feeds else tensor.value()
    want = tensor.dtype.np
    if array.dtype != want:
        raise InputError(f"input {name!r} takes {tensor.dtype} ({want}), got an array of {array.dtype}")
    return array


def constant_ids(oprs: Iterable[Opr], guarded: Container[int], repeats: Callable[[Opr], bool]) -> set[int]:
    """Return the ids of the variables that are the same in every run.

    Args:
        oprs: operators, inputs before their readers.
        guarded: ids of those that are executed only sometimes.
        repeats: whether an operator gives the same for the same inputs.
    """
    constant: set[int] = set()
    for opr in oprs:
        if opr.type == "Host2DeviceCopy" or opr.id in guarded or not repeats(opr):
            continue
        if all(v.id in constant for v in opr.inputs):
            constant.update(v.id for v in opr.outputs)
    return constant


@contextmanager
def blamed(name: str, doing: str) -> Iterator[None]:
    """Make an error of whatever another package's code raises, even where that would end the program.

    Args:
        name: the engine.
        doing: what it does meanwhile, in words.

    Raises:
        EngineError: it raised something that is no error of loadrun's.
    """
    try:
        yield
    except (LoadRunError, MemoryError, EndedBySignal):
        raise
    except (Exception, SystemExit) as e:
        raise _fault(name, doing, e) from e
    except KeyboardInterrupt as e:
        # Where signals are ignored, as in worker processes, nobody pressed Ctrl-C.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise _fault(name, doing, e) from e
        raise


def _fault(name: str, doing: str, e: BaseException) -> EngineError:
    return EngineError(f"the engine {name!r} failed {doing}: {type(e).__name__}{f': {e}' if str(e) else ''}")


class ForeignEngine:
    """An engine of another package.

    Args:
        name: its name.
        engine: the engine.
        targets: the variables that it computes.
    """

    def __init__(self, name: str, engine: Engine, targets: Sequence[Var]) -> None:
        self._name = name
        self._engine = engine
        self._targets = targets

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        with blamed(self._name, "to say its inputs"):
            return self._engine.inputs

    @property
    def about(self) -> About:
        """Describe what executes, and how it computes."""
        with blamed(self._name, "to say what it is"):
            return self._engine.about

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Let it convert or compile, if it has to."""
        with blamed(self._name, "to prepare"):
            make_ready(self._engine, feeds)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the targets.

        Raises:
            EngineError: it failed, or gave something else than one numpy.ndarray of numbers for every target.
        """
        with blamed(self._name, "to run"):
            values = list(self._engine.run(feeds))
        if len(values) != len(self._targets):
            raise EngineError(
                f"the engine {self._name!r} returned {len(values)} values, expected {len(self._targets)}"
            )
        for var, value in zip(self._targets, values, strict=True):
            # What a subclass does when it is compared, sliced or copied, nobody knows; a mask hides values.
            plain = type(value) is np.ndarray
            if not plain or value.dtype.kind not in "biuf":
                what = f"an array of {value.dtype}" if plain else f"a {type(value).__name__}"
                raise EngineError(
                    f"the engine {self._name!r} returned {what} for {var.label!r}, expected a numpy.ndarray of numbers"
                )
        return values
