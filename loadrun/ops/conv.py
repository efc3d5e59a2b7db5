"""Convolutions: ConvolutionV2 and its relatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import params as P
from ..dtypes import Array, DType
from ..graph import Opr
from .conv_fast import conv_fast
from .conv_geometry import Geometry, geometry
from .registry import Call, Shape, ShapeCall, kernel

__all__: list[str] = []


def _geometry(p: P.Convolution, x: Shape, w: Shape) -> Geometry:
    grouped = p.sparse == P.Sparse.GROUP
    if len(w) != 4 + grouped:
        raise ValueError(f"the filter must have {4 + grouped} axes, got shape {list(w)}")
    groups, ocg, icg, *size = w if grouped else (1, *w)
    return geometry(
        x, groups, icg, ocg, size, (p.pad_h, p.pad_w), (p.stride_h, p.stride_w), (p.dilate_h, p.dilate_w)
    )


def _float(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    return (opr.output_dtype or inputs[0],)


def _conv_shape(s: ShapeCall) -> Sequence[Shape | None]:
    x, w = s.shape(0), s.shape(1)
    geo = _geometry(s.get(P.Convolution), x, w)
    return ((x[0], geo.channels, *geo.out),)


def _conv_flops(opr: Opr, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
    geo = _geometry(opr.get(P.Convolution), inputs[0], inputs[1])
    return 2 * inputs[0][0] * geo.channels * geo.points * geo.taps * geo.icg


@kernel("ConvolutionV2", dtype=_float, shape=_conv_shape, flops=_conv_flops)
def convolution(c: Call, x: Array, w: Array) -> Array:
    """Cross-correlation of NCHW data."""
    p = c.get(P.Convolution)
    geo = _geometry(p, x.shape, w.shape)
    filters = c.memo.get("filters")
    if filters is None:
        plain = w.reshape(geo.groups, geo.ocg, geo.icg, *geo.kernel)
        if p.mode == P.ConvMode.CONVOLUTION:
            plain = plain[..., ::-1, ::-1]
        filters = np.require(plain, np.float32, ["C", "A"])
        if c.const[1:2] == (True,):
            c.memo["filters"] = filters
    return conv_fast(x, filters, geo)
