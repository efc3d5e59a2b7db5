"""Convolutions: fast paths against the plain one and against loops, layouts, rules, error texts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.graph import Graph, Opr, params as P
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import Format, NonlineMode, Sparse
from loadrun.ops.conv import (
    depthwise as conv_depthwise,
    fast as conv_fast,
    gemm as conv_columns,
    gemm as conv_finish,
    rules as conv_rules,
    transpose as conv_transpose,
    volume as conv_volume,
)
from loadrun.ops.conv.gemm import Finish, Requantize, same_width
from loadrun.ops.conv.layout import (
    filter_packing,
    from_plain,
    input_packing,
    output_packing,
    to_plain,
)
from loadrun.ops.conv.rules import Geometry, geometry
from loadrun.ops.conv.steps import rounding
from loadrun.ops.numeric.parallel import blas_serial
from loadrun.ops.numeric.special import round_half
from loadrun.ops.registry import Call, ShapeCall, implementation
from tests.support.cases import fewer
from tests.support.conv_plain import conv_plain, deconv_plain

F32, S8 = DType("Float32"), DType("QuantizedS8", 0.5)
RNG = np.random.default_rng(7)


def run(
    name: str,
    param: P.Record,
    *arrays: Array,
    dtypes: tuple[DType, ...] = (),
    output: DType | None = None,
    **call: Any,
) -> Array:
    """Return the kernel's result, which the dtype and shape rules must predict, and that of the bound kernel."""
    impl = implementation(name)
    ins = dtypes or (F32,) * len(arrays)
    opr = Opr(name, (param, P.ExecutionPolicy()), output_dtype=output)
    (out_dtype,) = impl.dtype(opr, ins)
    (shape,) = impl.shape(ShapeCall(opr, ins, tuple(a.shape for a in arrays), (None,) * len(arrays)))
    before = [a.copy() for a in arrays]
    out = impl.kernel(Call(opr, ins, (out_dtype,), **call), *arrays)
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype) == (shape, out_dtype.np)
    if impl.bind is not None and not call:
        for const in ((False,) * len(arrays), (False, *(True,) * (len(arrays) - 1))):
            known = ShapeCall(opr, ins, tuple(a.shape for a in arrays), (None,) * len(arrays))
            bound = impl.bind(Call(opr, ins, (out_dtype,), const), known)
            for _ in range(2 if bound is not None else 0):
                assert bound is not None
                np.testing.assert_array_equal(bound(None, *arrays), out)
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)
    return out


def loops(x: Array, w: Array, pad: Any, stride: Any, dilate: Any) -> Array:
    """Convolve [N, C, spatial] with [G, O, I, kernel], one product at a time in float64."""
    g, o, i = w.shape[:3]
    size, kernel = x.shape[2:], w.shape[3:]
    axes = range(len(size))
    out = [(size[a] + 2 * pad[a] - (kernel[a] - 1) * dilate[a] - 1) // stride[a] + 1 for a in axes]
    result = np.zeros((x.shape[0], g * o, *out))
    for n, c, *at in itertools.product(range(x.shape[0]), range(g * o), *map(range, out)):
        total = 0.0
        for ic, *tap in itertools.product(range(i), *map(range, kernel)):
            place = [at[a] * stride[a] + tap[a] * dilate[a] - pad[a] for a in axes]
            if all(0 <= place[a] < size[a] for a in axes):
                total += float(x[(n, c // o * i + ic, *place)]) * float(w[(c // o, c % o, ic, *tap)])
        result[(n, c, *at)] = total
    return result


def close(found: Array, want: Array, tolerance: float = 2e-6) -> None:
    assert found.shape == want.shape
    scale = np.abs(want).max(initial=1.0)
    np.testing.assert_allclose(found / scale, want / scale, rtol=0, atol=tolerance)


CASES = [
    # batch, groups, in, out, kernel, pad, stride, dilate, size
    (2, 1, 3, 4, (3, 3), (1, 1), (1, 1), (1, 1), (7, 8)),
    (1, 1, 3, 4, (1, 1), (0, 0), (1, 1), (1, 1), (5, 6)),
    (1, 1, 3, 2, (1, 1), (1, 2), (2, 3), (1, 1), (5, 6)),
    (2, 2, 2, 3, (2, 3), (2, 0), (2, 1), (1, 2), (6, 9)),
    (1, 5, 1, 1, (3, 3), (1, 1), (1, 1), (1, 1), (6, 7)),
    (2, 4, 1, 3, (3, 2), (3, 1), (2, 3), (2, 1), (9, 8)),
    (1, 6, 1, 1, (5, 5), (2, 2), (2, 2), (1, 1), (9, 9)),
    (1, 3, 1, 2, (1, 3), (0, 4), (1, 1), (1, 3), (2, 9)),
    (1, 1, 2, 2, (4, 4), (3, 3), (1, 1), (3, 3), (5, 5)),
]


@pytest.mark.parametrize("case", CASES)
def test_plain_against_loops(case: Any) -> None:
    n, g, i, o, kernel, pad, stride, dilate, size = case
    x, w = RNG.standard_normal((n, g * i, *size)), RNG.standard_normal((g, o, i, *kernel))
    geo = geometry(x.shape, g, i, o, kernel, pad, stride, dilate)
    close(conv_plain(x, w, geo), loops(x, w, pad, stride, dilate), 1e-14)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("serial", [False, True])
def test_fast_against_loops(case: Any, serial: bool) -> None:
    n, g, i, o, kernel, pad, stride, dilate, size = case
    x = RNG.standard_normal((n, g * i, *size)).astype("f4")
    w = RNG.standard_normal((g, o, i, *kernel)).astype("f4")
    geo = geometry(x.shape, g, i, o, kernel, pad, stride, dilate)
    if serial:
        with blas_serial():
            found = conv_fast.conv_fast(x, w, geo)
    else:
        found = conv_fast.conv_fast(x, w, geo)
    close(found, loops(x, w, pad, stride, dilate))


def convolved(x: Array, w: Array, geo: Geometry, finish: Finish | None = None) -> Array:
    """Run `conv_fast`, planned anew with the current block sizes."""
    return conv_fast._planned.__wrapped__(x.shape[0], geo, conv_depthwise.depthwise)(x, w, finish, {})


SAME = [
    # batch, groups, icg, ocg, kernel, stride, dilation, size: output rows as long as those of a stride phase
    (1, 1, 3, 4, (3, 3), (1, 1), (1, 1), (7, 7)),
    (2, 1, 2, 3, (3, 3), (2, 2), (1, 1), (9, 10)),
    (2, 3, 2, 2, (5, 3), (1, 2), (1, 1), (6, 11)),
    (3, 5, 1, 1, (3, 3), (1, 1), (1, 1), (4, 5)),
    (2, 5, 1, 2, (3, 3), (2, 2), (1, 1), (11, 7)),
    (1, 4, 1, 1, (7, 7), (2, 2), (1, 1), (13, 13)),
    (1, 1, 2, 2, (3, 3), (1, 1), (2, 3), (8, 3)),
    (2, 4, 1, 1, (3, 5), (1, 3), (3, 2), (9, 8)),
    (1, 1, 1, 2, (1, 9), (1, 1), (1, 1), (3, 2)),
    (1, 3, 1, 1, (9, 9), (3, 3), (1, 1), (2, 2)),
    (2, 9, 1, 2, (5, 5), (1, 1), (1, 1), (12, 20)),
    (2, 7, 1, 1, (7, 5), (2, 2), (1, 2), (15, 27)),
]


@pytest.mark.parametrize("case", SAME)
@pytest.mark.parametrize("block", [1 << 5, 1 << 20])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_same_padding_against_loops(
    case: Any, block: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taps that are flat shifts: borders, odd sizes, phases of a stride, data that is not contiguous."""
    n, g, i, o, kernel, stride, dilate, size = case
    for module in (conv_fast, conv_depthwise):
        monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(conv_fast, "_LARGE", block)
    if block < 1 << 10:
        monkeypatch.setattr(conv_fast, "_COLUMNS", (1, 2))
        monkeypatch.setattr(conv_columns, "_KEPT", 2)
        monkeypatch.setattr(conv_finish, "PIECE", 5)
    pad = [(k - 1) * d // 2 for k, d in zip(kernel, dilate, strict=True)]
    x = RNG.standard_normal((n, *size, g * i)).astype(kind).transpose(0, 3, 1, 2)
    w = RNG.standard_normal((g, o, i, *kernel)).astype(kind)
    geo = geometry(x.shape, g, i, o, kernel, pad, stride, dilate)
    assert same_width(geo)
    bias = RNG.standard_normal((1, g * o, 1, 1)).astype(kind)

    def finish(part: Array, sample: int, channel: int, span: slice) -> None:
        part += bias[0, channel : channel + part.shape[0], :, 0]

    found = convolved(x, w, geo, finish)
    close(found, loops(x, w, pad, stride, dilate) + bias, 5e-6)


@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1)])
def test_pointwise_against_einsum(stride: tuple[int, int]) -> None:
    x = RNG.standard_normal((3, 2, 5, 9, 8)).astype("f4")
    w = RNG.standard_normal((2, 4, 5, 1, 1)).astype("f4")
    geo = geometry((3, 10, 9, 8), 2, 5, 4, (1, 1), (0, 0), stride, (1, 1))
    seen = x[..., :: stride[0], :: stride[1]].astype("f8")
    want = np.einsum("ngihw,goi->ngohw", seen, w[..., 0, 0].astype("f8"))
    close(convolved(x.reshape(3, 10, 9, 8), w, geo), want.reshape(3, 8, *want.shape[3:]))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_images_without_elements_are_their_padding(groups: int, size: tuple[int, int]) -> None:
    x, w = np.empty((2, 4, *size), "f4"), np.ones((groups, 3, 4 // groups, 3, 3), "f4")
    geo = geometry(x.shape, groups, 4 // groups, 3, (3, 3), (2, 2), (1, 1), (1, 1))
    found = convolved(x, w, geo)
    assert found.shape == (2, 3 * groups, size[0] + 2, size[1] + 2)
    assert not found.any()


@st.composite
def convolutions(draw: st.DrawFn, axes: int = 2) -> Any:
    number = st.integers(1, 4)
    g = draw(st.sampled_from([1, 1, 2, 3, 17]))
    i, o, n = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(0, 3))
    kernel, stride, dilate = ([draw(number) for _ in range(axes)] for _ in range(3))
    pad = [draw(st.integers(0, 5)) for _ in range(axes)]
    size = [
        draw(st.integers(max(1, (k - 1) * d + 1 - 2 * p), 24 if axes == 2 else 13))
        for k, d, p in zip(kernel, dilate, pad, strict=True)
    ]
    return geometry((n, g * i, *size), g, i, o, kernel, pad, stride, dilate), n


@settings(max_examples=fewer(150, 2), deadline=None)
@given(convolutions(), st.sampled_from([1 << 6, 1 << 10, 1 << 20]), st.booleans())
def test_fast_against_plain(drawn: Any, block: int, serial: bool) -> None:
    geo, n = drawn
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, geo.groups * geo.icg, *geo.size)).astype("f4")
    w = rng.standard_normal((geo.groups, geo.ocg, geo.icg, *geo.kernel)).astype("f4")
    want = conv_plain(x.astype("f8"), w.astype("f8"), geo)
    held = conv_fast._BLOCK, conv_depthwise._BLOCK
    conv_fast._BLOCK = conv_depthwise._BLOCK = block
    bias = rng.standard_normal((1, geo.channels, 1, 1)).astype("f4")

    def finish(part: Array, sample: int, channel: int, span: slice) -> None:
        assert part.base is not None
        part += bias[0, channel : channel + part.shape[0], :, 0]
        whole[sample].reshape(geo.channels, -1)[channel : channel + part.shape[0], span] += 1

    whole = np.zeros(want.shape)
    try:
        with blas_serial() if serial else np.errstate():
            close(convolved(x, w, geo), want, 1e-5)
            close(convolved(x, w, geo, finish), want + bias, 1e-5)
    finally:
        conv_fast._BLOCK, conv_depthwise._BLOCK = held
    np.testing.assert_array_equal(whole, 1)


@settings(max_examples=fewer(100, 2), deadline=None)
@given(convolutions(), st.sampled_from([1 << 4, 1 << 18]))
def test_transposed_against_plain(drawn: Any, block: int) -> None:
    geo, n = drawn
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, geo.channels, *geo.out)).astype("f4")
    w = rng.standard_normal((geo.groups, geo.ocg, geo.icg, *geo.kernel)).astype("f4")
    held, conv_transpose._BLOCK = conv_transpose._BLOCK, block
    try:
        found = conv_transpose.deconv_fast(x, w, geo)
    finally:
        conv_transpose._BLOCK = held
    close(found, deconv_plain(x.astype("f8"), w.astype("f8"), geo), 1e-5)


@settings(max_examples=fewer(50, 2), deadline=None)
@given(convolutions(axes=3), st.sampled_from([1, 1 << 22]))
def test_volumes_against_plain(drawn: Any, block: int) -> None:
    geo, n = drawn
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, geo.groups * geo.icg, *geo.size)).astype("f4")
    w = rng.standard_normal((geo.groups, geo.ocg, geo.icg, *geo.kernel)).astype("f4")
    held, conv_volume._BLOCK = conv_volume._BLOCK, block
    try:
        found = conv_volume.conv_volume(x, w, geo)
    finally:
        conv_volume._BLOCK = held
    close(found, conv_plain(x.astype("f8"), w.astype("f8"), geo), 1e-5)


def test_transposed_is_the_adjoint() -> None:
    """<conv(a), b> = <a, transposed(b)> for every a and b."""
    geo = geometry((2, 6, 8, 9), 2, 3, 2, (3, 2), (1, 0), (2, 1), (1, 2))
    w = RNG.standard_normal((2, 2, 3, 3, 2))
    a, b = RNG.standard_normal((2, 6, 8, 9)), RNG.standard_normal((2, 4, *geo.out))
    assert np.vdot(conv_plain(a, w, geo), b) == pytest.approx(np.vdot(a, deconv_plain(b, w, geo)))


def test_hand_computed() -> None:
    x = np.arange(9, dtype="f4").reshape(1, 1, 3, 3)
    w = np.array([[[[1, 2], [3, 4]]]], "f4")
    # 0*1 + 1*2 + 3*3 + 4*4 = 27, and with the filter turned 0*4 + 1*3 + 3*2 + 4*1 = 13.
    assert run("ConvolutionV2", P.Convolution(), x, w)[0, 0].tolist() == [[27, 37], [57, 67]]
    flip = P.Convolution(mode=P.ConvMode.CONVOLUTION)
    assert run("ConvolutionV2", flip, x, w)[0, 0].tolist() == [[13, 23], [43, 53]]
    back = run("ConvolutionBackwardDataV2", P.Convolution(), w, np.ones((1, 1, 1, 1), "f4"))
    assert back[0, 0].tolist() == [[1, 2], [3, 4]]


def test_bias_z_and_nonlinearities() -> None:
    x = np.array([-4.0, -1.0, 0.5, 5.0], "f4").reshape(1, 1, 1, 4)
    one, bias = np.ones((1, 1, 1, 1), "f4"), np.array([0.5], "f4").reshape(1, 1, 1, 1)
    want = {
        NonlineMode.IDENTITY: [-3.5, -0.5, 1.0, 5.5],
        NonlineMode.RELU: [0, 0, 1.0, 5.5],
        NonlineMode.SIGMOID: [0.0293122, 0.3775407, 0.7310586, 0.9959299],
        NonlineMode.H_SWISH: [0, -0.5 * 2.5 / 6, 4 / 6, 5.5],
    }
    for mode, values in want.items():
        p = P.ConvBias(nonlineMode=mode)
        np.testing.assert_allclose(run("ConvBiasForwardV4", p, x, one, bias).ravel(), values, rtol=1e-5)
        full = np.broadcast_to(bias, x.shape).copy()
        np.testing.assert_allclose(run("ConvBiasForwardV4", p, x, one, full).ravel(), values, rtol=1e-5)
    z = np.array([1, 2, 3, 4], "f4").reshape(1, 1, 1, 4)
    p = P.ConvBias(nonlineMode=NonlineMode.RELU)
    assert run("ConvBiasForwardV4", p, x, one, bias, z).ravel().tolist() == [0, 1.5, 4.0, 9.5]


def test_quantized_by_hand() -> None:
    """Products of 0.5 * 0.25 per unit, to units of 0.75: 6 units make one, halves go away from zero."""
    w_dtype, bias_dtype, out = (
        DType("QuantizedS8", 0.25),
        DType("QuantizedS32", 0.125),
        DType("QuantizedS8", 0.75),
    )
    x = np.array([1, -1, 4, -4, 7, 127], "i1").reshape(1, 1, 1, 6)
    w = np.array([3], "i1").reshape(1, 1, 1, 1)
    bias = np.array([0], "i4").reshape(1, 1, 1, 1)
    dtypes = (S8, w_dtype, bias_dtype)
    found = run("ConvBiasForwardV4", P.ConvBias(), x, w, bias, dtypes=dtypes, output=out)
    assert found.ravel().tolist() == [1, -1, 2, -2, 4, 64]
    relu = P.ConvBias(nonlineMode=NonlineMode.RELU)
    found = run("ConvBiasForwardV4", relu, x, w, bias, dtypes=dtypes, output=out)
    assert found.ravel().tolist() == [1, 0, 2, 0, 4, 64]
    assert run("ConvolutionV2", P.Convolution(), x, w, dtypes=dtypes[:2]).ravel().tolist() == [
        3,
        -3,
        12,
        -12,
        21,
        381,
    ]


def test_asymmetric_padding_is_zero() -> None:
    """Padding counts as real zero, that is the zero point, not stored zero."""
    d = DType("Quantized8Asymm", 1.0, 100)
    x = np.full((1, 1, 1, 1), 103, "u1")
    w = np.full((1, 1, 3, 3), 102, "u1")
    assert run("ConvolutionV2", P.Convolution(pad_h=1, pad_w=1), x, w, dtypes=(d, d)).item() == 6


def test_integers_are_exact_and_wrap() -> None:
    """Sums that float32 cannot hold, against int64 sums."""
    x = RNG.integers(-128, 128, (1, 2048, 3, 3)).astype("i1")
    w = RNG.integers(-128, 128, (3, 2048, 3, 3)).astype("i1")
    x[0, :, :, :] |= np.int8(64)
    want = (x[0].astype("i8")[None] * w).sum((1, 2, 3))
    int8 = (DType("Int8"), DType("Int8"))
    assert run("ConvolutionV2", P.Convolution(), x, w, dtypes=int8).ravel().tolist() == want.tolist()
    narrow = run("ConvolutionV2", P.Convolution(), x, w, dtypes=int8, output=DType("Int16"))
    assert narrow.ravel().tolist() == want.astype("i2").tolist()


@pytest.mark.parametrize("rule", ["separate", "product", "reciprocal", "division"])
def test_rounding_rules(rule: str) -> None:
    """Exact halves go away from zero in every rule, values are clipped to the type; the cast cuts off fractions."""
    block = np.array([[-3.0, -1.0, 0.0, 1.0, 3.0, 1000.0]], "f4")
    Requantize(0.5, DType("QuantizedS8", 1.0), rule)(block, 0, 0, slice(None))
    assert block.astype("i1").tolist() == [[-2, -1, 0, 1, 2, 127]]
    block = np.array([[-3.0, 1.0, 3.0]])
    Requantize(0.5, DType("Quantized8Asymm", 1.0, 1), rule, NonlineMode.RELU)(block, 0, 0, slice(None))
    assert block.astype("u1").tolist() == [[1, 2, 3]]


def test_rounding_of_narrow_types() -> None:
    bits = RNG.integers(0, 2**32, 200000, dtype=np.uint32).view("f4")
    halves = np.arange(0x7C00, dtype=np.uint16).view("f2").astype("f4")
    x = np.concatenate([bits[~np.isnan(bits)], (halves[1:] + halves[:-1]) / 2, -halves])
    found = x.copy()
    rounding("Float16")(found)
    np.testing.assert_array_equal(found, round_half(x).astype("f4"))
    b = np.array([1.00390625, 1.01171875, -1.0, np.nan], "f4")
    rounding("BFloat16")(b)
    np.testing.assert_array_equal(b, np.array([1.0, 1.015625, -1.0, np.nan], "f4"))


def test_float16_rounds_after_every_product() -> None:
    """2048 + 1 is 2049, which float16 rounds to 2050; summed in float32 it would be 2050 only at the end."""
    half = (DType("Float16"),) * 2
    x = np.array([2048, 1, 1, 1], "f2").reshape(1, 4, 1, 1)
    w = np.ones((1, 4, 1, 1), "f2")
    assert run("ConvolutionV2", P.Convolution(), x, w, dtypes=half).item() == 2054
    wide = P.Convolution(compute_mode=P.ComputeMode.FLOAT32)
    assert run("ConvolutionV2", wide, x, w, dtypes=half).item() == 2052


LAYOUTS: list[tuple[Format, bool, tuple[int, ...], tuple[int, ...]]] = [
    (Format.NHWC, False, (2, 6, 7, 8), (4, 3, 2, 8)),
    (Format.NHWC, True, (2, 6, 7, 8), (2, 4, 3, 2, 4)),
    (Format.NHWCD4, False, (2, 6, 2, 7, 4), (3, 3, 2, 8, 4)),
    (Format.NHWCD4, True, (2, 6, 2, 7, 4), (2, 1, 3, 2, 4)),
    (Format.NCHW4, False, (2, 2, 6, 7, 4), (8, 2, 3, 2, 4)),
    (Format.NCHW88, False, (2, 2, 6, 7, 8), (1, 2, 3, 2, 8, 8)),
    (Format.NCHW88, False, (2, 3, 6, 7), (1, 3, 2, 3, 8)),
    (Format.NCHW88, True, (2, 2, 6, 7, 8), (2, 1, 1, 3, 2, 8)),
    (Format.NCHW44, True, (2, 2, 6, 7, 4), (2, 1, 1, 3, 2, 4, 4)),
    (Format.NCHW44_DOT, False, (2, 2, 6, 7, 4), (3, 2, 3, 2, 4, 4)),
    (Format.CHWN4, False, (2, 6, 7, 3, 4), (2, 3, 2, 8, 4)),
    (Format.CHWN4, True, (2, 6, 7, 3, 4), (2, 1, 3, 2, 4, 4)),
    (Format.NCHW4_NCHW, False, (2, 2, 6, 7, 4), (5, 2, 3, 2, 4)),
    (Format.NCHW4_NHWC, False, (2, 2, 6, 7, 4), (5, 2, 3, 2, 4)),
    (Format.NCHW4_NCHW32, False, (1, 2, 6, 7, 4), (32, 2, 3, 2, 4)),
    (Format.NCHW32_NCHW4, False, (1, 1, 6, 7, 32), (8, 1, 3, 2, 32)),
    (Format.NCHW64, False, (1, 1, 6, 7, 64), (64, 1, 3, 2, 64)),
    (Format.NCHW8, True, (1, 2, 6, 7, 8), (2, 8, 1, 3, 2, 8)),
    (Format.NCHW32, False, (1, 1, 6, 7, 32), (32, 1, 3, 2, 32)),
]


@pytest.mark.parametrize(("fmt", "grouped", "data", "kernel"), LAYOUTS)
def test_layouts(fmt: Format, grouped: bool, data: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    """Every layout gives what NCHW gives on unpacked arrays."""
    x, w = RNG.standard_normal(data).astype("f4"), RNG.standard_normal(kernel).astype("f4")
    sparse = Sparse.GROUP if grouped else Sparse.DENSE
    plain_x, plain_w = (
        to_plain(x, input_packing(fmt, data)),
        to_plain(w, filter_packing(fmt, kernel, grouped)),
    )
    want = run(
        "ConvolutionV2",
        P.Convolution(sparse=Sparse.GROUP, pad_h=1, stride_w=2),
        np.ascontiguousarray(plain_x),
        plain_w,
    )
    found = run("ConvolutionV2", P.Convolution(format=fmt, sparse=sparse, pad_h=1, stride_w=2), x, w)
    packing = output_packing(fmt, want.shape)
    close(to_plain(found, packing), want)
    np.testing.assert_array_equal(from_plain(to_plain(found, packing), packing), found)


def test_bias_follows_the_output_layout() -> None:
    x, w = (
        RNG.standard_normal((2, 2, 3, 3, 4)).astype("f4"),
        RNG.standard_normal((32, 2, 1, 1, 4)).astype("f4"),
    )
    bias = RNG.standard_normal((1, 1, 1, 1, 32)).astype("f4")
    p = P.ConvBias(format=Format.NCHW4_NCHW32)
    bare = run("ConvBiasForwardV4", p, x, w)
    close(run("ConvBiasForwardV4", p, x, w, bias), bare + bias)
    with pytest.raises(ValueError, match=r"the bias must have shape \[1, 1, 1, 1, 32\]"):
        run("ConvBiasForwardV4", p, x, w, bias.reshape(1, 8, 1, 1, 4))


def test_constant_filters_are_kept() -> None:
    x, w = RNG.standard_normal((1, 2, 4, 4)).astype("f4"), RNG.standard_normal((3, 2, 3, 3)).astype("f4")
    memo: dict[Any, Any] = {}
    flip = P.Convolution(mode=P.ConvMode.CONVOLUTION)
    first = run("ConvolutionV2", flip, x, w, const=(False, True), memo=memo)
    assert "filters" in memo
    again = run("ConvolutionV2", flip, x, np.zeros_like(w), const=(False, True), memo=memo)
    np.testing.assert_array_equal(first, again)
    other: dict[Any, Any] = {}
    run("ConvolutionV2", flip, x, w, const=(False, False), memo=other)
    assert not run("ConvolutionV2", flip, x, np.zeros_like(w), const=(False, False), memo=other).any()


def test_odd_memory() -> None:
    """Unaligned, reversed and read-only inputs, another batch than before, an empty batch."""
    x, w = RNG.standard_normal((3, 2, 5, 5)).astype("f4"), RNG.standard_normal((3, 2, 3, 3)).astype("f4")
    want = run("ConvolutionV2", P.Convolution(), x, w)
    raw = np.frombuffer(b"\0" + w.tobytes(), np.uint8)[1:].view("f4").reshape(w.shape)
    assert not raw.flags.writeable
    np.testing.assert_array_equal(run("ConvolutionV2", P.Convolution(), x, raw), want)
    turned = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    np.testing.assert_array_equal(run("ConvolutionV2", P.Convolution(), turned, w), want)
    assert run("ConvolutionV2", P.Convolution(), x[:0], w).shape == (0, 3, 3, 3)


def test_sizes_in_turns_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Testcases of several sizes are run again and again; how a size is computed is worked out the first time."""
    planned: list[Any] = []
    monkeypatch.setattr(conv_rules, "geometry", lambda *a: planned.append(a) or geometry(*a))
    w = RNG.standard_normal((3, 2, 3, 2)).astype("f4")
    xs = [RNG.standard_normal((n, 2, 19, 23)).astype("f4") for n in (1, 2, 3)]
    where = ((1, 0), (1, 2), (1, 1))
    param = P.Convolution(pad_h=1, stride_w=2)
    for turn in range(2):
        planned.clear()
        for x in xs:
            y = run("ConvolutionV2", param, x, w)
            close(y, loops(x, w[None], *where))
            back = run("ConvolutionBackwardDataV2", param, w, y)
            geo = geometry(back.shape, 1, 2, 3, (3, 2), *where)
            close(back, deconv_plain(y.astype("f8"), w[None].astype("f8"), geo))
        assert bool(planned) == (turn == 0)


def test_given_shape_of_transposed() -> None:
    w, x = np.ones((1, 1, 2, 2), "f4"), np.ones((1, 1, 2, 2), "f4")
    p = P.Convolution(stride_h=2, stride_w=2)
    assert run("ConvolutionBackwardDataV2", p, w, x).shape == (1, 1, 4, 4)
    found = run("ConvolutionBackwardDataV2", p, w, x, np.empty((1, 1, 5, 4), "f4"))
    assert found[0, 0].tolist() == [[1, 1, 1, 1]] * 4 + [[0, 0, 0, 0]]
    with pytest.raises(ValueError, match="would come from an input of"):
        run("ConvolutionBackwardDataV2", p, w, x, np.empty((1, 1, 6, 4), "f4"))


def test_cost() -> None:
    graph = Graph()
    x, w = (graph.add("Host2DeviceCopy")[0] for _ in range(2))
    x.dtype = w.dtype = F32
    param = P.Convolution(sparse=Sparse.GROUP, pad_h=1, pad_w=1)
    opr = graph.add("ConvolutionV2", param, P.ExecutionPolicy(), inputs=[x, w])[0].owner
    impl = implementation("ConvolutionV2")
    # 2 samples * 6 channels * 8 * 8 outputs * (2 inputs * 9 taps) products
    assert impl.flops(opr, [(2, 4, 8, 8), (2, 3, 2, 3, 3)], [(2, 6, 8, 8)]) == 2 * 2 * 6 * 64 * 18


BIG = 2**31 - 1
Conv, CONV, FLIP = P.Convolution, "ConvolutionV2", P.ConvMode.CONVOLUTION
BAD: list[tuple[str, P.Record, tuple[int, ...], tuple[int, ...], str]] = [
    (CONV, Conv(stride_h=0), (1, 1, 4, 4), (1, 1, 1, 1), "stride and dilation must be at least 1"),
    (CONV, Conv(dilate_w=0), (1, 1, 4, 4), (1, 1, 1, 1), "stride and dilation must be at least 1"),
    (CONV, Conv(), (1, 3, 4, 4), (1, 2, 1, 1), "the input has 3 channels, the filter takes 2"),
    (CONV, Conv(), (1, 2, 2, 2), (1, 2, 3, 3), "spans 3 elements, more than the input's 2"),
    (CONV, Conv(dilate_h=BIG), (1, 2, 4, 4), (1, 2, 3, 3), "more than the input's 4"),
    (CONV, Conv(pad_h=2**32 - 1), (1, 2, 4, 4), (1, 2, 3, 3), "beyond 2\\^31"),
    (CONV, Conv(stride_w=2**31), (1, 2, 4, 4), (1, 2, 3, 3), "below 2\\^31, got stride 2147483648"),
    (CONV, Conv(), (1, 2, 4), (1, 2, 3, 3), "NCHW data must have 4 axes"),
    (CONV, Conv(), (1, 2, 4, 4), (1, 2, 3), "a NCHW dense filter must have 4 axes"),
    (CONV, Conv(sparse=Sparse.GROUP), (1, 2, 4, 4), (0, 1, 1, 3, 3), "computes nothing"),
    (CONV, Conv(), (1, 2, 4, 4), (1, 2, 0, 3), "a filter axis of size 0"),
    (CONV, Conv(format=Format.NHWC_NCHW), (1, 4, 4, 2), (1, 3, 3, 2), "not a format of convolutions"),
    (CONV, Conv(format=Format.NCHW4), (1, 1, 4, 4, 3), (4, 1, 3, 3, 4), "last axis of NCHW4 data must be 4"),
    (CONV, Conv(format=Format.NCHW4), (1, 1, 4, 4, 4), (3, 1, 3, 3, 4), "must be a multiple of 4, got 3"),
    (CONV, Conv(format=Format.NCHW4, dilate_h=2), (1, 1, 9, 9, 4), (4, 1, 3, 3, 4), "takes no dilation"),
    (CONV, Conv(format=Format.NCHW44), (1, 5, 4, 4), (1, 3, 3, 5, 4), "at most 4 channels"),
    (CONV, Conv(format=Format.NCHW44), (1, 1, 4, 4, 4), (1, 3, 3, 4, 4), "does not go with a filter"),
    (CONV, Conv(format=Format.NHWCD4, mode=FLIP), (1, 4, 1, 4, 4), (1, 3, 3, 4, 4), "no mode CONVOLUTION"),
    ("Convolution3D", P.Convolution3D(), (1, 2, 4, 4), (1, 2, 3, 3), "NCDHW data must have 5 axes"),
    ("Convolution3D", P.Convolution3D(stride_d=0), (1, 2, 4, 4, 4), (1, 2, 3, 3, 3), "at least 1"),
    ("BatchConvBiasForwardV1", P.BatchConvBias(), (2, 2, 4, 4), (3, 1, 2, 3, 3), "one filter per sample"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "param", "x", "w", "text"), BAD)
def test_bad_shapes(name: str, param: P.Record, x: tuple[int, ...], w: tuple[int, ...], text: str) -> None:
    impl = implementation(name)
    opr = Opr(name, (param, P.ExecutionPolicy()))
    arrays = np.zeros(x, "f4"), np.zeros(w, "f4")
    with pytest.raises(ValueError, match=text):
        impl.shape(ShapeCall(opr, (F32, F32), (x, w), (None, None)))
    with pytest.raises(ValueError, match=text):
        impl.kernel(Call(opr, (F32, F32), (F32,)), *arrays)


@pytest.mark.parametrize(
    ("param", "w", "x", "text"),
    [
        (P.Convolution(), (3, 1, 1, 1), (1, 2, 4, 4), "the input has 2 channels, the filter takes 3"),
        (P.Convolution(pad_h=4), (2, 1, 1, 1), (1, 2, 4, 4), "leaves a result of size"),
        (P.Convolution(format=Format.NCHW32), (32, 1, 1, 1, 32), (1, 1, 4, 4, 32), "has no format NCHW32"),
        (P.Convolution(stride_h=0), (2, 1, 3, 3), (1, 2, 4, 4), "at least 1"),
    ],
)
def test_bad_transposed(param: P.Convolution, w: tuple[int, ...], x: tuple[int, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run("ConvolutionBackwardDataV2", param, np.zeros(w, "f4"), np.zeros(x, "f4"))


@pytest.mark.parametrize(
    ("name", "dtypes", "output", "text"),
    [
        ("ConvolutionV2", ("Float32", "Float16"), None, "cannot be convolved"),
        ("ConvolutionV2", ("Int32", "Int32"), None, "Int32 cannot be convolved"),
        ("ConvolutionV2", ("Float32", "Float32"), "Float16", "cannot give Float16"),
        (
            "ConvBiasForwardV4",
            ("Quantized8Asymm", "Quantized8Asymm"),
            "QuantizedS8",
            "cannot give QuantizedS8",
        ),
        ("ConvolutionBackwardDataV2", ("QuantizedS4", "QuantizedS4"), None, "does not take QuantizedS4"),
        ("Convolution3D", ("Int8", "Int8"), None, "3-D convolutions take two of"),
    ],
)
def test_bad_dtypes(name: str, dtypes: tuple[str, ...], output: str | None, text: str) -> None:
    def make(kind: str) -> DType:
        return DType(kind, 0.5 if kind.startswith("Q") else 0.0)

    param = P.Convolution3D() if name == "Convolution3D" else P.Convolution()
    opr = Opr(name, (param, P.ExecutionPolicy()), output_dtype=make(output) if output else None)
    with pytest.raises(ValueError, match=text):
        implementation(name).dtype(opr, tuple(map(make, dtypes)))


def test_bad_bias() -> None:
    x, w = np.zeros((1, 1, 2, 2), "i1"), np.zeros((1, 1, 1, 1), "i1")
    bias = np.zeros((1, 1, 1, 1), "i4")
    wrong = (S8, S8, DType("QuantizedS32", 0.5))
    with pytest.raises(ValueError, match=r"must be QuantizedS32 of scale 0\.25"):
        run("ConvBiasForwardV4", P.ConvBias(), x, w, bias, dtypes=wrong, output=S8)
    right = (S8, S8, DType("QuantizedS32", 0.25))
    sigmoid = P.ConvBias(nonlineMode=NonlineMode.SIGMOID)
    with pytest.raises(ValueError, match="SIGMOID needs real numbers"):
        run("ConvBiasForwardV4", sigmoid, x, w, bias, dtypes=right, output=S8)
    z = np.zeros((1, 1, 1, 1), "i1")
    with pytest.raises(ValueError, match="z must have shape"):
        run("ConvBiasForwardV4", P.ConvBias(), x, w, bias, z, dtypes=(*right, S8), output=S8)
