"""NaN, infinities and zeros through functions of one tensor and reductions, as torch has them."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import UsageError  # noqa: E402

nan, inf = float("nan"), float("inf")
SPECIAL = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1, -1, 2.5, -2.5, 100, -100, 1e-30, 0.3, -0.3, 3, -3])
LONG = torch.cat([torch.linspace(-80, 80, 93), torch.tensor([inf, -inf, nan])])
"""More than the blocks of 64 in which MegEngine's kernels treat NaN otherwise than in the rest."""
UNARY = """
    abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc expm1 floor frac log log10 log1p log2
    neg reciprocal relu round rsqrt sin sinh sqrt square tan tanh trunc isnan isinf isfinite
    isposinf isneginf signbit logit erfinv nan_to_num
""".split()
ACTIVATIONS = """
    relu relu6 hardtanh elu leaky_relu softshrink hardshrink tanhshrink softsign
""".split()
REDUCED = """
    sum mean amax amin prod nanmedian nansum nanmean any all norm
""".split()
ROWS = torch.tensor(
    [[1, nan, 2, 3], [1, 2, 3, nan], [1, inf, 2, 3], [inf, 1, -inf, 2], [-inf] * 4, [0.0, -0.0, 0, 0]]
)


def same(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = function(*args)
        got = loadrun.torch.trace(function, args)(*args)
    for a, b in zip(*([v] if isinstance(v, torch.Tensor) else v for v in (got, want)), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_tensor(name):
    for x in (SPECIAL, LONG):
        same(getattr(torch, name), x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    for x in (SPECIAL, LONG):
        same(getattr(torch.nn.functional, name), x)


@pytest.mark.parametrize("name", REDUCED)
def test_reductions(name):
    same(lambda x: getattr(torch, name)(x, dim=1), ROWS)


def test_trigamma_at_its_poles_and_between():
    x = torch.cat([torch.arange(-8, 8.25, 0.25), torch.tensor([nan, inf, -inf, -1e-6, -100.5, -1e6, 3e38])])
    for dtype in (torch.float32, torch.float64):
        same(lambda x: torch.polygamma(1, x), x.to(dtype))


def test_gelu_of_infinity():
    """Torch's own kernel gives NaN for more than one element; x times a probability of 1 is infinite."""
    traced = loadrun.torch.trace(torch.nn.functional.gelu, torch.ones(3))
    np.testing.assert_array_equal(traced(np.full(3, inf, "f4")), [inf] * 3)
    wide = loadrun.torch.trace(torch.nn.functional.gelu, torch.ones(2, dtype=torch.float64))
    np.testing.assert_array_equal(wide(np.array([inf, -inf])), [inf, nan])


def test_truth_values_add_as_or():
    """Also where there is but one value."""
    yes, no = torch.tensor(True), torch.tensor(False)
    for x, y in ((yes, yes), (no, yes), (no, no)):
        same(lambda x, i, y: x.index_add(0, i, y), x, torch.tensor([0]), y)
        same(lambda x, i, y: x.index_add(0, i, y), x[None], torch.tensor([0]), y[None])


@pytest.mark.filterwarnings("ignore:.*infinity", "ignore:.*NaN")
def test_a_file_refuses_a_maximum_of_minus_infinity(tmp_path):
    """MegEngine's maximum starts with the lowest finite number."""
    traced = loadrun.torch.trace(lambda x: x.amax(-1), (torch.ones(2, 2),))
    x = torch.tensor([[-inf, -inf], [1, 2]])
    with pytest.raises(UsageError, match="a maximum or minimum starts with a finite number"):
        traced.dump(tmp_path / "m.mge", input_data=[x])
    traced.dump(tmp_path / "m.mge", input_data=[x], narrow=True)
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"
    traced.dump(tmp_path / "m.mge", input_data=[torch.tensor([[-inf, 3], [1, 2]])])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"
    # 12 has an infinite exponential in float16.
    traced = loadrun.torch.trace(lambda x: (x.exp() / x.exp()).amax(1), (torch.ones(2, 2).half(),))
    with pytest.raises(UsageError, match="a maximum or minimum loses NaN or"):
        traced.dump(tmp_path / "m.mge", input_data=[torch.tensor([[12, inf], [1, 2]]).half()])


@pytest.mark.filterwarnings("ignore:.*infinity", "ignore:.*NaN")
def test_roundings_of_half_precision_are_no_infinities(tmp_path):
    """A masked float16 net: MegEngine rounds otherwise than torch, but its maxima are the same."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)).half()

    def run(x, mask):
        h = net(x)
        a = h @ x.transpose(-1, -2) / 8 + mask
        return x + a.softmax(-1) @ h, a.amax(-1)

    x, mask = torch.randn(9, 64).half(), torch.full((9, 9), -inf).triu(1).half()
    loadrun.torch.trace(run, (x, mask)).dump(tmp_path / "m.mge", input_data=[(x, mask)])
    assert loadrun.run(tmp_path / "m.mge")[0].verdict.value == "pass"


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_listed_before_the_first_minus_one(reduction):
    x = torch.linspace(-1, 1, 12).reshape(3, 4).sin()
    target = torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2], [-1, 2, 3, 0]])
    same(lambda x, t: torch.nn.functional.multilabel_margin_loss(x, t, reduction=reduction), x, target)
    same(torch.nn.functional.multilabel_margin_loss, x[0], target[0])
    same(torch.nn.functional.multilabel_margin_loss, x[0, 0], target.new_zeros(()))


def test_next_numbers():
    for dtype in (torch.float32, torch.float64):
        limits = torch.finfo(dtype)
        powers = limits.tiny * 2.0 ** torch.arange(-3, 60, 2, dtype=dtype)
        x = torch.cat([powers, powers * 1.75, torch.tensor([0, 1, 1.5, limits.max], dtype=dtype)])
        x, y = torch.meshgrid(
            torch.cat([x, -x]), torch.tensor([0, 1, -inf, limits.max]).to(dtype), indexing="ij"
        )
        got = loadrun.torch.trace(torch.nextafter, (x, y), check=False)(x, y)
        assert torch.equal(got, torch.nextafter(x, y))


def test_bessel_functions_in_double():
    x = torch.cat([torch.linspace(-60, 60, 121), torch.tensor([0, 1e-30, 700, 713, inf, nan])])
    for name in ("i0", "i0e", "i1", "i1e"):
        function = getattr(torch.special, name)
        for dtype, digits in ((torch.float32, 2e-6), (torch.float64, 1e-14)):
            got = loadrun.torch.trace(function, x.to(dtype), check=False)(x.to(dtype))
            torch.testing.assert_close(got, function(x.to(dtype)), rtol=digits, atol=0, equal_nan=True)


def test_bins_between_the_least_and_the_largest_value():
    # Beyond 2**24 the numbers next to a single one are further away than 1.
    alone = [torch.full((3,), v) for v in (1.0, 2.0**24, 2.0**25, -(2.0**25), 1e10)]
    for x in (torch.randn(200, generator=torch.Generator().manual_seed(0)), *alone):
        got = loadrun.torch.trace(lambda x: (torch.histc(x, 5), torch.histc(x, 4, 1, 1)), x)(x)
        assert [g.tolist() for g in got] == [torch.histc(x, n).tolist() for n in (5, 4)]


def test_lists_of_places_beside_a_tensor_without_axes():
    def run(x, i, j, v):
        y = x.clone()
        y[i, :, j] = v
        y[..., i, [1, 0]] += 2
        y[j, None, i, 1:] = 5
        return y, x[i, ..., j], x[j, :, i], x[None, i, [0, 1], 1:3]

    same(run, torch.rand(3, 4, 5), torch.tensor(2), torch.tensor([1, 2]), torch.rand(4, 2))


def test_the_largest_number_of_bfloat16():
    same(torch.nan_to_num, torch.tensor([inf, -inf, nan, 1]).bfloat16())


def test_what_is_infinite_stays_where_it_is():
    """Elements of other windows have no share in a sum, not one of 0."""
    functional, bags = torch.nn.functional, torch.tensor([[0, 1], [2, 3], [1, 2]])

    def run(x):
        image = x[None, None]
        return (
            *(functional.adaptive_avg_pool2d(image, n) for n in ((3, 4), (2, 5))),
            *(functional.interpolate(image, (7, 9), mode=m) for m in ("bilinear", "bicubic")),
            functional.interpolate(image, (5, 9), mode="bicubic", antialias=True),
            functional.interpolate(image, (7, 9), mode="bilinear", align_corners=True),
            functional.interpolate(image[0], 7, mode="linear"),
            functional.interpolate(image, (3, 2), mode="bilinear", antialias=True),
            *(functional.embedding_bag(bags, x, mode=m) for m in ("sum", "mean")),
            torch.bincount(torch.tensor([0, 1, 1, 3, 2, 1]), weights=x[0]),
        )

    x = torch.rand(5, 6, generator=torch.Generator().manual_seed(0))
    for number in (nan, inf):
        x[0, 0] = x[-1, -1] = number
        same(run, x)
