"""Values in Python code: tensors that are computed at once or recorded by a trace."""

from .apply import active, apply, apply1, suspended, type_cvt
from .convert import as_tensor, const
from .promotion import convert, elemwise
from .sizes import Dim, Shape, shape_tensor
from .value import Parameter, Tensor, tensor

__all__ = [
    "Dim",
    "Parameter",
    "Shape",
    "Tensor",
    "active",
    "apply",
    "apply1",
    "as_tensor",
    "const",
    "convert",
    "elemwise",
    "shape_tensor",
    "suspended",
    "tensor",
    "type_cvt",
]
