"""From float networks to quantized ones (MegEngine's ``quantization/quantize.py``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...tensors import as_tensor
from .. import functional as F, module as Float
from ..module import Module, qat, quantized
from ..module.qat import QATModule
from ..module.quantized import QuantizedModule
from ..module.state import access
from .fake_quant import TQT, FakeQuantize
from .observer import (
    ExponentialMovingAverageObserver,
    HistogramObserver,
    MinMaxObserver,
    PassiveObserver,
    SyncExponentialMovingAverageObserver,
    SyncMinMaxObserver,
)

__all__ = ["QConfig", "apply_easy_quant", "calibration_qconfig", "disable_fake_quant", "disable_observer"]
__all__ += ["easyquant_qconfig", "ema_fakequant_qconfig", "ema_lowbit_fakequant_qconfig", "enable_fake_quant"]
__all__ += ["enable_observer", "hook_qat_module", "min_max_fakequant_qconfig", "passive_qconfig"]
__all__ += ["propagate_qconfig", "quantize", "quantize_qat", "reset_qconfig", "sync_ema_fakequant_qconfig"]
__all__ += ["tqt_qconfig"]


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


M = TypeVar("M", bound=Module)
_log = logging.getLogger("loadrun.megengine.quantization")


@cache
def _get_quantable_module_names() -> list[str]:
    """Return the classes that `module.quantized` has."""
    attributes = ((name, getattr(quantized, name)) for name in dir(quantized))
    return [
        name
        for name, kind in attributes
        if isinstance(kind, type) and issubclass(kind, QuantizedModule) and kind is not QuantizedModule
    ]


@cache
def _get_convert_dict() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """From float classes to those of `module.qat`, and from these to those of `module.quantized`."""
    names = _get_quantable_module_names()
    to_qat = {getattr(Float, n): getattr(qat, n) for n in names}
    return to_qat, {getattr(qat, n): getattr(quantized, n) for n in names}


def _replace(root: Module, path: str, value: Module) -> None:
    """Put a module where another stands."""

    def put(parent: Any, key: Any, current: Any) -> None:
        if isinstance(parent, Module):
            setattr(parent, key, value)
        else:
            parent[key] = value

    access(root, path, put)


def quantize(module: M, inplace: bool = True, mapping: dict[Any, Any] | None = None) -> M:
    """Turn the modules of `module.qat` in a network into those of `module.quantized`.

    Args:
        module: what `quantize_qat` gave, after training or calibration.
        inplace: change the network itself.
        mapping: further classes of qat modules, with those that they become.

    Returns:
        the network.
    """
    module = module if inplace else deepcopy(module)
    kinds = _get_convert_dict()[1] | (mapping or {})
    for path, child in list(module._flatten(with_key=True, predicate=lambda m: isinstance(m, tuple(kinds)))):
        _replace(module, path, kinds[type(child)].from_qat_module(child))
    return module


def quantize_qat(
    module: M,
    inplace: bool = True,
    qconfig: QConfig = ema_fakequant_qconfig,
    mapping: dict[Any, Any] | None = None,
) -> M:
    """Turn the float modules of a network into those of `module.qat`, with observers and fake quantizations.

    Args:
        module: a float network; those with ``quantize_disabled`` stay.
        inplace: change the network itself.
        qconfig: which observers and fake quantizations they get.
        mapping: further classes of float modules, with those that they become.

    Returns:
        the network.
    """
    module = module if inplace else deepcopy(module)
    kinds = _get_convert_dict()[0] | (mapping or {})
    quantable = tuple(kinds)
    modules = module._flatten(with_key=True, with_parent=True, predicate=lambda m: isinstance(m, quantable))
    for path, inner, parent in list(modules):
        if not isinstance(parent, quantable) and not inner.quantize_disabled:
            _replace(module, path, kinds[type(inner)].from_float_module(inner))
    propagate_qconfig(module, qconfig)
    return module


def _qat_modules(module: Module) -> list[Any]:
    return [m for m in module.modules() if isinstance(m, QATModule)]


def reset_qconfig(module: M, qconfig: QConfig, inplace: bool = True) -> M:
    """Give the qat modules of a network other observers and fake quantizations that start from the old parameters.

    Returns:
        the network.
    """
    module = module if inplace else deepcopy(module)

    def rebuilt(maker: Any, qparams: Any) -> Any:
        new: Any = maker() if maker is not None else None
        if hasattr(new, "set_qparams"):
            new.set_qparams(qparams)
        return new

    for m in _qat_modules(module):
        if m.with_weight:
            qparams = m.get_weight_qparams()
            m.weight_observer = rebuilt(qconfig.weight_observer, qparams)
            m.weight_fake_quant = rebuilt(qconfig.weight_fake_quant, qparams)
        if m.with_act:
            qparams = m.get_activation_qparams()
            m.act_observer = rebuilt(qconfig.act_observer, qparams)
            m.act_fake_quant = rebuilt(qconfig.act_fake_quant, qparams)
    return module


def propagate_qconfig(module: Module, qconfig: QConfig) -> None:
    """Give all qat modules of a network new observers and fake quantizations."""
    for m in _qat_modules(module):
        m.set_qconfig(qconfig)


def hook_qat_module(module: Module, func: Callable[..., Any]) -> list[Any]:
    """Register a forward hook with all qat modules below a network; the handles are returned."""
    return [m.register_forward_hook(func) for m in _qat_modules(module) if m is not module]


def apply_easy_quant(module: M, data: Any, start: float = 0.8, stop: float = 1.2, num: int = 40) -> M:
    """Search the scale of each qat module by which its output is most like that of the float module (EasyQuant).

    Args:
        module: a network whose qat modules have `PassiveObserver`s.
        data: a batch of inputs.
        start: the smallest scale to try, as a share of the one that was set.
        stop: the largest.
        num: how many to try.

    Returns:
        the network.
    """
    data = as_tensor(data)
    batch = int(data.shape[0])
    both = F.concat([data, data])
    for where in ("weight_observer", "act_observer"):
        hook_qat_module(module, partial(_search, batch=batch, where=where, shares=(start, stop, num)))
        module(both)
    return module


def _cosine(x: Any, y: Any) -> float:
    axes = tuple(range(1, x.ndim))
    like = (x * y).sum(axis=axes) / (F.norm(x, axis=axes) * F.norm(y, axis=axes))
    return float(like.mean().item())


def _search(
    module: Any, inputs: Any, outputs: Any, batch: int, where: str, shares: tuple[float, float, int]
) -> Any:
    """Return a forward hook: the float half of the batch is compared with the other one under many scales."""
    module._forward_hooks.clear()
    disable_fake_quant(module)
    exact = module(*(x[:batch] for x in inputs))
    enable_fake_quant(module)
    observer = getattr(module, where)
    if observer is None:
        return None
    best, best_scale = 0.0, None
    start, stop, num = shares
    for scale in np.linspace(start * observer.orig_scale, stop * observer.orig_scale, num):
        observer.scale = scale
        like = _cosine(exact, module(*(x[batch:] for x in inputs)))
        if like > best:
            best, best_scale = like, scale
    if best_scale is None:
        _log.warning("EasyQuant finds no better scale")
    else:
        observer.scale = best_scale
    return F.concat([exact, outputs[batch:]])


def disable_fake_quant(module: Module) -> None:
    """Let all fake quantizations of a network let values through."""
    for m in _qat_modules(module):
        m.set_fake_quant(False)


def disable_observer(module: Module) -> None:
    """Let all observers of a network let values through unseen."""
    for m in _qat_modules(module):
        m.set_observer(False)


def enable_fake_quant(module: Module) -> None:
    """Let all fake quantizations of a network round."""
    for m in _qat_modules(module):
        m.set_fake_quant(True)


def enable_observer(module: Module) -> None:
    """Let all observers of a network watch."""
    for m in _qat_modules(module):
        m.set_observer(True)
