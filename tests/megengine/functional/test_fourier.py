"""Fourier transforms as matrix products, compared with numpy's in float64."""

import numpy as np
import pytest

import loadrun
from loadrun import Tensor
from loadrun.layers.fourier import Pair, real_of_half, transform

# One product, two of them, both with a prime factor, a large prime, two large primes' product, powers.
LENGTHS = (1, 2, 3, 7, 64, 211, 360, 400, 514, 1021, 1024, 2062, 3 * 1031, 4096)


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
    for inverse, want in ((False, np.fft.fft(z)), (True, np.fft.ifft(z) * n)):
        found = transform(Pair(Tensor(x), Tensor(y)), n, inverse=inverse)
        close(found.real.numpy() + 1j * found.imag.numpy(), want)
    bins = n // 2 + 1
    found = transform(Pair(Tensor(x)), n, bins=bins, power=0.5)
    close(found.real.numpy() + 1j * found.imag.numpy(), np.fft.rfft(x.astype(float), norm="ortho"))
    half = Pair(Tensor(x[:, :bins]), Tensor(y[:, :bins]))
    close(real_of_half(half, n, bins).numpy(), np.fft.irfft(z[:, :bins], n))


@pytest.mark.parametrize("n", [6, 7, 400, 1024, 2062])
def test_a_real_signals_mean_and_highest_frequency_are_real(n):
    """Their angle is 0 or half a turn, which rounding of the imaginary part would turn into its negative."""
    found = transform(Pair(Tensor(numbers(3, n))), n, bins=n // 2 + 1).imag.numpy()
    assert not found[:, 0].any()
    assert n % 2 or not found[:, -1].any()


def test_constants_of_long_axes_are_small():
    @loadrun.tracing.trace(symbolic=True, capture_as_const=True)
    def spectrum(x):
        y = transform(Pair(x), 1 << 14, bins=(1 << 13) + 1)
        return y.real, y.imag

    x = numbers(1, 1 << 14)
    real, imag = spectrum(Tensor(x))
    close(real.numpy() + 1j * imag.numpy(), np.fft.rfft(x.astype(float)))
    stored = sum(t.value().nbytes for opr in spectrum.graph().oprs for t in opr.tensors if t.data is not None)
    assert x.nbytes < stored < 8 * x.nbytes


def test_a_followed_length():
    """A length that the graph follows: matrices are computed in it."""

    @loadrun.tracing.trace(symbolic=True, symbolic_shape=True)
    def both(x):
        n = x.shape[-1]
        y = transform(Pair(x), n, bins=n // 2 + 1, power=1.0)
        return y.real, y.imag, real_of_half(y, n, n // 2 + 1, power=0.0)

    for n in (6, 9, 1, 2, 40):
        x = numbers(2, 3, n)
        real, imag, back = both(Tensor(x))
        close(real.numpy() + 1j * imag.numpy(), np.fft.rfft(x.astype(float), norm="forward"))
        close(back.numpy(), x)
        assert not imag.numpy()[..., 0].any()


def test_no_rows():
    found = transform(Pair(Tensor(np.zeros((0, 8), np.float32))), 8, bins=5)
    assert found.real.shape == found.imag.shape == (0, 5)
