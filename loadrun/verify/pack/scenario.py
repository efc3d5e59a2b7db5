"""Packing scenarios: a model runs step after step, and its outputs become inputs of the next step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...base.errors import LoadRunError, UsageError
from ...graph.dtypes import Array
from ...testcase import EXPECT, Testcase

SMALL = 1 << 22
"""Bytes that all expected states of a scenario may always take."""
_ARGMAX = re.compile(r"argmax\((.+)\)")
_SHOWN = 8
Capture = Callable[[Mapping[str, Array]], Testcase]


@dataclass(frozen=True)
class Feedback:
    """The inputs that a step takes from the step before, by name.

    Attributes:
        states: the output that feeds each.
        chosen: the output whose largest element's index feeds each; the number becomes data of the file, so that a
            replay takes the same one.

    >>> Feedback.of(["past*=present*", "ids=argmax(logits)"], ["ids", "past0"], ["logits", "present0"])
    Feedback(states={'past0': 'present0'}, chosen={'ids': 'logits'})
    """

    states: Mapping[str, str]
    chosen: Mapping[str, str]

    @classmethod
    def of(cls, texts: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> Feedback:
        """Read texts such as ``past_*=present_*`` for a model.

        Raises:
            UsageError: a text is malformed, or names what the model lacks.
        """
        states: dict[str, str] = {}
        chosen: dict[str, str] = {}
        for text in texts:
            name, equals, output = (part.strip() for part in text.partition("="))
            if not (name and equals and output):
                raise UsageError(f"a state must be INPUT=OUTPUT, such as past=present, found {text!r}")
            choice = _ARGMAX.fullmatch(output)
            into, pattern = (chosen, choice[1]) if choice else (states, output)
            for one, other in _pairs(name, pattern, inputs):
                if other not in outputs:
                    shown = ", ".join(outputs[:_SHOWN]) + (", ..." if len(outputs) > _SHOWN else "")
                    raise UsageError(f"--state {text}: there is no output {other!r}; the outputs are {shown}")
                if one in states or one in chosen:
                    raise UsageError(f"--state {text}: the input {one!r} is fed twice")
                into[one] = other
        return cls(states, chosen)

    def next(self, case: Testcase) -> dict[str, Array]:
        """Return what a step that was captured feeds to the next one."""
        fed = {name: case.arrays[output + EXPECT] for name, output in self.states.items()}
        for name, output in self.chosen.items():
            last = case.arrays[output + EXPECT]
            last = last[:, -1] if last.ndim > 2 else last
            before = case.arrays[name]
            largest = last.argmax(axis=-1).astype(before.dtype)
            if largest.size != before.size:
                raise UsageError(
                    f"the input {name!r} has shape {list(before.shape)}, but there are {largest.size} largest elements "
                    f"of {output!r}"
                )
            fed[name] = largest.reshape(before.shape)
        return fed


def _pairs(name: str, output: str, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield inputs and outputs that a text stands for; what * stands for on the left, it stands for on the right."""
    if "*" not in name or name in inputs:
        tried = [re.fullmatch(re.escape(name), n) for n in inputs]
    else:
        pattern = re.escape(name).replace(r"\*", "(.*)")
        tried = [re.fullmatch(pattern, n) for n in inputs]
    matches = [m for m in tried if m]
    if not matches:
        shown = ", ".join(inputs[:_SHOWN]) + (", ..." if len(inputs) > _SHOWN else "")
        raise UsageError(f"--state {name}={output}: there is no input {name!r}; the inputs are {shown}")
    if output.count("*") > matches[0].re.groups:
        raise UsageError(f"--state {name}={output}: the output has more patterns than the input")
    for m in matches:
        parts = output.split("*")
        yield m.string, parts[0] + "".join(g + p for g, p in zip(m.groups(), parts[1:], strict=False))


def capture_steps(
    inputs: Iterator[Mapping[str, Array]],
    feedback: Feedback,
    captures: tuple[Capture, Capture],
    steps: int,
    most: float = SMALL,
) -> Testcase:
    """Run a scenario and keep what it computes as ground truth.

    Expected values of states are kept after every step if they come to at most `most` bytes, else after as many steps,
    evenly spaced, as do; always after the first and the last one.

    Args:
        inputs: arrays of each step, without those that the step before feeds; one that is there all the same is fed in
            their place.
        feedback: what feeds what.
        captures: runs the model on the inputs of the first and the last step, and on those in between.
        steps: how many steps there are.
        most: how many bytes expected states may take.

    Raises:
        LoadRunError: a step failed; the text says which.
    """
    at_ends, between = captures
    first: Testcase | None = None
    fed: dict[str, Array] = {}
    kept: list[dict[str, Array]] = []
    fed_by = {output + EXPECT for output in feedback.states.values()}
    size, every = 0, 1
    for k, arrays in enumerate(inputs):
        try:
            case = (at_ends if k in (0, steps - 1) else between)({**fed, **arrays})
            fed = feedback.next(case)
        except LoadRunError as e:
            raise type(e)(f"step {k}: {e}") from e
        before, size = size, sum(case.arrays[n].nbytes for n in fed_by)
        if first is None:
            first = case
            continue
        if k == 1:
            every = _interval(before, size, steps, most)
        left_out = {n for n in feedback.states if n not in arrays}
        left_out |= set() if k % every == 0 or k == steps - 1 else fed_by
        kept.append({n: np.asarray(a) for n, a in case.arrays.items() if n not in left_out})
    assert first is not None
    return replace(first, steps=kept, states=dict(feedback.states))


def _interval(first: int, second: int, steps: int, most: float) -> int:
    """Return after how many steps states are expected again, from their bytes after the first two steps.

    >>> _interval(100, 100, 10, 1000), _interval(100, 100, 10, 500), _interval(100, 200, 10, 1100)
    (1, 2, 5)
    """
    total = first * steps + max(0, second - first) * steps * (steps - 1) // 2
    return max(1, math.ceil(total / most))
