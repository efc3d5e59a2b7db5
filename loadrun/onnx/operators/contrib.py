"""com.microsoft's operators that are ONNX's own in an older form, or a few each; mixtures of experts."""

from typing import Any

from ...arrays.names import np
from ...graph.composite import Flag, Known, NodeTypes
from ...graph.dtypes import Array
from . import find, operator
from .activations import gelu, sigmoid, silu, softmax
from .common import axis_of, like_first, one_of, refuse_unless, unknown_shape
from .convolution import from_last, to_last
from .linalg import bounded_by, matmul, product_shape
from .norms import grouped
from .quantized import unpacked

CONTRIB = "com.microsoft"
Shape = tuple[int, ...]

for _name, _opset in (("GridSample", 16), ("Pad", 11), ("GatherND", 13), ("Trilu", 14)):
    _definition = find("", _name, _opset)
    assert _definition is not None
    operator(_name, domain=CONTRIB, out=_definition.out, shape=_definition.shape)(_definition.function)


def _ends(start: Array, limit: Array, delta: Array | None) -> tuple[Array, Array, Array]:
    step = np.ones((), start.dtype) if delta is None else delta.reshape(())
    return start.reshape(()), limit.reshape(()), step


def _count(start: Known, limit: Known, delta: Known | None = None) -> Shape:
    definition = find("", "Range", 11)
    assert definition is not None
    assert definition.shape is not None
    count: Shape = definition.shape(*_ends(start, limit, delta))
    return count


@operator("Range", domain=CONTRIB, shape=_count)
def counted(start: Known, limit: Known, delta: Known | None = None) -> Array:
    """Return the numbers from a start to a limit; the step is 1 if left out."""
    definition = find("", "Range", 11)
    assert definition is not None
    numbers: Array = definition.function(*_ends(start, limit, delta))
    return numbers


@operator("ExpandDims", domain=CONTRIB, views=True)
def expand_dims(x: Array, axis: Known) -> Array:
    """Insert an axis of 1."""
    return np.expand_dims(x, axis_of(int(axis.reshape(-1)[0]), x.ndim + 1))


@operator("Unique", domain=CONTRIB, out=(0, "Int64", "Int64"), shape=unknown_shape)
def unique(x: Array) -> tuple[Array, Array, Array]:
    """Return distinct elements in order of first occurrence, the index of each element among them, and counts."""
    _, first, inverse, counts = np.unique(
        x.reshape(-1), return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return x.reshape(-1)[first[order]], np.argsort(order)[inverse.reshape(-1)], counts[order]


def _unfolded(x: Array, *, dim: int = -1, size: int, step: int = 1) -> Shape:
    axis = axis_of(dim, x.ndim)
    n = x.shape[axis]
    refuse_unless(size >= 1 <= step and size <= n, f"slices of {size} at steps of {step} along {n} elements")
    return *x.shape[:axis], (n - size) // step + 1, *x.shape[axis + 1 :], size


@operator("UnfoldTensor", domain=CONTRIB, shape=_unfolded)
def unfold(x: Array, *, dim: int = -1, size: int, step: int = 1) -> Array:
    """Return slices of a size at every step along an axis, each along a new last axis."""
    axis = axis_of(dim, x.ndim)
    count = _unfolded(x, dim=axis, size=size, step=step)[axis]
    places = np.arange(count)[:, None] * step + np.arange(size)
    return np.moveaxis(np.take(x, places, axis), axis + 1, -1)


@operator("CDist", domain=CONTRIB, shape=lambda a, b, **_: (len(a), len(b)))
def distances(a: Array, b: Array, *, metric: str = "sqeuclidean") -> Array:
    """Compute the distances of all rows of one matrix from all of another."""
    one_of("metric", metric, "sqeuclidean", "euclidean")
    apart = a[:, None] - b
    total = (apart * apart).sum(2)
    return np.sqrt(total) if metric == "euclidean" else total


@operator("NGramRepeatBlock", domain=CONTRIB, out=(1,), shape=lambda ids, scores, ngram_size: scores.shape)
def no_repeats(ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """-inf for tokens that would end a run of tokens that was there before."""
    refuse_unless(ngram_size >= 1, f"runs of {ngram_size} tokens")
    runs = ids.shape[1] - ngram_size + 1
    if runs < 1:
        return scores
    same = np.ones((ids.shape[0], runs), np.bool_)
    for k in range(ngram_size - 1):
        same = same & (ids[:, k : k + runs] == ids[:, runs + k : runs + k + 1])
    row, run = np.nonzero(same)
    result = np.array(scores)
    result[row, ids[row, run + ngram_size - 1]] = -np.inf
    return result


# Images


@operator("CropAndResize", domain=CONTRIB)
def crop_and_resize(
    x: Array,
    boxes: Array,
    which: Array,
    size: Known,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Array:
    """Crop boxes and resize them to one size, corners aligned; fill outside with a value."""
    one_of("mode", mode, "bilinear", "nearest")
    cells: list[list[tuple[Array, Array]]] = []
    inside: Array = np.ones((1, 1, 1), np.bool_)
    for i, n in enumerate(int(n) for n in size):
        last = x.shape[2 + i] - 1
        at = _places(boxes, i, n, last)[:, :, None] if i == 0 else _places(boxes, i, n, last)[:, None]
        within = np.clip(at, 0, last)
        inside = inside & (within == at)
        low = np.floor(within + 0.5) if mode == "nearest" else np.floor(within)
        t = within - low
        taps = [(low, 1 - t), (np.minimum(low + 1, last), t)]
        cells.append([(low, np.ones_like(t))] if mode == "nearest" else taps)
    of = which.reshape(-1, 1, 1)
    total: Array | float = 0.0
    for row, up in cells[0]:
        for column, across in cells[1]:
            corner = x[of, :, row.astype(np.int64), column.astype(np.int64)]
            total = total + corner * (up * across)[..., None]
    return np.moveaxis(np.where(inside[..., None], total, extrapolation_value), 3, 1).astype(x.dtype)


def _places(boxes: Array, i: int, n: int, last: int) -> Array:
    """Return positions (K, n) along one axis; a single one is in the middle of its box."""
    start, end = boxes[:, i : i + 1], boxes[:, i + 2 : i + 3]
    if n == 1:
        return (start + end) * 0.5 * last
    return start * last + (end - start) * last / (n - 1) * np.arange(n, dtype=boxes.dtype)


@operator("GroupNorm", domain=CONTRIB, shape=like_first)
def group_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    *,
    activation: Flag,
    channels_last: Flag = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Array:
    """Normalize groups of channels, scale and shift each channel; maybe apply SiLU."""
    y = grouped(from_last(x) if channels_last else x, groups, gamma, beta, epsilon)
    y = silu(y) if activation else y
    return to_last(y) if channels_last else y


@operator("SkipGroupNorm", domain=CONTRIB, shape=lambda x, *others, **how: [x.shape, x.shape])
def skip_group_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: Flag,
    channels_last: Flag = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> tuple[Array, Array]:
    """Normalize a sum as GroupNorm does; return the sum too."""
    if skip.ndim == 2:
        skip = skip[:, None, None] if channels_last else skip[:, :, None, None]
    total = x + skip
    if bias is not None:
        total = total + (bias if channels_last else bias.reshape(-1, 1, 1))
    y = group_norm(
        total, gamma, beta, activation=activation, channels_last=channels_last, epsilon=epsilon, groups=groups
    )
    return y, total


# Fusions by optimizers


operator("BiasAdd", domain=CONTRIB, shape=like_first)(lambda x, bias, skip: x + bias + skip)


@operator("BiasSplitGelu", domain=CONTRIB)
def bias_split_gelu(x: Array, bias: Array) -> Array:
    """Multiply the first half of the features by the Gelu of the second."""
    total = x + bias
    half = total.shape[-1] // 2
    return total[..., :half] * gelu(total[..., half:])


@operator("BiasSoftmax", domain=CONTRIB, shape=like_first)
def bias_softmax(x: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int = 0) -> Array:
    """Compute softmax over an axis and those after it, of the sum with a bias that broadcasts."""
    refuse_unless(bounded_by(bias.shape, x.shape), f"a bias of shape {list(bias.shape)}")
    at = axis_of(axis, x.ndim)
    return softmax((x + bias).reshape(*x.shape[:at], -1) if x.size else x).reshape(x.shape)


@operator("GemmFastGelu", domain=CONTRIB, shape=product_shape)
def gemm_fast_gelu(x: Array, w: Array, bias: Array | None = None) -> Array:
    """Multiply matrices, add a bias, apply Gelu."""
    y = matmul(x, w)
    return gelu(y if bias is None else y + bias, tanh=True)


@operator("BiasDropout", domain=CONTRIB, out=(0, "Bool"))
def bias_dropout(
    x: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    types: NodeTypes,
) -> Array:
    """Add a bias and another tensor: dropping belongs to training."""
    training = training_mode is not None and bool(training_mode.any())
    refuse_unless(not training and not any(types.wanted[1:]), "values dropped at random, or their mask")
    return x + bias if residual is None else x + bias + residual


def _complex(a: Array, b: Array, sign: int) -> Array:
    real = a[..., :1] * b[..., :1] - a[..., 1:] * b[..., 1:] * sign
    imaginary = a[..., :1] * b[..., 1:] * sign + a[..., 1:] * b[..., :1]
    return np.concatenate([real, imaginary], -1)


operator("ComplexMul", domain=CONTRIB)(lambda a, b: _complex(a, b, 1))
operator("ComplexMulConj", domain=CONTRIB)(lambda a, b: _complex(a, b, -1))


@operator("IsAllFinite", domain=CONTRIB, out=("Bool",), shape=lambda *xs, **flags: ())
def is_all_finite(*xs: Array, isinf_only: Flag = 0, isnan_only: Flag = 0) -> Any:  # noqa: ANN401 - a boolean
    """Return whether no tensor holds NaN or infinity, or only one of the two if asked."""
    refuse_unless(bool(xs), "it has no inputs")
    wrong = np.isnan if isnan_only else np.isinf if isinf_only else lambda x: ~np.isfinite(x)
    fine = [~wrong(x).any() for x in xs]
    return np.stack(fine).all()


_ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


@operator("MoE", domain=CONTRIB, shape=like_first)
def experts(
    x: Array,
    router: Array,
    w1: Array,
    b1: Array | None,
    w2: Array,
    b2: Array | None = None,
    w3: Array | None = None,
    b3: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: Flag = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: Flag = 0,
) -> Array:
    """Add up what the experts that the router chooses make of every row, by their probabilities."""
    refuse_unless(w3 is None and b3 is None, "a third layer of experts")
    refuse_unless(
        not use_sparse_mixer and not swiglu_limit_after_activation, "a sparse mixer, or a late limit"
    )
    shares = _shares(router, w1.shape[0], k, normalized=bool(normalize_routing_weights))
    bounds = swiglu_fusion, activation_alpha, activation_beta, swiglu_limit
    return _mixed(x, (w1, b1), (w2, b2), shares, activation_type, bounds)


@operator("QMoE", domain=CONTRIB, shape=like_first)
def quantized_experts(
    x: Array,
    router: Array,
    w1: Array,
    s1: Array,
    b1: Array | None,
    w2: Array,
    s2: Array,
    b2: Array | None = None,
    w3: Array | None = None,
    s3: Array | None = None,
    b3: Array | None = None,
    z1: Array | None = None,
    z2: Array | None = None,
    z3: Array | None = None,
    *others: Array | None,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: Flag = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: Flag = 0,
    weights_prepacked: int = -1,
) -> Array:
    """Mix experts whose weights are whole numbers of a few bits, exactly.

    ONNX Runtime rounds its input to 8 bits where weights have 8 bits in blocks, or where accuracy_level is 4.
    """
    refuse_unless(all(v is None for v in (w3, s3, b3, z3)), "a third layer of experts")
    beside = "router weights, or scales of experts and of activations, beside its own"
    refuse_unless(all(v is None for v in others), beside)
    refuse_unless(
        not use_sparse_mixer and not swiglu_limit_after_activation, "a sparse mixer, or a late limit"
    )
    refuse_unless(quant_type == "int" and weights_prepacked <= 0, "weights that are packed for one device")
    refuse_unless(expert_weight_bits in (2, 4, 8), f"weights of {expert_weight_bits} bits")
    first, second = (
        _dequantized(w, s, z, expert_weight_bits, block_size).astype(x.dtype)
        for w, s, z in ((w1, s1, z1), (w2, s2, z2))
    )
    # ONNX Runtime takes the softmax of the chosen ones alone here.
    shares = _shares(router, w1.shape[0], k, normalized=True)
    bounds = swiglu_fusion, activation_alpha, activation_beta, swiglu_limit
    return _mixed(x, (first, b1), (second, b2), shares, activation_type, bounds)


def _dequantized(raw: Array, scales: Array, points: Array | None, bits: int, block: int) -> Array:
    """Return quantized weights (experts, out, in) as floats."""
    values = unpacked(raw, bits)
    count, out, n = values.shape
    scales = scales.reshape(count, out, -1)
    blocks = -(-n // block) if block > 0 else 1
    refuse_unless(scales.shape[2] == blocks, f"{scales.shape[2]} scales for {blocks} blocks")
    zero = np.full((1, 1, blocks), 1 << (bits - 1), scales.dtype)
    if points is not None:
        # Those of blocks are packed along the blocks, those of whole rows along the rows.
        wide = unpacked(points, bits).reshape(count, *((out, -1) if block > 0 else (-1, 1)))
        zero = wide[:, :out, :blocks].astype(scales.dtype)
    each = block if block > 0 else n
    return (values - np.repeat(zero, each, 2)[:, :, :n]) * np.repeat(scales, each, 2)[:, :, :n]


def _shares(logits: Array, count: int, k: int, *, normalized: bool) -> Array:
    """Return how much every expert adds to a row: its probability if it is one of the k largest, else 0."""
    refuse_unless(0 < k <= count, f"{k} of {count} experts")
    logits = logits.reshape(-1, count)
    rank = np.argsort(np.argsort(-logits, axis=1, kind="stable"), axis=1)
    kept = np.where(rank < k, softmax(logits), 0)
    return kept / kept.sum(1, keepdims=True) if normalized else kept


def _mixed(
    x: Array,
    first: tuple[Array, Array | None],
    second: tuple[Array, Array | None],
    shares: Array,
    activation: str,
    bounds: tuple[int, float, float, float | None],
) -> Array:
    """Compute the experts that rows need, and add up what they give.

    Args:
        x: (..., in).
        first, second: weights (experts, out, in) and biases (experts, out) of both layers.
        shares: of every row and expert.
        activation: between the layers.
        bounds: fusion, alpha, beta and limit of swiglu.
    """
    one_of("activation_type", activation, *_ACTIVATIONS)
    rows = x.reshape(-1, x.shape[-1])
    total: Array | float = 0.0
    for i in range(shares.shape[1]):
        y = rows
        for step, (w, b) in enumerate((first, second)):
            y = np.matmul(y, w[i].swapaxes(0, 1))
            y = y if b is None else y + b[i]
            y = y if step else _activated(y, activation, *bounds)
        total = total + y * shares[:, i : i + 1]
    return np.asarray(total).reshape(x.shape)


def _activated(x: Array, name: str, fusion: int, alpha: float, beta: float, limit: float | None) -> Array:
    if name == "relu":
        return np.maximum(x, 0)
    if name != "swiglu":
        return gelu(x, tanh=True) if name == "gelu" else silu(x) if name == "silu" else x
    refuse_unless(fusion in (1, 2), f"its swiglu_fusion is {fusion}, expected 1 or 2")
    half = x.shape[-1] // 2
    gate, line = (x[..., ::2], x[..., 1::2]) if fusion == 1 else (x[..., :half], x[..., half:])
    if limit is not None:
        gate, line = np.minimum(gate, limit), np.clip(line, -limit, limit)
    return gate * sigmoid(gate * alpha) * (line + beta)
