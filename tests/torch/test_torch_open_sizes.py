"""Operators traced at one size with sizes left open, and run at another; values are torch's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun.torch  # noqa: E402

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
HARD = torch.tensor([[1.0, NAN, 3.0, 0.5, NAN, -INF], [INF, 2.0, INF, -INF, 1.0, 1.0]])


def compare(function, *calls, dynamic=True):
    """Trace with the first call's arguments, and compare every call with torch."""
    traced = loadrun.torch.trace(function, calls[0], dynamic_shapes=dynamic)
    for call in calls:
        found, want = (torch.utils._pytree.tree_leaves(f(*call)) for f in (traced, function))
        for a, b in zip(found, want, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_running_results_of_any_length(name, dtype):
    function = getattr(torch, name)
    small, large = (torch.randint(-3, 4, s).to(dtype) for s in ((2, 5), (3, 19)))
    compare(lambda x: function(x, 1), (small,), (large,))
    compare(lambda x: function(x, 0), (small,), (large.T.contiguous(),))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_of_nan(name):
    compare(lambda x: getattr(torch, name)(x, 1), (HARD,), (HARD[:, 1:].repeat(1, 2),))


def test_glu_halves_an_axis_of_any_length():
    compare(F.glu, (torch.rand(2, 6),), (torch.rand(3, 10),))


def test_hypot_of_infinity_and_heaviside_of_nan():
    x, y = torch.tensor([INF, NAN, 3.0, NAN, 0.0]), torch.tensor([NAN, -INF, 4.0, 1.0, NAN])
    compare(torch.hypot, (torch.ones(5), torch.ones(5)), (x, y))
    compare(torch.heaviside, (torch.ones(5), torch.ones(5)), (x, y))


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_diagonals_of_any_length(offset):
    compare(lambda x: torch.diag_embed(x, offset), (torch.rand(2, 4),), (torch.full((3, 6), INF),))

    def replaced(x, v):
        return torch.diagonal_scatter(x, v, offset, 1, 2)

    calls = [(torch.rand(b, n, n), torch.rand(b, n - abs(offset))) for b, n in ((2, 5), (3, 7))]
    compare(replaced, *calls)


@pytest.mark.parametrize("name", ["hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name):
    window = getattr(torch, f"{name}_window")
    compare(lambda x: x * window(7) + window(7, periodic=False) + window(1), (torch.ones(3, 7),))


def test_parameters_of_windows():
    compare(
        lambda x: x * torch.kaiser_window(6, True, 5.0) + torch.hamming_window(6, False, 0.6, 0.3),
        (torch.ones(3, 6),),
    )


@pytest.mark.parametrize("norm", [1.0, 2.0, INF])
def test_embedding_of_a_largest_norm(norm):
    net = torch.nn.Embedding(6, 4, max_norm=1.0, norm_type=norm)
    with torch.no_grad():
        compare(net, (torch.tensor([[0, 5], [1, 1]]),), (torch.tensor([[2, 3, 4], [0, 1, 5]]),))


def test_elements_are_repeated_by_a_tensor():
    calls = [(torch.rand(n, 2), torch.arange(n) % 3) for n in (3, 5)]
    compare(lambda x, n: torch.repeat_interleave(x, n, dim=0), *calls)
    compare(lambda x: x.repeat_interleave(torch.tensor([2, 0, 1]), 1), (torch.rand(2, 3),))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}])
def test_an_lstm_with_projections(options):
    net = torch.nn.LSTM(4, 6, proj_size=3, **options)
    with torch.no_grad():
        compare(net, (torch.rand(5, 1, 4),), (torch.rand(5, 3, 4),))
        compare(net, (torch.rand(5, 4),))


def test_a_generator_draws():
    traced = loadrun.torch.trace(lambda x: x + torch.randn(50, generator=torch.Generator()), torch.zeros(50))
    assert 0.5 < float(traced(torch.zeros(50)).std()) < 1.5


def test_unpooling_of_any_size():
    def pooled(x):
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:])

    compare(pooled, (torch.rand(1, 3, 6, 7),), (torch.rand(2, 3, 9, 10),))


def test_attention_with_heads_of_any_size():
    compare(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        (torch.rand(1, 2, 5, 4),),
        (torch.rand(3, 2, 7, 6),),
    )
