"""Helpers for complex lowerings: a call's operands as pairs, and the operator on real numbers."""

from __future__ import annotations

from typing import Any

from ...call import FxCall
from ...complex import Complex, pair
from ...registry import lowering_of

__all__ = ["on_real", "pairs"]


def pairs(call: FxCall, *values: Any) -> list[Complex]:
    """Return operands as pairs whose parts have the dtype of the call."""
    return [pair(v, call.dtype) for v in values]


def on_real(call: FxCall, *args: Any, **kwargs: Any) -> Any:
    """Lower a call as the same operator on real numbers."""
    lowering = lowering_of(str(call.node.target))
    assert lowering is not None
    return lowering.function(call, *args, **kwargs)
