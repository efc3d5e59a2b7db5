"""Preparation for execution: a graph's inputs, what is fed to them, what is the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from ..base.errors import InputError
from ..graph import Opr, Var
from ..graph.dtypes import Array

__all__ = ["checked_feeds", "constant_ids", "fed_value", "graph_inputs"]


def graph_inputs(oprs: Iterable[Opr]) -> dict[str, Var]:
    """Return the inputs among operators, by name."""
    return {o.outputs[0].name or "": o.outputs[0] for o in oprs if o.type == "Host2DeviceCopy"}


def checked_feeds(inputs: Mapping[str, Var], feeds: Mapping[str, Array]) -> dict[int, Array]:
    """Return the values of all inputs by variable id, scalars as arrays of one element.

    Args:
        inputs: the inputs by name.
        feeds: arrays by input name, in the inputs' storage dtype.

    Raises:
        InputError: an input is missing or has another dtype.
    """
    values = ((var, fed_value(name, var, feeds)) for name, var in inputs.items())
    return {var.id: array.reshape(1) if array.ndim == 0 else array for var, array in values}


def fed_value(name: str, var: Var, feeds: Mapping[str, Array]) -> Array:
    """Return what is fed to an input, or what the file holds for it.

    Raises:
        InputError: it is missing or has another dtype.
    """
    tensor = var.owner.tensors[0]
    if name not in feeds and tensor.data is None:
        shape = "of any shape" if tensor.shape is None else str(list(tensor.shape))
        given = ", ".join(feeds) or "none"
        raise InputError(f"input {name!r} ({tensor.dtype} {shape}) is missing; found {given}")
    array = feeds[name] if name in feeds else tensor.value()
    want = tensor.dtype.np
    if array.dtype != want:
        raise InputError(f"input {name!r} takes {tensor.dtype} ({want}), got an array of {array.dtype}")
    return array


def constant_ids(oprs: Iterable[Opr], guarded: Container[int], repeats: Callable[[Opr], bool]) -> set[int]:
    """Return the ids of the variables that are the same in every run.

    Args:
        oprs: operators, inputs before their readers.
        guarded: ids of those that are executed only sometimes.
        repeats: whether an operator gives the same for the same inputs.
    """
    constant: set[int] = set()
    for opr in oprs:
        if opr.type == "Host2DeviceCopy" or opr.id in guarded or not repeats(opr):
            continue
        if all(v.id in constant for v in opr.inputs):
            constant.update(v.id for v in opr.outputs)
    return constant
