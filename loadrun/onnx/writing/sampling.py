"""Pixels at computed positions: Gather on images as rows of pixels, which is exact for every border rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph.params import BorderMode
from ..encode import ElemType
from .emitter import Dim, UnsupportedOprError
from .writer import OnnxWriter

__all__ = ["Pixels", "number"]

_FAR = float(2**30)


def number(w: OnnxWriter, n: Dim) -> str:
    """Return a size as an int64 value that broadcasts."""
    return w.const(np.int64(n)) if isinstance(n, int) else n


class Pixels:
    """An image whose pixels are looked up.

    Args:
        x: a plain (N, C, H, W) value.
        dims: its sizes.
        border: the rule for positions outside; CONSTANT gives `fill`.
    """

    def __init__(
        self,
        w: OnnxWriter,
        x: str,
        dims: Sequence[Dim],
        border: BorderMode,
        fill: str = "",
        elem: ElemType = ElemType.FLOAT,
    ) -> None:
        if border in (BorderMode.TRANSPARENT, BorderMode.ISOLATED):
            raise UnsupportedOprError(f"border mode {border.name}")
        w.need(12, "clamping positions")
        _, channels, self.height, self.width = dims
        self.w, self.border, self.elem = w, border, elem
        self.area = w.arith("Mul", self.height, self.width)
        self.rows = w.reshape(w.transpose(x, [0, 2, 3, 1]), [-1, channels])
        self.fill = fill or w.const(np.zeros((), elem.numpy))

    def base(self, image: str) -> str:
        """Return the first pixel of images, from their int64 indices."""
        return self.w.op("Mul", image, number(self.w, self.area))

    def at(self, base: str, y: str, x: str) -> str:
        """Gather pixels [..., C] at int64 rows and columns."""
        w = self.w
        row, inside_y = self._inside(y, self.height)
        column, inside_x = self._inside(x, self.width)
        flat = w.op("Add", w.op("Add", w.op("Mul", row, number(w, self.width)), column), base)
        taken = w.op("Gather", self.rows, flat, axis=0)
        if self.border != BorderMode.CONSTANT:
            return taken
        inside = w.unsqueeze(w.op("And", inside_y, inside_x), [-1]) if w.opset >= 11 else ""
        return w.where(inside, taken, self.fill)

    def _inside(self, p: str, size: Dim) -> tuple[str, str]:
        """Map a position to the pixel it reads, and return whether it is inside the image."""
        w = self.w
        n = number(w, size)
        zero, one, two = (w.const(np.int64(k)) for k in (0, 1, 2))
        last = w.op("Sub", n, one)
        if self.border in (BorderMode.REPLICATE, BorderMode.CONSTANT):
            inside = ""
            if self.border == BorderMode.CONSTANT:
                inside = w.op("And", w.op("Not", w.op("Less", p, zero)), w.op("Less", p, n))
            return w.op("Max", w.op("Min", p, last), zero), inside
        if self.border == BorderMode.WRAP:
            return w.op("Mod", p, n), ""
        if self.border == BorderMode.REFLECT:
            period = w.op("Mul", n, two)
            q = w.op("Mod", p, period)
            return w.op("Min", q, w.op("Sub", w.op("Sub", period, one), q)), ""
        period = w.op("Max", w.op("Sub", w.op("Mul", n, two), two), one)
        q = w.op("Mod", p, period)
        return w.op("Min", q, w.op("Sub", period, q)), ""

    def bilinear(self, base: str, y: str, x: str) -> str:
        """Blend pixels [..., C] at float32 positions."""
        w = self.w
        (y0, y1, v), (x0, x1, u) = self._around(y), self._around(x)
        one = w.f32(1)
        rest_u, rest_v = w.op("Sub", one, u), w.op("Sub", one, v)
        total = ""
        for row, column, a, b in (
            (y0, x0, rest_u, rest_v),
            (y0, x1, u, rest_v),
            (y1, x0, rest_u, v),
            (y1, x1, u, v),
        ):
            weight = w.unsqueeze(w.op("Mul", a, b), [-1])
            part = w.op("Mul", self.at(base, row, column), weight)
            total = w.op("Add", total, part) if total else part
        return total

    def _around(self, position: str) -> tuple[str, str, str]:
        """Return both pixels around positions, and the distance from the first."""
        w = self.w
        low = w.op("Floor", position)
        first = w.cast(w.clip(low, -_FAR, _FAR), ElemType.INT64)
        return first, w.op("Add", first, w.const(np.int64(1))), w.op("Sub", position, low)

    def image(self, taken: str) -> str:
        """Convert pixels [N, OH, OW, C] to a plain image."""
        return self.w.transpose(taken, [0, 3, 1, 2])
