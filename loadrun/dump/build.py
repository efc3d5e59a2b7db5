"""What the readers of both versions share: operators linked, and tables of dtypes, parameter records and names."""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import isfinite, prod
from struct import Struct
from typing import Final

import numpy as np

from ..graph import Graph, Metadata, Opr, StoredTensor, Var
from ..graph.dtypes import DType, plain
from ..graph.params import AxisDesc, DTypeEnum, DTypeScalar, Host2DeviceCopy, IndexItem, Record, RecordField
from ..ops.catalog import CATALOG, TypeParam
from ..ops.op import Op, unversioned_id
from . import history
from .flat import SCALARS, Table

MAX_NDIM = 7
_MAX_ELEMENTS = 2**56
"""No machine holds more; below it numpy's sizes in bytes cannot wrap."""


class GraphAssembler:
    """Collects operators in file order and gives their outputs running numbers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.vars: list[Var] = []

    def link(self, t: Table, op: Op, inputs: Sequence[int]) -> list[Var]:
        """Return the operator's inputs by their numbers; each must belong to an earlier operator."""
        for number in inputs:
            if number >= len(self.vars):
                raise t.buf.error(
                    f"operator {op.name} reads variable {number}, but only {len(self.vars)} exist before it",
                    t.pos,
                )
        _check_arity(t, op, len(inputs))
        return [self.vars[i] for i in inputs]

    def append(self, t: Table, opr: Opr, n_outputs: int) -> None:
        """Add the operator with that many output variables."""
        # A parameter may give the number, so it is paid for like anything that is read.
        if 8 * n_outputs > t.buf.budget:
            raise t.buf.error(
                f"operator {opr.type} claims {n_outputs} outputs, more than the file can name", t.pos
            )
        t.buf.spend(8 * n_outputs, t.pos)
        opr.id = len(self.graph.oprs)
        for i in range(n_outputs):
            var = Var(len(self.vars), opr, i)
            opr.outputs.append(var)
            self.vars.append(var)
        self.graph.oprs.append(opr)

    def set_metadata(self, t: Table | None, *, options: int, user_info: int) -> None:
        """Read the metadata table, if there is one; the versions number two of its fields differently."""
        if t is not None:
            valid, modified = bool(t.scalar(0, "bool")), bool(t.scalar(1, "bool"))
            self.graph.header.metadata = Metadata(
                valid, modified, t.integer(options, "ulong"), t.raw_string(user_info)
            )

    def set_outputs(self, t: Table, pairs: Sequence[tuple[int, ...]]) -> None:
        """Resolve the output list: pairs of variable number and number in the dumping graph."""
        if not pairs:
            raise t.buf.error("the dump lists no outputs: it is damaged or was not finished", t.pos)
        for number, _ in pairs:
            if number >= len(self.vars):
                raise t.buf.error(
                    f"output variable {number} does not exist, there are {len(self.vars)}", t.pos
                )
        self.graph.outputs = [self.vars[n] for n, _ in pairs]
        self.graph.header.original_ids = [o for _, o in pairs]


def _check_arity(t: Table, op: Op, count: int) -> None:
    least, most = _arity(op.inputs)
    if count < least or (most is not None and count > most):
        want = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
        noun = "input" if want == "1" else "inputs"
        raise t.buf.error(
            f"operator {op.name} takes {want} {noun} ({op.inputs or 'none'}), found {count}", t.pos
        )


@cache
def _arity(inputs: str) -> tuple[int, int | None]:
    """Return the smallest and the greatest number of inputs by their roles, None if any number goes."""
    roles = inputs.split()
    least = sum(not r.endswith(("?", "...")) for r in roles)
    return least, None if any(r.endswith("...") for r in roles) else len(roles)


def check_shape(t: Table, shape: tuple[int, ...] | None, what: str) -> tuple[int, ...] | None:
    """Refuse shapes with more axes or elements than there can be; no axes mean that the shape is open."""
    if not shape:
        return None
    if len(shape) > MAX_NDIM:
        raise t.buf.error(f"{what} has {len(shape)} axes, at most {MAX_NDIM} are possible", t.pos)
    if prod(shape if 0 not in shape else [n or 1 for n in shape]) > _MAX_ELEMENTS:
        raise t.buf.error(f"{what} has the shape {list(shape)}, which is too large for memory", t.pos)
    return shape


def comp_node(t: Table) -> str:
    """Return the text of a computing node table."""
    text = t.text(0)
    if text is None:
        raise t.buf.error("a computing node has no name", t.pos)
    return text


def take_blobs(t: Table, opr: Opr, blobs: list[Table], *, required: bool) -> None:
    """Give an operator its blobs; FBS v1 requires their data."""
    contents = []
    for blob in blobs:
        view = blob.bytes_view(0)
        if view is None and required:
            raise t.buf.error("a blob has no data", blob.pos)
        contents.append(b"" if view is None else view.tobytes())
    if contents:
        opr.dumped = opr.dumped._replace(blobs=tuple(contents))


def constant_or_input(t: Table, opr: Opr, op: Op) -> None:
    """Check the tensors of an operator and let its outputs take their names, shapes and dtypes."""
    if op.category == "io":
        if not opr.tensors or (not op.name.startswith("Multiple") and len(opr.tensors) != 1):
            want = "at least one tensor" if op.name.startswith("Multiple") else "one tensor"
            raise t.buf.error(f"operator {op.name} holds {want}, found {len(opr.tensors)}", t.pos)
        default = op.name != "Host2DeviceCopy" or opr.get(Host2DeviceCopy).dump_default_value
        for tensor in opr.tensors:
            if default and tensor.shape is not None and 0 in tensor.shape:
                # A value without elements is not told from none by its bytes.
                tensor.data = np.zeros(0, np.uint8)
            if op.name != "Host2DeviceCopy" and tensor.data is None:
                raise t.buf.error(f"operator {op.name} has a tensor without a value", t.pos)
    elif opr.tensors:
        raise t.buf.error(f"operator {op.name} holds no tensors, found {len(opr.tensors)}", t.pos)


def describe(var: Var, tensor: StoredTensor) -> None:
    """Let the output of a tensor-carrying operator know what the tensor says."""
    dtype: DType = tensor.dtype
    var.dtype, var.shape = dtype, tensor.shape
    var.name = tensor.name or var.name


_AXIS_DESC, _INDEX_ITEM, _DTYPE_SCALAR = Struct("<bxxxi"), Struct("<b????"), Struct("<b4s")
_DTYPES: Final = {int(d): plain(d.name) for d in DTypeEnum}
_RECORDS, _LARGEST = 4096, 256
"""How many records of one form are kept for further operators and files, and how many bytes such a form has at most."""


def read_dtype(t: Table) -> DType:
    """Read a DType table."""
    code = t.integer(0, "byte")
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise t.buf.error(f"dtype {code} is unknown; expected 0 to {max(DTypeEnum)}", t.pos)
    if not dtype.is_quantized:
        return dtype
    name = dtype.name
    param = t.table(2) if t.integer(1, "ubyte") == 1 else None
    if param is None:
        raise t.buf.error(f"dtype {name} has no scale", t.pos)
    scale = float(param.scalar(0, "float"))
    if not isfinite(scale):
        raise t.buf.error(f"dtype {name} has the scale {scale}, expected a finite number", param.pos)
    return DType(name, scale, param.integer(1, "ubyte") if dtype.is_asymmetric else 0)


def read_param(t: Table, code: int, mge_version: int) -> Record:
    """Read the parameter record with that union code."""
    kind = Record.by_code.get(code)
    if kind is None:
        raise t.buf.error(
            f"parameter record {code} is unknown; the file may come from a newer MegEngine", t.pos
        )
    if kind is TypeParam:
        return TypeParam(dtype=read_dtype(t))
    # Records are immutable, so operators whose tables agree byte for byte share one, those of other files, too.
    end, known = t.buf.records.get((code, t.vt)) or _shared(t, code, kind, mge_version)
    if not end:
        return _build(t, kind, mge_version)
    raw = t.buf.data[t.pos + 4 : t.pos + end].tobytes()
    param = known.get(raw)
    if param is None:
        param = _build(t, kind, mge_version)
        if len(known) < _RECORDS:
            known[raw] = param
    return param


def _shared(t: Table, code: int, kind: type[Record], mge_version: int) -> tuple[int, dict[bytes, Record]]:
    """Return where the fields of tables of that form end, or 0, and the records known by them."""
    end = 0
    if _is_flat(code):
        layout = history.fields(kind, mge_version)
        end = max((off + _width(f) for off, f in zip(t.offsets, layout, strict=False) if off), default=4)
        end = end if end <= _LARGEST else 0
    entry = t.buf.records[code, t.vt] = end, _known(code, t.offsets, mge_version)
    return entry


@lru_cache(maxsize=256)
def _known(code: int, offsets: tuple[int, ...], mge_version: int) -> dict[bytes, Record]:
    return {}


def _build(t: Table, kind: type[Record], mge_version: int) -> Record:
    layout = history.fields(kind, mge_version)
    values = {f.name: _field(t, slot, f, kind, mge_version) for slot, f in enumerate(layout)}
    return history.upgrade(kind, values)


def _width(f: RecordField) -> int:
    return _DTYPE_SCALAR.size if f.wire == "DTypeScalar" else SCALARS[f.wire].size


@cache
def _is_flat(code: int) -> bool:
    """Return whether tables of that record hold all their values inline."""
    return not any(f.wire.startswith("[") for f in Record.by_code[code].fields())


def _field(t: Table, slot: int, f: RecordField, kind: type[Record], mge_version: int) -> object:
    if f.enum is not None:
        raw = t.integer(slot, f.wire, int(f.default))
        try:
            return history.member(f.enum, raw, mge_version)
        except ValueError as e:
            raise t.buf.error(f"{kind.__name__}.{f.name}: {e}", t.pos) from None
    if f.wire == "[int]":
        return t.numbers(slot, "int") or ()
    if f.wire == "[AxisDesc]":
        return tuple(AxisDesc(*v) for v in t.structs(slot, _AXIS_DESC))
    if f.wire == "[IndexItem]":
        return tuple(IndexItem(v[0], *map(bool, v[1:])) for v in t.structs(slot, _INDEX_ITEM))
    if f.wire == "DTypeScalar":
        at = t.at(slot, _DTYPE_SCALAR.size, align=1)
        return DTypeScalar(*_DTYPE_SCALAR.unpack_from(t.buf.data, at)) if at else f.default
    return t.scalar(slot, f.wire, f.default)


def read_params(
    t: Table, code: int, first: Table | None, more: list[tuple[int, Table]], mge_version: int
) -> tuple[Record, ...]:
    """Read all parameter records of an operator: the first with its union code, and the additional ones."""
    if not code:
        return tuple(read_param(m, c, mge_version) for c, m in more)
    if first is None:
        raise t.buf.error(f"parameter record {code} is announced but missing", t.pos)
    return read_param(first, code, mge_version), *(read_param(m, c, mge_version) for c, m in more)


def check_params(t: Table, op: Op, params: tuple[Record, ...]) -> tuple[Record, ...]:
    """Match records with what the operator expects; surplus ones are ignored, as MegEngine does."""
    for i, kind in enumerate(op.params):
        got = type(params[i]).__name__ if i < len(params) else "none"
        if i >= len(params) or type(params[i]) is not kind:
            raise t.buf.error(
                f"operator {op.name} needs parameter record {kind.__name__}, found {got}", t.pos
            )
    return params


@cache
def _index(attribute: str) -> dict[int, Op]:
    table: dict[int, Op] = {}
    for op in CATALOG.values():
        key = getattr(op, attribute)
        if key is not None and op.category != "composite":
            # ResizeV2 keeps the id that a retired name shares with it.
            table.setdefault(key, op)
    return table


def find_op(t: Table, kind: str, type_id: int, name: str | None = None) -> Op:
    """Find the operator with a type id; `kind` is id_v1, id_mgbs or id_v2."""
    # Of a name that the file gives only one id is worked out; those of all operators take milliseconds.
    op = CATALOG.get(name or "")
    if op is None or op.category == "composite" or getattr(op, kind) != type_id:
        op = _index(kind).get(type_id)
    if op is None:
        said = f" (the file calls it {name!r})" if name else ""
        if kind == "id_mgbs" and type_id in _retired():
            raise t.buf.error(
                f"operator {_retired()[type_id]} was retired before MegEngine 1.8; no later release loads it",
                t.pos,
            )
        raise t.buf.error(
            f"operator with type id {type_id}{said} is unknown; the file may come from a newer MegEngine, "
            "from a build with private operators, or be damaged",
            t.pos,
        )
    return op


@cache
def _retired() -> dict[int, str]:
    return {unversioned_id(name): name for name in history.RETIRED}
