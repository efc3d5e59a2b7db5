"""Results counted into their file as they come, without their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from ..base.failures import failure
from .results import FileResult, Result

__all__ = ["CountedResults", "counted"]


def counted(
    file: FileResult, results: Iterable[Result], seen: Callable[[Result], None] | None = None
) -> Iterator[Result]:
    """Count results into a file and pass them on without the values of their outputs.

    Args:
        file: what is known of the file; an error that ends the results becomes its message.
        results: one after another.
        seen: called with every result before it is passed on; an error of it is none of the file's.

    >>> import loadrun
    >>> file = FileResult("fixtures/nets/mlp.mge")
    >>> [r.outputs[0].value for r in counted(file, loadrun.run(file.path))], file.passed
    ([None, None, None], 3)
    """
    source = iter(results)
    while True:
        try:
            result = next(source, None)
        except Exception as e:
            found = failure(e, named=True)
            file.message, file.fault = found.message, found.fault
            return
        if result is None:
            return
        bare = replace(result, outputs=tuple(replace(o, value=None, expect=None) for o in result.outputs))
        file.add(bare)
        if seen is not None:
            seen(bare)
        yield bare


class CountedResults:
    """One file and its results, which are counted into it as they are read.

    Args:
        file: what is known of the file.
        results: one after another; an error that ends them becomes the file's message.

    Attributes:
        file: what the results come to, so far.

    >>> import loadrun
    >>> found = CountedResults(FileResult("mlp.mge"), loadrun.run("fixtures/nets/mlp.mge"))
    >>> [r.verdict.value for r in found], found.file.verdict.value
    (['pass', 'pass', 'pass'], 'pass')
    """

    def __init__(
        self, file: FileResult, results: Iterable[Result] = (), seen: Callable[[Result], None] | None = None
    ) -> None:
        self.file = file
        self._results = counted(file, results, seen)

    def __iter__(self) -> Iterator[Result]:
        """Give the results, without the values of their outputs."""
        return self._results
