"""Samples joined to batches.

Source of semantics: MegEngine ``data/collator.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageTypeError

__all__ = ["Collator"]


class Collator:
    """Joins samples to a batch, container by container.

    >>> Collator().apply([(1, "a"), (2, "b")])
    [array([1, 2]), ('a', 'b')]
    """

    def apply(self, inputs: Any) -> Any:
        """Return a batch: arrays and numbers become arrays with a new first axis, texts stay.

        Args:
            inputs: the samples, all of one structure.

        Raises:
            TypeError: they hold something else.
        """
        first = inputs[0]
        if isinstance(first, (str, bytes)):
            return inputs
        if isinstance(first, np.ndarray):
            if first.dtype.kind in "SUOaM":
                raise UsageTypeError(_message(str(first.dtype)))
            return np.ascontiguousarray(np.stack(inputs))
        if isinstance(first, np.generic):
            return np.array(inputs)
        if isinstance(first, float):
            return np.array(inputs, dtype=np.float64)
        if isinstance(first, int):
            return np.array(inputs)
        if isinstance(first, Mapping):
            return {key: self.apply([d[key] for d in inputs]) for key in first}
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*(self.apply(s) for s in zip(*inputs, strict=True)))
        if isinstance(first, Sequence):
            return [self.apply(s) for s in zip(*inputs, strict=False)]
        raise UsageTypeError(_message(type(first).__name__))


def _message(actual: str) -> str:
    return f"batches are made of arrays, numbers, texts and containers of them, found {actual}"
