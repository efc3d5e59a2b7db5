"""The tables and vectors that dumps consist of: parameter records, dtypes, names, numbers."""

from collections.abc import Sequence
from struct import Struct, error, pack
from typing import Any

import numpy as np

from ..graph.dtypes import Array, DType
from ..graph.params import AxisDesc, DTypeScalar, IndexItem, Record, RecordField
from ..ops.catalog import TypeParam
from . import history
from .flat_builder import Builder, Fields


class FlatBufferEmitter:
    """A `Builder` with the few shapes of tables and vectors that dumps consist of.

    Args:
        mge_version: release whose parameter layouts are written.
    """

    def __init__(self, mge_version: int = 101300) -> None:
        self.builder = Builder()
        self.mge_version = mge_version
        self._strings: dict[bytes, int] = {}

    def string(self, text: str | bytes | None) -> int | None:
        """Write a string; equal ones are stored once."""
        if text is None:
            return None
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        if raw not in self._strings:
            self._strings[raw] = self.builder.string(raw)
        return self._strings[raw]

    def table(self, n_slots: int, fields: Fields) -> int:
        """Write a table; see `Builder.table`."""
        return self.builder.table(n_slots, fields)

    def bytes_vector(self, data: bytes | Array | None) -> int | None:
        """Write a vector of bytes."""
        if data is None:
            return None
        raw = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        return self.builder.vector(raw, len(data), 1)

    def numbers(self, values: Sequence[int] | None, kind: str = "I") -> int | None:
        """Write a vector of 4-byte integers, unsigned (I) or signed (i)."""
        if values is None:
            return None
        try:
            packed = pack(f"<{len(values)}{kind}", *values)
        except error:
            low, high = (0, 2**32) if kind == "I" else (-(2**31), 2**31)
            beyond = next((v for v in values if not low <= v < high), values)
            raise ValueError(f"{beyond} is not an integer from {low} to {high - 1}") from None
        return self.builder.vector(packed, len(values), 4)

    def offsets(self, items: Sequence[int]) -> int | None:
        """Write a vector of tables or strings, None when empty."""
        return self.builder.offsets(items) if items else None

    def structs(self, layout: Struct, items: Sequence[Sequence[Any]], align: int) -> int:
        """Write a vector of inline structs."""
        raw = b"".join(layout.pack(*item) for item in items)
        return self.builder.vector(raw, len(items), align)

    def dtype(self, dtype: DType | None) -> int | None:
        """Write a DType table."""
        if dtype is None:
            return None
        if not dtype.is_quantized:
            return self.table(3, [(0, "byte", dtype.code, 0)])
        zero = dtype.zero_point if dtype.is_asymmetric else 0
        param = self.table(2, [(0, "float", dtype.scale, 0.0), (1, "ubyte", zero, 0)])
        return self.table(3, [(2, "offset", param, 0), (0, "byte", dtype.code, 0), (1, "ubyte", 1, 0)])

    def param(self, record: Record) -> int:
        """Write a parameter record."""
        if isinstance(record, TypeParam):
            return self.dtype(record.dtype) or 0
        layout = history.fields(type(record), self.mge_version)
        fields: list[tuple[int, str, Any, Any]] = []
        for slot, f in enumerate(layout):
            value = getattr(record, f.name, f.default)
            if f.wire == "[int]":
                fields.append((slot, "offset", self.numbers(value, "i"), 0))
            elif f.wire == "[AxisDesc]":
                fields.append((slot, "offset", self.structs(_AXIS_DESC, [AxisDesc(*v) for v in value], 4), 0))
            elif f.wire == "[IndexItem]":
                fields.append(
                    (slot, "offset", self.structs(_INDEX_ITEM, [IndexItem(*v) for v in value], 1), 0)
                )
            elif f.wire == "DTypeScalar":
                raw = _DTYPE_SCALAR.pack(*DTypeScalar(*value))
                fields.append((slot, f"{len(raw)}s", raw, None))
            elif f.enum is not None:
                number = history.number(f.enum(value), self.mge_version)
                fields.append((slot, f.wire, number, int(f.default)))
            else:
                fields.append((slot, f.wire, value, f.default))
        if len(layout) < len(record.fields()):
            self._check_dropped(record, layout)
        try:
            return self.table(len(layout), fields)
        except error:
            raise ValueError(self._beyond(record, fields, layout)) from None

    def _beyond(self, record: Record, fields: Fields, layout: Sequence[RecordField]) -> str:
        """Say which field holds a number that its type cannot."""
        for (_, wire, value, _), f in zip(fields, layout, strict=True):
            try:
                self.table(1, [(0, wire, value, None)])
            except error:
                return f"{type(record).__name__}.{f.name} is {value}, which is no {wire} of the file"
        raise AssertionError("some field was refused")

    def _check_dropped(self, record: Record, layout: Sequence[RecordField]) -> None:
        kept = {f.name for f in layout}
        for f in record.fields():
            if f.name not in kept and getattr(record, f.name) != f.default:
                raise ValueError(
                    f"release {history.release(self.mge_version)} had no field {type(record).__name__}.{f.name}"
                )


_AXIS_DESC, _INDEX_ITEM, _DTYPE_SCALAR = Struct("<bxxxi"), Struct("<b????"), Struct("<b4s")
