"""Windows, position-dependent convolutions, regions and NMS: slow formulations, hand-made values, error texts.

What MegEngine computes is in fixtures/ops/windows.tar.xz, replayed by tests/test_fixtures.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import loadrun
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Opr, Var, params as P
from loadrun.graph.dtypes import Array, dtype_of
from loadrun.ops.image.nms import keep
from loadrun.ops.infer import infer_shapes
from loadrun.ops.numeric.taps import Taps
from loadrun.ops.registry import Call, ShapeCall, implementation
from tests.support.cases import fewer
from tests.support.fixture_files import FIXTURES

TWO = {"ROIAlignV1", "ROIPooling", "DeformablePSROIPoolingForward", "NMSKeepMGB"}
CONV = P.ConvMode.CONVOLUTION


def run(name: str, param: P.Record, *inputs: Array) -> tuple[Array, ...]:
    """Return the kernel's results, after a check that the dtype and shape rules predict them."""
    impl = implementation(name)
    opr = Opr(name, (param,))
    opr.outputs = [Var(i, opr, i) for i in range(2 if name in TWO else 1)]
    ins = tuple(map(dtype_of, inputs))
    dtypes = tuple(impl.dtype(opr, ins))
    shapes = impl.shape(ShapeCall(opr, ins, tuple(x.shape for x in inputs), tuple(inputs)))
    inputs = tuple(x.copy() for x in inputs)
    for x in inputs:
        x.flags.writeable = False
    with np.errstate(all="ignore"):
        result = impl.kernel(Call(opr, ins, dtypes, memo={}), *inputs)
    outs = result if isinstance(result, tuple) else (result,)
    assert [(o.shape, o.dtype) for o in outs] == [(s, d.np) for s, d in zip(shapes, dtypes, strict=True)]
    return outs


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype("f4")


def at(x: Array, *index: int) -> float:
    """Return an element, 0 outside."""
    inside = all(0 <= i < n for i, n in zip(index, x.shape, strict=True))
    return float(x[index]) if inside else 0.0


@pytest.mark.parametrize("path", sorted((FIXTURES / "ops/windows").glob("*.mge")), ids=lambda p: p.stem)
def test_shape_rules_agree_with_results(path: Path) -> None:
    bundle = loadrun.load(path)
    engine = ReferenceEngine(bundle.graph)
    with np.load(path.with_suffix(".npz")) as data:
        feeds = {k[3:]: v for k, v in data.items() if k.startswith("in.")}
        # Sizes that come as an input are unknown to the rules.
        shapes = infer_shapes(bundle.graph).shapes
        for var, value in zip(bundle.graph.outputs, engine.run(feeds), strict=True):
            assert shapes.get(var.id, value.shape) == value.shape


small = st.integers(0, 3)


@settings(max_examples=fewer(200, 2), deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 4), small, st.integers(1, 3))
def test_taps(size: int, window: int, stride: int, pad: int, dilate: int) -> None:
    span = (window - 1) * dilate + 1
    if size + 2 * pad < span:
        return
    out = (size + 2 * pad - span) // stride + 1
    want = {
        (k, o, i)
        for k, o in itertools.product(range(window), range(out))
        if 0 <= (i := o * stride - pad + k * dilate) < size
    }
    got = set()
    for k, to, source in Taps(size, out, window, stride, pad, dilate):
        got |= {(k, o, i) for o, i in zip(range(out)[to], range(size)[source], strict=True)}
    assert got == want


def test_taps_beyond_reason_are_quick() -> None:
    big = 2**31
    assert [k for k, _, _ in Taps(3, 2, big + 1, big, big)] == [0, 1, 2, big]


def slow_conv(x: Array, weight: Any, kh: int, kw: int, out: tuple[int, ...], p: Any) -> Array:
    """Convolve by a sum over taps and channels; weight(o, ic, ky, kx, y, x) is the filter's element."""
    n, channels, oh, ow = out
    result = np.zeros(out)
    for i, o, y, z in itertools.product(range(n), range(channels), range(oh), range(ow)):
        for c, ky, kx in itertools.product(range(x.shape[1]), range(kh), range(kw)):
            row, col = y * p.stride_h - p.pad_h + ky, z * p.stride_w - p.pad_w + kx
            result[i, o, y, z] += at(x, i, c, row, col) * weight(o, c, ky, kx, y, z)
    return result


@pytest.mark.parametrize("flip", [False, True])
def test_local(flip: bool) -> None:
    x, w = normal(2, 3, 5, 6), normal(5, 3, 3, 3, 2, 4)
    p = P.Convolution(mode=CONV if flip else P.ConvMode.CROSS_CORRELATION, pad_h=1, stride_w=2)

    def weight(o: int, c: int, ky: int, kx: int, y: int, z: int) -> float:
        return float(w[y, z, c, 2 - ky, 1 - kx, o] if flip else w[y, z, c, ky, kx, o])

    np.testing.assert_allclose(
        run("LocalV2", p, x, w)[0], slow_conv(x, weight, 3, 2, (2, 4, 5, 3), p), rtol=1e-5, atol=1e-5
    )


def test_group_local_and_half() -> None:
    x, w = normal(1, 4, 3, 3), normal(2, 2, 2, 2, 2, 2, 3)
    p = P.Convolution()

    def weight(o: int, c: int, ky: int, kx: int, y: int, z: int) -> float:
        return float(w[o // 3, y, z, c % 2, ky, kx, o % 3]) if c // 2 == o // 3 else 0.0

    want = slow_conv(x, weight, 2, 2, (1, 6, 2, 2), p)
    np.testing.assert_allclose(run("GroupLocalV2", p, x, w)[0], want, rtol=1e-5, atol=1e-5)
    got = run("GroupLocalV2", p, x.astype("f2"), w.astype("f2"))[0]
    np.testing.assert_allclose(got, want, rtol=5e-3, atol=5e-3)


def test_local_share() -> None:
    x, w = normal(2, 2, 4, 6), normal(2, 3, 2, 3, 3, 5)
    p = P.LocalShare(pad_h=1, pad_w=1, spatial_groups_h=2, spatial_groups_w=3)

    def weight(o: int, c: int, ky: int, kx: int, y: int, z: int) -> float:
        return float(w[y // 2, z // 2, c, ky, kx, o])

    want = slow_conv(x, weight, 3, 3, (2, 5, 4, 6), p)
    np.testing.assert_allclose(run("LocalShareForwardV1", p, x, w)[0], want, rtol=1e-5, atol=1e-5)


def test_deformable_without_offsets_is_convolution() -> None:
    x, w = normal(2, 4, 5, 6), normal(3, 4, 3, 3)
    p = P.Convolution(pad_h=1, pad_w=1, stride_h=2)
    shape = (2, 9, 3, 6)

    def weight(o: int, c: int, ky: int, kx: int, y: int, z: int) -> float:
        return float(w[o, c, ky, kx])

    got = run("DeformableConvForwardV1", p, x, w, np.zeros((2, 18, 3, 6), "f4"), np.ones(shape, "f4"))[0]
    np.testing.assert_allclose(got, slow_conv(x, weight, 3, 3, (2, 3, 3, 6), p), rtol=1e-5, atol=1e-5)


def test_deformable_moves_and_weighs() -> None:
    """Half a pixel down and a quarter right of pixel (0, 0), times 10; far outside and NaN give 0."""
    x = np.array([[0, 4], [8, 12]], "f4").reshape(1, 1, 2, 2)
    w = np.ones((1, 1, 1, 1), "f4")
    offset = np.zeros((1, 2, 2, 2), "f4")
    offset[0, :, 0, 0] = 0.5, 0.25
    offset[0, 0, 0, 1] = -1
    offset[0, 0, 1, 0] = np.nan
    offset[0, 1, 1, 1] = 0.75
    mask = np.full((1, 1, 2, 2), 10, "f4")
    got = run("DeformableConvForwardV1", P.Convolution(), x, w, offset, mask)[0]
    assert got.reshape(-1).tolist() == [50, 0, 0, 30]


def test_regions() -> None:
    x = np.arange(1, 5, dtype="f4").reshape(1, 1, 1, 4)
    w = np.ones((1, 1, 1, 3), "f4")
    rin = np.array([0, 0, 1, 1], "u1").reshape(1, 1, 4)
    p = P.Convolution(pad_w=1)
    got = run("RegionRestrictedConvolution", p, x, w, rin, rin.copy())[0]
    assert got.reshape(-1).tolist() == [3, 3, 7, 7]
    half = (x * 1024).astype("f2")
    half[..., 1] = 1
    got = run("RegionRestrictedConvolution", p, half, w.astype("f2"), rin, rin.copy())[0]
    assert got.reshape(-1)[:2].tolist() == [1025, 1025]


def test_mask_conv_and_propagate() -> None:
    x = np.arange(9, dtype="f4").reshape(1, 1, 3, 3)
    w = np.array([1, 2], "f4").reshape(1, 1, 1, 2)
    mask = np.array([[1, 0], [0, -1], [2, 0]], "i4")
    assert run("MaskConvolutionV2", P.Convolution(), x, w, mask)[0].reshape(-1).tolist() == [
        2,
        0,
        0,
        14,
        20,
        0,
    ]
    got = run("MaskConvolutionV2", P.Convolution(mode=CONV), x, w, mask)[0]
    assert got.reshape(-1).tolist() == [1, 0, 0, 13, 19, 0]
    spot = np.zeros((4, 4), "i4")
    spot[1, 2] = 7
    p = P.MaskPropagate(kernel_h=2, kernel_w=3, pad_w=1)
    assert run("MaskPropagate", p, spot)[0].tolist() == [[0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]


def test_neibs_and_back() -> None:
    x = np.arange(12, dtype="i4").reshape(1, 1, 3, 4)
    p = P.Images2Neibs(window_h=2, window_w=2, stride_h=2, stride_w=2, pad_h=1)
    got = run("Images2Neibs", p, x)[0]
    assert got.shape == (1, 1, 2, 2, 2, 2)
    assert got[0, 0, 0, 1].tolist() == [[0, 0], [2, 3]]
    assert got[0, 0, 1, 0].tolist() == [[4, 5], [8, 9]]
    back = P.SlidingWindowTranspose(out_h=3, out_w=4, window_h=2, window_w=2, stride_h=2, stride_w=2, pad_h=1)
    assert run("SlidingWindowTranspose", back, got)[0].tolist() == x.tolist()


def test_sliding_window_transpose_adds_and_wraps() -> None:
    x = np.full((1, 1, 1, 2, 1, 2), 100, "i1")
    p = P.SlidingWindowTranspose(out_h=1, out_w=3, window_h=1, window_w=2)
    assert run("SlidingWindowTranspose", p, x)[0].reshape(-1).tolist() == [100, 200 - 256, 100]


def test_roi_align_values() -> None:
    x = np.arange(16, dtype="f4").reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 2, 2], [0, 1, 1, 1, 1], [0, 9, 9, 12, 12]], "f4")
    p = P.ROIAlign(
        mode=P.ROIAlignMode.AVERAGE, pooled_height=2, pooled_width=1, sample_height=1, sample_width=1
    )
    out, index = run("ROIAlignV1", p, x, rois)
    # Centres (0.5, 1) and (1.5, 1), then one point, then outside.
    assert out.reshape(3, 2).tolist() == [[3, 7], [5, 5], [0, 0]]
    assert not index.any()
    q = P.ROIAlign(mode=P.ROIAlignMode.MAX, sample_height=2, sample_width=2)
    out, index = run("ROIAlignV1", q, x, rois)
    assert (out.reshape(-1).tolist(), index.reshape(-1).tolist()) == ([7.5, 5, 0], [3, 0, 0])


def test_roi_align_without_samples_or_regions() -> None:
    x, rois = np.ones((1, 2, 3, 3), "f4"), np.zeros((1, 5), "f4")
    p = P.ROIAlign(sample_height=0)
    out, index = run("ROIAlignV1", p, x, rois)
    assert (out.reshape(-1).tolist(), index.reshape(-1).tolist()) == ([0, 0], [-1, -1])
    assert run("ROIAlignV1", P.ROIAlign(), x, rois[:0])[0].shape == (0, 2, 1, 1)


def test_roi_pooling_values() -> None:
    x = np.array([[5, 1, 9], [7, 9, 2], [0, 3, 4]], "f4").reshape(1, 1, 3, 3)
    rois = np.array([[0, 0, 0, 2, 2], [0, 0.5, 1.5, 1, 1], [0, 7, 7, 8, 8]], "f4")
    size = np.array([1, 2], "i4")
    out, index = run("ROIPooling", P.ROIPooling(), x, rois, size)
    # 1.5 columns a bin overlap; 0.5 and 1.5 round away from 0, which leaves one pixel; outside is empty.
    assert out.reshape(3, 2).tolist() == [[9, 9], [3, 3], [0, 0]]
    assert index.reshape(3, 2).tolist() == [[4, 2], [7, 7], [-1, -1]]
    average = P.ROIPooling(mode=P.ROIPoolingMode.AVERAGE)
    out, _ = run("ROIPooling", average, x, rois[:1], size)
    np.testing.assert_allclose(out.reshape(-1), [25 / 6, 28 / 6], rtol=1e-6)


def test_deformable_ps_roi_pooling_values() -> None:
    x = np.arange(16, dtype="f4").reshape(1, 1, 4, 4)
    rois = np.array([[0, 0, 0, 1, 1]], "f4")
    trans = np.zeros((1, 2, 1, 1), "f4")
    p = P.DeformablePSROIPooling(no_trans=False, sample_per_part=2, trans_std=0.5)
    out, count = run("DeformablePSROIPoolingForward", p, x, rois, trans)
    # Samples at -0.5 (moved onto 0) and 0.5 both ways.
    assert (out.item(), count.item()) == ((0 + 0.5 + 2 + 2.5) / 4, 4)
    trans[0, 0] = 2
    out, count = run("DeformablePSROIPoolingForward", p, x, rois, trans)
    assert (out.item(), count.item()) == ((1.5 + 2.5 + 3.5 + 4.5) / 4, 4)


def test_correlation_values() -> None:
    a = np.arange(9, dtype="f4").reshape(1, 1, 3, 3)
    p = P.Correlation(max_displacement=1, pad_size=1)
    (out,) = run("CorrelationForward", p, a, a.copy())
    assert out.shape == (1, 9, 3, 3)
    assert out[0, 4].tolist() == (a[0, 0] ** 2).tolist()
    # Displacement (-1, 0): the row above, 0 above the first.
    assert out[0, 1].tolist() == [[0, 0, 0], [0, 4, 10], [18, 28, 40]]
    q = P.Correlation(max_displacement=0, kernel_size=3, is_multiply=False)
    (out,) = run("CorrelationForward", q, a, np.zeros_like(a))
    assert out.reshape(-1).tolist() == [4]


def slow_keep(boxes: Array, bound: float, limit: int) -> list[int]:
    kept: list[int] = []
    for i, b in enumerate(boxes.astype(np.float64)):
        for j in kept:
            k = boxes[j].astype(np.float64)
            w = max(min(b[2], k[2]) - max(b[0], k[0]), 0)
            h = max(min(b[3], k[3]) - max(b[1], k[1]), 0)
            union = (b[2] - b[0]) * (b[3] - b[1]) + (k[2] - k[0]) * (k[3] - k[1]) - w * h
            if w * h > union * np.float32(bound):
                break
        else:
            kept.append(i)
            if len(kept) == limit:
                break
    return kept


@settings(max_examples=fewer(60, 2), deadline=None)
@given(st.integers(0, 200), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 99), st.integers(0, 9))
def test_nms(count: int, bound: float, limit: int, seed: int) -> None:
    """Whole coordinates keep float32 exact, so that ties are ties."""
    corners = np.random.default_rng(seed).integers(0, 12, (count, 4)).astype("f4")
    corners[:, 2:] += corners[:, :2]
    want = slow_keep(corners, bound, limit)
    assert keep(corners, bound, limit).tolist() == want
    indices, sizes = run("NMSKeepMGB", P.NMSKeep(iou_thresh=bound, max_output=limit), corners[None])
    assert sizes.tolist() == [len(want)]
    assert indices[0].tolist() == (want + [want[-1] if want else 0] * limit)[:limit]


def test_nms_without_room_counts() -> None:
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6], [0, 0, 1, 1]]], "f4")
    indices, sizes = run("NMSKeepMGB", P.NMSKeep(iou_thresh=0.5, max_output=0), boxes)
    assert (indices.shape, sizes.tolist()) == ((1, 0), [2])


X, R = (1, 2, 4, 4), (3, 5)
BAD: list[tuple[str, P.Record, list[tuple[int, ...]], str]] = [
    ("LocalV2", P.Convolution(), [X, (3, 3, 2, 2, 2)], "must have 6 axes"),
    ("LocalV2", P.Convolution(), [X, (9, 3, 2, 2, 2, 1)], "for 9x3 positions, the output has 3x3"),
    ("LocalV2", P.Convolution(dilate_h=2), [X, (3, 3, 2, 2, 2, 1)], "neither dilation"),
    ("LocalV2", P.Convolution(stride_h=0), [X, (3, 3, 2, 2, 2, 1)], "must be at least 1"),
    ("GroupLocalV2", P.Convolution(mode=CONV), [X, (1, 3, 3, 2, 2, 2, 1)], "cross-correlation only"),
    ("LocalShareForwardV1", P.LocalShare(), [X, (2, 1, 2, 3, 3, 1)], "2x1 cells, the operator 1x1"),
    ("LocalShareForwardV1", P.LocalShare(spatial_groups_h=3), [X, (3, 1, 2, 1, 1, 1)], "no 3x1 equal cells"),
    ("LocalShareForwardV1", P.LocalShare(format=P.Format.NHWC), [X, (1,) * 6], "NCHW only, found NHWC"),
    (
        "DeformableConvForwardV1",
        P.Convolution(),
        [X, (1, 2, 3, 3), (1, 18, 9, 9), (1, 9, 2, 2)],
        "on 2x2 positions",
    ),
    (
        "DeformableConvForwardV1",
        P.Convolution(),
        [X, (1, 3, 3, 3), (1, 18, 2, 2), (1, 9, 2, 2)],
        "has 2 channels",
    ),
    (
        "DeformableConvForwardV1",
        P.Convolution(),
        [X, (1, 2, 3, 3), (1, 54, 2, 2), (1, 27, 2, 2)],
        "3 equal parts",
    ),
    ("MaskConvolutionV2", P.Convolution(), [X, (1, 2, 3, 3), (3, 3)], r"must be \[2, 2\]"),
    ("MaskPropagate", P.MaskPropagate(), [X], "2 axes"),
    ("Images2Neibs", P.Images2Neibs(stride_h=0), [X], "stride 0"),
    ("Images2Neibs", P.Images2Neibs(window_h=2**31), [X], "2147483648"),
    ("Images2Neibs", P.Images2Neibs(), [(3, 3)], "takes"),
    ("SlidingWindowTranspose", P.SlidingWindowTranspose(out_h=4, out_w=4), [(1, 1, 9, 2, 3, 3)], "found"),
    ("ROIAlignV1", P.ROIAlign(), [X, (3, 4)], "regions must be"),
    ("ROIAlignV1", P.ROIAlign(sample_width=2**31), [X, R], "samples per bin"),
    ("ROIAlignV1", P.ROIAlign(pooled_width=0), [X, R], "cannot pool to 1x0"),
    (
        "DeformablePSROIPoolingForward",
        P.DeformablePSROIPooling(no_trans=False),
        [X, R, (3, 2, 2, 2)],
        "trans must be",
    ),
    (
        "DeformablePSROIPoolingForward",
        P.DeformablePSROIPooling(no_trans=False, part_size=7),
        [X, R, (3, 2, 1, 1)],
        "too small",
    ),
    ("CorrelationForward", P.Correlation(stride2=0), [X, X], "at least 1"),
    ("CorrelationForward", P.Correlation(max_displacement=9), [X, X], "no room"),
    ("CorrelationForward", P.Correlation(pad_size=2**31), [X, X], "far out of range"),
    ("CorrelationForward", P.Correlation(), [X, (1, 2, 4, 5)], "two equal shapes"),
    ("NMSKeepMGB", P.NMSKeep(), [(3, 4)], r"\[B, n, 4\]"),
]


@pytest.mark.parametrize(("name", "param", "shapes", "text"), BAD)
def test_errors(name: str, param: P.Record, shapes: list[tuple[int, ...]], text: str) -> None:
    impl = implementation(name)
    opr = Opr(name, (param,))
    dtypes = ["i4" if name.startswith("Mask") and i == len(shapes) - 1 else "f4" for i in range(len(shapes))]
    arrays = [np.zeros(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    ins = tuple(map(dtype_of, arrays))
    with pytest.raises(ValueError, match=text):
        impl.shape(ShapeCall(opr, ins, tuple(shapes), (None,) * len(shapes)))
    with pytest.raises(ValueError, match=text):
        impl.kernel(Call(opr, ins, ins), *arrays)


@pytest.mark.parametrize(
    ("name", "param", "dtypes", "text"),
    [
        ("LocalV2", P.Convolution(), "f4 f2", "one dtype, Float32 or Float16"),
        ("LocalShareForwardV1", P.LocalShare(), "f2 f2", "one dtype, Float32"),
        ("MaskConvolutionV2", P.Convolution(), "f4 f4 u1", "integer mask"),
        ("MaskPropagate", P.MaskPropagate(), "f4", "Int8, Int16 or Int32"),
        ("RegionRestrictedConvolution", P.Convolution(), "f4 f4 i4 u1", "Int32 or Uint8"),
        ("RegionRestrictedConvolutionBackwardData", P.Convolution(), "f4 f4 i4 u1", "Int32 or Uint8"),
        ("Images2Neibs", P.Images2Neibs(), "?", "plain float or integer"),
        ("ROIAlignV1", P.ROIAlign(), "f2 f4", "must be Float32"),
        ("CorrelationForward", P.Correlation(), "f4 f2", "one dtype"),
        ("NMSKeepMGB", P.NMSKeep(), "f2", "must be Float32"),
    ],
)
def test_dtype_errors(name: str, param: P.Record, dtypes: str, text: str) -> None:
    ins = tuple(dtype_of(np.zeros(1, d)) for d in dtypes.split())
    with pytest.raises(ValueError, match=text):
        implementation(name).dtype(Opr(name, (param,)), ins)


@pytest.mark.parametrize("image", [-1, 2, np.nan, np.inf])
def test_region_of_no_image(image: float) -> None:
    rois = np.array([[image, 0, 0, 1, 1]], "f4")
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        run("ROIAlignV1", P.ROIAlign(), np.zeros((2, 1, 3, 3), "f4"), rois)


def test_region_backward_with_strides_reaches_all_of_the_data() -> None:
    """MegEngine takes sizes that follow from the gradient's, and no stride in the forward operator."""
    w, diff = np.ones((1, 1, 3, 3), "f4"), np.ones((1, 1, 2, 2), "f4")
    p = P.Convolution(stride_h=2, stride_w=2)
    name = "RegionRestrictedConvolutionBackwardData"
    rin, rout = np.zeros((1, 5, 5), "i4"), np.zeros((1, 2, 2), "i4")
    got = run(name, p, w, diff, rin, rout)[0]
    assert got[0, 0].tolist() == [[a * b for b in (1, 1, 2, 1, 1)] for a in (1, 1, 2, 1, 1)]
    rin[0, 2, 2] = 1
    assert run(name, p, w, diff, rin, rout)[0][0, 0, 2].tolist() == [2, 2, 0, 2, 2]
    with pytest.raises(ValueError, match=r"cover \[5, 5\], the regions say \[6, 5\]"):
        run(name, p, w, diff, np.zeros((1, 6, 5), "i4"), rout)
    with pytest.raises(ValueError, match="stride 1 only"):
        run("RegionRestrictedConvolution", p, np.zeros((1, 1, 5, 5), "f4"), w, rin, rout)
