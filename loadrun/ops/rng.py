"""Random operators: the numbers of MegEngine's naive rng and dropout kernels for a seed.

In a graph each operator draws from a stream of its own that its seed in the file starts, anew in every run.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TypeVar

import numpy as np

from ..graph import Opr, params as P
from ..graph.dtypes import Array, DType, plain
from .numeric import rejection
from .numeric.stream import Draw, Stream
from .registry import FLOATS, Call, Shape, ShapeCall, alike, and_int32, kernel, same_shape
from .shape import known_value, target_shape

R = TypeVar("R", bound=P.Record)


def drawing_from(source: Stream | Draw, param: R) -> R:
    """Return the record, marked so that its operator draws from `source` and not from the stream of eager operators.

    The mark is not part of a file, and a run of a graph that draws from the seeds of its operators ignores it.

    >>> drawing_from(Stream(1), P.UniformRNG(seed=1)) == P.UniformRNG(seed=1)
    False
    """
    param.__dict__["source"] = source
    return param


def _digits(dtype: DType) -> int:
    """Return how many binary digits a uniform number of a dtype has."""
    return {"Float16": 10, "BFloat16": 7}.get(dtype.name, 23)


def _float_of(name: str) -> DType:
    dtype = plain(name)
    if not dtype.is_float:
        raise ValueError(f"the numbers must be floating-point, found {name}")
    return dtype


def _given_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (target_shape(known_value(s, 0)),)


def _sample(c: Call, value: Array | float, shape: Shape) -> Array:
    return np.asarray(value).reshape(shape).astype(c.outputs[0].np)


def _one_by_one(c: Call, draw: Callable[..., np.float32], *parameters: Array) -> Array:
    """Draw one number for every element of the parameters, from as many uniform numbers as it takes."""
    uniform = partial(c.stream().single, c.opr.type)
    values = zip(*(x.reshape(-1).astype(np.float32) for x in parameters), strict=True)
    drawn = [draw(uniform, *row) for row in values]
    return _sample(c, np.array(drawn, np.float32), parameters[0].shape)


def _uniform(c: Call, shape: Shape) -> Array:
    """Draw float32 numbers in (0, 1]."""
    return c.stream().uniform(c.opr.type, shape)


@kernel(
    "UniformRNGV1",
    dtype=lambda opr, inputs: (_float_of(opr.get(P.UniformRNG).dtype.name),),
    shape=_given_shape,
)
def uniform(c: Call, shape: Array) -> Array:
    """Draw numbers uniformly from (0, 1]."""
    want = target_shape(shape)
    return _sample(c, c.stream().uniform(c.opr.type, want, _digits(c.outputs[0])), want)


@kernel(
    "GaussianRNGV1",
    dtype=lambda opr, inputs: (_float_of(opr.get(P.GaussianRNG).dtype.name),),
    shape=_given_shape,
)
def gaussian(c: Call, shape: Array) -> Array:
    """Draw normally distributed numbers with the parameters `mean` and `std`."""
    p = c.get(P.GaussianRNG)
    want = target_shape(shape)
    return _sample(c, c.stream().normal(c.opr.type, want, p.mean, p.std, _digits(c.outputs[0])), want)


def _paired(a: Shape, b: Shape) -> Shape:
    if prod(a) != prod(b):
        raise ValueError(f"the inputs must have equal numbers of elements, found {list(a)}, {list(b)}")
    return a


def _paired_shape(s: ShapeCall) -> Sequence[Shape | None]:
    return (_paired(s.shape(0), s.shape(1)),)


@kernel("GammaRNG", dtype=alike(*FLOATS), shape=_paired_shape)
def gamma(c: Call, shape: Array, scale: Array) -> Array:
    """Draw one gamma distributed number per element, 0 if the shape parameter is not positive.

    Raises:
        ValueError: the inputs have different numbers of elements.
    """
    _paired(shape.shape, scale.shape)
    return _one_by_one(c, rejection.gamma, shape, scale)


@kernel("BetaRNG", dtype=alike(*FLOATS), shape=_paired_shape)
def beta(c: Call, alpha: Array, beta: Array) -> Array:
    """Draw one beta distributed number per element; a parameter that is not positive counts as the limit 0.

    Raises:
        ValueError: the inputs have different numbers of elements.
    """
    _paired(alpha.shape, beta.shape)
    return _one_by_one(c, rejection.beta, alpha, beta)


@kernel("PoissonRNG", dtype=alike(*FLOATS), shape=same_shape)
def poisson(c: Call, mean: Array) -> Array:
    """Draw one Poisson distributed number per element, 0 if the mean is not positive."""
    return _one_by_one(c, rejection.poisson, mean)


@kernel("ExponentialRNG", dtype=alike(*FLOATS), shape=same_shape)
def exponential(c: Call, rate: Array) -> Array:
    """Draw one exponentially distributed number of that rate per element."""
    return _sample(c, -np.log(_uniform(c, rate.shape)) / rate.astype(np.float32), rate.shape)


def _permutation_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    name = opr.get(P.PermutationRNG).dtype.name
    if name not in ("Float32", "Int32", "Int16"):
        raise ValueError(f"a permutation is Float32, Int32 or Int16, not {name}")
    return (plain(name),)


@kernel("PermutationRNG", dtype=_permutation_dtype, shape=_given_shape)
def permutation(c: Call, shape: Array) -> Array:
    """Shuffle the numbers from 0.

    Raises:
        ValueError: more numbers than the dtype can tell apart.
    """
    want = target_shape(shape)
    dtype = c.outputs[0].np
    if dtype.kind == "i" and prod(want) >= np.iinfo(dtype).max - 1:
        raise ValueError(f"{prod(want)} numbers do not fit into {c.outputs[0]}")
    return _sample(c, c.stream().permutation(c.opr.type, prod(want)), want)


@kernel("ShuffleRNG", dtype=and_int32, shape=lambda s: (s.shape(0), s.shape(0)[:1]))
def shuffle(c: Call, x: Array) -> tuple[Array, Array]:
    """Shuffle the entries along the first axis; also return where each was before.

    MegEngine's CPU kernel moves too few elements when there are three dimensions or more; here whole entries move.
    """
    at = c.stream().permutation(c.opr.type, x.shape[0]).astype(np.int32)
    return x[at], at


def _multinomial_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if not inputs[0].is_float:
        raise ValueError(f"the probabilities must be floating-point, found {inputs[0]}")
    return (plain("Int32"),)


def _multinomial(p: P.MultinomialRNG, shape: Shape) -> Shape:
    if len(shape) != 2:
        raise ValueError(f"the probabilities must be a matrix, found shape {list(shape)}")
    if not p.replacement and p.num_samples > shape[1]:
        raise ValueError(f"cannot draw {p.num_samples} of {shape[1]} without replacement")
    if p.num_samples and not shape[1]:
        raise ValueError(f"there is nothing to draw from in shape {list(shape)}")
    return (shape[0], p.num_samples)


@kernel(
    "MultinomialRNG",
    dtype=_multinomial_dtype,
    shape=lambda s: (_multinomial(s.get(P.MultinomialRNG), s.shape(0)),),
)
def multinomial(c: Call, probs: Array) -> Array:
    """Draw `num_samples` positions for every row of probabilities.

    With replacement a row is taken as it is, and what is missing to a sum of 1 falls to its last position.

    Raises:
        ValueError: no matrix, or more samples than positions without replacement.
    """
    p = c.get(P.MultinomialRNG)
    rows, n = _multinomial(p, probs.shape)
    weights = probs.astype(np.float64)
    if not p.replacement:
        keys = -np.log(_uniform(c, probs.shape)) / weights
        return keys.argsort(axis=1)[:, :n].astype(np.int32)
    drawn = _uniform(c, (rows, n))
    positions = [np.searchsorted(w, u) for w, u in zip(weights.cumsum(1), drawn, strict=True)]
    return np.minimum(np.array(positions).reshape(rows, n), probs.shape[1] - 1).astype(np.int32)


def _dropout_dtype(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    if not inputs[0].is_float:
        raise ValueError(f"dropout takes floating-point numbers, found {inputs[0]}")
    return (inputs[0], plain("Byte"))


@kernel("Dropout", dtype=_dropout_dtype, shape=lambda s: (s.shape(0), (prod(s.shape(0)),)))
def dropout(c: Call, x: Array) -> tuple[Array, Array]:
    """Zero each element with probability `drop_prob` and scale the others to keep the mean.

    The second output holds one byte per element in a single dimension, 1 for those kept.
    """
    prob = np.float32(c.get(P.Dropout).drop_prob)
    kept = _uniform(c, x.shape) >= prob
    scale = np.float32(1) / (np.float32(1) - prob)
    out = np.where(kept, x.astype(np.float32, copy=False) * scale, np.float32(0))
    return out.astype(x.dtype, copy=False), kept.reshape(-1).astype(np.uint8)
