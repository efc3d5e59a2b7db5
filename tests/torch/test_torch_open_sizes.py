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
