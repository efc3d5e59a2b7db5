"""Random numbers: drawn again in every run of a dump, not the ones that torch draws."""

from typing import Any

import numpy as np

from ...layers import emit as e, random as R
from ..call import FxCall, as_array, as_tensor
from ..registry import aten
from ..sizes import as_size


def _drawn(shape: Any, normal: bool = False) -> Any:
    """Draw numbers between 0 and 1, or from the standard normal distribution; without axes one number."""
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else tuple(as_tensor(shape).shape)
    sizes = tuple(map(as_size, sizes))
    drawn = (R.normal if normal else R.uniform)(0, 1, sizes or (1,))
    return as_array(drawn) if sizes else as_array(e.reshape(as_tensor(drawn), ()))


for _name, _normal in (("rand", False), ("randn", True)):
    aten(f"aten.{_name}.default", f"aten.{_name}.generator", f"aten.{_name}_like.default")(
        lambda call, shape, *_, normal=_normal, **__: as_tensor(_drawn(shape, normal), call.dtype)
    )


@aten("aten.uniform.default")
def uniform(call: FxCall, x: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> Any:
    """Draw uniformly between two bounds, in a tensor's shape."""
    return as_tensor(_drawn(x) * np.float32(high - low) + np.float32(low), call.dtype)


@aten("aten.normal_functional.default")
def normal(call: FxCall, x: Any, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
    """Draw from a normal distribution, in a tensor's shape."""
    return as_tensor(_drawn(x, True) * np.float32(std) + np.float32(mean), call.dtype)


aten("aten.normal.float_float")(lambda call, mean, std, shape, **_: normal(call, shape, mean, std))


@aten("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor")
def normal_of_tensors(call: FxCall, mean: Any, std: Any = 1.0, **_: Any) -> Any:
    """Draw from a normal distribution of its own for every element."""
    mean, std = as_array(mean, call.dtype), as_array(std, call.dtype)
    shape = e.broadcast_shape([as_tensor(mean), as_tensor(std)])
    return as_tensor(_drawn(shape, True) * std + mean, call.dtype)


@aten(
    "aten.randint.low",
    "aten.randint.default",
    "aten.randint.generator",
    "aten.randint.low_generator",
    "aten.randint_like.default",
    "aten.randint_like.low_dtype",
)
def randint(call: FxCall, *args: Any, **__: Any) -> Any:
    """Draw integers in a range."""
    like = "_like" in str(call.node.target)
    shape = args[0] if like else args[-1]
    limits = args[1:] if like else args[:-1]
    low, high = (0, limits[0]) if len(limits) == 1 else limits[:2]
    return as_tensor(np.floor(_drawn(shape) * np.float32(high - low)) + np.float32(low), call.dtype)


@aten("aten.bernoulli.default", "aten.bernoulli.p")
def bernoulli(call: FxCall, x: Any, p: Any = None, **_: Any) -> Any:
    """Draw 1 with a probability, else 0."""
    return as_array(_drawn(x) < (as_array(x) if p is None else np.float32(p)), call.dtype)


@aten("aten.multinomial.default")
def multinomial(call: FxCall, x: Any, count: int, replacement: bool = False, **_: Any) -> Any:
    """Draw class indices by their weights, each at most once unless with replacement."""
    weights = as_array(x, np.float32)
    *lead, classes = as_tensor(weights).shape
    if replacement or count == 1:
        running = np.cumsum(weights, axis=-1)
        drawn = _drawn([*lead, count]) * running[..., -1:]
        # Strictly below, so that a class of weight zero is never drawn.
        indices = np.sum(as_array(drawn[..., None] >= running[..., None, :], "int32"), axis=-1)
        return as_array(np.minimum(indices, as_array(classes - 1, "int32")), call.dtype)
    # The first to arrive of exponential waiting times, whose rates are the weights.
    wait = -np.log(1 - _drawn([*lead, classes]))
    late = np.where(weights > 0, wait / np.where(weights > 0, weights, np.float32(1)), np.float32(np.inf))
    return as_array(np.argsort(late, axis=-1)[..., :count], call.dtype)


@aten("aten.randperm.default", "aten.randperm.generator")
def randperm(call: FxCall, n: Any, **_: Any) -> Any:
    """Return the integers below n in random order."""
    size = as_size(n)
    if type(size) is int and size == 0:
        return as_tensor(np.zeros(0), call.dtype)
    return as_array(np.argsort(_drawn([size]), axis=0), call.dtype)
