"""Testcases of one form after another: what is read or written of the first holds for all but their numbers.

The testcases of a file mostly differ in the bytes of their tensors alone. Where that is so, and is seen to be so, the
tables around them are neither parsed nor built again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..base.errors import FormatError
from ..graph import StoredTensor
from ..graph.dtypes import DType

_KEPT = 8
"""For how many forms the layout is kept."""
_LARGEST = 1 << 20
"""Bytes of a testcase up to which its tables matter beside its numbers."""
Parse = Callable[[memoryview], Sequence[StoredTensor]]


class _Layout(NamedTuple):
    """Where the tensors of a testcase are in its bytes.

    Attributes:
        spans: first byte and the one after the last of every tensor.
        between: the bytes before, between and after them.
        tensors: dtype and shape of each.
    """

    spans: tuple[tuple[int, int], ...]
    between: tuple[tuple[int, bytes], ...]
    tensors: tuple[tuple[DType, tuple[int, ...]], ...]

    def fits(self, data: memoryview) -> bool:
        """Return whether bytes of the same length are alike outside the tensors."""
        return all(data[at : at + len(piece)] == piece for at, piece in self.between)


def _layout(data: memoryview, tensors: Sequence[StoredTensor]) -> _Layout | None:
    """Return the layout of a testcase whose tensors are views of `data`; None if one is not."""
    first = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    spans = []
    for t in tensors:
        if t.data is None or t.shape is None or not t.data.size or not t.data.flags.c_contiguous:
            return None
        start = t.data.__array_interface__["data"][0] - first
        if not 0 <= start <= len(data) - t.data.size:
            return None
        spans.append((start, start + t.data.size))
    ordered = sorted(spans)
    edges = [0, *(n for span in ordered for n in span), len(data)]
    if edges != sorted(edges):
        return None
    between = tuple((a, bytes(data[a:b])) for a, b in zip(edges[::2], edges[1::2], strict=True))
    return _Layout(tuple(spans), between, tuple((t.dtype, t.shape or ()) for t in tensors))


class Reader:
    """Reads the tensors of testcases."""

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout | None] = {}

    def read(self, data: memoryview, parse: Parse) -> Sequence[StoredTensor]:
        """Read the tensors of a testcase; what `parse` raises, it raises."""
        size = len(data)
        layout = self._layouts.get(size)
        if layout is not None and layout.fits(data):
            parts = zip(layout.spans, layout.tensors, strict=True)
            return [
                StoredTensor(dtype, shape, None, np.frombuffer(data[start:stop], np.uint8))
                for (start, stop), (dtype, shape) in parts
            ]
        tensors = parse(data)
        if size > _LARGEST:
            return tensors
        if size not in self._layouts:
            if len(self._layouts) >= _KEPT:
                self._layouts = {}
            # Only what comes twice is worth a closer look.
            self._layouts[size] = None
        elif layout is None:
            self._layouts[size] = _sure(data, tensors, parse)
        return tensors


def _sure(data: memoryview, tensors: Sequence[StoredTensor], parse: Parse) -> _Layout | None:
    """Return the layout, if the parser finds the same one whatever the numbers are: no table lies among them."""
    layout = _layout(data, tensors)
    if layout is None:
        return None
    for byte in (0, 1, 255):
        copy = bytearray(data)
        for start, stop in layout.spans:
            copy[start:stop] = bytes([byte]) * (stop - start)
        other = memoryview(copy)
        try:
            other_layout = _layout(other, parse(other))
        except FormatError:
            return None
        if (
            other_layout is None
            or other_layout.spans != layout.spans
            or other_layout.tensors != layout.tensors
        ):
            return None
    return layout


class RepeatedWriter:
    """Writes testcases.

    Args:
        build: the bytes of one testcase.
        parse: its tensors, as views of these bytes.
    """

    def __init__(self, build: Callable[[Sequence[StoredTensor]], bytes], parse: Parse) -> None:
        self._build = build
        self._parse = parse
        self._templates: dict[tuple[tuple[DType, tuple[int, ...]], ...], tuple[bytes, _Layout] | None] = {}

    def write(self, tensors: Sequence[StoredTensor]) -> bytes:
        """Return the bytes of a testcase; what `build` raises, it raises."""
        form = tuple((t.dtype, t.shape or ()) for t in tensors)
        known = self._templates.get(form)
        if known is not None:
            return _stamped(*known, tensors)
        built = self._build(tensors)
        if len(built) > _LARGEST:
            return built
        if form not in self._templates:
            if len(self._templates) >= _KEPT:
                self._templates = {}
            self._templates[form] = None
            return built
        layout = _layout(memoryview(built), self._parse(memoryview(built)))
        if layout is not None and layout.tensors == form:
            # Where equal bytes come out for other numbers, too, nothing but the numbers differs.
            turned = [
                StoredTensor(t.dtype, t.shape, None, ~t.data, t.comp_node)
                for t in tensors
                if t.data is not None
            ]
            if _stamped(built, layout, turned) == self._build(turned):
                self._templates[form] = built, layout
        return built


def _stamped(built: bytes, layout: _Layout, tensors: Sequence[StoredTensor]) -> bytes:
    """Return the bytes of one testcase with the numbers of another of its form."""
    copy = bytearray(built)
    for (start, stop), t in zip(layout.spans, tensors, strict=True):
        assert t.data is not None
        assert t.data.size == stop - start
        copy[start:stop] = np.ascontiguousarray(t.data).data
    return bytes(copy)
