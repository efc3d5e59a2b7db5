"""The float64 engine's formulas beside torch in float64, and beside formulas written out here.

A tolerance of 1e-11 is far below what float32 can hold, so it tells as well that nothing was rounded to it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.wide import WideEngine
from loadrun.graph import params as P
from loadrun.graph.dtypes import Array, dtype_of
from loadrun.graph.params import BorderMode, Format, InterpolationMode, NonlineMode, PoolingMode, Record
from tests.support.nn_cases import graph_of

RNG = np.random.default_rng(20)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def run(name: str, params: Record, *arrays: Array) -> list[Array]:
    """Run one operator, which must have a formula, on the float64 engine."""
    graph = graph_of(name, (params,), [a.shape for a in arrays], [dtype_of(a) for a in arrays])
    engine = WideEngine(graph)
    found = engine.run({f"x{i}": a for i, a in enumerate(arrays)})
    assert (engine.wide, dict(engine.narrow)) == (1, {})
    return found


def close(found: Array, expected: Any) -> None:
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-11, atol=1e-11)


def doubles(torch: Any, *arrays: Array) -> list[Any]:
    return [torch.from_numpy(a.astype(np.float64)) for a in arrays]


def test_the_maximum_of_minus_infinity_is_finite() -> None:
    """MegEngine 1.13 gives the lowest float32."""
    x = np.array([[-np.inf, -np.inf], [-np.inf, 2]], np.float32)
    for mode, sign in ((P.ReduceMode.MAX, 1), (P.ReduceMode.MIN, -1)):
        (found,) = run("ReduceV2", P.Reduce(mode=mode, axis=1), sign * x)
        assert found.tolist() == [[sign * -3.4028234663852886e38], [sign * 2]]


# ---- Convolutions


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(("stride", "pad", "dilate"), [(1, 0, 1), (2, 2, 1), (1, 3, 2), (3, 1, 2)])
def test_convolution(torch: Any, stride: int, pad: int, dilate: int, groups: int) -> None:
    x, w = normal(2, 4, 9, 8), normal(8, 4 // groups, 3, 2)
    sizes = {"stride_h": stride, "pad_h": pad, "dilate_h": dilate, "pad_w": 1}
    sparse = P.Sparse.GROUP if groups > 1 else P.Sparse.DENSE
    grouped = w.reshape(groups, -1, *w.shape[1:]) if groups > 1 else w
    (found,) = run("ConvolutionV2", P.Convolution(sparse=sparse, **sizes), x, grouped)
    (turned,) = run(
        "ConvolutionV2",
        P.Convolution(sparse=sparse, mode=P.ConvMode.CONVOLUTION, **sizes),
        x,
        np.ascontiguousarray(grouped[..., ::-1, ::-1]),
    )
    a, b = doubles(torch, x, w)
    expected = torch.nn.functional.conv2d(a, b, None, (stride, 1), (pad, 1), (dilate, 1), groups)
    close(found, expected)
    close(turned, expected)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "pad", "dilate"), [(1, 0, 1), (2, 1, 1), (3, 2, 2)])
def test_transposed_convolution(torch: Any, stride: int, pad: int, dilate: int, groups: int) -> None:
    y, w = normal(2, 6, 5, 4), normal(6, 4 // groups, 3, 2)
    p = P.Convolution(
        stride_h=stride,
        pad_h=pad,
        dilate_h=dilate,
        stride_w=2,
        sparse=P.Sparse.GROUP if groups > 1 else P.Sparse.DENSE,
    )
    grouped = w.reshape(groups, -1, *w.shape[1:]) if groups > 1 else w
    (found,) = run("ConvolutionBackwardDataV2", p, grouped, y)
    a, b = doubles(torch, y, w)
    transpose = torch.nn.functional.conv_transpose2d
    close(found, transpose(a, b, None, (stride, 2), (pad, 0), 0, groups, (dilate, 1)))


def test_volumes(torch: Any) -> None:
    x, w = normal(2, 3, 5, 6, 7), normal(4, 3, 2, 3, 2)
    p = P.Convolution3D(stride_d=2, pad_h=1, dilate_w=2)
    (y,) = run("Convolution3D", p, x, w)
    a, b = doubles(torch, x, w)
    close(y, torch.nn.functional.conv3d(a, b, None, (2, 1, 1), (0, 1, 0), (1, 1, 2)))
    (back,) = run("Convolution3DBackwardData", p, w, y.astype(np.float32))
    (given,) = doubles(torch, y.astype(np.float32))
    close(back, torch.nn.functional.conv_transpose3d(given, b, None, (2, 1, 1), (0, 1, 0), 0, 1, (1, 1, 2)))


@pytest.mark.parametrize("mode", NonlineMode)
def test_bias_and_residual(torch: Any, mode: NonlineMode) -> None:
    x, w, bias, z = normal(2, 3, 5, 5), normal(4, 3, 3, 3), normal(1, 4, 1, 1), normal(2, 4, 5, 5)
    (found,) = run("ConvBiasForwardV4", P.ConvBias(nonlineMode=mode, pad_h=1, pad_w=1), x, w, bias, z)
    a, b, c, d = doubles(torch, x, w, bias, z)
    act = {
        NonlineMode.IDENTITY: lambda v: v,
        NonlineMode.RELU: torch.relu,
        NonlineMode.SIGMOID: torch.sigmoid,
        NonlineMode.H_SWISH: torch.nn.functional.hardswish,
    }[mode]
    close(found, act(torch.nn.functional.conv2d(a, b, None, 1, 1) + c + d))


def test_filter_for_every_sample(torch: Any) -> None:
    x, w, bias = normal(3, 2, 4, 4), normal(3, 5, 2, 3, 3), normal(1, 5, 1, 1)
    (found,) = run("BatchConvBiasForwardV1", P.BatchConvBias(), x, w, bias)
    a, b, c = doubles(torch, x, w, bias)
    expected = [torch.nn.functional.conv2d(a[n : n + 1], b[n]) + c for n in range(3)]
    close(found, torch.cat(expected))


def windows(x: Array, kernel: tuple[int, int], stride: int, pad: int) -> Array:
    """All windows of images as [N, C, OH, OW, KH, KW]."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[:, :, ::stride, ::stride]


def test_filter_for_every_position() -> None:
    x = normal(2, 4, 7, 6)
    seen = windows(x, (3, 3), 2, 1)
    w = normal(4, 3, 4, 3, 3, 5)
    expected = np.einsum("ncyxhw,yxchwo->noyx", seen, w.astype(np.float64))
    p = P.Convolution(stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    close(run("LocalV2", p, x, w)[0], expected)
    p = P.Convolution(mode=P.ConvMode.CONVOLUTION, stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    close(run("LocalV2", p, x, np.ascontiguousarray(w[:, :, :, ::-1, ::-1]))[0], expected)
    w = normal(2, 4, 3, 2, 3, 3, 5)
    seen = windows(x, (3, 3), 2, 1)[:, :, :, :3]
    p = P.Convolution(stride_h=2, stride_w=2, pad_h=1, pad_w=1)
    halves = [
        np.einsum("ncyxhw,yxchwo->noyx", seen[:, 2 * g : 2 * g + 2], w[g].astype(np.float64)) for g in (0, 1)
    ]
    close(run("GroupLocalV2", p, x, w)[0], np.concatenate(halves, 1))


def test_filter_for_every_cell() -> None:
    x, w = normal(1, 3, 4, 6), normal(2, 3, 3, 1, 1, 2)
    found = run("LocalShareForwardV1", P.LocalShare(spatial_groups_h=2, spatial_groups_w=3), x, w)[0]
    for y, at in product(range(4), range(6)):
        filters = w[y // 2, at // 2, :, 0, 0].astype(np.float64)
        close(found[0, :, y, at], x[0, :, y, at].astype(np.float64) @ filters)


def test_deformable_convolution() -> None:
    """An offset of half a pixel down is the mean of both rows; the row below the last one is 0."""
    x, w = normal(1, 2, 4, 3), normal(3, 2, 1, 1)
    offset, mask = np.zeros((1, 2, 4, 3), np.float32), RNG.random((1, 1, 4, 3)).astype(np.float32)
    offset[:, 0] = 0.5
    rows = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (0, 1), (0, 0)))
    moved = (rows[:, :, :-1] + rows[:, :, 1:]) / 2 * mask
    (found,) = run("DeformableConvForwardV1", P.Convolution(), x, w, offset, mask)
    close(found, np.einsum("nihw,oi->nohw", moved, w[:, :, 0, 0].astype(np.float64)))


def test_deformable_convolution_without_offsets(torch: Any) -> None:
    x, w = normal(2, 4, 6, 5), normal(2, 3, 2, 3, 2)
    offset = np.zeros((2, 24, 3, 5), np.float32)
    mask = np.ones((2, 12, 3, 5), np.float32)
    p = P.Convolution(pad_h=1, dilate_h=1, stride_h=2, pad_w=1, dilate_w=2, sparse=P.Sparse.GROUP)
    a, b = doubles(torch, x, w.reshape(6, 2, 3, 2))
    expected = torch.nn.functional.conv2d(a, b, None, (2, 1), 1, (1, 2), 2)
    close(run("DeformableConvForwardV1", p, x, w, offset, mask)[0], expected)


def test_regions_and_masks(torch: Any) -> None:
    x, w = normal(2, 3, 5, 4), normal(2, 3, 3, 3)
    rin = RNG.integers(0, 3, (2, 5, 4)).astype(np.int32)
    rout = RNG.integers(0, 3, (2, 5, 4)).astype(np.int32)
    p = P.Convolution(pad_h=1, pad_w=1)
    a, b = doubles(torch, x, w)
    # Of every region alone an ordinary convolution.
    expected: Any = 0
    for region in range(3):
        seen = a * torch.from_numpy(rin == region)[:, None]
        expected += (
            torch.nn.functional.conv2d(seen, b, None, 1, 1) * torch.from_numpy(rout == region)[:, None]
        )
    close(run("RegionRestrictedConvolution", p, x, w, rin, rout)[0], expected)
    mask = rin[0]
    whole = torch.nn.functional.conv2d(a, b, None, 1, 1) * torch.from_numpy(mask != 0)
    close(run("MaskConvolutionV2", p, x, w, mask)[0], whole)


def test_windows_back_on_the_image(torch: Any) -> None:
    p = P.SlidingWindowTranspose(
        out_h=6, out_w=5, pad_h=1, pad_w=1, stride_h=2, stride_w=1, window_h=3, window_w=2
    )
    x = normal(2, 3, 3, 6, 3, 2)
    (flat,) = doubles(torch, x.transpose(0, 1, 4, 5, 2, 3).reshape(2, 18, 18))
    close(
        run("SlidingWindowTranspose", p, x)[0],
        torch.nn.functional.fold(flat, (6, 5), (3, 2), 1, 1, (2, 1)),
    )


def test_a_bias_that_does_not_fit_is_no_larger_result() -> None:
    x, w, bias = normal(1, 1, 3, 3), normal(1, 1, 3, 3), normal(1, 1, 2, 2)
    with pytest.raises(
        EngineError, match=r"returned shape \[1, 1, 2, 2\], but its shape rule says \[1, 1, 1, 1\]"
    ):
        run("ConvBiasForwardV4", P.ConvBias(), x, w, bias)


# ---- Pooling


@pytest.mark.parametrize(("window", "stride", "pad"), [(2, 2, 0), (3, 1, 1), (3, 2, 1), (5, 3, 2)])
def test_pooling(torch: Any, window: int, stride: int, pad: int) -> None:
    x = normal(2, 3, 11, 9)
    (a,) = doubles(torch, x)
    sizes = {
        "window_h": window, "window_w": 2, "stride_h": stride, "stride_w": 2, "pad_h": pad, "pad_w": 1,
    }  # fmt: skip
    how = ((window, 2), (stride, 2), (pad, 1))
    F = torch.nn.functional
    expected = {
        PoolingMode.MAX: F.max_pool2d(a, *how),
        PoolingMode.AVERAGE: F.avg_pool2d(a, *how),
        PoolingMode.AVERAGE_COUNT_EXCLUDE_PADDING: F.avg_pool2d(a, *how, count_include_pad=False),
    }
    for mode in expected:
        close(run("PoolingV1", P.Pooling(mode=mode, **sizes), x)[0], expected[mode])
        by_last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        (found,) = run("PoolingV1", P.Pooling(mode=mode, format=Format.NHWC, **sizes), by_last)
        close(found.transpose(0, 3, 1, 2), expected[mode])


@pytest.mark.parametrize("mode", [PoolingMode.MAX, PoolingMode.AVERAGE])
def test_adaptive_pooling(torch: Any, mode: PoolingMode) -> None:
    """MegEngine's windows are alike: ``size // out`` apart, as long as what is left for the last one."""
    x = normal(2, 3, 7, 8)
    (a,) = doubles(torch, x)
    (found,) = run("AdaptivePoolingV1", P.AdaptivePooling(mode=mode), x, np.array([3, 4], np.int32))
    pool = torch.nn.functional.max_pool2d if mode == PoolingMode.MAX else torch.nn.functional.avg_pool2d
    close(found, pool(a, (3, 2), (2, 2)))


# ---- Normalizations


def test_softmax(torch: Any) -> None:
    x = normal(3, 4, 5) * 30
    (a,) = doubles(torch, x)
    for axis in (0, 1, -1):
        close(run("Softmax", P.Softmax(axis=axis), x)[0], torch.softmax(a, axis))


def test_layer_and_general_norm(torch: Any) -> None:
    x, weight, bias = normal(2, 3, 4, 5), normal(4, 5), normal(4, 5)
    a, b, c = doubles(torch, x, weight, bias)
    eps = float(np.float32(1e-3))
    y, mean, rstd = run(
        "LayerNorm", P.LayerNorm(normalized_dim=2, normalized_size=20, eps=1e-3), x, weight, bias
    )
    close(y, torch.nn.functional.layer_norm(a, (4, 5), b, c, eps))
    close(mean, a.mean((2, 3)))
    close(rstd, 1 / torch.sqrt(a.var((2, 3), correction=0) + eps))
    p = P.GeneralNorm(axis_start=1, axis_end=3, eps=1e-3)
    weight, bias = normal(3, 4), normal(3, 4)
    y, mean, rstd = run("GeneralNorm", p, x, weight, bias)
    b, c = doubles(torch, weight, bias)
    last = torch.nn.functional.layer_norm(a.permute(0, 3, 1, 2), (3, 4), b, c, eps)
    close(y, last.permute(0, 2, 3, 1))
    close(mean, a.mean((1, 2)))
    close(rstd, 1 / torch.sqrt(a.var((1, 2), correction=0) + eps))


def test_group_and_instance_norm(torch: Any) -> None:
    x, weight, bias = normal(2, 6, 4, 3), normal(6), normal(6)
    a, b, c = doubles(torch, x, weight, bias)
    eps = float(np.float32(1e-5))
    y, mean, variance = run("GroupNorm", P.GroupNorm(group=3), x, weight, bias)
    close(y, torch.nn.functional.group_norm(a, 3, b, c, eps))
    close(mean, a.reshape(2, 3, -1).mean(2))
    close(variance, a.reshape(2, 3, -1).var(2, correction=0))
    close(run("InstanceNorm", P.GroupNorm(affine=False), x)[0], torch.nn.functional.instance_norm(a, eps=eps))


def test_batch_norm(torch: Any) -> None:
    x, (scale, bias, mean) = normal(3, 4, 5, 2), (normal(1, 4, 1, 1) for _ in range(3))
    var = RNG.random((1, 4, 1, 1)).astype(np.float32)
    a, *rest = doubles(torch, x, *(v.reshape(-1) for v in (mean, var, scale, bias)))
    eps = float(np.float32(1e-3))
    p = P.BN(fwd_mode=P.BNFwdMode.INFERENCE, epsilon=1e-3)
    *_, y = run("BatchNormV1", p, x, scale, bias, mean, var)
    close(y, torch.nn.functional.batch_norm(a, *rest, eps=eps))
    p = P.BN(fwd_mode=P.BNFwdMode.TRAINING, epsilon=1e-3, avg_factor=0.25)
    new_mean, new_var, *_, y = run("BatchNormV1", p, x, scale, bias, mean, var)
    # torch moves the running statistics in place.
    close(y, torch.nn.functional.batch_norm(a, *rest, training=True, momentum=0.25, eps=eps))
    close(new_mean.reshape(-1), rest[0])
    close(new_var.reshape(-1), rest[1])


def test_lrn(torch: Any) -> None:
    x = normal(2, 7, 3, 3)
    (a,) = doubles(torch, x)
    alpha, beta, k = (float(np.float32(v)) for v in (1e-1, 0.75, 2.0))
    (found,) = run("LRN", P.LRN(n=5, alpha=1e-1, beta=0.75, k=2.0), x)
    # torch divides alpha by the number of channels.
    close(found, torch.nn.functional.local_response_norm(a, 5, alpha * 5, beta, k))


# ---- Recurrent nets and attention


def recurrent(torch: Any, kind: str, gates: int, both: bool) -> tuple[Any, list[Array], Array]:
    """torch's layers in float64 with two layers of 4, the state inputs, and MegEngine's flat weights."""
    net = getattr(torch.nn, kind)(3, 4, 2, bidirectional=both, dtype=torch.float64)
    flat = []
    for name, value in net.named_parameters():
        number = normal(*value.shape)
        value.data.copy_(torch.from_numpy(number.astype(np.float64)))
        flat.append(number.reshape(-1))
        assert name.startswith(("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    states = [normal(4 if both else 2, 2, 4) for _ in range(2 if gates == 4 else 1)]
    return net, states, np.concatenate(flat)


@pytest.mark.parametrize("both", [False, True])
def test_lstm(torch: Any, both: bool) -> None:
    net, (h, cell), flat = recurrent(torch, "LSTM", 4, both)
    x = normal(5, 2, 3)
    p = P.LSTM(num_layers=2, bidirectional=both, hidden_size=4, fwd_mode=P.BNFwdMode.INFERENCE)
    y, last, last_cell, _ = run("LSTMForward", p, x, h, cell, flat)
    with torch.no_grad():
        a, b, c = doubles(torch, x, h, cell)
        expected, (hidden, memory) = net(a, (b, c))
    close(y, expected)
    close(last, hidden)
    close(last_cell, memory)


@pytest.mark.parametrize("both", [False, True])
def test_rnn(torch: Any, both: bool) -> None:
    net, (h,), flat = recurrent(torch, "RNN", 1, both)
    x = normal(5, 2, 3)
    p = P.RNN(num_layers=2, bidirectional=both, hidden_size=4, nonlineMode=P.RNNCellNonlineMode.TANH)
    y, last, _ = run("RNNForward", p, x, h, flat)
    with torch.no_grad():
        a, b = doubles(torch, x, h)
        expected, hidden = net(a, b)
    close(y, expected)
    close(last, hidden)


def test_cells(torch: Any) -> None:
    x, h, cell = normal(2, 3), normal(2, 4), normal(2, 4)
    simple = torch.nn.RNNCell(3, 4, nonlinearity="relu", dtype=torch.float64)
    lstm = torch.nn.LSTMCell(3, 4, dtype=torch.float64)
    with torch.no_grad():
        for net in (simple, lstm):
            for value in net.parameters():
                value.copy_(value.float())
    a, b, c = doubles(torch, x, h, cell)

    def weights(net: Any) -> list[Array]:
        return [v.detach().numpy().astype(np.float32) for v in (net.weight_ih, net.bias_ih)] + [
            v.detach().numpy().astype(np.float32) for v in (net.weight_hh, net.bias_hh)
        ]

    w_ih, b_ih, w_hh, b_hh = weights(simple)
    p = P.RNNCell(nonlineMode=P.RNNCellNonlineMode.RELU)
    close(run("RNNCellForward", p, x, w_ih, b_ih, h, w_hh, b_hh)[0], simple(a, b).detach())
    w_ih, b_ih, w_hh, b_hh = weights(lstm)
    found = run("LSTMCellForward", P.Empty(), x, w_ih, b_ih, h, w_hh, b_hh, cell)
    for one, expected in zip(found, lstm(a, (b, c)), strict=False):
        close(one, expected.detach())


@pytest.mark.parametrize("causal", [False, True])
def test_attention(torch: Any, causal: bool) -> None:
    q, k, v = normal(2, 5, 8), normal(2, 5, 8), normal(2, 5, 8)
    matrices, biases = [normal(8, 8) for _ in range(4)], [normal(8) for _ in range(4)]
    p = P.MultiHeadAttn(
        num_heads=2,
        **{f"{n}_size": 8 for n in ("embeding", "k", "v")},
        **{f"{n}proj_size": 8 for n in "qkvo"},
        **{f"{n}bias": True for n in "qkvo"},
        sm_scaler=0.5,
        attn_mask_type=P.MultiHeadAttnAttnMaskType.DEFAULT_MASK if causal else 0,
        training=False,
    )
    flat = np.concatenate([a.reshape(-1) for a in (*matrices, *biases)])
    out, attn, _, _ = run("MultiHeadAttn", p, q, k, v, flat)
    sides = [
        (a @ m + b).reshape(2, 5, 2, 4).transpose(1, 2)
        for a, m, b in zip(
            doubles(torch, q, k, v),
            doubles(torch, *matrices),
            doubles(torch, *biases),
            strict=False,
        )
    ]
    mixed = torch.nn.functional.scaled_dot_product_attention(*sides, is_causal=causal, scale=0.5)
    matrix, bias = doubles(torch, matrices[3], biases[3])
    close(out, mixed.transpose(1, 2).reshape(2, 5, 8) @ matrix + bias)
    close(attn.sum(-1), np.ones((4, 5)))


# ---- Images


@pytest.mark.parametrize("size", [(7, 12), (3, 2), (5, 6)])
@pytest.mark.parametrize("mode", ["LINEAR", "CUBIC"])
def test_resize(torch: Any, mode: str, size: tuple[int, int]) -> None:
    x = normal(2, 3, 5, 6)
    (a,) = doubles(torch, x)
    p = P.Resize(imode=InterpolationMode[mode], format=Format.NCHW)
    (found,) = run("ResizeV2", p, x, np.array(size, np.int32))
    name = {"LINEAR": "bilinear", "CUBIC": "bicubic"}[mode]
    close(found, torch.nn.functional.interpolate(a, size, mode=name, align_corners=False))


@pytest.mark.parametrize("corners", [False, True])
def test_resize_volumes(torch: Any, corners: bool) -> None:
    x = normal(2, 3, 4, 5, 3)
    (a,) = doubles(torch, x)
    (found,) = run(
        "Resize3D",
        P.Resize3D(format=P.Convolution3DFormat.NCDHW, align_corners=corners),
        x,
        np.array([6, 3, 5], np.int32),
    )
    close(found, torch.nn.functional.interpolate(a, (6, 3, 5), mode="trilinear", align_corners=corners))


BORDERS = {BorderMode.CONSTANT: "zeros", BorderMode.REPLICATE: "border", BorderMode.REFLECT_101: "reflection"}


@pytest.mark.parametrize("mode", BORDERS)
def test_warps(torch: Any, mode: BorderMode) -> None:
    """An affine matrix as a warp, a perspective one and a map, beside torch's grid_sample."""
    x = normal(2, 3, 6, 5)
    (a,) = doubles(torch, x)
    matrix = np.float32([[[0.9, 0.2, -1.3], [-0.1, 1.1, 0.6]]] * 2)
    ys, xs = np.mgrid[:4, :7].astype(np.float64)
    points = np.stack((xs, ys, np.ones_like(xs)), -1) @ matrix[0].astype(np.float64).T
    grid = points / ((np.array([5, 6]) - 1) / 2) - 1
    expected = torch.nn.functional.grid_sample(
        a, torch.from_numpy(np.stack([grid] * 2)), padding_mode=BORDERS[mode], align_corners=True
    )
    size = np.array([4, 7], np.int32)
    p = P.WarpAffine(border_mode=mode, format=Format.NCHW)
    close(run("WarpAffineV2", p, x, matrix, size)[0], expected)
    square = np.concatenate((matrix, np.float32([[[0, 0, 1]]] * 2)), 1) * np.float32(2)
    close(run("WarpPerspectiveV2", P.WarpPerspective(bmode=mode), x, square, size)[0], expected)
    where = np.stack([points] * 2).astype(np.float32)
    grid = where.astype(np.float64) / ((np.array([5, 6]) - 1) / 2) - 1
    expected = torch.nn.functional.grid_sample(
        a, torch.from_numpy(grid), padding_mode=BORDERS[mode], align_corners=True
    )
    close(run("RemapV1", P.Remap(border_type=mode, format=Format.NCHW), x, where)[0], expected)


def test_regions_of_interest() -> None:
    """On a map that rises evenly a bilinear sample is the position, so that a bin's mean is its centre."""
    ys, xs = np.mgrid[:8, :8].astype(np.float32)
    x = np.stack((ys, xs))[None]
    rois = np.float32([[0, 1.0, 2.0, 5.0, 6.0]])
    sizes = {"pooled_height": 2, "pooled_width": 4, "sample_height": 2, "sample_width": 3}
    found, _ = run("ROIAlignV1", P.ROIAlign(mode=P.ROIAlignMode.AVERAGE, **sizes), x, rois)
    close(found[0, 0], np.broadcast_to(np.array([[3.0], [5.0]]), (2, 4)))
    close(found[0, 1], np.broadcast_to(np.arange(4) + 1.5, (2, 4)))
    found, index = run("ROIAlignV1", P.ROIAlign(mode=P.ROIAlignMode.MAX, **sizes), x, rois)
    close(found[0, 0], np.broadcast_to(np.array([[3.5], [5.5]]), (2, 4)))
    assert index[0, 0].tolist() == [[3] * 4] * 2


def test_correlation() -> None:
    a, b = normal(2, 3, 6, 7), normal(2, 3, 6, 7)
    for multiply in (True, False):
        p = P.Correlation(kernel_size=1, max_displacement=1, pad_size=1, is_multiply=multiply)
        (found,) = run("CorrelationForward", p, a, b)
        padded = np.pad(b.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
        for i, (dy, dx) in enumerate(product(range(3), range(3))):
            moved = padded[:, :, dy : dy + 6, dx : dx + 7]
            joined = a * moved if multiply else np.abs(a - moved)
            close(found[:, i], joined.mean(1))


# ---- Sums and products


def test_sums_and_products() -> None:
    x, y = normal(4, 5, 3), normal(4, 5, 3)
    a, b = x.astype(np.float64), y.astype(np.float64)
    for mode, expected in (
        (P.ReduceMode.SUM, a.sum(1)),
        (P.ReduceMode.MEAN, a.mean(1)),
        (P.ReduceMode.MAX, a.max(1)),
        (P.ReduceMode.MIN, a.min(1)),
        (P.ReduceMode.PRODUCT, a.prod(1)),
        (P.ReduceMode.SUM_SQR, (a**2).sum(1)),
    ):
        close(run("ReduceV2", P.Reduce(mode=mode, axis=1), x)[0][:, 0], expected)
    to = P.Reduce(mode=P.ReduceMode.SUM, axis=2**31 - 1)
    close(run("ReduceV2", to, x, np.array([5, 1], np.int32))[0], a.sum((0, 2))[:, None])
    close(run("ReduceV2", to, x, np.array([1], np.int32))[0], [a.sum()])
    flat = P.Cumsum(axis=1, exclusive=False)
    close(run("CumsumV1", flat, x)[0], a.cumsum(1))
    back = P.Cumsum(axis=1, exclusive=True, reverse=True)
    expected = np.stack([a[:, i + 1 :].sum(1) for i in range(5)], 1)
    close(run("CumsumV1", back, x)[0], expected)
    close(run("Cross", P.Cross(), x, y)[0], np.cross(a, b))
    close(run("Dot", P.Empty(), x[0, :, 0], y[0, :, 0])[0], [a[0, :, 0] @ b[0, :, 0]])
    close(run("BatchedMatrixMulV2", P.MatrixMul(transposeB=True), x, y)[0], np.einsum("bij,bkj->bik", a, b))
    square = x[:, :3] + 3 * np.eye(3, dtype=np.float32)
    inverse = run("MatrixInverse", P.Empty(), square)[0]
    close(inverse @ square.astype(np.float64), np.broadcast_to(np.eye(3), (4, 3, 3)))
    ends = np.float32([0.1]), np.float32([2.3])
    line = run("Linspace", P.Linspace(), *ends, np.array([7], np.int32))[0]
    close(line, np.linspace(float(ends[0][0]), float(ends[1][0]), 7))
