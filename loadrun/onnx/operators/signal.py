"""Spectra, windows, and mel filters."""

from collections.abc import Callable, Mapping
from typing import Any

from ...arrays.names import kernel, np
from ...graph.composite import Known, NodeTypes
from ...graph.dtypes import Array, DType
from . import operator
from .common import axis_of, refuse_unless, tensor_type

Shape = tuple[int, ...]


def _complex(x: Array) -> Array:
    """Return numbers of the last axis, of size 1 or 2, as complex ones of 64 bits each."""
    refuse_unless(x.shape[-1] in (1, 2), f"its last axis has {x.shape[-1]} elements, expected 1 or 2")
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _pair(z: Array) -> Array:
    return np.stack([z.real, z.imag], -1)


def dft_sizes(
    x: Array, length: Known | None, axis: int, inverse: int, onesided: int
) -> tuple[int, int, Shape]:
    """Return the axis, the length of the transform, and the shape of the result."""
    axis = axis_of(axis, x.ndim)
    refuse_unless(axis < x.ndim - 1, "it transforms the axis of real and imaginary parts")
    if length is not None:
        n = int(length.item())
    else:
        n = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    refuse_unless(n > 0, f"its length is {n}")
    bins = n // 2 + 1 if onesided and not inverse else n
    last = 1 if inverse and onesided else 2
    return axis, n, (*x.shape[:axis], bins, *x.shape[axis + 1 : -1], last)


@kernel
def transformed(x: Array, length: Known | None, axis: int, inverse: int, onesided: int) -> Array:
    """Transform an axis."""
    axis, n, shape = dft_sizes(x, length, axis, inverse, onesided)
    z = _complex(x)
    if inverse and onesided:
        return np.fft.irfft(z, n, axis)[..., None]
    if inverse:
        return _pair(np.fft.ifft(z, n, axis))
    if onesided and z.dtype.kind == "f":
        return _pair(np.fft.rfft(z, n, axis))
    return _pair(np.take(np.fft.fft(z, n, axis), np.arange(shape[axis]), axis))


def _axis(axis: Known | None) -> int:
    return -2 if axis is None else int(axis.item())


def _dft_shape(
    x: Array, length: Known | None = None, axis: Known | None = None, *, inverse: int = 0, onesided: int = 0
) -> Shape:
    return dft_sizes(x, length, _axis(axis), inverse, onesided)[2]


@operator("DFT", since=20, shape=_dft_shape)
def dft(
    x: Array, length: Known | None = None, axis: Known | None = None, *, inverse: int = 0, onesided: int = 0
) -> Array:
    """Compute the discrete Fourier transform of an axis; the last one holds real and imaginary parts."""
    return transformed(x, length, _axis(axis), inverse, onesided)


def _dft_shape_17(
    x: Array, length: Known | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Shape:
    return dft_sizes(x, length, axis, inverse, onesided)[2]


@operator("DFT", since=17, shape=_dft_shape_17)
def dft_17(
    x: Array, length: Known | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Array:
    """Compute the discrete Fourier transform of an axis; the last one holds real and imaginary parts."""
    return transformed(x, length, axis, inverse, onesided)


def _frames(
    x: Array, step: Known, window: Array | None, length: Known | None, onesided: int
) -> tuple[int, int, Shape]:
    """Return the length of frames, the step, and the shape of the result."""
    if length is not None:
        n = int(length.item())
    else:
        refuse_unless(window is not None, "there is neither a window nor a frame length")
        assert window is not None
        n = window.shape[0]
    refuse_unless(
        window is None or window.ndim == 1,
        f"its window has {0 if window is None else window.ndim} axes, expected 1",
    )
    by = int(step.item())
    refuse_unless(
        by > 0 and 0 < n <= x.shape[1], f"frames of {n} every {by} in a signal of {x.shape[1]} samples"
    )
    return n, by, (x.shape[0], (x.shape[1] - n) // by + 1, n // 2 + 1 if onesided else n, 2)


def _stft_shape(
    x: Array, step: Known, window: Array | None = None, length: Known | None = None, *, onesided: int = 1
) -> Shape:
    return _frames(x, step, window, length, onesided)[2]


@operator("STFT", since=17, shape=_stft_shape)
def stft(
    x: Array, step: Known, window: Array | None = None, length: Known | None = None, *, onesided: int = 1
) -> Array:
    """Compute the Fourier transform of every frame of signals (B, L) or (B, L, 1 or 2)."""
    n, by, shape = _frames(x, step, window, length, onesided)
    signal = x[..., None] if x.ndim == 2 else x
    cut = np.take(signal, np.arange(shape[1])[:, None] * by + np.arange(n), 1)
    cut = cut if window is None else cut * window[:, None]
    return transformed(cut, None, 2, 0, onesided)


# Windows and filters


def _wanted(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    return tensor_type(attributes.get("output_datatype", 1))


def _window(name: str, a: float, b: float, d: float) -> Callable[..., Array]:
    """Define the sum of a constant and two cosines over a period."""

    @operator(name, since=17, out=(_wanted,), shape=lambda size, **others: (int(size.item()),))
    def window(size: Known, *, output_datatype: int = 1, periodic: int = 1, types: NodeTypes) -> Array:
        """Return a window as long as asked."""
        n = int(size.item())
        refuse_unless(0 <= n <= 1 << 24, f"a window of {n}")
        turns = np.arange(n) * 2 * np.pi / max(n if periodic else n - 1, 1)
        return (a - b * np.cos(turns) + d * np.cos(2 * turns)).astype(types.outputs[0].np)

    return window


_window("HannWindow", 0.5, 0.5, 0.0)
_window("HammingWindow", 25 / 46, 21 / 46, 0.0)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


@operator(
    "MelWeightMatrix",
    since=17,
    out=(_wanted,),
    shape=lambda bins, length, *others, **how: (int(length.item()) // 2 + 1, int(bins.item())),
)
def mel_weight_matrix(
    mel_bins: Known,
    dft_length: Known,
    sample_rate: Known,
    lower: Known,
    upper: Known,
    *,
    output_datatype: int = 1,
    types: NodeTypes,
) -> Array:
    """Return triangular filters (bins, bands) over the bins of a Fourier transform, evenly wide in mel."""
    bands, length, rate = (int(v.item()) for v in (mel_bins, dft_length, sample_rate))
    low, high = float(lower.item()), float(upper.item())
    refuse_unless(0 < bands <= 1 << 16 and 0 < length <= 1 << 20, f"{bands} bands of a transform of {length}")
    refuse_unless(
        rate > 0 and 0 <= low < np.inf and 0 <= high < np.inf,
        f"frequencies from {low:g} to {high:g} Hz at {rate} samples a second",
    )
    lowest, highest = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mels = np.arange(bands + 2) * ((highest - lowest) / (bands + 2)) + lowest
    edges = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / rate)
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    at = np.arange(length // 2 + 1)[:, None]
    rise, fall = middle - left, right - middle
    # Where a side has no width, its filter is 1 in the middle alone.
    up = np.where(rise == 0, at == middle, (at - left) / np.where(rise == 0, 1, rise))
    down = (right - at) / np.where(fall > 0, fall, 1)
    result = np.where((at >= left) & (at <= middle), up, 0)
    result = np.where((at >= middle) & (at < right), down, result)
    return result.astype(types.outputs[0].np)
