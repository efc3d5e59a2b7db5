"""The bytes of a dump: FBS_V2 and FBS v1, for `loadrun` and for real MegEngine. `store` makes files of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct, error, pack
from typing import Any

import numpy as np

from ..base.errors import FormatError, InputError
from ..base.registry import late
from ..graph import Graph, Header, Metadata, Opr, StoredTensor, TensorFormat, Var
from ..graph.dtypes import Array, dtype_of, encode, nbytes
from ..graph.params import Record
from ..ops.catalog import CATALOG, select
from ..ops.op import Op, unversioned
from ..testcase import Testcase
from .flat_builder import Fields, FlatBufferEmitter
from .record import graph_digest

with late(__name__):
    from ..ops import infer

MAX_BYTES = 2**31 - 1
"""The largest FlatBuffer that MegEngine's verifier accepts."""
_OUTPUT = Struct("<II")
_PARAMETERS = select(lambda op: op.category == "io" and not op.params) - {"ImmutableTensor"}
"""What holds the tensors that a dump counts as shared parameters."""
_V1_FORMAT_KIND = {1: 0, 2: 1, 3: 2}
_EMPTY_USER_INFO = b"\x80\x04N."


def dump_bytes(graph: Graph, *, format: str | None = None) -> bytes:
    """Write a graph as the bytes of a plain dump.

    >>> from loadrun.graph.dtypes import DType
    >>> from loadrun.dump import loads
    >>> from loadrun.graph import Graph, StoredTensor
    >>> from loadrun.graph.params import Host2DeviceCopy
    >>> g = Graph()
    >>> g.outputs = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> loads(dump_bytes(g)).graph.inputs[0].name
    'x'
    """
    return b"".join(dump_pieces(graph, format=format))


def content_hash(graph: Graph, digest: Callable[[], str]) -> int:
    """Return the stable number, never 0, that a dump of version 1 has for its operators and values."""
    return graph.header.content_hash or int(digest()[:16], 16) or 1


def dump_pieces(
    graph: Graph, *, format: str | None = None, digest: Callable[[], str] | None = None, end: bytes = b""
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a plain dump in pieces; the graph's constants are pieces of their own and are not copied.

    Args:
        graph: the graph.
        format: FBS_V2 or FBS, default its own.
        digest: gives `graph_digest`, which version 1 asks for when its constants were taken.
        end: further bytes of its FlatBuffer, which nothing in it points to.
    """
    kind = format or graph.header.format
    if kind not in ("FBS_V2", "FBS"):
        raise FormatError(f"format {kind!r} is unknown; expected 'FBS_V2' or 'FBS'")
    try:
        digest = digest or partial(graph_digest, graph)
        yield from _V1(graph, end, digest).pieces() if kind == "FBS" else _V2(graph, end).pieces()
    except FormatError:
        raise
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError, error) as e:
        raise FormatError(f"the graph holds a value that {kind} cannot store: {e}") from e


def testcase_tensors(testcase: Testcase, names: Iterable[str]) -> list[StoredTensor]:
    """List what a file holds of one testcase: a tensor per graph input, in the order of `names`.

    Raises:
        FormatError: the testcase lacks one of the inputs.
        InputError: a value is no array, or of a type that no graph has.
    """
    tensors = []
    for name in names:
        if name not in testcase.arrays:
            raise FormatError(f"the testcase has no value for the input {name!r}")
        value = testcase.arrays[name]
        if not isinstance(value, (np.ndarray, np.generic)):
            raise InputError(f"the value of {name!r} must be a numpy array, found {type(value).__name__}")
        dtype = testcase.dtypes.get(name) or dtype_of(value)
        tensors.append(StoredTensor(dtype, value.shape or (1,), None, encode(value, dtype), "cpux:0"))
    return tensors


def tensors_graph(tensors: Iterable[StoredTensor]) -> Graph:
    """Make the graph that stores the tensors of one testcase: a SharedDeviceTensor for each."""
    graph = Graph(header=Header(has_middle_tensors=False, metadata=Metadata(user_info=b"")))
    for tensor in tensors:
        graph.outputs += graph.add("SharedDeviceTensor", tensors=[tensor], names=[None])
    graph.header.original_ids = list(range(len(graph.outputs)))
    return graph


def _numbering(graph: Graph) -> dict[int, int]:
    """Assign running numbers to variables by identity, whatever their own ids are.

    Raises:
        FormatError: the graph breaks a rule that every reader relies on.
    """
    numbers: dict[int, int] = {}
    for i, opr in enumerate(graph.oprs):
        where = f"operator {i} ({opr.type})"
        op = CATALOG.get(opr.type)
        if op is None:
            raise FormatError(f"{where}: no such operator is known")
        if any(id(v) not in numbers for v in opr.inputs):
            raise FormatError(f"{where} reads a variable that no earlier operator produces")
        for kind, record in zip(op.params, opr.params, strict=False):
            if type(record) is not kind:
                raise FormatError(f"{where} needs the record {kind.__name__}, found {type(record).__name__}")
        count = op.n_outputs(opr)
        if count != len(opr.outputs) and op.category != "vendor":
            raise FormatError(f"{where} has {len(opr.outputs)} outputs, but a file needs {count}")
        for tensor in opr.tensors:
            _check_tensor(where, tensor)
        for var in opr.outputs:
            numbers[id(var)] = len(numbers)
    if not graph.outputs:
        raise FormatError("the graph has no outputs, so there is nothing to compute")
    for var in graph.outputs:
        if id(var) not in numbers:
            raise FormatError(f"the output {var.label!r} is not produced by any operator of the graph")
    return numbers


def _check_tensor(where: str, tensor: StoredTensor) -> None:
    if tensor.data is None:
        return
    if not tensor.shape:
        raise FormatError(f"{where}: a tensor with a value needs a shape of at least one axis")
    want = nbytes(tensor.shape, tensor.dtype)
    if tensor.data.dtype != "u1" or tensor.data.ndim != 1 or tensor.data.size != want:
        raise FormatError(
            f"{where}: {tensor.dtype.name} {list(tensor.shape)} takes {want} bytes, "
            f"found {tensor.data.dtype} {list(tensor.data.shape)}"
        )


def _stored_name(var: Var) -> str | None:
    """Return the name that a reader gives a variable for its tensor or its operator."""
    opr = var.owner
    if var.index < len(opr.tensors) and opr.tensors[var.index].name:
        return opr.tensors[var.index].name
    return opr.name if len(opr.outputs) == 1 else None


def _original_ids(graph: Graph, numbers: Mapping[int, int]) -> Sequence[int]:
    if len(graph.header.original_ids) == len(graph.outputs):
        return graph.header.original_ids
    return [numbers[id(v)] for v in graph.outputs]


class _Common:
    """The part of writing that both versions share."""

    def __init__(self, graph: Graph, end: bytes) -> None:
        self.graph = graph
        self.end = end
        self.numbers = _numbering(graph)
        self.shared = sum(len(o.tensors) for o in graph.oprs if o.type in _PARAMETERS)

    def inputs(self, e: FlatBufferEmitter, opr: Opr) -> int | None:
        return e.numbers([self.numbers[id(v)] for v in opr.inputs]) if opr.inputs else None

    @staticmethod
    def comp_node(e: FlatBufferEmitter, name: str) -> int:
        text = e.string(name)
        return e.table(1, [(0, "offset", text, 0)])

    def params(
        self, e: FlatBufferEmitter, op: Op, opr: Opr
    ) -> tuple[int, int | None, int | None, int | None]:
        records: list[Record] = list(opr.params)
        records += [kind() for kind in op.params[len(records) :]]
        if not records:
            return 0, None, None, None
        try:
            first, *tables = [e.param(r) for r in records]
        except ValueError as refused:
            raise ValueError(f"{infer.describe(opr)}: {refused}") from None
        tags = members = None
        if tables:
            members = e.offsets(tables)
            tags = e.bytes_vector(bytes(r.code for r in records[1:]))
        return records[0].code, first, tags, members

    def metadata(self, e: FlatBufferEmitter, *, options: int, user_info: int) -> int | None:
        """Write the metadata table, if there is one; the versions number two of its fields differently."""
        meta = self.graph.header.metadata
        if meta is None:
            return None
        # Python's loader unpickles the text of every valid metadata table, so it must not be missing there.
        info = _EMPTY_USER_INFO if meta.user_info is None and meta.is_valid else meta.user_info
        return e.table(
            4,
            [
                (options, "ulong", meta.optimize_options, 0),
                (user_info, "offset", e.string(info), 0),
                (0, "bool", meta.is_valid, False),
                (1, "bool", meta.graph_modified, False),
            ],
        )

    def checked(self, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
        size = sum(map(len, pieces)) + len(self.end)
        if size > MAX_BYTES:
            raise FormatError(f"the model takes {size} bytes, the format allows {MAX_BYTES}")
        return [pack("<I", size - 4), pieces[0][4:], *pieces[1:], self.end]


class _V2(_Common):
    def pieces(self) -> list[bytes | memoryview]:
        graph, header = self.graph, self.graph.header
        stored = graph.stored_bytes
        if stored > MAX_BYTES:
            raise FormatError(
                f"the tensors take {stored} bytes, FBS_V2 allows {MAX_BYTES} in all; use format 'FBS'"
            )
        e = FlatBufferEmitter(header.mge_version)
        oprs = e.offsets([self.operator(e, o) for o in graph.oprs])
        named = header.has_middle_tensors or (header.format != "FBS_V2" and any(v.name for v in graph.vars()))
        middle = e.offsets([self.middle(e, v) for v in graph.vars()]) if named else None
        pairs = zip(graph.outputs, _original_ids(graph, self.numbers), strict=True)
        outs = e.offsets(
            [e.table(2, [(0, "uint", self.numbers[id(v)], 0), (1, "uint", o, 0)]) for v, o in pairs]
        )
        alias = e.offsets(
            [
                e.table(2, [(0, "uint", n, 0), (1, "offset", s, 0)])
                for n, s in [(n, e.string(text)) for n, text in header.output_alias]
            ]
        )
        meta = self.metadata(e, options=2, user_info=3)
        fields: Fields = [
            (0, "uint", header.mge_version, 0),
            (1, "uint", max(header.model_version, 2), 0),
            (2, "offset", oprs, 0),
            (3, "offset", middle, 0),
            (4, "offset", outs, 0),
            (5, "offset", alias, 0),
            (6, "uint", self.shared, 0),
            (7, "offset", meta, 0),
        ]
        return self.checked(e.builder.pieces(e.table(8, fields), b"mgv2"))

    def operator(self, e: FlatBufferEmitter, opr: Opr) -> int:
        op = CATALOG[opr.type]
        dumped = opr.dumped
        latest = op.id_v2 is not None and (dumped.version != 1 or len(op.params) > 1)
        code, first, tags, members = self.params(e, op, opr)
        inputs = self.inputs(e, opr)
        outputs = e.numbers([self.numbers[id(v)] for v in opr.outputs]) if opr.outputs else None
        nodes = e.offsets([self.comp_node(e, c) for c in dumped.comp_node])
        dtype = e.dtype(opr.output_dtype)
        tensors = e.offsets([self.tensor(e, t) for t in opr.tensors])
        blobs = None
        if dumped.blobs and not (opr.tensors and op.category == "io"):
            vectors = [e.bytes_vector(b) for b in dumped.blobs]
            blobs = e.offsets([e.table(1, [(0, "offset", v, 0)]) for v in vectors])
        fields: Fields = [
            (1, "ulong", op.id_v2 if latest else op.id_mgbs, 0),
            (0, "offset", e.string(unversioned(op.name) if latest else op.name), 0),
            (2, "offset", e.string(opr.name), 0),
            (4, "offset", first, 0),
            (5, "offset", tags, 0),
            (6, "offset", members, 0),
            (7, "offset", inputs, 0),
            (8, "offset", outputs, 0),
            (9, "offset", nodes, 0),
            (10, "offset", dtype, 0),
            (11, "offset", tensors, 0),
            (12, "uint", 1 + latest, 0),
            (13, "int", dumped.priority, 0),
            (14, "offset", blobs, 0),
            (3, "ubyte", code, 0),
        ]
        return e.table(15, fields)

    def tensor(self, e: FlatBufferEmitter, t: StoredTensor) -> int:
        kind, form = self.format(e, t.format or TensorFormat())
        data = e.bytes_vector(t.data)
        fields: Fields = [
            (0, "offset", e.string(t.name), 0),
            (1, "offset", e.numbers(t.shape), 0),
            (2, "offset", self.comp_node(e, t.comp_node), 0),
            (3, "offset", e.dtype(t.dtype), 0),
            (5, "offset", form, 0),
            (6, "offset", data, 0),
            (4, "ubyte", kind, 0),
        ]
        return e.table(7, fields)

    @staticmethod
    def format(e: FlatBufferEmitter, f: TensorFormat) -> tuple[int, int]:
        fields: dict[int, tuple[int, Fields]] = {
            1: (0, []),
            2: (1, [(0, "ubyte", f.align_axis, 0)]),
            3: (2, [(0, "ubyte", f.size_nbits, 0), (1, "ubyte", f.align_size_in_bits, 0)]),
        }
        return f.kind, e.table(*fields[f.kind])

    def middle(self, e: FlatBufferEmitter, var: Var) -> int:
        kind, form = (0, None) if var.format is None else self.format(e, var.format)
        node = None if var.comp_node is None else self.comp_node(e, var.comp_node)
        name = var.name or _stored_name(var) or var.label
        tensors = var.owner.tensors
        # Readers know the shape of a stored tensor, so a graph that was never a file is written like one that was.
        stored = tensors[var.index].shape if var.index < len(tensors) else None
        fields: Fields = [
            (0, "offset", e.string(name), 0),
            (1, "offset", e.numbers(stored if var.shape is None else var.shape), 0),
            (2, "offset", node, 0),
            (3, "offset", e.dtype(var.described), 0),
            (5, "offset", form, 0),
            (4, "ubyte", kind, 0),
        ]
        return e.table(6, fields)


class _V1(_Common):
    def __init__(self, graph: Graph, end: bytes, digest: Callable[[], str]) -> None:
        super().__init__(graph, end)
        self.area: list[Array] = []
        self.legacy = graph.header.magic == "MGBS"
        self.digest = digest

    def pieces(self) -> Iterator[bytes | memoryview]:
        graph = self.graph
        e = FlatBufferEmitter(graph.header.mge_version)
        oprs = e.offsets([self.operator(e, o) for o in graph.oprs])
        pairs = zip(graph.outputs, _original_ids(graph, self.numbers), strict=True)
        outs = e.structs(_OUTPUT, [(self.numbers[id(v)], o) for v, o in pairs], 4)
        meta = self.metadata(e, options=3, user_info=2)
        area = [np.ascontiguousarray(a).reshape(-1).view(np.uint8).data for a in self.area]
        head = b"MGBS" + pack("<I", 0) if self.legacy else b"MGBC" + bytes(12)
        yield head + pack("<Q", sum(map(len, area)))
        yield from area
        fields: Fields = [
            (1, "ulong", content_hash(graph, self.digest), 0),
            (0, "uint", graph.header.mge_version, 0),
            (2, "uint", self.shared, 0),
            (3, "offset", oprs, 0),
            (4, "offset", outs, 0),
            (5, "offset", meta, 0),
        ]
        yield from self.checked(e.builder.pieces(e.table(6, fields), b"mgb1"))

    def operator(self, e: FlatBufferEmitter, opr: Opr) -> int:
        op = CATALOG[opr.type]
        code, first, tags, members = self.params(e, op, opr)
        inputs = self.inputs(e, opr)
        nodes = e.offsets([self.comp_node(e, c) for c in opr.dumped.comp_node])
        names = None
        if any(v.name and v.name != _stored_name(v) for v in opr.outputs):
            names = e.offsets([e.string(v.name or "") or 0 for v in opr.outputs])
        dtype = e.dtype(opr.output_dtype)
        tensors = e.offsets([self.tensor(e, t) for t in opr.tensors])
        blobs = self.blobs(e, op, opr)
        fields: Fields = [
            (0, "ulong", op.id_mgbs if self.legacy else op.id_v1, 0),
            (2, "offset", first, 0),
            (3, "offset", inputs, 0),
            (4, "offset", nodes, 0),
            (5, "offset", names, 0),
            (6, "offset", dtype, 0),
            (7, "offset", tensors, 0),
            (8, "int", opr.dumped.priority, 0),
            (9, "offset", blobs, 0),
            (10, "offset", tags, 0),
            (11, "offset", members, 0),
            (12, "offset", e.string(opr.name), 0),
            (1, "ubyte", code, 0),
        ]
        return e.table(13, fields)

    def tensor(self, e: FlatBufferEmitter, t: StoredTensor) -> int:
        size = 0 if t.data is None else t.data.size
        if t.data is not None:
            self.area.append(t.data)
        fields: Fields = [
            (0, "offset", e.string(t.name), 0),
            (1, "offset", e.numbers(t.shape), 0),
            (2, "offset", self.comp_node(e, t.comp_node), 0),
            (3, "offset", e.dtype(t.dtype), 0),
            (4, "uint", size, 0),
        ]
        return e.table(6, fields)

    @staticmethod
    def blobs(e: FlatBufferEmitter, op: Op, opr: Opr) -> int | None:
        raw: list[bytes] = list(opr.dumped.blobs)
        if op.category == "io":
            raw = [pack("<I", len(opr.tensors))] if op.name.startswith("Multiple") else []
            if "WithFormat" in op.name:
                raw += [_v1_format(t.format or TensorFormat()) for t in opr.tensors]
        vectors: list[Any] = [e.bytes_vector(b) for b in raw]
        return e.offsets([e.table(1, [(0, "offset", v, 0)]) for v in vectors])


def _v1_format(f: TensorFormat) -> bytes:
    kind = pack("<i", _V1_FORMAT_KIND[f.kind])
    if f.kind == 2:
        return kind + bytes([f.align_axis])
    if f.kind == 3:
        return kind + bytes([f.size_nbits, f.align_size_in_bits])
    return kind
