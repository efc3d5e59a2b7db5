"""Complex numbers as pairs of real ones, which is how MegEngine records them: no operator takes complex numbers.

Outside of a trace a complex tensor holds its value; inside it has a real and an imaginary part, and each of the few
operations that MegEngine has for them becomes operators on the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import EngineError
from ..graph.dtypes import plain
from ..graph.params import ElemwiseMode as M
from ..graph.params import Record
from ..ops.catalog import types
from ..ops.elemwise.table import ModeTrait, modes
from ..ops.op import Trait
from .apply import active, apply1, elemwise_param, paired, tensor_class, unrecordable

if TYPE_CHECKING:
    from .value import Tensor

__all__ = ["COMPLEX", "arithmetic", "as_pair", "of_pair", "on_pairs"]

COMPLEX = plain("Complex64")
_FLOAT = plain("Float32")
_MOVES_PAIRS, _MODES = types(Trait.COMPLEX), modes(ModeTrait.COMPLEX)


def of_pair(real: Tensor, imag: Tensor) -> Tensor:
    """Return complex numbers of two float32 tensors of one shape."""
    if active() is not None:
        return paired(real, imag, COMPLEX)
    whole = np.empty(real._stored().shape, np.complex64)
    whole.real, whole.imag = real._stored(), imag._stored()
    made: Tensor = tensor_class()._of(whole, COMPLEX, real._scalar)
    made._place = real._place
    return made


def as_pair(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part of complex numbers, as float32 tensors."""
    if z._pair is not None:
        return z._pair
    if z._session is not None:
        raise unrecordable("complex numbers that are an argument of a traced function")
    value, made = z._stored(), []
    for part in (value.real, value.imag):
        made.append(tensor_class()._of(np.ascontiguousarray(part), _FLOAT, z._scalar, const=z._const))
        made[-1]._place = z._place
    return made[0], made[1]


def arithmetic(mode: M, *values: Any) -> Tensor:
    """Apply an elementwise mode to complex numbers; sums, differences, products and the negative are there.

    Raises:
        EngineError: another mode, or an operand that is not complex.
    """
    others = [getattr(v, "dtype", type(v).__name__) for v in values if getattr(v, "_dtype", None) != COMPLEX]
    if others or mode not in _MODES:
        with_them = f" with {others[0]}" if others else ""
        raise EngineError(
            f"{mode.name} does not take Complex64{with_them}: complex numbers are added to, subtracted from and "
            "multiplied by complex ones, and negated; F.complex makes some of real ones, and F.real and F.imag take "
            "them apart"
        )
    pairs = [as_pair(v) for v in values]

    def of(mode: M, *xs: Tensor) -> Tensor:
        return apply1("Elemwise", elemwise_param(mode), inputs=xs)

    if mode is not M.MUL:
        return of_pair(*(of(mode, *(p[i] for p in pairs)) for i in range(2)))
    (a, b), (c, d) = pairs
    real = of(M.SUB, of(M.MUL, a, c), of(M.MUL, b, d))
    return of_pair(real, of(M.ADD, of(M.MUL, a, d), of(M.MUL, b, c)))


def on_pairs(type: str, params: tuple[Record, ...], inputs: Sequence[Tensor]) -> Tensor:
    """Apply an operator that moves numbers to the real parts of complex ones, and to the imaginary parts.

    Raises:
        TraceError: no such operator, or it brings complex numbers and others together.
    """
    among = inputs if type == "Concat" else inputs[:1]
    found = [x for x in inputs if x._dtype == COMPLEX]
    if type not in _MOVES_PAIRS or len(found) != len(among):
        raise unrecordable(f"some as inputs of {type}")
    pairs = [as_pair(x) if x._dtype == COMPLEX else (x, x) for x in inputs]
    real, imag = (apply1(type, *params, inputs=part) for part in zip(*pairs, strict=True))
    return paired(real, imag, COMPLEX)
