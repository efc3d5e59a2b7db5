"""Stored values of a graph that was made of an ONNX file."""

import numpy as np

from ..graph import StoredTensor
from ..graph.dtypes import Array, DType
from .codes import CODED, from_codes, to_codes
from .types import kind_of_dtype


class HeldTensor(StoredTensor):
    """A stored value whose bytes in the file are not numpy's, held as an array."""

    def __init__(self, dtype: DType, value: Array, name: str | None) -> None:
        super().__init__(dtype, value.shape, name)
        self.array = value

    def value(self) -> Array:
        """Return the array."""
        return self.array

    def with_value(self, value: Array) -> StoredTensor:
        """Return a tensor of the same type that holds another value, rounded to it, without a name."""
        kind = kind_of_dtype(self.dtype)
        coded = from_codes(to_codes(value, kind).tobytes(), kind, value.shape) if kind in CODED else value
        return HeldTensor(self.dtype, coded, None)

    def copied(self) -> StoredTensor:
        """Copy the tensor over the same array."""
        return HeldTensor(self.dtype, self.array, self.name)


def tensor_of(value: Array, dtype: DType, name: str) -> StoredTensor:
    """Return a stored value: over its bytes where they are those of a file, else over the array."""
    if dtype.np.kind == "O" or dtype.bits != value.itemsize * 8 or not value.flags.c_contiguous:
        return HeldTensor(dtype, value, name)
    return StoredTensor(dtype, value.shape, name, value.reshape(-1).view(np.uint8))
