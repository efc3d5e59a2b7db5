"""Layers over windows: convolutions, and the padding that they and pooling share."""

from collections.abc import Sequence

from ...base.registry import late
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ...tensors.symbolic import largest, least
from .. import conv as own
from .. import emit as e
from ..emit import M
from .sizes import is_open, per_channel

with late(__name__):
    from . import padding


class WindowGeometry:
    """How a window moves over (N, C, ...), for each axis of space.

    Attributes:
        kernel: how many elements it takes.
        strides: from one window to the next.
        dilations: from one of its elements to the next.
        pads: what is added before and after.
        sizes: those of the axes, where they are the same in every run.
        beyond: what is added behind the pads, for a last window that would not be complete.
        cuts: what is left out in front, before the pads.
    """

    def __init__(
        self,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.kernel, self.strides, self.dilations = list(kernel), list(strides), list(dilations)
        self.pads = [(0, 0)] * len(self.kernel) if pads is None else list(pads)
        self.sizes: Sequence[int] | None = None
        self.beyond = [0] * len(self.kernel)
        self.cuts = [0] * len(self.kernel)

    @property
    def reach(self) -> list[int]:
        """How far a window reaches on each axis."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def even(self) -> bool:
        """Return whether there is as much padding before as behind, at any size."""
        if is_open(*self.beyond, *self.cuts, *(w for pair in self.pads for w in pair)):
            return False
        return all(a == b >= 0 for a, b in self.pads) and not any(self.beyond) and not any(self.cuts)

    def complete(self, sizes: Sequence[int]) -> None:
        """Let the last windows be complete ones, at sizes that may be open.

        A window that would begin after the data and the pads in front is left out.
        """
        for i, (size, (a, b), reach, s) in enumerate(
            zip(sizes, self.pads, self.reach, self.strides, strict=True)
        ):
            steps, begun = (size + a + b - reach + s - 1) // s, (size + a - 1) // s
            steps = least(steps, begun) if is_open(steps, begun) else min(steps, begun)
            more = steps * s + reach - (size + a + b)
            self.beyond[i] = 0 if s == 1 else largest(more, 0) if is_open(more) else max(more, 0)

    def padded(self, x: Tensor, value: float = 0.0) -> Tensor:
        """Return the input with all padding as elements."""
        cuts = [(2 + i, cut, None, None, None) for i, cut in enumerate(self.cuts) if is_open(cut) or cut]
        x = e.subtensor(x, cuts) if cuts else x
        widths = [(a, b + more) for (a, b), more in zip(self.pads, self.beyond, strict=True)]

        return padding.pad(x, [(0, 0), (0, 0), *widths], value=value)

    def tap(self, x: Tensor, axis: int, i: int, k: int) -> Tensor:
        """Return what the `k`-th elements of the windows along the `i`-th axis of space meet on an axis of `x`."""
        s, d, reach = self.strides[i], self.dilations[i], self.reach[i]
        if reach == s == 1:
            return x
        last = k * d - reach + 1
        index = (axis, k * d or None, last if last < 0 else None, None if s == 1 else s, None)
        return e.subtensor(x, [index])


def with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """Return (N, C, ...) with one number added to every channel."""
    return y if bias is None else e.elem(M.ADD, y, per_channel(bias, y.ndim))


def grouped(weight: Tensor, groups: int) -> Tensor:
    """Return filters with an axis of groups in front, which MegEngine wants where there are several."""
    if groups == 1:
        return weight
    count, *rest = static_shape(weight)
    return e.folded(lambda w: e.reshape(w, (groups, count // groups, *rest)), weight)


def convolved(
    x: Tensor, weight: Tensor, window: WindowGeometry, groups: int = 1, bias: Tensor | None = None
) -> Tensor:
    """Convolve over one to three axes; float16 is summed in float32.

    Args:
        x: (N, C, ...), float.
        weight: (OC, C / groups, ...).
        window: strides, dilations and pads, which need not be even.
        groups: into how many parts the channels are divided.
        bias: (OC,).

    >>> convolved(Tensor([[[1.0, 2.0, 3.0]]]), Tensor([[[1.0, 1.0]]]), WindowGeometry([2], [1], [1], [(1, 0)])).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    if not window.even:
        x = window.padded(x)
        window = WindowGeometry(window.kernel, window.strides, window.dilations)
    before = [a for a, _ in window.pads]
    out = [
        (n + 2 * p - r) // s + 1
        for n, p, r, s in zip(static_shape(x)[2:], before, window.reach, window.strides, strict=True)
    ]
    if 0 in static_shape(x) or any(n < 1 for n in out):
        empty = (x.shape[0], static_shape(weight)[0], *(max(n, 0) for n in out))
        return with_bias(e.full(e.number(0, x), empty), bias)
    mode = "float32" if dtype_of(x).name == "Float16" else "default"
    filters = grouped(weight, groups)
    steps, spread = window.strides, window.dilations
    if len(out) == 1:
        y = own.conv1d(x, filters, None, steps[0], before[0], spread[0], groups, compute_mode=mode)
    elif len(out) == 2:
        y = own.conv2d(x, filters, None, steps, before, spread, groups, compute_mode=mode)
    else:
        wide, filters = e.as_float(x), e.as_float(filters)
        y = e.cast(own.conv3d(wide, filters, None, steps, before, spread, groups), dtype_of(x))
    return with_bias(y, bias)


def transposed(
    x: Tensor,
    weight: Tensor,
    window: WindowGeometry,
    extra: list[int],
    groups: int = 1,
    bias: Tensor | None = None,
) -> Tensor:
    """Convolve transposed over one to three axes, in float32.

    Args:
        x: (N, C, ...), float.
        weight: (C, OC / groups, ...).
        window: strides, dilations, and what is cut off before and after, added where it is negative.
        extra: how many elements more there are behind each axis.
        groups: into how many parts the channels are divided.
        bias: (OC,).

    >>> transposed(Tensor([[[1.0, 2.0]]]), Tensor([[[1.0, 1.0]]]), WindowGeometry([2], [2], [1]), [1]).tolist()
    [[[1.0, 1.0, 2.0, 2.0, 0.0]]]
    """
    kind = dtype_of(x)
    wide, filters = e.as_float(x), grouped(e.folded(lambda w: e.as_float(w), weight), groups)
    own_ends = window.even and all(m < s for m, s in zip(extra, window.strides, strict=True))
    before = [a if own_ends else 0 for a, _ in window.pads]
    more = list(extra) if own_ends else [0] * len(before)
    steps, spread = window.strides, window.dilations
    if len(before) == 1:
        y = own.conv_transpose2d(
            e.add_axes(wide, [3]),
            e.folded(lambda w: e.add_axes(w, [w.ndim]), filters),
            None,
            (steps[0], 1),
            (before[0], 0),
            (more[0], 0),
            (spread[0], 1),
            groups,
        )
        y = e.drop_axes(y, [3])
    else:
        function = own.conv_transpose2d if len(before) == 2 else own.conv_transpose3d
        y = function(wide, filters, None, steps, before, more, spread, groups)
    if not own_ends:
        widths = [(-a, m - b) for (a, b), m in zip(window.pads, extra, strict=True)]

        y = padding.pad(y, [(0, 0), (0, 0), *widths])
    return with_bias(e.cast(y, kind), bias)
