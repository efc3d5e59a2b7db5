"""Parameters of operators as MegEngine's nodes show them, and back."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ...base.errors import UsageError
from ...graph import Opr
from ...graph.dtypes import DType
from ...graph.params import IndexItem, Record
from ...tensors.dtypes import graph_dtype, numpy_dtype

__all__ = ["in_field_type", "readable"]


def readable(opr: Opr) -> dict[str, Any]:
    """Return an operator's parameters as MegEngine's nodes show them.

    >>> from loadrun.graph.params import Elemwise, ElemwiseMode
    >>> readable(Opr("Elemwise", (Elemwise(mode=ElemwiseMode.ADD),)))
    {'mode': 'ADD'}
    """
    params: dict[str, Any] = {}
    for record in opr.params:
        for name, value in record.pairs():
            if name == "items":
                value = [[i.axis, *map(bool, i[1:])] for i in value]
            elif isinstance(value, IntEnum):
                value = value.name
            elif isinstance(value, DType):
                value = numpy_dtype(value)
            params.setdefault(name, value)
    if opr.output_dtype is not None:
        params["dtype"] = numpy_dtype(opr.output_dtype)
    if opr.tensors:
        return {}
    if opr.type == "Dimshuffle":
        params["pattern"] = list(params["pattern"])
        params.pop("ndim", None)
    if opr.type == "AxisAddRemove":
        params = {"axis": [d.axis for d in params["desc"]]}
    return params


def in_field_type(record: Record, name: str, value: Any) -> Any:
    """Return a parameter's value in the type of its field.

    Raises:
        UsageError: an enum has no such member.
    """
    field = next(f for f in record.fields() if f.name == name)
    if field.enum is not None and isinstance(value, str):
        try:
            return field.enum[value]
        except KeyError:
            raise UsageError(
                f"{name} is one of {', '.join(field.enum.__members__)}, found {value!r}"
            ) from None
    if isinstance(field.default, DType):
        return graph_dtype(value)
    if name == "items":
        return tuple(IndexItem(int(i[0]), *map(bool, i[1:])) for i in value)
    return tuple(value) if isinstance(value, list) else value
