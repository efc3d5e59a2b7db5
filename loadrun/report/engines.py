"""What engines are, and engines side by side, as text."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ..base.about import About
from ..base.errors import clean
from ..compare.results import EngineResults
from ..engines import NATIVE


def engine_lines(about: About) -> Iterator[str]:
    """Yield what executed a model, and what it got."""
    yield f"engine: {clean(about.text, 300)}"
    if about.way == NATIVE:
        yield f"{about.engine} runs the file itself, with its {about.operators} operators"
    else:
        yield f"all {about.operators} operators run on {about.engine}"


def entrants_lines(entrants: Sequence[EngineResults]) -> Iterator[str]:
    """Yield a line for each engine: what ran, its verdict, its time, and its distance from the first engine."""
    if not entrants:
        return
    first = entrants[0]
    base = median(first.seconds) if first.seconds else None
    for entrant in entrants:
        what = entrant.choice if entrant.about is None else entrant.about.text
        parts = [f"  {clean(what, 300)}: {entrant.verdict.value}"]
        if entrant.seconds:
            seconds = median(entrant.seconds)
            ratio = ""
            if base and entrant is not first:
                ratio = f" ({seconds / base:.2f} times that of {clean(first.choice, 40)})"
            parts.append(f"median {seconds * 1e3:.2f} ms{ratio}")
        if entrant is not first and entrant.error:
            name, worst = _worst(entrant.error)
            parts.append(f"at most {worst:.4g} apart (output {clean(name)})")
        yield ", ".join(parts)


def _worst(errors: Mapping[str, float]) -> tuple[str, float]:
    """Return the output with the largest error; NaN is the largest."""
    return max(errors.items(), key=lambda pair: (pair[1] != pair[1], pair[1]))
