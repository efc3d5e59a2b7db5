"""Values in Python code: tensors that are computed at once or recorded by a trace.

What the rooms above use of a tensor besides its public attributes is listed in docs/architecture.md.
"""

from .apply import active, apply, apply1, suspended, type_cvt
from .convert import TensorLike, as_tensor, const
from .followed import TracedBool, TracedFloat, TracedInt, TracedNumber, largest, least, place_of, plain_number
from .promotion import convert, elemwise
from .sizes import Shape, ShapeLike, shape_tensor
from .value import Parameter, Tensor, tensor

__all__ = [
    "Parameter",
    "Shape",
    "ShapeLike",
    "Tensor",
    "TensorLike",
    "TracedBool",
    "TracedFloat",
    "TracedInt",
    "TracedNumber",
    "active",
    "apply",
    "apply1",
    "as_tensor",
    "const",
    "convert",
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
