"""Torch's dtypes in traced modules: the graph gives torch's own results, to the bit where torch rounds as it does."""

from __future__ import annotations

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with torch")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import UsageError  # noqa: E402
from loadrun.engines.reference import ReferenceEngine  # noqa: E402

WHOLE = torch.arange(12).reshape(3, 4) * 1000
LARGE = WHOLE * (1 << 33)
REAL = torch.linspace(-3, 3, 12).reshape(3, 4)


def same(function, *args, tolerance=0.0):
    want = function(*args)
    got = loadrun.torch.trace(function, args)(*args)
    for w, g in zip(torch.utils._pytree.tree_leaves(want), torch.utils._pytree.tree_leaves(got), strict=True):
        assert g.dtype == w.dtype
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda i: (i * 48271) % 65521, WHOLE),
        (lambda i: i.sum() // i.numel(), LARGE),
        (lambda i: (i << 20) >> 20, LARGE),
        (lambda i: i * -2147483648, torch.tensor([1, 2, 3], dtype=torch.int32)),
        (lambda x: x.long(), torch.tensor([3e9, -3e9, 1.5])),
        (lambda x: x.to(torch.uint8), torch.tensor([300.0, -3, 1.5])),
        (lambda i: i.sum(), WHOLE.int() * 100000),
        (lambda i: torch.where(i > 2**40, i, 0), LARGE),
        (lambda i: i.clamp(5, 1 << 45), LARGE),
        (lambda i: i**5, WHOLE),
        (lambda i: i // 7 + i % 7, -LARGE),
        (lambda i: torch.div(i, 7, rounding_mode="trunc"), -LARGE),
        (lambda i: (i & 0xFFFF) | (i ^ 12345), LARGE + 5),
        (lambda i: i + torch.full((4,), 1 << 40), WHOLE),
        (lambda i: i.masked_fill(i > 0, torch.iinfo(torch.int64).min), WHOLE),
        (lambda i: (torch.sort(i, descending=True), i.max(), i.cumsum(0)), LARGE),
    ],
)
def test_integers_are_exact(function, x):
    same(function, x)


@pytest.mark.parametrize(
    "function",
    [
        torch.matmul,
        lambda a, b: torch.mv(a, b[0]),
        lambda a, b: torch.addmm(a, a, b, beta=2),
        lambda a, b: torch.bmm(a[None], b[None]),
        torch.gcd,
        torch.lcm,
        torch.fmod,
    ],
)
def test_what_small_integers_trace_is_exact_for_large_ones(function):
    small = torch.tensor([[2, 7, -3], [4, 1, 9], [-5, 6, 8]])
    large = torch.tensor([[2**62 - 5, 3 - 2**61, 2**53 + 1], [2**40 + 7, -(2**63), 5], [0, -98765432109, 1]])
    traced = loadrun.torch.trace(function, (small, small.T))
    for a, b in ((large, small), (small, large + (large == 0))):
        assert torch.equal(traced(a, b), function(a, b))


WIDE = REAL.double() / 3
SQUARE = torch.tensor([[2.0, 0.3, 0.1], [-0.4, 3.0, 0.7], [0.2, -0.9, 1.1]]).double()


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: torch.linalg.vector_norm(x, 3, 1), WIDE),
        (lambda x: torch.nn.functional.batch_norm(x, x.mean(0), x.var(0), eps=1e-3), WIDE),
        (lambda x: torch.segment_reduce(x[:, 0], "max", lengths=torch.tensor([3]), initial=0.1), WIDE - 3),
        (
            lambda x: torch.nn.functional.grid_sample(
                x[None, None], x[None, :, :2, None].mT, align_corners=True
            ),
            WIDE,
        ),
        (lambda x: torch.nn.functional.affine_grid(x[None, :2, :3], (1, 1, 3, 2), False), WIDE),
        (lambda x: torch.nn.functional.unfold(x[None, None], 2), WIDE),
        (torch.frexp, WIDE),
        (torch.erfc, WIDE * 4),
        (lambda x: torch.erfinv(x.tanh()), WIDE * 4),
        (lambda x: torch.special.ndtri(x.sigmoid()), WIDE * 4),
        (torch.lgamma, WIDE * 6.5),
        (torch.digamma, WIDE * 6.5),
        (torch.linalg.inv, SQUARE),
    ],
)
def test_functions_in_float64(function, x):
    same(function, x, tolerance=1e-12)


def test_a_sum_that_only_float64_holds():
    same(lambda x: (x.double() + 1e9 - 1e9).float(), REAL)


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv2d(2, 3, 3, padding=1),
        torch.nn.BatchNorm2d(2).eval(),
        torch.nn.LayerNorm(6),
        torch.nn.GELU(),
        torch.nn.MaxPool2d(2),
        torch.nn.AvgPool2d(2),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"),
        torch.nn.Linear(6, 4),
        torch.nn.Softmax(1),
    ],
    ids=lambda m: type(m).__name__,
)
def test_modules_in_float64(module):
    x = torch.linspace(-2, 3, 72, dtype=torch.float64).reshape(1, 2, 6, 6).sin()
    same(module.double(), x, tolerance=1e-12)


def test_recurrent_and_attention_in_float64():
    torch.manual_seed(0)
    lstm, heads = torch.nn.LSTM(4, 5).double(), torch.nn.MultiheadAttention(8, 2).double()
    same(lambda x: lstm(x)[0], torch.randn(3, 2, 4).double(), tolerance=1e-12)
    same(lambda x: heads(x, x, x)[0], torch.randn(3, 2, 8).double(), tolerance=1e-12)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * x + x) * x - x,
        lambda x: torch.softmax(x, -1),
        lambda x: (x + 1).exp().sum(1),
        torch.tanh,
    ],
)
def test_half_floats_are_rounded_after_each_operator(kind, function):
    same(function, REAL.to(kind))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (1 - x.clamp(0, 1)) * -1e9,
        lambda x: x / 1e7,
        lambda x: x * torch.tensor(1e-8) * 1e6,
        lambda x: torch.addcdiv(x, x, x + 1, value=1e5),
        lambda x: torch.nn.functional.elu(x, 1e5) / 100,
        lambda x: x.norm(),
        lambda x: x.std(),
        lambda x: torch.sinc(x),
        lambda x: torch.nn.functional.normalize(x, dim=0),
        lambda x: torch.dist(x, x / 2),
        lambda x: x.abs() ** 1e-8,
        lambda x: (x * x).nan_to_num(),
    ],
)
def test_half_floats_are_computed_in_float32(function):
    """Steps and numbers inside an operator may be larger, or smaller, than a float16."""
    x = torch.tensor([1, 0, 300, -3e4, 1e-3]).half()
    torch.testing.assert_close(
        loadrun.torch.trace(function, torch.ones(5).half())(x), function(x), rtol=1e-3, atol=1e-7
    )


def test_constants_are_rounded_to_bfloat16():
    same(lambda x: x * torch.full((4,), 0.31).bfloat16(), REAL)
    same(lambda x: x @ (torch.ones(4, 5) * 0.31).bfloat16().float(), torch.eye(4))


def test_extremes_of_minus_infinity():
    same(torch.nn.MaxPool2d(3, 1, 1), torch.full((1, 1, 4, 4), -torch.inf))


def test_a_dump_holds_what_32_bits_do():
    file = io.BytesIO()
    loadrun.torch.trace(lambda x, i: x[i] * 2, (REAL, torch.tensor([2, 0]))).dump(
        file, input_data=["x:#rand(0,1);i:[1,2]"], arg_names=["x", "i"]
    )
    bundle = loadrun.loads(file.getvalue())
    assert {d.name for d in bundle.testcases[0].dtypes.values()} == {"Float32", "Int32"}
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass"]


def test_extremes_of_int64_start_where_int32_does():
    traced = loadrun.torch.trace(lambda x, i: x.scatter_reduce(0, i, x * 2, "amax"), (WHOLE, WHOLE % 3))
    file = io.BytesIO()
    traced.dump(file, input_data="example")
    assert [r.verdict.value for r in loadrun.run(loadrun.loads(file.getvalue()))] == ["pass"]


def test_and_refuses_what_they_do_not():
    traced = loadrun.torch.trace(lambda x: (x.double() + 1e9 - 1e9).float(), (REAL,))
    with pytest.raises(UsageError, match=r"in float64 and -?[\d.]+ in float32.*--narrow"):
        traced.dump(io.BytesIO(), input_data="#rand(0.1,0.4)")
    file = io.BytesIO()
    traced.dump(file, input_data="#rand(0.1,0.4)", narrow=True, replay=False)
    assert "narrowed on writing" in loadrun.loads(file.getvalue()).warnings[0]


def test_a_file_subtracts_the_maximum_before_a_softmax():
    """MegEngine's kernel gives NaN for values below -87; the trace and its ONNX model stay as torch has them."""
    x = torch.tensor([[-200.0, -201], [-1e30, -1e30]])
    traced = loadrun.torch.trace(lambda x: torch.softmax(x, 1), (x,))
    assert [o.type for o in traced.graph().oprs if not o.tensors] == ["Softmax"]
    file = io.BytesIO()
    traced.dump(file, input_data=[x])
    graph = loadrun.loads(file.getvalue()).graph
    (softmax,) = [o for o in graph.oprs if o.type == "Softmax"]
    engine = ReferenceEngine(graph, [softmax.inputs[0], softmax.outputs[0]])
    fed, result = engine.run({"x": x.numpy()})
    assert fed.tolist() == [[0, -1], [0, 0]]
    torch.testing.assert_close(torch.from_numpy(result), torch.softmax(x, 1))


def test_a_file_pools_float16_as_float32(tmp_path):
    """MegEngine's maxima of float16 are what memory holds; see tests/oracle."""

    def function(x):
        return torch.nn.functional.max_pool2d(x, 2), torch.nn.functional.adaptive_max_pool2d(x, 3)

    x = torch.linspace(-3, 3, 64).half().reshape(1, 1, 8, 8)
    loadrun.torch.save(function, tmp_path / "m.mge", (x,))
    graph = loadrun.load(tmp_path / "m.mge").graph
    pools = [o for o in graph.needed() if "Pooling" in o.type]
    assert {o.inputs[0].owner.type for o in pools} == {"TypeCvtV2"}
    result = loadrun.run(tmp_path / "m.mge")[0]
    assert result.verdict.value == "pass"
    np.testing.assert_array_equal(result["output_0"], function(x)[0].numpy())


def test_tolerances_follow_the_rounding_of_what_is_moved(tmp_path):
    def function(x):
        y = (x @ x.mT).bfloat16()
        return torch.cat([y, y * 2], 1).permute(1, 0), x.sum(0), x.softmax(1).sum(1) - 1

    loadrun.torch.save(function, tmp_path / "m.mge", (REAL,))
    result = loadrun.run(tmp_path / "m.mge")[0]
    limits = [o.tolerance.maxerr for o in result.outputs]
    # Eight bits; plain float32; at least ten times the rounding, where numbers are rounding alone.
    assert limits[:2] == pytest.approx([3e-2, 1e-4])
    assert result.verdict.value == "pass"


@pytest.mark.parametrize("clamped", [True, False])
def test_casts_of_infinity_that_reach_no_output_are_narrowed(clamped, tmp_path):
    # The buckets of T5's relative positions: the logarithm of 0 is chosen nowhere.
    def bucketed(x, d):
        large = 4 + (torch.log(d.float() / 4) * 3).to(torch.int64)
        return x * (torch.where(d < 4, d, torch.clamp(large, max=7)) if clamped else large).float()

    arguments = (torch.rand(3, 8), torch.arange(8))
    if not clamped:
        with pytest.raises(UsageError, match="holds -9"):
            loadrun.torch.save(bucketed, tmp_path / "m.mge", arguments)
        return
    loadrun.torch.save(bucketed, tmp_path / "m.mge", arguments)
    (result,) = loadrun.run(tmp_path / "m.mge")
    assert result.verdict.value == "pass"


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_shifts_by_more_places_than_there_are(dtype):
    width = 8 * torch.tensor([], dtype=dtype).element_size()
    below = 3 if dtype is torch.uint8 else -1
    x = torch.tensor([5, 100, 127, 77, 1, 3], dtype=dtype)
    x = x if dtype is torch.uint8 else torch.cat([x, -x])
    few, many = (
        torch.tensor(n, dtype=dtype) for n in ([1, 2, 0, 3, 1, 2], [0, 1, width - 1, width, width + 1, below])
    )
    few, many = (n.repeat(len(x) // 6) for n in (few, many))

    def function(x, by):
        return x << by, x >> by, 1 << by, 90 >> by, x << width, x >> width, x << (width - 1), x >> (width - 1)

    traced = loadrun.torch.trace(function, (x, few))
    for by in (few, many):
        for got, want in zip(traced(x, by), function(x, by), strict=True):
            assert got.dtype == want.dtype
            assert got.tolist() == want.tolist()


def _bits(x, y):
    return x & y, x | y, x ^ y, x & 0x7F, x & 0x7FFFFFFF, x | 5, (x >> 7) ^ -9


def test_bits_of_wide_integers():
    limits = torch.tensor([-(2**63), 2**63 - 1, 2**31, -(2**31), -1, 0, 0x123456789ABCDEF])
    x, y = torch.meshgrid(limits, limits, indexing="ij")
    for got, want in zip(loadrun.torch.trace(_bits, (x, y))(x, y), _bits(x, y), strict=True):
        assert got.tolist() == want.tolist()


def test_bits_of_wide_integers_that_fit_a_file(tmp_path):
    limits = torch.tensor([-(2**31), 2**31 - 1, -1, 0, 5, 0x55AA55AA, -0x55AA55AB])
    x, y = torch.meshgrid(limits, limits, indexing="ij")
    loadrun.torch.save(_bits, tmp_path / "m.mge", (x, y))
    (result,) = loadrun.run(tmp_path / "m.mge")
    assert result.verdict.value == "pass"


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids_of_nan(mode, padding):
    def sampled(x, grid):
        return torch.nn.functional.grid_sample(x, grid, mode, padding, align_corners=False)

    nan = float("nan")
    x = torch.arange(1.0, 10).reshape(1, 1, 3, 3)
    grid = torch.tensor([[nan, 0.3], [0.6, nan], [nan, nan], [0.3, -0.2]]).reshape(1, 4, 1, 2)
    got = loadrun.torch.trace(sampled, (x, grid))(x, grid)
    torch.testing.assert_close(got, sampled(x, grid), equal_nan=True)


def test_cosines_of_float16_do_not_overflow_in_dumps(tmp_path):
    x, y = (torch.linspace(a, 300, 24).reshape(3, 8).half() for a in (10, 150))
    traced = loadrun.torch.trace(torch.nn.functional.cosine_similarity, (x, y))
    want = torch.nn.functional.cosine_similarity(x, y)
    torch.testing.assert_close(traced(x, y), want, rtol=2e-3, atol=0)
    traced.dump(tmp_path / "m.mge", input_data=["example"])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"
    zero = torch.zeros_like(x)
    torch.testing.assert_close(
        traced(x, zero), torch.nn.functional.cosine_similarity(x, zero), equal_nan=True
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (20, 31), (3, 40)])
def test_images_of_bytes_are_resized_with_torchs_rounding(mode, smooth, size, tmp_path):
    def resized(x):
        return torch.nn.functional.interpolate(x, size, mode=mode, antialias=smooth)

    x, y = (torch.arange(n * 3 * 192).mul(37).remainder(256).byte().reshape(n, 3, 12, 16) for n in (1, 2))
    traced = loadrun.torch.trace(resized, x, dynamic_shapes=True)
    for image in (x, y, x[..., :9]):
        torch.testing.assert_close(traced(image), resized(image), rtol=0, atol=0)
    traced.dump(tmp_path / "m.mge", input_data=["example"])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"
