"""The context of a translation: a `NodeEmitter` that knows the variables of a graph of MegEngine's operators.

Dtypes come from `loadrun.ops.infer`. Shapes are inferred for several sets of input sizes, the example's and others in
which the dynamic axes differ: sizes equal in all of them are fixed, the rest is computed in the ONNX graph. The
same holds for shape arithmetic: values that agree become constants.

Quantized values are kept as their stored integers, BFloat16 ones as float32, rounded after every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import numpy as np

from ...base.errors import EngineError
from ...base.registry import Registry, resolve
from ...graph import Opr, Var, params as P
from ...graph.dtypes import Array, DType
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.infer import Inference, describe
from ..encode import Attribute, NodeMessage
from ..tensors import ElemType
from .emitter import SINGLE_PRECISION, Dim, NodeEmitter, UnsupportedOprError, smaller_scale
from .reasons import reason

Sizes = tuple[int | None, ...]
"""A shape; None if the size depends on the inputs."""
Translation = Callable[["OnnxWriter", Opr], "str | Sequence[str]"]
_FAMILIES = """
    io elemwise elemwise_multi shape indexing reduce layers windows joined quantization formulas pixels
"""
_HOMES = [f"{__package__}.{family}" for family in _FAMILIES.split()]
TRANSLATIONS: Registry[str, Translation] = Registry("translation to ONNX", _HOMES)
"""Translations by operator type; each returns the names of the outputs."""
translation = TRANSLATIONS.register
JOINED: Registry[str, Callable[[OnnxWriter, Opr], str | None]] = Registry("joined translation", _HOMES)
"""Translations of an operator with those before it, by mode or type; None where they do not fit together."""
joined = JOINED.register
PRODUCTS = ("MatrixMulV2", "BatchedMatrixMulV2")


def elem_of(dtype: DType) -> ElemType:
    """Return the ONNX type in which values of a dtype are stored.

    Raises:
        UnsupportedOprError: ONNX has none.

    >>> elem_of(DType("Float16")).name, elem_of(DType("QuantizedS8", 0.1)).name
    ('FLOAT16', 'INT8')
    """
    if dtype.name == "Complex64":
        raise UnsupportedOprError("complex numbers: ONNX's operators do not take them")
    return ElemType.of(dtype.np)


def _is_weight(var: Var) -> bool:
    return var.owner.type != "ImmutableTensor" and bool(var.owner.tensors)


def _of_operand(product: Var, axis: int, rank: int) -> tuple[Var, int] | None:
    """Return the operand of a product of matrices that has the size of an axis, and where; None for other values."""
    opr = product.owner
    if opr.type not in PRODUCTS or opr.get(P.MatrixMul).format != P.MatrixMulFormat.DEFAULT:
        return None
    p, (a, b) = opr.get(P.MatrixMul), opr.inputs
    last = axis == rank - 1
    turned = (p.transposeB if last else p.transposeA) and axis >= rank - 2
    return b if last else a, 2 * rank - 3 - axis if turned else axis


class OnnxWriter(NodeEmitter):
    """Emits ONNX for operators of a graph.

    Args:
        opset: version of ONNX's operators.
        known: inferred facts for each set of input sizes; the first is the example's.
        observed: shapes of variables that inference does not know, as one run gave them.

    Attributes:
        decided: variables that follow from comparisons, remainders, extremes and the like of open sizes: equal at all
            sizes that are known, they may differ at others.
        ends: variables that are outputs.
        inner: whether a subgraph is being written.
        formula: whether the operators of a formula are, which share what they compute.
        described: what nodes say of an operator.
        scales: the scales of variables that DequantizeLinear gives.
        steps: weights as integers and their scales; None for others that were tried.
        ids: numbers that no variable or operator of the graph has.
        stored_once: names of what is derived from weights.
    """

    def __init__(
        self, opset: int, known: Sequence[Inference], observed: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        super().__init__(opset)
        self.known = list(known)
        self.observed = observed or {}
        self.names: dict[int, str] = {}
        self.weights: dict[int, Array] = {}
        self.notes: dict[str, str] = {}
        self.params: set[str] = set()
        self.wide: dict[str, str] = {}
        self.vectors: dict[int, list[Dim]] = {}
        self.readers: dict[int, list[Opr]] = {}
        self.decided: set[int] = set()
        self.ends: set[int] = set()
        self.inner = self.formula = False
        self.scales: dict[int, np.float32] = {}
        self.steps: dict[str, tuple[Array, Array] | None] = {}
        self.stored_once: dict[str, str] = {}
        self.described: Callable[[Opr], str] = lambda _: ""
        self._rounded: set[int] = set()
        self._results: set[str] = set()
        self._alone: dict[int, bool] = {}
        self.merged: dict[int, tuple[Var, ...]] = {}
        self.required: dict[int, set[int]] = {}
        self._real: dict[int, str] = {}
        self._dims: dict[tuple[int, int], Dim] = {}
        self.ids = count(1 << 32)

    # Translating

    def translate(self, opr: Opr) -> None:
        """Write one operator; its outputs get names.

        Raises:
            UnsupportedOprError: it cannot be written; the error says which operator it is about.
        """
        try:
            rule = TRANSLATIONS.get(opr.type)
            if rule is None:
                raise UnsupportedOprError(reason(opr.type))
            self.shared.clear()
            with self._computing(opr):
                together = JOINED.get(opr.title)
                result = (together and together(self, opr)) or rule(self, opr)
                names = [result] if isinstance(result, str) else list(result)
                if self.floating is not ElemType.FLOAT or self.whole is not ElemType.INT32:
                    # An output whose own type is narrower than that of others gets it.
                    ends = [(n, self.dtype(v)) for n, v in zip(names, opr.outputs, strict=False)]
                    narrow = ("Float32", "Int32")
                    names = [self.cast_raw(n, elem_of(d)) if d.name in narrow else n for n, d in ends]
            sizes: list[Dim] | None = resolve(f"{__package__}.shape:followed_sizes")(self, opr)
        except UnsupportedOprError as e:
            e.opr = e.opr or opr
            raise
        except (ValueError, IndexError, OverflowError) as e:
            # As in a rule of an operator: its parameters and inputs contradict one another.
            why = UnsupportedOprError(f"it cannot be computed: {e}")
            why.opr = opr
            raise why from e
        for var, name in zip(opr.outputs, names, strict=False):
            self.names[var.id] = self._apart(name)
        if sizes is not None:
            self.vectors[opr.outputs[0].id] = sizes

    def _apart(self, name: str) -> str:
        """Return a result under a name of its own, where another operator computes the same."""
        if name in self._results and name in self.shared and not self.formula:
            node = next(n for n in self.nodes if name in n.outputs)
            if len(node.outputs) == 1:
                name = self.fresh(node.op_type)
                self.nodes.append(replace(node, outputs=[name]))
        self._results.add(name)
        return name

    def ops(
        self, kind: str, *inputs: str, out: int | Sequence[str] = 1, domain: str = "", **attributes: Attribute
    ) -> list[str]:
        """Append a node; one that runtimes compute in float32 only is computed so, and a note says it."""
        if domain or self.floating is not ElemType.DOUBLE or kind not in SINGLE_PRECISION:
            return super().ops(kind, *inputs, out=out, domain=domain, **attributes)
        self.notes.setdefault(f"{kind}: float64 is computed in float32, as runtimes offer nothing else", "")
        # The fifth input of recurrent networks is the lengths of sequences, the only integers.
        operands = [n if not n or i == 4 else self.cast_raw(n, ElemType.FLOAT) for i, n in enumerate(inputs)]
        outputs = super().ops(kind, *operands, out=out, **attributes)  # type: ignore[arg-type]
        return [self.cast_raw(n, ElemType.DOUBLE) for n in outputs]

    @contextmanager
    def _computing(self, opr: Opr) -> Iterator[None]:
        """Compute inside in float64 or in wide integers where the operator does."""
        dtypes = [v.dtype for v in (*opr.inputs, *opr.outputs) if v.dtype is not None and v.dtype.is_wide]
        before = self.floating, self.whole
        if opr.type != "TypeCvtV2":
            whole = [elem_of(d) for d in dtypes if not d.is_float]
            self.floating = ElemType.DOUBLE if len(whole) < len(dtypes) else ElemType.FLOAT
            self.whole = whole[0] if whole else ElemType.INT32
        try:
            yield
        finally:
            self.floating, self.whole = before

    def translate_for(self, variables: Sequence[Var]) -> None:
        """Write what variables depend on and what is not written yet."""
        stack, todo = [v.owner for v in variables], {}
        while stack:
            opr = stack.pop()
            done = all(v.id in self.names or self.value(v) is not None for v in opr.outputs)
            if done or opr.id in todo:
                continue
            todo[opr.id] = opr
            stack.extend(v.owner for v in opr.inputs)
        for number in sorted(todo):
            self.translate(todo[number])

    @contextmanager
    def subgraph(self) -> Iterator[list[NodeMessage]]:
        """Collect the nodes that are written inside, which may read all that is known outside."""
        outer = self.nodes, self.names, self._real, self._dims, self.made, self.vectors
        body: list[NodeMessage] = []
        self.nodes, was_inner, self.inner = body, self.inner, True
        self.names, self._real, self._dims = dict(self.names), dict(self._real), dict(self._dims)
        self.made, self.vectors = dict(self.made), dict(self.vectors)
        try:
            yield body
        finally:
            self.nodes, self.names, self._real, self._dims, self.made, self.vectors = outer
            self.inner = was_inner

    # Facts about variables

    def shape(self, var: Var) -> Sizes:
        """Return the shape of a variable.

        Raises:
            UnsupportedOprError: not even its rank is known.
        """
        shapes = [k.shapes.get(var.id) for k in self.known]
        first = next((s for s in shapes if s is not None), self.observed.get(var.id))
        if first is None:
            raise UnsupportedOprError(f"the rank of {var.label!r} is known only when the model runs")
        if any(s is None for s in shapes):
            return (None,) * len(first)
        if any(s is not None and len(s) != len(first) for s in shapes):
            raise UnsupportedOprError(f"the rank of {var.label!r} changes with the sizes of the inputs")
        return tuple(
            n if len({s[i] for s in shapes if s is not None}) == 1 else None for i, n in enumerate(first)
        )

    def fixed(self, var: Var, axes: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the sizes of a variable (along some axes), which must not change.

        Raises:
            UnsupportedOprError: one does.
        """
        shape = self.shape(var)
        chosen = [(a, shape[a]) for a in (range(len(shape)) if axes is None else axes)]
        for axis, n in chosen:
            if n is None:
                raise UnsupportedOprError(f"axis {axis} of {var.label!r} must have a fixed size")
        return tuple(n for _, n in chosen if n is not None)

    def example(self, var: Var) -> tuple[int, ...]:
        """Return the shape of a variable with the example's sizes; unknown ones as one run gave them."""
        shape = self.known[0].shapes.get(var.id, self.observed.get(var.id))
        if shape is None:
            raise UnsupportedOprError(f"the shape of {var.label!r} is known only when the model runs")
        return shape

    def rank(self, var: Var) -> int:
        """Return the number of dimensions."""
        return len(self.shape(var))

    def dtype(self, var: Var) -> DType:
        """Return the data type of a variable."""
        if var.dtype is None:
            raise EngineError(f"the dtype of {var.label!r} is not inferred yet")
        return var.dtype

    def value(self, var: Var) -> Array | None:
        """Return the value of a variable that is the same in every run and at all sizes, else None."""
        opr = var.owner
        if opr.type != "Host2DeviceCopy" and opr.tensors:
            if var.id not in self.weights:
                self.weights[var.id] = opr.tensors[var.index].value()
            return self.weights[var.id]
        values = [k.values.get(var.id) for k in self.known]
        first = values[0]
        if first is None or var.id in self.decided:
            return None
        return first if all(v is not None and np.array_equal(v, first) for v in values[1:]) else None

    def decide(self, opr: Opr) -> None:
        """Note what compares or rounds open sizes, and what is computed from that."""
        first = self.known[0].values

        def varies(var: Var) -> bool:
            return var.id in first and self.value(var) is None

        open_ones = sum(map(varies, opr.inputs))
        mode = opr.get(P.Elemwise).mode if opr.type == "Elemwise" else None
        rounded = any(v.id in self._rounded for v in opr.inputs)
        if mode == P.ElemwiseMode.FLOOR_DIV:
            steps = open_ones == 1
        elif mode in modes(ModeTrait.SUM | ModeTrait.PRODUCT):
            # In n * m / n and n + 1 - n the sizes cancel out, in n - n // 2 * 2 they do not.
            steps = rounded and mode in modes(ModeTrait.SUM)
        else:
            steps = mode is not None or opr.type in ("TypeCvtV2", "ElemwiseMultiType")
        if open_ones and (steps or rounded):
            self._rounded.update(v.id for v in opr.outputs if v.id in first)
        compares = mode in modes(ModeTrait.COMPARES) or self.dtype(opr.outputs[0]).name == "Bool"
        # Steps may be equal at all sizes that are known by chance.
        chosen = open_ones and (compares or (steps and not any(map(varies, opr.outputs))))
        if chosen or any(v.id in self.decided for v in opr.inputs):
            self.decided.update(v.id for v in opr.outputs if v.id in first)

    def alone(self, var: Var) -> bool:
        """Return whether one operator reads a variable, and no output is it.

        Those do not count whose results are constants, since they read a fixed shape, or that ask for the sizes of a
        product of matrices, which are those of its operands.
        """
        if var.id not in self._alone:
            product = var.owner.type in PRODUCTS
            readers = sum(
                any(self.value(v) is None for v in o.outputs) and not (product and o.type == "GetVarShapeV1")
                for o in self.readers[var.id]
            )
            self._alone[var.id] = readers == 1 and var.id not in self.ends
        return self._alone[var.id]

    def constant(self, var: Var, what: str) -> Array:
        """Return the value of a variable that must be constant.

        Raises:
            UnsupportedOprError: it is not.
        """
        value = self.value(var)
        if value is None:
            raise UnsupportedOprError(f"{what} must be constant")
        return value

    def numbers(self, var: Var, what: str) -> tuple[int, ...]:
        """Return the integers in a variable that must be constant."""
        return tuple(int(v) for v in self.constant(var, what).reshape(-1))

    def note(self, opr: Opr, text: str) -> None:
        """Report that what is written is not exactly what the operator does."""
        self.notes.setdefault(f"{opr.title}: {text}", describe(opr))

    # Values

    def name(self, var: Var) -> str:
        """Return the ONNX value of a variable, a new initializer for a constant."""
        if var.id not in self.names:
            value = self.value(var)
            if value is None:
                raise UnsupportedOprError(
                    f"it reads output {var.index} of {describe(var.owner)}, which ONNX does not have"
                )
            weight = _is_weight(var)
            constant = self.const(value, var.label if weight or value.nbytes >= 64 else "", raw=True)
            self.names[var.id] = self._noted(var, constant, weight)
        return self.names[var.id]

    def _noted(self, var: Var, constant: str, weight: bool) -> str:
        """Note of which kind a constant is."""
        if weight:
            self.params.add(constant)
        # A name other than that of its operator and number is one of its own.
        if not var.name or var.name.startswith(f"{var.owner.type}["):
            self.automatic.add(constant)
        return constant

    def operand(self, var: Var) -> str:
        """Return the ONNX value of an operand that broadcasts: a number without axes for one without a name."""
        value = self.value(var)
        if value is None or value.size != 1 or var.id in self.names or _is_weight(var):
            return self.name(var)
        return self.const(value.reshape(()), raw=True)

    def derived(self, var: Var, what: str, value: Array) -> str:
        """Store a constant derived from a weight once, as a weight itself."""
        key = f"{var.label}:{what}"
        if key not in self.stored_once:
            self.stored_once[key] = self._noted(
                var, self.const(value, key), var.owner.type != "ImmutableTensor"
            )
        return self.stored_once[key]

    def dequantized(self, var: Var) -> str:
        """Return a quantized variable's real numbers as float32; other variables as they are."""
        dtype = self.dtype(var)
        if not dtype.is_quantized:
            return self.name(var)
        if var.id not in self._real:
            self._real[var.id] = self.dequantize(self.name(var), dtype)
        return self._real[var.id]

    def float(self, var: Var) -> str:
        """Return a variable as float32 numbers."""
        dtype = self.dtype(var)
        x = self.dequantized(var)
        target = self.floating.numpy if dtype.name == "Float64" else np.float32
        return x if dtype.is_quantized or dtype.np == target else self.cast(x, ElemType.FLOAT)

    def dequantize(self, x: str, dtype: DType) -> str:
        """Dequantize stored integers to float32."""
        scale = self.f32(dtype.scale)
        if dtype.name == "QuantizedS16" or self.opset < 10:
            real = self.cast(x, ElemType.FLOAT)
            if dtype.zero_point:
                real = self.op("Sub", real, self.f32(dtype.zero_point))
            return self.op("Mul", real, scale)
        if dtype.name == "QuantizedS32":
            return self.op("DequantizeLinear", x, scale)
        # The zero point says the type where a runtime moves the operator and needs its inverse.
        return self.op("DequantizeLinear", x, scale, self.const(dtype.np.type(dtype.zero_point)))

    def quantize(self, x: str, dtype: DType, noise: int = 3) -> str:
        """Quantize float32 numbers to stored integers: halves away from zero, as MegEngine rounds them.

        QuantizeLinear rounds halves to even, so it gets a scale that is a little smaller.

        Args:
            noise: how much smaller, in units of the last place: the error that the preceding operators may have. Below
                0 halves are rounded away from zero by operators instead.
        """
        low, high = dtype.range
        scale = np.float32(dtype.scale)
        if dtype.name in ("QuantizedS32", "QuantizedS16") or self.opset < 10 or noise < 0:
            top = 2147483520 if dtype.name == "QuantizedS32" else high
            turned = dtype.name == "QuantizedS32" or noise < 0
            by = self.op("Mul", x, self.const(1 / scale)) if turned else self.op("Div", x, self.const(scale))
            whole = self.round_away(by)
            if dtype.zero_point:
                whole = self.op("Add", whole, self.f32(dtype.zero_point))
            return self.cast(self.clip(whole, float(low), float(top)), elem_of(dtype))
        if dtype.bits < 8 or dtype.name == "QuantizedS1":
            real = ((low - dtype.zero_point) * float(scale), (high - dtype.zero_point) * float(scale))
            x = self.clip(x, *real)
        zero = self.const(dtype.np.type(dtype.zero_point))
        return self.op("QuantizeLinear", x, self.const(smaller_scale(dtype, noise)), zero)

    def stored(self, x: str, dtype: DType) -> str:
        """Convert float32 numbers to the form in which values of a dtype are stored."""
        if dtype.is_quantized:
            return self.quantize(x, dtype)
        if dtype.name == "BFloat16":
            return self.round_bfloat16(x)
        return x if dtype.np == self.floating.numpy else self.cast_raw(x, elem_of(dtype))

    def int64(self, var: Var) -> str:
        """Return an integer variable as int64: shapes, indices, bounds of slices."""
        if var.owner.type == "TypeCvtV2" and self.dtype(var.owner.inputs[0]).name == "Int64":
            var = var.owner.inputs[0]
        if self.dtype(var).name == "Int64":
            return self.name(var)
        value = self.value(var)
        if value is not None and value.size <= 1024:
            return self.const(value.astype(np.int64))
        name = self.name(var)
        return self.wide.get(name) or self.cast(name, ElemType.INT64)

    # Sizes

    def dim(self, var: Var, axis: int) -> Dim:
        """Return one size of a variable: a number, or a value of the graph."""
        shape = self.shape(var)
        axis %= len(shape)
        n = shape[axis]
        if n is not None:
            return n
        while (operand := _of_operand(var, axis, len(shape))) is not None:
            var, axis = operand
        key = (var.id, axis)
        if key not in self._dims:
            self._dims[key] = self.dim_of(self.name(var), axis)
        return self._dims[key]

    def dims(self, var: Var) -> list[Dim]:
        """Return all sizes of a variable."""
        return [self.dim(var, i) for i in range(self.rank(var))]

    def split_dims(self, var: Var) -> list[Dim]:
        """Return the numbers of an integer vector (a target shape) one by one."""
        value = self.value(var)
        if value is not None:
            return [int(v) for v in value.reshape(-1)]
        if var.id in self.vectors:
            return list(self.vectors[var.id])
        name, n = self.int64(var), self.fixed(var)[0]
        varying = [k.values.get(var.id) for k in self.known]
        out: list[Dim] = []
        for i in range(n):
            seen = {int(v[i]) for v in varying if v is not None}
            if len(seen) == 1 and all(v is not None for v in varying) and var.id not in self.decided:
                out.append(seen.pop())
            else:
                out.append(name if n == 1 else self.slice(name, [i], [i + 1], [0]))
        return out
