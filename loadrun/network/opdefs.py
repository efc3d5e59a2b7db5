"""Operators with their parameters as values, named as in ``megengine.core.ops.builtin`` and made from the catalog."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from ..errors import UsageError
from ..graph import Opr, Var
from ..imperative.apply import apply as apply_type
from ..imperative.dtypes import graph_dtype
from ..imperative.value import Tensor
from ..ops.catalog import CATALOG, Op
from ..params import AxisDesc, IndexItem, Record

__all__ = ["DEFINITIONS", "OpDef", "apply"]


class OpDef:
    """One operator with its parameters; subclasses are named as MegEngine names them.

    Args:
        values: parameters in the order of the record's fields.
        named: parameters by name; enums as members or as names, of any case.

    >>> from loadrun import tensor
    >>> apply(DEFINITIONS["Elemwise"](mode="add"), tensor([1.0]), tensor([2.0]))[0].tolist()
    [3.0]
    """

    op: ClassVar[Op]
    fixed: ClassVar[dict[str, Any]] = {}

    def __init__(self, *values: Any, **named: Any) -> None:
        names = [f.name for p in self.op.params for f in p.fields()]
        given = {**dict(zip(names, values, strict=False)), **named}
        given.pop("comp_node", None)
        for name in ("dimA", "dimB"):
            given.pop(name, None)
        self.output_dtype = None
        if "dtype" in given and "dtype" not in names:
            self.output_dtype = graph_dtype(given.pop("dtype"))
        if "axis" in given and self.op.name == "AxisAddRemove":
            axes = given.pop("axis")
            given["desc"] = tuple(AxisDesc(self.fixed["method"], int(a)) for a in axes)
        records = []
        for kind in self.op.params:
            own = {f.name: f for f in kind.fields()}
            records.append(kind(**{k: _typed(own[k], given.pop(k)) for k in list(given) if k in own}))
        if given:
            raise UsageError(
                f"{type(self).__name__} has no parameter {', '.join(given)}; it has {', '.join(names)}"
            )
        self.records: tuple[Record, ...] = tuple(records)

    def __getattr__(self, name: str) -> Any:
        for record in self.__dict__.get("records", ()):
            if name in {f.name for f in record.fields()}:
                return getattr(record, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.records))})"


def _typed(field: Any, value: Any) -> Any:
    if field.enum is not None and isinstance(value, str):
        names = {n.lower(): m for n, m in field.enum.__members__.items()}
        if value.lower() not in names:
            raise UsageError(f"{field.name} is one of {', '.join(field.enum.__members__)}, found {value!r}")
        return names[value.lower()]
    if field.name == "items":
        return tuple(IndexItem(int(i[0]), *map(bool, i[1:])) for i in value)
    if field.name == "dtype":
        return value if isinstance(value, IntEnum) else graph_dtype(value)
    return tuple(value) if isinstance(value, list) else value


def apply(op: OpDef, *inputs: Any) -> list[Tensor]:
    """Return the outputs of an operator.

    Args:
        op: the operator.
        inputs: its inputs.
    """
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in inputs]
    probe = Opr(op.op.name, op.records)
    probe.inputs = [Var(i, probe, 0) for i in range(len(tensors))]
    n = op.op.n_outputs(probe)
    return apply_type(op.op.name, *op.records, inputs=tensors, n=n, output_dtype=op.output_dtype)


def _all() -> dict[str, type[OpDef]]:
    found: dict[str, type[OpDef]] = {}
    for op in CATALOG.values():
        if not op.family:
            continue
        name = op.class_name.removesuffix("Forward")
        enums = {
            f.name.title().replace("_", ""): f.enum
            for p in op.params
            for f in p.fields()
            if f.enum is not None
        }
        body: dict[str, Any] = {**enums, "op": op, "__doc__": f"Operator {op.name}.", "__module__": __name__}
        found.setdefault(name, type(name, (OpDef,), body))
    base = found.pop("AxisAddRemove")
    for name, method in (("AddAxis", 0), ("RemoveAxis", 1)):
        found[name] = type(name, (base,), {"fixed": {"method": method}, "__module__": __name__})
    return found


DEFINITIONS: dict[str, type[OpDef]] = _all()
"""The operators by name."""
