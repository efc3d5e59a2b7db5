"""com.microsoft's operators that are ONNX's own in an older form, or a few each."""

from typing import Any

from ...arrays.names import np
from ...graph.composite import Flag, Known, NodeTypes
from ...graph.dtypes import Array
from . import find, operator
from .activations import gelu, silu, softmax
from .common import axis_of, like_first, one_of, refuse_unless, unknown_shape
from .convolution import from_last, to_last
from .linalg import bounded_by, matmul, product_shape
from .norms import grouped

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
