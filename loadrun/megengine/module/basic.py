"""Modules of one operator each, and modules one behind the other."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from ...layers.elemwise import elwise
from ...layers.geometry import Sizes
from ...tensors import Tensor, TensorLike
from .. import functional as F
from .module import Module

__all__ = ["Concat", "DequantStub", "Dropout", "Elemwise", "Identity", "Pad", "PixelShuffle", "QuantStub"]
__all__ += ["Sequential", "SlidingWindow", "SlidingWindowTranspose"]


class Sequential(Module):
    """The output of each module is the input of the next.

    Args:
        args: modules, which are called "0", "1", ..., or one OrderedDict of them by name.

    >>> from loadrun.megengine.module import Linear, ReLU
    >>> net = Sequential(Linear(2, 2), ReLU())
    >>> len(net), net[1], [name for name, _ in net.named_children()]
    (2, ReLU(), ['0', '1'])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer_keys: list[str] = []
        named = len(args) == 1 and isinstance(args[0], OrderedDict)
        for key, module in args[0].items() if named else ((str(i), m) for i, m in enumerate(args)):
            setattr(self, key, module)
            self.layer_keys.append(key)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return self.__class__(OrderedDict((k, getattr(self, k)) for k in self.layer_keys[idx]))
        return getattr(self, self.layer_keys[idx])

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self.layer_keys[idx], module)

    def __delitem__(self, idx: Any) -> None:
        for key in self.layer_keys[idx] if isinstance(idx, slice) else [self.layer_keys[idx]]:
            delattr(self, key)
            self.layer_keys.remove(key)

    def __len__(self) -> int:
        return len(self.layer_keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layer_values)

    @property
    def layer_values(self) -> list[Any]:
        """The modules in order."""
        return [getattr(self, key) for key in self.layer_keys]

    def forward(self, inp: TensorLike) -> Any:
        """Take what the first module takes; give what the last one gives."""
        for layer in self.layer_values:
            inp = layer(inp)
        return inp


class Identity(Module):
    """A copy of its input.

    >>> Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: TensorLike) -> Tensor:
        """Take any tensor."""
        return F.copy(x)


class Concat(Module):
    """`functional.concat`, so that quantization finds it.

    >>> Concat()([Tensor([1.0]), Tensor([2.0])]).tolist()
    [1.0, 2.0]
    """

    def forward(self, inps: Iterable[TensorLike], axis: int = 0) -> Tensor:
        """Take tensors of one shape but along `axis`."""
        return F.concat(list(inps), axis)


class Elemwise(Module):
    """An elementwise mode by its name, so that quantization finds it.

    Args:
        method: the name of a mode: "add", "mul", "relu", "fuse_add_relu", ...

    >>> Elemwise("fuse_add_relu")(Tensor([1.0]), Tensor([-3.0])).tolist()
    [0.0]
    """

    def __init__(self, method: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.method = method

    def forward(self, *inps: TensorLike) -> Tensor:
        """Take as many operands as the mode has."""
        return elwise(*inps, mode=self.method)


class Dropout(Module):
    """Zeros at random while training; afterwards the input.

    Args:
        drop_prob: how likely an element becomes zero; the others are divided by ``1 - drop_prob``.

    >>> layer = Dropout(0.5)
    >>> layer.eval()
    >>> layer(3.0)
    3.0
    """

    def __init__(self, drop_prob: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drop_prob = drop_prob

    def forward(self, inputs: TensorLike) -> TensorLike:
        """Take any float tensor."""
        return F.dropout(inputs, self.drop_prob, training=True) if self.training else inputs

    def _module_info_string(self) -> str:
        return f"drop_prob={self.drop_prob}"


class Pad(Module):
    """More elements at the ends of axes.

    Args:
        pad_width: for each axis how many before and after.
        mode: "constant", "reflect" or "replicate".
        constant_val: the value in mode "constant".

    >>> Pad(((1, 2),), constant_val=7.0)(Tensor([1.0])).tolist()
    [7.0, 1.0, 7.0, 7.0]
    """

    def __init__(
        self, pad_width: tuple[tuple[int, int], ...], mode: str = "constant", constant_val: float = 0.0
    ) -> None:
        super().__init__()
        self.pad_width = pad_width
        self.mode = mode
        self.pad_val = constant_val

    def forward(self, src: TensorLike) -> Tensor:
        """Take a tensor of as many axes as `pad_width` has entries."""
        return F.nn.pad(src, pad_width=self.pad_width, mode=self.mode, constant_value=self.pad_val)


class PixelShuffle(Module):
    """(..., C * r * r, H, W) to (..., C, H * r, W * r).

    Args:
        upscale_factor: r.

    >>> PixelShuffle(2)(Tensor([[[[1.0]], [[2.0]], [[3.0]], [[4.0]]]])).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    def __init__(self, upscale_factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.upscale_factor = upscale_factor

    def forward(self, x: TensorLike) -> Tensor:
        """Take a tensor of at least three axes."""
        return F.pixel_shuffle(x, self.upscale_factor)


class SlidingWindow(Module):
    """Every window of an image as an array of its own.

    Args:
        kernel_size: size of a window, one number or (height, width).
        padding: zeros around.
        stride: distance between windows.
        dilation: distance between elements of a window.
    """

    def __init__(
        self, kernel_size: Sizes, padding: Sizes = 0, stride: Sizes = 1, dilation: Sizes = 1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, H, W) to (N, C, OH, OW, KH, KW)."""
        return F.sliding_window(inp, self.kernel_size, self.padding, self.stride, self.dilation)


class SlidingWindowTranspose(Module):
    """Windows added up where they lay.

    Args:
        output_size: size of the image, one number or (height, width).
        kernel_size: size of a window.
        padding: what was around the image.
        stride: distance between windows.
        dilation: distance between elements of a window.
    """

    def __init__(
        self,
        output_size: Sizes,
        kernel_size: Sizes,
        padding: Sizes = 0,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride = stride
        self.dilation = dilation

    def forward(self, inp: TensorLike) -> Tensor:
        """Take (N, C, OH, OW, KH, KW) to (N, C, *output_size)."""
        return F.sliding_window_transpose(
            inp, self.output_size, self.kernel_size, self.padding, self.stride, self.dilation
        )


class QuantStub(Module):
    """Where quantized inference begins; does nothing before `quantization.quantize`."""

    def forward(self, inp: TensorLike) -> TensorLike:
        """Take any tensor."""
        return inp


class DequantStub(Module):
    """Where quantized inference ends; does nothing before `quantization.quantize`."""

    def forward(self, inp: TensorLike) -> TensorLike:
        """Take any tensor."""
        return inp
