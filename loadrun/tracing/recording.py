"""What one run of a traced function did: the graph of its operators, and what a later call must do again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, encode
from ..graph.params import AxisAddRemove, AxisDescMethod
from ..ops.catalog import CATALOG
from ..ops.infer import Inference
from ..tensors.access import attribute_path, tensor_name
from ..tensors.source import Place
from ..tensors.value import Tensor

__all__ = ["Capture", "RecordedInput", "RecordedOpr", "Recording", "constant", "name_of", "plain_title"]

_IMMUTABLE = 1024
"""Constants of at most this many elements are ImmutableTensor, whose value inference may follow."""


class RecordedInput(NamedTuple):
    """What an operator's input was: a variable made inside, or a value from outside.

    Attributes:
        var: the variable.
        value: the value from outside, None for what was made inside.
        fixed: whether the value must be the same in every call.
    """

    var: Var
    value: Array | None = None
    fixed: bool = False


@dataclass(eq=False)
class RecordedOpr:
    """One recorded operator."""

    opr: Opr
    sources: tuple[RecordedInput, ...]
    scalar: bool
    place: Place


@dataclass(eq=False)
class Capture:
    """A tensor from outside that the function uses, not as an argument."""

    var: Var
    tensor: Tensor
    value: Array
    fixed: bool


@dataclass(eq=False)
class Recording:
    """What one run of a function did.

    Attributes:
        graph: its operators; arguments and captured tensors that may change are graph inputs.
        entries: the operators again, with what their inputs were.
        args: the variables of the arguments, by name.
        scalars: the arguments without axes.
        names: names that the arguments had themselves.
        captures: the tensors from outside.
        known: shapes and small values of the traced run.
        static: ids of the variables that are constant.
        fluid: ids of the variables whose sizes the data may decide.
        choices: what was decided by sizes, by what it was decided about.
        excluded: where a region was left out of the recording.
        counted: where a size that the data decide was first taken as a number.
        measured: where a size that may differ in a later call was first taken as a number.
    """

    graph: Graph = field(default_factory=Graph)
    entries: list[RecordedOpr] = field(default_factory=list)
    args: dict[str, Var] = field(default_factory=dict)
    scalars: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    known: Inference = field(default_factory=Inference)
    static: set[int] = field(default_factory=set)
    fluid: set[int] = field(default_factory=set)
    choices: dict[tuple[Any, ...], bool] = field(default_factory=dict)
    excluded: Place | None = None
    measured: Place | None = None
    counted: Place | None = None


def plain_title(opr: Opr) -> str:
    """Return the name of an operator without the version of its type: ``ADD``, ``MatrixMul``, ``AddAxis``."""
    if opr.type == "AxisAddRemove":
        added = opr.get(AxisAddRemove).desc[0].method == AxisDescMethod.ADD_1
        return "AddAxis" if added else "RemoveAxis"
    return CATALOG[opr.type].title or re.sub(r"(V\d|MGB)$", "", opr.title)


def name_of(tensor: Tensor) -> str | None:
    """Return the name of a tensor from outside: the path of a module's parameter, or the name that it was given."""
    return attribute_path(tensor) or tensor_name(tensor) or None


def constant(graph: Graph, value: Array, dtype: DType, name: str | None) -> Var:
    """Append a constant; small ones as ImmutableTensor, as MegEngine does."""
    small = value.size <= _IMMUTABLE and name is None
    held = StoredTensor(dtype, value.shape, name, encode(value, dtype))
    type = "ImmutableTensor" if small else "SharedDeviceTensor"
    (var,) = graph.add(type, names=[name], tensors=[held])
    var.dtype, var.shape = dtype, value.shape
    return var
