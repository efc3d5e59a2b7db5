"""com.microsoft.GroupQueryAttention: a cache whose sequences have lengths of their own."""

from __future__ import annotations

from math import sqrt

from ...build import emit as e
from ...build.exact_products import product
from ...build.layers.activation import softmax
from ...build.layers.attention import capped, mask_bias, scaled_scores, shared_heads
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ...tensors.symbolic import TracedNumber, largest
from ..call import CONTRIB, NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like
from .attention import heads, merged, rotated_part
from .creation import counted_off

__all__: list[str] = []

_LT, _LEQ, _EQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.LEQ, P.ElemwiseMultiTypeMode.EQ


def _parts(c: NodeCall, count: int, shared: int) -> list[Tensor]:
    """Split queries, keys and values, which may share one tensor, into heads."""
    if c.has(1):
        if not c.has(2):
            raise UnsupportedNodeError("keys without values")
        return [heads(c.t(0), count), heads(c.t(1), shared), heads(c.t(2), shared)]
    whole = c.t(0)
    size = static_shape(whole)[2] // (count + 2 * shared)
    ends = [0, count * size, (count + shared) * size, (count + 2 * shared) * size]
    return [
        heads(e.subtensor(whole, [(2, ends[i], ends[i + 1], None, None)]), n)
        for i, n in enumerate((count, shared, shared))
    ]


class _Lengths:
    """How many tokens each sequence has.

    Attributes:
        total: after this step, (B, 1).
        start: before it, (B, 1).
        end: where the new entries of the cache end, (B, 1): all are stored, those behind `total` unread.
        places: of the queries, (B, S).
    """

    def __init__(self, c: NodeCall, steps: int) -> None:
        total = e.reshape(e.whole(c.t(5)), (-1, 1))
        self.total = e.elem(M.ADD, total, const_like(1, total))
        count = e.like(steps, total)
        if c.has(16):
            start = e.elem(M.SUB, self.total, e.reshape(e.whole(c.t(16)), (-1, 1)))
            self.start, self.end = start, self.total
        else:
            start = e.elem(M.MAX, const_like(0, total), e.elem(M.SUB, self.total, count))
            self.start, self.end = start, e.elem(M.ADD, start, count)
        self.places = e.elem(M.ADD, start, e.arange(steps))


def _turned(c: NodeCall, x: Tensor, lengths: _Lengths) -> Tensor:
    """Rotate (B, H, S, D) by the angles of its places; of those given, a first prompt has the first alone."""
    at = lengths.places
    if c.has(9):
        places, steps = e.whole(c.t(9)), e.arange(x.shape[2])
        first = e.reshape(e.subtensor(e.flat(places), [(0, None, 1, None, None)]), (1, 1))
        prompt = e.compare(_EQ, e.reshape(e.whole(c.t(6)), (1, 1)), e.like(x.shape[2], first))
        at = e.where(prompt, e.elem(M.ADD, first, steps), places)
    cos, sin = (e.add_axes(e.gather(c.t(i), [(0, at)]), [1]) for i in (7, 8))
    return rotated_part(x, cos, sin, interleaved=c.flag("rotary_interleaved"))


def _cached(past: Tensor, new: Tensor, rows: Tensor, lengths: _Lengths) -> Tensor:
    """Join what every sequence has in the cache (B, H, P, D) and its new entries at these places, zeros behind them."""
    new = cast(new, dtype_of(past))
    before, steps = past.shape[2], new.shape[2]
    b, h, _, d = past.shape
    whole = e.concat([past, new, e.full(const_like(0, past), (b, h, 1, d))], 2)
    moved = e.elem(M.ADD, e.elem(M.SUB, rows, lengths.start), e.like(before, rows))
    moved = e.where(e.compare(_LT, rows, lengths.end), moved, e.like(before + steps, rows))
    source = e.where(e.compare(_LT, rows, lengths.start), rows, moved)
    batch = e.add_axes(e.arange(b), [1])
    return e.permute(e.gather(e.permute(whole, (0, 2, 1, 3)), [(0, batch), (1, source)]), (0, 2, 1, 3))


def _rows(c: NodeCall) -> Tensor:
    """Return the places of the cache after this step: as long as the longest sequence, or as before."""
    before, total = c.t(3).shape[2], c.value(6)
    known = total.sizes if total.sizes is not None else total.constant()
    if known is None:
        whole = e.reshape(e.whole(total.tensor), (1,))
        return cast(counted_off(e.elem(M.MAX, e.like(before, whole), whole)), "int32")
    longest = known.reshape(-1)[0]
    if isinstance(before, TracedNumber) or isinstance(longest, TracedNumber):
        return e.arange(largest(before, longest))
    return e.arange(max(before, int(longest)))


def _seen(c: NodeCall, q: Tensor, k: Tensor, lengths: _Lengths) -> Tensor:
    """Return what is added to the scores (B, H, S, L): -inf for keys that a query does not see."""
    window = c.number("local_window_size", -1)
    keys = e.arange(k.shape[2])
    allowed = e.compare(_LT, keys, e.add_axes(lengths.total, [1, 3]))
    if c.flag("causal", 1):
        places = e.add_axes(lengths.places, [1, 3])
        allowed = e.elem(M.AND, allowed, e.compare(_LEQ, keys, places))
        if window > 0:
            before = e.elem(M.SUB, places, const_like(window, places))
            allowed = e.elem(M.AND, allowed, e.compare(_LT, before, keys))
    bias = mask_bias(allowed, q)
    if not c.has(10):
        return bias
    added = cast(c.t(10), "float32")
    # Its columns end with the longest sequence, the cache may be longer.
    last = e.like(added.shape[3] - 1, keys)
    return e.elem(M.ADD, bias, e.gather(added, [(3, e.elem(M.MIN, keys, last))]))


def _weights(c: NodeCall, scores: Tensor) -> Tensor:
    """Compute softmax, to whose sum each head, or the exponential of 0, may add its own part."""
    if c.has(11):
        b, h, s, _ = scores.shape
        sink = e.broadcast(e.reshape(cast(c.t(11), "float32"), (1, h, 1, 1)), (b, h, s, 1))
    elif c.number("smooth_softmax") == 1:
        sink = e.full(const_like(0.0, scores), (*scores.shape[:3], 1))
    else:
        # Queries behind their sequence may see no key of their window.
        return softmax(scores, 3, guard=c.number("local_window_size", -1) > 0)
    weights = softmax(e.concat([sink, scores], 3), 3)
    return e.subtensor(weights, [(3, 1, None, None, None)])


@lower("GroupQueryAttention", domain=CONTRIB)
def _group_query(c: NodeCall) -> tuple[Tensor, ...]:
    """Attend causally with a cache; what queries behind the end of their sequence give is as in ONNX Runtime."""
    kind = dtype_of(c.t(0))
    count, shared = c.number("num_heads"), c.number("kv_num_heads")
    if any(c.has(i) for i in range(12, 16)) or any(c.wanted[3:]):
        raise UnsupportedNodeError("a quantized cache, normalized queries or scores as output")
    if c.flag("sliding_window_cache"):
        raise UnsupportedNodeError("a cache that holds a window alone")
    q, k, v = _parts(c, count, shared)
    lengths = _Lengths(c, q.shape[2])
    if c.flag("do_rotary"):
        q, k = (_turned(c, x, lengths) for x in (q, k))
    if c.has(3):
        rows = _rows(c)
        k, v = (_cached(c.t(i), x, rows, lengths) for i, x in ((3, k), (4, v)))
    present = k, v
    q, k, v = (cast(x, "float32") for x in (q, *(shared_heads(x, count // shared) for x in (k, v))))
    scale = c.real("scale") or 1.0 / sqrt(static_shape(q)[3])
    scores = capped(scaled_scores(q, k, scale), c.real("softcap"))
    scores = e.elem(M.ADD, scores, _seen(c, q, k, lengths))
    return (cast(merged(product(_weights(c, scores), v)), kind), *present)
