"""The context of a lowering: the node that it replaces, and its dtypes where torch computes float16 in float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..graph import Opr
from ..graph import params as P
from ..graph.dtypes import plain
from ..layers import emit as e
from ..tensors import Tensor, TracedNumber
from ..tensors.access import dtype_of
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


# Operators of torch on float16, which it computes in float32 and rounds once.
#
# Where a lowering takes one step for such an operator, a step in float16 gives the same. Where it takes
# several, or reads a number that float16 cannot hold, it gets float32.

_HALF, _LEAST, _MOST = plain("Float16"), 2.0**-14, 65504.0
_STEPS = (P.Elemwise, P.Reduce, P.MatrixMul)
_IN_STEPS = frozenset(
    (
        *("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "relu", "relu6", "hardtanh", "where"),
        *("nan_to_num", "linear", "addmm", "baddbmm", "addmv"),
        *("linalg_cross", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    )
)
"""Operators that choose among numbers, so that no step rounds; products, whose weights stay float16; and those of which
torch itself rounds the steps."""
_ROUNDED = ("aten.pow.Tensor_Scalar", "aten.pow.Scalar")
"""Operators of which torch rounds the numbers to float16, too."""


def is_half(call: FxCall) -> bool:
    """Tell whether a call takes or gives float16."""
    fakes = pytree.tree_leaves((call.fake, call.fakes, call.named))
    return any(isinstance(fake, torch.Tensor) and fake.dtype is torch.float16 for fake in fakes)


def needs_float32(name: str, call: FxCall) -> bool:
    """Tell whether a number among the arguments is none of float16, or another tensor without axes stands for one."""
    if name in _ROUNDED:
        return False
    for leaf in pytree.tree_leaves((call.fakes, call.named)):
        if isinstance(leaf, float) and math.isfinite(leaf) and leaf and not _LEAST <= abs(leaf) <= _MOST:
            return True
        if isinstance(leaf, torch.Tensor) and not leaf.shape and leaf.dtype in (torch.float32, torch.float64):
            return True
    return False


def rounds_often(name: str, oprs: Iterable[Opr]) -> bool:
    """Tell whether the operators that were recorded for one of torch's round to float16 several times."""
    steps = [o for o in oprs if o.params and isinstance(o.params[0], _STEPS)]
    return sum(o.outputs[0].dtype == _HALF for o in steps) > 1 and name.split(".")[1] not in _IN_STEPS


def widened(args: Sequence[Any]) -> list[Any]:
    """Return arguments with float32 in place of float16."""

    def wide(leaf: Any) -> Any:
        return e.cast(leaf, "float32") if isinstance(leaf, Tensor) and dtype_of(leaf) == _HALF else leaf

    changed: list[Any] = torch.fx.node.map_aggregate(list(args), wide)
    return changed
