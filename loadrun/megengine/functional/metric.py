"""Measures of how good predictions are."""

from collections.abc import Iterable

from ...layers.math import topk as _topk
from ...tensors import Tensor, TensorLike, as_tensor

__all__ = ["topk_accuracy"]


def topk_accuracy(
    logits: TensorLike, target: TensorLike, topk: int | Iterable[int] = 1
) -> Tensor | list[Tensor]:
    """Return the share of rows whose label is among the `topk` largest predictions, between 0 and 1.

    Args:
        logits: predictions [N, classes].
        target: labels [N], int32.
        topk: a number, or several for several shares.

    Returns:
        A float32 scalar; a list of them for several numbers.

    >>> topk_accuracy(Tensor([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]]), Tensor([1, 1]), topk=(1, 2))[0].item()
    0.5
    """
    wanted = (topk,) if isinstance(topk, int) else tuple(topk)
    labels = as_tensor(target)
    rows = labels.shape[0]
    _, predicted = _topk(logits, max(wanted))
    column = labels.reshape(-1, 1)
    shares = [(predicted[:, :k] == column).astype("float32").sum() / rows for k in wanted]
    return shares[0] if len(shares) == 1 else shares
