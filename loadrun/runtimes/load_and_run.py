"""MegEngine's C++ tool load_and_run as an engine: it is run once for each run, and reads and writes files."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, FormatError, UsageError
from ..base.pipes import ending
from ..base.writing import replacing
from ..engines import Engine, Setup
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..ops.numeric.parallel import threads
from ..verify.diff.stored import read_binary_dump
from .whole import WholeDump, clipped, run_tool

_VERSION = re.compile(r"using MegBrain (\d[\w.]*)")
_WHY = re.compile(r"(?:what\(\):\s*|\b(?=mgb::\w+Error)|^(?=ERROR: ))(.+)", re.M)


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """Make an engine of the tool; the argument is its path, or its name in the search path."""
    return LoadAndRun(graph, targets, _tool(setup.argument))


def _tool(named: str) -> str:
    if not named:
        raise UsageError(
            "load_and_run is MegEngine's own program: give its path, as in load_and_run:/path/to/load_and_run"
        )
    path = shutil.which(os.path.expanduser(named))
    if path is None:
        raise UsageError(f"there is no program {named!r} for the engine load_and_run")
    return os.path.abspath(path)


class LoadAndRun:
    """A graph in load_and_run.

    The graph goes there as a dump without testcases; data goes by ``--input`` and .npy files, outputs come back from
    ``--bin_out_dump``. The graph goes there as a whole: what the tool cannot run is an error.

    Args:
        graph: the graph.
        targets: the variables to compute.
        tool: the program.
    """

    def __init__(self, graph: Graph, targets: Sequence[Var], tool: str) -> None:
        self._whole = WholeDump(graph, targets)
        self._tool = tool
        self._version = ""

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._whole.inputs)

    @property
    def about(self) -> About:
        """Describe what executes, and how it computes; the version is known after the first run."""
        return self._whole.about("load_and_run", self._version or "?", self._tool)

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Write the dump."""
        self._whole.path()

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `Engine.run`.

        Raises:
            EngineError: the tool ends with an error, or does not write an output.
        """
        inputs = self._whole.feeds(feeds)
        outputs: list[Array] = []
        if self._whole.computed:
            with tempfile.TemporaryDirectory(prefix="run-", dir=self._whole.path().parent) as folder:
                outputs = self._run(inputs, Path(folder))
        return self._whole.results(outputs, feeds, "load_and_run")

    def _run(self, feeds: Mapping[str, Array], folder: Path) -> list[Array]:
        out = folder / "out"
        out.mkdir()
        command = [self._tool, str(self._whole.path()), "--iter", "1", "--warmup_iter", "0"]
        command += ["--cpu"] if threads() == 1 else ["--multithread", str(threads())]
        command += ["--bin_out_dump", str(out)]
        if feeds:
            command += ["--input", ";".join(f"{n}:{folder / n}.npy" for n in feeds)]
        for name, array in feeds.items():
            with replacing(folder / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        code, said = run_tool(command)
        version = _VERSION.search(said)
        self._version = version.group(1) if version else self._version
        if code:
            # A shell in between reports a signal as 128 and its number.
            raise EngineError(f"load_and_run {ending(code if code <= 128 else 128 - code)}: {_why(said)}")
        return self._read(out, said)

    def _read(self, out: Path, said: str) -> list[Array]:
        """Read the outputs by their names in the files' texts."""
        dtypes = {f"out{i}": v.dtype for i, v in enumerate(self._whole.computed)}
        outputs: dict[str, Array] = {}
        try:
            for path in sorted(out.glob("run0-var*")):
                name, value = read_binary_dump(path, dtypes)
                outputs[name] = value
        except FormatError as e:
            raise EngineError(f"load_and_run wrote a file that cannot be read: {e}") from e
        lost = [n for n in dtypes if n not in outputs]
        if lost:
            var = self._whole.computed[int(lost[0][3:])]
            raise EngineError(f"load_and_run wrote no value of {var.label!r}; it said: {_why(said)}")
        return [outputs[n] for n in dtypes]


def _why(said: str) -> str:
    """Return what the tool says of an error, else the end of what it printed."""
    match = _WHY.search(said)
    return clipped(said[match.start(1) :]) if match else clipped(said, last=True) or "it printed nothing"
