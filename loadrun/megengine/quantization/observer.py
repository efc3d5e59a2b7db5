"""Modules that watch values and tell how to quantize them (MegEngine's ``quantization/observer.py``)."""

from copy import deepcopy
from typing import Any

import numpy as np

from ...graph.dtypes import Array
from ...tensors import Tensor, as_tensor
from ...tensors.quantized_dtypes import QuantDtypeMeta
from .. import functional as F
from .fake_quant import QParams, QParamsModuleMixin, QuantMode, SwitchableModule, create_qparams

__all__ = ["ExponentialMovingAverageObserver", "HistogramObserver", "MinMaxObserver", "Observer"]
__all__ += ["PassiveObserver", "SyncExponentialMovingAverageObserver", "SyncMinMaxObserver"]


_STEP = 1e-5


def _rounding_error(histogram: Array, width: Any, start: int, end: int, levels: int) -> float:
    """Return the squared error of rounding to as many levels, spread over the bins from `start` to `end`.

    Values are taken as spread evenly within their bin; each is rounded to the middle of its level.
    """
    level = width * (end - start + 1) / levels
    if level == 0:
        return 0.0
    begin = (np.arange(len(histogram)) - start) * width
    finish = begin + width
    first = np.clip(np.floor(begin / level), 0, levels - 1)
    last = np.clip(np.floor(finish / level), 0, levels - 1)
    density = histogram / width

    def cubes(a: Any, b: Any) -> Any:
        return (b * b * b - a * a * a) / 3

    from_middle = begin - (first * level + level / 2)
    to_middle = finish - (last * level + level / 2)
    half = level / 2
    several = cubes(from_middle, half) + (last - first - 1) * cubes(-half, half) + cubes(-half, to_middle)
    return float((density * np.where(first == last, cubes(from_middle, to_middle), several)).sum())


def least_error_range(histogram: Array, width: Any, levels: int) -> tuple[int, int]:
    """Return the first bin and the one after the last that a quantized dtype should cover.

    Bins are cut off at the end where fewer values lie, as long as the error gets less.

    Args:
        histogram: counts per bin.
        width: of a bin.
        levels: of the quantized dtype.

    >>> least_error_range(np.r_[np.ones(100), np.zeros(100)], 1.0, 16)
    (0, 99)
    """
    sums = np.cumsum(histogram, axis=0)
    total = float(sums[-1])
    alpha, beta = 0.0, 1.0
    start, end = 0, len(histogram) - 1
    least = np.inf
    while alpha < beta:
        more, less = alpha + _STEP, beta - _STEP
        left = min(max(int(np.searchsorted(sums, more * total, "left")), start), end)
        right = max(min(int(np.searchsorted(sums, less * total, "right")) - 1, end), start)
        new_start, new_end = start, end
        if left - start > end - right:
            new_start, alpha = left, more
        else:
            new_end, beta = right, less
        if (new_start, new_end) == (start, end):
            continue
        error = _rounding_error(histogram, width, new_start, new_end, levels)
        if error > least:
            break
        least, start, end = error, new_start, new_end
    return start, end + 1


def combined(x: Array, histogram: Array, low: Any, high: Any, parts: int) -> tuple[Array, Any, Any]:
    """Return the counts of old and new values together, and the range that they cover.

    Args:
        x: the new values.
        histogram: the old counts; -1 in the first bin if there are none.
        low: where the old range begins.
        high: where it ends.
        parts: into how many a bin is divided to be counted in the new range.
    """
    bins = len(histogram)
    new_low, new_high = x.min(), x.max()
    if histogram[0] == -1:
        return np.histogram(x, bins, (new_low, new_high))[0], new_low, new_high
    new_low, new_high = min(new_low, low), max(new_high, high)
    part = (high - low) / (bins * parts)
    stretch = int(np.ceil((new_high - new_low) / (bins * part)))
    slack = stretch * (bins * part) - (new_high - new_low)
    new_low, new_high = new_low - slack / 2, new_high + slack / 2
    offset = int(np.round((low - new_low) / part))
    counts = np.histogram(x, bins, (new_low, new_high))[0].astype(np.float64)
    if new_low == low and new_high == high:
        return counts + histogram, new_low, new_high
    spread = np.zeros(bins * stretch)
    spread[offset : bins * parts + offset] = histogram.repeat(parts)
    return counts + np.diff(np.cumsum(spread)[stretch - 1 :: stretch], prepend=0) / parts, new_low, new_high


_LARGEST = float(np.finfo(np.float32).max)


class Observer(SwitchableModule, QParamsModuleMixin):
    """Base of the observers: lets values through, and watches while training.

    Args:
        dtype: the kind of dtype to quantize to, or its name.
        kwargs: ``narrow_range`` of old releases is ignored.
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        super().__init__(dtype, **kwargs)

    def train(self, mode: bool = True, recursive: bool = True) -> None:
        """Watch while training, not in inference."""
        super().train(mode, recursive)
        self.enabled = mode


class MinMaxObserver(Observer):
    """Remembers the smallest and the largest value.

    Args:
        mode: symmetric or not.
        eps: the smallest scale.
        dtype: the kind of dtype to quantize to.

    >>> watch = MinMaxObserver()
    >>> _ = watch(Tensor([-1.0, 12.75]))
    >>> watch.get_qparams().scale.item()
    0.10000000149011612
    """

    def __init__(
        self,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 1e-5,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype, **kwargs)
        self.mode = mode
        self.min_val = Tensor(_LARGEST, dtype=np.float32)
        self.max_val = Tensor(-_LARGEST, dtype=np.float32)
        self.scale_limit = eps

    def _calculate_qparams(self, inp_min_val: Any, inp_max_val: Any) -> QParams:
        low, high = F.minimum(0.0, inp_min_val), F.maximum(0.0, inp_max_val)
        span = self.qmax - self.qmin
        if self.mode == QuantMode.SYMMERTIC:
            scale = F.maximum(F.maximum(-low, high) / (span / 2), self.scale_limit)
            return create_qparams(self.mode, self.dtype, scale=scale)
        scale = F.maximum((high - low) / span, self.scale_limit)
        return create_qparams(self.mode, self.dtype, scale=scale, zero_point=self.qmin - F.round(low / scale))

    def get_qparams(self) -> QParams:
        """Return parameters by which all that was seen can be stored."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def _watch(self, x: Any) -> None:
        self.min_val.set_value(F.minimum(self.min_val, x.min()))
        self.max_val.set_value(F.maximum(self.max_val, x.max()))

    def forward(self, x_orig: Any) -> Any:
        """Take any float tensor, which is returned."""
        if self.enabled:
            self._watch(x_orig)
        return x_orig


class SyncMinMaxObserver(MinMaxObserver):
    """`MinMaxObserver` over all devices; here there is one. It watches in inference too, as MegEngine's does."""

    def forward(self, x_orig: Any) -> Any:
        """Take any float tensor, which is returned."""
        self._watch(x_orig)
        return x_orig


class ExponentialMovingAverageObserver(MinMaxObserver):
    """Remembers moving averages of the smallest and the largest value.

    Args:
        momentum: how much of the average is kept.
        mode: symmetric or not.
        eps: the smallest scale.
        dtype: the kind of dtype to quantize to.
    """

    def __init__(
        self,
        momentum: float = 0.9,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 1e-5,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        self.momentum = Tensor(momentum, dtype="float32")
        self.runtime_momentum = Tensor(0.0)

    def set_momentum(self, momentum: float) -> None:
        """Keep another share from now on."""
        self.momentum = Tensor(momentum, dtype="float32")

    def _watch(self, x: Any) -> None:
        kept = self.runtime_momentum
        self.min_val.set_value(self.min_val * kept + (1 - kept) * x.min())
        self.max_val.set_value(self.max_val * kept + (1 - kept) * x.max())
        self.runtime_momentum.set_value(self.momentum)


class SyncExponentialMovingAverageObserver(ExponentialMovingAverageObserver):
    """`ExponentialMovingAverageObserver` over all devices; here there is one."""


class HistogramObserver(MinMaxObserver):
    """Counts values in bins and cuts off as many at both ends as makes the error of rounding least.

    Args:
        bins: number of bins.
        upsample_rate: into how many parts a bin is divided where two histograms are joined.
        mode: symmetric or not.
        eps: the smallest scale.
        dtype: the kind of dtype to quantize to.
    """

    def __init__(
        self,
        bins: int = 2048,
        upsample_rate: int = 128,
        mode: QuantMode = QuantMode.SYMMERTIC,
        eps: float = 1e-5,
        dtype: str | QuantDtypeMeta = "qint8",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode, eps, dtype, **kwargs)
        self.bins = bins
        self.upsample_rate = upsample_rate
        self.dst_nbins = self.qmax - self.qmin + 1
        self.histogram = Tensor(np.r_[-1, np.zeros(bins - 1)], dtype="float32")

    def get_qparams(self) -> QParams:
        """Return parameters of least error."""
        low, high = self.min_val.numpy(), self.max_val.numpy()
        width = (high - low) / self.bins
        start, end = least_error_range(self.histogram.numpy(), width, self.dst_nbins)
        ends = (
            (self.min_val + Tensor(width * start, "float32")),
            self.min_val + Tensor(width * end, "float32"),
        )
        return self._calculate_qparams(*ends)

    def sideeffect_forward(self, x_orig: Any) -> None:
        """Count the values of a tensor."""
        x = as_tensor(x_orig).numpy()
        counts, low, high = combined(
            x, self.histogram.numpy(), self.min_val.numpy(), self.max_val.numpy(), self.upsample_rate
        )
        self.histogram.set_value(Tensor(counts, dtype="float32"))
        self.min_val.set_value(Tensor(low, dtype="float32"))
        self.max_val.set_value(Tensor(high, dtype="float32"))

    def forward(self, x_orig: Any) -> Any:
        """Take any float tensor, which is returned; it is counted in inference too, as MegEngine does."""
        self.sideeffect_forward(x_orig)
        return x_orig


class PassiveObserver(Observer):
    """Watches nothing and gives the parameters that it was given.

    Args:
        dtype: the kind of dtype to quantize to, or its name.

    >>> watch = PassiveObserver("qint8")
    >>> watch.set_qparams(create_qparams(QuantMode.SYMMERTIC, "qint8", Tensor(0.5)))
    >>> watch.scale.item()
    0.5
    """

    def __init__(self, dtype: str | QuantDtypeMeta, **kwargs: Any) -> None:
        super().__init__(dtype, **kwargs)
        self.qparams: Any = None
        self.orig_scale: Any = None

    @property
    def scale(self) -> Any:
        """The scale of the parameters."""
        return self.qparams.scale

    @scale.setter
    def scale(self, value: Any) -> None:
        if not np.all(np.asarray(value) > 0):
            raise AssertionError(f"a scale must be greater than 0, found {value}")
        self.qparams.scale.set_value(F.broadcast_to(Tensor(value, "float32"), self.qparams.scale.shape))

    def get_qparams(self) -> QParams:
        """Return the parameters that were set."""
        return self.qparams

    def set_qparams(self, qparams: QParams) -> None:
        """Set the parameters.

        Raises:
            AssertionError: they have no scale, or are of another kind of dtype.
        """
        self.qparams = deepcopy(qparams)
        if qparams.scale is None:
            raise AssertionError("can not get an initialized scale")
        if qparams.dtype_meta is None:
            qparams.dtype_meta = self.dtype
        elif qparams.dtype_meta is not self.dtype:
            raise AssertionError(f"the dtype {qparams.dtype_meta} is not equal to self.dtype {self.dtype}")
        self.orig_scale = as_tensor(qparams.scale).numpy()

    def forward(self, x: Any) -> Any:
        """Take any tensor, which is returned."""
        return x
