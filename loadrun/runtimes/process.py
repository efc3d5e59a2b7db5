"""Programs of others: a worker that answers messages, and a tool that is run once.

What is started is what the user named: nothing here goes through a shell, and no name comes from a model's file.
"""

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import prod
from typing import Any

import numpy as np

from ..base.errors import EngineError, UsageError
from ..graph.dtypes import Array
from ..ops.numeric.parallel import thread_environment, threads

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
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{self.what} {how}" + (f": {said}" if said else "")

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


def signal_name(number: int) -> str:
    """Name a signal.

    >>> signal_name(11)
    'SIGSEGV'
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clipped(text: str, *, last: bool = False) -> str:
    """Cut a message to a few hundred characters in one line, without what is of no use to the reader.

    >>> clipped("assertion failed\\nbacktrace:\\n0x1234")
    'assertion failed'
    """
    line = re.sub(r"\s+", " ", re.sub(r"backtrace:.*", "", text, flags=re.S)).strip()
    if len(line) <= _SHOWN:
        return line
    return "... " + line[-_SHOWN:] if last else line[:_SHOWN] + " ..."
