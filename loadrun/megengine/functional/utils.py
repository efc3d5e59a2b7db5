"""Checks that are part of a graph."""

from ...base.errors import EngineError
from ...graph import params as P
from ...layers.elemwise import abs, maximum, minimum
from ...layers.math import max
from ...tensors import Tensor, TensorLike, apply1
from ...tensors.access import is_scalar, static_shape, value_of
from ...tensors.promotion import convert
from .metric import topk_accuracy as topk_accuracy


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
    error = max(abs(expect - actual) / maximum(minimum(abs(expect), abs(actual)), 1.0))
    param = P.AssertEqual(maxerr=maxerr, verbose=verbose)
    # Where a trace computes later, it judges then.
    if value_of(error) is not None and not error.item() <= maxerr:
        raise EngineError(
            f"the values differ: the largest error is {error.item():.6g}, allowed is {maxerr:g}"
        )
    return apply1("AssertEqual", param, inputs=[expect, actual, error], scalar=is_scalar(expect))
