"""Between the dtypes that Python code handles (numpy's) and those of the graph.

A quantized type is a numpy dtype with metadata ``{"mgb_dtype": {...}}``, as MegEngine has it; so are here bfloat16 and
integers of few bits, for which MegEngine adds types to numpy. Arrays of ml_dtypes.bfloat16 are bfloat16, too.
MegEngine has no 64-bit types: float64 narrows to float32 and 64-bit (and unsigned 32-bit) integers to int32.
"""

import warnings
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ..base.errors import UsageTypeError
from ..graph.dtypes import Array, DType, plain
from .naming import here, shown
from .switches import is_exact

DTypeLike: TypeAlias = DType | np.dtype[Any] | type[Any] | str
"""What callers give as a dtype: one of the graph or of numpy, a Python or numpy type, a name."""
_NAMES = {
    "f4": "Float32",
    "f2": "Float16",
    "f8": "Float32",
    "u1": "Uint8",
    "i1": "Int8",
    "i2": "Int16",
    "u2": "Uint16",
    "i4": "Int32",
    "i8": "Int32",
    "u4": "Int32",
    "u8": "Int32",
    "b1": "Bool",
    "c8": "Complex64",
    "c16": "Complex64",
}


COMPLEX = plain("Complex64")
_WIDE = {"f8": plain("Float64"), "i8": plain("Int64"), "u4": plain("Uint32"), "u8": plain("Uint64")}


def graph_dtype(dtype: Any) -> DType:
    """Return the graph's type for a numpy dtype, a dtype name, a Python type, or a `DType`.

    Types that MegEngine lacks are narrowed, except while a model of PyTorch is read.

    Raises:
        UsageTypeError: there is none; the text lists what there is.

    >>> str(graph_dtype("float64")), str(graph_dtype(int)), str(graph_dtype(np.uint8))
    ('Float32', 'Int32', 'Uint8')
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype == "bfloat16":
        return plain("BFloat16")
    try:
        result = np.dtype(dtype)
    except (TypeError, ValueError) as e:
        raise UsageTypeError(
            f"{dtype!r:.80} is no dtype; pass one of numpy, its name, or a Python type"
        ) from e
    meta = result.metadata and result.metadata.get("mgb_dtype")
    if not meta:
        wide = is_exact() and _WIDE.get(f"{result.kind}{result.itemsize}")
        return wide or _graph_dtype(result)
    # Tensors and files hold the scale as float32.
    return DType(str(meta["name"]), float(np.float32(meta.get("scale", 0.0))), int(meta.get("zero_point", 0)))


@cache
def _graph_dtype(dtype: np.dtype[Any]) -> DType:
    if dtype.name == "bfloat16":
        return plain("BFloat16")
    name = _NAMES.get(f"{dtype.kind}{dtype.itemsize}")
    if name is None:
        raise UsageTypeError(
            f"no tensor can hold numpy dtype {dtype}; convert to one of float32, float16, int32, int16, int8, "
            "uint8, uint16, bool"
        )
    return plain(name)


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the numpy dtype that stands for a graph type.

    >>> numpy_dtype(DType("QuantizedS8", 0.5)).metadata["mgb_dtype"]["scale"]
    0.5
    """
    if dtype.name == "BFloat16" or dtype.is_odd:
        return np.dtype(dtype.np, metadata={"mgb_dtype": {"name": dtype.name}})
    if not dtype.is_quantized:
        return dtype.np
    meta: dict[str, Any] = {"name": dtype.name, "scale": dtype.scale}
    if dtype.is_asymmetric:
        meta["zero_point"] = dtype.zero_point
    return np.dtype(dtype.np, metadata={"mgb_dtype": meta})


def narrowed(array: Array) -> tuple[Array, DType]:
    """Return an array in a type that the graph has, and that type."""
    # A float64 array of which nothing else is said is what Python's numbers gave.
    dtype = _graph_dtype(array.dtype) if array.dtype == np.float64 else graph_dtype(array.dtype)
    if dtype.name == "BFloat16" or array.dtype == dtype.np:
        return array, dtype
    with np.errstate(all="ignore"):
        result = array.astype(dtype.np)
        if _is_lossy(array, result):
            place = here()
            text = f"{array.dtype} narrows to {result.dtype}, which is what graphs hold: {_example(array, result)}"
            warnings.warn_explicit(f"{text}, in {shown(place)}", UserWarning, *place)
    return result, dtype


def _is_lossy(array: Array, result: Array) -> bool:
    """Return whether integers wrapped or finite numbers became infinite."""
    if not array.size:
        return False
    if result.dtype.kind in "iu":
        limits = np.iinfo(result.dtype)
        return bool(array.min() < limits.min or array.max() > limits.max)
    if result.dtype.kind != "f" or array.dtype.itemsize <= result.dtype.itemsize:
        return False
    largest = float(np.finfo(result.dtype).max)
    return bool((np.isinf(result) & (np.abs(array) > largest) & np.isfinite(array)).any())


def _example(array: Array, result: Array) -> str:
    """Return the first value that changed much."""
    changed = (result != array) if result.dtype.kind in "iu" else np.isinf(result) & np.isfinite(array)
    at = np.flatnonzero(changed)[0]
    return f"{array.flat[at]} becomes {result.flat[at]}"
