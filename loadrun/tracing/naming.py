"""The names in a dump: of inputs, outputs, operators and variables, as MegEngine gives them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..base.errors import TraceError, UsageError, UsageTypeError
from ..graph import Graph, Opr, Var
from ..graph.dtypes import decode
from ..graph.params import Elemwise
from ..ops.catalog import CATALOG, types
from ..ops.elemwise.table import ROWS
from ..ops.numbering import ascending, upward
from ..ops.op import Trait
from .recording import Recording, plain_title


def input_names(recording: Recording, requested: str | Sequence[str | None] | None) -> dict[str, str]:
    """Return new names by the names that the recording has: those given, else the tensors' own."""
    args = list(recording.args)
    positional = [a for a in args if a.startswith("arg_")]
    names = {a: a.removeprefix("kwarg_") for a in args}
    unique = {a: n for a, n in recording.names.items() if list(recording.names.values()).count(n) == 1}
    names.update((a, n) for a, n in unique.items() if n not in names.values())
    if requested is not None:
        wanted = [requested] if isinstance(requested, str) else list(requested)
        if len(wanted) != len(positional):
            raise UsageError(
                f"wrong number of arg_names, should be {len(positional)} values: found {len(wanted)} "
                f"({', '.join(map(repr, wanted))}) for {', '.join(positional) or 'no positional tensors'}"
            )
        names.update({a: n for a, n in zip(positional, wanted, strict=True) if n})
    doubled = {n for n in names.values() if list(names.values()).count(n) > 1}
    if doubled:
        raise UsageError(f"two inputs cannot have the same name: {', '.join(sorted(doubled))}")
    return names


def output_names_of(
    structure: Any,
    outs: Sequence[Var],
    paths: Sequence[tuple[Any, ...]],
    requested: str | Sequence[str] | None,
) -> list[str | None]:
    """Return names of the outputs: those of a dict, those given, or None."""
    if isinstance(structure, dict):
        if requested:
            raise UsageTypeError(
                "cannot specify output_names when output is already in dict format; its keys are the names: "
                + ", ".join(map(str, structure))
            )
        return [".".join(map(str, p)) for p in paths]
    if not requested:
        return [None] * len(outs)
    names = [requested] if isinstance(requested, str) else list(requested)
    if len(names) != len(outs):
        raise UsageError(
            f"wrong number of output_names, should be {len(outs)} values: found {len(names)} "
            f"({', '.join(map(repr, names))})"
        )
    return [n or None for n in names]


def name_outputs(graph: Graph, names: Sequence[str | None]) -> None:
    """Name the outputs; a variable that is an output twice, or an input, gets an operator of its own."""
    taken: set[int] = set()
    for i, (var, name) in enumerate(zip(graph.outputs, names, strict=True)):
        if name is None:
            if var.id in taken or var.owner.type == "Host2DeviceCopy":
                graph.outputs[i] = graph.add("Identity", inputs=[var])[0]
                graph.outputs[i].owner.name = "Identity"
        elif var.id in taken or (var.owner.type == "Host2DeviceCopy" and var.name != name):
            graph.outputs[i] = graph.add("Identity", inputs=[var], names=[name])[0]
        else:
            var.name = name
        taken.add(graph.outputs[i].id)
    new_names = [n for n in names if n]
    doubled = {n for n in new_names if new_names.count(n) > 1}
    if doubled:
        raise UsageError(f"two outputs cannot have the same name: {', '.join(sorted(doubled))}")


def rename_outputs(before: Graph, graph: Graph) -> None:
    """Name unnamed outputs after what gives them now, as MegEngine does where an operator went away."""
    taken = {v.name for v in graph.vars()}
    for old, new in zip(before.outputs, graph.outputs, strict=True):
        mine = old.name == _label(old.owner, old)
        if not mine or not new.owner.name or new.owner.name == old.owner.name or _keeps_name(old.owner):
            continue
        label = _label(new.owner, new)
        if label not in taken:
            new.name = label
            taken.add(label)


def _keeps_name(opr: Opr) -> bool:
    """Return whether MegEngine keeps the operator or its name, unless it undoes or repeats another or has no number."""
    if opr.type != "Elemwise":
        return False
    shapes = [t.shape for v in opr.inputs for t in v.owner.tensors if v.owner.type == "ImmutableTensor"]
    return ROWS[opr.get(Elemwise).mode].neutral is None or any(shape != (1,) for shape in shapes)


def order_operands(graph: Graph) -> None:
    """Bring operands that may change places into the order in which MegEngine makes them while it dumps.

    It makes the inputs of the graph first, then the constants, then what is computed.
    """

    def place(var: Var) -> tuple[bool, bool, int]:
        return var.owner.type != "Host2DeviceCopy", not var.owner.tensors, places[var.id]

    places = {var.id: i for i, var in enumerate(graph.vars())}
    for opr in graph.oprs:
        opr.inputs[:] = ascending(opr, place)


def make_names_unique(graph: Graph) -> None:
    """Name operators after what they are, numbered where several have the same name, and variables after them.

    They are numbered in the order in which the outputs, one after the other, need them, as MegEngine does. Those
    without a name get one that tells their inputs and a number that nothing else has.
    """
    taken = {v.name for v in graph.vars() if v.name}
    oprs = upward(v.owner for v in graph.outputs)
    groups: dict[str, list[Opr]] = {}
    for opr in oprs:
        if opr.name and opr.type != "Host2DeviceCopy":
            groups.setdefault(opr.name, []).append(opr)
    for name, group in groups.items():
        for i, opr in enumerate(group):
            opr.name = name if len(group) == 1 else f"{name}[{i}]"
            for var in opr.outputs:
                if not var.name:
                    label = _label(opr, var)
                    var.name = label if label not in taken else f"{label}[{var.id}]"
    constants = sorted((o for o in oprs if o.type == "ImmutableTensor"), key=lambda o: o.id)
    # An operator takes two numbers, one for itself and one for its variable.
    for i, opr in enumerate(constants, len(graph.input_order)):
        if not opr.outputs[0].name:
            opr.name = opr.outputs[0].name = _constant_name(opr, 2 * i)
    for opr in oprs:
        if not opr.name and not opr.tensors:
            operands = ",".join(v.name or f"var{v.id}" for v in opr.inputs)
            opr.name = f"{plain_title(opr)}({operands})[{opr.outputs[0].id}]"
            for var in opr.outputs:
                var.name = var.name or _label(opr, var)


def _constant_name(opr: Opr, number: int) -> str:
    """Return the name of a constant: its value, or its shape, and its number among operators and variables."""
    tensor = opr.tensors[0]
    shape = tensor.shape or (1,)
    sizes = "" if shape == (1,) else "{" + ",".join(map(str, shape)) + "}"
    value = ""
    if prod(shape) == 1 and tensor.data is not None:
        value = f"<{decode(tensor.data, shape, tensor.dtype).item():.3g}>"
    return f"const{value}{sizes}[{number}]"


def _label(opr: Opr, var: Var) -> str:
    """Return the name of a variable: its operator's, with its place where MegEngine's operator gives several."""
    name = opr.name or plain_title(opr)
    first = opr.type == "MultiHeadAttn" and not var.index
    if first or (len(opr.outputs) == 1 and opr.type not in _COUNTED):
        return name
    # The last outputs of MegEngine's BatchNorm are those that a file has; it counts all.
    hidden = CATALOG[opr.type].all_outputs - len(opr.outputs) if opr.type == "BatchNormV1" else 0
    return f"{name}:o{var.index + hidden}"


_COUNTED = types(Trait.COUNTED)


class DumpValueError(TraceError, ValueError):
    """What is requested cannot be dumped."""
