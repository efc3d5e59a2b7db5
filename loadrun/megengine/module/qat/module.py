"""Base of the modules with fake quantization (MegEngine's ``module/qat/module.py``)."""

from abc import abstractmethod
from typing import Any, Protocol

from ....layers.fake_quant import fake_quant_bias
from ....tensors import Tensor, TensorLike
from ..module import Module

__all__ = ["QATModule"]


class QConfigLike(Protocol):
    """Makers of observers and fake quantizations, None for none; `loadrun.megengine.quantization.QConfig` is one."""

    @property
    def weight_observer(self) -> Any:
        """Make what watches the weight."""

    @property
    def act_observer(self) -> Any:
        """Make what watches the output."""

    @property
    def weight_fake_quant(self) -> Any:
        """Make what rounds the weight."""

    @property
    def act_fake_quant(self) -> Any:
        """Make what rounds the output."""


class QATModule(Module):
    """A module whose weight and output are rounded to what a quantized dtype has.

    Attributes:
        with_weight: whether there is a weight to round.
        with_act: whether the output is rounded.
        weight_observer, act_observer: what tells the parameters of quantization, or None.
        weight_fake_quant, act_fake_quant: what rounds, or None.
    """

    with_weight = True
    with_act = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weight_observer: Any = None
        self.act_observer: Any = None
        self.weight_fake_quant: Any = None
        self.act_fake_quant: Any = None

    def __repr__(self) -> str:
        return f"QAT.{super().__repr__()}"

    def set_qconfig(self, qconfig: QConfigLike) -> None:
        """Make observers and fake quantizations."""
        for part, there in (("act", self.with_act), ("weight", self.with_weight)):
            for kind in ("observer", "fake_quant") if there else ():
                maker = getattr(qconfig, f"{part}_{kind}")
                setattr(self, f"{part}_{kind}", None if maker is None else maker())

    def _switch(self, kind: str, enable: bool) -> None:
        for part, there in (("act", self.with_act), ("weight", self.with_weight)):
            observer = getattr(self, f"{part}_{kind}") if there else None
            if observer is not None:
                (observer.enable if enable else observer.disable)()

    def set_fake_quant(self, enable: bool) -> None:
        """Let the fake quantizations round or not."""
        self._switch("fake_quant", enable)

    def set_observer(self, enable: bool) -> None:
        """Let the observers watch or not."""
        self._switch("observer", enable)

    def _apply_fakequant_with_observer(self, target: Any, fake_quant: Any, observer: Any) -> Any:
        qparams = None
        if observer is not None:
            target = observer(target)
            qparams = observer.get_qparams()
        if fake_quant is not None:
            target = fake_quant(target, qparams)
            if hasattr(fake_quant, "get_qparams"):
                qparams = fake_quant.get_qparams()
        if qparams is not None:
            target.qparams.update(qparams)
        return target

    def apply_quant_weight(self, target: TensorLike) -> Tensor:
        """Watch and round a weight."""
        return self._apply_fakequant_with_observer(target, self.weight_fake_quant, self.weight_observer)

    def apply_quant_activation(self, target: TensorLike) -> Tensor:
        """Watch and round an output."""
        return self._apply_fakequant_with_observer(target, self.act_fake_quant, self.act_observer)

    def apply_quant_bias(self, target: TensorLike | None, inp: Tensor, w_qat: Tensor) -> TensorLike | None:
        """Round a bias by the scales of input and weight if both fake quantizations are enabled."""
        fakes = (self.act_fake_quant, self.weight_fake_quant)
        if any(f is None or not f.enabled for f in fakes):
            return target
        return fake_quant_bias(target, inp, w_qat)

    def _asked(self, method: str, fake_quant: Any, observer: Any) -> Any:
        for source in (fake_quant, observer):
            if hasattr(source, method):
                return getattr(source, method)()
        return None

    def get_weight_dtype(self) -> Any:
        """Return the quantized dtype of the weight, None if nothing tells it."""
        return self._asked("get_quantized_dtype", self.weight_fake_quant, self.weight_observer)

    def get_activation_dtype(self) -> Any:
        """Return the quantized dtype of the output, None if nothing tells it."""
        return self._asked("get_quantized_dtype", self.act_fake_quant, self.act_observer)

    def get_weight_qparams(self) -> Any:
        """Return the quantization parameters of the weight, None if nothing tells them."""
        return self._asked("get_qparams", self.weight_fake_quant, self.weight_observer)

    def get_activation_qparams(self) -> Any:
        """Return the quantization parameters of the output, None if nothing tells them."""
        return self._asked("get_qparams", self.act_fake_quant, self.act_observer)

    @classmethod
    def _sharing(cls, source: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a module made with these arguments and the name of a float one, whose weight and bias it shares."""
        module = cls(*args, name=source.name, **kwargs)
        module.weight, module.bias = source.weight, source.bias
        return module

    @classmethod
    @abstractmethod
    def from_float_module(cls, float_module: Any) -> Any:
        """Return the module that a float one becomes; both share their parameters."""
