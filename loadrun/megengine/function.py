"""Functions with gradients of their own, of which running a network needs only the forward side."""

from __future__ import annotations

from typing import Any

from ..tensors.value import Tensor

__all__ = ["Function"]


class Function:
    """A computation whose gradient is defined by hand; here it is only computed, ``backward`` is never called.

    Subclasses define ``forward(*tensors)``, which returns a Tensor or a tuple of them.

    Source of semantics: MegEngine ``core/autodiff/grad.py``.

    >>> import loadrun
    >>> import loadrun.megengine.functional as F
    >>> class Rounded(Function):
    ...     def forward(self, x):
    ...         return F.round(x)
    ...     def backward(self, dy):
    ...         return dy
    >>> Rounded()(loadrun.tensor([0.4, 1.6])).tolist()
    [0.0, 2.0]
    """

    def forward(self, *args: Tensor) -> Any:
        """Compute; every subclass defines it.

        Raises:
            TypeError: the subclass does not.
        """
        raise TypeError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Tensor) -> Any:
        """Return what ``forward`` computes of Tensors."""
        for arg in args:
            if not isinstance(arg, Tensor):
                raise TypeError(
                    f"op {type(self).__name__} expect type Tensor as inputs, found {type(arg).__name__} {arg!r:.60}; "
                    "give a number to the class when it is made"
                )
        return self.forward(*args)
