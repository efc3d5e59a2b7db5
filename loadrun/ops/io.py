"""Operators that hold tensors, pass data on, or check it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Opr
from ..graph.dtypes import Array, DType, plain
from ..graph.params import DTypeEnum, DTypeScalar, MGBAddUpdate
from .registry import Call, Shape, ShapeCall, first_input, kernel


def _stored_dtypes(opr: Opr, inputs: tuple[DType, ...]) -> Sequence[DType]:
    return [t.dtype for t in opr.tensors]


def _stored_shapes(s: ShapeCall) -> Sequence[Shape | None]:
    return [t.shape for t in s.opr.tensors]


@kernel(
    "ImmutableTensor",
    "SharedDeviceTensor",
    "VolatileSharedDeviceTensor",
    "SharedDeviceTensorWithFormat",
    "MultipleDeviceTensorHolder",
    "MultipleDeviceTensorWithFormatHolder",
    dtype=_stored_dtypes,
    shape=_stored_shapes,
)
def constants(c: Call) -> tuple[Array, ...]:
    """Return the stored tensors as read-only views: a graph built in memory shares the arrays."""
    arrays = tuple(t.value().view() for t in c.opr.tensors)
    for array in arrays:
        array.flags.writeable = False
    return arrays


@kernel("Host2DeviceCopy", dtype=_stored_dtypes, shape=_stored_shapes)
def graph_input(c: Call) -> Array:
    """Return the default value of an input that was not fed (dump_default_value)."""
    return c.opr.tensors[0].value()


@kernel("Copy", "Identity", "MarkDynamicVar", "MarkNoBroadcastElemwise", "PersistentOutputStorage", "Sleep")
def forward(c: Call, x: Array) -> Array:
    """Return the input, unchanged; Sleep does not wait, since replaying needs no delay."""
    return x


@kernel("VirtualDep")
def virtual_dep(c: Call, x: Array, *_: Array) -> Array:
    """Return the first input; the others only order execution."""
    return x


@kernel("AssertEqual")
def assert_equal(c: Call, expect: Array, get: Array, err: Array) -> Array:
    """Return the expected value; whether `err` is within `maxerr` is judged by the runner."""
    return expect


@kernel("AddUpdate", dtype=first_input)
def add_update(c: Call, dest: Array, delta: Array) -> Array:
    """Compute ``alpha * dest + beta * delta + bias``; the stored tensor itself stays as the file has it."""

    def number(s: DTypeScalar) -> float:
        dtype = DType(DTypeEnum(s.dtype).name)
        return float(np.frombuffer(s.storage, dtype.np.newbyteorder("<"), 1)[0])

    p = c.get(MGBAddUpdate)
    kind = c.outputs[0].np.type
    alpha, beta, bias = (kind(number(s)) for s in (p.alpha, p.beta, p.bias))
    return np.asarray(alpha * dest + beta * delta + bias, c.outputs[0].np)


@kernel(
    "CheckNonFinite", dtype=lambda opr, inputs: (*inputs, plain("Int32")), shape=lambda s: (*s.shapes, (1,))
)
def check_non_finite(c: Call, *xs: Array) -> tuple[Array, ...]:
    """Return the inputs as they are (MegEngine's CPU build ignores `scale`), and 1 when any is not finite, else 0."""
    bad = any(not np.isfinite(x).all() for x in xs)
    return (*xs, np.array([bad], np.int32))
