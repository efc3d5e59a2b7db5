"""Engines of other packages: what goes wrong in them is said to be theirs, and what they give is looked at."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, LoadRunError
from ..base.limits import EndedBySignal
from ..graph import Var
from ..graph.dtypes import Array
from .protocol import Engine

__all__ = ["ForeignEngine", "blamed"]


@contextmanager
def blamed(name: str, doing: str) -> Iterator[None]:
    """Make an error of whatever another package's code raises, even where that would end the program.

    Args:
        name: the engine.
        doing: what it does meanwhile, in words.

    Raises:
        EngineError: it raised something that is no error of loadrun's.
    """
    try:
        yield
    except (LoadRunError, MemoryError, EndedBySignal):
        raise
    except (Exception, SystemExit) as e:
        raise _fault(name, doing, e) from e
    except KeyboardInterrupt as e:
        # Where signals are ignored, as in worker processes, nobody pressed Ctrl-C.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise _fault(name, doing, e) from e
        raise


def _fault(name: str, doing: str, e: BaseException) -> EngineError:
    return EngineError(f"the engine {name!r} failed {doing}: {type(e).__name__}{f': {e}' if str(e) else ''}")


class ForeignEngine:
    """An engine of another package.

    Args:
        name: its name.
        engine: the engine.
        targets: the variables that it computes.
    """

    def __init__(self, name: str, engine: Engine, targets: Sequence[Var]) -> None:
        self._name = name
        self._engine = engine
        self._targets = targets

    @property
    def inputs(self) -> dict[str, Var]:
        """The graph inputs that the targets depend on, by name."""
        with blamed(self._name, "to say its inputs"):
            return self._engine.inputs

    @property
    def about(self) -> About:
        """Describe what executes, and how it computes."""
        with blamed(self._name, "to say what it is"):
            return self._engine.about

    def prepare(self, feeds: Mapping[str, Array]) -> None:
        """Let it convert or compile, if it has to."""
        prepare = getattr(self._engine, "prepare", None)
        if prepare is not None:
            with blamed(self._name, "to prepare"):
                prepare(feeds)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Compute the targets.

        Raises:
            EngineError: it failed, or gave something else than one array of numbers for every target.
        """
        with blamed(self._name, "to run"):
            found = list(self._engine.run(feeds))
        if len(found) != len(self._targets):
            raise EngineError(
                f"the engine {self._name!r} returned {len(found)} values, expected {len(self._targets)}"
            )
        for var, value in zip(self._targets, found, strict=True):
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
                what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
                raise EngineError(
                    f"the engine {self._name!r} returned {what} for {var.label!r}, expected an array of numbers"
                )
        return found
