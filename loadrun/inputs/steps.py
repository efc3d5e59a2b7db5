"""Data for the steps of a scenario: one specification for all of them, or one for each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from ..base.errors import UsageError
from ..graph.dtypes import Array
from ..inputspec import InputData
from .lists import count_cases, expand
from .loading import Loader

_GENERATED = re.compile(r"#[A-Za-z]+\([^()]*\)")
_STEP = re.compile(r"(?<![\w.=])(?:([0-9]+)\s*\+\s*)?k(?:\s*\+\s*([0-9]+))?(?![\w.])")


def step_text(data: InputData, step: int) -> InputData:
    """Put the number of a step in the place of ``k`` in a specification's generators; arrays stay as they are.

    >>> step_text("mask:#ones(1,k+4);position:#full(k,1,1)", 3)
    'mask:#ones(1,7);position:#full(3,1,1)'
    """

    if not isinstance(data, str):
        return data

    def number(match: re.Match[str]) -> str:
        return str(int(match[1] or 0) + step + int(match[2] or 0))

    return _GENERATED.sub(lambda match: _STEP.sub(number, match[0]), data)


def load_steps(
    specs: Sequence[InputData], loader: Loader, steps: int, fed: Collection[str]
) -> Iterator[dict[str, Array]]:
    """Load the inputs of every step.

    Args:
        specs: one specification for all steps, or one for each; as many times as many are several scenarios.
        loader: loads specifications for the model's inputs.
        steps: how many steps a scenario has.
        fed: names of inputs that later steps take from the step before.

    Raises:
        UsageError: the number of specifications is another one.
        SpecError, InputError: as `loadrun.inputs.loading.load_cases`.
    """
    total = count_cases(step_text(s, 0) for s in specs)
    if total != 1 and total % steps:
        raise UsageError(f"--steps {steps} takes one specification or {steps}, found {total}")
    texts = [step_text(specs[0], k) for k in range(steps)] if total == 1 else specs
    last, declared = None, loader.open
    for i, last in enumerate(expand(texts)):
        # What later steps take may grow with them.
        loader.open = frozenset(loader.known) if i % steps else declared
        loader.step = (i, steps) if total == 1 else None
        loader.optional = frozenset(fed if i % steps else ())
        arrays = loader.load(last, i)
        yield {n: a for n, a in arrays.items() if total > 1 or n not in loader.optional}
    if last is not None:
        loader.require_use(last)
