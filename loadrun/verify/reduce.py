"""`loadrun reduce`: the smallest part of a model in a file that still fails for the same reason."""

import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..base.errors import EngineError, UsageError
from ..base.files import one_file
from ..base.pipes import run_whole
from ..compare.judging import policy_for
from ..compare.policy import Policy, parse
from ..compare.record import packed_policies
from ..compare.results import Result, Verdict
from ..dump import load
from ..dump.container import load_dump
from ..dump.store import save_as
from ..engines import engine_names, runs_file
from ..graph import Graph
from ..graph.dtypes import Array
from ..inputs.feeds import DataOptions, ModelOptions, fit_inputs, random_inputs
from ..ops.infer import infer_dtypes
from ..runner import Runner
from ..testcase import Bundle
from .diff.extracting import Judge, Reduced, computed_values, reduce_graph, reference_dtypes, reference_values
from .diff.files import expressible, reference_graph, sized
from .diff.matching import match
from .diff.runs import inputs_of


@dataclass(frozen=True, kw_only=True)
class FailureOptions(ModelOptions, DataOptions):
    """Describe what failing means; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        fails: a command that exits with a code other than 0 when a candidate fails; the candidate's path replaces {} or
            is appended. It is run without a shell; its exit code is the reason.
        against: compare with another model, an engine, or float64.
        message: count a failure only if the output of CMD matches this.
        dump: use the N-th dump of a file that has several, counted from 1.
        testcase: use only testcase N (default: the first that fails).
        maxerr: tolerance of the candidates' checks (default 1e-4).
        timeout: time limit for a run of CMD in seconds. A run that takes longer fails for that reason.
    """

    fails: str | None = None
    against: str | None = None
    message: str | None = None
    dump: int | None = None
    testcase: int | None = None
    maxerr: float = 1e-4
    timeout: float = 60.0

    def check(self) -> None:
        """Check that one thing says what failing means, and that a run of it has time.

        Raises:
            UsageError: nothing does, or two do, or it has none.
        """
        if not self.timeout > 0:
            raise UsageError(f"timeout must be above 0, found {self.timeout:g}")
        if (self.fails is None) == (self.against is None):
            raise UsageError("define the failure with either --fails CMD or --against OTHER")

    @property
    def engine(self) -> str | None:
        """The engine that the model is compared with, None if it is something else."""
        name = self.against
        if name is None or name == "float64" or os.path.exists(name):
            return None
        return name if name.partition(":")[0] in engine_names() else None

    @property
    def passing(self) -> str:
        """What is to be said of a model that does not fail."""
        if self.fails is not None:
            return (
                "the command accepts the model, whose checks expect what it computes itself "
                "(--against compares with a good model)"
            )
        return (
            f"the model does not fail: it differs from {self.against} by at most --maxerr {self.maxerr:g} "
            "(0 asks for equal values)"
        )

    @contextmanager
    def judge(self, target: str | os.PathLike[str], original: Bundle) -> Iterator[Judge]:
        """Give what judges candidates, by the original's policies too, files of the target's kind where a command does.

        A policy of every output holds for inner values as well.
        """
        policies, _ = packed_policies(original.record)
        kinds = {policies.get(c.name, Policy()).text for c in original.checks}
        if len(kinds) == 1 and (text := kinds.pop()):
            policies[""] = parse(text)

        def asked(judged: Judge) -> Judge:
            return partial(_by_policies, policies, judged) if policies else judged

        engine = self.engine or "reference"
        is_file = runs_file(engine, Path(target).suffix.lower().removeprefix("."))
        if self.fails is None and not is_file:
            yield asked(_Replay(engine, self.seed))
            return
        with tempfile.TemporaryDirectory(prefix="loadrun-") as folder:
            path = Path(folder) / f"candidate{Path(target).suffix or '.mge'}"
            if self.fails is None:
                yield asked(_Replay(engine, self.seed, path))
            else:
                yield asked(_Command(self.fails, self.message, self.timeout, path))


@dataclass(frozen=True, kw_only=True)
class ReduceOptions(FailureOptions):
    """Describe what failing means and how long to search; the options of `FailureOptions` are among these.

    Attributes:
        runs: try at most N candidates.
    """

    runs: int = 60


def reduce_file(
    model: str | os.PathLike[str],
    target: str | os.PathLike[str],
    options: ReduceOptions,
    *,
    warn: Callable[[str], None] = warnings.warn,
) -> Reduced:
    """Write the smallest part of a model that still fails for the same reason, as a testcase of its own.

    Args:
        model: the file whose model fails.
        target: the file to write, .mge or .onnx. With `ReduceOptions.fails` candidates are files of that kind.
        options: what failing means.
        warn: called with what deserves a look.

    Returns:
        what is left. After an interrupt (KeyboardInterrupt) it is the best so far.

    Raises:
        UsageError: nothing says what failing means, or the model does not fail.
        LoadRunError: a file cannot be read or written.

    >>> import loadrun, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = ReduceOptions(against="float64", maxerr=1e-9)
    ...     found = reduce_file("fixtures/nets/mlp.mge", os.path.join(folder, "small.mge"), options)
    >>> found.total, found.operators <= 2, found.reason
    (19, True, 'values differ')
    """
    options.check()
    # What cannot be expressed to its end is compared with another model as far as it goes.
    native = {"native": True} if options.against is not None and options.engine is None else {}
    bundle = load_dump(model, options.dump, **native, **options.read)
    last: UsageError | None = None
    for feeds in feeds_to_try(options, options.testcase, bundle, warn):
        try:
            reduction = _reduced(sized(bundle, feeds), feeds, target, options, warn)
        except UsageError as e:
            last = e
            continue
        save_as(reduction.bundle, target)
        return reduction
    raise last or UsageError(f"{os.fspath(model)} has no testcase")


def feeds_to_try(
    options: DataOptions, testcase: int | None, bundle: Bundle, warn: Callable[[str], None]
) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs to try in turn: the user's data, the testcases or one of them, random numbers."""
    count = len(bundle.testcases)
    if options.input_data is not None:
        yield from (fit_inputs(bundle, case) for case in options.cases(bundle, warn))
    elif not count:
        yield random_inputs(bundle, options.seed)
    elif testcase is not None and testcase >= count:
        raise UsageError(f"the file has testcases 0 to {count - 1}, found --testcase {testcase}")
    else:
        for number in range(count) if testcase is None else (testcase,):
            yield inputs_of(bundle, number)


def _reduced(
    bundle: Bundle,
    feeds: Mapping[str, Array],
    target: str | os.PathLike[str],
    options: ReduceOptions,
    warn: Callable[[str], None],
) -> Reduced:
    graph = expressible(bundle, [], warn)
    search = partial(reduce_graph, graph, maxerr=options.maxerr, runs=options.runs, passing=options.passing)
    known = {v.id for v in graph.vars()}
    good = partial(computed_values, graph, feeds=feeds, seed=options.seed)
    if options.against is not None and options.engine is None:
        reference: Graph | str = options.against
        matching = None
        if options.against != "float64":
            read = options.read if options.against.lower().endswith(".onnx") else {}
            other = load(one_file(options.against), native=True, **read)
            reference = reference_graph(other, bundle, feeds, [], warn)
            matching = match(graph, reference)
            known = set(matching.pairs)
            for opr in (*graph.needed(), *reference.needed()):
                with suppress(EngineError):
                    infer_dtypes([opr])
            search = partial(search, dtypes=reference_dtypes(graph.vars(), matching))
        good = partial(
            reference_values,
            graph,
            against=reference,
            feeds=feeds,
            seed=options.seed,
            matching=matching,
            kept={},
        )
    with options.judge(target, bundle) as judge:
        return search(good, known, judge)


def _by_policies(policies: Mapping[str, Policy], judge: Judge, bundle: Bundle) -> str | None:
    """Judge a candidate whose outputs have policies, as the original's have."""
    said = {c.name: policy_for(policies, c.name).text for c in bundle.checks}
    bundle.record = {"record": 1, "policy": {n: {"check": text} for n, text in said.items() if text}}
    return judge(bundle)


def _write_alone(bundle: Bundle, path: Path) -> None:
    """Write a candidate in a folder that holds nothing else."""
    for old in path.parent.iterdir():
        if old.is_file():
            old.unlink()
    save_as(bundle, path)


class _Replay:
    """Judges candidates by their own checks, on an engine.

    Args:
        engine: name of the engine.
        seed: seed of random operators.
        path: the file that each candidate is written to, for an engine that runs such files as they are.
    """

    def __init__(self, engine: str, seed: int, path: Path | None = None) -> None:
        self._engine, self._seed, self._path = engine, seed, path

    def __call__(self, bundle: Bundle) -> str | None:
        if self._path is not None:
            _write_alone(bundle, self._path)
            bundle = load(self._path, native=True)
        result: Result = Runner(bundle, self._engine, seed=self._seed).replay_one(0)
        if result.verdict is Verdict.PASS:
            return None
        if result.verdict is Verdict.FAIL:
            return "values differ"
        # Without what changes from candidate to candidate: numbers, names and sizes.
        return re.sub(r"'[^']*'|\[[^]]*\]|\d+", "_", result.message or result.verdict.value)[:200]


class _Command:
    """Judges candidates by a command."""

    def __init__(self, command: str, message: str | None, timeout: float, path: Path) -> None:
        try:
            self._command = shlex.split(command)
            self._message = None if message is None else re.compile(message)
        except (ValueError, OverflowError, RecursionError, re.error) as e:
            raise UsageError(f"--fails and --message: {e}") from None
        if not self._command:
            raise UsageError("--fails needs a command, found an empty one")
        self._timeout, self._path = timeout, path

    def __call__(self, bundle: Bundle) -> str | None:
        _write_alone(bundle, self._path)
        words = self._command if any("{}" in w for w in self._command) else [*self._command, "{}"]
        try:
            code, said = run_whole([w.replace("{}", str(self._path)) for w in words], self._timeout)
        except TimeoutError:
            return f"it takes longer than {self._timeout:g} s"
        except OSError as e:
            raise UsageError(f"--fails: {words[0]} cannot be started: {e.strerror or e}") from None
        if code == 0:
            return None
        if self._message is not None and not self._message.search(said.decode(errors="replace")):
            return None
        return f"exit code {code}"
