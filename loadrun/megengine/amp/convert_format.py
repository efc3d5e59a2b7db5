"""Tensors and modules in the format nhwc, by MegEngine's functions: values and shapes stay, `.format` tells."""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

from ...tensors import Tensor
from ..module import Module

__all__ = ["convert_module_format", "convert_tensor_format"]

M = TypeVar("M", bound=Module)


def convert_tensor_format(x: Tensor, inplace: bool = True) -> Tensor:
    """Return a tensor of 4 or 5 dimensions in the format nhwc; any other tensor as it is.

    Args:
        x: any tensor.
        inplace: change the tensor itself.

    >>> from loadrun.megengine.functional import ones
    >>> convert_tensor_format(ones((1, 3, 4, 5))).format, convert_tensor_format(ones((3,))).format
    ('nhwc', 'default')
    """
    if x.ndim not in (4, 5) or x.format == "nhwc":
        return x
    tensor = x if inplace else x.detach()
    tensor.format = "nhwc"
    return tensor


def convert_module_format(module: M, inplace: bool = True) -> M:
    """Return a module with all parameters and buffers of 4 and 5 dimensions in the format nhwc.

    Args:
        module: any module.
        inplace: change the module itself instead of a copy.

    >>> from loadrun.megengine.module import Conv2d
    >>> convert_module_format(Conv2d(3, 4, 3)).weight.format
    'nhwc'
    """
    converted = module if inplace else deepcopy(module)
    for tensor in converted.tensors():
        convert_tensor_format(tensor)
    return converted
