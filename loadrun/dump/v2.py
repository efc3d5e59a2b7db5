"""FBS_V2: one size-prefixed FlatBuffer, root ``v2.Model``, tensor values inside it."""

from __future__ import annotations

from struct import unpack_from

from ..base.errors import FormatError
from ..graph import Graph, Opr, StoredTensor, TensorFormat, Var
from ..graph.dtypes import nbytes
from .build import GraphAssembler, check_shape, comp_node, constant_or_input, describe, take_blobs
from .flat import Buffer, Table
from .records import check_params, find_op, read_dtype, read_params

__all__ = ["IDENTIFIER", "read"]

IDENTIFIER = b"mgv2"


def size(data: memoryview, base: int) -> int:
    """Length in bytes of the dump at the start of `data`."""
    (length,) = unpack_from("<I", data, 0)
    if length + 4 > len(data):
        raise FormatError(
            f"the model claims {length + 4} bytes, but {len(data)} are left; the file is truncated, copy it again",
            offset=base,
        )
    return int(length) + 4


def read(data: memoryview, base: int) -> Graph:
    """Read one FBS_V2 dump; `data` begins with its size prefix and may go on behind it."""
    buf = Buffer(data[4 : size(data, base)], base + 4, IDENTIFIER)
    model = buf.root()
    graph = Graph(format="FBS_V2", magic="mgv2")
    graph.mge_version = model.integer(0, "uint")
    graph.model_version = model.integer(1, "uint")
    graph.nr_shared_tensor = model.integer(6, "uint")
    builder = GraphAssembler(graph)
    seen: set[int] = set()
    for t in model.tables(2):
        if t.pos in seen:
            raise buf.error("an operator is listed twice", t.pos)
        seen.add(t.pos)
        _operator(t, builder)
    builder.set_outputs(model, [(o.integer(0, "uint"), o.integer(1, "uint")) for o in model.tables(4)])
    graph.has_middle_tensors = _middle_tensors(model, builder.vars)
    graph.output_alias = [(a.integer(0, "uint"), a.text(1) or "") for a in model.tables(5)]
    _apply_alias(model, graph)
    builder.set_metadata(model.table(7), options=2, user_info=3)
    return graph


def _operator(t: Table, builder: GraphAssembler) -> None:
    version = t.integer(12, "uint")
    name = t.text(0)
    if version not in (1, 2):
        raise t.buf.error(
            f"operator {name or '(unnamed)'} has opr_version {version}, expected 1 or 2; the file was written by a "
            "newer MegEngine",
            t.pos,
        )
    op = find_op(t, "id_v2" if version == 2 else "id_mgbs", t.integer(1, "ulong"), name)
    opr = Opr(op.name, version=version, name=t.text(2))
    opr.params = check_params(t, op, read_params(t, (3, 4, 5, 6), builder.graph.mge_version))
    builder.link(t, opr, op, t.numbers(7, "uint") or ())
    opr.comp_node = [comp_node(c) for c in t.tables(9)]
    dtype = t.table(10)
    opr.output_dtype = read_dtype(dtype) if dtype is not None else None
    opr.tensors = [_tensor(x) for x in t.tables(11)]
    opr.priority = t.integer(13, "int")
    opr.blobs = take_blobs(t, 14, required=False)
    constant_or_input(t, opr, op)
    listed = t.numbers(8, "uint")
    known = op.category != "vendor"
    count = op.n_outputs(opr) if known or listed is None else len(listed)
    first = len(builder.vars)
    if listed is not None and (len(listed) != count or listed != tuple(range(first, first + count))):
        raise t.buf.error(
            f"operator {op.name} lists the outputs {_some(listed)}, expected {count} from number {first}",
            t.pos,
        )
    builder.append(t, opr, count)
    for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
        describe(var, tensor)
    if opr.name and len(opr.outputs) == 1 and not opr.outputs[0].name:
        opr.outputs[0].name = opr.name


def _some(numbers: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    return f"[{shown}{', ...' if len(numbers) > 4 else ''}]"


def _tensor(t: Table) -> StoredTensor:
    name = t.text(0)
    what = f"tensor {name!r}" if name else "a tensor"
    node, dtype_table = t.table(2), t.table(3)
    if node is None or dtype_table is None:
        raise t.buf.error(f"{what} has no {'computing node' if node is None else 'dtype'}", t.pos)
    dtype = read_dtype(dtype_table)
    shape = check_shape(t, t.numbers(1, "uint"), what)
    data = t.bytes_view(6)
    if data is not None and data.size == 0:
        data = None
    if data is not None:
        if shape is None:
            raise t.buf.error(f"{what} has a value but no shape", t.pos)
        want = nbytes(shape, dtype)
        if data.size != want:
            raise t.buf.error(
                f"{what}: {dtype.name} {list(shape)} takes {want} bytes, but the file has {data.size}", t.pos
            )
    return StoredTensor(dtype, shape, name, data, comp_node(node), _format(t, 4, 5))


def _format(t: Table, tag_slot: int, slot: int) -> TensorFormat | None:
    kind, table = t.integer(tag_slot, "ubyte"), t.table(slot)
    if not kind or table is None:
        return None
    if kind == 1:
        return TensorFormat(1)
    if kind == 2:
        return TensorFormat(2, align_axis=table.integer(0, "ubyte"))
    if kind == 3:
        return TensorFormat(
            3, size_nbits=table.integer(0, "ubyte"), align_size_in_bits=table.integer(1, "ubyte")
        )
    raise t.buf.error(f"tensor format {kind} is unknown; expected 1 to 3", t.pos)


def _middle_tensors(model: Table, variables: list[Var]) -> bool:
    tables = model.tables(3)
    if not tables:
        return False
    if len(tables) < len(variables):
        raise model.buf.error(
            f"{len(tables)} middle tensors are described, but there are {len(variables)} variables", model.pos
        )
    for var, t in zip(variables, tables, strict=False):
        name = t.text(0)
        if name is None:
            raise t.buf.error(f"the middle tensor of variable {var.id} has no name", t.pos)
        var.name = name
        shape = check_shape(t, t.numbers(1, "uint"), f"variable {name!r}")
        if shape is not None:
            var.shape = shape
        node, dtype = t.table(2), t.table(3)
        var.comp_node = None if node is None else node.text(0)
        var.described = None if dtype is None else read_dtype(dtype)
        var.format = _format(t, 4, 5)
    return True


def _apply_alias(model: Table, graph: Graph) -> None:
    if not graph.output_alias:
        return
    by_id = dict(zip(graph.original_ids, graph.outputs, strict=True))
    for original, name in graph.output_alias:
        if original not in by_id:
            raise model.buf.error(f"the output alias {name!r} names the unknown output {original}", model.pos)
    graph.outputs = [by_id[original] for original, _ in graph.output_alias]
    graph.original_ids = [original for original, _ in graph.output_alias]
