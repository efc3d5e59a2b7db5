"""A second opinion on ground truth: another runtime computes the same testcases, and the record keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import FormatError, LoadRunError
from ...base.schema import number
from ...compare import assert_equal_error, passes
from ...compare.policy import lines
from ...dump.record import tensor_digest
from ...graph.dtypes import Array
from ...testcase import Bundle, Testcase

__all__ = ["Witness", "testimony"]

_KEY = "witness"
RTOL, ATOL = 1e-3, 1e-7
"""The rule of ONNX's backend tests, for testcases that came with the model."""


@dataclass(frozen=True)
class Witness:
    """Another runtime that executes the model.

    Attributes:
        name: its name and version.
        run: outputs by name for inputs by name; raises a LoadRunError where it cannot.
    """

    name: str
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]]

    def look(
        self,
        place: str,
        case: Testcase,
        limit: Callable[[str, Array], float] | None,
        warn: Callable[[str], None],
    ) -> Testcase:
        """Compare the expected values of a testcase with what the witness computes.

        Args:
            place: which testcase it is, for warnings.
            case: a testcase.
            limit: the tolerance of an output by MegEngine's measure; None judges by the rule of ONNX's backend tests.
            warn: told where the two diverge by more than that, or that the witness cannot run the model.

        Returns:
            the testcase, with what was found in its provenance.
        """
        if not case.expects:
            return case
        entry: dict[str, object] = {"name": self.name}
        try:
            values = self.run(case.inputs)
        except LoadRunError as e:
            warn(f"{self.name} did not compute what {place} expects: {e}")
            entry["error"] = str(e)[:500]
            return replace(case, provenance={**case.provenance, _KEY: entry})
        outputs = entry["outputs"] = {}
        for name, expect in case.expects.items():
            if name not in values:
                continue
            value = np.atleast_1d(values[name])
            most = 1.0 if limit is None else limit(name, expect)
            error = _largest_error(expect, value, relative=limit is None)
            outputs[name] = {"error": error, "maxerr": most, "digest": tensor_digest(_narrowed(value))}
            if error is None:
                warn(
                    f"{place}: {self.name} computes shape {list(value.shape)} for the output {name!r}, expected "
                    f"{list(expect.shape)}"
                )
            elif not passes(error, most):
                warn(
                    f"{place}: {self.name} computes a different value for the output {name!r}: "
                    f"they differ by {error:.3g}, allowed is {most:g}"
                )
        return replace(case, provenance={**case.provenance, _KEY: entry})


def _narrowed(value: Array) -> Array:
    """Narrow a value to a type that digests know: 64 bits become 32."""
    narrow = {"float64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32"}
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(narrow.get(value.dtype.name, value.dtype), copy=False))


def _largest_error(expect: Array, value: Array, *, relative: bool) -> float | None:
    """Measure how far two values are apart, None if the shapes differ; NaN agrees with NaN."""
    if expect.shape != value.shape:
        return None
    with np.errstate(all="ignore"):
        same = (expect == value) | ((expect != expect) & (value != value))
        if not relative:
            return float(assert_equal_error(np.where(same, 0, expect), np.where(same, 0, value)))
        a, b = expect.astype(np.float64), value.astype(np.float64)
        ratio = np.where(same, 0.0, np.abs(a - b) / (ATOL + RTOL * np.abs(a)))
    return float(ratio.max(initial=0.0))


def testimony(bundle: Bundle) -> list[str]:
    """Sentences of what a file's record says of witnesses; none if it is damaged, which is for `verify` to say.

    >>> import loadrun
    >>> testimony(loadrun.load("fixtures/nets/mlp.mge"))
    []
    """
    said: dict[str, list[tuple[int, Mapping[str, object]]]] = {}
    try:
        for i, line in enumerate(lines(bundle.record) if isinstance(bundle.record, memoryview) else ()):
            provenance = line.get("provenance")
            about = provenance.get(_KEY) if isinstance(provenance, Mapping) else None
            if i and isinstance(about, Mapping):
                said.setdefault(str(about.get("name")), []).append((i - 1, about))
    except LoadRunError:
        return []
    return [text for name, cases in said.items() for text in _sentences(name, cases)]


def _figure(value: object) -> float | None:
    """Return a number of a record, None for anything else."""
    try:
        return number(finite=False)(value, "a figure")
    except FormatError:
        return None


def _sentences(name: str, cases: list[tuple[int, Mapping[str, object]]]) -> Iterator[str]:
    rows = []
    for i, about in cases:
        outputs = about.get("outputs")
        for output, entry in outputs.items() if isinstance(outputs, Mapping) else ():
            if isinstance(entry, Mapping):
                rows.append((i, str(output), _figure(entry.get("error")), _figure(entry.get("maxerr"))))
    ran = {i for i, *_ in rows}
    numbers = [r for r in rows if r[2] is not None]
    if ran:
        text = f"{name} computed {len(ran)} testcase{'s' * (len(ran) != 1)} as well"
        if numbers:
            i, output, error, _ = max(numbers, key=lambda r: r[2])  # type: ignore[arg-type,return-value]
            text += f": largest error {error:.3g} ({output!r} of testcase {i})"
        yield text
    for i, output, error, most in rows:
        limit = 0.0 if most is None else most
        if error is None:
            yield f"{name} computed another shape for {output!r} of testcase {i}"
        elif not passes(error, limit):
            yield f"{name} differs from {output!r} of testcase {i} by {error:.3g}, which is more than {limit:g}"
    for i, about in cases:
        if about.get("error"):
            yield f"{name} did not compute testcase {i}: {about['error']}"
