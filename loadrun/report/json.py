"""Results as JSON: plain data, no NaN or Infinity literals."""

from __future__ import annotations

import json
from typing import Any, TextIO

from ..bench import Timing
from ..plain import plain
from ..runner import FileResult, OutputResult, Result

__all__ = ["VERSION", "Writer", "dumps"]

VERSION = 1
"""Version of the layout; it grows when a field changes its meaning or goes away."""


def dumps(data: Any) -> str:
    """JSON text, ASCII only, indented."""
    return json.dumps(plain(data), indent=1, allow_nan=False)


class Writer:
    """Writes a report result by result: nothing that was written is kept.

    Args:
        file: where the text goes.
        loadrun: version of the program.

    >>> import io, loadrun
    >>> text, found = io.StringIO(), FileResult("fixtures/nets/mlp.mge")
    >>> report = Writer(text, "1.0")
    >>> report.begin(found)
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    ...     report.add(result)
    >>> report.end(found)
    >>> report.close(0)
    >>> [len(f["testcases"]) for f in json.loads(text.getvalue())["files"]]
    [3]
    """

    def __init__(self, file: TextIO, loadrun: str) -> None:
        self.file = file
        self._comma = ""
        file.write(f'{{\n "version": {VERSION},\n "loadrun": {json.dumps(loadrun)},\n "files": [')
        self._next = "\n"

    def begin(self, file: FileResult) -> None:
        """Begin a file; its results follow."""
        self.file.write(f'{self._next}  {{\n   "file": {json.dumps(file.path)},\n   "testcases": [')
        self._next, self._comma = ",\n", "\n"

    def add(self, result: Result) -> None:
        """One result of the file; values of outputs are left out."""
        self.file.write(self._comma + "    " + json.dumps(plain(_result(result)), allow_nan=False))
        self._comma = ",\n"

    def end(self, file: FileResult, timing: Timing | None = None) -> None:
        """End a file with what its results come to."""
        rest: dict[str, Any] = {
            "verdict": file.verdict.value,
            "message": file.message,
            "warnings": file.warnings,
            "load_seconds": file.load_seconds,
        }
        if timing is not None:
            rest["timing"] = {
                "warmup": timing.warmup,
                "samples": timing.samples,
                "median": timing.median,
                "min": timing.best,
                "mean": timing.mean,
                "mad": timing.deviation,
            }
        fields = ",\n".join(
            f"   {json.dumps(k)}: {json.dumps(plain(v), allow_nan=False)}" for k, v in rest.items()
        )
        self.file.write(f"\n   ],\n{fields}\n  }}")
        # A text file keeps pieces of what it was given until they are many.
        self.file.flush()

    def close(self, exit_code: int) -> None:
        """End the report; the file stays open."""
        self.file.write(f'\n ],\n "exit_code": {exit_code}\n}}\n')


def _result(r: Result) -> dict[str, Any]:
    return {
        "testcase": r.index,
        "verdict": r.verdict.value,
        "message": r.message,
        "seconds": r.seconds,
        "outputs": [_output(o) for o in r.outputs],
    }


def _output(o: OutputResult) -> dict[str, Any]:
    return {
        "name": o.name,
        "shape": o.shape,
        "dtype": o.dtype.name,
        "scale": o.dtype.scale if o.dtype.is_quantized else None,
        "zero_point": o.dtype.zero_point if o.dtype.is_asymmetric else None,
        "verdict": o.verdict.value,
        "max_error": o.error,
        "maxerr": o.maxerr,
        "reason": o.reason,
        "notes": o.notes,
        "loosened": o.loosened,
        "comparison": o.comparison,
    }
