"""Packing a file as `loadrun pack` does: model and data are read, tolerances measured, what was written is replayed."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import numpy as np

from ...base.errors import EngineError, FormatError, LoadRunError, UsageError, clean
from ...base.files import give_back_pages
from ...base.registry import resolve
from ...base.stages import stage
from ...compare.judging import ABSURD
from ...compare.policy import parse_all
from ...compare.results import OutputResult, Verdict
from ...dump import load, load_all
from ...dump.container import load_dump
from ...dump.options import DumpResult
from ...graph import Graph
from ...graph.dtypes import Array
from ...inputs.lists import TextSource, count_cases
from ...passes.constants import bare
from ...passes.inference import optimize_for_inference
from ...passes.options import InferenceOptions
from ...runner import Runner
from ...testcase import Testcase
from .capture import Warn
from .noise import Suggestion, suggest, widened
from .options import PackOptions
from .packing import Packer
from .unpacking import Unpacked, expected_cases, read_unpacked


class TrialReplay:
    """The replay of a file that was just written, before it takes its place.

    Args:
        engine: name of the engine.
        seed: seed of random operators, that of the ground truth.
    """

    def __init__(self, engine: str = "reference", seed: int = 0) -> None:
        self.engine, self.seed = engine, seed
        self.failed: list[str] = []
        """Outputs whose checks do not hold, or compare nothing."""
        self._blind: list[str] = []

    @stage("replaying the written file")
    def look(self, path: str) -> None:
        """Replay the last dump of a file.

        Raises:
            FormatError: it cannot be read, or does not run.
        """
        # What the model was read from lies in memory beside what is read now.
        give_back_pages()
        try:
            written = load_all(path)[-1]
            for result in Runner(written, self.engine, seed=self.seed).replay():
                if result.verdict is Verdict.ERROR:
                    raise EngineError(str(result.message))
                for o in result.outputs:
                    if o.verdict is Verdict.FAIL and _is_finite(o.expect):
                        self.failed.append(f"{o.name} of testcase {result.index}")
                    elif _is_blind(o):
                        self.failed.append(f"{o.name} of testcase {result.index}")
                        self._blind.append(f"the check of {o.name} compares nothing: {o.reason}")
        except LoadRunError as e:
            raise FormatError(
                f"with these options the file would not run, so it was not written: {e}; leave out options that change "
                "the graph, or testcases whose sizes differ from the first"
            ) from e

    def warning(self) -> str | None:
        """Say which checks fail, None if every one holds."""
        if not self.failed:
            return None
        if self._blind:
            return f"the written file fails its checks: {self._blind[0]}"
        more = f" and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        return (
            f"the written file fails its checks: {', '.join(self.failed[:3])}{more}; the options or the values (NaN, "
            "random numbers) change the outputs beyond maxerr"
        )


def _is_blind(output: OutputResult) -> bool:
    """Return whether a check misses faults for another reason than the tolerance that was requested."""
    unseen = output.verdict is Verdict.NOT_COMPARED and output.expect is not None
    return unseen and not (output.reason or "").startswith(ABSURD)


def _is_finite(value: Array | None) -> bool:
    """Return whether a check of a value can hold; that it cannot is told when it is captured."""
    return value is None or value.dtype.kind != "f" or bool(np.isfinite(value).all())


_PEEKED = 64
"""So many inputs are loaded to see whether all are of one size."""

Cases = Iterator[dict[str, Array]]


@dataclass(frozen=True)
class Packed:
    """The result of packing.

    Attributes:
        written: what `loadrun.save` says of the file.
        kept: how many of its testcases the model's file had.
        holds: whether the model as it was written gives the outputs that were computed before; True if values were
            given, which it need not give.
        suggestions: tolerances that were measured, by output.
    """

    written: DumpResult
    kept: int
    holds: bool
    suggestions: Mapping[str, Suggestion]


class FilePacker:
    """Packs data and outputs into a model's file as ``loadrun pack`` does.

    Args:
        model: the model, or a folder that `loadrun.unpack_file` made, which gives whatever the options leave open.
        options: what is packed and how.
        warn: called with what deserves a look, default `warnings.warn`.
        watch: passes on the testcases of the data as they are loaded, and may tell how many of them there are; it gets
            their number as well.

    Attributes:
        options: what is packed and how, with what a folder says.
        suggestions: tolerances that were measured, by output.

    Raises:
        LoadRunError: the model or the data cannot be read, or they do not fit.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        options: PackOptions | None = None,
        *,
        warn: Warn | None = None,
        watch: Callable[[Cases, int], Cases] | None = None,
    ) -> None:
        self.options = options or PackOptions()
        self.suggestions: dict[str, Suggestion] = {}
        self._reasons: dict[str, str] = {}
        self._warn = warn or partial(warnings.warn, stacklevel=3)
        self._unpacked = read_unpacked(model) if os.path.isdir(model) else None
        if self._unpacked is not None:
            model = self._unpacked.model
            self.options = _as_it_was(self.options, self._unpacked)
        options = self.options
        self._model = os.fspath(model)
        self._bundle = load_dump(model, options.dump, test_data=options.test_data, **options.read)
        alone = options.input_data is None and (options.replace or not len(self._bundle.testcases))
        if alone and bare(self._bundle).inputs:
            left = "; --replace leaves out the testcases of the file" if len(self._bundle.testcases) else ""
            raise UsageError(
                f'no data to pack{left}; pass some with -d, such as -d "data:cat.jpg" or -d "#rand(0,255)"'
            )
        options.check_data()
        InferenceOptions.of(**options.passes or {})
        self.options = options = options.without_pipes()
        self._cases: Cases = iter([{}] if alone else ())
        self._first: list[Mapping[str, Array]] = []
        if options.input_data is not None:
            total = count_cases(options.input_data)
            cases = options.cases(self._bundle, self._warn)
            self._cases = cases if watch is None else watch(cases, total)
            if options.replace or not len(self._bundle.testcases):
                # A file is written at the sizes of its data, where these are of one size.
                first = [*islice(self._cases, _PEEKED if self._bundle.source.open_inputs else 1)]
                self._cases, self._first = chain(first, self._cases), [*first]
                self._bundle = self._bundle.for_data(first[0])
        if options.suggest_maxerr:
            self._suggest()
        elif (
            options.maxerr is None and not options.no_assert and (options.replace or not self._bundle.checks)
        ):
            self._cases, self.options, self._reasons = widened(self._bundle, self._cases, options, self._warn)

    def _suggest(self) -> None:
        """Measure on the first testcase of the data, or of the file where no data are added."""
        options = self.options
        if (first := next(self._cases, None)) is None:
            first = self._bundle.testcases[0].inputs
        else:
            self._cases = chain([first], self._cases)
        self.suggestions = suggest(self._bundle, first, options.engine, seed=options.seed)
        new = not options.no_assert and (options.replace or not self._bundle.checks)
        if options.maxerr is None and new:
            self.options = replace(options, maxerr={n: s.maxerr for n, s in self.suggestions.items()})
            self._reasons = {n: s.reason for n, s in self.suggestions.items()}

    def pack(
        self, target: str | os.PathLike[str], seen: Callable[[int, Testcase], None] | None = None
    ) -> Packed:
        """Write the file.

        Args:
            target: its name; it appears when it is complete.
            seen: called with the number and content of every testcase that is written.

        Raises:
            LoadRunError: a testcase failed, or what was written does not run. The target is as it was.
        """
        options = self.options
        ending = os.path.splitext(target)[1].lower()
        if ending == ".onnx":
            return self._with_data_sets(os.fspath(target), seen)
        if ending != ".mge" and (os.path.isfile(target) or not os.path.exists(target)):
            raise UsageError(
                f"expected the name of the file to write to end in .mge or .onnx, found {clean(os.fspath(target), 200)}"
            )
        packer = Packer(
            self._bundle,
            options,
            reasons=self._reasons,
            finish=self._finish if options.passes is not None else None,
            data=self._first,
            warn=self._warn,
        )
        if options.expect and options.no_assert:
            raise UsageError("--expect sets expected outputs, but --no-assert packs none")
        trial = TrialReplay(options.engine, options.seed)
        written = packer.pack(
            self._cases,
            target,
            expected=self._expected(),
            whence=_whence(options.expect, self._unpacked),
            seen=seen,
            where=TextSource(options.input_data) if options.input_data else None,
            inspect=trial.look if options.replay else None,
        )
        # Where values were given, that the model does not compute them was said already.
        if not options.expect and (text := trial.warning()) is not None:
            self._warn(text)
        holds = not trial.failed or bool(options.expect)
        return Packed(written, packer.kept, holds, self.suggestions)

    def _with_data_sets(self, target: str, seen: Callable[[int, Testcase], None] | None) -> Packed:
        """Write an ONNX model with its testcases beside it: the file's own nodes, where it was one."""
        refused = [n for n in ("passes", "no_assert") if getattr(self.options, n)]
        if refused:
            raise UsageError(f"--{refused[0].replace('_', '-')} applies to .mge files only")
        with tempfile.TemporaryDirectory(prefix="loadrun-") as folder:
            between = os.path.join(folder, "packed.mge")
            packed = self.pack(between, seen)
            own = self._model.lower().endswith(".onnx")
            bundle = load(self._model, test_data=between, **self.options.read) if own else load(between)
            resolve("loadrun.onnx:export")(bundle, f=target)
        return packed

    def _expected(self) -> Iterable[Mapping[str, Array]]:
        options = self.options
        if not options.expect:
            return ()
        return expected_cases(options.expect, self._bundle, options.seed, self._warn)

    def _finish(self, graph: Graph) -> Graph:
        return optimize_for_inference(graph, **self.options.passes or {})[0]


def pack_file(
    model: str | os.PathLike[str], target: str | os.PathLike[str], options: PackOptions | None = None
) -> Packed:
    """Run a model on data and write a file that carries the model, the data and the outputs that it must give.

    Args:
        model: the model, or a folder that `loadrun.unpack_file` made. Testcases that it has are kept.
        target: the file to write.
        options: what is packed and how.

    Raises:
        LoadRunError: the model or the data cannot be read, or they do not fit; the target is as it was.
        TimeLimitError: it took longer than `PackOptions.timeout`.

    >>> import loadrun, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "packed.mge")
    ...     options = PackOptions(input_data=("#rand(0,1)", "{2,20}"), replace=True, maxerr=1e-5)
    ...     packed = pack_file("fixtures/nets/mlp.mge", file, options)
    ...     verdicts = [r.verdict.value for r in loadrun.run(file)]
    >>> packed.written.testcases, packed.holds, verdicts
    (2, True, ['pass', 'pass'])
    """
    options = options or PackOptions()
    with options.limited():
        return FilePacker(model, options).pack(target)


def _as_it_was(options: PackOptions, unpacked: Unpacked) -> PackOptions:
    """Take from a folder that `unpack` made whatever the options leave open."""
    changes: dict[str, object] = {}
    if options.input_data is None and unpacked.inputs is not None:
        expect = options.expect or ((unpacked.index,) if unpacked.index else ())
        changes = {"input_data": (unpacked.inputs,), "expect": expect}
        changes["no_assert"] = options.no_assert or (unpacked.index is None and not expect)
    no_assert = changes.get("no_assert", options.no_assert)
    if options.maxerr is None and unpacked.maxerr and not no_assert:
        changes["maxerr"] = unpacked.maxerr
    if not options.policies and not no_assert:
        changes["policies"] = parse_all(unpacked.policies)
    if options.silent is None and unpacked.silent:
        changes["silent"] = True
    return replace(options, **changes)  # type: ignore[arg-type]


def _whence(expect: tuple[str, ...], unpacked: Unpacked | None) -> dict[str, object]:
    """Describe where given values come from, for the record."""
    if not expect:
        return {}
    origin: dict[str, object] = {"given_from": [os.path.basename(text) or text for text in expect]}
    if unpacked is not None and expect == (unpacked.index,):
        origin["unpacked"] = dict(unpacked.provenance)
    return origin
