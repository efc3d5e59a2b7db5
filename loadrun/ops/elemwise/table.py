"""The table of elementwise modes: one row declares everything that is known of a mode.

Kernels, promotion, mixed precision and the passes take their sets of modes from here (`modes`); `ElemwiseMultiType`
takes what its quantized modes share with these.
"""

from collections.abc import Callable
from enum import Flag, auto
from typing import NamedTuple

import numpy as np

from ...graph.params import ElemwiseMode as M
from ..numeric.quant import round_away
from ..numeric.special import erf, erfc, erfcinv, erfinv, gelu
from . import floats as f, formulas as w, integers as i

Function = Callable[..., object]


class ModeTrait(Flag):
    """A property of a mode, whatever its inputs are.

    Attributes:
        COMPARES: MegEngine's Python gives Bool, by the mode of ElemwiseMultiType of the same name.
        SORTED: MegEngine sorts its two inputs, which shows where one of them is NaN.
        ASSOCIATIVE: terms of a chain may change places: sums, products, maxima, minima.
        BY_PLACE: what it makes of NaN depends on the place in the whole array, so that it is not run in blocks.
        SELECTS: of two equal inputs it gives that input.
        REPEATS: doing it twice is doing it once.
        UNDOES: doing it twice is doing nothing.
        INTEGRAL: gives integers, so that it leaves integers alone.
        GIVES_FLOAT: MegEngine's Python converts integers to float32 first.
        FINITE: gives finite numbers for zeros and all that follows from them.
        QUANTIZED: takes QuantizedS8 and QuantizedS32 as they are.
        ONE_PASS: goes over the array once; others run in pieces that stay in the cache.
        VECTOR: its quantized mode has x86 vector code for QuantizedS8 and Quantized8Asymm.
        FALLBACK: its quantized mode has vector code for QuantizedS8 only.
        FROM_S32: its quantized mode has vector code from QuantizedS32.
        LIBRARY: one function of the C library, exact to the last bit of float32 nearly always.
        COMPLEX: takes complex numbers, as pairs of real ones.
        STEPS: jumps, so that one rounding before it may show as a difference of one.
        ON_GRID: gives numbers on a grid (pixels, tenths) of such numbers.
        SUM: a sum or difference of its inputs.
        PRODUCT: a product or quotient of its inputs.
        MUL_ADD: a sum of products, fused.
        NATURAL: gives numbers that are not negative of such numbers, and whole ones of whole ones.
        LEFT_OUT: MegEngine leaves it out beside its neutral number while it makes the operator.
        CANCELS: gives its neutral number of one variable twice.
    """

    NONE = 0
    COMPARES = auto()
    SORTED = auto()
    ASSOCIATIVE = auto()
    BY_PLACE = auto()
    SELECTS = auto()
    REPEATS = auto()
    UNDOES = auto()
    INTEGRAL = auto()
    GIVES_FLOAT = auto()
    FINITE = auto()
    QUANTIZED = auto()
    ONE_PASS = auto()
    VECTOR = auto()
    FALLBACK = auto()
    FROM_S32 = auto()
    LIBRARY = auto()
    COMPLEX = auto()
    STEPS = auto()
    ON_GRID = auto()
    SUM = auto()
    PRODUCT = auto()
    MUL_ADD = auto()
    NATURAL = auto()
    LEFT_OUT = auto()
    CANCELS = auto()


T = ModeTrait


class Row(NamedTuple):
    """Everything that is declared of one mode.

    Attributes:
        mode: the mode.
        arity: how many inputs it takes.
        real: ``real(out, *inputs)`` on float32, None if floats are not taken; `out` may be the memory of an input.
        whole: the same on integers, None if they are computed in float32.
        truth: the same on Bool, None if it is not taken.
        exact: what its definition gives, on floats and integers, where `real` or `whole` is another thing.
        narrow: what it does on float16 and bfloat16 values, in float32 arrays, where that differs from `real`.
        wide: its formula on float64 arrays, None if there is none.
        flops: operations per element.
        neutral: the second input that changes nothing.
        onnx: the operator of ONNX that is this mode, "" where it takes several.
        traits: see `ModeTrait`.
    """

    mode: M
    arity: int
    real: Function | None = None
    whole: Function | None = None
    truth: Function | None = None
    wide: w.Formula | None = None
    flops: int = 1
    neutral: float | None = None
    onnx: str = ""
    exact: Function | None = None
    narrow: Function | None = None
    traits: T = T.NONE


# fmt: off
_ROWS = (
    Row(M.RELU, 1, f.relu, f.exact_relu, exact=f.exact_relu, narrow=f.exact_relu, wide=w.relu, onnx="Relu", traits=T.REPEATS | T.FINITE | T.QUANTIZED | T.VECTOR | T.FROM_S32 | T.ON_GRID),
    Row(M.ABS, 1, f.Of(np.abs), f.Of(np.abs), wide=np.abs, onnx="Abs", traits=T.REPEATS | T.FINITE | T.ONE_PASS | T.VECTOR | T.ON_GRID),
    Row(M.ACOS, 1, f.Of(np.arccos), wide=np.arccos, onnx="Acos", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.ASIN, 1, f.Of(np.arcsin), wide=np.arcsin, onnx="Asin", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.CEIL, 1, f.Of(np.ceil), wide=np.ceil, onnx="Ceil", traits=T.REPEATS | T.INTEGRAL | T.FINITE | T.ONE_PASS | T.STEPS),
    Row(M.COS, 1, f.Of(np.cos), wide=np.cos, onnx="Cos", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.EXP, 1, f.exp, exact=f.Of(np.exp), narrow=f.Of(np.exp), wide=np.exp, onnx="Exp", traits=T.GIVES_FLOAT | T.ONE_PASS | T.VECTOR | T.LIBRARY),
    Row(M.EXPM1, 1, f.Of(np.expm1), wide=np.expm1, traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.FLOOR, 1, f.Of(np.floor), wide=np.floor, onnx="Floor", traits=T.REPEATS | T.INTEGRAL | T.FINITE | T.ONE_PASS | T.STEPS),
    Row(M.LOG, 1, f.Of(np.log), wide=np.log, onnx="Log", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.LOG1P, 1, f.Of(np.log1p), wide=np.log1p, traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.NEGATE, 1, f.Of(np.negative), f.Of(np.negative), wide=np.negative, onnx="Neg", traits=T.UNDOES | T.FINITE | T.QUANTIZED | T.ONE_PASS | T.COMPLEX | T.ON_GRID | T.SUM),
    Row(M.SIGMOID, 1, f.sigmoid, exact=f.logistic, narrow=f.logistic, wide=w.sigmoid, onnx="Sigmoid", traits=T.FINITE | T.VECTOR),
    Row(M.SIN, 1, f.Of(np.sin), wide=np.sin, onnx="Sin", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.TANH, 1, f.Of(np.tanh), wide=np.tanh, onnx="Tanh", traits=T.GIVES_FLOAT | T.FINITE | T.ONE_PASS | T.FALLBACK | T.LIBRARY),
    Row(M.ABS_GRAD, 2, f.abs_grad, f.abs_grad, wide=w.abs_grad, traits=T.ON_GRID),
    Row(M.ADD, 2, f.Of(np.add), f.Of(np.add), wide=np.add, neutral=0, onnx="Add", traits=T.ASSOCIATIVE | T.FINITE | T.QUANTIZED | T.ONE_PASS | T.VECTOR | T.FROM_S32 | T.COMPLEX | T.ON_GRID | T.SUM | T.NATURAL | T.LEFT_OUT),
    Row(M.FLOOR_DIV, 2, f.floor_div, f.Of(np.floor_divide), wide=w.floor_div, neutral=1, traits=T.STEPS | T.NATURAL | T.CANCELS),
    Row(M.MAX, 2, f.maximum, f.Of(np.maximum), exact=f.Of(np.maximum), narrow=f.maximum_narrow, wide=np.maximum, traits=T.SORTED | T.BY_PLACE | T.ASSOCIATIVE | T.SELECTS | T.FINITE | T.QUANTIZED | T.VECTOR | T.ON_GRID | T.NATURAL),
    Row(M.MIN, 2, f.minimum, f.Of(np.minimum), exact=f.Of(np.minimum), narrow=f.minimum_narrow, wide=np.minimum, traits=T.SORTED | T.BY_PLACE | T.ASSOCIATIVE | T.SELECTS | T.FINITE | T.QUANTIZED | T.VECTOR | T.ON_GRID | T.NATURAL),
    Row(M.MOD, 2, f.Of(np.fmod), f.Of(np.remainder), wide=np.fmod, traits=T.ONE_PASS | T.STEPS),
    Row(M.MUL, 2, f.Of(np.multiply), i.product, exact=f.Of(np.multiply), wide=np.multiply, neutral=1, onnx="Mul", traits=T.ASSOCIATIVE | T.FINITE | T.ONE_PASS | T.VECTOR | T.COMPLEX | T.ON_GRID | T.PRODUCT | T.NATURAL | T.LEFT_OUT),
    Row(M.POW, 2, f.Of(np.power), wide=np.power, neutral=1, onnx="Pow", traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY | T.LEFT_OUT),
    Row(M.SIGMOID_GRAD, 2, f.sigmoid_grad, f.sigmoid_grad),
    Row(M.SUB, 2, f.Of(np.subtract), f.Of(np.subtract), wide=np.subtract, neutral=0, onnx="Sub", traits=T.FINITE | T.QUANTIZED | T.ONE_PASS | T.VECTOR | T.COMPLEX | T.ON_GRID | T.SUM | T.CANCELS),
    Row(M.SWITCH_GT0, 2, f.switch_gt0, f.switch_gt0, wide=w.switch_gt0),
    Row(M.TANH_GRAD, 2, f.tanh_grad, f.tanh_grad),
    Row(M.TRUE_DIV, 2, f.Of(np.divide), wide=np.divide, neutral=1, onnx="Div", traits=T.GIVES_FLOAT | T.ONE_PASS | T.FALLBACK | T.ON_GRID | T.PRODUCT | T.CANCELS),
    Row(M.LOG_SUM_EXP, 2, f.log_sum_exp, exact=f.Of(np.logaddexp), wide=np.logaddexp, traits=T.GIVES_FLOAT),
    Row(M.LT, 2, f.compared(np.less), f.compared(np.less), truth=f.compared(np.less), wide=np.less, traits=T.COMPARES | T.ONE_PASS | T.STEPS),
    Row(M.LEQ, 2, f.compared(np.less_equal), f.compared(np.less_equal), truth=f.compared(np.less_equal), wide=np.less_equal, traits=T.COMPARES | T.ONE_PASS | T.STEPS),
    Row(M.EQ, 2, f.compared(np.equal), f.compared(np.equal), truth=f.compared(np.equal), wide=np.equal, traits=T.COMPARES | T.ONE_PASS | T.STEPS),
    Row(M.SHL, 2, None, i.shift(np.left_shift), exact=i.exact_shift(np.left_shift)),
    Row(M.SHR, 2, None, i.shift(np.right_shift), exact=i.exact_shift(np.right_shift)),
    Row(M.COND_LEQ_MOV, 3, f.cond_leq_mov, f.cond_leq_mov, wide=w.cond_leq_mov, traits=T.ON_GRID),
    Row(M.FUSE_MUL_ADD3, 3, f.fuse_mul_add3, i.fuse_mul_add3, exact=f.fuse_mul_add3, wide=w.fuse_mul_add3, flops=2, traits=T.FINITE | T.VECTOR | T.ON_GRID | T.MUL_ADD),
    Row(M.FUSE_MUL_ADD4, 4, f.fuse_mul_add4, f.fuse_mul_add4, wide=w.fuse_mul_add4, flops=3, traits=T.FINITE | T.ON_GRID | T.MUL_ADD),
    Row(M.FUSE_ADD_RELU, 2, f.fuse_add_relu, i.fuse_add_relu, exact=f.exact_add_relu, narrow=f.exact_add_relu, wide=w.fuse_add_relu, flops=2, traits=T.SORTED | T.FINITE | T.VECTOR | T.FROM_S32),
    Row(M.FUSE_ADD_SIGMOID, 2, f.fuse_add_sigmoid, wide=w.fuse_add_sigmoid, flops=2, traits=T.FINITE | T.VECTOR),
    Row(M.FUSE_ADD_TANH, 2, f.fuse_add_tanh, wide=w.fuse_add_tanh, flops=2, traits=T.FINITE | T.FALLBACK | T.LIBRARY),
    Row(M.FAST_TANH, 1, f.fast_tanh, wide=w.fast_tanh, traits=T.FINITE | T.VECTOR),
    Row(M.FAST_TANH_GRAD, 2, f.fast_tanh_grad),
    Row(M.ROUND, 1, f.Of(round_away), wide=w.round_away, traits=T.REPEATS | T.INTEGRAL | T.FINITE | T.STEPS),
    Row(M.RMULH, 2, None, i.rmulh),
    Row(M.ATAN2, 2, f.Of(np.arctan2), wide=np.arctan2, traits=T.GIVES_FLOAT | T.ONE_PASS | T.LIBRARY),
    Row(M.ERF, 1, f.Of(erf), wide=w.erf, onnx="Erf", traits=T.FINITE),
    Row(M.ERFINV, 1, f.copied(erfinv), wide=w.erfinv),
    Row(M.ERFC, 1, f.Of(erfc), wide=w.erfc),
    Row(M.ERFCINV, 1, f.copied(erfcinv), wide=w.erfcinv),
    Row(M.H_SWISH, 1, f.h_swish, exact=f.exact_h_swish, wide=w.h_swish, traits=T.FINITE | T.VECTOR | T.FROM_S32),
    Row(M.H_SWISH_GRAD, 2, f.h_swish_grad),
    Row(M.FUSE_ADD_H_SWISH, 2, f.fuse_add_h_swish, exact=f.exact_add_h_swish, wide=w.fuse_add_h_swish, traits=T.FINITE | T.VECTOR | T.FROM_S32),
    Row(M.NOT, 1, None, truth=f.Of(np.logical_not), onnx="Not", traits=T.UNDOES),
    Row(M.AND, 2, None, truth=f.Of(np.logical_and), onnx="And", traits=T.SELECTS),
    Row(M.OR, 2, None, truth=f.Of(np.logical_or), onnx="Or", traits=T.SELECTS),
    Row(M.XOR, 2, None, truth=f.Of(np.logical_xor), onnx="Xor"),
    Row(M.SILU, 1, f.silu, wide=w.silu, traits=T.FINITE),
    Row(M.SILU_GRAD, 2, f.silu_grad),
    Row(M.GELU, 1, f.Of(gelu), wide=w.gelu, traits=T.FINITE),
    Row(M.GELU_GRAD, 2, f.gelu_grad),
    Row(M.COND_LT_MOV, 3, f.cond_lt_mov, f.cond_lt_mov, wide=w.cond_lt_mov, traits=T.ON_GRID),
    Row(M.NEQ, 2, None, wide=np.not_equal, traits=T.COMPARES | T.STEPS),
    Row(M.ISNAN, 1, None, wide=np.isnan, traits=T.COMPARES),
    Row(M.ISINF, 1, None, wide=np.isinf, traits=T.COMPARES),
    Row(M.SINH, 1, f.Of(np.sinh), wide=np.sinh, onnx="Sinh", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.COSH, 1, f.Of(np.cosh), wide=np.cosh, onnx="Cosh", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.ASINH, 1, f.Of(np.arcsinh), wide=np.arcsinh, onnx="Asinh", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.ACOSH, 1, f.Of(np.arccosh), wide=np.arccosh, onnx="Acosh", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.ATANH, 1, f.Of(np.arctanh), wide=np.arctanh, onnx="Atanh", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.TAN, 1, f.Of(np.tan), wide=np.tan, onnx="Tan", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.ASINH_GRAD, 2, f.asinh_grad),
    Row(M.ACOSH_GRAD, 2, f.acosh_grad),
    Row(M.ATANH_GRAD, 2, f.atanh_grad),
    Row(M.PRELU, 2, f.prelu, f.prelu, wide=w.prelu),
    Row(M.CLIP, 3, f.clip, f.clip, exact=f.exact_clip, wide=w.clip),
    Row(M.PRELU_GRAD, 3, f.prelu_grad),
    Row(M.SOFTPLUS, 1, f.softplus, wide=w.softplus, traits=T.GIVES_FLOAT),
    Row(M.SOFTPLUS_GRAD, 2, f.softplus_grad),
    Row(M.RELU6, 1, f.relu6, f.exact_relu6, exact=f.exact_relu6, narrow=f.exact_relu6, wide=w.relu6, traits=T.REPEATS | T.FINITE),
    Row(M.RELU6_GRAD, 2, f.relu6_grad),
    Row(M.HSIGMOID, 1, f.hsigmoid, wide=w.hsigmoid, traits=T.GIVES_FLOAT | T.FINITE),
    Row(M.HSIGMOID_GRAD, 2, f.hsigmoid_grad),
    Row(M.LOGSIGMOID, 1, f.logsigmoid, wide=w.logsigmoid, traits=T.GIVES_FLOAT),
    Row(M.SQRT, 1, f.Of(np.sqrt), wide=np.sqrt, onnx="Sqrt", traits=T.GIVES_FLOAT | T.ONE_PASS),
    Row(M.SQUARE, 1, f.Of(np.square), f.Of(np.square), wide=np.square, traits=T.FINITE | T.ONE_PASS),
    Row(M.SIGN, 1, f.sign, f.Of(np.sign), exact=f.Of(np.sign), wide=np.sign, onnx="Sign", traits=T.REPEATS | T.ON_GRID),
)
# fmt: on

ROWS: dict[M, Row] = {row.mode: row for row in _ROWS}
ARITY: dict[M, int] = {row.mode: row.arity for row in _ROWS}
"""How many inputs each mode takes."""
FLOAT: dict[M, Function] = {row.mode: row.real for row in _ROWS if row.real is not None}
INTEGER: dict[M, Function] = {row.mode: row.whole for row in _ROWS if row.whole is not None}
MODES: dict[np.ufunc, M] = {
    row.wide: row.mode
    for row in _ROWS
    if isinstance(row.wide, np.ufunc) and T.COMPARES not in row.traits and row.real is not None
}
"""The modes that are one function of numpy."""
AFTER_SUM: dict[M, M] = {m: M[m.name[9:]] for m in ROWS if m.name.startswith("FUSE_ADD_")}
"""What each mode that is fused with a sum computes of the sum."""
INVERSE: dict[M, M] = {M.ADD: M.SUB, M.MUL: M.TRUE_DIV}
"""What undoes a mode by its second input."""
BOOL: dict[M, Function] = {row.mode: row.truth for row in _ROWS if row.truth is not None}


def modes(traits: T) -> frozenset[M]:
    """Return the modes that have any of some traits.

    >>> sorted(m.name for m in modes(ModeTrait.UNDOES))
    ['NEGATE', 'NOT']
    """
    wanted = traits.value
    return frozenset(row.mode for row in _ROWS if row.traits.value & wanted)
