"""Conversion of torch's values to loadrun's: dtypes, shared tensors, operands of lowerings."""

from typing import Any

import numpy as np
import torch

from ..arrays.array import TracedArray
from ..graph.dtypes import Array, array_dtype, plain
from ..layers import emit as e
from ..layers.shared.sizes import ManyAxes
from ..tensors import Tensor, TracedNumber, const
from ..tensors.access import dtype_of, from_stored, recorded, set_name, snapshot
from ..tensors.dtypes import graph_dtype
from .registry import UnsupportedCallError

INT_MAX = 2**31 - 1
NO_COMPLEX = (
    "graphs hold no complex numbers: compute with real and imaginary parts, and Fourier transforms as products with "
    "matrices of cosines and sines"
)
IN_NUMPY = tuple(
    getattr(torch, name) for name in "float32 float64 float16 int64 int32 int16 int8 uint8 bool".split()
)
"""Dtypes that numpy has in all releases of torch."""
# A quantized tensor is the floats that it stands for.
_HELD = {d: str(d).removeprefix("torch.") for d in (*IN_NUMPY, torch.uint64, torch.uint32)} | dict.fromkeys(
    (torch.bfloat16, torch.qint8, torch.quint8, torch.qint32), "float32"
)


def narrow(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the dtype in which the graph computes one of torch.

    Raises:
        UnsupportedCallError: there is none (complex numbers, 8-bit floats, uint16).

    >>> import torch
    >>> narrow(torch.int64), narrow(torch.bfloat16)
    (dtype('int64'), dtype('float32'))
    """
    kind = _HELD.get(dtype)
    if kind is None:
        raise UnsupportedCallError(
            f"{dtype} has no operators in a graph; compute in float32, int64, int32, int16, int8, uint8 or bool"
        )
    return np.dtype(kind)


def no_numbers(x: torch.Tensor) -> str:
    """Say why a tensor is not an array of numbers, and what to give instead; "" if it is one."""
    if x.is_nested:
        return "a nested tensor, whose rows differ in size; make it dense with .to_padded_tensor(0.0)"
    if x.layout is not torch.strided:
        return f"a tensor of layout {x.layout}; make it dense with .to_dense()"
    if x.is_quantized:
        return f"a quantized tensor ({x.dtype}); take its .dequantize(), or its .int_repr()"
    if x.is_meta:
        return "a tensor on the device meta, which has no values; make one on the CPU"
    if type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor of the class {type(x).__name__}, which computes in its own way; take a torch.Tensor"
    return ""


def ndarray(x: torch.Tensor) -> Array:
    """Copy the values of a torch tensor to an ndarray of the graph's dtype."""
    want = narrow(x.dtype)
    if why := no_numbers(x):
        raise UnsupportedCallError(why)
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        x = x.float()
    try:
        values: Array = x.contiguous().numpy()
    except RuntimeError as e:
        # Of a transformation such as torch.func.grad, or of another kind of tensor.
        raise UnsupportedCallError(
            f"a constant of the program has no values ({type(x).__name__}: {e})"
        ) from e
    with np.errstate(all="ignore"):
        return np.array(values, want, order="C")


def constant(x: torch.Tensor, name: str = "") -> Tensor:
    """Turn a torch tensor into a constant of the graph."""
    value = ndarray(x)
    scalar = value.ndim == 0
    tensor = from_stored(value.reshape(1) if scalar else value, array_dtype(value), scalar, const=True)
    set_name(tensor, name)
    return tensor


def of_numpy(value: Array, dtype: torch.dtype) -> torch.Tensor:
    """Convert an ndarray of the graph to a torch tensor of the dtype that the torch program has there."""
    return torch.from_numpy(np.array(value, order="C")).to(dtype)


def is_complex(value: Any) -> bool:
    """Return whether a torch tensor or a Python number is complex."""
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def touches_complex(node: Any) -> bool:
    """Return whether a node of an exported graph takes or returns complex numbers."""
    values = [node.meta.get("val"), *node.args, *node.kwargs.values()]
    leaves = torch.utils._pytree.tree_leaves(values)
    return any(is_complex(v.meta.get("val") if isinstance(v, torch.fx.Node) else v) for v in leaves)


def plain_number(value: Any) -> Any:
    """Convert a Python number to one that the graph can hold.

    Raises:
        UnsupportedCallError: an integer beyond 64 bits, or a complex number.
    """
    if isinstance(value, complex):
        raise UnsupportedCallError(NO_COMPLEX)
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise UnsupportedCallError(f"the integer {value} has more than 64 bits")
    return value


def tensor_or_axes(value: Any) -> Tensor | ManyAxes:
    """Convert an operator's argument as `as_tensor` does, unless it has more axes than a tensor can have."""
    return value if isinstance(value, ManyAxes) else as_tensor(value)


def is_number(value: Any, number: float) -> bool:
    """Return whether an operator's argument is a number at all sizes, and not only at the example's."""
    return type(value) in (bool, int, float) and bool(value == number)


def as_tensor(value: Any, dtype: Any = None) -> Tensor:
    """Convert an operator's argument to a plain tensor, of a dtype if one is named."""
    if isinstance(value, TracedArray):
        value = snapshot(value)
    if isinstance(value, Tensor):
        return value if dtype is None else _cast(value, dtype)
    if isinstance(value, TracedNumber):
        tensor = recorded(value)
        if tensor is not None:
            return tensor if dtype is None else _cast(tensor, dtype)
    if isinstance(value, ManyAxes):
        raise UnsupportedCallError(value.refusal)
    value = plain_number(value)
    if dtype is None:
        whole = "int32" if isinstance(value, int) and -INT_MAX - 1 <= value <= INT_MAX else "int64"
        dtype = "bool" if isinstance(value, bool) else whole if isinstance(value, int) else "float32"
    kind = np.dtype(dtype)
    with np.errstate(all="ignore"):
        return const(np.asarray(value).astype(kind), kind)


def _cast(x: Tensor, dtype: Any) -> Tensor:
    want = graph_dtype(dtype)
    if want.name == "Bool" and dtype_of(x).name != "Bool":
        # Conversion to bool is a comparison in torch, so that 0.5 and NaN are true.
        return snapshot(TracedArray._around(x) != 0)
    if dtype_of(x).is_float and want.name in ("Int8", "Int16", "Uint8"):
        x = e.cast(x, plain("Int32"))
    return e.cast(x, want)


def as_array(value: Any, dtype: Any = None) -> Any:
    """Convert as `as_tensor` does, to an array that computes as ndarrays do."""
    return TracedArray._around(as_tensor(value, dtype))
