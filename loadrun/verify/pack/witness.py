"""A second opinion on ground truth: another runtime computes the same testcases, and the record keeps it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import EngineError, FormatError, LoadRunError
from ...base.registry import late
from ...base.schema import number
from ...compare import assert_equal_error, passes
from ...compare.record import lines
from ...dump.record import tensor_digest
from ...graph.dtypes import Array
from ...testcase import Bundle, Testcase

with late(__name__):
    from concurrent import futures

_KEY = "witness"
_Opinion = tuple[dict[str, object], list[str]]
"""What goes into a testcase's provenance, and warnings."""
RTOL, ATOL = 1e-3, 1e-7
"""The rule of ONNX's backend tests, for testcases that came with the model."""


class Opinions:
    """What a witness says of testcases, one after another; it computes while others are at work.

    Its thread is a daemon: at its end Python waits for that of an executor, which another runtime may keep for hours.

    Args:
        witness: the witness; None for one that says nothing.
    """

    def __init__(self, witness: Witness | None) -> None:
        self._witness = witness
        self._cases: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._asked: deque[futures.Future[_Opinion]] = deque()
        self._thread: Thread | None = None

    def __enter__(self) -> Opinions:
        return self

    def __exit__(self, *error: object) -> None:
        for future in self._asked:
            future.cancel()
        self._cases.put(None)

    def ask(self, place: str, case: Testcase, limit: Callable[[str, Array], float] | None) -> None:
        """Let it look at a testcase; see `Witness.look`."""
        if self._witness is None:
            return

        if self._thread is None:
            self._thread = Thread(target=self._work, daemon=True)
            self._thread.start()
        future: futures.Future[_Opinion] = futures.Future()
        self._asked.append(future)
        self._cases.put(partial(_answer, future, self._witness, place, case, limit))

    def _work(self) -> None:
        while (answer := self._cases.get()) is not None:
            answer()

    def next(self) -> _Opinion:
        """Wait for what it says of the first testcase that it was asked about and was not waited for."""
        return self._asked.popleft().result() if self._witness is not None else ({}, [])


def _answer(future: futures.Future[_Opinion], witness: Witness, *asked: Any) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(witness.look(*asked))
        except BaseException as e:
            future.set_exception(e)


class _Found(NamedTuple):
    """What a witness computed for an output, and how far that is from what is expected; None for another shape."""

    label: str
    shape: tuple[int, ...]
    value: Array
    error: float | None
    most: float

    @property
    def rank(self) -> float:
        return math.inf if self.error is None or self.error != self.error else self.error

    @property
    def about(self) -> dict[str, object]:
        digest = tensor_digest(_narrowed(self.value))
        return {"error": self.error, "maxerr": self.most, "digest": digest}

    @property
    def text(self) -> str | None:
        """What deserves a warning."""
        if self.error is None:
            return (
                f"shape {list(self.value.shape)} for the output {self.label!r}, expected {list(self.shape)}"
            )
        if passes(self.error, self.most):
            return None
        return (
            f"a different value for the output {self.label!r}: they differ by {self.error:.3g}, allowed is "
            f"{self.most:g}"
        )


@dataclass(frozen=True)
class Witness:
    """Another runtime that executes the model.

    Attributes:
        name: its name and version.
        run: outputs by name for inputs by name; raises a LoadRunError where it cannot.
    """

    name: str
    run: Callable[[Mapping[str, Array]], Mapping[str, Array]]

    def look(self, place: str, case: Testcase, limit: Callable[[str, Array], float] | None) -> _Opinion:
        """Compare the expected values of a testcase with what the witness computes.

        Args:
            place: which testcase it is, for warnings.
            case: a testcase.
            limit: the tolerance of an output by MegEngine's measure; None judges by the rule of ONNX's backend tests.

        Returns:
            what was seen, for the testcase's provenance: of a scenario the worst step of each output; and warnings
            where the two diverge by more than that, or that the witness cannot run the model.
        """
        if not case.expects:
            return {}, []
        worst: dict[str, _Found] = {}
        try:
            for name, step, expect, value in self._compared(case):
                most = 1.0 if limit is None else limit(name, expect)
                error = _largest_error(expect, value, relative=limit is None)
                label = f"{name}@{step}" if case.steps else name
                one = _Found(label, expect.shape, value, error, most)
                known = worst.get(name)
                if known is None or known.rank < one.rank:
                    worst[name] = one
        except LoadRunError as e:
            entry = {"name": self.name, "error": str(e)[:500]}
            return {_KEY: entry}, [f"{self.name} did not compute what {place} expects: {e}"]
        texts = filter(None, (one.text for one in worst.values()))
        outputs = {one.label: one.about for one in worst.values()}
        return (
            {_KEY: {"name": self.name, "outputs": outputs}},
            [f"{place}: {self.name} computes {text}" for text in texts],
        )

    def _compared(self, case: Testcase) -> Iterator[tuple[str, int, Array, Array]]:
        """Yield an output's name, the step, what is expected and what the witness computes; it feeds itself."""
        states: dict[str, Array] = {}
        for k, arrays in enumerate(case.each_step):
            step = Testcase({**states, **arrays})
            values = self.run(step.inputs)
            missing = [o for o in case.states.values() if o not in values]
            if missing:
                raise EngineError(f"it gives no array for the state {missing[0]!r}")
            states = {name: values[output] for name, output in case.states.items()}
            for name, expect in step.expects.items():
                if name in values:
                    yield name, k, expect, np.atleast_1d(values[name])


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


def testimony(bundle: Bundle) -> Iterator[tuple[str, bool]]:
    """Yield sentences of what a file's record says of witnesses, and whether each agrees with the file.

    >>> import loadrun
    >>> list(testimony(loadrun.load("fixtures/nets/mlp.mge")))
    []
    """
    said: dict[str, list[tuple[int, Mapping[str, object]]]] = {}
    for i, line in enumerate(lines(bundle.record) if isinstance(bundle.record, memoryview) else ()):
        about = line.get("provenance", {}).get(_KEY)
        if i and isinstance(about, Mapping):
            said.setdefault(str(about.get("name")), []).append((i - 1, about))
    for name, cases in said.items():
        yield from _sentences(name, cases)


def _figure(value: object) -> float | None:
    """Return a number of a record, None for anything else."""
    try:
        return number(finite=False)(value, "a figure")
    except FormatError:
        return None


def _sentences(name: str, cases: list[tuple[int, Mapping[str, object]]]) -> Iterator[tuple[str, bool]]:
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
        yield text, True
    for i, output, error, most in rows:
        limit = 0.0 if most is None else most
        if error is None:
            yield f"{name} computed another shape for {output!r} of testcase {i}", False
        elif not passes(error, limit):
            text = (
                f"{name} differs from {output!r} of testcase {i} by {error:.3g}, which is more than {limit:g}"
            )
            yield text, False
    for i, about in cases:
        if about.get("error"):
            yield f"{name} did not compute testcase {i}: {about['error']}", True
