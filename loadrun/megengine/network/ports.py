"""Where values enter and leave a graph that is run node by node.

Source of semantics: MegEngine ``core/tensor/megbrain_graph.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.errors import UsageError
from ...graph import StoredTensor
from ...graph.params import Host2DeviceCopy as InputParam
from ...tensors.access import dtype_of, from_stored, static_shape, stored
from ...tensors.device import Device
from ...tensors.dtypes import graph_dtype
from ...tensors.value import Tensor
from .compiling import compute
from .nodes import VarNode, fresh_id
from .providers import Host2DeviceCopy
from .traversal import operators

__all__ = [
    "AttrOutputNode",
    "CallbackInput",
    "CallbackOutput",
    "InputNode",
    "OutputNode",
    "TensorAttr",
    "ValueOutputNode",
    "computed",
    "inputs_of",
]


class InputNode(Host2DeviceCopy):
    """An input whose value is set before outputs are requested.

    Args:
        args: accepted for MegEngine's sake.
        device: accepted for MegEngine's sake.
        dtype: its dtype.
        shape: its shape, where it is known.
        graph: the graph that it belongs to.
        use_static_shape: accepted for MegEngine's sake.
    """

    def __init__(
        self,
        *args: Any,
        device: object = None,
        dtype: Any = None,
        shape: Any = None,
        graph: object = None,
        use_static_shape: bool = False,
    ) -> None:
        super().__init__(shape or None, dtype, f"input_{fresh_id()}")
        if self.dtype is None:
            raise UsageError("an input needs a dtype")
        self._provide(StoredTensor(graph_dtype(self.dtype), self.shape, self._own_name), InputParam())
        self.value: Tensor | None = None
        self.outputs[0]._graph = graph

    def fed(self) -> Tensor:
        """Return the value of this run.

        Raises:
            UsageError: there is none.
        """
        if self.value is None:
            raise UsageError(f"{self.name} has no value; set_value gives it one")
        return self.value

    def set_value(self, value: Any) -> None:
        """Set the value of the next run."""
        self.value = value if isinstance(value, Tensor) else Tensor(value)

    def reset(self) -> None:
        """Forget the value."""
        self.value = None


class CallbackInput(InputNode):
    """An input whose value a function gives, once for every run.

    Args:
        callback: the function.
        named: what `InputNode` takes.
    """

    def __init__(self, callback: Callable[[], Any], **named: Any) -> None:
        super().__init__(**named)
        self.callback = callback

    def fed(self) -> Tensor:
        """Return the value of this run."""
        if self.value is None:
            self.set_value(self.callback())
        return super().fed()


class OutputNode:
    """An output whose value can be asked for.

    Args:
        var: the variable.
        args: accepted for MegEngine's sake.
    """

    def __init__(self, var: VarNode, *args: Any) -> None:
        self.outputs = [var]
        self.name = var.name

    @property
    def var(self) -> VarNode:
        """The variable."""
        return self.outputs[0]

    @property
    def inputs(self) -> list[VarNode]:
        """The variable, as what reads it has it."""
        return [self.var]

    @property
    def graph(self) -> Any:
        """The graph of the variable."""
        return self.var.graph

    def _computed(self) -> Tensor:
        return computed([self.var])[0]

    def get_value(self) -> Any:
        """Return the value as a Tensor, computed from what inputs are set to."""
        return self._computed()

    def drop_value(self) -> None:
        """Do nothing: no value is kept that could be dropped."""

    def reset(self) -> None:
        """Do nothing: no state is kept that could be reset."""


class CallbackOutput:
    """An output that a function takes in every run.

    Args:
        callback: the function.
        var: the variable.
    """

    def __init__(self, callback: Callable[[Any], Any], var: VarNode) -> None:
        self.callback = callback
        self.var = var

    @property
    def graph(self) -> Any:
        """The graph of the variable."""
        return self.var.graph


def inputs_of(variables: Sequence[VarNode]) -> list[InputNode]:
    """Return the inputs whose values are set, of all on which variables depend."""
    return [opr for opr in operators(variables) if isinstance(opr, InputNode)]


def computed(variables: Sequence[VarNode]) -> list[Tensor]:
    """Return the values of variables for what inputs are set to.

    Raises:
        UsageError: an input has no value.
    """
    feeds = {opr.name: stored(opr.fed()) for opr in inputs_of(variables)}
    values = compute(variables, feeds)
    return [from_stored(a, dtype_of(v))._dev_tensor() for a, v in zip(values, variables, strict=True)]


class ValueOutputNode(OutputNode):
    """An output whose value is given as an ndarray."""

    def get_value(self) -> Any:
        """Return the value as an ndarray."""
        return self._computed().numpy()


class TensorAttr:
    """Shape, dtype and device of a value."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: Device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device


class AttrOutputNode(OutputNode):
    """An output of which only shape, dtype and device are requested."""

    def get_value(self) -> Any:
        """Return shape, dtype and device of the value."""
        tensor = self._computed()
        return TensorAttr(static_shape(tensor), tensor.dtype, tensor.device)
