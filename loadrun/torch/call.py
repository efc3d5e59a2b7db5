"""The context of a lowering: the node that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..tensors import TracedNumber
from .registry import DynamicSizeError
from .values import narrow

_SYMBOLIC = (torch.SymInt, torch.SymFloat)


class FxCall:
    """One call in an exported graph.

    Args:
        node: the node.
        fakes: its arguments as torch's shape inference sees them: fake tensors, numbers, symbolic sizes.
        named: its keyword arguments alike.

    Attributes:
        fake: torch's fake value of the result: a fake tensor, or a tuple of them.
    """

    def __init__(self, node: Any, fakes: Sequence[Any], named: dict[str, Any]) -> None:
        self.node = node
        self.fakes = fakes
        self.named = named
        self.fake = node.meta.get("val")
        self._wide = False

    def in_float32(self) -> FxCall:
        """Return the call with float32 in place of float16."""
        call = FxCall(self.node, self.fakes, self.named)
        call._wide = True
        return call

    def _narrow(self, dtype: torch.dtype) -> np.dtype[Any]:
        return narrow(torch.float32 if self._wide and dtype is torch.float16 else dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the (first) result in the graph."""
        first = self.fake[0] if isinstance(self.fake, (tuple, list)) else self.fake
        return self._narrow(first.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the (first) result as torch knows it; its sizes may be symbolic."""
        first = self.fake[0] if isinstance(self.fake, (tuple, list)) else self.fake
        return tuple(first.shape)

    def common(self, *places: int) -> np.dtype[Any]:
        """Return the dtype to which torch promotes these arguments together, all of them by default."""
        fakes = [self.fakes[i] for i in places] if places else list(self.fakes)
        first: Any = fakes[0]
        if len(fakes) == 1:
            return self._narrow(first.dtype)
        kind = torch.result_type(_promotable(fakes[0]), _promotable(fakes[1]))
        for other in fakes[2:]:
            kind = torch.promote_types(kind, torch.result_type(_promotable(other), _promotable(other)))
        return self._narrow(kind)

    def static(self, sizes: Sequence[Any], what: str) -> list[int]:
        """Require sizes that are numbers, because an operator of MegEngine has them as parameters.

        Raises:
            DynamicSizeError: one of them is symbolic.
        """
        numbers = [n.node.maybe_as_int() if isinstance(n, torch.SymInt) else n for n in sizes]
        if any(not isinstance(n, int) or isinstance(n, TracedNumber) for n in numbers):
            # Of a number of the graph torch's own stands among the arguments.
            known = [n for n in sizes if isinstance(n, torch.SymInt)] or pytree.tree_leaves(
                (self.fakes, self.named)
            )
            raise DynamicSizeError(
                f"{what} depends on a dynamic size {[*map(str, sizes)]}; make this axis static",
                [s for n in known if isinstance(n, _SYMBOLIC) for s in n.node.expr.free_symbols],
            )
        return [int(n) for n in numbers]

    def shape_of(self, place: int) -> tuple[Any, ...]:
        """Return the shape of a tensor argument as torch knows it."""
        return tuple(self.fakes[place].shape)


def _promotable(value: Any) -> Any:
    """Replace a symbolic number by one that torch promotes."""
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else True if isinstance(value, torch.SymBool) else value


def axis_of(axis: int, ndim: int) -> int:
    """Count an axis from the front."""
    return axis % ndim if ndim else 0


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Count the axes of a reduction from the front: one, several, or all if none is given."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(ndim))
    dims = axes if isinstance(axes, (list, tuple)) else [axes]
    return tuple(sorted({axis_of(a, ndim) for a in dims})) if ndim else ()
