"""Elementwise modes by name, as MegEngine's own tests and quantized modules call them."""

from ..graph import params as P
from ..tensors import Tensor, TensorLike, apply1, as_tensor
from ..tensors import elemwise as _promoted
from ..tensors.dtypes import DTypeLike, graph_dtype
from .geometry import Mode, member


def elwise(*args: TensorLike, mode: Mode) -> Tensor:
    """Return an elementwise mode of promoted operands.

    Args:
        args: tensors, arrays or numbers.
        mode: a member of `loadrun.graph.params.ElemwiseMode` or its name in any case.

    Raises:
        RuntimeError: there is no such mode, or it does not take these operands.

    >>> elwise(Tensor([1.0, -2.0]), mode="abs").tolist()
    [1.0, 2.0]
    """
    return _promoted(member(P.ElemwiseMode, mode, "mode"), *args)


def elemwise_multi_type(*args: TensorLike, mode: Mode, dtype: DTypeLike | None = None) -> Tensor:
    """Return an elementwise mode of operands as they are, with the result in a given dtype.

    Args:
        args: tensors or arrays.
        mode: a member of `loadrun.graph.params.ElemwiseMultiTypeMode` or its name in any case.
        dtype: the dtype of the result, for instance ``qint8(scale)``.

    Raises:
        RuntimeError: there is no such mode, or it does not take these operands.

    >>> from loadrun.megengine.core.tensor.dtype import qint8
    >>> x = Tensor([4, -4], dtype=qint8(0.5))
    >>> elemwise_multi_type(x, mode="qrelu", dtype=qint8(1.0)).tolist()
    [2, 0]
    """
    output = None if dtype is None else graph_dtype(dtype)
    param = P.ElemwiseMultiType(mode=member(P.ElemwiseMultiTypeMode, mode, "mode"))
    return apply1("ElemwiseMultiType", param, inputs=[as_tensor(x) for x in args], output_dtype=output)
