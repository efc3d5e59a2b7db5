"""The trace in which definitions are recorded: nothing is known of inputs but their types and shapes."""

from __future__ import annotations

import numpy as np

from ...arrays.array import TracedArray
from ...base.errors import UnsupportedError
from ...build.random import seed_of_operator
from ...graph import params as P
from ...graph.dtypes import Array, DType, plain
from ...ops.registry import Shape
from ...tensors import Tensor, apply1
from ...tensors.access import (
    dtype_of,
    from_stored,
    recorded_variable,
    set_name,
    set_stored,
    stored,
    variable_of,
)
from ...tensors.convert import shape_tensor
from ...tracing.recorder import TraceRecorder
from ...tracing.recording import RecordedInput
from . import Untraceable

__all__ = ["Draws", "Session", "stored_type"]

_STORED = {"Int4": "Int8", "Int2": "Int8", "Uint4": "Uint8", "Uint2": "Uint8"}
_LARGE = 1024
"""Constants of more elements are looked up, so that a graph holds each once, by the name that the file gives it."""


def stored_type(dtype: DType) -> DType:
    """Return the type of a dump's graph that holds values of one of ONNX's types.

    Raises:
        UnsupportedError: there is none.
    """
    if dtype.name.startswith("Float8") or dtype.name == "Float4E2M1":
        return plain("Float32")
    if dtype.np.kind not in "biuf":
        raise UnsupportedError(f"{dtype.spelling} is not a type that MegEngine has")
    return plain(_STORED[dtype.name]) if dtype.name in _STORED else dtype


class Session(TraceRecorder):
    """Records operators; values are known of constants alone."""

    def __init__(self) -> None:
        super().__init__("lazy", fixed=True, symbolic_shape=True, places=False)
        self.recording.graph.exact = True
        self.large: dict[tuple[DType, Shape, int], Tensor] = {}

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stand-in for an input, whose value nobody may ask for."""
        stand_in = super().argument(name, tensor)
        set_stored(stand_in, None)
        return stand_in

    def detached(self, tensor: Tensor) -> bool:
        """Return whether the sizes of a tensor are numbers: all but those that data decide."""
        return not self.fluid(tensor)

    def measured(self, tensor: Tensor) -> None:
        """Refuse what takes a size that data decide as a number."""
        if self.fluid(tensor):
            raise Untraceable("it needs a size that depends on the model's inputs")

    def source(self, tensor: Tensor) -> RecordedInput:
        """Return what a tensor is to the recording; large constants of equal bytes are one."""
        if variable_of(tensor) is None and stored(tensor).size > _LARGE:
            tensor = self.large.setdefault(_key(stored(tensor), dtype_of(tensor)), tensor)
        return super().source(tensor)

    def remember(self, value: Array, dtype: DType, name: str) -> None:
        """Remember by which name the file knows a large constant."""
        if value.size > _LARGE:
            constant = from_stored(value, dtype, const=True)
            set_name(constant, name)
            self.large.setdefault(_key(value, dtype), constant)

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a constant.

        Raises:
            Untraceable: it is none.
        """
        var = recorded_variable(tensor)
        if var.id not in self.recording.static:
            raise Untraceable("it decides by a value that depends on the model's inputs")
        return self.evaluator.value(var)

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor; where data decide it, of some data that have an element along every axis."""
        var = recorded_variable(tensor)
        known = self.recording.known.shapes
        if var.id not in known:
            value = self.evaluator.value(var)
            if 0 in value.shape and value.size == 0:
                value = np.zeros([n or 1 for n in value.shape], value.dtype)
                self.evaluator.values[var.id] = value
            known[var.id] = value.shape
        return known[var.id]


def _key(value: Array, dtype: DType) -> tuple[DType, Shape, int]:
    return dtype, value.shape, hash(np.ascontiguousarray(value).tobytes())


class Draws:
    """Random numbers as definitions ask for them, drawn by MegEngine's operators."""

    def __init__(self, seed: int) -> None:
        self.seed = seed or seed_of_operator()

    def uniform(self, kind: str, shape: Shape, digits: int = 23) -> TracedArray:
        """Draw numbers from 0 to 1."""
        return self._drawn(kind, P.UniformRNG(seed=self.seed), shape)

    def normal(self, kind: str, shape: Shape, mean: float, scale: float, digits: int = 23) -> TracedArray:
        """Draw normally distributed numbers."""
        return self._drawn(kind, P.GaussianRNG(seed=self.seed, mean=mean, std=scale), shape)

    def _drawn(self, kind: str, param: P.Record, shape: Shape) -> TracedArray:
        drawn = apply1(kind, param, inputs=[shape_tensor(shape or (1,))], scalar=False)
        return TracedArray(drawn).reshape(shape)
