"""Values in Python code: tensors that are computed at once or recorded by a trace."""

from typing import TYPE_CHECKING

from ..base.registry import lazy
from .applying import apply, apply1, type_cvt
from .convert import Shape, ShapeLike, TensorLike, as_tensor, const, shape_tensor
from .switches import active, suspended
from .symbolic import (
    TracedBool,
    TracedFloat,
    TracedInt,
    TracedLong,
    TracedNumber,
    largest,
    least,
    place_of,
    plain_number,
)
from .value import Parameter, Tensor, tensor

if TYPE_CHECKING:
    from .promotion import elemwise

__all__ = [
    "Parameter",
    "Shape",
    "ShapeLike",
    "Tensor",
    "TensorLike",
    "TracedBool",
    "TracedFloat",
    "TracedInt",
    "TracedLong",
    "TracedNumber",
    "active",
    "apply",
    "apply1",
    "as_tensor",
    "const",
    "elemwise",
    "largest",
    "least",
    "place_of",
    "plain_number",
    "shape_tensor",
    "suspended",
    "tensor",
    "type_cvt",
]

# For start-up.
__getattr__ = lazy(__name__, {"elemwise": ".promotion"})
