"""What is asked for one file, and what comes back; all of it can be sent to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..compare.policy import Policy
from ..compare.results import Result, Verdict
from ..compare.vacuity import ImpostorWatch
from ..engines import Choice
from ..graph.dtypes import Array

if TYPE_CHECKING:
    from ..verify.bench import Timing
    from ..verify.pictures import Picture

__all__ = ["Closed", "Event", "Explained", "Opened", "Replayed", "Task", "TaskPart", "Warned"]


@dataclass(frozen=True)
class Task:
    """One file to replay, and how.

    Attributes:
        path: the file.
        engine: what executes it.
        others: engines that run beside it and are compared with it.
        seed: of random inputs and random operators.
        policies: what outputs must fulfil besides their checks, by name.
        copy: whether the file is read into memory at once.
        read: what `loadrun.load_all` is told of an ONNX model: input_shapes, constants.
        strict: whether a damaged end of the file is an error.
        specs: data to run the model on instead of the testcases.
        repeat, resize_input, input_transform: how that data is loaded.
        iterations: how often the first testcase is run again, timed.
        warmup: untimed runs before that.
        values: whether results keep the values of their outputs.
        facts: whether digests and environment of the file are asked for.
        pictures: whether failing outputs are drawn.
        explain: whether the first testcase that fails is explained.
        feeds: whether results come with what was fed.
        optimize: optimizations of the graph before it is run, see `loadrun.replay.prepared`.
        batch: items of axis 0 that testcases are repeated or cut to.
    """

    path: str
    engine: str | Choice = "reference"
    others: tuple[Choice, ...] = ()
    seed: int = 0
    policies: Mapping[str, Policy] = field(default_factory=dict)
    copy: bool = False
    read: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    specs: tuple[str, ...] | None = None
    repeat: int = 1
    resize_input: bool = False
    input_transform: str | None = None
    iterations: int = 0
    warmup: int = 1
    values: bool = False
    facts: bool = False
    pictures: bool = False
    explain: bool = False
    feeds: bool = False
    optimize: tuple[str, ...] = ()
    batch: int | None = None


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
    """Something deserves a look."""

    text: str


@dataclass(frozen=True)
class Explained:
    """Where the first testcase of this part that fails begins to differ."""

    lines: tuple[str, ...]


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
    """

    message: str | None = None
    fault: bool = False
    ended: Verdict | None = None
    timing: Timing | None = None
    turns: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    watch: ImpostorWatch | None = None


Event = Opened | Replayed | Warned | Explained | Closed
