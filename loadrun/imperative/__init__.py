"""Values in Python code: tensors that are computed at once or recorded by a trace."""

from .apply import active, apply, apply1, suspended, type_cvt
from .convert import as_tensor, const
from .followed import Dim, Followed, Ratio, Truth, largest, least, place_of, plain_number
from .promotion import convert, elemwise
from .sizes import Shape, shape_tensor
from .value import Parameter, Tensor, tensor

__all__ = [
    "Dim",
    "Followed",
    "Parameter",
    "Ratio",
    "Shape",
    "Tensor",
    "Truth",
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
