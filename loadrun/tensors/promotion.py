"""MegEngine's promotion of operands to one dtype, as its Python binding and its DTypePromote transformation do.

Two steps: what is not a tensor becomes one of the dtype that numpy's rules give for the call; then the tensors
are converted to their common dtype, in which an operator may still ask for floats. Where MegEngine refuses
numpy's 64-bit types, they are narrowed as `tensor` narrows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from ..base.errors import EngineError
from ..base.registry import late
from ..graph import params as P
from ..graph.dtypes import DType, dtype_of, plain
from ..ops.elemwise.modes import promote
from ..ops.elemwise.table import ModeTrait, modes
from .applying import apply1, elemwise_param
from .convert import as_tensor, const
from .dtypes import COMPLEX, graph_dtype
from .symbolic import TracedBool
from .value import Tensor

with late(__name__):
    from . import complex_pairs

_COMPARE = {mode: P.ElemwiseMultiTypeMode[mode.name] for mode in modes(ModeTrait.COMPARES)}
_FLOAT = plain("Float32")
_NOTHING_TO_ROUND, _GIVES_FLOAT = modes(ModeTrait.INTEGRAL), modes(ModeTrait.GIVES_FLOAT)


def _kind(dtype: DType) -> int:
    """Return how much a dtype counts: float over integer over bool; bfloat16 is not a type that numpy ranks."""
    if dtype.name == "BFloat16":
        return 0
    return 3 if dtype.is_float else 1 if dtype.name == "Bool" else 2


def _pair(a: DType, b: DType) -> DType:
    if a == b:
        return a
    both = np.promote_types(a.np, b.np)
    return dtype_of(np.empty(0, both)) if a.is_wide or b.is_wide else graph_dtype(both)


def common_dtype(values: Sequence[Any]) -> DType | None:
    """Return the dtype that arrays, numbers and lists get beside tensors.

    Tensors and arrays of the highest kind (bool < integer < float) decide; Python numbers decide as float32, int32
    or bool only where their kind is above that. Lists follow the others; among lists and bfloat16 tensors alone
    there is no such dtype.
    """
    strong: list[DType] = []
    weak: list[DType] = []
    for v in values:
        if isinstance(v, Tensor):
            strong.append(v._dtype)
        elif isinstance(v, (np.ndarray, np.generic)):
            strong.append(graph_dtype(v.dtype))
        elif isinstance(v, (bool, TracedBool)):
            weak.append(plain("Bool"))
        elif isinstance(v, (int, float)):
            weak.append(plain("Int32" if isinstance(v, int) else "Float32"))
    return _ranked(tuple(strong), tuple(weak))


@lru_cache(maxsize=1024)
def _ranked(strong: tuple[DType, ...], weak: tuple[DType, ...]) -> DType | None:
    """Return the dtype of the highest kind among those of tensors and arrays, and those that numbers have."""
    best = max(map(_kind, strong), default=0)
    most = max(map(_kind, weak), default=0)
    if not best and not most:
        return None
    chosen = weak if most > best else strong
    types = [d for d in chosen if _kind(d) == max(best, most)]
    # A quantized type wins.
    return next((t for t in types if t.is_quantized), None) or reduce(_pair, types)


def operands(values: Sequence[Any]) -> list[Tensor]:
    """Return tensors as they are, everything else as tensors of `common_dtype`.

    Raises:
        TypeError: a value is None, or nothing that a tensor can hold.
    """
    others = [v for v in values if not isinstance(v, Tensor)]
    if not others:
        return list(values)
    if any(v is None for v in others):
        raise TypeError("the operand is None and is not supported.")
    if len(values) == 2 and type(others[0]) in (int, float):
        # Fast path of the usual case: a number beside float32 becomes float32.
        x, y = values
        if isinstance(x, Tensor) and x._dtype is _FLOAT:
            return [x, const(y, _FLOAT)]
        if isinstance(y, Tensor) and y._dtype is _FLOAT:
            return [const(x, _FLOAT), y]
    want = common_dtype(values)
    return [v if isinstance(v, Tensor) else _constant(v, want) for v in values]


def _constant(value: Any, want: DType | None) -> Tensor:
    if want is None or want.is_quantized:
        return as_tensor(value)
    if type(value) is int and want.np.kind in "iu":
        # A number beyond the type wraps, as in numpy 1 and MegEngine.
        bits = 8 * want.np.itemsize
        value = np.array(value % (1 << bits), np.uint64).astype(want.np)
        return const(value, want)
    return as_tensor(value, want)


_promote = lru_cache(maxsize=1024)(promote)


def convert(*values: Any) -> list[Tensor]:
    """Return tensors of the dtype to which MegEngine promotes these values together; quantized ones stay as they are.

    Raises:
        EngineError: signed and unsigned integers, or quantized types that differ.
        TypeError: a value is None, or nothing that a tensor can hold.
    """
    tensors = operands(values)
    for x in tensors:
        if x._dtype is not _FLOAT:
            break
    else:
        return tensors
    try:
        want = _promote(tuple([x._dtype for x in tensors]))
    except ValueError as e:
        raise EngineError(str(e)) from e
    return [x if x._dtype.is_quantized or x._dtype == want else x.astype(want) for x in tensors]


def elemwise(mode: P.ElemwiseMode, *values: Any) -> Tensor:
    """Apply an elementwise mode to tensors, arrays and numbers.

    Comparisons give bool. Modes that have no integer form give float32 for integers, rounding leaves integers alone.

    Raises:
        EngineError: the mode does not take the common dtype, or the shapes do not broadcast.
        TypeError: an operand is None, or nothing that a tensor can hold.
    """
    for v in values:
        if getattr(v, "_dtype", None) is COMPLEX:
            return _arithmetic(mode, *values)
    inputs = convert(*values)
    if mode in _COMPARE:
        param = P.ElemwiseMultiType(mode=_COMPARE[mode])
        # MegEngine has no scalars here: comparing them gives a tensor of shape (1,).
        return apply1("ElemwiseMultiType", param, inputs=inputs, output_dtype=plain("Bool"), scalar=False)
    if inputs[0]._dtype.np.kind in "iu" and not inputs[0]._dtype.is_quantized:
        if mode in _NOTHING_TO_ROUND:
            return inputs[0]._frozen()
        if mode in _GIVES_FLOAT:
            inputs = [x.astype("float32") for x in inputs]
    return apply1("Elemwise", elemwise_param(mode), inputs=inputs)


_ON_PAIRS = modes(ModeTrait.COMPLEX)


def _arithmetic(mode: P.ElemwiseMode, *values: Any) -> Tensor:
    """Apply an elementwise mode to complex numbers; sums, differences, products and the negative are there.

    Raises:
        EngineError: another mode, or an operand that is not complex.
    """
    others = [getattr(v, "dtype", type(v).__name__) for v in values if getattr(v, "_dtype", None) != COMPLEX]
    if others or mode not in _ON_PAIRS:
        with_them = f" with {others[0]}" if others else ""
        raise EngineError(
            f"{mode.name} does not take Complex64{with_them}: complex numbers are added to, subtracted from and "
            "multiplied by complex ones, and negated; F.complex makes some of real ones, and F.real and F.imag take "
            "them apart"
        )

    pairs = [complex_pairs.as_pair(v) for v in values]

    def of(mode: P.ElemwiseMode, *xs: Tensor) -> Tensor:
        return apply1("Elemwise", elemwise_param(mode), inputs=xs)

    if mode is not P.ElemwiseMode.MUL:
        return complex_pairs.of_pair(*(of(mode, *(p[i] for p in pairs)) for i in range(2)))
    (a, b), (c, d) = pairs
    real = of(P.ElemwiseMode.SUB, of(P.ElemwiseMode.MUL, a, c), of(P.ElemwiseMode.MUL, b, d))
    return complex_pairs.of_pair(
        real, of(P.ElemwiseMode.ADD, of(P.ElemwiseMode.MUL, a, d), of(P.ElemwiseMode.MUL, b, c))
    )
