"""What is asked for one file, and what comes back; all of it can be sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..compare.results import Result, Verdict
from ..compare.vacuity import ImpostorWatch
from ..graph.dtypes import Array
from .options import ReplayOptions

if TYPE_CHECKING:
    from ..verify.bench import Timing
    from ..verify.pictures import Picture

__all__ = ["Closed", "Event", "Explained", "Opened", "Replayed", "Task", "TaskPart", "Warned"]


@dataclass(frozen=True)
class Task(ReplayOptions):
    """One file to replay, and how.

    Attributes:
        path: the file.
        facts: whether digests and environment of the file are asked for.
        pictures: whether failing outputs are drawn.
        feeds: whether results come with what was fed.
        timeout: seconds that the file may take, None for those of the run.
    """

    path: str
    facts: bool = field(default=False, kw_only=True)
    pictures: bool = field(default=False, kw_only=True)
    feeds: bool = field(default=False, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class TaskPart:
    """A part of a task: testcases of its only dump, or everything.

    Attributes:
        task: whose part it is.
        start: the first testcase.
        most: how many testcases at most where the file can be divided, None for all.
    """

    task: Task
    start: int = 0
    most: int | None = None


@dataclass(frozen=True)
class Opened:
    """A dump of the file was opened; its results follow.

    Attributes:
        name: how the dump is called.
        dump: its number in the file.
        total: how many testcases there are of it, or data in their place.
        warnings: what there is to say of the file.
        damage: those of them that tell of damage.
        missed: those that tell of what the file holds to be compared and is not.
        load_seconds: how long reading took.
        facts: digest of the model, its inputs, the size of the file.
        rest: the first testcase that this part leaves to others, None when it leaves none.
    """

    name: str
    dump: int = 0
    total: int = 0
    warnings: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    load_seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)
    rest: int | None = None


@dataclass(frozen=True)
class Replayed:
    """A result.

    Attributes:
        result: it, with the values of its outputs only if the task keeps them.
        inputs: shapes of what was fed, by input name.
        digest: digest of what was fed, where facts are asked for.
        pictures: of its failing outputs, by name.
        feeds: what was fed, only if the task asks for it.
    """

    result: Result
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    digest: str | None = None
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    feeds: Mapping[str, Array] | None = None


@dataclass(frozen=True)
class Warned:
    """Something deserves a look.

    Attributes:
        text: a sentence.
        weak: whether it says of a check that it could not fail on the testcases.
    """

    text: str
    weak: bool = False


@dataclass(frozen=True)
class Explained:
    """Where the first testcase of this part that fails begins to differ.

    Attributes:
        lines: what is said of it.
        drawing: the operators around those to blame, as a picture; empty where there are none.
    """

    lines: tuple[str, ...]
    drawing: str = ""


@dataclass(frozen=True)
class Closed:
    """The dump (or this part of it) came to its end.

    Attributes:
        message: why it ended early.
        fault: whether that is a bug in loadrun.
        ended: the verdict of a process that ended early: timeout or crash.
        timing: further runs that were timed.
        turns: seconds of such runs by engine, where several run side by side.
        watch: what the expected values of a part showed.
        flaky: how many times the file did not pass before it did.
    """

    message: str | None = None
    fault: bool = False
    ended: Verdict | None = None
    timing: Timing | None = None
    turns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    watch: ImpostorWatch | None = None
    flaky: int = 0


Event = Opened | Replayed | Warned | Explained | Closed
