"""The definitions of all operators, made from the catalog."""

from __future__ import annotations

from enum import IntFlag
from typing import Any

from ...ops.catalog import CATALOG, Op
from .definition import OpDef
from .parameters import MODULE, OWN_PARAMETERS, OpParameter, Owners, class_name, dtype_of

__all__ = ["DEFINITIONS"]

_NEWER = ("GaussianBlur",)
"""Operators without a definition in MegEngine, which therefore own no enum that others share."""
_HIDDEN = {"CondTake": {"mode", "val", "eps"}, "Dimshuffle": {"ndim"}}
"""Fields of records that MegEngine's definitions do not show, beside ``workspace_limit``."""


def _shown_fields(name: str, op: Op) -> list[Any]:
    """Return the fields of an operator's records that MegEngine's definition shows."""
    hidden = _HIDDEN.get(name, set()) | {"workspace_limit"}
    fields = [f for p in op.params for f in p.fields()]
    return [f for f in fields if f.name not in hidden]


def _definition(name: str, op: Op, owners: Owners, **fixed: Any) -> type[OpDef]:
    """Return the class of an operator."""
    parameters: dict[str, OpParameter] = {}
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": MODULE,
        "__qualname__": name,
        "__doc__": f"Operator {op.name}.",
        "op": op,
        "fixed": fixed,
        "parameters": parameters,
    }
    if fixed:
        parameters["axis"] = OpParameter("axis", ())
        return type(name, (OpDef,), body)
    for field in _shown_fields(name, op):
        parameters[field.name] = OpParameter(field.name, field.default, field.enum)
    for own, default in OWN_PARAMETERS.get(name, {}).items():
        parameters[own] = OpParameter(own, default, type(default) if isinstance(default, IntFlag) else None)
    for kind in parameters.values():
        if kind.name == "dtype" and kind.default is not None:
            parameters["dtype"] = OpParameter("dtype", dtype_of(kind.default))
        elif kind.enum is not None:
            choices = owners.of(kind.enum, name, class_name(kind.name))
            body[class_name(kind.name)] = choices
            parameters[kind.name] = kind._replace(choices=choices)
    return type(name, (OpDef,), body)


def _all() -> dict[str, type[OpDef]]:
    kinds: dict[str, Op] = {}
    for op in CATALOG.values():
        if op.family:
            kinds.setdefault(op.class_name.removesuffix("Forward"), op)
    axes = kinds.pop("AxisAddRemove")
    owners = Owners()
    order = sorted(kinds, key=lambda name: (name in _NEWER, name))
    definitions = {name: _definition(name, kinds[name], owners) for name in order}
    for name, method in (("AddAxis", 0), ("RemoveAxis", 1)):
        definitions[name] = _definition(name, axes, owners, method=method)
    return definitions


DEFINITIONS: dict[str, type[OpDef]] = _all()
"""The operators by name."""
