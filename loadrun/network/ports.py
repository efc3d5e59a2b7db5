"""Where values enter and leave a graph that is run node by node.

Source of semantics: MegEngine ``core/tensor/megbrain_graph.py``.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import Array
from ..errors import UsageError
from ..graph import StoredTensor
from ..imperative.device import Device
from ..imperative.dtypes import graph_dtype
from ..imperative.value import Tensor
from ..params import Host2DeviceCopy as InputParam
from .compiling import compute
from .nodes import VarNode, fresh_id
from .providers import Host2DeviceCopy
from .traversal import operators

__all__ = ["AttrOutputNode", "InputNode", "OutputNode", "TensorAttr", "ValueOutputNode"]


class InputNode(Host2DeviceCopy):
    """An input whose value is set before outputs are asked for.

    Args:
        args: accepted for MegEngine's sake.
        device: accepted for MegEngine's sake.
        dtype: its dtype.
        shape: its shape, where it is known.
        graph: accepted for MegEngine's sake.
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

    def set_value(self, value: Any) -> None:
        """Set the value of the next run."""
        self.value = value if isinstance(value, Tensor) else Tensor(value)

    def reset(self) -> None:
        """Forget the value."""
        self.value = None


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

    def _computed(self) -> Tensor:
        feeds: dict[str, Array] = {}
        for opr in operators([self.var]):
            if isinstance(opr, InputNode):
                if opr.value is None:
                    raise UsageError(f"{opr.name} has no value; set_value gives it one")
                feeds[opr.name] = opr.value._stored()
        (value,) = compute([self.var], feeds)
        return Tensor._of(value, self.var._dtype)

    def get_value(self) -> Any:
        """Return the value as a Tensor, computed from what inputs are set to."""
        return self._computed()

    def drop_value(self) -> None:
        """Accepted for MegEngine's sake; nothing is kept."""

    def reset(self) -> None:
        """Accepted for MegEngine's sake; nothing is kept."""


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
    """An output of which only shape, dtype and device are asked for."""

    def get_value(self) -> Any:
        """Return shape, dtype and device of the value."""
        found = self._computed()
        return TensorAttr(found._tuple_shape, found.dtype, found.device)
