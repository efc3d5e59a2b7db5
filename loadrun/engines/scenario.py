"""Scenarios: the steps of a testcase one after another, outputs of each feeding inputs of the next."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..base.errors import EngineError, LoadRunError
from ..compare.results import OutputResult, Result, Verdict
from ..graph.dtypes import Array
from ..testcase import Testcase


def replay_steps(case: Testcase, index: int | None, check: Callable[[Testcase], Result]) -> Result:
    """Replay a scenario.

    States come from the step before as it was computed, not as it was packed, so that errors add up as they do in
    use; all other inputs are those of the file.

    Args:
        case: a testcase with further steps.
        index: its number.
        check: runs one step, which is a testcase without further ones.

    Returns:
        the outputs of all steps, each named with the number of its step: ``logits@3``. Those of which nothing is
        expected are there for the last step alone.

    Raises:
        LoadRunError: a step failed; the text says which.
    """
    outs: list[OutputResult] = []
    seconds, last = 0.0, len(case.steps)
    result = Result(index, (), Verdict.NOT_COMPARED)
    states: dict[str, Array] = {}
    for k, arrays in enumerate(case.each_step):
        try:
            result = check(Testcase({**states, **arrays}, case.dtypes))
            states = {name: _value(result, output) for name, output in case.states.items()}
        except LoadRunError as e:
            raise type(e)(f"step {k}: {e}") from e
        seconds += result.seconds
        outs += (replace(o, name=f"{o.name}@{k}", step=k) for o in _kept(result, case, k == last))
    return replace(
        result, index=index, outputs=tuple(outs), verdict=Verdict.of_outputs(outs), seconds=seconds
    )


def steps_fed(case: Testcase, check: Callable[[Testcase], Result]) -> Iterator[dict[str, Array]]:
    """Yield what each step is fed, expected values included, with states as the steps before it compute them.

    Args:
        case: a testcase with further steps.
        check: runs one step, which it does when the step after it is asked for.
    """
    states: dict[str, Array] = {}
    for k, arrays in enumerate(case.each_step):
        fed = {**states, **arrays}
        yield fed
        if k < len(case.steps):
            result = check(Testcase(fed, case.dtypes))
            states = {name: _value(result, output) for name, output in case.states.items()}


def _kept(result: Result, case: Testcase, last: bool) -> Iterator[OutputResult]:
    """Yield what is kept of a step: states of which nothing is expected come to much, and the next step reads them."""
    fed = set(case.states.values())
    compared = any(not o.is_free for o in result.outputs)
    for out in result.outputs:
        if last or not out.is_free or not (compared or out.name in fed):
            yield out


def _value(result: Result, output: str) -> Array:
    try:
        return result[output]
    except KeyError:
        raise EngineError(f"a state comes from the output {output!r}, which was not computed") from None
