"""The graph: MegEngine's own operators and the variables between them.

A `Graph` is what a dump holds, field for field, so that it can be written again without loss.
Nothing here computes: kernels, shape and dtype rules live in `loadrun.ops`, bytes in `loadrun.dump`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np

from .dtypes import Array, DType, decode, encode
from .params import Record

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class TensorFormat:
    """Memory format of a stored tensor: kind 1 default, 2 image, 3 aligned low-bit rows."""

    kind: int = 1
    align_axis: int = 0
    size_nbits: int = 0
    align_size_in_bits: int = 0


@dataclass(eq=False)
class StoredTensor:
    """A tensor stored in an operator: an input's description, or a constant with its bytes.

    Attributes:
        shape: the shape, or None if the file leaves it open (graph inputs only).
        data: the raw bytes as 1-d uint8, usually a view of the mapped file; None when there is no value.
        ranked: whether an input may have no axes, as in other frameworks; MegEngine's have at least one.
    """

    dtype: DType
    shape: tuple[int, ...] | None
    name: str | None = None
    data: Array | None = None
    comp_node: str = "xpux:0"
    format: TensorFormat | None = None
    ranked: bool = False

    def value(self) -> Array:
        """Return the tensor as an array of its storage dtype (a view where the file layout allows)."""
        if self.data is None or self.shape is None:
            raise ValueError(f"tensor {self.name or '(unnamed)'} has no value")
        return decode(self.data, self.shape, self.dtype)

    def with_value(self, value: Array) -> StoredTensor:
        """Return a tensor of the same type that holds another value, without a name."""
        return StoredTensor(self.dtype, value.shape, None, encode(value, self.dtype))

    def copied(self) -> StoredTensor:
        """Copy the tensor over the same bytes."""
        return StoredTensor(
            self.dtype, self.shape, self.name, self.data, self.comp_node, self.format, self.ranked
        )


@dataclass(eq=False)
class Var:
    """A variable: output `index` of operator `owner`.

    Attributes:
        id: running number in the file.
        name: its name, or None when the file gives none.
        dtype: its data type, None until inferred (`loadrun.ops.infer`).
        shape: its static shape, None when unknown; a hint, inputs may be fed with other batch sizes.
    """

    id: int
    owner: Opr
    index: int
    name: str | None = None
    dtype: DType | None = None
    shape: tuple[int, ...] | None = None
    format: TensorFormat | None = None
    comp_node: str | None = None
    described: DType | None = None

    @property
    def label(self) -> str:
        """The name, or a readable stand-in such as ``ADD[4]``."""
        return self.name if self.name else f"{self.owner.title}[{self.id}]"

    def copied(self, id: int, owner: Opr) -> Var:
        """Copy the variable as an output of another operator."""
        # Field by field: passes copy variables by the ten thousand, and `copy.copy` is slower.
        return Var(
            id,
            owner,
            self.index,
            self.name,
            self.dtype,
            self.shape,
            self.format,
            self.comp_node,
            self.described,
        )

    def __repr__(self) -> str:
        return f"Var({self.id}, {self.label!r}, {self.dtype}, {self.shape})"


class Dumped(NamedTuple):
    """What only dumps say of an operator.

    Attributes:
        comp_node: the computing node of each output.
        priority: MegEngine runs lower ones first.
        version: its opr_version in the file, None for the latest.
        blobs: data that only the operator's own library understands.
    """

    comp_node: tuple[str, ...] = ()
    priority: int = 0
    version: int | None = None
    blobs: tuple[bytes, ...] = ()


dumped = lru_cache(64)(Dumped)
"""Makes a record, once for all operators of which dumps say the same."""
_NOTHING = dumped()


@dataclass(eq=False)
class Opr:
    """An operator: its registered type name, parameter records, inputs, outputs and stored tensors.

    Attributes:
        number: its place in the file that the graph was made of, None if that is its `id`.
        exact: whether it is computed as its definition says, see `Graph.exact`.
        called: what the file that the graph was made of calls such an operator, None if that is its type.
    """

    type: str
    params: tuple[Record, ...] = ()
    inputs: list[Var] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)
    name: str | None = None
    tensors: list[StoredTensor] = field(default_factory=list)
    output_dtype: DType | None = None
    dumped: Dumped = _NOTHING
    id: int = 0
    number: int | None = None
    exact: bool = False
    called: str | None = None

    @property
    def param(self) -> Record:
        """The first parameter record."""
        return self.params[0]

    def get(self, kind: builtins.type[R]) -> R:
        """Return the parameter record of that class, or its defaults when the operator carries none."""
        for p in self.params:
            if isinstance(p, kind):
                return p
        return kind()

    def copied(self, inputs: list[Var], id: int = 0) -> Opr:
        """Copy the operator with other inputs, without outputs; stored tensors lie over the same bytes.

        >>> x = Var(0, Opr("Host2DeviceCopy"), 0)
        >>> Opr("Copy", name="mine").copied([x], id=3).inputs == [x]
        True
        """
        return Opr(
            self.type,
            self.params,
            inputs,
            name=self.name,
            tensors=[t.copied() for t in self.tensors],
            output_dtype=self.output_dtype,
            dumped=self.dumped,
            id=id,
            number=self.number,
            exact=self.exact,
            called=self.called,
        )

    @property
    def title(self) -> str:
        """What the file calls the operator, else mode name for elementwise operators, else the type."""
        if self.called is not None:
            return self.called
        mode = getattr(self.params[0], "mode", None) if self.params else None
        if self.type.startswith("Elemwise") and mode is not None:
            return str(mode.name)
        return self.type

    def __repr__(self) -> str:
        ins = ", ".join(str(v.id) for v in self.inputs)
        outs = ", ".join(str(v.id) for v in self.outputs)
        params = ", ".join(map(repr, self.params))
        return f"[{outs}] = {self.type}({ins}) {params}".rstrip()


@dataclass(frozen=True)
class Metadata:
    """The metadata of a dump; `user_info` is the opaque bytes of the file (a pickle, never loaded)."""

    is_valid: bool = False
    graph_modified: bool = False
    optimize_options: int = 0
    user_info: bytes | None = None


@dataclass
class Header:
    """What a dump says about itself.

    Attributes:
        magic: what begins the file; for a graph of a file of another kind, that kind and its version.
        mge_version: the release that wrote it, as a number.
        model_version: version of the layout within FBS_V2.
        content_hash: the number that stands for the content in version 1, 0 where there is none yet.
        has_middle_tensors: whether every variable is described.
        original_ids: for each output the number it had in the dumping graph.
        output_alias: pairs (original id, name) that replace the output list, usually empty.
        metadata: the metadata table, None when the file has none.
    """

    magic: str = ""
    mge_version: int = 101300
    model_version: int = 2
    content_hash: int = 0
    has_middle_tensors: bool = True
    original_ids: Sequence[int] = ()
    output_alias: Sequence[tuple[int, str]] = ()
    metadata: Metadata | None = None

    @property
    def format(self) -> str:
        """FBS for the magics of version 1, else FBS_V2."""
        return "FBS" if self.magic.startswith("MGB") else "FBS_V2"


@dataclass(eq=False)
class Graph:
    """Operators in execution order, the output variables and what the file says about itself.

    Attributes:
        oprs: operators, inputs before users.
        outputs: output variables in order.
        header: what the file says about itself; the graph's own copy.
        input_order: names of inputs in the order of the function or file that the graph was made of.
        fixed_shapes: sizes for which alone the graph is right, by input and axis, None where any will do: those of a
            trace that took them for numbers.
        integers: names of inputs that hold integers of 64 bits in what the graph was made of, and 32 here.
        declared: the sizes of inputs and outputs by name, as the graph's file declares them: numbers, names of open
            ones, or None.
        exact: whether operators that are added are computed as their definitions say: integers wrap, NaN is kept,
            float16 and bfloat16 round once per operator, ties to even, as in ONNX Runtime and PyTorch. Else they are
            computed as MegEngine's kernels for x86 compute them, to the bit.
    """

    oprs: list[Opr] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)
    header: Header = field(default_factory=Header)
    input_order: tuple[str, ...] = ()
    fixed_shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    declared: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    exact: bool = False

    def __post_init__(self) -> None:
        """Take a copy of the header, so that what is set in it is set in no other graph."""
        self.header = replace(self.header)

    def emptied(self) -> Graph:
        """Return a graph without operators that says the same of the file, but for its hash and outputs."""
        header = replace(self.header, content_hash=0, original_ids=(), output_alias=())
        return replace(self, oprs=[], outputs=[], header=header)

    def add(
        self,
        type: str,
        *params: Record,
        inputs: Iterable[Var] = (),
        n_outputs: int = 1,
        names: Iterable[str | None] = (),
        tensors: Iterable[StoredTensor] = (),
        output_dtype: DType | None = None,
        comp_node: Iterable[str] = (),
    ) -> list[Var]:
        """Append an operator and return its output variables.

        >>> from loadrun.graph import Graph, StoredTensor
        >>> from loadrun.graph.dtypes import DType
        >>> from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
        >>> g = Graph()
        >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
        ...              tensors=[StoredTensor(DType("Float32"), (2, 3), "x")])
        >>> (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.EXP), inputs=[x], names=["y"])
        >>> g.outputs = [y]
        >>> [o.type for o in g.oprs], y.label
        (['Host2DeviceCopy', 'Elemwise'], 'y')
        """
        opr = Opr(type, params, list(inputs), tensors=list(tensors), output_dtype=output_dtype)
        opr.dumped, opr.id, opr.exact = dumped(tuple(comp_node)), len(self.oprs), self.exact
        labels = [*names]
        first = self.n_vars
        for i in range(n_outputs):
            opr.outputs.append(Var(first + i, opr, i, labels[i] if i < len(labels) else None))
        self.oprs.append(opr)
        return list(opr.outputs)

    def add_copy(self, opr: Opr, inputs: list[Var]) -> list[Var]:
        """Append a copy of an operator with other inputs and return its output variables."""
        fresh, number = opr.copied(inputs, len(self.oprs)), self.n_vars
        for var in opr.outputs:
            fresh.outputs.append(var.copied(number, fresh))
            number += 1
        self.oprs.append(fresh)
        return fresh.outputs

    @property
    def n_vars(self) -> int:
        """The number of variables in the graph (the next variable number)."""
        for opr in reversed(self.oprs):
            if opr.outputs:
                return opr.outputs[-1].id + 1
        return 0

    def vars(self) -> Iterator[Var]:
        """Yield all variables in file order."""
        for opr in self.oprs:
            yield from opr.outputs

    @property
    def inputs(self) -> list[Var]:
        """The graph inputs (Host2DeviceCopy), sorted by name as testcases store them."""
        inputs = [o.outputs[0] for o in self.oprs if o.type == "Host2DeviceCopy"]
        return sorted(inputs, key=lambda v: (v.name or "").encode("utf-8", "surrogateescape"))

    @property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that are stored in it, above all weights."""
        stored = (t.data for o in self.oprs for t in o.tensors if isinstance(t, StoredTensor))
        return sum(data.size for data in stored if data is not None)

    def needed(self, targets: Iterable[Var] | None = None) -> list[Opr]:
        """Return the operators that the targets (default: the outputs) depend on, in execution order."""
        oprs = list({id(v.owner): v.owner for v in (self.outputs if targets is None else targets)}.values())
        seen = set(map(id, oprs))
        # The list grows during iteration.
        for opr in oprs:
            for var in opr.inputs:
                source = var.owner
                if id(source) not in seen:
                    seen.add(id(source))
                    oprs.append(source)
        oprs.sort(key=attrgetter("id"))
        return oprs

    def __str__(self) -> str:
        return "\n".join(map(repr, self.oprs))


def readers_of(oprs: Iterable[Opr]) -> dict[int, list[Opr]]:
    """Return the operators that read each variable, by the variable's number, in the order of the operators."""
    readers: dict[int, list[Opr]] = {}
    for opr in oprs:
        for var in opr.inputs:
            readers.setdefault(var.id, []).append(opr)
    return readers


def same_graph(a: Graph, b: Graph) -> bool:
    """Return whether two graphs compute the same: operators, parameters and constants, whatever the input sizes."""
    if len(a.oprs) != len(b.oprs):
        return False
    numbers = {id(v): i for i, v in enumerate(a.vars())}
    numbers.update((id(v), i) for i, v in enumerate(b.vars()))
    if [numbers[id(v)] for v in a.outputs] != [numbers[id(v)] for v in b.outputs]:
        return False
    for x, y in zip(a.oprs, b.oprs, strict=True):
        if x.type != y.type or x.params != y.params or x.output_dtype != y.output_dtype:
            return False
        if [numbers[id(v)] for v in x.inputs] != [numbers[id(v)] for v in y.inputs]:
            return False
        if x.type != "Host2DeviceCopy" and not all(map(_same_value, x.tensors, y.tensors)):
            return False
    return True


def _same_value(a: StoredTensor, b: StoredTensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.data is None and b.data is None and type(a) is type(b) is not StoredTensor:
        return bool(np.array_equal(a.value(), b.value()))
    if a.data is None or b.data is None or a.data.ctypes.data == b.data.ctypes.data:
        return a.data is b.data or (a.data is not None and b.data is not None)
    return bool(np.array_equal(a.data, b.data))
