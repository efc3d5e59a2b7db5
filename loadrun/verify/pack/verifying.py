"""Packed files compared with the digests that they carry, then replayed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ...base.errors import failure
from ...base.files import files_of
from ...base.pipes import mapped
from ...base.stages import counted
from ...compare.record import header
from ...compare.results import (
    EXIT_FAIL,
    EXIT_NOT_COMPARED,
    EXIT_PASS,
    CountedResults,
    FileResult,
    Result,
    Verdict,
    exit_code,
)
from ...dump import load_all
from ...engines import Choice
from ...inputs.feeds import ModelOptions
from ...runner import Runner
from ...testcase import Bundle
from .unpacking import mismatches
from .witness import testimony

__all__ = ["VerifiedDump", "VerifiedSummary", "VerifyOptions", "verified", "verify_files", "verify_summaries"]


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(ModelOptions):
    """Describe how files are verified; the options of `ModelOptions` are among these.

    Attributes:
        seed: seed of random operators.
        engine: what executes the models.
        copy: whether files are read into memory at once.
        no_check: whether a file with nothing to compare is as good as one that passes.
        jobs: how many processes share the files; `verify_summaries` starts them.
    """

    seed: int = 0
    engine: str | Choice = "reference"
    copy: bool = False
    no_check: bool = False
    jobs: int = 1


class VerifiedDump(CountedResults):
    """One dump of a file beside its digests; its results are replayed as they are read.

    Attributes:
        file: what the results come to, so far.
        opened: whether the file could be read.
        total: how many results there will be.
        agrees: whether all that was packed is as it was; None if no digests were recorded, or nothing could be read.
        said: sentences: what differs, or who packed it and what witnesses said.
        differences: how many of the sentences are differences between the model, a testcase and its digest.
    """

    def __init__(self, file: FileResult, bundle: Bundle | None, options: VerifyOptions) -> None:
        results = _results(bundle, options) if bundle is not None and len(bundle.testcases) else ()
        super().__init__(file, results)
        self.opened = bundle is not None
        self.total = 0 if bundle is None else len(bundle.testcases)
        self.agrees: bool | None = None
        self.said: list[str] = []
        self.differences = 0
        if bundle is not None:
            self._compare(bundle)

    def _compare(self, bundle: Bundle) -> None:
        """Compare the dump with its digests."""
        if bundle.trailing and (bundle.is_container or bundle.record is not None):
            self.agrees = False
            self.said.append(
                f"{bundle.trailing} bytes after the end belong to no part of the file; a record there may be damaged"
            )
        elif not isinstance(bundle.record, memoryview):
            self.said.append("no digests were recorded, so there is nothing to verify")
        else:
            self.agrees = False
            try:
                for mismatch in mismatches(bundle):
                    place = "" if mismatch.testcase is None else f"testcase {mismatch.testcase}: "
                    self.said.append(f"{place}{mismatch.what}")
                    self.differences += 1
                if not self.differences:
                    whence = header(bundle.record).get("provenance")
                    known = whence if isinstance(whence, dict) else {}
                    by = ", ".join(
                        f"{k} {known[k]}" for k in ("time", "loadrun", "engine", "seed") if k in known
                    )
                    self.said += [
                        f"all digests agree ({by})" if by else "all digests agree",
                        *testimony(bundle),
                    ]
                    self.agrees = True
            except Exception as e:
                self.said.append(failure(e).message)


def verify_files(
    files: Iterable[str | os.PathLike[str]], options: VerifyOptions | None = None
) -> Iterator[VerifiedDump]:
    """Compare models and testcases with the digests that packing recorded, then replay them.

    Args:
        files: names, patterns and folders.
        options: what executes them.

    Yields:
        each dump, with its results as they are read.

    Raises:
        InputError: a file does not exist.

    >>> for dump in verify_files(["fixtures/nets/mlp.mge"]):
    ...     print([r.verdict.value for r in dump], dump.agrees, dump.said)
    ['pass', 'pass', 'pass'] None ['no digests were recorded, so there is nothing to verify']
    """
    options = options or VerifyOptions()
    for path in files_of([os.fspath(f) for f in files]):
        try:
            bundles = load_all(path, copy=options.copy, **options.read)
        except Exception as e:
            why = failure(e)
            yield VerifiedDump(FileResult(path, message=why.message, fault=why.fault), None, options)
            continue
        for i, bundle in enumerate(bundles):
            name = path if i == 0 else f"{path} (dump {i + 1})"
            file = FileResult(
                name, warnings=list(bundle.warnings), missed=bundle.missed, free=options.no_check
            )
            yield VerifiedDump(file, bundle, options)


@dataclass(frozen=True)
class VerifiedSummary:
    """The verdict on one dump, without the values of its outputs; see `VerifiedDump`."""

    file: FileResult
    results: tuple[Result, ...]
    opened: bool
    agrees: bool | None
    said: tuple[str, ...]
    differences: int


def verify_summaries(files: Sequence[str], options: VerifyOptions | None = None) -> Iterator[VerifiedSummary]:
    """Verify files in as many processes as the options ask for, and give the verdicts in their order.

    >>> [s.file.verdict.value for s in verify_summaries(["fixtures/nets/mlp.mge"])]
    ['pass']
    """
    options = options or VerifyOptions()
    for summaries in mapped(partial(_summaries, options=options), files, options.jobs):
        yield from summaries


def _summaries(path: str, options: VerifyOptions) -> list[VerifiedSummary]:
    summaries = []
    for dump in verify_files([path], options):
        results = tuple(counted(dump, dump.total, f"{path}: testcase"))
        said = tuple(dump.said)
        summaries.append(
            VerifiedSummary(dump.file, results, dump.opened, dump.agrees, said, dump.differences)
        )
    return summaries


def verified(dumps: Iterable[VerifiedDump | VerifiedSummary], *, no_check: bool = False) -> int:
    """Return what `loadrun verify` exits with, for dumps whose results were read.

    >>> dumps = list(verify_files(["fixtures/nets/mlp.mge"]))
    >>> verified(dumps), [len(list(dump)) for dump in dumps], verified(dumps), verified(dumps, no_check=True)
    (3, [3], 3, 0)
    """
    results = list(dumps)
    verdicts = {d.file.verdict for d in results}
    code = exit_code(verdicts, no_check=no_check, fault=any(d.file.fault for d in results))
    states = {d.agrees for d in results}
    if False in states:
        return code if Verdict.ERROR in verdicts else EXIT_FAIL
    return EXIT_NOT_COMPARED if code == EXIT_PASS and None in states and not no_check else code


def _results(bundle: Bundle, options: VerifyOptions) -> Iterator[Result]:
    yield from Runner(bundle, options.engine, seed=options.seed).replay()
