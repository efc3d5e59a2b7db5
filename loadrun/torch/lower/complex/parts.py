"""Operators that treat real and imaginary parts alike: they move, select, sum or create numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....build import emit as e
from ...call import FxCall
from ...complex import Complex, is_complex, pair
from ...registry import aten, lowering_of
from ...values import ten
from .calls import on_real

__all__: list[str] = []


def _on_parts(target: str, *places: int) -> None:
    """Register that an operator does the same to both parts.

    Args:
        target: torch's name of it.
        places: which of its arguments are values, complex or not; the others are indices, sizes, masks.
    """

    def lowered(call: FxCall, *args: Any, **kwargs: Any) -> Any:
        lowering = lowering_of(target)
        assert lowering is not None

        def apply(part: Callable[[Any], Any]) -> Any:
            operands = [_each(a, part) if i in places else a for i, a in enumerate(args)]
            return lowering.function(call, *operands, **kwargs)

        real = apply(lambda v: pair(v).real)
        several = isinstance(call.fake, (list, tuple))
        if not is_complex(call.fake[0] if several else call.fake):
            return real
        values = [_each(a, pair) for i, a in enumerate(args) if i in places]
        imaginary = apply(_imaginary) if _any_imaginary(values) else None
        if not several:
            return Complex(real, imaginary)
        return tuple(map(Complex, real, [None] * len(real) if imaginary is None else imaginary))

    aten(target, complex=True)(lowered)


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to a value, or to each in a list of them; None stays."""
    if isinstance(value, (list, tuple)):
        return [_each(v, function) for v in value]
    return None if value is None else function(value)


def _any_imaginary(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(_any_imaginary, values))
    return isinstance(values, Complex) and values.imaginary is not None


def _imaginary(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return 0
    return value.imag if isinstance(value, complex) else pair(value).imag


_VALUES: dict[tuple[int, ...], str] = {
    (0,): """
        view.default reshape.default _unsafe_view.default _reshape_copy.default
        clone.default contiguous.default detach.default alias.default lift_fresh_copy.default lift_fresh.default
        detach_copy.default positive.default dropout.default feature_dropout.default alpha_dropout.default
        feature_alpha_dropout.default permute.default transpose.int swapaxes.default swapdims.default t.default
        numpy_T.default mT.default movedim.int movedim.intlist moveaxis.int moveaxis.intlist unsqueeze.default
        squeeze.default squeeze.dim squeeze.dims flatten.using_ints unflatten.int expand.default broadcast_to.default
        expand_copy.default repeat.default tile.default slice.Tensor slice_copy.Tensor select.int
        select_copy.int narrow.default flip.default roll.default rot90.default diagonal.default diagonal_copy.default
        linalg_diagonal.default tril.default triu.default reflection_pad1d.default reflection_pad2d.default
        reflection_pad3d.default replication_pad1d.default replication_pad2d.default replication_pad3d.default
        _pad_circular.default unfold.default sym_size.int size.int sym_numel.default numel.default as_strided.default
        split.Tensor unsafe_split.Tensor split_copy.Tensor split_with_sizes.default split.sizes
        unsafe_split_with_sizes.default split_with_sizes_copy.default chunk.default unsafe_chunk.default
        tensor_split.sections tensor_split.indices unbind.int unbind_copy.int meshgrid.default meshgrid.indexing
        broadcast_tensors.default cat.default concat.default concatenate.default stack.default block_diag.default
        repeat_interleave.self_int index.Tensor _unsafe_index.Tensor index_select.default take.default gather.default
        take_along_dim.default masked_select.default embedding.default im2col.default col2im.default
        pixel_shuffle.default pixel_unshuffle.default channel_shuffle.default diag_embed.default trace.default
        sum.default sum.dim_IntList mean.default mean.dim cumsum.default neg.default _neg_view.default
        resolve_neg.default zeros_like.default empty_like.default new_zeros.default new_empty.default
        new_empty_strided.default zero.default
    """,
    (1,): "full.default",
    (0, 1): """
        slice_scatter.default select_scatter.default diagonal_scatter.default fill.Scalar fill.Tensor copy.default
        full_like.default view_as.default reshape_as.default expand_as.default
    """,
    (0, 2): """
        constant_pad_nd.default masked_fill.Scalar masked_fill.Tensor index_put.default _unsafe_index_put.default
        masked_scatter.default put.default new_full.default
    """,
    (0, 3): """
        pad.default scatter.src scatter.value scatter_add.default index_copy.default index_fill.int_Scalar
        index_fill.int_Tensor index_add.default
    """,
    (1, 2): "where.self where.ScalarSelf where.ScalarOther where.Scalar",
    (): """
        zeros.default empty.memory_format empty_strided.default empty_permuted.default eye.default eye.m
    """,
}

for _places, _names in _VALUES.items():
    for _name in _names.split():
        _on_parts(f"aten.{_name}", *_places)


@aten("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default", complex=True)
def ones(call: FxCall, x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ones."""
    return Complex(on_real(call, pair(x).real if isinstance(x, Complex) else x, *args, **kwargs))


@aten("aten.scalar_tensor.default", complex=True)
def scalar_tensor(call: FxCall, value: Any, **_: Any) -> Any:
    """Build a tensor from a number."""
    x = pair(value, call.dtype)
    return Complex(*(None if v is None else e.reshape(ten(v), ()) for v in (x.real, x.imaginary)))
