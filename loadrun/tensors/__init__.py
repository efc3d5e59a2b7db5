"""Values in Python code: tensors that are computed at once or recorded by a trace."""

from ..base.registry import exported
from .applying import apply as apply, apply1 as apply1, type_cvt as type_cvt
from .convert import (
    Shape as Shape,
    ShapeLike as ShapeLike,
    TensorLike as TensorLike,
    as_tensor as as_tensor,
    const as const,
    shape_tensor as shape_tensor,
)
from .switches import active as active, suspended as suspended
from .symbolic import (
    TracedBool as TracedBool,
    TracedFloat as TracedFloat,
    TracedInt as TracedInt,
    TracedLong as TracedLong,
    TracedNumber as TracedNumber,
    largest as largest,
    least as least,
    place_of as place_of,
    plain_number as plain_number,
)
from .value import Parameter as Parameter, Tensor as Tensor, tensor as tensor

# For start-up.
with exported(__name__) as _exported:
    from .promotion import elemwise as elemwise

__getattr__ = _exported.find
