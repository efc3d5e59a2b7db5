"""MegEngine itself as an engine, in a separate Python process."""

import atexit
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from weakref import finalize

from ..base.errors import EngineError, UsageError
from ..engines import Engine, Setup
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..ops.numeric.parallel import threads
from ..testcase import Bundle
from .whole import MessageProcess, WholeDump

_SCRIPT = Path(__file__).with_name("megengine_worker.py")
_numbers = count()
_workers: dict[tuple[str, int], MessageProcess] = {}
_versions: dict[str, str] = {}


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """MegEngine; the argument is its Python, by default this one."""
    return MegEngine(graph, targets, _python(setup.argument))


def _python(named: str) -> str:
    if named:
        return named
    spec = find_spec("megengine")
    if spec is None or spec.origin is None:
        raise UsageError(
            "MegEngine is not installed here; name a Python that has it, as in megengine:/path/to/python "
            "(pip install megengine in Python 3.8, 3.9 or 3.10)"
        )
    return sys.executable


def beside(
    graph: Graph,
) -> tuple[str, Callable[[Mapping[str, Array]], dict[str, Array]], Callable[[], None]] | None:
    """Return MegEngine's name, what runs a graph in it, and what ends that; None where no Python has it.

    ``LOADRUN_MEGENGINE`` names that Python, by default it is this one.
    """
    try:
        python = _python(os.environ.get("LOADRUN_MEGENGINE", ""))
    except UsageError:
        return None
    outputs = Bundle(graph).outputs
    engines: list[MegEngine] = []

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if not engines:
            engines.append(MegEngine(graph, [*outputs.values()], python))
        needed = {n: feeds[n] for n in engines[0].inputs if n in feeds}
        return dict(zip(outputs, engines[0].run(needed), strict=True))

    return "MegEngine", run, _close


def _worker(python: str) -> MessageProcess:
    """Return the process of a Python: one for all models, a new one when it died or is to use other threads.

    Raises:
        UsageError: that Python has no MegEngine.
    """
    worker = _workers.get((python, threads()))
    if worker is None or not worker.alive:
        worker = MessageProcess([python, str(_SCRIPT)], "MegEngine")
        try:
            _versions[python] = str(worker.ask({"do": "hello"})[0]["version"])
        except EngineError as e:
            worker.close()
            raise UsageError(f"{python} cannot run MegEngine: {e}") from e
        _workers[python, threads()] = worker
    return worker


@atexit.register
def _close() -> None:
    for worker in _workers.values():
        worker.close()
    _workers.clear()


class MegEngine(WholeDump):
    """A graph in MegEngine; a crash ends its process alone, and the next run gets a new one.

    Args:
        graph: the graph.
        targets: the variables to compute.
        python: the Python that has MegEngine.

    Raises:
        UsageError: it does not.
    """

    def __init__(self, graph: Graph, targets: Sequence[Var], python: str) -> None:
        super().__init__(graph, targets, "megengine", python)
        self._model = f"m{next(_numbers)}"
        self._loaded: MessageProcess | None = None
        _worker(python)
        self.version = _versions[python]

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Load the model.

        Raises:
            EngineError: MegEngine cannot load it.
        """
        if self.computed:
            self._ready()

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Let the process run the model."""
        return self._ready().ask({"do": "run", "model": self._model}, inputs)[1]

    def _ready(self) -> MessageProcess:
        """Return the process, with the model loaded."""
        worker = _worker(self.program)
        if self._loaded is not worker:
            worker.ask({"do": "load", "model": self._model, "path": str(self.path())})
            finalize(self, _drop, worker, self._model)
            self._loaded = worker
        return worker


def _drop(worker: MessageProcess, model: str) -> None:
    """Let a process forget a model."""
    if worker.alive:
        with suppress(EngineError):
            worker.ask({"do": "drop", "model": model})
