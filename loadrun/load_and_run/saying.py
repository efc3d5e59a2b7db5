"""The output of load_and_run: its lines, its table of inputs and outputs, its message of a failed check."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from ..base.errors import clean
from ..compare import errors
from ..runner import OutputResult
from ..testcase import Check
from .dumps import number
from .plan import ExecutionPlan, shape_text

_DTYPES = {
    "Float32": "float32",
    "Int32": "int32",
    "Int16": "int16",
    "Uint16": "uint16",
    "Int8": "int8",
    "Uint8": "uint8",
}
"""The names of dtypes in the table; others stay empty there."""
_SITES = {
    "device": "config_model_internel<lar::ModelMdl>@device_options.cpp:69",
    "layout": "config_model_internel<lar::ModelMdl>@layout_options.cpp:54",
    "optimize": "config_model_internel<lar::ModelMdl>@optimize_options.cpp:329",
    "runtime": "config_model_internel<lar::ModelMdl>@optimize_options.cpp:411",
    "algorithm": "config_model_internel<lar::ModelMdl>@fastrun_options.cpp:96",
    "data": "config_model_internel<lar::ModelMdl>@io_options.cpp:138",
    "dump": "config_model_internel<lar::ModelMdl>@io_options.cpp:224",
    "watch": "config_model_internel<lar::ModelMdl>@plugin_options.cpp:290",
    "model": "config_model_internel@model_options.cpp:106",
}
"""Where the lines of a group come from, as load_and_run writes it before them."""


_LONGEST = 1 << 16
"""Characters of a line."""


class Log:
    """Prints load_and_run's lines: log lines with day and time on standard error, results on standard output."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self._lock = threading.Lock()

    def log(self, site: str, text: str) -> None:
        """Print a line that begins with the time and the place that it comes from."""
        place = _SITES.get(site, site)
        self.say(f"[{time.strftime('%d %H:%M:%S')} {place}] {text}")

    def say(self, text: str) -> None:
        """Print a line on standard error."""
        with self._lock:
            print(_safe(text), file=self.err, flush=True)

    def result(self, text: str) -> None:
        """Print a line on standard output."""
        with self._lock:
            print(_safe(text), file=self.out, flush=True)


def _safe(text: str) -> str:
    """Escape what names in a model could do to the terminal; line ends are the program's own."""
    return "\n".join(clean(line, _LONGEST) for line in text.split("\n"))


def model_table(plan: ExecutionPlan) -> str:
    """List inputs and outputs, as ``--model_info`` shows them.

    >>> import loadrun
    >>> print(model_table(ExecutionPlan(loadrun.load("fixtures/nets/mlp.mge").graph)).splitlines()[0])
    +Runtime Model Info-----------------------+--------+---------+
    """
    rows = [("type", "name", "shape", "dtype")]
    inputs = sorted(plan.graph.inputs, key=lambda v: v.name or "")
    for kind, variables in (("INPUT", inputs), ("OUTPUT", plan.graph.outputs)):
        for var in variables:
            shape = shape_text(plan.known.shapes.get(var.id, ()))
            dtype = _DTYPES.get(var.dtype.name if var.dtype else "", "")
            rows.append((kind, clean(plan.loaded.var(var)[1]), shape, dtype))
    widths = [max(len(r[i]) for r in rows) + 2 for i in range(len(rows[0]))]
    rule = "+" + "+".join("-" * w for w in widths) + "+"
    name = "+Runtime Model Info"
    lines = [name + rule[len(name) :] if len(rule) > len(name) else name]
    for row in rows:
        lines += ["|" + "|".join(_middle(t, w) for t, w in zip(row, widths, strict=True)) + "|", rule]
    return "\n".join(lines)


def _middle(text: str, width: int) -> str:
    left = (width - len(text)) // 2 + len(text)
    return text.rjust(left).ljust(width)


def unequal(check: Check, out: OutputResult, plan: ExecutionPlan) -> str:
    """Return the message of a failed check."""
    expect, get = out.expect, out.value
    head = f"Value of: {clean(plan.info(check.get), _LONGEST)}\n  Actual: "
    middle = f"\nExpected: {clean(plan.info(check.expect), _LONGEST)}\nWhich is: "
    if expect is None or get is None:
        return f"{check.name}: the check failed"
    if expect.shape != get.shape:
        return f"Shape mismatch\n{head}{shape_text(get.shape)}{middle}{shape_text(expect.shape)}"
    error = errors(expect, get)
    bad = ~(error <= check.maxerr)
    place = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)) if bad.any() else ()
    return (
        f"Unequal value\n{head}{_shown(get, place)}{middle}{_shown(expect, place)}\n"
        f"At index: {shape_text(place)}/{shape_text(get.shape)}\n   error: {_shown(error, place)}"
    )


def _shown(array: object, place: Sequence[int]) -> str:
    values = np.asarray(array)
    return number(float(values[tuple(place)]), 6) if place and values.size else "?"
