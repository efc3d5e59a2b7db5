"""Measures of how good predictions are, and checks that are part of a graph."""

from collections.abc import Iterable

from ...base.errors import EngineError
from ...graph import params as P
from ...layers.elemwise import abs, maximum, minimum
from ...layers.math import max as _max, topk as _topk
from ...tensors import Tensor, TensorLike, apply1, as_tensor
from ...tensors.access import is_scalar, static_shape, value_of
from ...tensors.promotion import convert

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


def _assert_equal(
    expect: TensorLike, actual: TensorLike, *, maxerr: float = 0.0001, verbose: bool = False
) -> Tensor:
    """Raise where a tensor is not what it should be; inside a trace, record that check.

    Args:
        expect: what should be.
        actual: what is; of the same shape.
        maxerr: the largest ``|expect - actual| / max(1, min(|expect|, |actual|))`` that passes.
        verbose: whether the runtime prints the error of every run.

    Returns:
        `expect`.

    Raises:
        RuntimeError: the error is greater than `maxerr`.

    >>> _assert_equal(Tensor([1.0, 2.0]), Tensor([1.0, 2.00001])).tolist()
    [1.0, 2.0]
    """
    expect, actual = convert(expect, actual)
    if static_shape(expect) != static_shape(actual):
        raise EngineError(f"shapes differ: expected {static_shape(expect)}, found {static_shape(actual)}")
    error = _max(abs(expect - actual) / maximum(minimum(abs(expect), abs(actual)), 1.0))
    param = P.AssertEqual(maxerr=maxerr, verbose=verbose)
    # Where a trace computes later, it judges then.
    if value_of(error) is not None and not error.item() <= maxerr:
        raise EngineError(
            f"the values differ: the largest error is {error.item():.6g}, allowed is {maxerr:g}"
        )
    return apply1("AssertEqual", param, inputs=[expect, actual, error], scalar=is_scalar(expect))
