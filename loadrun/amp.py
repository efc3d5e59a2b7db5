"""Mixed precision as MegEngine has it: where it is enabled, operators get inputs of another float type.

Convolutions, transposed ones and matrix products compute in `low_prec_dtype` and sum in float32; batch normalization
takes its input in it and its statistics in `high_prec_dtype`; other normalizations and the functions of the
exponential kind compute in `high_prec_dtype`.

Attributes:
    enabled: whether anything is cast.
    low_prec_dtype: "float16" or "bfloat16".
    high_prec_dtype: "float32".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["autocast", "enabled", "high_prec_dtype", "low_prec_dtype"]

C = TypeVar("C", bound=Callable[..., Any])

enabled: bool = False
high_prec_dtype: str = "float32"
low_prec_dtype: str = "float16"


class autocast:
    """Mixed precision inside a ``with`` block, or inside a function that this decorates.

    Args:
        enabled: False does nothing.
        low_prec_dtype: see the module.
        high_prec_dtype: see the module.

    >>> import loadrun.functional as F
    >>> from loadrun import tensor
    >>> with autocast():
    ...     y = F.matmul(tensor([[1.0]]), tensor([[2.0]]))
    >>> y.dtype
    dtype('float16')
    """

    def __init__(
        self, enabled: bool = True, low_prec_dtype: str = "float16", high_prec_dtype: str = "float32"
    ) -> None:
        self.enabled = enabled
        self.low_prec_dtype = low_prec_dtype
        self.high_prec_dtype = high_prec_dtype
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        names = ("enabled", "low_prec_dtype", "high_prec_dtype")
        self._before.append({name: globals()[name] for name in names})
        if self.enabled:
            globals().update({name: getattr(self, name) for name in names})

    def __exit__(self, *exc: object) -> None:
        globals().update(self._before.pop())

    def __call__(self, function: C) -> C:
        """The function with mixed precision inside."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]
