"""Tables that both format versions share: dtypes, parameter records, names of computing nodes."""

from __future__ import annotations

from struct import Struct
from typing import Any

from ..dtypes import DType
from ..ops.catalog import CATALOG, Op, TypeParam
from ..params import AxisDesc, DTypeEnum, DTypeScalar, IndexItem, Record
from . import history
from .flat import Table

__all__ = ["check_params", "find_op", "read_dtype", "read_param", "read_params"]

_AXIS_DESC, _INDEX_ITEM, _DTYPE_SCALAR = Struct("<bxxxi"), Struct("<b????"), Struct("<b4s")


def read_dtype(t: Table) -> DType:
    """A DType table."""
    code = t.integer(0, "byte")
    try:
        name = DTypeEnum(code).name
    except ValueError:
        raise t.buf.error(
            f"dtype {code} is unknown; the known ones are 0 to {max(DTypeEnum)}", t.pos
        ) from None
    dtype = DType(name)
    if not dtype.is_quantized:
        return dtype
    param = t.table(2)
    if param is None:
        raise t.buf.error(f"dtype {name} lacks its scale", t.pos)
    zero = param.integer(1, "ubyte") if dtype.is_asymmetric else 0
    return DType(name, float(param.scalar(0, "float")), zero)


def read_param(t: Table, code: int, mge_version: int) -> Record:
    """The parameter record with that union code."""
    try:
        kind = Record.by_code[code]
    except KeyError:
        raise t.buf.error(f"parameter record {code} is unknown", t.pos) from None
    if kind is TypeParam:
        return TypeParam(dtype=read_dtype(t))
    layout = history.fields(kind, mge_version)
    values: dict[str, Any] = {}
    for slot, f in enumerate(layout):
        if f.enum is not None:
            raw = t.integer(slot, f.wire, int(f.default))
            try:
                values[f.name] = history.member(f.enum, raw, mge_version)
            except ValueError as e:
                raise t.buf.error(f"{kind.__name__}.{f.name}: {e}", t.pos) from None
        elif f.wire == "[int]":
            values[f.name] = t.numbers(slot, "int") or ()
        elif f.wire == "[AxisDesc]":
            values[f.name] = tuple(AxisDesc(*v) for v in t.structs(slot, _AXIS_DESC))
        elif f.wire == "[IndexItem]":
            values[f.name] = tuple(IndexItem(v[0], *map(bool, v[1:])) for v in t.structs(slot, _INDEX_ITEM))
        elif f.wire == "DTypeScalar":
            at = t.at(slot, _DTYPE_SCALAR.size)
            values[f.name] = DTypeScalar(*_DTYPE_SCALAR.unpack_from(t.buf.data, at)) if at else f.default
        else:
            values[f.name] = t.scalar(slot, f.wire, f.default)
    return history.upgrade(kind, values)


def read_params(t: Table, slots: tuple[int, int, int, int], mge_version: int) -> tuple[Record, ...]:
    """All parameter records of an operator; `slots` are tag, table, additional tags, additional tables."""
    found = []
    code = t.integer(slots[0], "ubyte")
    first = t.table(slots[1])
    if code and first is None:
        raise t.buf.error(f"parameter record {code} is announced but absent", t.pos)
    if code and first is not None:
        found.append(read_param(first, code, mge_version))
    found += [read_param(m, c, mge_version) for c, m in t.unions(slots[2], slots[3])]
    return tuple(found)


def check_params(t: Table, op: Op, params: tuple[Record, ...]) -> tuple[Record, ...]:
    """Match records with what the operator expects; surplus ones are ignored, as MegEngine does."""
    for i, kind in enumerate(op.params):
        got = type(params[i]).__name__ if i < len(params) else "none"
        if i >= len(params) or type(params[i]) is not kind:
            raise t.buf.error(
                f"operator {op.name} needs parameter record {kind.__name__}, found {got}", t.pos
            )
    return params


def _index(attribute: str) -> dict[int, Op]:
    table: dict[int, Op] = {}
    for op in CATALOG.values():
        key = getattr(op, attribute)
        if key is not None:
            # ResizeV2 keeps the id that a retired name shares with it.
            table.setdefault(key, op)
    return table


_INDEXES: dict[str, dict[int, Op]] = {}


def find_op(t: Table, kind: str, type_id: int, name: str | None = None) -> Op:
    """The operator with a type id; `kind` is id_v1, id_mgbs or id_v2."""
    if kind not in _INDEXES:
        _INDEXES[kind] = _index(kind)
    op = _INDEXES[kind].get(type_id)
    if op is None:
        said = f" (the file calls it {name!r})" if name else ""
        raise t.buf.error(
            f"operator with type id {type_id}{said} is unknown; the file may come from a newer MegEngine, "
            "from a build with private operators, or be damaged",
            t.pos,
        )
    return op
