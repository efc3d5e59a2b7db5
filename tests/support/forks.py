"""Command lines in forks of one process that has imported loadrun already: what tests are about, without the start.

A test that needs a real process of its own (signals, what is imported, limits) starts one.
"""

from __future__ import annotations

import atexit
import gc
import os
import pkgutil
import runpy
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import traceback
import types
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("fork_client.py")
APART = ("loadrun.__main__", "loadrun.runtimes", "loadrun.testing", "loadrun.torch")
APART += tuple(f"loadrun.engines.{name}" for name in ("chains", "compiled", "fast"))
"""What runs when it is imported, or needs packages that may be absent."""


class Forks:
    """A process that forks for every command line.

    Attributes:
        python: a command that takes ``-m loadrun ...`` and ``-c PROGRAM`` and runs them as Python would: with the
            folder, environment and standard streams of its caller.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks")
        path = os.path.join(self._folder.name, "socket")
        self.python = [sys.executable, "-I", "-S", str(CLIENT), path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def programs(self, folder: Path) -> None:
        """Write `python3` and `loadrun` into a folder, for shells to find there."""
        for name, options in (("python3", ""), ("loadrun", "-m loadrun ")):
            path = folder / name
            path.write_text(f'#!/bin/sh\nexec {shlex.join(self.python)} {options}"$@"\n')
            path.chmod(0o755)

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)
        self._folder.cleanup()


@cache
def forks() -> Forks:
    """The one of this process, which `conftest` closes."""
    return Forks()


def python() -> list[str]:
    """The command of a Python that has imported loadrun already, where the system can fork."""
    return [sys.executable] if os.name == "nt" else forks().python


def serve(path: str) -> None:
    """Answer at a socket until standard input ends."""
    import loadrun

    for module in pkgutil.walk_packages(loadrun.__path__, "loadrun."):
        if not module.name.startswith(APART):
            import_module(module.name)
    # What every run of pytest imports, which this one has no part in.
    import_module("pytest")
    # Else every fork's garbage collections walk, and so copy, all that is imported here.
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        running: set[int] = set()
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            connection, _ = listener.accept()
            fork = os.fork()
            if not fork:
                listener.close()
                _answer(connection)
            connection.close()
            running.add(fork)
            running -= {n for n in running if os.waitpid(n, os.WNOHANG)[0]}
        for number in running:
            os.waitpid(number, 0)


def _answer(connection: socket.socket) -> None:
    """Run what is asked for in this process, and end it."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    request = connection.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
    folder, count, *words = os.fsdecode(request).split("\0")
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(word.split("=", 1) for word in words[: int(count)])
    code: object = 1
    try:
        _python(words[int(count) :])
        code = 0
    except SystemExit as e:
        code = e.code or 0
    except BaseException:
        traceback.print_exc()
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    connection.sendall(bytes([code & 255]))
    os._exit(0)


def _python(arguments: list[str]) -> None:
    """Run ``-m MODULE ...`` or ``-c PROGRAM ...``."""
    option, what, *more = arguments
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if option == "-m":
        sys.argv = [what, *more]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *more]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(what, "<string>", "exec"), main.__dict__)
    else:
        raise SystemExit(f"forks know -m and -c, not {option}")


if __name__ == "__main__":
    serve(sys.argv[1])
