"""Other runtimes beside the reference engine, in processes of their own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np

from ..base.errors import LoadRunError
from ..base.proving import waiting
from ..graph.dtypes import Array

Computing = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes outputs by name from inputs; raises a LoadRunError where the model refuses these."""


@dataclass(frozen=True)
class Other:
    """Another runtime beside the reference engine, in a process of its own.

    Attributes:
        name: its name.
        of: which of both models it runs, for the error.
        run: computes outputs by the source's names from inputs by the source's names.
        stop: ends it, where its answer is waited for no longer.
        told: whether it stands in the record that it does not take the model.
        required: whether that is an error.
    """

    name: str
    of: str
    run: Computing
    stop: Callable[[], None]
    told: bool = False
    required: bool = False


class Asked:
    """A runtime that computes while the reference engine does."""

    def __init__(self, other: Other) -> None:
        self.other = other
        self._answers: SimpleQueue[Mapping[str, Array] | LoadRunError] = SimpleQueue()

    def ask(self, feeds: Mapping[str, Array]) -> None:
        """Let it begin; the thread is a daemon, for which Python does not wait at its end."""
        Thread(target=self._answer, args=(feeds,), daemon=True).start()

    def _answer(self, feeds: Mapping[str, Array]) -> None:
        try:
            self._answers.put(self.other.run(feeds))
        except LoadRunError as e:
            self._answers.put(e)

    def answer(self, seconds: float | None) -> Mapping[str, Array]:
        """Return its outputs.

        Raises:
            TimeoutError: it takes longer.
            LoadRunError: it does not take the model or these data.
        """
        try:
            with waiting(seconds) as most:
                answer = self._answers.get(timeout=most)
        except Empty:
            self.other.stop()
            raise TimeoutError from None
        if isinstance(answer, LoadRunError):
            raise answer
        return {n: np.atleast_1d(v) for n, v in answer.items()}
