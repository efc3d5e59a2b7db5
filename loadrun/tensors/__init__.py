"""Values in Python code: tensors that are computed at once or recorded by a trace."""

from . import reducing, shaping
from .apply import apply, apply1, type_cvt
from .construct import check_kept, fill
from .convert import TensorLike, as_tensor, const
from .indexing import getitem, setitem
from .products import matmul
from .promotion import convert, elemwise
from .session import active, suspended
from .sizes import Shape, ShapeLike, product_of, shape_of, shape_tensor
from .symbolic import TracedBool, TracedFloat, TracedInt, TracedNumber, largest, least, place_of, plain_number
from .value import Parameter, Tensor, attach, tensor

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

attach(
    apply1=apply1,
    check_kept=check_kept,
    elemwise=elemwise,
    fill=fill,
    getitem=getitem,
    matmul=matmul,
    product_of=product_of,
    reducing=reducing,
    setitem=setitem,
    shape_of=shape_of,
    shaping=shaping,
    type_cvt=type_cvt,
)
