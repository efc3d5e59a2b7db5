"""Operators of torch on float16, which it computes in float32 and rounds once.

Where a lowering takes one step for such an operator, a step in float16 gives the same. Where it takes several, or reads
a number that float16 cannot hold, it gets float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..graph import Opr
from ..graph import params as P
from ..graph.dtypes import plain
from ..layers import emit as e
from ..tensors import Tensor
from ..tensors.access import dtype_of
from .call import FxCall

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
