"""Names of dumps' outputs as MegEngine gives them, and which of them others can have."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import loadrun
from fixtures.functional._case import Case, flatten
from loadrun.tracing import trace

__all__ = ["agree", "check_names", "names_of", "runs_on"]

_MASK = "one operator fills where a mask is true"
_BATCH = "fewer steps"
OTHER_NAMES = {
    "indexing/set-mask-full-number": _MASK,
    "indexing/set-mask-false": _MASK,
    "nn/sync_batch_norm-max-affine": _BATCH,
    "nn/sync_batch_norm-max-training": _BATCH,
    "operators/flatten": "equal operators are one",
    "tensor/roll-empty": "what does not move is left as it is",
}
"""Recorded calls (fixtures/functional) whose outputs have other names, and why."""
NO_TENSORS = {"method/shape"}
"""Recorded calls that give sizes: numbers, which are no outputs of a dump."""


def runs_on(name: str) -> bool:
    """Whether a name of MegEngine's tells inputs, a constant or a number that counts all variables of its process."""
    return any(c in name for c in "(<{@") or name.startswith("merged")


def agree(theirs: Sequence[str], ours: Sequence[str]) -> bool:
    """Whether outputs have MegEngine's names.

    What is an input, or an output already, has a name of its own, and so has what MegEngine names by `runs_on`.
    """
    if len(set(ours)) != len(theirs):
        return False
    own = {n for n in theirs if runs_on(n) or n.startswith(("arg_", "kwarg_")) or theirs.count(n) > 1}
    return all(a == b or a in own for a, b in zip(theirs, ours, strict=True))


def names_of(case: Case, *, optimize: bool) -> list[str]:
    """The names of the outputs of a recorded call's dump."""
    function = case.make(loadrun.megengine)
    traced: Any = trace(symbolic=True, capture_as_const=True)(
        lambda *xs: tuple(x for x in flatten(function(*xs)) if isinstance(x, loadrun.Tensor))
    )
    traced(*[loadrun.tensor(x) for x in case.inputs])
    return list(traced.dump(io.BytesIO(), optimize_for_inference=optimize).outputs)


def check_names(family: str, case: Case, recorded: list[list[str]]) -> None:
    """Hold the names without and with `optimize_for_inference` against recorded ones."""
    key = f"{family}/{case.id}"
    if key in NO_TENSORS:
        return
    found = [names_of(case, optimize=optimize) for optimize in (False, True)]
    agreed = agree(recorded[0], found[0]) and agree(recorded[-1], found[1])
    assert agreed != (key in OTHER_NAMES), (recorded, found)
