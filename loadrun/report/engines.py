"""What engines are, and engines side by side, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from ..compare import Comparison
from ..engines import About
from ..review.beside import Entrant, Round
from ..runner import Verdict
from ..shown import clean
from .json import about_data, result_data
from .text import shape_text, table

__all__ = ["entrants_data", "entrants_lines", "islands", "round_data", "round_lines"]


def islands(about: About) -> Iterator[str]:
    """The operators that an engine leaves to the reference engine."""
    yield f"engine: {clean(about.text, 300)}"
    if not about.islands:
        yield f"all {about.operators} operators run on {about.engine}"
        return
    rows = [(clean(i.operator, 100), clean(i.reason, 200)) for i in about.islands]
    yield table(rows, ("on the reference engine", "because"))


_HEADERS = ("testcase", "output", "engine", "shape", "max error", "tolerance", "from {}", "verdict", "ms")


def round_lines(entrants: Sequence[Entrant], rounds: Sequence[Round]) -> str:
    """A table of testcases: for every output a row for each engine."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for found in rounds:
        case = "-" if found.index is None else str(found.index)
        for entrant, result, apart in zip(entrants, found.results, found.apart, strict=True):
            name = clean(entrant.choice.spec, 60)
            if result.verdict is Verdict.ERROR:
                rows.append([case, "", name, "", "", "", "", "ERROR", ""])
                notes.append(f"  testcase {case}, {name}: {clean(result.message or '', 2000)}")
            for i, out in enumerate(result.outputs):
                first = entrant is entrants[0]
                rows.append(
                    [
                        case,
                        clean(out.name),
                        name,
                        shape_text(out.shape),
                        _number(out.error),
                        _number(out.maxerr),
                        "" if first else _number(_between(apart.get(out.name))),
                        "FAIL" if out.verdict is Verdict.FAIL else out.verdict.value,
                        f"{result.seconds * 1e3:.2f}" if i == 0 else "",
                    ]
                )
                said = [*([out.reason] if out.reason else []), *out.notes]
                notes += [
                    f"  testcase {case}, {name}, output {clean(out.name)}: {clean(t, 400)}" for t in said
                ]
    headers = [h.format(clean(entrants[0].choice.spec, 40)) for h in _HEADERS]
    return "\n".join([table(rows, headers, right=(0, 4, 5, 6, 8)), *notes])


def entrants_lines(entrants: Sequence[Entrant]) -> Iterator[str]:
    """One line for each engine: what ran, its verdict, its time, and its distance from the first engine."""
    first = entrants[0]
    base = median(first.seconds) if first.seconds else None
    for entrant in entrants:
        what = entrant.choice.spec if entrant.about is None else entrant.about.text
        parts = [f"  {clean(what, 300)}: {entrant.verdict.value}"]
        if entrant.seconds:
            own = median(entrant.seconds)
            ratio = (
                f" ({own / base:.2f} of {clean(first.choice.spec, 40)}'s)"
                if base and entrant is not first
                else ""
            )
            parts.append(f"median {own * 1e3:.2f} ms{ratio}")
        if entrant is not first and entrant.error:
            name, worst = _worst(entrant.error)
            parts.append(f"at most {_number(worst)} apart (output {clean(name)})")
        yield ", ".join(parts)


def round_data(entrants: Sequence[Entrant], found: Round) -> list[dict[str, Any]]:
    """The results of a testcase for JSON, one for each engine."""
    return [
        {
            **result_data(result),
            "engine": entrant.choice.spec,
            "apart": {n: _metrics(c) for n, c in apart.items()},
        }
        for entrant, result, apart in zip(entrants, found.results, found.apart, strict=True)
    ]


def entrants_data(entrants: Sequence[Entrant]) -> list[dict[str, Any]]:
    """The engines of a file for JSON."""
    return [
        {
            "name": e.choice.spec,
            **({} if e.about is None else about_data(e.about)),
            "verdict": e.verdict.value,
            "seconds": e.seconds,
            "median_seconds": median(e.seconds) if e.seconds else None,
            "max_error": e.error,
        }
        for e in entrants
    ]


def _metrics(c: Comparison) -> dict[str, Any]:
    return {"max_error": c.max_error, "max_abs": c.max_abs, "cosine": c.cosine, "mismatches": c.mismatches}


def _between(found: Comparison | None) -> float | None:
    return None if found is None else found.max_error


def _worst(errors: Mapping[str, float]) -> tuple[str, float]:
    """The output with the largest error; NaN is the largest."""
    return max(errors.items(), key=lambda pair: (pair[1] != pair[1], pair[1]))


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.4g}"
