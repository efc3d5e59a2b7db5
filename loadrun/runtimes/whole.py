"""A graph that goes to a program of MegEngine as a dump, and the worker or tool that runs it."""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import prod
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, InputError, UsageError
from ..base.pipes import ending
from ..base.proving import proving
from ..dump import save
from ..engines.protocol import checked_feeds, given, graph_inputs
from ..graph import Graph, Var
from ..graph.dtypes import Array, DType, dtype_of
from ..ops.infer import infer_dtypes
from ..ops.numeric.parallel import thread_environment, threads
from ..passes.constants import subgraph
from ..passes.narrowing import narrow_array, narrow_dtype, narrowed, wide_dtypes

_WIDE = tuple(map(np.dtype, ("f8", "i8", "u4", "u8")))


class WholeDump:
    """A graph in a program: a base of engines, which say how the program computes the dump's outputs.

    Inputs are called ``in0``, ``in1`` ... in the dump and outputs ``out0``, ``out1`` ...: names of models may hold
    what a command line or a file name cannot. Dtypes that MegEngine lacks are narrowed there, and results widened.
    What the program cannot run is an error.

    Args:
        graph: the graph.
        targets: the variables to compute.
        name: the engine's name.
        program: its path.

    Attributes:
        arithmetic: in which dtypes MegEngine computes.
        computed: the targets that the dump computes: those that are neither inputs nor stored.
        version: the program's.
    """

    def __init__(self, graph: Graph, targets: Sequence[Var], name: str, program: str) -> None:
        self.name, self.program, self.version = name, program, ""
        self._wanted = [v.dtype for v in targets]
        self.targets = list(targets)
        self.arithmetic = "float32"
        if graph.exact:
            pairs = [(DType(n), narrow_dtype(DType(n))) for n in wide_dtypes(graph)]
            self.arithmetic = ", ".join(["float32", *(f"{a.spelling} as {b.spelling}" for a, b in pairs)])
            graph, known = narrowed(graph)
            self.targets = [known[v.id] for v in targets]
        self.oprs = graph.needed(self.targets)
        infer_dtypes(self.oprs)
        self._inputs = graph_inputs(self.oprs)
        self.computed = list({v.id: v for v in self.targets if not v.owner.tensors}.values())
        self._graph = graph
        needed = {o.id for o in graph.needed(self.computed)}
        fed = [n for n, v in self._inputs.items() if v.owner.id in needed]
        self.names = {n: f"in{i}" for i, n in enumerate(fed)}
        self._path: Path | None = None

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        return dict(self._inputs)

    @property
    def about(self) -> About:
        """Describe what executes, and how it computes; a version that is not known yet is ``?``."""
        operators = sum(not o.tensors for o in self.oprs)
        return About(self.name, self.version or "?", self.arithmetic, self.program, operators=operators)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Execute once; see `Engine.run`.

        Raises:
            InputError: an input is missing or of another dtype.
            EngineError: the program ends with an error, or an output has another dtype than the graph says.
        """
        values = checked_feeds(self._inputs, {n: self._narrow(n, a) for n, a in feeds.items()})
        fed = {new: np.ascontiguousarray(values[self._inputs[n].id]) for n, new in self.names.items()}
        outputs = self.outputs(fed) if self.computed else []
        for var, array in zip(self.computed, outputs, strict=True):
            want = array.dtype if var.dtype is None else var.dtype.np
            if array.dtype != want:
                raise EngineError(
                    f"{self.name} returned {array.dtype} for {var.label!r}, which is {var.dtype}"
                )
            values[var.id] = array
        return [
            a if d is None or not d.is_wide else a.astype(d.np)
            for a, d in zip(given(self.targets, values), self._wanted, strict=True)
        ]

    def outputs(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Compute the dump's outputs from arrays by the names of its inputs."""
        raise NotImplementedError

    def path(self) -> Path:
        """Return the dump, written once to a folder that lasts as long as this does.

        Raises:
            FormatError: the graph cannot be written.
        """
        if self._path is None:
            folder = tempfile.TemporaryDirectory(prefix="loadrun-")
            finalize(self, folder.cleanup)
            self._write(Path(folder.name) / "model.mge")
            self._path = Path(folder.name) / "model.mge"
        return self._path

    def _write(self, path: Path) -> None:
        graph, known = subgraph(self._graph, self.computed)
        for i, var in enumerate(self.computed):
            known[var.id].name = f"out{i}"
        for name, new in self.names.items():
            var = known[self._inputs[name].id]
            var.name = var.owner.tensors[0].name = new
        # An engine's result is compared by whoever runs it.
        with proving("none"):
            save(graph, path)

    def _narrow(self, name: str, array: Array) -> Array:
        """Return what is fed to an input in MegEngine's dtype.

        Raises:
            InputError: an integer does not fit.
        """
        var = self._inputs.get(name)
        if var is None or array.dtype == var.owner.tensors[0].dtype.np or array.dtype not in _WIDE:
            return array
        converted = narrow_array(array, dtype_of(array))
        if converted.dtype.kind == "i" and not np.array_equal(converted, array):
            raise InputError(
                f"input {name!r} holds integers that do not fit int32, which MegEngine has for them"
            )
        return converted


# Programs of others: a worker that answers messages, and a tool that is run once.
#
# What is started is what the user named: nothing here goes through a shell, and no name comes from a model's file.

_SHOWN = 600


class MessageProcess:
    """A process that answers messages: a line of JSON and the bytes of arrays each.

    Args:
        command: the program and its arguments.
        what: what it is, for messages.

    Raises:
        UsageError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], what: str) -> None:
        self.what = what
        self.owner = os.getpid()
        self._open = ExitStack()
        self._said = self._open.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        environment = {
            k: v for k, v in thread_environment(threads()).items() if k not in ("PYTHONPATH", "PYTHONHOME")
        }
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=environment,
            )
        except OSError as e:
            self._open.close()
            raise UsageError(f"{what} cannot be started: {command[0]}: {e.strerror or e}") from e

    @property
    def alive(self) -> bool:
        """Return whether it still runs, and belongs to this process, not to the one that this was forked from."""
        return self.owner == os.getpid() and self._process.poll() is None

    def ask(
        self, message: Mapping[str, Any], arrays: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], list[Array]]:
        """Send a message and read the answer.

        Raises:
            EngineError: the answer is an error, or the process ended.
        """
        buffers = {n: np.ascontiguousarray(a) for n, a in (arrays or {}).items()}
        head = {**message, "arrays": [[n, a.dtype.str, list(a.shape)] for n, a in buffers.items()]}
        pipe, out = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert out is not None
        try:
            pipe.write(json.dumps(head).encode() + b"\n")
            for array in buffers.values():
                pipe.write(array.reshape(-1).view(np.uint8).data)
            pipe.flush()
            line = out.readline()
        except OSError:
            line = b""
        if not line:
            raise EngineError(self._ended())
        try:
            answer = json.loads(line)
            if "error" not in answer:
                return answer, [_array(out.read, dtype, shape) for _, dtype, shape in answer["arrays"]]
            why = str(answer["error"])
        except (ValueError, KeyError, TypeError) as e:
            self.close()
            said = clipped(line.decode(errors="replace"))
            raise EngineError(f"{self.what} sent {said!r}, which is not a valid answer") from e
        raise EngineError(f"{self.what}: {clipped(why)}")

    def _ended(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        said = clipped(self._said.read().decode(errors="replace"), last=True)
        self.close()
        return f"{self.what} {ending(code)}" + (f": {said}" if said else "")

    def close(self) -> None:
        """End the process."""
        if self.owner != os.getpid():
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._open.close()


def _array(read: Callable[[int], bytes], dtype: str, shape: Sequence[int]) -> Array:
    kind = np.dtype(dtype)
    sizes = [int(n) for n in shape]
    if kind.hasobject or any(n < 0 for n in sizes):
        raise ValueError(f"an array of {dtype} {shape}")
    data = read(prod(sizes) * kind.itemsize)
    return np.frombuffer(data, kind).reshape(sizes)


def run_tool(command: Sequence[str]) -> tuple[int, str]:
    """Run a program to its end; its exit code and what it printed.

    Raises:
        UsageError: it cannot be started.
    """
    try:
        ended = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env=thread_environment(threads()),
        )
    except OSError as e:
        raise UsageError(f"load_and_run cannot be started: {command[0]}: {e.strerror or e}") from e
    return ended.returncode, ended.stdout.decode(errors="replace")


def clipped(text: str, *, last: bool = False) -> str:
    """Cut a message to a few hundred characters in one line, without what is of no use to the reader.

    >>> clipped("assertion failed\\nbacktrace:\\n0x1234")
    'assertion failed'
    """
    line = re.sub(r"\s+", " ", re.sub(r"backtrace:.*", "", text, flags=re.S)).strip()
    if len(line) <= _SHOWN:
        return line
    return "... " + line[-_SHOWN:] if last else line[:_SHOWN] + " ..."
