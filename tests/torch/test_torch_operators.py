"""Operators that torch has and MegEngine has not: what is made of MegEngine's gives what torch gives."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import UnsupportedError  # noqa: E402

linalg, special = torch.linalg, torch.special
functional = torch.nn.functional
pytree = torch.utils._pytree
INF, NAN = float("inf"), float("nan")


def same(function, *args, tolerance=1e-5, dynamic=None):
    """Trace, compare with torch, and let the dumped file compare itself with torch's results."""
    traced = loadrun.torch.trace(function, args, dynamic_shapes=dynamic)
    with torch.no_grad():
        wants, gots = (pytree.tree_leaves(f(*args)) for f in (function, traced))
    assert len(wants) == len(gots)
    for want, got in zip(wants, gots, strict=True):
        assert (want.dtype, want.shape) == (got.dtype, got.shape)
        np.testing.assert_allclose(got.double().numpy(), want.double().numpy(), tolerance, tolerance)
    return traced


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def positive(*shape):
    x = random(*shape)
    return x @ x.mT + torch.eye(shape[-1])


# Views that torch composes of others


@pytest.mark.parametrize(
    "function",
    [
        torch.atleast_1d,
        torch.atleast_2d,
        torch.atleast_3d,
        lambda x: torch.atleast_3d([x, x[0]]),
        torch.ravel,
        lambda x: torch.hsplit(x, 2),
        lambda x: torch.vsplit(x, [1, 2]),
        lambda x: torch.cartesian_prod(x[0], x[1]),
        lambda x: torch.column_stack([x, x]),
    ],
)
def test_composed(function):
    same(function, random(3, 4), tolerance=0)


# Factorizations

SQUARE = [(1, 1), (3, 3), (2, 5, 5)]
ANY = [(1, 1), (4, 4), (5, 3), (3, 5), (2, 4, 3), (2, 3, 4), (1, 3), (3, 1)]


# Functions

LINE = torch.cat(
    [
        torch.linspace(-20, 20, 401) + 0.013,
        torch.tensor([0.0, -0.0, 1, 2, 3, -1, -2, 1e-5, -1e-5, 50, 1e3, 1e5, INF, -INF, NAN]),
    ]
)


@pytest.mark.parametrize(
    "function",
    [
        torch.digamma,
        torch.i0,
        special.i0e,
        special.i1,
        special.i1e,
        special.erfcx,
        special.log_ndtr,
        torch.frexp,
    ],
)
def test_functions(function):
    with np.errstate(all="ignore"):
        same(function, LINE, tolerance=2e-5)
        same(torch.lgamma, LINE[LINE.isfinite()], tolerance=2e-5)


def test_functions_of_a_part_of_the_numbers():
    same(special.ndtri, torch.cat([torch.linspace(0, 1, 41), torch.logspace(-30, -1, 20)]))
    same(lambda x: torch.mvlgamma(x, 3), LINE[(LINE > 2) & (LINE < 1e4)])
    # At 0 and below, where it is infinite, torch has what is left of rounding.
    x = torch.cat([torch.linspace(-3.4, 3.4, 30), torch.tensor([50.0, 1e3, INF])])
    same(lambda x: torch.polygamma(1, x), x, tolerance=1e-4)
    same(lambda x: torch.polygamma(0, x), x)
    with pytest.raises(UnsupportedError, match="polygamma of order 2"):
        loadrun.torch.trace(lambda x: torch.polygamma(2, x), (x,))


def test_divisors():
    x, y = torch.tensor([12, -18, 0, 0, 7, 1836311903]), torch.tensor([18, 12, 5, 0, 7, 1134903170])
    same(torch.gcd, x, y, tolerance=0)
    same(torch.lcm, x[:5], y[:5], tolerance=0)


def test_powers_of_integers():
    x, y = torch.tensor([2, -3, 1, -1, 0, -1, 7, 1]), torch.tensor([5, 3, -3, -3, 2, -4, 0, 100000])
    same(torch.pow, x, y, tolerance=0)
    same(lambda y: 3**y, torch.arange(6), tolerance=0)


# Complex numbers, which no graph holds, and factorizations


PHASES = torch.polar(torch.ones(2), torch.arange(2.0))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: torch.fft.fft(x).abs(), random(4)),
        (lambda x: torch.stft(x, 4, return_complex=True).abs(), random(16)),
        (lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(2, 2)) * PHASES), random(4)),
        (lambda x: torch.view_as_real(x + 1j), random(4)),
        (lambda x: torch.complex(x, x), random(4)),
        (lambda x: x.real, PHASES),
        (lambda x: x.abs(), PHASES),
    ],
)
def test_complex_numbers_are_refused(function, x):
    with pytest.raises(
        UnsupportedError, match="graphs hold no complex numbers: compute with real and imaginary parts"
    ):
        loadrun.torch.trace(function, (x,))


@pytest.mark.parametrize(
    "function",
    [
        linalg.cholesky,
        linalg.qr,
        linalg.svdvals,
        linalg.eigh,
        linalg.lu_factor,
        linalg.pinv,
        linalg.matrix_exp,
        linalg.slogdet,
    ],
)
def test_factorizations_are_refused(function):
    with pytest.raises(
        UnsupportedError, match=r"(?s)cannot be lowered .* write the module with other operators"
    ):
        loadrun.torch.trace(function, (random(4, 4),))


def test_large_determinants_are_refused():
    same(linalg.det, random(4, 4), tolerance=1e-4)
    with pytest.raises(
        UnsupportedError, match="a matrix of more than 16 rows, which would have to be factored"
    ):
        loadrun.torch.trace(linalg.det, (random(17, 17),))


# Writing


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce(kind, include):
    x, source = random(4, 6), random(4, 9)
    index = torch.from_numpy(np.random.default_rng(0).integers(0, 4, (4, 9)))
    options = {"reduce": kind, "include_self": include}
    same(lambda x, i, s: x.scatter_reduce(1, i, s, **options), x, index, source)
    same(lambda x, i, s: x.scatter_reduce(0, i, s, **options), x, index[:3, :5], source)
    same(
        lambda x, i, s: x.scatter_reduce(1, i, s, **options),
        *((x * 9).long(), index, (source * 9).long()),
        tolerance=0,
    )
    same(
        lambda x, i, s: x.scatter_reduce(0, i, s, **options),
        *(torch.tensor(2.0), torch.tensor([0, 0]), torch.tensor([3.0, 5.0])),
    )
    if kind != "sum":
        same(lambda x, s: x.index_reduce(0, torch.tensor([0, 2, 2]), s, **options), x, random(3, 6))


def test_scatter_with_multiply():
    index = torch.tensor([[0, 1, 1], [2, 2, 2]])
    same(lambda x, i: x.scatter(1, i, 2.0, reduce="multiply"), random(2, 3), index)


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_segments(kind):
    lengths, offsets = torch.tensor([2, 0, 3]), torch.tensor([0, 2, 2, 5])
    same(lambda x, n: torch.segment_reduce(x, kind, lengths=n), random(5, 3), lengths)
    same(lambda x, n: torch.segment_reduce(x, kind, offsets=n, initial=1.0), random(5), offsets)


def test_strided_views():
    x = random(4, 4)
    same(lambda x: torch.as_strided(x.t(), (2, 3), (4, 1), 1), x, tolerance=0)
    same(lambda x, s: torch.as_strided_scatter(x, s, (2, 3), (4, 1), 1), x, x[:2, :3], tolerance=0)
    same(lambda x, s: torch.as_strided_scatter(x.t(), s, (2, 3), (1, 4), 1), x, x[:2, :3], tolerance=0)
    with pytest.raises(UnsupportedError, match="one element several times"):
        loadrun.torch.trace(lambda x: torch.as_strided_scatter(x, x[:2, :2], (2, 2), (1, 1)), (x,))


# Counting and ranking


def test_counts():
    x = torch.tensor([1, 5, 3, 3, 0, 9])
    same(torch.bincount, x, tolerance=0)
    same(lambda x, w: torch.bincount(x, w, 12), x, random(6), tolerance=1e-6)


@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.bool])
def test_different_values(kind):
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 5, (4, 5))).to(kind)
    traced = loadrun.torch.trace(lambda x: torch.unique(x, return_inverse=True, return_counts=True), (x,))
    for given in (x, x.flip(0), torch.zeros_like(x)):
        wants = torch.unique(given, return_inverse=True, return_counts=True)
        for want, got in zip(wants, traced(given), strict=True):
            assert torch.equal(want, got)
    same(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x, tolerance=0)


def test_places_of_a_fixed_number():
    x = torch.tensor([[0, 3, 0], [2, 0, 1]])
    same(lambda x: torch.nonzero_static(x, size=2), x, tolerance=0)
    same(lambda x: torch.nonzero_static(x, size=5, fill_value=7), x, tolerance=0)


def test_frequent_and_middle_values():
    x = torch.tensor([[3, 1, 1, 3, 2], [4, 4, 0, 4, 0]])
    same(lambda x: torch.mode(x, -1), x, tolerance=0)
    same(lambda x: torch.mode(x, 0, True).values, x, tolerance=0)
    y = torch.tensor([[3.0, NAN, 1, 2, NAN], [5, 4, NAN, 2, 1], [NAN] * 5])
    same(lambda y: torch.nanmedian(y, 1).values, y, tolerance=0)
    same(lambda x: torch.cummax(x, 1), x > 2, tolerance=0)
    same(lambda x: torch.cummin(x, 0), x > 2, tolerance=0)


# Borders, distances


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(-1, 2), (2, -1), (-1, -2)])
def test_negative_borders(mode, widths):
    same(lambda x: functional.pad(x, widths, mode=mode), random(2, 3, 7), tolerance=0)


def test_distances_of_rows():
    for p in (0.0, 1.0, 2.0, 3.0, INF):
        same(lambda x, p=p: torch.pdist(x, p), random(5, 3))


def test_windows_of_no_images():
    same(lambda x: functional.unfold(x, 2), torch.rand(0, 3, 4, 4))


# Random numbers


def drawn(function, *args):
    traced = loadrun.torch.trace(function, args)
    want, got = function(*args), traced(*args)
    assert (want.dtype, want.shape) == (got.dtype, got.shape)
    return got


def test_random_numbers_without_axes():
    one = torch.tensor(1.0)
    assert drawn(torch.bernoulli, one) == 1
    assert drawn(torch.bernoulli, one * 0) == 0
    assert 0 <= drawn(torch.rand_like, one) < 1
    assert drawn(lambda x: torch.randint(3, 4, ()) * x, one) == 3
    assert drawn(lambda x: torch.randn(()) * x, one).isfinite()


def test_random_numbers_of_distributions():
    x = torch.zeros(4000)
    assert abs(drawn(lambda x: torch.empty_like(x).uniform_(2, 4), x).mean() - 3) < 0.1
    assert abs(drawn(lambda x: torch.empty_like(x).normal_(3, 0.5), x).std() - 0.5) < 0.05
    assert abs(drawn(lambda x: torch.empty_like(x).exponential_(2.0), x).mean() - 0.5) < 0.05
    assert abs(drawn(lambda x: torch.normal(x + 2, 0.1), x).mean() - 2) < 0.02
    assert sorted(drawn(lambda x: torch.randperm(7) + x[:7].long(), x).tolist()) == [*range(7)]


@pytest.mark.parametrize("again", [False, True])
def test_drawn_classes_have_their_weights(again):
    weights = torch.tensor([[0.2, 0.0, 0.6, 0.2]] * 2000)
    found = drawn(lambda x: torch.multinomial(x, 2, again), weights)
    assert not (found == 1).any()
    assert ((found[:, 0] == found[:, 1]).any() == again).all()
    assert abs((found[:, 0] == 2).float().mean() - 0.6) < 0.05


# Files


@pytest.mark.filterwarnings("ignore:weight .const:UserWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.scatter_reduce(1, torch.tensor([[0, 0, 1, 2]] * 4), x, "amax"),
        lambda x: torch.lgamma(x) + torch.atleast_3d(x)[..., 0],
        lambda x: (x * 5).long() ** (x * 3).long().abs(),
    ],
)
def test_files_hold_torchs_results(function):
    file = io.BytesIO()
    loadrun.torch.trace(function, (random(4, 4),)).dump(file, input_data="#rand(-1,1)")
    assert [r.verdict.value for r in loadrun.run(loadrun.loads(file.getvalue()))] == ["pass"]


# Sizes that follow the input


def following(function, *args, others, tolerance=1e-5):
    """The first argument's sizes behind batch and channels are dynamic: compare at others than the example's, too."""
    x, *rest = args
    dims = dict.fromkeys(range(2, x.ndim), torch.export.Dim.DYNAMIC)
    traced = loadrun.torch.trace(function, args, dynamic_shapes=(dims, *(None for _ in rest)))
    for size in (tuple(x.shape[2:]), *others):
        given = torch.rand(*x.shape[:2], *size, generator=torch.Generator().manual_seed(0))
        want, got = function(given, *rest), traced(given, *rest)
        assert want.shape == got.shape
        np.testing.assert_allclose(got.numpy(), want.numpy(), tolerance, tolerance)


LINES, IMAGES, VOLUMES = [(11,), (5,)], [(10, 7), (6, 13)], [(4, 7, 8)]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_resized_lines(mode):
    x = torch.rand(2, 3, 7)
    following(lambda x: functional.interpolate(x, scale_factor=1.5, mode=mode), x, others=LINES)
    following(lambda x: functional.interpolate(x, size=x.shape[2] * 3 - 1, mode=mode), x, others=LINES)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resized_images(mode):
    x = torch.rand(2, 3, 7, 9)
    for factor in (2, 1.5, (2, 0.75), 0.3):
        given = [(10, 7), (8, 13)] if factor == 0.3 else IMAGES
        first = torch.rand(2, 3, 9, 9) if factor == 0.3 else x
        following(
            lambda x, f=factor: functional.interpolate(x, scale_factor=f, mode=mode), first, others=given
        )
    following(
        lambda x: functional.interpolate(x, size=(x.shape[2] + 3, x.shape[3] * 2 - 1), mode=mode),
        x,
        others=IMAGES,
    )
    following(lambda x: functional.interpolate(x, size=(8, 4), mode=mode), x, others=IMAGES)
    if mode.startswith("bi"):
        following(
            lambda x: functional.interpolate(x, scale_factor=1.5, mode=mode, align_corners=True),
            x,
            others=IMAGES,
        )


def test_resized_to_another_images_size():
    """As detectors do it with masks of another scale."""
    x, like = torch.rand(1, 2, 4, 6), torch.rand(1, 3, 9, 7)
    dims = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    function = lambda x, y: functional.interpolate(x, size=y.shape[-2:])  # noqa: E731
    traced = loadrun.torch.trace(function, (x, like), dynamic_shapes=(dims, dims))
    for a, b in [(x, like), (torch.rand(1, 2, 3, 9), torch.rand(1, 3, 5, 12))]:
        assert torch.equal(function(a, b), traced(a, b))


def test_borders_of_either_sign():
    """As U-Nets bring two sizes together: what was a border in the example is a cut at another size."""

    def function(x, y):
        high, wide = x.shape[2] - y.shape[2], x.shape[3] - y.shape[3]
        return functional.pad(y, [wide // 2, wide - wide // 2, high // 2, high - high // 2])

    def image(height, width):
        return torch.rand(1, 2, height, width)

    dims = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    traced = loadrun.torch.trace(function, (image(9, 8), image(6, 8)), dynamic_shapes=(dims, dims))
    for x, y in [(image(9, 8), image(6, 8)), (image(5, 9), image(8, 6)), (image(5, 4), image(5, 7))]:
        assert torch.equal(function(x, y), traced(x, y))


def test_counting_in_floats_to_a_size():
    """As relative positions are counted, downwards and in floats."""
    dims = ({0: torch.export.Dim.DYNAMIC},)
    function = lambda x: torch.arange(x.shape[0] - 1, -x.shape[0], -1.0) * x[0]  # noqa: E731
    traced = loadrun.torch.trace(function, (torch.rand(4),), dynamic_shapes=dims)
    x = torch.rand(7)
    assert torch.equal(function(x), traced(x))


def test_resized_volumes():
    for mode in ("nearest", "trilinear"):
        following(
            lambda x, m=mode: functional.interpolate(x, scale_factor=1.5, mode=m),
            torch.rand(1, 2, 5, 6, 7),
            others=VOLUMES,
        )


@pytest.mark.parametrize("size", [3, (2, 5), (6, 1)])
def test_adaptive_pooling(size):
    x = torch.rand(2, 3, 7, 9)
    following(lambda x: functional.adaptive_avg_pool2d(x, size), x, others=IMAGES)
    following(lambda x: functional.adaptive_max_pool2d(x, size), x, others=IMAGES)


def test_adaptive_pooling_of_one_axis():
    following(lambda x: functional.adaptive_avg_pool2d(x, (None, 2)), torch.rand(2, 3, 7, 9), others=IMAGES)
    following(lambda x: functional.adaptive_avg_pool1d(x, 4), torch.rand(2, 3, 7), others=LINES)


@pytest.mark.parametrize("border", [0, 1])
def test_pooling_with_windows_over_the_edge(border):
    x = torch.rand(2, 3, 7, 9)
    following(lambda x: functional.max_pool2d(x, 3, 2, border, ceil_mode=True), x, others=IMAGES)
    following(lambda x: functional.max_pool2d(x, 3, 2, border, 2), torch.rand(2, 3, 9, 9), others=[(10, 7)])
    for counted in (False, True):
        following(
            lambda x, c=counted: functional.avg_pool2d(x, 3, 2, border, True, c),
            x,
            others=IMAGES,
        )
    following(lambda x: functional.avg_pool3d(x, 3, 2, border), torch.rand(1, 2, 5, 6, 7), others=[(8, 7, 5)])


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampled_grids(mode, padding):
    grid = torch.rand(2, 4, 5, 2, generator=torch.Generator().manual_seed(3)) * 3 - 1.5
    for corners in (False, True):
        following(
            lambda x, g, c=corners: functional.grid_sample(x, g, mode, padding, c),
            *(torch.rand(2, 3, 7, 9), grid),
            others=IMAGES,
            tolerance=1e-4,
        )


def test_average_pooling_of_integers():
    x = torch.arange(-49, 49).reshape(1, 2, 7, 7)
    same(lambda x: functional.avg_pool2d(x, 2), x, tolerance=0)
    same(lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x, tolerance=0)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("indices", "values"),
    [
        (lambda x: (x > 0,), torch.tensor(2.0)),
        (lambda x: (x[:, 0] > 0,), torch.arange(4.0)),
        (lambda x: (x[:, 0] > 0, torch.tensor([1])), torch.tensor(1.0)),
        (lambda x: (None, x[0] > 0), torch.tensor([[1.0], [2.0], [3.0]])),
    ],
)
def test_numbers_are_added_where_a_mask_is_true(indices, values, dynamic):
    def function(x):
        return torch.ops.aten.index_put(x, [*indices(x)], values, True)

    x = random(3, 4)
    traced = same(function, x, tolerance=0, dynamic=dynamic)
    assert torch.equal(traced(-x), function(-x))


def test_constants_too_large_for_a_dtype_are_infinite():
    same(lambda x: x + torch.tensor(1e6), random(3).half())
