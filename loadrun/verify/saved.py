"""Results saved with their values, so that they can be judged again by other tolerances without running anything."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from ..base import schema
from ..base.about import About, about_data
from ..base.archives import DAMAGE
from ..base.errors import FormatError, InputError, UsageError, Warnings, clean
from ..compare.judging import ABSURD, NARROW, Criteria, judge, policy_for
from ..compare.metrics import Formula
from ..compare.policy import JudgeOptions, Policy, parse, require_compared
from ..compare.results import CountedResults, FileResult, OutputResult, Result, Verdict
from ..graph.dtypes import Array, DType, is_dtype_name
from ..inputs.files import members
from .pack.capture import limits_of

_FORMAT = "loadrun results 1"


class ResultWriter:
    """Writes results as they come: a zip archive of .npy values and one JSON text about each result.

    Args:
        file: where to.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file, "w")
        try:
            self._zip.writestr("format", _FORMAT)
        except BaseException:
            self.abandon()
            raise
        self._file = -1
        self._count = 0

    def begin(self, path: str, missed: Sequence[str] = ()) -> None:
        """Begin the results of another file, with what it holds to be compared that they do not tell of."""
        self._file += 1
        self._count = 0
        if missed:
            self._zip.writestr(f"{self._file}/missed.json", json.dumps(list(missed)))
        self._zip.writestr(f"{self._file}/file.json", json.dumps(path))

    def add(self, result: Result) -> None:
        """Add a result, with the values of its outputs."""
        place = f"{self._file}/{self._count}"
        self._count += 1
        outputs = []
        for i, out in enumerate(result.outputs):
            for what, value in (("expected", out.expect), ("got", out.value)):
                if value is not None:
                    with self._zip.open(f"{place}.{i}.{what}.npy", "w", force_zip64=True) as f:
                        np.lib.format.write_array(f, np.asarray(value), allow_pickle=False)
            outputs.append(_described(out))
        about = {
            "testcase": result.index,
            "verdict": result.verdict.value,
            "seconds": result.seconds,
            "message": result.message,
            "outputs": outputs,
            **({} if result.engine is None else {"engine": about_data(result.engine)}),
        }
        self._zip.writestr(f"{place}.json", json.dumps(about))

    def close(self) -> None:
        """Complete the archive; the file stays open."""
        self._zip.close()

    def abandon(self) -> None:
        """Let go of an archive that is not to be completed, so that nothing tries it later."""
        with suppress(Exception):
            self._zip.close()


def _described(out: OutputResult) -> dict[str, Any]:
    return {
        "name": out.name,
        "dtype": out.dtype.name,
        "scale": out.dtype.scale,
        "zero_point": out.dtype.zero_point,
        "compared": out.expect is not None,
        "maxerr": out.tolerance.file,
        "error": None if out.error is None else repr(out.error),
        "by_file": out.tolerance.by_file,
        "reason": out.reason,
        "loosened": out.tolerance.loosened,
        "policy": out.tolerance.policy.text,
        "in_place": out.tolerance.policy.loosens,
        "fault": out.fault,
    }


@dataclass(frozen=True, eq=False)
class SavedFile:
    """The results of one file in an archive.

    Attributes:
        path: the file that was run.
        entries: what is known of each result.
        missed: what the file held to be compared that was not run.
        number: of the file in the archive.
        values: what reads the values of all files, by their names.
    """

    path: str
    entries: Sequence[Mapping[str, Any]]
    missed: Sequence[str]
    number: int
    values: Mapping[str, Callable[[], Any]]

    def outputs(self, i: int) -> Iterator[tuple[dict[str, Any], Array | None, Array | None]]:
        """Yield what is known of every output of a result, its expected and its computed value."""
        for j, about in enumerate(self.entries[i]["outputs"]):
            places = [f"{self.number}/{i}.{j}.{what}" for what in ("expected", "got")]
            expect, got = (self._value(place, about) for place in places)
            yield about, expect, got

    def _value(self, place: str, about: Mapping[str, Any]) -> Array | None:
        """Return a value, of the type that the output has; None if it was not kept."""
        read = self.values.get(place)
        if read is None:
            return None
        value: Array = read()
        dtype = DType(about["dtype"]).np
        # A runtime of others may be asked for another type than the one that it gives.
        if value.dtype.kind not in {"O": "U", "c": "biufc"}.get(dtype.kind, "biuf"):
            raise FormatError(f"{place}.npy is {value.dtype}, expected the stored form of {about['dtype']}")
        return value


def read_saved(path: str | os.PathLike[str]) -> list[SavedFile]:
    """Open an archive of results; values are read on demand.

    Raises:
        FormatError: it is none.
        InputError: it cannot be read.
    """
    name = os.fspath(path)
    values = members(name)
    files: list[SavedFile] = []
    try:
        with zipfile.ZipFile(name) as archive:
            sizes = {i.filename: i.file_size for i in archive.infolist()}
            if sizes.get("format", 0) > 100 or archive.read("format").decode() != _FORMAT:
                raise KeyError("format")
            limit = max(1 << 20, os.path.getsize(name))

            def text(entry: str) -> object:
                if sizes[entry] > limit:
                    raise FormatError(f"{name}: {entry} would take {sizes[entry]} bytes")
                return json.loads(archive.read(entry))

            while f"{len(files)}/file.json" in sizes:
                number = len(files)
                entries: list[dict[str, Any]] = []
                while f"{number}/{len(entries)}.json" in sizes:
                    entry = f"{number}/{len(entries)}.json"
                    entries.append(_ENTRY(text(entry), f"{name}: {entry}"))
                entry = f"{number}/missed.json"
                said = schema.items(schema.text)(text(entry), f"{name}: {entry}") if entry in sizes else ()
                entry = f"{number}/file.json"
                path_run = schema.text(text(entry), f"{name}: {entry}")
                files.append(SavedFile(path_run, entries, said, number, values))
    except DAMAGE as e:
        if isinstance(e, (FormatError, InputError)):
            raise
        raise FormatError(f"{name} is not a file of `loadrun --output FILE.zip`") from None
    return files


def _dtype(value: object, where: str) -> str:
    name = schema.text(value, where)
    if not is_dtype_name(name):
        raise FormatError(f"{where}: expected a data type, found {clean(name)!r}")
    return name


def _verdict(value: object, where: str) -> Verdict:
    name = schema.text(value, where)
    if name not in {v.value for v in Verdict}:
        raise FormatError(f"{where}: expected a verdict, found {clean(name)!r}")
    return Verdict(name)


def _error(value: object, where: str) -> float:
    """Return an error, which is written as Python does, so that NaN and infinity can be."""
    try:
        return float(schema.text(value, where))
    except ValueError:
        raise FormatError(f"{where}: expected a number as text, found {clean(str(value))!r}") from None


def _policy(value: object, where: str) -> Policy:
    try:
        return parse(text) if (text := schema.text(value, where)) else Policy()
    except UsageError as e:
        raise FormatError(f"{where}: expected terms of a policy, found {clean(str(value))!r}: {e}") from None


def _about(data: object, where: str) -> About:
    """Return an engine that `about_data` described."""
    fields = _ABOUT(data, where)
    words: dict[str, Any] = {
        n: fields[n] or "" for n in ("engine", "version", "provider", "arithmetic", "way")
    }
    return About(**words, operators=fields["operators"], options=tuple(fields["options"]))


_ABOUT = schema.record(
    {
        **dict.fromkeys(("engine", "version"), schema.text),
        **dict.fromkeys(("provider", "arithmetic", "way"), schema.either(schema.text)),
        "options": schema.items(schema.text),
        "operators": schema.integer(0, 2**32),
    }
)
_OUTPUT = schema.record(
    {
        "name": schema.text,
        "dtype": _dtype,
        "scale": schema.number(),
        "zero_point": schema.integer(-(2**31), 2**31 - 1),
        "compared": schema.truth,
        "maxerr": schema.either(schema.number(finite=False)),
        "error": schema.either(_error),
        "by_file": schema.truth,
        "reason": schema.either(schema.text),
        "loosened": schema.either(schema.number(finite=False)),
    },
    {"fault": schema.either(schema.text), "policy": _policy, "in_place": schema.truth},
)
_ENTRY = schema.record(
    {
        "testcase": schema.either(schema.integer(0, 2**32)),
        "verdict": _verdict,
        "seconds": schema.number(0.0),
        "message": schema.either(schema.text),
        "outputs": schema.items(_OUTPUT),
    },
    {"engine": _about},
)


def judge_saved(
    saved: SavedFile, maxerr: Mapping[str, float] | None = None, policies: Mapping[str, Policy] | None = None
) -> Iterator[Result]:
    """Judge results again.

    Args:
        saved: the results.
        maxerr: tolerance by output name, that of all others under the empty name; default is each file's own. A
            greater one than that is reported as loosened, and the terms that held in the run are left out.
        policies: what must hold besides, by output name, instead of the terms that held in the run.

    Raises:
        UsageError: a name is that of no output.
    """
    outputs = [out for about in saved.entries for out in about["outputs"]]
    names = {out["name"] for out in outputs}
    for name in {*(maxerr or {}), *(policies or {})} - {""} - names:
        raise UsageError(
            f"{saved.path} has no output {name!r}; its outputs are {', '.join(sorted(names)) or 'none'}"
        )
    require_compared(policies or {}, names, sorted({out["name"] for out in outputs if out["compared"]}))
    for i, about in enumerate(saved.entries):
        judged = tuple(
            _settled(out, _judged(out, expect, got, maxerr or {}, policies or {}))
            for out, expect, got in saved.outputs(i)
        )
        verdict = Verdict.of_outputs(judged)
        if about["verdict"] is Verdict.ERROR:
            verdict = Verdict.ERROR
        said = about["testcase"], judged, verdict, about["seconds"], about["message"]
        yield Result(*said, engine=about.get("engine"))


def judge_results(
    path: str | os.PathLike[str], options: JudgeOptions | None = None
) -> Iterator[CountedResults]:
    """Judge results that ``--output FILE.zip`` wrote by other tolerances, without running anything.

    Args:
        path: the file.
        options: tolerances and policies.

    Yields:
        each file that was run, with its results as they are read.

    Raises:
        FormatError: the file is damaged.
        UsageError: a name is that of no output, or a tolerance is negative or not finite.

    >>> import os, tempfile, loadrun
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = os.path.join(folder, "r.zip")
    ...     _ = loadrun.replay_files(["fixtures/nets/mlp.mge"], loadrun.RunOptions(output=saved))
    ...     for found in judge_results(saved, JudgeOptions(maxerr=0.0)):
    ...         print(found.file.path, [r.verdict.value for r in found])
    fixtures/nets/mlp.mge ['fail', 'fail', 'fail']
    """
    options = options or JudgeOptions()
    limits = limits_of(options.maxerr, ())
    for saved in read_saved(path):
        file = FileResult(saved.path, warnings=Warnings(saved.missed), missed=saved.missed)
        yield CountedResults(file, judge_saved(saved, limits, options.policies))


def _settled(out: Mapping[str, Any], judged: OutputResult) -> OutputResult:
    fault = out.get("fault")
    return judged if fault is None else judged.failing(fault)


def _judged(
    out: Mapping[str, Any],
    expect: Array | None,
    got: Array | None,
    maxerr: Mapping[str, float],
    policies: Mapping[str, Policy],
) -> OutputResult:
    name = out["name"]
    dtype = DType(out["dtype"], out["scale"], out["zero_point"])
    if expect is None or got is None or out["maxerr"] is None:
        shape = () if got is None else got.shape
        return OutputResult(name, shape, dtype, Verdict.NOT_COMPARED, value=got, reason=out["reason"])
    asked = maxerr.get(name, maxerr.get(""))
    own_policy = out.get("policy", Policy())
    if own_policy.maxerr is not None:
        own_policy = replace(own_policy, maxerr=min(own_policy.maxerr, out["maxerr"]))
    if asked is not None and asked > out["maxerr"]:
        # What is to be more tolerant is not held to the terms of before.
        own_policy = Policy()
    policy = policy_for({"": own_policy, **policies}, name)
    if out.get("in_place"):
        policy = replace(policy, loosens=bool(policy.text))
    if asked is not None:
        policy = replace(policy, maxerr=asked)
    check_error = np.array([out["error"]]) if out["by_file"] and out["error"] is not None else None
    criteria = Criteria(
        name,
        dtype,
        out["maxerr"],
        Formula.REAL if check_error is None else Formula.OTHER,
        # A tolerance that let everything pass is no fault of what it is replaced by.
        None if out["reason"] and out["reason"].startswith(ABSURD) else out["reason"],
        policy,
        loosen=True,
        loosened=out["loosened"],
        rounding=NARROW.get(dtype.name, 0.0),
    )
    return judge(criteria, expect, got, check_error)
