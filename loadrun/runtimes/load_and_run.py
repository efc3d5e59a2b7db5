"""MegEngine's C++ tool load_and_run as an engine: it is run once for each run, and reads and writes files."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

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


class LoadAndRun(WholeDump):
    """A graph in load_and_run.

    Data goes by ``--input`` and .npy files, outputs come back from ``--bin_out_dump``. The version is known after the
    first run.

    Args:
        graph: the graph.
        targets: the variables to compute.
        tool: the program.
    """

    def __init__(self, graph: Graph, targets: Sequence[Var], tool: str) -> None:
        super().__init__(graph, targets, "load_and_run", tool)

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Write the dump."""
        self.path()

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Run the tool."""
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.path().parent) as folder:
            return self._run(inputs, Path(folder))

    def _run(self, feeds: Mapping[str, Array], folder: Path) -> list[Array]:
        out = folder / "out"
        out.mkdir()
        command = [self.program, str(self.path()), "--iter", "1", "--warmup_iter", "0"]
        command += ["--cpu"] if threads() == 1 else ["--multithread", str(threads())]
        command += ["--bin_out_dump", str(out)]
        if feeds:
            command += ["--input", ";".join(f"{n}:{folder / n}.npy" for n in feeds)]
        for name, array in feeds.items():
            with replacing(folder / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        code, said = run_tool(command)
        version = _VERSION.search(said)
        self.version = version.group(1) if version else self.version
        if code:
            # A shell in between reports a signal as 128 and its number.
            raise EngineError(f"load_and_run {ending(code if code <= 128 else 128 - code)}: {_why(said)}")
        return self._read(out, said)

    def _read(self, out: Path, said: str) -> list[Array]:
        """Read the outputs by their names in the files' texts."""
        dtypes = {f"out{i}": v.dtype for i, v in enumerate(self.computed)}
        outputs: dict[str, Array] = {}
        try:
            for path in sorted(out.glob("run0-var*")):
                name, value = read_binary_dump(path, dtypes)
                outputs[name] = value
        except FormatError as e:
            raise EngineError(f"load_and_run wrote a file that cannot be read: {e}") from e
        lost = [n for n in dtypes if n not in outputs]
        if lost:
            var = self.computed[int(lost[0][3:])]
            raise EngineError(f"load_and_run wrote no value of {var.label!r}; it said: {_why(said)}")
        return [outputs[n] for n in dtypes]


def _why(said: str) -> str:
    """Return what the tool says of an error, else the end of what it printed."""
    match = _WHY.search(said)
    return clipped(said[match.start(1) :]) if match else clipped(said, last=True) or "it printed nothing"
