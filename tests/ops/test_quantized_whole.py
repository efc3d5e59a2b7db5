"""Operators on bytes of known shapes, run by the engine, against float64 with scales that are powers of two."""

from __future__ import annotations

import numpy as np
import pytest

from loadrun.graph import params as P
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import ElemwiseMultiTypeMode, Format, NonlineMode, PoolingMode, Sparse
from loadrun.ops.catalog import TypeParam
from loadrun.testing import run_operator

RNG = np.random.default_rng(11)
S8, U8 = DType("QuantizedS8", 0.25), DType("Quantized8Asymm", 0.25, 77)
OUT8, OUTU8 = DType("QuantizedS8", 2.0), DType("Quantized8Asymm", 2.0, 100)


def stored(real: Array, dtype: DType) -> Array:
    """Convert real numbers to stored values: halves away from zero, then the zero point, then saturation."""
    scaled = real / dtype.scale
    whole = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) + dtype.zero_point
    return np.clip(whole, *dtype.range).astype(dtype.np)


def real(x: Array, dtype: DType) -> Array:
    return (x.astype("f8") - dtype.zero_point) * dtype.scale


def convolved(x: Array, w: Array, pad: int, stride: int, dilate: int) -> Array:
    """Convolve [N, C, H, W] with [G, O, I, KH, KW] in float64, tap by tap."""
    groups, o, i, ky, kx = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh = (x.shape[2] - (ky - 1) * dilate - 1) // stride + 1
    ow = (x.shape[3] - (kx - 1) * dilate - 1) // stride + 1
    out = np.zeros((x.shape[0], groups * o, oh, ow))
    for g in range(groups):
        for a in range(ky):
            for b in range(kx):
                rows = slice(a * dilate, a * dilate + (oh - 1) * stride + 1, stride)
                cols = slice(b * dilate, b * dilate + (ow - 1) * stride + 1, stride)
                part = x[:, g * i : (g + 1) * i, rows, cols]
                out[:, g * o : (g + 1) * o] += np.einsum("nihw,oi->nohw", part, w[g, :, :, a, b])
    return out


CONVOLUTIONS = [
    # batch, groups, in, out, size, kernel, pad, stride, dilate
    (1, 1, 3, 8, 9, 3, 1, 1, 1),
    (2, 1, 3, 8, 9, 3, 1, 1, 1),
    (1, 1, 4, 4, 8, 3, 1, 2, 1),
    (2, 1, 4, 4, 8, 3, 1, 2, 1),
    (1, 1, 8, 4, 5, 1, 0, 1, 1),
    (2, 2, 2, 4, 5, 1, 0, 1, 1),
    (2, 1, 4, 4, 5, 1, 0, 2, 1),
    (1, 6, 1, 1, 7, 3, 1, 1, 1),
    (2, 6, 1, 2, 7, 3, 1, 2, 1),
    (1, 2, 4, 2, 10, 3, 2, 1, 2),
    (1, 1, 2, 4, 11, 3, 0, 3, 2),
    (1, 1, 4, 4, 6, 2, 0, 1, 1),
    (1, 1, 4, 4, 3, 5, 2, 1, 1),
]


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("mode", [NonlineMode.IDENTITY, NonlineMode.RELU], ids=lambda m: str(m.name))
@pytest.mark.parametrize("dtypes", [(S8, S8, OUT8), (U8, U8, OUTU8)], ids=["S8", "U8"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(
    case: tuple[int, ...], dtypes: tuple[DType, DType, DType], mode: NonlineMode, bias: bool
) -> None:
    n, groups, i, o, size, kernel, pad, stride, dilate = case
    dx, dw, out = dtypes
    x = RNG.integers(*dx.range, (n, groups * i, size, size), endpoint=True).astype(dx.np)
    w = (dw.zero_point + RNG.integers(-12, 12, (groups, o, i, kernel, kernel))).astype(dw.np)
    b = RNG.integers(-500, 500, (1, groups * o, 1, 1)).astype("i4")
    sums = convolved(real(x, dx), real(w, dw), pad, stride, dilate)
    sums += real(b, DType("QuantizedS32", dx.scale * dw.scale)) if bias else 0
    want = stored(np.maximum(sums, 0) if mode == NonlineMode.RELU else sums, out)
    assert len(np.unique(want)) > 2
    numbers = {f"{k}_{a}": v for k, v in (("pad", pad), ("stride", stride), ("dilate", dilate)) for a in "hw"}
    sparse = Sparse.GROUP if groups > 1 else Sparse.DENSE
    p = P.ConvBias(nonlineMode=mode, sparse=sparse, **numbers)
    given = [x, w if groups > 1 else w[0], *([b] if bias else [])]
    types = {0: dx, 1: dw, **({2: DType("QuantizedS32", dx.scale * dw.scale)} if bias else {})}
    (found,) = run_operator(
        "ConvBiasForwardV4",
        [p, P.ExecutionPolicy()],
        *given,
        known=(1, 2)[: 1 + bias],
        dtypes=types,
        output_dtype=out,
    )
    np.testing.assert_array_equal(found, want)
    # The filter as an input of the graph: the general kernel.
    (general,) = run_operator(
        "ConvBiasForwardV4", [p, P.ExecutionPolicy()], *given, dtypes=types, output_dtype=out
    )
    np.testing.assert_array_equal(general, want)


def test_packed_convolution_gives_its_layout() -> None:
    """Four channels beside each other in data, filter and result."""
    x = RNG.integers(-9, 9, (2, 8, 6, 6)).astype("i1")
    w = RNG.integers(-9, 9, (1, 4, 8, 3, 3)).astype("i1")
    want = stored(convolved(real(x, S8), real(w, S8), 1, 1, 1), OUT8)

    def packed(a: Array) -> Array:
        return np.ascontiguousarray(a.reshape(a.shape[0], -1, 4, *a.shape[2:]).transpose(0, 1, 3, 4, 2))

    p = P.ConvBias(format=Format.NCHW4, pad_h=1, pad_w=1)
    (found,) = run_operator(
        "ConvBiasForwardV4",
        [p, P.ExecutionPolicy()],
        packed(x),
        packed(w[0]),
        known=(1,),
        dtypes={0: S8, 1: S8},
        output_dtype=OUT8,
    )
    np.testing.assert_array_equal(found, packed(want))


def test_sums_beyond_float32() -> None:
    """A filter whose sums float32 could not hold exactly."""
    x = np.full((1, 2048, 1, 1), 127, "i1")
    w = np.full((1, 2048, 1, 1), 127, "i1")
    w[0, ::2] = 126
    p = [P.Convolution(), P.ExecutionPolicy()]
    (found,) = run_operator("ConvolutionV2", p, x, w, known=(1,), dtypes={0: S8, 1: S8})
    assert found.item() == 1024 * 127 * (127 + 126)


@pytest.mark.parametrize("dtype", [S8, U8, OUTU8], ids=str)
def test_conversions(dtype: DType) -> None:
    x = np.array([0.124, 0.125, -0.125, -0.376, 1.0, -3.0, 1e9, -1e9, np.inf, -np.inf, 7.3], "f4")
    (found,) = run_operator("TypeCvtV2", _to(dtype), x)
    np.testing.assert_array_equal(found, stored(x.astype("f8"), dtype))
    assert run_operator("TypeCvtV2", _to(dtype), np.array([np.nan], "f4"))[0].item() == dtype.range[0]
    every = np.arange(256, dtype="u1").view(dtype.np)
    (back,) = run_operator("TypeCvtV2", _to(DType("Float32")), every, dtypes={0: dtype})
    np.testing.assert_array_equal(back, real(every, dtype))
    for target in (S8, U8, OUT8):
        if target != dtype:
            (other,) = run_operator("TypeCvtV2", _to(target), every, dtypes={0: dtype})
            np.testing.assert_array_equal(other, stored(real(every, dtype), target))


def _to(dtype: DType) -> list[P.Record]:
    return [TypeParam(dtype=dtype)]


@pytest.mark.parametrize("dtype", [S8, U8], ids=str)
def test_products_of_bytes(dtype: DType) -> None:
    a = RNG.integers(*dtype.range, (3, 50)).astype(dtype.np)
    b = RNG.integers(*dtype.range, (50, 4)).astype(dtype.np)
    want = (a.astype("i8") - dtype.zero_point) @ (b.astype("i8") - dtype.zero_point)
    for turned in (False, True):
        p = [P.MatrixMul(transposeB=turned), P.ExecutionPolicy()]
        given = np.ascontiguousarray(b.T) if turned else b
        (found,) = run_operator("MatrixMulV2", p, a, given, known=(1,), dtypes={0: dtype, 1: dtype})
        np.testing.assert_array_equal(found, want)
    long = np.full((1, 3000), 127, "i1"), np.full((3000, 1), -128, "i1")
    p = [P.MatrixMul(), P.ExecutionPolicy()]
    (found,) = run_operator("MatrixMulV2", p, *long, known=(1,))
    assert found.item() == -3000 * 127 * 128


@pytest.mark.parametrize("dtype", [S8, U8], ids=str)
@pytest.mark.parametrize("window", [2, 3])
def test_pooling(dtype: DType, window: int) -> None:
    x = RNG.integers(*dtype.range, (2, 3, 6, 6)).astype(dtype.np)
    size = {"window_h": window, "window_w": window, "stride_h": window, "stride_w": window}
    cut = x.reshape(2, 3, 6 // window, window, 6 // window, window)
    (found,) = run_operator("PoolingV1", P.Pooling(mode=PoolingMode.MAX, **size), x, dtypes={0: dtype})
    np.testing.assert_array_equal(found, cut.max((3, 5)))
    part = np.ascontiguousarray(x[:, :, :window, :window])
    (found,) = run_operator("PoolingV1", P.Pooling(mode=PoolingMode.AVERAGE, **size), part, dtypes={0: dtype})
    mean = part.astype("f8").mean((2, 3), keepdims=True)
    np.testing.assert_array_equal(found, np.copysign(np.floor(np.abs(mean) + 0.5), mean))


def test_modes_of_one_and_two_bytes() -> None:
    every = np.arange(-128, 128).astype("i1")
    p = P.ElemwiseMultiType(mode=ElemwiseMultiTypeMode.QRELU)
    (found,) = run_operator("ElemwiseMultiType", p, every, dtypes={0: S8}, output_dtype=OUT8)
    np.testing.assert_array_equal(found, stored(np.maximum(real(every, S8), 0), OUT8))
    assert found.flags.writeable
    x, y = (a.reshape(-1).astype("i1") for a in np.meshgrid(every, every))
    p = P.ElemwiseMultiType(mode=ElemwiseMultiTypeMode.QFUSE_ADD_RELU)
    (found,) = run_operator("ElemwiseMultiType", p, x, y, dtypes={0: S8, 1: S8}, output_dtype=OUT8)
    np.testing.assert_array_equal(found, stored(np.maximum(real(x, S8) + real(y, S8), 0), OUT8))
