"""Random numbers: drawn as MegEngine's operators draw them, so that only their distribution is ONNX's."""

from collections.abc import Mapping
from typing import Any

from ...graph.composite import NodeTypes
from ...graph.dtypes import Array, DType
from ...ops.numeric.stream import Stream
from . import operator
from .common import like_first, tensor_type

_DIGITS = {"Float16": 10, "BFloat16": 7}
"""How many binary digits uniform numbers of a type have; 23 in others."""


def _kind(types: NodeTypes, attributes: Mapping[str, Any]) -> DType:
    """Return the type that ``dtype`` says, else that of the input, else Float32."""
    input_type = types.inputs[0] if types.inputs else None
    return tensor_type(attributes["dtype"]) if "dtype" in attributes else input_type or DType("Float32")


def _uniform(stream: Stream, shape: tuple[int, ...], low: float, high: float, types: NodeTypes) -> Array:
    drawn = stream.uniform("UniformRNGV1", shape, _DIGITS.get(types.outputs[0].name, 23))
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


def _normal(stream: Stream, shape: tuple[int, ...], mean: float, scale: float, types: NodeTypes) -> Array:
    return stream.normal("GaussianRNGV1", shape, mean, scale, _DIGITS.get(types.outputs[0].name, 23))


def _asked(*, shape: list[int], **others: object) -> tuple[int, ...]:
    return tuple(shape)


@operator("RandomUniform", out=(_kind,), shape=_asked)
def random_uniform(
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: list[int],
    stream: Stream,
    types: NodeTypes,
) -> Array:
    """Draw numbers spread evenly over an interval."""
    return _uniform(stream, tuple(shape), low, high, types)


@operator("RandomUniformLike", out=(_kind,), shape=like_first)
def random_uniform_like(
    x: Array,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    stream: Stream,
    types: NodeTypes,
) -> Array:
    """Draw as many numbers as another tensor has, spread evenly over an interval."""
    return _uniform(stream, x.shape, low, high, types)


@operator("RandomNormal", out=(_kind,), shape=_asked)
def random_normal(
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: list[int],
    stream: Stream,
    types: NodeTypes,
) -> Array:
    """Draw normally distributed numbers."""
    return _normal(stream, tuple(shape), mean, scale, types)


@operator("RandomNormalLike", out=(_kind,), shape=like_first)
def random_normal_like(
    x: Array,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    stream: Stream,
    types: NodeTypes,
) -> Array:
    """Draw as many normally distributed numbers as another tensor has."""
    return _normal(stream, x.shape, mean, scale, types)


@operator("Bernoulli", since=15, out=(_kind,), shape=like_first)
def bernoulli(
    x: Array, *, dtype: int | None = None, seed: float | None = None, stream: Stream, types: NodeTypes
) -> Array:
    """Draw 1 with the probability that each element says, else 0."""
    # The numbers are above 0 and reach 1.
    return (stream.uniform("UniformRNGV1", x.shape) <= x).astype(types.outputs[0].np)
