"""Changes by `loadrun.megengine.amp` and `loadrun.megengine.config` to an operator before it is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph import params as P
from ..graph.params import Record
from ..ops.catalog import types
from ..ops.elemwise.table import ModeTrait, modes
from ..ops.op import Trait
from .switches import SWITCHES
from .value import Tensor

__all__ = ["adapted"]

_LOW, _HIGH, _LOW_DATA = types(Trait.LOW), types(Trait.HIGH), types(Trait.LOW_DATA)
_HIGH_MODES = modes(ModeTrait.HIGH)


def adapted(
    type: str, params: tuple[Record, ...], inputs: Sequence[Tensor]
) -> tuple[tuple[Record, ...], Sequence[Tensor]]:
    """Return the parameter records and inputs that an operator is applied with."""
    floats = all(x._dtype.is_float for x in inputs)
    if type in _LOW and floats:
        inputs = _cast(inputs, [SWITCHES.low_prec_dtype] * len(inputs))
        mode = "float32" if SWITCHES.autocast else SWITCHES.compute_mode
        half = all(x._dtype.bits == 16 for x in inputs)
        return tuple(_summing(p, mode) if half else p for p in params), inputs
    if not SWITCHES.autocast:
        return params, inputs
    high = [SWITCHES.high_prec_dtype] * len(inputs)
    if type in _LOW_DATA:
        return params, _cast(inputs, [SWITCHES.low_prec_dtype, *high[1:]])
    if type in _HIGH or (type == "Elemwise" and floats and getattr(params[0], "mode", None) in _HIGH_MODES):
        return params, _cast(inputs, high)
    return params, inputs


def _summing(param: Record, mode: str) -> Record:
    kind: Any = {P.Convolution: P.ComputeMode, P.MatrixMul: P.MatrixMulComputeMode}.get(param.__class__)
    return param if kind is None else param.replace(compute_mode=kind[mode.upper()])


def _cast(inputs: Sequence[Tensor], kinds: Sequence[str]) -> Sequence[Tensor]:
    if not SWITCHES.autocast:
        return inputs
    return [x.astype(k) for x, k in zip(inputs, kinds, strict=True)]
