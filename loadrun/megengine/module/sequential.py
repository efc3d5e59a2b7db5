"""Modules one behind the other (MegEngine's ``module/sequential.py``)."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from ...tensors import TensorLike
from .module import Module


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
