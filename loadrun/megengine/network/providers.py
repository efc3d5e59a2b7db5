"""Operators that provide values: graph inputs and constants.

Source of semantics: MegEngine ``utils/network_node.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageAssertionError, UsageError
from ...graph import Opr, StoredTensor
from ...graph.dtypes import Array, DType, encode
from ...graph.params import Host2DeviceCopy as InputParam
from ...tensors.access import set_device
from ...tensors.device import DEFAULT, Device, check_device
from ...tensors.dtypes import graph_dtype, narrowed, numpy_dtype
from ...tensors.value import Tensor
from .editing import SESSION
from .nodes import NodeVar, OpNode, VarNode, fresh_id

__all__ = ["ConstOpBase", "Host2DeviceCopy", "ImmutableTensor", "SharedDeviceTensor"]


class _Provider(OpNode):
    """An operator without inputs; its name is that of its variable."""

    def __init__(self, device: object = None) -> None:
        super().__init__()
        if device is not None:
            check_device(device)
        self._given = Device(device) if isinstance(device, str) else None
        self.device = self._given or DEFAULT

    @property
    def stored(self) -> StoredTensor:
        """Return the tensor that the operator holds."""
        tensor: StoredTensor = self.opr.tensors[0]
        return tensor

    @property
    def name(self) -> str:
        """The name of the variable."""
        if self.outputs and self.outputs[0].variable.name:
            return self.outputs[0].name
        return self._own_name or self._title or f"{self.type}[{self.opr.id}]"

    @name.setter
    def name(self, value: str | None) -> None:
        self._own_name = value or None
        if self.outputs:
            self.outputs[0].variable.name = value or None

    def _provide(self, tensor: StoredTensor, *params: Any) -> None:
        """Make the operator and its variable, or change them where they are."""
        if self._opr is None:
            self._opr = Opr(self.type, params, id=fresh_id(), comp_node=[])
            var = NodeVar(fresh_id(), self.opr, 0, tensor.name)
            var.dtype = tensor.dtype
            self.opr.outputs = [var]
            self.outputs = [VarNode.of_variable(var, self, SESSION)]
            set_device(self.outputs[0], self._given)
        self.opr.tensors = [tensor]
        self.refresh()

    def __repr__(self) -> str:
        return f"{self.name}{{{self.type}}}"


class Host2DeviceCopy(_Provider):
    """A graph input.

    Args:
        shape: its shape; other sizes may be fed as far as the graph allows.
        dtype: its dtype.
        name: its name.
        device: accepted for MegEngine's sake.
    """

    type = "Host2DeviceCopy"

    def __init__(
        self, shape: Any = None, dtype: Any = None, name: str | None = None, device: object = None
    ) -> None:
        super().__init__(device)
        self.shape: tuple[int, ...] | None = None if shape is None else tuple(int(n) for n in shape)
        self.dtype: Any = None if dtype is None else numpy_dtype(graph_dtype(dtype))
        self._own_name = name

    @classmethod
    def load(cls, opr: Opr) -> Host2DeviceCopy:
        """Return the node of an input, without its variable."""
        node = cls()
        node._opr = opr
        tensor = opr.tensors[0]
        node.shape, node.dtype = tensor.shape, numpy_dtype(tensor.dtype)
        return node

    def refresh(self) -> None:
        """Bring shape and dtype of the input up to date."""
        tensor = self.stored
        tensor.shape = None if self.shape is None else tuple(int(n) for n in self.shape)
        tensor.dtype = graph_dtype(self.dtype)
        if self.outputs:
            tensor.name = self.outputs[0].variable.name
        super().refresh()

    def compile(self, graph: Any = None) -> None:
        """Make the input and its variable where they are not there yet."""
        if self._opr is not None:
            self.refresh()
            return
        if self.shape is None or self.dtype is None:
            raise UsageError(f"the input {self._own_name or ''} needs shape and dtype")
        self._provide(StoredTensor(graph_dtype(self.dtype), self.shape, self._own_name), InputParam())


class ConstOpBase(_Provider):
    """A constant.

    Args:
        data: its value.
        name: its name.
        device: accepted for MegEngine's sake.
        graph: the graph that it belongs to.
    """

    type = "ConstOpBase"

    def __init__(
        self, data: Any = None, name: str | None = None, device: object = None, graph: object = None
    ) -> None:
        if type(self) is ConstOpBase:
            raise UsageAssertionError("a constant is an ImmutableTensor or a SharedDeviceTensor")
        super().__init__(device)
        self._own_name = name
        if data is not None:
            self.set_value(data)
            self.outputs[0]._graph = graph

    @classmethod
    def load(cls, opr: Opr) -> ConstOpBase:
        """Return the node of a constant, without its variable."""
        node = cls()
        node._opr = opr
        return node

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.outputs[0].partial_shape

    @property
    def dtype(self) -> Any:
        """The numpy dtype of the value."""
        return numpy_dtype(self.stored.dtype)

    def numpy(self) -> Array:
        """Return the value."""
        return self.stored.value().view(self.dtype)

    def set_value(self, data: Any, device: object = None) -> None:
        """Make it another value; 64-bit numbers become 32-bit ones.

        Args:
            data: a number, a nested list of numbers, or an ndarray.
            device: accepted for MegEngine's sake.

        Raises:
            UsageError: none of these.
        """
        numbers = isinstance(data, (int, float, Sequence, np.ndarray, np.generic)) and not isinstance(
            data, str
        )
        if isinstance(data, Tensor) or not numbers:
            raise UsageAssertionError(
                f"a constant is a number, a list or an ndarray, found {type(data).__name__}"
            )
        value, dtype = narrowed(np.asarray(data))
        value = np.ascontiguousarray(value.reshape(value.shape or (1,)))
        name = self.outputs[0].variable.name if self.outputs else self._own_name
        tensor = StoredTensor(dtype, value.shape, name, encode(value, dtype))
        self._provide(tensor)

    def compile(self, graph: Any = None) -> None:
        """Bring the constant up to date."""
        self.refresh()


class ImmutableTensor(ConstOpBase):
    """A constant."""

    type = "ImmutableTensor"


class SharedDeviceTensor(ConstOpBase):
    """A constant, as which MegEngine stores weights that have names."""

    type = "SharedDeviceTensor"


def constant_node(value: Array, dtype: DType, name: str | None) -> VarNode:
    """Return the variable of a new constant."""
    node = ImmutableTensor()
    tensor = StoredTensor(dtype, value.shape, name, encode(value, dtype))
    node._provide(tensor)
    return node.outputs[0]
