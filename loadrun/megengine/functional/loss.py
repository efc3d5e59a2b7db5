"""Losses as plain arithmetic; they are recorded and computed like any other function."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers.activation import logsigmoid, logsumexp, relu
from ...layers.elemwise import abs, equal, log, logaddexp, maximum
from ...layers.math import mean, sum
from ...layers.tensor import arange, broadcast_to, cumsum, linspace, zeros
from ...layers.windows import indexing_one_hot
from ...tensors import Tensor, TensorLike, as_tensor, elemwise


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction not in ("mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction; use mean, sum or none")
    return mean(loss) if reduction == "mean" else sum(loss)


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Reduce what a loss gives by its keyword `reduction`."""

    @wraps(function)
    def reduced(*args: Any, reduction: str = "mean", **kwargs: Any) -> Tensor:
        return _reduced(function(*args, **kwargs), reduction)

    return reduced


@_reduction
def l1_loss(pred: TensorLike, label: TensorLike, reduction: str = "mean") -> Tensor:
    """Return the absolute difference of predictions and labels.

    Args:
        pred: predictions of any shape.
        label: what they should be, of the same shape.
        reduction: "mean" or "sum" of all elements, or "none"; by keyword.

    Raises:
        ValueError: another reduction.

    >>> l1_loss(Tensor([3, 3, 3, 3]), Tensor([2, 8, 6, 1])).item()
    2.75
    """
    return abs(as_tensor(pred) - label)


@_reduction
def square_loss(pred: TensorLike, label: TensorLike, reduction: str = "mean") -> Tensor:
    """Return the squared difference of predictions and labels; arguments as for `l1_loss`.

    >>> square_loss(Tensor([3, 3, 3, 3]), Tensor([2, 8, 6, 1]), reduction="none").tolist()
    [1.0, 25.0, 9.0, 4.0]
    """
    return elemwise(P.ElemwiseMode.POW, as_tensor(pred) - label, 2)


@_reduction
def cross_entropy(
    pred: TensorLike,
    label: TensorLike,
    axis: int = 1,
    with_logits: bool = True,
    label_smooth: float = 0,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross entropy of classes.

    Args:
        pred: logits, or probabilities without `with_logits`; the classes lie along `axis`.
        label: class numbers, of the shape of `pred` without `axis`.
        axis: where the classes are.
        with_logits: whether the softmax is still to be taken.
        label_smooth: the share of the target that is spread over all classes.
        reduction: "mean" or "sum" of all elements, or "none"; by keyword.

    Raises:
        AssertionError: `label` does not have one dimension less than `pred`.
        ValueError: another reduction.

    >>> round(cross_entropy(Tensor([[0.0, 1.0], [0.3, 0.7]]), Tensor([1, 1])).item(), 4)
    0.4131
    """
    scores, target = as_tensor(pred), as_tensor(label)
    if scores.ndim != target.ndim + 1:
        raise AssertionError(
            f"target ndim must be one less than input ndim; input_ndim={scores.ndim} target_ndim={target.ndim}"
        )
    chosen = indexing_one_hot(scores, target, axis)
    total: Tensor | int = logsumexp(scores, axis) if with_logits else 0
    primary = chosen if with_logits else log(chosen)
    if label_smooth is None or (isinstance(label_smooth, (int, float)) and label_smooth == 0):
        return total - primary
    spread = scores if with_logits else log(scores)
    return total - label_smooth * mean(spread, axis) - (1 - label_smooth) * primary


@_reduction
def binary_cross_entropy(
    pred: TensorLike, label: TensorLike, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """Return the cross entropy of yes-or-no predictions.

    Args:
        pred: logits, or probabilities without `with_logits`, of any shape.
        label: 0 or 1, of the same shape.
        with_logits: whether the sigmoid is still to be taken.
        reduction: "mean" or "sum" of all elements, or "none"; by keyword.

    Raises:
        ValueError: another reduction.

    >>> round(binary_cross_entropy(Tensor([0.9, 0.7, 0.3]), Tensor([1.0, 1.0, 1.0])).item(), 4)
    0.4329
    """
    x, y = as_tensor(pred), as_tensor(label)
    if with_logits:
        return -(y * logsigmoid(x) + (1 - y) * logsigmoid(-x))
    return -(y * log(x) + (1 - y) * log(1 - x))


@_reduction
def hinge_loss(pred: TensorLike, label: TensorLike, norm: str = "L1", reduction: str = "mean") -> Tensor:
    """Return the hinge loss of support vector machines, summed over the classes.

    Args:
        pred: predictions [N, C].
        label: -1 or 1, [N, C].
        norm: "L1", or "L2" to square each class's loss.
        reduction: "mean" or "sum" over N, or "none"; by keyword.

    Raises:
        AssertionError: another norm.
        ValueError: another reduction.

    >>> pred = Tensor([[0.5, -0.5, 0.1], [-0.6, 0.7, 0.8]])
    >>> hinge_loss(pred, Tensor([[1, -1, -1], [-1, 1, 1]])).item()
    1.5
    """
    if norm.upper() not in ("L1", "L2"):
        raise AssertionError(f"norm must be L1 or L2, found {norm!r}")
    loss = relu(1.0 - as_tensor(pred) * label)
    return sum(loss if norm.upper() == "L1" else elemwise(P.ElemwiseMode.POW, loss, 2), 1)


def _positions(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each element of concatenated sequences the number of its sequence and its place in it."""
    ends = cumsum(lengths, axis=0)
    at = arange(0, lengths.sum(), dtype="int32")
    row = sum((at >= ends.reshape(-1, 1)).astype("int32"), 0)
    return row, at - (ends - lengths)[row]


def _expanded(label: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """Return labels [N, S] with a blank before, between and after them."""
    n = lengths.shape[0]
    if label.ndim == 1:
        rows = zeros((n, lengths.max()), dtype="int32") + blank
        rows[_positions(lengths)] = label
        label = rows
    wide = zeros((n, label.shape[1] * 2 + 1), dtype="int32") + blank
    wide[:, 1::2] = label
    return wide


def _safe_log(x: Tensor) -> Tensor:
    return log(maximum(x, float(np.finfo(x.dtype).tiny)))


def ctc_loss(
    pred: TensorLike,
    pred_lengths: TensorLike,
    label: TensorLike,
    label_lengths: TensorLike,
    blank: int = 0,
    reduction: str = "mean",
) -> Tensor:
    """Return the connectionist temporal classification loss.

    Args:
        pred: probabilities [T, N, C] over T steps.
        pred_lengths: how many steps of each sequence count, [N].
        label: class numbers without blanks, [N, S] or concatenated [sum(label_lengths)].
        label_lengths: how many labels each sequence has, [N].
        blank: the class that stands for no label.
        reduction: "mean" of the losses, each divided by its number of labels, "sum", or "none".

    Raises:
        AssertionError: lengths, labels and predictions do not fit each other.
        ValueError: another reduction.

    >>> steps = [[[0.0614, 0.9386], [0.8812, 0.1188]], [[0.699, 0.301], [0.2572, 0.7428]]]
    >>> round(ctc_loss(Tensor(steps), Tensor([2, 2]), Tensor([1, 1]), Tensor([1, 1])).item(), 4)
    0.1504
    """
    probs, target = as_tensor(pred), as_tensor(label)
    steps, counts = as_tensor(pred_lengths), as_tensor(label_lengths)
    _check_ctc(probs, steps, target, counts, blank)
    time, batch, _ = probs.shape
    target = _expanded(target, counts, blank)
    # A label may be skipped to unless it repeats the one before; repeats are zero in this mask.
    skip = target[:, 2:] != target[:, :-2]
    length = target.shape[1]
    rows = linspace(0, batch - 1, batch).astype("int32").reshape(-1)
    each = broadcast_to(rows.reshape(-1, 1), (batch, length)).reshape(-1)
    match = probs.transpose(1, 0, 2)[each, :, target.reshape(-1)].reshape(batch, length, -1)
    alpha = zeros((batch, length), dtype="float32")
    alpha[:, :2] = match[:, :2, 0]
    alpha = _safe_log(alpha)
    loss = _ends(alpha, rows, counts) * equal(steps - 1, 0)
    for t in range(1, time):
        before = alpha[:, :-2]
        alpha[:, 1:] = logaddexp(alpha[:, 1:], alpha[:, :-1])
        alpha[:, 2:] = alpha[:, 2:] * (1 - skip) + logaddexp(alpha[:, 2:], before) * skip
        alpha += _safe_log(match[:, :, t])
        loss += _ends(alpha, rows, counts) * equal(steps - 1, t)
    return _reduced(loss / counts if reduction == "mean" else loss, reduction)


def _ends(alpha: Tensor, rows: Tensor, counts: Tensor) -> Tensor:
    """Return the loss of sequences that end now: in their last label or in the blank behind it."""
    return -logaddexp(alpha[rows, counts * 2], alpha[rows, counts * 2 - 1])


def _check_ctc(probs: Tensor, steps: Tensor, target: Tensor, counts: Tensor, blank: int) -> None:
    if probs.ndim != 3:
        raise AssertionError(f"pred must have shape (T, N, C), found {probs.ndim} dimensions")
    time, batch, classes = (int(n) for n in probs.shape)
    for name, lengths in (("pred_lengths", steps), ("label_lengths", counts)):
        if int(lengths.size) != batch:
            raise AssertionError(f"{name} must be equal to batch_size {batch}, but got {int(lengths.size)}")
    if not 0 <= blank < classes:
        raise AssertionError(f"blank must be in label range [0, {classes}), but got {blank}")
    used, wanted = steps.numpy(), counts.numpy()
    if used.min() <= 0 or used.max() > time:
        raise AssertionError(
            f"pred_lengths must be in range (0, {time}], but got min {used.min()}, max {used.max()}"
        )
    if wanted.min() <= 0:
        raise AssertionError("label lengths must be positive")
    if target.ndim == 1 and int(target.size) != wanted.sum():
        raise AssertionError(
            f"label size {int(target.size)} must be equal to sum(label_lengths) {wanted.sum()}"
        )
    if target.ndim == 2 and wanted.max() > int(target.shape[1]):
        raise AssertionError(
            f"label_lengths must be in range (0, {int(target.shape[1])}], but got max {wanted.max()}"
        )
