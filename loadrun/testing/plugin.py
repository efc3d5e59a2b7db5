"""The plugin for pytest: `pytest models/` checks every output of every testcase of .mge files and other models.

It is active wherever loadrun is installed and costs nothing until a model is collected. A model is a ``.mge`` file,
an ``.onnx`` file beside folders ``test_data_set_N``, or a ``.pt2`` file that `loadrun.torch.save` wrote. Models are
collected where the command line names them, or a folder with them; `pytest` alone takes those that the configuration
lists, since models may lie in a project as data; a pattern there that matches no file is an error. Tests are called
``model.mge::1::logits``: file, testcase, output; further dumps of one file have testcases ``dump2-0``. A test fails
where `loadrun` on the same file does not exit with 0: a check that compares nothing fails, and so do the outputs of a
file without any check and testcases that the header of a file does not announce. An output of which nothing is
expected is skipped where another one of its testcase is compared.

Options of pytest's configuration: ``loadrun_engine`` (or ``--loadrun-engine``), ``loadrun_seed``, the list
``loadrun_models`` of patterns for the files that are collected, whatever the command line says, and the lists
``loadrun_skip`` and ``loadrun_xfail`` of patterns for names of tests, each with a reason after ``#``. What
`loadrun.toml` or ``tool.loadrun`` in `pyproject.toml` says of files (docs/howto-ci.md) holds here as for `loadrun run`;
``--loadrun-timeout`` and time limits there take a POSIX system.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..base.registry import late

with late(__name__):
    import zipfile

    from .. import dump as dumps, engines, runner as runners, testcase
    from ..base import archives, configuration as configurations, errors, limits
    from ..compare import policy

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr


_CONFIGURATION: pytest.StashKey[configurations.Configuration | None] = pytest.StashKey()
_CHECKED: pytest.StashKey[bool] = pytest.StashKey()
_NAMED = "loadrun_named"
"""Key that tells a worker whether the command line names files or folders."""


class ModelFailed(AssertionError):
    """A model cannot be run, or something of it is not compared."""


class CheckFailed(ModelFailed):
    """An output fails its check, which is all that may be expected of a model."""


def _seconds(value: str) -> float:
    """Read a duration.

    Raises:
        UsageError: it is no number above 0.
    """
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e8:
        raise pytest.UsageError(f"--loadrun-timeout: expected a number of seconds above 0, found {value!r}")
    return number


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("loadrun", "models with testcases")
    group.addoption("--loadrun-engine", metavar="NAME", help="engine that runs models (default: reference)")
    group.addoption(
        "--loadrun-timeout",
        metavar="SECONDS",
        type=_seconds,
        help="time limit for a testcase of a model, in seconds",
    )
    parser.addini("loadrun_engine", "engine that runs models", default="reference")
    parser.addini("loadrun_seed", "seed for random operators", default="0")
    parser.addini("loadrun_models", "patterns of model files to collect as tests", "linelist")
    for name, what in (("skip", "are not run"), ("xfail", "are expected to fail")):
        parser.addini(
            f"loadrun_{name}",
            f"patterns of model tests that {what}, each '# reason' behind it",
            type="linelist",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse patterns of models that are not there.

    Raises:
        UsageError: a pattern of `loadrun_models` matches no file.
    """
    if (patterns := _patterns(config)) and not hasattr(config, "workerinput"):
        absent = configurations.unmatched(str(config.rootpath), patterns)
        if absent:
            raise pytest.UsageError(f"loadrun_models: {', '.join(map(repr, absent))} matches no file")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect model files."""
    suffix = file_path.suffix.lower()
    if suffix not in (".mge", ".onnx", ".pt2") or not _wanted(file_path, parent):
        return None
    if suffix == ".mge" or (_has_testcases(file_path) if suffix == ".pt2" else _has_data_sets(file_path)):
        collector: pytest.Collector = ModelFile.from_parent(parent, path=file_path)
        return collector
    return None


def _has_data_sets(path: Path) -> bool:
    """Tell whether folders of test data stand beside an ONNX model."""
    return any("test_data_set_" in p.name for p in path.parent.iterdir())


def _has_testcases(path: Path) -> bool:
    """Tell whether loadrun wrote testcases into an exported program, or, of one that is damaged, may have."""
    try:
        with zipfile.ZipFile(path) as archive:
            file = "loadrun/testcases.json"
            return archive.comment.startswith(file.encode()) or any(
                n.endswith(file) for n in archive.namelist()
            )
    except archives.DAMAGE:
        return True


def _wanted(path: Path, parent: pytest.Collector) -> bool:
    """Return whether a model is to be tested: named itself, listed, or, without a list, in a folder that is named."""
    patterns = _patterns(parent.config)
    if parent.session.isinitpath(path):
        return True
    if not patterns:
        return _has_arguments(parent.config)
    root = parent.config.rootpath
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()

    return any(configurations.matches(name, p) for p in patterns)


def _patterns(config: pytest.Config) -> list[str]:
    """Return the patterns of models that the configuration lists."""
    lines = (line.partition("#")[0].strip() for line in config.getini("loadrun_models"))
    return [p for p in lines if p]


def _has_arguments(config: pytest.Config) -> bool:
    """Return whether the command line names files or folders; True for pytest before 7.2, which does not say."""
    named = getattr(config, "workerinput", {}).get(_NAMED)
    if named is not None:
        return bool(named)
    source = getattr(config, "args_source", None)
    return source is None or source is config.ArgsSource.ARGS


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - of pytest-xdist, which is optional
    """Tell a worker of pytest-xdist, which is always started with paths, whether the command line has some."""
    node.workerinput[_NAMED] = _has_arguments(node.config)


@lru_cache(maxsize=1)
def _runners(path: Path, engine: str, seed: int, check: tuple[str, ...]) -> list[runners.Runner]:
    """Return the runners of the dumps of a file."""
    bundles = dumps.load_all(path, native=engines.runs_file(engine))
    policies = policy.parse_all(check)
    return [runners.Runner(b, engine, seed=seed, policies=policies) for b in bundles]


@lru_cache(maxsize=1)
def _outcome(
    path: Path, dump: int, index: int | None, engine: str, seed: int, rule: configurations.FileRule
) -> runners.Result | Exception:
    """Return the result of a testcase, which its outputs share, or why there is none."""
    try:
        with limits.time_limited(rule.timeout):
            runner = _runners(path, engine, seed, rule.check)[dump]
            return runner.run() if index is None else runner.replay_one(index)
    except Exception as e:
        return e


def _engine(config: pytest.Config, path: Path) -> str:
    """Return the engine that options and configuration name; of several that a project names, the first."""
    configured = _rule(config, path).engines
    return str(
        config.getoption("--loadrun-engine")
        or (configured[0] if configured else config.getini("loadrun_engine"))
    )


def _seed(value: str) -> int:
    """Read the ini value ``loadrun_seed``.

    Raises:
        UsageError: it is no number that a seed can be.
    """
    if not (value.isascii() and value.isdigit() and len(value) <= 20 and int(value) < 2**64):
        raise errors.UsageError(
            f"loadrun_seed: expected a whole number from 0 to 2**64 - 1, found {value[:40]!r}"
        )
    return int(value)


def _configuration(config: pytest.Config) -> configurations.Configuration | None:
    """Return the project's configuration, read once."""
    if _CONFIGURATION not in config.stash:
        config.stash[_CONFIGURATION] = configurations.find_configuration(config.rootpath)
    return config.stash[_CONFIGURATION]


def _absent(config: pytest.Config) -> str | None:
    """Return what there is to say of patterns of the configuration that match no file, the first time it is asked."""
    if config.stash.get(_CHECKED, False):
        return None
    config.stash[_CHECKED] = True
    configuration = _configuration(config)
    absent = [] if configuration is None else configuration.unmatched([])
    return (
        f"{os.path.basename(configuration.path)}: {', '.join(absent)}" if configuration and absent else None
    )


def _rule(config: pytest.Config, path: Path) -> configurations.FileRule:
    """Return what the project's configuration says of a file, with the time limit of the command line."""
    configuration = _configuration(config)
    rule = configurations.FileRule() if configuration is None else configuration.of(path)
    limit = config.getoption("--loadrun-timeout")
    return rule if limit is None else replace(rule, timeout=limit)


class ModelFile(pytest.File):
    """A file with a model and its testcases."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield a collector for each testcase, and a test that fails for expected values outside the testcases."""
        rule = _rule(self.config, self.path)
        if absent := _absent(self.config):
            raise self.CollectError(absent)
        for note in rule.notes:
            self.warn(pytest.PytestWarning(f"{self.name}: {errors.clean(note, 500)}"))
        if rule.skip is not None:
            pytest.skip(rule.skip)
        try:
            bundles = dumps.load_all(self.path, native=engines.runs_file(_engine(self.config, self.path)))
        except errors.LoadRunError as e:
            raise self.CollectError(str(e)) from None
        cases: list[ModelCase] = []
        for i, bundle in enumerate(bundles):
            names = tuple(dict.fromkeys([*bundle.outputs, *_expected(bundle)]))
            lead = f"dump{i + 1}-" if i else ""
            for said in bundle.defects:
                self.warn(pytest.PytestWarning(f"{self.name}: {errors.clean(said, 500)}"))
            if bundle.facts.missed:
                missed = ModelMissed.from_parent(self, name=f"{lead}missed")
                missed.missed = tuple(bundle.facts.missed)
                _mark(missed)
                yield missed
            indices: list[int | None] = [*range(len(bundle.testcases))] or [None]
            for index in indices:
                name = f"{lead}{'run' if index is None else index}"
                case = ModelCase.from_parent(self, name=name)
                case.dump, case.index, case.outputs = i, index, names
                cases.append(case)
                yield case
        if rule.xfail is not None and rule.xfail_strict:
            expected = ModelExpected.from_parent(self, name="xfail")
            expected.reason, expected.cases = rule.xfail, cases
            _mark(expected)
            yield expected


def _expected(bundle: testcase.Bundle) -> list[str]:
    """List outputs of which there is an expected value, whether a check reads it or not."""
    if bundle.source.refusal is not None:
        return [*bundle.source.file.outputs] if bundle.source.file is not None else []
    names = [v.name or "" for v in bundle.graph.inputs]
    return [n[: -len(testcase.EXPECT)] for n in names if n.endswith(testcase.EXPECT)]


class ModelCase(pytest.Collector):
    """A testcase of a model.

    Attributes:
        dump: number of the dump in the file.
        index: number of the testcase, None for a run on random data.
        outputs: names of the model's outputs.
    """

    dump: int
    index: int | None
    outputs: tuple[str, ...]

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each output."""
        for output in self.outputs or ("run",):
            item = ModelOutput.from_parent(self, name=errors.clean(output, 200).replace("::", "%3A%3A"))
            item.output = output
            _mark(item)
            yield item

    def result(self) -> runners.Result:
        """Run it and return the result."""
        seed = _seed(self.config.getini("loadrun_seed").strip())
        engine, rule = _engine(self.config, self.path), _rule(self.config, self.path)
        outcome = _outcome(self.path, self.dump, self.index, engine, seed, rule)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class ModelTest(pytest.Item):
    """A test of a model, with what is the same for all of them."""

    def repr_failure(
        self,
        excinfo: pytest.ExceptionInfo[BaseException],
        style: Any = None,  # noqa: ANN401 - of a type of pytest's own
    ) -> str | TerminalRepr:
        """Show a failing check by what was compared, anything else by its traceback."""
        if isinstance(excinfo.value, ModelFailed):
            head, *rest = str(excinfo.value).splitlines()
            return "\n".join([f"E   {head}", *(f"E     {line}" for line in rest)])
        if isinstance(excinfo.value, errors.LoadRunError):
            return f"E   {type(excinfo.value).__name__}: {excinfo.value}"
        return super().repr_failure(excinfo, style)


class ModelMissed(ModelTest):
    """Values that a file holds to be compared and that none of its testcases tells of.

    Attributes:
        missed: sentences.
    """

    missed: tuple[str, ...]

    def runtest(self) -> None:
        """Fail."""
        raise ModelFailed("not compared: " + "; ".join(self.missed))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place for headings."""
        return self.path, 0, f"{self.path.name}, {self.name}"


class ModelExpected(ModelTest):
    """That a file which is expected to fail does.

    Attributes:
        reason: why it is.
        cases: its testcases.
    """

    reason: str
    cases: list[ModelCase]

    def runtest(self) -> None:
        """Fail if all testcases pass."""
        if all(case.result().verdict is runners.Verdict.PASS for case in self.cases):
            raise ModelFailed(f"it passes, but was expected to fail: {self.reason}; remove its entry")
        pytest.xfail(self.reason)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place for headings."""
        return self.path, 0, f"{self.path.name}, expected to fail"


class ModelOutput(ModelTest):
    """The check of one output in one testcase.

    Attributes:
        output: the output's name.
    """

    output: str

    def runtest(self) -> None:
        """Run the testcase, once for all its outputs, and check this one."""
        assert isinstance(self.parent, ModelCase)
        result = self.parent.result()
        if result.verdict is runners.Verdict.ERROR:
            raise ModelFailed(result.message or "the model cannot be executed")
        for other in result.outputs:
            # A data set may expect values of outputs that the model does not have.
            if other.name not in self.parent.outputs and result.standing(other) is runners.Verdict.FAIL:
                raise CheckFailed(
                    f"{errors.clean(other.name, 200)}: {'; '.join(errors.clean(n, 400) for n in other.notes)}"
                )
        out = next((o for o in result.outputs if o.name == self.output), None)
        standing = runners.Verdict.NOT_COMPARED if out is None else result.standing(out)
        if standing is None:
            pytest.skip("the output has no check")
        if standing is runners.Verdict.NOT_COMPARED:
            said = (
                "the output has no check" if out is None or not out.reason else errors.clean(out.reason, 500)
            )
            raise ModelFailed(f"nothing was compared: {said}")
        if out is not None and standing is not runners.Verdict.PASS:
            raise CheckFailed(self._said(out))

    def _said(self, out: runners.OutputResult) -> str:
        """Why it fails, as an assertion would."""
        assert isinstance(self.parent, ModelCase)
        error = "-" if out.error is None else f"{out.error:.6g}"
        maxerr = out.tolerance.maxerr
        lines = ["failed" if maxerr is None else f"assert error <= tolerance: {error} <= {maxerr:g}"]
        if out.comparison is not None:
            lines += out.comparison.explain().splitlines()
        lines += [errors.clean(note, 400) for note in out.notes]
        words = ["loadrun", "diff", str(self.path), "--testcase", str(self.parent.index)]
        words += ["--dump", str(self.parent.dump + 1)] if self.parent.dump else []
        lines.append(
            f"to find the operator where it diverged: {shlex.join(words)} --against GOOD (another model, or float64)"
        )
        return "\n".join(lines)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the place for headings."""
        case = self.parent.name if self.parent is not None else ""
        return self.path, 0, f"{self.path.name}, testcase {case}, output {self.name}"


def _mark(item: pytest.Item) -> None:
    """Mark tests listed in the configuration."""
    rule = _rule(item.config, item.path)
    if rule.xfail is not None:
        # That none of a file's checks fails is a test of its own.
        item.add_marker(pytest.mark.xfail(reason=rule.xfail, strict=False, raises=CheckFailed))
    xfail = pytest.mark.xfail(strict=rule.xfail_strict, raises=CheckFailed)
    for name, mark in (("skip", pytest.mark.skip), ("xfail", xfail)):
        for line in item.config.getini(f"loadrun_{name}"):
            pattern, _, reason = line.partition("#")
            if configurations.matches(item.nodeid, pattern.strip()):
                item.add_marker(mark(reason=reason.strip() or f"listed in loadrun_{name}"))
