"""Simplifying traced graphs: what MegEngine calls the optimization level of a trace."""

from functools import partial

from ..base.errors import UsageError
from ..graph import Graph
from .arithmetic.fuse import fuse_arithmetic
from .arithmetic.identities import remove_identities
from .arithmetic.redistribute import redistribute
from .arithmetic.reductions import combine_conversions, fuse_squares
from .cleanup.fold import fold_constants
from .cleanup.noop import remove_copies, remove_noops
from .cleanup.sink_dimshuffle import sink_dimshuffle
from .cleanup.stable import stabilize
from .cleanup.typecvt import remove_exact_conversions
from .fusion.batchnorm import expand_batchnorm
from .fusion.convbias import fuse_conv_bias
from .loadable import remove_shape_changes
from .rewriter import Pass

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
          simplified as MegEngine does while it makes operators (see `loadrun.passes.cleanup.stable`)
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
