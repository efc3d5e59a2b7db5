"""Applying one of MegEngine's operators to tensors: at once, or recorded by the trace that is running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..base.errors import EngineError, LoadRunError
from ..base.registry import late
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType
from ..graph.params import Elemwise, ElemwiseMode, Record
from ..ops.catalog import TypeParam, types
from ..ops.infer import kernel_of
from ..ops.numeric.parallel import blas_serial
from ..ops.op import Trait
from ..ops.registry import Call, Kernel, implementation, pay_operator
from .dtypes import COMPLEX
from .switches import active, is_exact
from .value import Tensor

with late(__name__):
    from ..ops.numeric import stream as random_stream
    from . import complex_pairs

_MOVES_PAIRS, _RANDOM = types(Trait.COMPLEX), types(Trait.RANDOM)
_KEEPS_SCALARS = types(Trait.ELEMENTWISE | Trait.FORWARDS)


class _Local(threading.local):
    stream: random_stream.Stream | None = None
    seed: int | None = None


_local = _Local()


def stream() -> random_stream.Stream:
    """Return what this thread's eager random operators draw from."""
    if _local.stream is None:
        seed(None)
    assert _local.stream is not None
    return _local.stream


def seed(value: int | None) -> None:
    """Start the random numbers of this thread again."""
    _local.stream, _local.seed = random_stream.Stream(value), value


def chosen_seed() -> int | None:
    """Return the seed by which the random numbers of this thread were started, None where nobody chose one."""
    return _local.seed


def first_draws() -> random_stream.RandomNumbers:
    """Return what operators draw from while they are recorded: what a dump repeats, unless a seed was set before."""
    return random_stream.FirstDraws(stream(), _local.seed is not None)


def apply(
    type: str,
    *params: Record,
    inputs: Sequence[Tensor],
    n: int = 1,
    output_dtype: DType | None = None,
    scalar: bool | None = None,
) -> list[Tensor]:
    """Apply an operator of the catalog to tensors.

    Args:
        type: the operator's registered name, for instance ``ConvolutionV2``.
        params: its parameter records.
        inputs: tensors in the operator's order, already of dtypes that it takes.
        n: how many outputs it has.
        output_dtype: the dtype that the operator is configured to give.
        scalar: whether the outputs are scalars (shape ``()``, stored as ``[1]``); by default they are when the
            operator is elementwise and all its inputs are.

    Raises:
        EngineError: the operator does not take these inputs; the text says what was found and expected.
    """
    if scalar is None:
        scalar = type in _KEEPS_SCALARS and bool(inputs) and False not in [x._scalar for x in inputs]
    session = active()
    if session is not None:
        if any(x._pair is not None for x in inputs):
            return [_on_pairs(type, params, inputs)]
        outputs = session.apply(type, params, inputs, n, output_dtype, scalar)
    else:
        values, dtypes = execute(type, params, inputs, [x._stored() for x in inputs], n, output_dtype)
        make = Tensor._of
        outputs = [make(v, d, scalar and v.size == 1) for v, d in zip(values, dtypes, strict=True)]
    return outputs


def _on_pairs(type: str, params: tuple[Record, ...], inputs: Sequence[Tensor]) -> Tensor:
    """Apply an operator that moves numbers to the real parts of complex ones, and to the imaginary parts.

    Raises:
        TraceError: no such operator, or it brings complex numbers and others together.
    """
    among = inputs if type == "Concat" else inputs[:1]
    complex_inputs = [x for x in inputs if x._dtype == COMPLEX]
    if type not in _MOVES_PAIRS or len(complex_inputs) != len(among):
        raise complex_pairs.unrecordable(f"some as inputs of {type}")
    pairs = [complex_pairs.as_pair(x) if x._dtype == COMPLEX else (x, x) for x in inputs]
    real, imag = (apply1(type, *params, inputs=part) for part in zip(*pairs, strict=True))
    return complex_pairs.paired(real, imag)


def apply1(
    type: str,
    *params: Record,
    inputs: Sequence[Tensor],
    output_dtype: DType | None = None,
    scalar: bool | None = None,
) -> Tensor:
    """Call `apply` for an operator with one output."""
    return apply(type, *params, inputs=inputs, output_dtype=output_dtype, scalar=scalar)[0]


@cache
def elemwise_param(mode: ElemwiseMode) -> Elemwise:
    """Return the record of an elementwise mode, one object each, by which a later call of a trace knows it at once."""
    return Elemwise(mode=mode)


def type_cvt(x: Tensor, dtype: DType) -> Tensor:
    """Return the tensor converted to another dtype; the tensor itself where it has that dtype."""
    return x if x._dtype == dtype else apply1("TypeCvtV2", TypeParam(dtype=dtype), inputs=[x])


@lru_cache(maxsize=1024)
def vector(numbers: tuple[int, ...], dtype: DType) -> Array:
    """Return numbers in storage form, the same array each time, by which a later call of a trace knows them.

    Raises:
        EngineError: one does not fit the dtype.
    """
    try:
        result = np.array(numbers, dtype.np)
    except OverflowError:
        shown = ", ".join(map(str, numbers))
        raise EngineError(
            f"{shown}: too large for {dtype.name}, in which graphs compute with sizes"
        ) from None
    result.flags.writeable = False
    return result


def once(type: str, param: Record, inputs: list[Tensor], *, scalar: bool) -> Tensor:
    """Apply an operator on sizes, or take what a trace has for the same sizes already."""
    session = active()
    if session is None:
        return apply1(type, param, inputs=inputs, scalar=scalar)
    refs: list[object] = []
    for x in inputs:
        if x._session is session and x._var is not None:
            refs.append(x._var.id)
        elif x._const and x._value is not None:
            refs.append((x._dtype, *x._value.tolist()))
        else:
            return apply1(type, param, inputs=inputs, scalar=scalar)
    key = (type, param, *refs)
    result = session.sizes.get(key)
    if result is None:
        result = session.sizes[key] = apply1(type, param, inputs=inputs, scalar=scalar)
    return result._frozen()


@lru_cache(maxsize=1024)
def _prepared(
    type: str,
    params: tuple[Record, ...],
    dtypes: tuple[DType, ...],
    n: int,
    output_dtype: DType | None,
    exact: bool,
) -> tuple[Opr, Kernel, tuple[DType, ...], dict[Any, Any]]:
    """Return an operator, its kernel, the dtypes of its outputs and its memo: what does not depend on values."""
    opr = Opr(type, params, output_dtype=output_dtype, exact=exact)
    opr.inputs = [Var(i, opr, 0, dtype=d) for i, d in enumerate(dtypes)]
    opr.outputs = [Var(len(dtypes) + i, opr, i) for i in range(n)]
    outs = tuple(implementation(type).dtype(opr, dtypes))
    return opr, kernel_of(Call(opr, dtypes, outs)), outs, {}


def execute(
    type: str,
    params: tuple[Record, ...],
    inputs: Sequence[Tensor],
    arrays: Sequence[Array],
    n: int,
    output_dtype: DType | None,
    draws: Callable[[], random_stream.RandomNumbers] = stream,
) -> tuple[list[Array], list[DType]]:
    """Run an operator's kernel once; returns the output arrays and their dtypes."""
    dtypes = tuple([x._dtype for x in inputs])
    try:
        opr, kernel, outs, memo = _prepared(type, params, dtypes, n, output_dtype, is_exact())
        pay_operator(opr, dtypes, outs, arrays)
        call = Call(opr, dtypes, outs, memo=memo, rng=draws() if type in _RANDOM else None)
        with np.errstate(all="ignore"), blas_serial():
            result: Any = kernel(call, *arrays)
    except LoadRunError as e:
        raise e.__class__(f"{Opr(type, params).title}: {e}") from e
    except MemoryError:
        raise
    except Exception as e:
        shapes = ", ".join(f"{x._dtype} {list(a.shape)}" for x, a in zip(inputs, arrays, strict=True))
        raise EngineError(f"{Opr(type, params).title} cannot take {shapes or 'no inputs'}: {e}") from e
    values = result if isinstance(result, tuple) else (result,)
    return list(values), list(outs)
