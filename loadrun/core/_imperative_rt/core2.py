"""Applying operators of `loadrun.core.ops.builtin`, under the name of ``megengine.core._imperative_rt.core2``."""

from ...imperative import Tensor
from ...imperative.opdefs import apply

__all__ = ["Tensor", "apply"]
