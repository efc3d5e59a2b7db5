"""Files described: what models consist of, and what of them an engine runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from ...base.about import About
from ...base.errors import Failure, failure
from ...base.files import files_of
from ...base.limits import memory_limited, time_limited
from ...dump import load_all
from ...engines import Choice, runs_file
from ...inputs.feeds import ModelOptions
from ...runner import Runner
from ...testcase import Bundle
from ..describe import Description, describe

T = TypeVar("T")


@dataclass
class Described(Generic[T]):
    """Descriptions of the dumps of several files.

    Attributes:
        descriptions: pairs of a dump's name and what was said of it.
        failures: pairs of a file and why it could not be read or run.
    """

    descriptions: list[tuple[str, T]] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the exit code of `loadrun info`: 2 when a file cannot be read or run, 4 when that takes too long."""
        return max((f.code for _, f in self.failures), default=0)


def describe_files(
    files: Iterable[str | os.PathLike[str]],
    read: ModelOptions | None = None,
    *,
    timeout: float | None = None,
    max_memory: int | None = None,
) -> Described[Description]:
    """Describe the dumps of files: inputs, outputs, operators, parameters, FLOPs, testcases and metadata.

    Args:
        files: names, patterns and folders.
        read: what ONNX models leave open.
        timeout: seconds that a file may take.
        max_memory: bytes that this process may take beyond what it has; None for what the machine can give (Linux).

    Raises:
        InputError: a file does not exist.

    >>> (name, about), = describe_files(["fixtures/nets/mlp.mge"]).descriptions
    >>> name, about.parameters, about.testcases
    ('fixtures/nets/mlp.mge', 2028, 3)
    """
    return _each(files, read, describe, timeout, max_memory)


def describe_engine(
    files: Iterable[str | os.PathLike[str]],
    engine: str | Choice,
    read: ModelOptions | None = None,
    *,
    timeout: float | None = None,
    max_memory: int | None = None,
) -> Described[About]:
    """Run the first testcase of files, or random data, and tell which operators an engine leaves to the reference.

    Args:
        files: names, patterns and folders.
        engine: what executes the models.
        read: what ONNX models leave open.
        timeout: seconds that a file may take.
        max_memory: bytes that this process may take beyond what it has; None for what the machine can give (Linux).

    Raises:
        InputError: a file does not exist.

    >>> [(name, about.text) for name, about in describe_engine(["fixtures/nets/mlp.mge"], "float64").descriptions]
    ... # doctest: +ELLIPSIS
    [('fixtures/nets/mlp.mge', 'float64 ...')]
    """

    def said(bundle: Bundle) -> About:
        runner = Runner(bundle, engine)
        runner.run(runner.inputs_of(bundle.testcases[0]) if len(bundle.testcases) else None)
        return runner.about

    return _each(files, read, said, timeout, max_memory, native=runs_file(engine))


def _each(
    files: Iterable[str | os.PathLike[str]],
    read: ModelOptions | None,
    said: Callable[[Bundle], T],
    timeout: float | None,
    max_memory: int | None,
    native: bool = False,
) -> Described[T]:
    described: Described[T] = Described()
    for path in files_of([os.fspath(f) for f in files]):
        try:
            with memory_limited(max_memory), time_limited(timeout):
                bundles = load_all(path, native=native, **(read or ModelOptions()).read)
                what = [said(bundle) for bundle in bundles]
            described.descriptions += [
                (path if i == 0 else f"{path} (dump {i + 1})", a) for i, a in enumerate(what)
            ]
        except Exception as e:
            why = failure(e, named=True)
            if not why.message.startswith(path):
                why = replace(why, message=f"{path}: {why.message}")
            described.failures.append((path, why))
    return described
