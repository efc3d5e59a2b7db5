"""Lowerings of numpy functions on sequences: differences of neighbours."""

from typing import Any

from ..layers import emit as e
from ..layers.emit import M, elem
from ..tensors import Tensor
from .axes import axis_of
from .joining import concatenate
from .promotion import operand
from .registry import lowers


def _cut(x: Tensor, axis: int, begin: Any, end: Any) -> Tensor:
    return e.subtensor(x, [(axis, begin, end, None, None)])


@lowers("diff")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Return differences of neighbours."""
    x = operand(a)
    at = axis_of(axis, len(e.sizes(x)))
    parts: list[Any] = [x]
    for extra, before in ((prepend, True), (append, False)):
        if extra is not None:
            part = operand(extra)
            if not e.sizes(part):
                part = e.broadcast(part, (*x.shape[:at], 1, *x.shape[at + 1 :]))
            parts.insert(0 if before else len(parts), part)
    if len(parts) > 1:
        x = concatenate(parts, at)
    for _ in range(n):
        late, early = _cut(x, at, 1, None), _cut(x, at, None, -1)
        x = elem(M.XOR if e.is_bool(x) else M.SUB, late, early)
    return x
