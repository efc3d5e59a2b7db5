"""Einstein summation (MegEngine's ``functional/einsum.py``)."""

from ..tensors import Tensor, TensorLike, as_tensor
from ..tensors.access import dtype_of
from .contraction import contracted
from .geometry import require

__all__ = ["einsum"]


def einsum(equation: str, *args: TensorLike) -> Tensor:
    """Return products of tensors, summed over the axes whose letters the result does not have; numpy's notation.

    A letter that a tensor has twice stands for a diagonal, ``...`` for all axes that have no letter. Without ``->`` the
    result has the letters that stand once, in the order of the alphabet. Pairs of tensors are contracted as matrix
    products, in numpy's greedy order.

    Args:
        equation: for instance ``"ij,jk->ik"``.
        args: tensors or arrays of one dtype, one for each part of the equation.

    Raises:
        AssertionError: there are no tensors, or their dtypes differ.
        ValueError: the equation does not fit the tensors.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> einsum("ij,jk->ik", x, x).tolist(), einsum("ii", x).item()
    ([[7.0, 10.0], [15.0, 22.0]], 5.0)
    """
    tensors = [as_tensor(x) for x in args]
    kinds = [*dict.fromkeys(str(dtype_of(x)) for x in tensors)]
    require(len(kinds) == 1, f"einsum takes tensors of one dtype, found {', '.join(kinds) or 'none'}")
    return contracted(equation, tensors)
