"""Complex numbers as pairs of real ones, which is how MegEngine records them: no operator takes complex numbers.

Outside a trace a complex tensor holds its value; inside it has a real and an imaginary part, and each of the few
operations that MegEngine has for them becomes operators on the parts.
"""

import numpy as np

from ..base.errors import TraceError
from ..graph.dtypes import plain
from .dtypes import COMPLEX
from .switches import active
from .value import Tensor

_FLOAT = plain("Float32")


def of_pair(real: Tensor, imag: Tensor) -> Tensor:
    """Return complex numbers of two float32 tensors of one shape."""
    if active() is not None:
        return paired(real, imag)
    whole = np.empty(real._stored().shape, np.complex64)
    whole.real, whole.imag = real._stored(), imag._stored()
    return Tensor._of(whole, COMPLEX, real._scalar)


def as_pair(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the real and the imaginary part of complex numbers, as float32 tensors."""
    if z._pair is not None:
        return z._pair
    if z._session is not None:
        raise unrecordable("complex numbers that are an argument of a traced function")
    value, parts = z._stored(), []
    for part in (value.real, value.imag):
        parts.append(Tensor._of(np.ascontiguousarray(part), _FLOAT, z._scalar, const=z._const))
    return parts[0], parts[1]


def paired(real: Tensor, imag: Tensor) -> Tensor:
    """Return what stands for complex numbers in a trace: their real and imaginary parts."""
    tensor = Tensor._of(None, COMPLEX, real._scalar)
    tensor._pair = real, imag
    return tensor


def unrecordable(what: str) -> TraceError:
    """Return the error for complex numbers where a graph cannot hold them."""
    return TraceError(
        f"complex numbers cannot be recorded, found {what}; a graph has only real ones: take them apart with F.real "
        "and F.imag, and put them together with F.complex"
    )
