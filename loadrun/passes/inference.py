"""The passes of `optimize_for_inference` in MegEngine's order."""

from collections.abc import Iterable
from functools import partial

from ..graph import Graph
from .arithmetic.delay_broadcast import delay_broadcast
from .arithmetic.distribute import distribute_products
from .arithmetic.fuse import fuse_arithmetic
from .arithmetic.grain import fold_global_pooling, fold_means
from .arithmetic.identities import remove_identities
from .arithmetic.normalize import expand_fused, finish_arithmetic, normalize_chains
from .arithmetic.redistribute import redistribute
from .arithmetic.reductions import combine_conversions
from .arithmetic.reorder import reorder_chains
from .cleanup.fold import fold_constants
from .cleanup.merge import merge_weights
from .cleanup.noop import remove_copies, remove_noops
from .cleanup.typecvt import remove_conversions
from .fusion.batchnorm import expand_batchnorm
from .fusion.convbias import fuse_conv_bias
from .fusion.convz import fuse_conv_bias_z
from .fusion.deconv import fuse_deconv_conversion
from .fusion.preprocess import fuse_packing, fuse_warp
from .half import to_half
from .layouts.image import to_nhwcd4
from .layouts.narrow import NARROW_PACKS, to_nchw64
from .layouts.packed import to_packed
from .layouts.pad_channels import pad_channels, whole_packs
from .layouts.quantized import to_nchw4
from .loadable import make_loadable
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
    if graph.metadata is not None:
        graph.metadata.optimize_options = options.bits
    return graph, options.bits
