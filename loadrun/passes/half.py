"""Computing in float16 (MegEngine's ConvertF32ToF16): for storage only, or altogether."""

from collections.abc import Sequence

from ..base.errors import EngineError
from ..graph import Graph, Opr, Var
from ..graph import params as P
from ..graph.dtypes import DType
from ..ops.catalog import CATALOG, TypeParam, types
from ..ops.op import Trait
from .rewriter import Rewriter

_F32, _F16 = DType("Float32"), DType("Float16")
_UNCHANGED = types(Trait.FLOAT32_ONLY)


def to_half(graph: Graph, *, wide_sums: bool) -> Graph:
    """Convert inputs, weights and everything between them to float16; outputs have their old dtypes.

    An operator that takes no float16 computes in float32 between two conversions.

    Args:
        wide_sums: convolutions, products and reductions add in float32 and round the sum.
    """
    r = Rewriter(graph)
    half = _Half(r, wide_sums)
    for opr in r.oprs:
        half.visit(opr)
    for old in graph.outputs:
        if old.dtype == _F32:
            half.narrow.pop(old.id, None)
            r.replace(old, half.wide(old))
    return r.finish()


class _Half:
    def __init__(self, rewriter: Rewriter, wide_sums: bool) -> None:
        self.r = rewriter
        self.wide_sums = wide_sums
        # float16 variables by the ids of the old ones that they stand for
        self.narrow: dict[int, Var] = {}

    def wide(self, old: Var) -> Var:
        """Return an old float32 variable as float32."""
        new = self.r.var(old)
        return new if self.r.dtype(new) == old.dtype else self._convert(new, _F32)

    def _convert(self, var: Var, target: DType) -> Var:
        return self.r.add("TypeCvtV2", TypeParam(dtype=target), inputs=[var])[0]

    def visit(self, opr: Opr) -> None:
        r = self.r
        operands = [self.narrow.get(v.id, r.var(v)) for v in opr.inputs]
        for i in CATALOG[opr.type].float32_inputs:
            operands[i] = self.wide(opr.inputs[i])
        if opr.type in _UNCHANGED:
            operands = [self.wide(v) for v in opr.inputs]
        if opr.type == "TypeCvtV2" and opr.get(TypeParam).dtype == _F32:
            new = operands[0] if r.dtype(operands[0]) == _F16 else self._convert(operands[0], _F16)
            r.replace(opr.outputs[0], new)
            self.narrow[opr.outputs[0].id] = new
            return
        try:
            outputs = r.copy(opr, operands, *self._params(opr, operands))
        except EngineError:
            outputs = r.copy(opr, [self.wide(v) for v in opr.inputs])
        for old, new in zip(opr.outputs, outputs, strict=True):
            if old.dtype != _F32 or opr.type in _UNCHANGED:
                continue
            self.narrow[old.id] = new if r.dtype(new) == _F16 else self._convert(new, _F16)

    def _params(self, opr: Opr, operands: Sequence[Var]) -> tuple[P.Record, ...]:
        """Return the parameters with which sums are float32."""
        if not self.wide_sums or not operands or self.r.dtype(operands[0]) != _F16:
            return opr.params
        return tuple(_with_wide_sums(opr, p) for p in opr.params)


def _with_wide_sums(opr: Opr, p: P.Record) -> P.Record:
    if isinstance(p, P.Convolution | P.ConvBias):
        return p.replace(compute_mode=P.ComputeMode.FLOAT32)
    if isinstance(p, P.MatrixMul):
        return p.replace(compute_mode=P.MatrixMulComputeMode.FLOAT32)
    if isinstance(p, P.Reduce) and opr.type == "ReduceV2":
        return p.replace(data_type=P.ReduceDataType.FLOAT_O16xC32)
    return p
