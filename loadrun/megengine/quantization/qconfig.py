"""Which observers and fake quantizations a network gets (MegEngine's ``quantization/qconfig.py``)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from ..module import Module
from .fake_quant import TQT, FakeQuantize
from .observer import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    PassiveObserver,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
)


class _Makers(NamedTuple):
    weight_observer: Any
    act_observer: Any
    weight_fake_quant: Any
    act_fake_quant: Any


class QConfig(_Makers):
    """Makers of observers and fake quantizations for weights and activations; None for none.

    Raises:
        ValueError: an observer is given instead of its maker.

    >>> QConfig(None, None, None, partial(FakeQuantize, dtype="qint8")).act_fake_quant().qmax
    127
    """

    def __new__(
        cls, weight_observer: Any, act_observer: Any, weight_fake_quant: Any, act_fake_quant: Any
    ) -> QConfig:
        """Check the makers."""
        if isinstance(act_observer, Module) or isinstance(weight_observer, Module):
            raise ValueError(
                "QConfig takes makers of observers, such as partial(MinMaxObserver, dtype='qint8'), no observers"
            )
        return super().__new__(cls, weight_observer, act_observer, weight_fake_quant, act_fake_quant)


def _both(
    observers: tuple[Any, Any], fakes: Any, weight: str = "qint8_narrow", act: str = "qint8"
) -> QConfig:
    """Return the same kinds of dtype for observers and fake quantizations."""
    makers = (*observers, fakes, fakes)
    kinds = (weight, act, weight, act)
    return QConfig(*(m and partial(m, dtype=k) for m, k in zip(makers, kinds, strict=True)))


min_max_fakequant_qconfig = _both((MinMaxObserver, MinMaxObserver), FakeQuantize)
ema_fakequant_qconfig = _both((MinMaxObserver, ExponentialMovingAverageObserver), FakeQuantize)
sync_ema_fakequant_qconfig = _both((SyncMinMaxObserver, SyncExponentialMovingAverageObserver), FakeQuantize)
ema_lowbit_fakequant_qconfig = _both(
    (MinMaxObserver, ExponentialMovingAverageObserver), FakeQuantize, "qint4", "qint4"
)
calibration_qconfig = _both((MinMaxObserver, HistogramObserver), None)
tqt_qconfig = _both((None, None), TQT)
passive_qconfig = _both((PassiveObserver, PassiveObserver), FakeQuantize)
easyquant_qconfig = passive_qconfig
