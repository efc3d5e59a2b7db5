"""A subject in a separate process, where no other engine's threads disturb it."""

from __future__ import annotations

from types import TracebackType
from typing import cast

from ...base.errors import EngineError, LoadRunError
from ...base.pipes import receive, send, serve, start
from ...ops.numeric.parallel import thread_environment
from .measurement import Measurement, Subject
from .ready import Preparation, ReadySubject, Round


class SubjectProcess:
    """A `ReadySubject` in a process that ends with the block.

    Attributes:
        measured: what was measured so far.

    Args:
        subject: what is measured.
        plan: how.

    Raises:
        LoadRunError: it cannot be read or run, or the process died of it.
    """

    def __init__(self, subject: Subject, plan: Preparation) -> None:
        self._name = f"{subject.path} on {subject.engine}"
        self._process = start(__name__, thread_environment(plan.threads))
        try:
            self.measured = cast("Measurement", self._ask((subject, plan)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SubjectProcess:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def round(self, seconds: float) -> Round:
        """Make passes for some time; see `ReadySubject.round`. Its threads sleep again when this returns."""
        return cast("Round", self._ask(seconds))

    def settle(self) -> None:
        """Do nothing: the process answers when its threads sleep."""

    def _ask(self, message: object) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            send(self._process.stdin, message)
            answer, _ = receive(self._process.stdout)
        except (EOFError, OSError):
            raise EngineError(f"{self._name}: {_ended(self._process.wait())}") from None
        if isinstance(answer, (LoadRunError, OSError)):
            raise answer
        return answer


def _ended(code: int) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the process that ran it {how}"


def main() -> None:
    """Make a subject ready, then answer with rounds until the parent closes the pipe, or is gone."""
    source, answers = serve()
    try:
        (subject, plan), _ = receive(source)
        ready = ReadySubject(subject, plan)
        send(answers, ready.measured)
        while True:
            seconds, _ = receive(source)
            times = ready.round(seconds)
            ready.settle()
            send(answers, times)
    except (EOFError, BrokenPipeError):
        return
    except (LoadRunError, OSError) as e:
        send(answers, e)
