"""Fourier transforms as matrix products, compared with numpy's in float64."""

import numpy as np
import pytest

from loadrun import Tensor
from loadrun.layers.fourier import Pair, real_of_half, transform

LENGTHS = (1, 2, 3, 7, 64, 211, 360, 400, 514, 1021, 1024)


def close(found, want):
    """Within a few units of float32 of the largest element."""
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= 1e-6 * max(np.abs(want).max(), 1e-30)


def numbers(*shape):
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", LENGTHS)
def test_transforms_are_numpys(n):
    x, y = numbers(2, n), numbers(2, n)[::-1].copy()
    z = x + 1j * y.astype(float)
    for inverse, want in ((False, np.fft.fft(z)), (True, np.fft.ifft(z))):
        found = transform(Pair(Tensor(x), Tensor(y)), n, bins=n, inverse=inverse)
        close(found.real.numpy() + 1j * found.imag.numpy(), want)
    bins = n // 2 + 1
    found = transform(Pair(Tensor(x)), n, bins=bins)
    close(found.real.numpy() + 1j * found.imag.numpy(), np.fft.rfft(x.astype(float)))
    half = Pair(Tensor(x[:, :bins]), Tensor(y[:, :bins]))
    close(real_of_half(half, n, bins).numpy(), np.fft.irfft(z[:, :bins], n))


@pytest.mark.parametrize("n", [6, 7, 400, 1024])
def test_a_real_signals_mean_and_highest_frequency_are_real(n):
    """Their angle is 0 or half a turn, which rounding of the imaginary part would turn into its negative."""
    found = transform(Pair(Tensor(numbers(3, n))), n, bins=n // 2 + 1).imag.numpy()
    assert not found[:, 0].any()
    assert n % 2 or not found[:, -1].any()


def test_axes_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="a Fourier transform of 8192 elements"):
        transform(Pair(Tensor(np.zeros((1, 8192), np.float32))), 8192, bins=4097)


def test_no_rows():
    found = transform(Pair(Tensor(np.zeros((0, 8), np.float32))), 8, bins=5)
    assert found.real.shape == found.imag.shape == (0, 5)
