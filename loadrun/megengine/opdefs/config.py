"""`OperatorNodeConfig`: how an operator is to be made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import UsageError
from ...tensors.device import Device, placed
from ...tensors.dtypes import graph_dtype, numpy_dtype

__all__ = ["OperatorNodeConfig"]


class OperatorNodeConfig:
    """How an operator is to be made: its name, the dtype of its outputs, and its devices.

    >>> config = OperatorNodeConfig()
    >>> config.comp_node_arr = ["xpux", "cpu0:1"]
    >>> config.comp_node_arr[1].logical_name
    'cpu0:1'
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._dtype: Any = None
        self._devices: tuple[Device, ...] = ()

    @property
    def dtype(self) -> Any:
        """The numpy dtype, None for the operator's own."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._dtype = None if value is None else numpy_dtype(graph_dtype(value))

    @property
    def comp_node_arr(self) -> tuple[Device, ...]:
        """The devices."""
        return self._devices

    @comp_node_arr.setter
    def comp_node_arr(self, value: Sequence[str]) -> None:
        self._devices = tuple(placed(name) for name in value)

    @property
    def comp_node(self) -> Device:
        """The device, where there is exactly one.

        Raises:
            UsageError: there are none or several.
        """
        if len(self._devices) != 1:
            raise UsageError(
                f"invalid number of comp_node: comp_node is the one device, found {len(self._devices)}; "
                "comp_node_arr has them all"
            )
        return self._devices[0]

    @comp_node.setter
    def comp_node(self, value: str) -> None:
        self._devices = (placed(value),)
