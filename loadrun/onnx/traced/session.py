"""The trace in which definitions are recorded: nothing is known of inputs but their types and shapes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ...arrays.array import TracedArray
from ...base.errors import EngineError, UnsupportedError
from ...graph import Var, params as P
from ...graph.dtypes import Array, DType, plain
from ...layers.random import seed_of_operator
from ...ops.infer import Inference, follow
from ...ops.registry import Shape
from ...tensors import Tensor, apply1
from ...tensors.access import (
    dtype_of,
    from_stored,
    recorded_variable,
    set_name,
    set_stored,
    stored,
    stored_shape,
    variable_of,
)
from ...tensors.convert import shape_tensor
from ...tensors.symbolic import as_number
from ...tracing.recording import RecordedInput, TraceRecorder
from . import Untraceable

_STORED = {"Int4": "Int8", "Int2": "Int8", "Uint4": "Uint8", "Uint2": "Uint8"}


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
    """Records operators; values are known of constants alone.

    Args:
        elsewhere: the shapes of inputs in other runs, by name: sizes that differ there are values of the graph, which
            then may run at others; all else are numbers.
    """

    def __init__(self, elsewhere: Sequence[Mapping[str, Shape]] = ()) -> None:
        super().__init__("lazy", fixed=True, symbolic_shape=True, places=False)
        self.recording.graph.exact = True
        self.constants: dict[tuple[DType, Shape, int], Tensor] = {}
        self.open = bool(elsewhere)
        self._runs = [({n: s or (1,) for n, s in shapes.items()}, Inference()) for shapes in elsewhere]
        self._followed = 0
        self._size_vars: set[int] = set()

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stand-in for an input, whose value nobody may ask for."""
        stand_in = super().argument(name, tensor)
        set_stored(stand_in, None)
        return stand_in

    def apply(
        self,
        type: str,
        params: tuple[P.Record, ...],
        inputs: Sequence[Tensor],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[Tensor]:
        """Record an operator, and note whether sizes alone decide its values."""
        outputs = super().apply(type, params, inputs, n, output_dtype, scalar)
        last = self.recording.entries[-1]
        if type == "GetVarShapeV1" and not self.fluid(inputs[0]):
            axis = last.opr.get(P.OptionalAxisV1).axis
            shape = np.array(self.shape(inputs[0]), np.int32)
            self.evaluator.values[last.opr.outputs[0].id] = shape if axis is None else shape[axis : axis + 1]
        elif not all(self.sized(s.var) for s in last.sources):
            return outputs
        self._size_vars.update(v.id for v in last.opr.outputs)
        return outputs

    def _elsewhere(self) -> list[Inference]:
        """Return what is known of variables in the other runs, where it follows from their sizes."""
        oprs = self.recording.graph.oprs
        for opr in oprs[self._followed :]:
            for shapes, known in self._runs:
                with suppress(EngineError):
                    follow(opr, known, shapes)
        self._followed = len(oprs)
        return [known for _, known in self._runs]

    def varies(self, tensor: Tensor, axis: int) -> bool:
        """Return whether a size differs in another run, or may."""
        var, size = recorded_variable(tensor), self.shape(tensor)[axis]
        shapes = [known.shapes.get(var.id) for known in self._elsewhere()]
        return not shapes or any(shape is None or shape[axis] != size for shape in shapes)

    def stays(self, var: Var) -> bool:
        """Return whether a value that sizes alone decide is the same in all runs."""
        here = self.evaluator.value(var)
        values = [known.values.get(var.id) for known in self._elsewhere()]
        return bool(values) and all(v is not None and np.array_equal(v, here) for v in values)

    def sized(self, var: Var) -> bool:
        """Return whether constants and sizes alone decide a value, so that it is known at these sizes."""
        return var.id in self._size_vars or var.id in self.recording.static

    def detached(self, tensor: Tensor) -> bool:
        """Return whether the sizes of a tensor are numbers: all but those that data decide, and open ones."""
        return super().detached(tensor) if self.open else not self.fluid(tensor)

    def measured(self, tensor: Tensor) -> None:
        """Refuse what takes a size that data decide as a number."""
        if self.fluid(tensor):
            raise Untraceable("it needs a size that depends on the model's inputs")

    def source(self, tensor: Tensor) -> RecordedInput:
        """Return what a tensor is to the recording; equal constants are one, by the name that the file gives it."""
        if variable_of(tensor) is None and stored(tensor).size > 1:
            tensor = self.constants.setdefault(_key(stored(tensor), dtype_of(tensor)), tensor)
        return super().source(tensor)

    def remember(self, value: Array, dtype: DType, name: str) -> None:
        """Remember by which name the file knows a constant."""
        if value.size > 1:
            constant = from_stored(value, dtype, const=True)
            set_name(constant, name)
            self.constants.setdefault(_key(value, dtype), constant)

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a constant.

        Raises:
            Untraceable: it is none.
        """
        var = recorded_variable(tensor)
        if var.id not in self.recording.static and not (self.sized(var) and self.stays(var)):
            what = (
                "a size that is left open"
                if self.sized(var)
                else "a value that depends on the model's inputs"
            )
            raise Untraceable(f"it decides by {what}")
        return self.evaluator.value(var)

    def froze(self) -> None:
        """Refuse code that keeps the number that an open size is in this recording."""
        if self.open:
            raise Untraceable("it needs a size that is left open as a number")

    def number(self, tensor: Tensor) -> Any:
        """Return a number that sizes alone decide, as a symbolic one where it varies.

        Raises:
            Untraceable: data decide it.
        """
        var = recorded_variable(tensor)
        if not self.sized(var):
            raise Untraceable("an input that decides the shape of its result depends on the model's inputs")
        value = self.evaluator.value(var)
        return value.item() if self.stays(var) else as_number(tensor, value)

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor; where data decide it, of some data that have an element along every axis."""
        var, known = variable_of(tensor), self.recording.known.shapes
        if var is None:
            return stored_shape(tensor)
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
