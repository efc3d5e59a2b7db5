"""FBS_V2: one size-prefixed FlatBuffer, root ``v2.Model``, tensor values inside it."""

from struct import unpack_from

from ..base.errors import FormatError
from ..graph import Graph, Header, Opr, StoredTensor, TensorFormat, Var
from ..graph.dtypes import nbytes
from ..graph.graph import dumped
from .build import (
    GraphAssembler,
    check_params,
    check_shape,
    comp_node,
    constant_or_input,
    describe,
    find_op,
    read_dtype,
    read_params,
    take_blobs,
)
from .flat import Buffer, Table, TableFields

IDENTIFIER = b"mgv2"
# Type's name and id, name, four fields of parameters, inputs, outputs, computing nodes, dtype, tensors, version,
# priority, blobs.
_OPERATOR = TableFields("offset", "ulong", "offset", "ubyte", *("offset",) * 8, "uint", "int", "offset")
# Name, shape, computing node, dtype, format's tag, format, data.
_TENSOR = TableFields("offset", "offset", "offset", "offset", "ubyte", "offset", "offset")
_DEFAULT_FORMAT = TensorFormat(1)


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
    graph = Graph(header=Header("mgv2", model.integer(0, "uint"), model.integer(1, "uint")))
    builder = GraphAssembler(graph)
    seen: set[int] = set()
    for t in model.tables(2):
        if t.pos in seen:
            raise buf.error("an operator is listed twice", t.pos)
        seen.add(t.pos)
        _operator(t, builder)
    builder.set_outputs(model, [(o.integer(0, "uint"), o.integer(1, "uint")) for o in model.tables(4)])
    graph.header.has_middle_tensors = _middle_tensors(model, builder.vars)
    graph.header.output_alias = [(a.integer(0, "uint"), a.text(1) or "") for a in model.tables(5)]
    _apply_alias(model, graph)
    builder.set_metadata(model.table(7), options=2, user_info=3)
    return graph


def _operator(t: Table, builder: GraphAssembler) -> None:
    buf = t.buf
    offsets = t.fields(_OPERATOR)
    name_at, type_id, title_at, code, first_at, tags_at, more_at = offsets[:7]
    inputs_at, outputs_at, nodes_at, dtype_at, tensors_at, version, priority, blobs_at = offsets[7:]
    name = buf.text(name_at) if name_at else None
    if version not in (1, 2):
        raise buf.error(
            f"operator {name or '(unnamed)'} has opr_version {version}, expected 1 or 2; the file was written by a "
            "newer MegEngine",
            t.pos,
        )
    op = find_op(t, "id_v2" if version == 2 else "id_mgbs", type_id, name)
    first, more = t.child(first_at), t.unions(5, 6) if tags_at or more_at else []
    dtype = t.child(dtype_at)
    records = check_params(t, op, read_params(t, code, first, more, builder.graph.header.mge_version))
    nodes = tuple(map(comp_node, buf.tables_at(nodes_at, t.depth))) if nodes_at else ()
    opr = Opr(
        op.name,
        records,
        builder.link(t, op, buf.sizes(inputs_at) if inputs_at else ()),
        [],
        buf.text(title_at) if title_at else None,
        [_tensor(x) for x in buf.tables_at(tensors_at, t.depth)] if tensors_at else [],
        None if dtype is None else read_dtype(dtype),
        dumped(nodes, priority, version),
    )
    if blobs_at:
        take_blobs(t, opr, buf.tables_at(blobs_at, t.depth), required=False)
    constant_or_input(t, opr, op)
    listed = buf.sizes(outputs_at) if outputs_at else None
    known = op.category != "vendor"
    count = op.n_outputs(opr) if known or listed is None else len(listed)
    first_id = len(builder.vars)
    if listed is not None and (len(listed) != count or listed != tuple(range(first_id, first_id + count))):
        raise buf.error(
            f"operator {op.name} lists the outputs {_some(listed)}, expected {count} from number {first_id}",
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
    buf = t.buf
    name_at, shape_at, node_at, dtype_at, kind, format_at, data_at = t.fields(_TENSOR)
    name = buf.text(name_at) if name_at else None
    what = f"tensor {name!r}" if name else "a tensor"
    node, dtype_table = t.child(node_at), t.child(dtype_at)
    if node is None or dtype_table is None:
        raise buf.error(f"{what} has no {'computing node' if node is None else 'dtype'}", t.pos)
    dtype = read_dtype(dtype_table)
    shape = check_shape(t, buf.sizes(shape_at), what) if shape_at else None
    data = buf.bytes_view(data_at) if data_at else None
    if data is not None and data.size == 0:
        data = None
    if data is not None:
        if shape is None:
            raise buf.error(f"{what} has a value but no shape", t.pos)
        want = nbytes(shape, dtype)
        if data.size != want:
            raise buf.error(
                f"{what}: {dtype.name} {list(shape)} takes {want} bytes, but the file has {data.size}", t.pos
            )
    return StoredTensor(dtype, shape, name, data, comp_node(node), _format(t, kind, format_at))


def _format(t: Table, kind: int, at: int) -> TensorFormat | None:
    table = t.child(at)
    if not kind or table is None:
        return None
    if kind == 1:
        return _DEFAULT_FORMAT
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
    buf = model.buf
    for var, t in zip(variables, tables, strict=False):
        name_at, shape_at, node_at, dtype_at, kind, format_at, _ = t.fields(_TENSOR)
        if not name_at:
            raise buf.error(f"the middle tensor of variable {var.id} has no name", t.pos)
        var.name = name = buf.text(name_at)
        if shape_at:
            shape = check_shape(t, buf.sizes(shape_at), f"variable {name!r}")
            var.shape = var.shape if shape is None else shape
        node, dtype = t.child(node_at), t.child(dtype_at)
        var.comp_node = None if node is None else node.text(0)
        var.described = None if dtype is None else read_dtype(dtype)
        var.format = _format(t, kind, format_at)
    return True


def _apply_alias(model: Table, graph: Graph) -> None:
    alias = graph.header.output_alias
    if not alias:
        return
    by_id = dict(zip(graph.header.original_ids, graph.outputs, strict=True))
    for original, name in alias:
        if original not in by_id:
            raise model.buf.error(f"the output alias {name!r} names the unknown output {original}", model.pos)
    graph.outputs = [by_id[original] for original, _ in alias]
    graph.header.original_ids = [original for original, _ in alias]
