"""`Tensor`, `Parameter` and `tensor` under the name of MegEngine's module.

``megengine.tensor`` is also the function that makes tensors, so the module can be called like it.

>>> from loadrun.megengine.tensor import Tensor
>>> Tensor([1, 2]).tolist()
[1, 2]
"""

import sys
from types import ModuleType
from typing import Any

from ..tensors import Parameter, Tensor, tensor

__all__ = ["Parameter", "Tensor", "tensor"]


class _Callable(ModuleType):
    """A module that makes tensors when it is called, and of which tensors are instances."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return tensor(*args, **kwargs)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Tensor)


sys.modules[__name__].__class__ = _Callable
