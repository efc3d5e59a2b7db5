"""Building an ONNX graph node by node: names, constants, and forms of operators that depend on the opset.

Values are referred to by name. Operators whose form changed between opsets (axes and bounds that became inputs) are
written here once; the families of operators call these methods and know nothing of opsets.
"""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import groupby

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array, DType
from ..encode import Attribute, GraphMessage, NodeMessage, TensorMessage, ValueMessage, unused
from ..nodes import versions_of
from ..tensors import ElemType

Dim = int | str
"""A size: a number, or the name of an int64 value of shape [1]."""

_LATER = {"Max": 8, "Min": 8, "Resize": 11, "RoiAlign": 16}
"""The first opset in which an operator is written as loadrun writes it, where its first version has another form."""
SINGLE_PRECISION = frozenset(
    """
    Acos Asin Atan Tan Sinh Cosh Asinh Acosh Atanh Erf Gelu Elu LeakyRelu PRelu Softplus HardSigmoid HardSwish LRN
    InstanceNormalization Conv ConvTranspose AveragePool GlobalAveragePool LSTM RNN Resize DeformConv
    """.split()
)
"""Operators for which ONNX Runtime has no kernel of float64."""
_AXES_INPUT = {"ReduceSum": 13}
_SMALL = 256
END = 2**63 - 1
"""Slice's bound for "to the end"."""


class UnsupportedOprError(Exception):
    """An operator that cannot be written; the message says why.

    Attributes:
        opset: the opset that could write it, 0 if none could.
        opr: the operator that the message is about.
    """

    def __init__(self, reason: str, opset: int = 0) -> None:
        super().__init__(reason)
        self.opset = opset
        self.opr: Opr | None = None


def smaller_scale(dtype: DType, noise: int) -> np.float32:
    """Return the scale of a quantized dtype, some units of its last place smaller.

    >>> bool(smaller_scale(DType("QuantizedS8", 0.5), 1) < 0.5 == smaller_scale(DType("QuantizedS8", 0.5), 0))
    True
    """
    return (np.float32(dtype.scale).view(np.int32) - np.int32(noise)).view(np.float32)


class NodeEmitter:
    """An ONNX graph under construction.

    Args:
        opset: version of ONNX's own operators.

    Attributes:
        floating: the type in which real numbers are computed: what is written as float32 is of that type.
        whole: the same of integers, which are written as int32.
        read: names that nodes read.
        reserved: names that values of the source have, which no other gets.
        automatic: names that say nothing but how many there were before.
        made: what nodes compute, by all that makes them; it is computed once.
        shared: names that were returned more than once.

    >>> e = NodeEmitter(18)
    >>> e.op("Add", "x", e.const(np.float32(1)))
    'Add_1'
    >>> [(n.op_type, n.inputs) for n in e.nodes]
    [('Add', ['x', 'const_0'])]
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.floating, self.whole = ElemType.FLOAT, ElemType.INT32
        self.nodes: list[NodeMessage] = []
        self.initializers: dict[str, TensorMessage] = {}
        self.taken: set[str] = set()
        self.reserved: frozenset[str] = frozenset()
        self.automatic: set[str] = set()
        self.read: set[str] = set()
        self.doc = ""
        self._constants: dict[object, str] = {}
        self._count = 0
        self.made: dict[tuple[object, ...], list[str]] = {}
        self.shared: set[str] = set()

    # Names

    def fresh(self, base: str) -> str:
        """Return a name that no value has yet."""
        while True:
            name = f"{base}_{self._count}"
            self._count += 1
            if name not in self.taken and name not in self.reserved:
                self.taken.add(name)
                self.automatic.add(name)
                return name

    def claim(self, name: str) -> str:
        """Claim that name if no value has it yet, else a similar one."""
        return unused(name, self.taken)

    # Nodes and constants

    def need(self, opset: int, what: str) -> None:
        """Refuse what the opset does not have.

        Raises:
            UnsupportedOprError: the opset is older.
        """
        if self.opset < opset:
            raise UnsupportedOprError(f"{what} needs opset {opset}, but {self.opset} is requested", opset)

    def ops(
        self, kind: str, *inputs: str, out: int | Sequence[str] = 1, domain: str = "", **attributes: Attribute
    ) -> list[str]:
        """Append a node, unless there is one that computes the same; the names of its outputs."""
        if not domain:
            first = next((s.since for s in versions_of("", kind)), 0)
            self.need(_LATER.get(kind, first), f"ONNX's {kind}")
        operands = list(inputs)
        while operands and not operands[-1]:
            operands.pop()
        named = ((k, tuple(v) if isinstance(v, list) else v) for k, v in sorted(attributes.items()))
        key = (kind, domain, out, *operands, *named) if isinstance(out, int) else None
        if key in self.made:
            self.shared.update(self.made[key])
            return self.made[key]
        outputs = [self.fresh(kind) for _ in range(out)] if isinstance(out, int) else list(out)
        if key is not None:
            self.made[key] = outputs
        self.read.update(operands)
        self.nodes.append(NodeMessage(kind, operands, outputs, attributes, "", domain, self.doc))
        return outputs

    def op(self, kind: str, *inputs: str, **attributes: Attribute) -> str:
        """Append a node of one output; its name."""
        return self.ops(kind, *inputs, **attributes)[0]  # type: ignore[arg-type]

    def const(self, value: Array | np.generic | float, name: str = "", *, raw: bool = False) -> str:
        """Return a constant; small ones of equal value are stored once.

        Args:
            raw: whether float32 and int32 numbers are not to become those in which is computed.
        """
        array = np.asarray(value)
        if not raw and array.dtype in (np.float32, np.int32):
            array = array.astype((self.floating if array.dtype == np.float32 else self.whole).numpy)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.nbytes <= _SMALL and not name else None
        if key is not None and key in self._constants:
            return self._constants[key]
        constant = self.claim(name) if name else self.fresh("const")
        self.initializers[constant] = TensorMessage.of(constant, array)
        if key is not None:
            self._constants[key] = constant
        return constant

    def f32(self, *values: float) -> str:
        """Return a constant of real numbers: a scalar for one number, else a vector."""
        return self.const(np.array(values[0] if len(values) == 1 else values, self.floating.numpy))

    def ints(self, *values: int) -> str:
        """Return an int64 vector."""
        return self.const(np.array(values, np.int64))

    def number(self, name: str) -> float | None:
        """Return the number that an initializer holds, None for other values."""
        stored = self.initializers[name].value if name in self.initializers else None
        return stored.item() if stored is not None and stored.size == 1 else None

    # Sizes

    def vector(self, dims: Sequence[Dim]) -> str:
        """Emit an int64 vector of sizes."""
        parts: list[str] = []
        for fixed, run in groupby(dims, lambda d: isinstance(d, int)):
            given = [*run]
            parts += [self.ints(*map(int, given))] if fixed else map(str, given)
        if len(parts) < 2:
            return parts[0] if parts else self.ints()
        return self.op("Concat", *parts, axis=0)

    def dim_of(self, x: str, axis: int) -> str:
        """Return one size of a value, as an int64 vector of one number."""
        return self.op("Gather", self.op("Shape", x), self.ints(axis), axis=0)

    def arith(self, kind: str, a: Dim, b: Dim) -> Dim:
        """Add, Sub, Mul or Div of two sizes."""
        if isinstance(a, int) and isinstance(b, int):
            return {"Add": a + b, "Sub": a - b, "Mul": a * b, "Div": a // b if b else 0}[kind]
        if kind == "Mul" and 1 in (a, b):
            return b if a == 1 else a
        if kind in ("Add", "Sub") and b == 0:
            return a
        if kind == "Add" and a == 0:
            return b
        return self.op(kind, *(self.ints(d) if isinstance(d, int) else d for d in (a, b)))

    def product(self, dims: Sequence[Dim]) -> Dim:
        """Multiply sizes."""
        one: Dim = 1
        return reduce(partial(self.arith, "Mul"), dims, one)

    def scalar(self, dim: Dim) -> str:
        """Return a size as an int64 value of rank 0."""
        if isinstance(dim, int):
            return self.const(np.int64(dim))
        return self.squeeze(dim, [0])

    # Forms that depend on the opset

    def cast(self, x: str, to: ElemType) -> str:
        """Cast a value to another type; float32 and int32 are those in which is computed."""
        return self.cast_raw(x, {ElemType.FLOAT: self.floating, ElemType.INT32: self.whole}.get(to, to))

    def cast_raw(self, x: str, to: ElemType) -> str:
        """Cast a value to exactly that type."""
        stored = self.initializers[x].value if x in self.initializers else None
        if stored is None or stored.size != 1 or stored.dtype.kind not in "biu":
            return self.op("Cast", x, to=int(to))
        with np.errstate(all="ignore"):
            return self.const(stored.astype(to.numpy), raw=True)

    def reshape(self, x: str, dims: Sequence[Dim]) -> str:
        """Reshape a value; one size may be -1."""
        if any(d == 0 for d in dims):
            self.need(14, "Reshape to a size of 0")
            return self.op("Reshape", x, self.vector(dims), allowzero=1)
        return self.op("Reshape", x, self.vector(dims))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Permute the axes of a value."""
        return x if list(perm) == sorted(perm) else self.op("Transpose", x, perm=list(perm))

    def _axes(self, kind: str, x: str, axes: Sequence[int], since: int, **attributes: Attribute) -> str:
        if self.opset >= since:
            return self.op(kind, x, self.ints(*axes), **attributes)
        return self.op(kind, x, axes=list(axes), **attributes)

    def squeeze(self, x: str, axes: Sequence[int]) -> str:
        """Remove axes of size 1."""
        return self._axes("Squeeze", x, axes, 13) if axes else x

    def unsqueeze(self, x: str, axes: Sequence[int]) -> str:
        """Insert axes of size 1, counted in the result."""
        return self._axes("Unsqueeze", x, axes, 13) if axes else x

    def reduce(self, kind: str, x: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """Reduce over axes."""
        if self.opset < 11:
            # Negative axes came with opset 11.
            assert all(a >= 0 for a in axes)
        return self._axes(kind, x, axes, _AXES_INPUT.get(kind, 18), keepdims=keepdims)

    def slice(
        self,
        x: str,
        starts: Sequence[Dim],
        ends: Sequence[Dim],
        axes: Sequence[int],
        steps: Sequence[Dim] | None = None,
    ) -> str:
        """Slice along axes; `steps` default to 1."""
        fixed = all(isinstance(d, int) for d in (*starts, *ends))
        if self.opset < 10 and fixed and (steps is None or all(s == 1 for s in steps)):
            return self.op("Slice", x, starts=[*starts], ends=[*ends], axes=list(axes))
        self.need(10, "Slice with computed bounds or steps")
        operands = [x, self.vector(starts), self.vector(ends), self.ints(*axes)]
        if steps is not None and any(s != 1 for s in steps):
            operands.append(self.vector(steps))
        return self.op("Slice", *operands)

    def pad(self, x: str, pads: Sequence[Dim], mode: str = "constant", value: str = "") -> str:
        """Pad before (first half of `pads`) and after every axis; `value` names a constant scalar."""
        if all(p == 0 for p in pads):
            return x
        if self.opset < 11:
            if not all(isinstance(p, int) for p in pads):
                self.need(11, "Pad with computed sizes")
            number = 0.0
            if value:
                stored = self.initializers[value].value
                assert stored is not None
                number = float(stored.reshape(-1)[0])
            return self.op("Pad", x, pads=[*pads], mode=mode, value=number)
        return self.op("Pad", x, self.vector(pads), value, mode=mode)

    def split(self, x: str, sizes: Sequence[Dim], axis: int) -> list[str]:
        """Cut a value along an axis."""
        if len(sizes) == 1:
            return [x]
        if self.opset >= 13:
            return self.ops("Split", x, self.vector(sizes), out=len(sizes), axis=axis)
        if not all(isinstance(n, int) for n in sizes):
            self.need(13, "Split at computed sizes")
        return self.ops("Split", x, out=len(sizes), axis=axis, split=[*sizes])

    def clip(self, x: str, low: float | None, high: float | None) -> str:
        """Clip a float value to bounds."""
        if self.opset >= 11:
            bounds = ["" if v is None else self.f32(v) for v in (low, high)]
            return self.op("Clip", x, *bounds)
        limits = {k: float(v) for k, v in (("min", low), ("max", high)) if v is not None}
        return self.op("Clip", x, **limits)

    def leq(self, a: str, b: str) -> str:
        """Compare ``a <= b`` as Bool; false if either is NaN."""
        if self.opset >= 12:
            return self.op("LessOrEqual", a, b)
        return self.op("Or", self.op("Less", a, b), self.equal(a, b))

    def equal(self, a: str, b: str, real: bool = True) -> str:
        """Compare ``a == b`` as Bool."""
        if self.opset < 11 and real:
            return self.op("Not", self.op("Or", self.op("Less", a, b), self.op("Less", b, a)))
        return self.op("Equal", a, b)

    def where(self, mask: str, a: str, b: str) -> str:
        """Select `a` where the mask is true, else `b`."""
        return self.op("Where", mask, a, b)

    def expand(self, x: str, shape: str) -> str:
        """Broadcast a value to a shape (int64 vector)."""
        self.need(8, "ONNX's Expand")
        return self.op("Expand", x, shape)

    def range(self, n: Dim) -> str:
        """Emit the int64 vector 0, 1 ... n - 1."""
        if isinstance(n, int):
            return self.const(np.arange(n, dtype=np.int64))
        return self.op("Range", self.const(np.int64(0)), self.squeeze(n, [0]), self.const(np.int64(1)))

    def softmax(self, x: str, axis: int, rank: int) -> str:
        """Compute softmax along one axis."""
        if self.opset >= 13 or axis % rank == rank - 1:
            return self.op("Softmax", x, axis=axis if self.opset >= 13 else rank - 1)
        order = [i for i in range(rank) if i != axis % rank] + [axis % rank]
        back = [order.index(i) for i in range(rank)]
        return self.transpose(self.op("Softmax", self.transpose(x, order), axis=rank - 1), back)

    def topk(self, x: str, k: Dim, axis: int, largest: int = 1) -> tuple[str, str]:
        """Return the values and int64 indices of the largest or smallest elements, in order."""
        if self.opset >= 11:
            values, at = self.ops("TopK", x, self.vector([k]), out=2, axis=axis, largest=largest, sorted=1)
            return values, at
        if not largest:
            self.need(11, "TopK of the smallest elements")
        if self.opset == 10:
            values, at = self.ops("TopK", x, self.vector([k]), out=2, axis=axis)
        else:
            if not isinstance(k, int):
                self.need(10, "TopK of a computed number of elements")
            values, at = self.ops("TopK", x, out=2, axis=axis, k=int(k))
        return values, at

    def round_away(self, x: str) -> str:
        """Round to integers, halves away from zero: ONNX's own Round takes halves to even."""
        # The float32 below one half, so that 0.49999997 is not a half.
        half = self.f32(float(np.nextafter(np.float32(0.5), np.float32(0))))
        return self.op("Mul", self.op("Sign", x), self.op("Floor", self.op("Add", self.op("Abs", x), half)))

    def round_bfloat16(self, x: str) -> str:
        """Round float32 numbers to bfloat16."""
        self.need(13, "rounding to bfloat16")
        return self.op("Cast", self.op("Cast", x, to=int(ElemType.BFLOAT16)), to=int(ElemType.FLOAT))

    def centred(self, x: str, dtype: DType, elem: ElemType) -> str:
        """Convert stored integers to another type, without their zero point."""
        out = self.cast(x, elem)
        return self.op("Sub", out, self.const(elem.numpy.type(dtype.zero_point))) if dtype.zero_point else out

    # Whole graph

    def graph(
        self,
        name: str,
        inputs: list[ValueMessage],
        outputs: list[ValueMessage],
        outer: Mapping[str, int] = {},
    ) -> GraphMessage:
        """Build the graph, without nodes that no output depends on."""
        wanted = {v.name for v in outputs} | set(outer)
        kept: list[NodeMessage] = []
        for node in reversed(self.nodes):
            if not wanted.isdisjoint(node.outputs):
                kept.append(node)
                wanted.update(node.inputs)
                wanted.update(*map(free_names, node.bodies))
        kept.reverse()
        stored = [t for n, t in self.initializers.items() if n in wanted]
        return GraphMessage(name, kept, stored, inputs, outputs)


def free_names(graph: GraphMessage) -> set[str]:
    """Return the names that a subgraph takes from outside."""
    names = {v.name for v in graph.outputs}
    bound = {v.name for v in graph.inputs} | {t.name for t in graph.initializers}
    for node in graph.nodes:
        names.update(node.inputs, *map(free_names, node.bodies))
        bound.update(node.outputs)
    return names - bound
