"""What a trace says of itself: where its graph is not as in torch."""

from collections.abc import Collection, Iterable
from typing import Any

import torch

from .signature import Signature


def notes_of(
    program: Any, signature: Signature, coarse: Iterable[str], fixed: Collection[tuple[int, int]]
) -> list[str]:
    """List what is not as in torch.

    Args:
        program, signature: what torch exported, and its arguments and results.
        coarse: operators that give float64 and are computed in float32.
        fixed: axes that are fixed although they were to be dynamic, each with the number of its argument.
    """
    notes = []
    fakes = signature.fakes()
    specs = program.graph_signature.input_specs
    brain = [s for s in specs if getattr(fakes.get(s.arg.name), "dtype", None) is torch.bfloat16]
    if brain:
        names = ", ".join(s.target or s.arg.name for s in brain)
        notes.append(f"bfloat16 is float32, rounded to bfloat16 after each operator in the graph: {names}")
    if coarse:
        notes.append(f"computed in float32 although the result is float64: {', '.join(coarse)}")
    if fixed:
        inputs = [s.arg.name for s in signature.user_inputs()]
        axes = ", ".join(f"{inputs[place]} axis {axis}" for place, axis in sorted(fixed))
        notes.append(f"the graph is valid for one size of {axes}; calls at other sizes trace separate graphs")
    return notes + _changes(program)


def surprises(program: Any, coarse: Iterable[str]) -> list[str]:
    """List what a caller is to be warned of."""
    notes = [f"float64 is computed in float32 by {', '.join(coarse)}"] if coarse else []
    return notes + _changes(program)


def _changes(program: Any) -> list[str]:
    """List what the module changes and the graph does not."""
    notes = []
    if changed := _changed(program, "BUFFER_MUTATION"):
        notes.append(
            f"the module changes its buffers {', '.join(changed)} in every call, which the graph does not; was "
            ".eval() forgotten?"
        )
    if written := _changed(program, "USER_INPUT_MUTATION"):
        notes.append(
            f"the module writes to its arguments {', '.join(written)}; the graph leaves them as they are: return them "
            "as well where a caller reads them"
        )
    return notes


def _changed(program: Any, kind: str) -> list[str]:
    specs = program.graph_signature.output_specs
    kept = {n.name for n in program.graph.nodes if n.op == "call_function" and _is_kept(n)}
    return [s.target for s in specs if s.kind.name == kind and s.arg.name not in kept]


def _is_kept(node: Any) -> bool:
    """Whether a node gives a buffer as it was: scales of observers, which are lowered only where they are off."""
    source = node.args[0] if node.args else None
    return "moving_avg_obs" in str(getattr(source, "target", ""))
