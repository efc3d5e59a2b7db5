"""Results as JSON: plain data, no NaN or Infinity literals."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..bench import Timing
from ..runner import FileResult, OutputResult, Result

__all__ = ["VERSION", "dumps", "file_data", "plain"]

VERSION = 1
"""Version of the layout; it grows when a field changes its meaning or goes away."""


def plain(value: Any) -> Any:
    """Data that JSON can hold: non-finite floats become the strings "nan", "inf" and "-inf".

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, 'nan']}
    """
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [plain(v) for v in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(data: Any) -> str:
    """JSON text, ASCII only, indented."""
    return json.dumps(plain(data), indent=1, allow_nan=False)


def file_data(result: FileResult, timing: Timing | None = None) -> dict[str, Any]:
    """One file with everything that was measured; values of outputs are left out."""
    data: dict[str, Any] = {
        "file": result.path,
        "verdict": result.verdict.value,
        "message": result.message,
        "warnings": result.warnings,
        "load_seconds": result.load_seconds,
        "testcases": [_result(r) for r in result.results],
    }
    if timing is not None:
        data["timing"] = {
            "warmup": timing.warmup,
            "samples": timing.samples,
            "median": timing.median,
            "min": timing.best,
            "mean": timing.mean,
            "mad": timing.deviation,
        }
    return data


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
        "comparison": o.comparison,
    }
