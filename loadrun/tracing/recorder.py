"""The first call of a traced function: its operators are recorded."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from ..base.errors import EngineError, TraceError, TraceWarning
from ..graph import Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, plain
from ..graph.params import Host2DeviceCopy, Record
from ..ops.infer import follow, infer_dtypes
from ..ops.registry import Shape, implementation, pay_recorded
from ..tensors import access
from ..tensors.access import stored
from ..tensors.applying import execute, first_draws
from ..tensors.naming import Place, here, prefix, shown, title
from ..tensors.value import Tensor
from .recording import (
    Capture,
    Evaluator,
    Mode,
    RecordedInput,
    RecordedOpr,
    Recording,
    RunningTrace,
    constant,
    name_of,
    plain_title,
)


def loses_float64(oprs: Iterable[Opr]) -> bool:
    """Return whether some of the operators round float64 numbers to float32."""
    wide, narrow = plain("Float64"), plain("Float32")
    return any(
        o.type == "TypeCvtV2" and o.inputs[0].dtype == wide and o.outputs[0].dtype == narrow for o in oprs
    )


class TraceRecorder(RunningTrace):
    """The session of a function's first call.

    Args:
        mode: when operators are computed.
        fixed: whether tensors from outside are constants.
        symbolic_shape: whether sizes are values of the graph.
        alone: whether the graph is to run without the Python code, so that what is frozen deserves a warning.
        places: whether errors name the running line of Python; that of a program that reads a file tells nothing.
    """

    def __init__(
        self, mode: Mode, *, fixed: bool, symbolic_shape: bool, alone: bool = False, places: bool = True
    ) -> None:
        super().__init__(Recording(), symbolic_shape=symbolic_shape)
        self.mode = mode
        self.fixed = fixed
        self.places = places
        self.evaluator = Evaluator()
        self._alone = alone
        self._frozen: set[tuple[Place, str]] = set()
        self._outside: dict[tuple[int, int], Capture] = {}
        self._numbers: set[tuple[DType, Any]] = set()

    # What the tracer does

    def argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return a stand-in for an argument inside the function."""
        value = stored(tensor)
        var = self._input(name, access.dtype_of(tensor), value)
        self.recording.args[name] = var
        if access.is_scalar(tensor):
            self.recording.scalars.add(name)
        if access.tensor_name(tensor):
            self.recording.names[name] = access.tensor_name(tensor)
        return self._new_tensor(
            tensor.__class__, var, access.dtype_of(tensor), access.is_scalar(tensor), value
        )

    def _input(self, name: str, dtype: DType, value: Array) -> Var:
        stored = StoredTensor(dtype, value.shape, name)
        (var,) = self.recording.graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[stored]
        )
        var.dtype, var.shape = dtype, value.shape
        follow(var.owner, self.recording.known, {})
        self.evaluator.values[var.id] = value
        return var

    def _new_tensor(
        self, kind: type[Tensor], var: Var, dtype: DType, scalar: bool, value: Array | None
    ) -> Tensor:
        tensor = access.from_variable(var, dtype, scalar, self, kind=kind)
        access.set_stored(tensor, value)
        return tensor

    def source(self, tensor: Tensor) -> RecordedInput:
        """Return what a tensor is to the recording; one from outside becomes a constant or a graph input."""
        if access.session_of(tensor) is self:
            return RecordedInput(access.recorded_variable(tensor))
        value = stored(tensor)
        key = (id(tensor), id(value))
        capture = self._outside.get(key)
        if capture is None:
            fixed = self.fixed or access.is_constant(tensor)
            number = len(self.recording.captures)
            if fixed:
                var = constant(self.recording.graph, value, access.dtype_of(tensor), name_of(tensor))
                self._name_constant(var, tensor)
                self.recording.static.add(var.id)
            else:
                var = self._input(f"captured_{number}", access.dtype_of(tensor), value)
            infer_dtypes([var.owner])
            follow(var.owner, self.recording.known, {})
            self.evaluator.values[var.id] = value
            capture = self._outside[key] = Capture(var, tensor, value, fixed)
            self.recording.captures.append(capture)
        return RecordedInput(capture.var, capture.value, capture.fixed)

    def _name_constant(self, var: Var, tensor: Tensor) -> None:
        """Name a number after what uses it first: MegEngine keeps one of each."""
        if var.name is None and stored(tensor).size == 1:
            key = (access.dtype_of(tensor), stored(tensor).item())
            name = title(tensor)
            if name is not None and key not in self._numbers:
                var.owner.name = prefix() + name
            self._numbers.add(key)

    # What code inside the function does

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[Tensor],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[Tensor]:
        """Record an operator and, in the eager mode, compute it."""
        recording = self.recording
        place = here()
        pay_recorded()
        sources = tuple(self.source(x) for x in inputs)
        outs = recording.graph.add(
            type, *params, inputs=[s.var for s in sources], n_outputs=n, output_dtype=output_dtype
        )
        opr = outs[0].owner
        name = title()
        opr.name = "" if name == "" else prefix() + (name or plain_title(opr))
        try:
            infer_dtypes([opr])
            follow(opr, recording.known, {})
        except EngineError as e:
            recording.graph.oprs.pop()
            raise EngineError(f"{e}; in {shown(place)}" if self.places else str(e)) from e
        followed = all(v.id in recording.known.shapes for v in outs)
        if not scalar and not (followed and recording.fluid.isdisjoint(s.var.id for s in sources)):
            recording.fluid.update(v.id for v in outs)
        values: Sequence[Array | None] = [None] * n
        if self.mode == "eager":
            try:
                arrays = [stored(x) for x in inputs]
                computed, _ = execute(type, params, inputs, arrays, n, output_dtype, first_draws)
            except EngineError as e:
                recording.graph.oprs.pop()
                raise EngineError(f"{e}; in {shown(place)}" if self.places else str(e)) from e
            for var, value in zip(outs, computed, strict=True):
                recording.known.shapes[var.id] = value.shape
            values = computed
        if all(s.var.id in recording.static for s in sources) and not implementation(type).random:
            recording.static.update(v.id for v in outs)
        recording.entries.append(RecordedOpr(opr, sources, scalar, place))
        outputs = []
        for var, result in zip(outs, values, strict=True):
            assert var.dtype is not None
            outputs.append(self._new_tensor(Tensor, var, var.dtype, scalar, result))
        return outputs

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a tensor, which the code inside reads."""
        if self.mode == "never":
            raise TraceError(
                f"a value is read in {shown(here())}, but record_only=True computes nothing; trace with "
                "record_only=False, or leave the decision that needs the value out of the function"
            )
        if access.value_of(tensor) is None:
            access.set_stored(tensor, self.evaluator.value(access.recorded_variable(tensor)))
        return stored(tensor)

    def became(self, tensor: Tensor, kind: str) -> None:
        """Warn, once for each line, that code inside the function made a Python number of a value.

        Where later calls run the Python code again, they notice what changed.
        """
        if not self._alone or access.recorded_variable(tensor).id in self.recording.static:
            return
        place = here()
        if (place, kind) in self._frozen:
            return
        self._frozen.add((place, kind))
        said = (
            f"a traced value becomes a Python {kind} in {shown(place)}; what depends on it stays as in this call, "
            "whatever later inputs are: a branch that is not taken now is not in the graph. Compute with the tensor "
            "(where, maximum, cond_take), or decide outside the traced function"
        )
        warnings.warn_explicit(said, TraceWarning, *place)

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor; computes it where it depends on data."""
        shapes, var = self.recording.known.shapes, access.recorded_variable(tensor)
        if var.id not in shapes:
            shapes[var.id] = self.value(tensor).shape
        return shapes[var.id]

    def measured(self, tensor: Tensor) -> None:
        """Note that code inside the function took a size as a number."""
        if self.recording.measured is None:
            self.recording.measured = here()
        if self.recording.counted is None and self.fluid(tensor):
            self.recording.counted = here()

    def named(self, tensor: Tensor, name: str) -> None:
        """Note that code inside the function named a tensor."""
        var = access.recorded_variable(tensor)
        if var.owner.type != "Host2DeviceCopy":
            var.name = name or None

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""
        self.recording.excluded = here()
        super().leave()
