"""The passes of `optimize_for_inference` and of `simplify`, in MegEngine's order."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..base.errors import UsageError
from ..graph import Graph
from .arithmetic.fuse import (
    combine_conversions,
    fold_global_pooling,
    fold_means,
    fuse_arithmetic,
    fuse_squares,
)
from .arithmetic.identities import remove_identities
from .arithmetic.redistribute import delay_broadcast, distribute_products, redistribute, reorder_chains
from .arithmetic.terms import expand_fused, finish_arithmetic, normalize_chains
from .cleanup import (
    fold_constants,
    merge_weights,
    remove_conversions,
    remove_copies,
    remove_exact_conversions,
    remove_noops,
    sink_dimshuffle,
    stabilize,
)
from .fusion import (
    expand_batchnorm,
    fuse_conv_bias,
    fuse_conv_bias_z,
    fuse_deconv_conversion,
    fuse_packing,
    fuse_warp,
)
from .layouts.packed import to_nhwcd4, to_packed
from .layouts.pad_channels import pad_channels, whole_packs
from .layouts.quantized import NARROW_PACKS, to_nchw4, to_nchw64
from .loadable import make_loadable, remove_shape_changes
from .older import to_half
from .options import InferenceOptions, Layout
from .rewriter import Pass

_ALWAYS: tuple[Pass, ...] = (
    expand_batchnorm,
    remove_noops,
    delay_broadcast,
    expand_fused,
    remove_identities,
    normalize_chains,
    fold_constants,
    redistribute,
    fold_constants,
    distribute_products,
    reorder_chains,
    fold_constants,
    fuse_arithmetic,
    reorder_chains,
    finish_arithmetic,
    remove_conversions,
    remove_copies,
    combine_conversions,
    fold_constants,
    remove_identities,
)


def _packed(pack: int, dot: bool = False) -> tuple[Pass, ...]:
    return (
        fuse_conv_bias,
        partial(pad_channels, missing=whole_packs(pack)),
        partial(to_packed, pack=pack, dot=dot),
    )


_LAYOUTS: dict[Layout, tuple[Pass, ...]] = {
    Layout.DEFAULT: (),
    Layout.NCHW88: _packed(8),
    Layout.NCHW44: _packed(4),
    Layout.NCHW44_DOT: _packed(4, dot=True),
    Layout.NCHW4: (fuse_conv_bias, fuse_conv_bias_z, to_nchw4, remove_conversions),
    Layout.NCHW32: (
        fuse_conv_bias,
        fuse_conv_bias_z,
        partial(to_nchw4, wide="NCHWc32"),
        remove_conversions,
        fuse_packing,
        fuse_warp,
    ),
    Layout.NHWCD4: (fuse_conv_bias, to_nhwcd4),
    Layout.NCHW64: (
        fuse_conv_bias,
        partial(pad_channels, missing=NARROW_PACKS, inputs=True),
        fuse_conv_bias_z,
        to_nchw64,
        remove_conversions,
        fuse_packing,
        fuse_warp,
    ),
    Layout.CHWN4: (fuse_conv_bias, fuse_conv_bias_z, partial(to_nchw4, wide="CHWNc4"), remove_conversions),
}


def inference_passes(options: InferenceOptions) -> Iterable[Pass]:
    """Return the passes that the options ask for, in order."""
    yield from _ALWAYS
    if options.fuse_grain:
        yield from (fold_means, fold_global_pooling)
    if options.fuse_preprocess:
        yield from (fuse_packing, fuse_warp)
    if options.f16_io_comp:
        yield partial(to_half, wide_sums=False)
    if options.f16_io_f32_comp:
        yield partial(to_half, wide_sums=True)
    yield from _LAYOUTS[options.layout]
    if options.fuse_conv_bias_nonlinearity or options.fuse_conv_bias_with_z:
        yield fuse_conv_bias
    if options.fuse_conv_bias_with_z:
        yield fuse_conv_bias_z
    yield from (fold_constants, merge_weights, fuse_deconv_conversion)


def optimize_for_inference(graph: Graph, **flags: object) -> tuple[Graph, int]:
    """Optimize a graph for running it, as MegEngine's ``trace.dump(optimize_for_inference=True, **flags)`` does.

    Args:
        graph: a model; it stays as it is.
        flags: MegEngine's keywords, such as ``enable_nchw44=True``; see `InferenceOptions`.

    Returns:
        the optimized graph, whose inputs and outputs have the names that they had, and the number that says in a dump
        what was done to it; it is in the graph's metadata, too, if there are any.

    Raises:
        UsageError: an unknown keyword, or two layouts.
        UnsupportedError: an operator of which nothing is known.

    >>> import loadrun
    >>> from loadrun.passes.constants import bare
    >>> graph = bare(loadrun.load("fixtures/nets/layout_float_unoptimized.mge"))
    >>> fused, bits = optimize_for_inference(graph, enable_fuse_conv_bias_nonlinearity=True)
    >>> sum(o.type == "ConvBiasForwardV4" for o in fused.oprs), bits
    (6, 68)
    """
    options = InferenceOptions.of(**flags)
    for one in inference_passes(options):
        graph = one(graph)
    graph = make_loadable(graph)
    if graph.header.metadata is not None:
        graph.header.metadata = replace(graph.header.metadata, optimize_options=options.bits)
    return graph, options.bits


_ROUNDS = 4
_SIMPLIFY: tuple[Pass, ...] = (
    remove_noops,
    remove_copies,
    remove_exact_conversions,
    remove_shape_changes,
    remove_identities,
    fold_constants,
)
_FOLD: tuple[Pass, ...] = (partial(expand_batchnorm, behind_convolutions=True), redistribute, fold_constants)


def simplify(
    graph: Graph,
    level: int = 2,
    *,
    jit_fuse_dimshuffle: bool | None = None,
    jit_fuse_reduce: bool | None = None,
) -> Graph:
    """Simplify a graph as far as a level allows.

    ===== =============================================================================================
    level what is done
    ===== =============================================================================================
    0     nothing
    1     constants are folded, equal operators become one, what nothing reads is dropped: the same bits; arithmetic is
          simplified as MegEngine does while it makes operators (see `loadrun.passes.cleanup`)
    2     also operators without effect and pairs that undo each other go (see
          `loadrun.passes.arithmetic.identities`), factors and batch normalization move into the weights before them:
          the same to within rounding
    3     also products, sums, activations and convolutions are fused into MegEngine's fused operators
    ===== =============================================================================================

    MegEngine's levels are alike: 1 simplifies while the graph is made, 2 runs the passes on it, 3 compiles fused
    kernels, which the two options are about.

    Args:
        graph: the graph; it stays as it is.
        level: 0 to 3; above 3 is 3.
        jit_fuse_dimshuffle: at level 3, whether fusion reaches through Dimshuffle.
        jit_fuse_reduce: at level 3, whether sums of squares and conversions are fused into reductions.

    Raises:
        UsageError: a negative level.
        UnsupportedError: an operator of which nothing is known (not at level 0).

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/layout_float_unoptimized.mge").graph
    >>> [len(simplify(graph, level).oprs) for level in (0, 1, 2, 3)]
    [67, 67, 64, 53]
    """
    if level < 0:
        raise UsageError(f"the level of simplification must be from 0 to 3, found {level}")
    if level == 0:
        return graph
    graph = fold_constants(graph)
    # Simplified where it is written: NaN and infinities follow the definitions until then.
    graph = graph if graph.exact else stabilize(graph)
    if level == 1:
        return graph
    graph = _simpler(graph)
    folded = _run(graph, _FOLD)
    graph = graph if len(folded.oprs) == len(graph.oprs) else _simpler(folded)
    if level == 2:
        return graph
    passes: list[Pass] = []
    if jit_fuse_dimshuffle:
        passes.append(sink_dimshuffle)
    if jit_fuse_reduce:
        passes += [combine_conversions, fuse_squares]
    return _run(graph, (*passes, fuse_arithmetic, partial(fuse_conv_bias, half=False), fold_constants))


def _run(graph: Graph, passes: tuple[Pass, ...]) -> Graph:
    for one in passes:
        graph = one(graph)
    return graph


def _simpler(graph: Graph) -> Graph:
    for _ in range(_ROUNDS):
        before = len(graph.oprs)
        graph = _run(graph, _SIMPLIFY)
        if len(graph.oprs) == before:
            break
    return graph
