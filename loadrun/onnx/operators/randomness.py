"""Random numbers: drawn as MegEngine's operators draw them, so that only their distribution is ONNX's."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...graph.composite import NodeTypes
from ...graph.dtypes import Array, DType
from ...ops.numeric.stream import Stream
from . import operator
from .common import like_first, taking, tensor_type

_DIGITS = {"Float16": 10, "BFloat16": 7}
"""How many binary digits uniform numbers of a type have; 23 in others."""


def _kind(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type that ``dtype`` says, else that of the input, else Float32."""
    input_type = types.inputs[0] if types.inputs else None
    return tensor_type(attributes["dtype"]) if "dtype" in attributes else input_type or DType("Float32")


def _asked(*, shape: list[int], **others: object) -> tuple[int, ...]:
    return tuple(shape)


@operator("RandomUniform", out=(_kind,), shape=_asked)
@taking(dtype=None, seed=None)
def random_uniform(
    *,
    high: float = 1.0,
    low: float = 0.0,
    shape: Sequence[int],
    stream: Stream,
    types: NodeTypes,
    **_: object,
) -> Array:
    """Draw numbers spread evenly over an interval."""
    drawn = stream.uniform("UniformRNGV1", tuple(shape), _DIGITS.get(types.outputs[0].name, 23))
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


@operator("RandomUniformLike", out=(_kind,), shape=like_first)
@taking(dtype=None, high=1.0, low=0.0, seed=None)
def random_uniform_like(x: Array, *, stream: Stream, types: NodeTypes, **how: Any) -> Array:
    """Draw as many numbers as another tensor has, spread evenly over an interval."""
    return random_uniform(shape=x.shape, stream=stream, types=types, **how)


@operator("RandomNormal", out=(_kind,), shape=_asked)
@taking(dtype=None, seed=None)
def random_normal(
    *,
    mean: float = 0.0,
    scale: float = 1.0,
    shape: Sequence[int],
    stream: Stream,
    types: NodeTypes,
    **_: object,
) -> Array:
    """Draw normally distributed numbers."""
    digits = _DIGITS.get(types.outputs[0].name, 23)
    return stream.normal("GaussianRNGV1", tuple(shape), mean, scale, digits)


@operator("RandomNormalLike", out=(_kind,), shape=like_first)
@taking(dtype=None, mean=0.0, scale=1.0, seed=None)
def random_normal_like(x: Array, *, stream: Stream, types: NodeTypes, **how: Any) -> Array:
    """Draw as many normally distributed numbers as another tensor has."""
    return random_normal(shape=x.shape, stream=stream, types=types, **how)


@operator("Bernoulli", since=15, out=(_kind,), shape=like_first)
def bernoulli(
    x: Array, *, dtype: int | None = None, seed: float | None = None, stream: Stream, types: NodeTypes
) -> Array:
    """Draw 1 with the probability that each element says, else 0."""
    # The numbers are above 0 and reach 1.
    return (stream.uniform("UniformRNGV1", x.shape) <= x).astype(types.outputs[0].np)
