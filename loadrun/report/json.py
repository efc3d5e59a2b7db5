"""Results as JSON: plain data, no NaN or Infinity literals. docs/report.schema.json describes it."""

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TextIO

from ..base.about import about_data
from ..base.plain import plain
from ..compare import Comparison
from ..compare.results import EngineResults
from ..runner import FileResult, OutputResult, Result
from ..verify.bench import Timing

VERSION = 2
"""Version of the layout; it increases when a field changes its meaning or is removed."""


def dumps(data: object) -> str:
    """JSON text, ASCII only, indented."""
    return json.dumps(plain(data), indent=1, allow_nan=False)


def _line(data: object) -> str:
    return json.dumps(plain(data), allow_nan=False)


class JsonWriter:
    """Writes a report result by result, without keeping them.

    Args:
        file: where the text goes.
        loadrun: version of the program.
        about: further fields of the report, such as its environment and the options of the run.

    >>> import io, loadrun
    >>> text, found = io.StringIO(), FileResult("fixtures/nets/mlp.mge")
    >>> report = JsonWriter(text, "1.0")
    >>> report.begin(found)
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    ...     report.add(result)
    >>> report.end(found)
    >>> report.close(0)
    >>> [len(f["testcases"]) for f in json.loads(text.getvalue())["files"]]
    [3]
    """

    def __init__(self, file: TextIO, loadrun: str, about: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self._comma = ""
        file.write(f'{{\n "version": {VERSION},\n "loadrun": {json.dumps(loadrun)},\n')
        for name, value in (about or {}).items():
            file.write(f" {json.dumps(name)}: {_line(value)},\n")
        file.write(' "files": [')
        self._next = "\n"

    def begin(self, file: FileResult, facts: Mapping[str, Any] | None = None) -> None:
        """Begin a file; its results follow."""
        self.file.write(f'{self._next}  {{\n   "file": {json.dumps(file.path)},\n')
        for name, value in (facts or {}).items():
            self.file.write(f"   {json.dumps(name)}: {_line(value)},\n")
        self.file.write('   "testcases": [')
        self._next, self._comma = ",\n", "\n"

    def add(self, result: Result, extra: Mapping[str, Any] | None = None) -> None:
        """Add a result of the file, without values of outputs."""
        self.file.write(self._comma + "    " + _line({**result_data(result), **(extra or {})}))
        self._comma = ",\n"

    def end(self, file: FileResult, timings: Sequence[Timing] = (), explanation: Sequence[str] = ()) -> None:
        """End a file with what its results come to."""
        rest = file_end(file, timings, explanation)
        fields = ",\n".join(f"   {json.dumps(k)}: {_line(v)}" for k, v in rest.items())
        self.file.write(f"\n   ],\n{fields}\n  }}")
        # A text file buffers small writes.
        self.file.flush()

    def close(self, exit_code: int) -> None:
        """End the report; the file stays open."""
        self.file.write(f'\n ],\n "exit_code": {exit_code}\n}}\n')


class LineWriter:
    """Writes a report as JSON lines, each complete as soon as it is there, so that an interrupted run leaves them.

    Every line is an object with a ``type``: one ``start``; for every file ``file``, a ``result`` for each testcase and
    ``file_end``; at last ``end`` with the exit code, or ``interrupted``. Without either the run was killed.

    Args:
        file: where the text goes.
        loadrun: version of the program.
        about: further fields of the first line.
    """

    def __init__(self, file: TextIO, loadrun: str, about: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self._write("start", {"version": VERSION, "loadrun": loadrun, **(about or {})})

    def _write(self, kind: str, data: Mapping[str, Any]) -> None:
        self.file.write(_line({"type": kind, **data}) + "\n")
        self.file.flush()

    def begin(self, file: FileResult, facts: Mapping[str, Any] | None = None) -> None:
        """Begin a file; its results follow."""
        self._write("file", {"file": file.path, **(facts or {})})

    def add(self, result: Result, extra: Mapping[str, Any] | None = None) -> None:
        """Add a result of the file."""
        self._write("result", {**result_data(result), **(extra or {})})

    def end(self, file: FileResult, timings: Sequence[Timing] = (), explanation: Sequence[str] = ()) -> None:
        """End a file with what its results come to."""
        self._write("file_end", {"file": file.path, **file_end(file, timings, explanation)})

    def close(self, exit_code: int) -> None:
        """End the report; the file stays open."""
        self._write("end", {"exit_code": exit_code})

    def interrupted(self, why: str) -> None:
        """Note that the run was interrupted."""
        self._write("interrupted", {"message": why})


def file_end(file: FileResult, timings: Sequence[Timing], explanation: Sequence[str]) -> dict[str, Any]:
    """Sum up the results of a file."""
    rest: dict[str, Any] = {
        "verdict": file.verdict.value,
        "message": None if file.failure is None else file.failure.message,
        "warnings": file.warnings,
        "load_seconds": file.load_seconds,
        "engine": None if file.engine is None else about_data(file.engine),
    }
    if file.entrants:
        # Each engine is described separately.
        rest["engine"] = None
        rest["engines"] = [_entrant(e) for e in file.entrants.values()]
    if file.excused:
        rest["expected_failure"] = file.rule.xfail
    if explanation:
        rest["explanation"] = list(explanation)
    if timings:
        rest["timings"] = [_timing(t) for t in timings]
    return rest


def _timing(t: Timing) -> dict[str, Any]:
    """Describe timed runs, in seconds."""
    return {
        "testcase": t.testcase,
        "warmup": t.warmup,
        "samples": t.samples,
        "processor": t.processor,
        "share": t.share,
        "median": t.median,
        "min": t.best,
        "mean": t.mean,
        "mad": t.deviation,
    }


def _entrant(e: EngineResults) -> dict[str, Any]:
    """Describe one of several engines of a file."""
    return {
        "name": e.choice,
        **({} if e.about is None else about_data(e.about)),
        "verdict": e.verdict.value,
        "seconds": e.seconds,
        "median_seconds": median(e.seconds) if e.seconds else None,
        "max_error": e.error,
    }


def result_data(r: Result) -> dict[str, Any]:
    """Describe a result."""
    beside: dict[str, Any] = {}
    if r.choice is not None:
        beside = {"engine": r.choice, "apart": {n: _apart(c) for n, c in r.apart.items()}}
    return {
        "testcase": r.index,
        "verdict": r.verdict.value,
        "message": r.message,
        "seconds": r.seconds,
        "outputs": [_output(o) for o in r.outputs],
        **beside,
    }


def _output(o: OutputResult) -> dict[str, Any]:
    return {
        "name": o.name,
        "shape": o.shape,
        "dtype": o.dtype.spelling,
        "scale": o.dtype.scale if o.dtype.is_quantized else None,
        "zero_point": o.dtype.zero_point if o.dtype.is_asymmetric else None,
        "verdict": o.verdict.value,
        "max_error": o.error,
        "maxerr": o.tolerance.maxerr,
        "reason": o.reason,
        "notes": o.notes,
        "loosened": o.tolerance.loosened,
        "policy": o.tolerance.policy.text or None,
        "comparison": None if o.comparison is None else _comparison(o.comparison),
    }


def _apart(c: Comparison) -> dict[str, Any]:
    m = c.measures
    return {"max_error": c.max_error, "max_abs": m.max_abs, "cosine": m.cosine, "mismatches": c.mismatches}


def _comparison(c: Comparison) -> dict[str, Any]:
    sides = {"expected": c.expected, "got": c.got}
    return {
        **{f"{who}_{what}": getattr(x, what) for what in ("shape", "dtype") for who, x in sides.items()},
        "size": c.size,
        "finite": c.finite,
        "mismatches": c.mismatches,
        "max_error": c.max_error,
        "worst_index": c.worst_index,
        **{who: x.worst for who, x in sides.items()},
        **c.measures._asdict(),
        **{f"{who}_{what}": getattr(x, what) for what in ("nan", "inf") for who, x in sides.items()},
        "nonfinite_agree": c.nonfinite_agree,
        **c.places._asdict(),
    }
