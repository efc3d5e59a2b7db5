"""The context of a lowering: the node that it replaces, its dtypes, and torch's values as loadrun's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..arrays.array import TracedArray
from ..graph import Opr, params as P
from ..graph.dtypes import Array, array_dtype, plain
from ..layers import emit as e
from ..layers.shared.sizes import ManyAxes
from ..tensors import Tensor, TracedNumber, const
from ..tensors.access import dtype_of, from_stored, recorded, set_name, snapshot
from ..tensors.dtypes import graph_dtype
from .registry import DynamicSizeError, UnsupportedCallError

INT_MAX = 2**31 - 1
NO_COMPLEX = (
    "graphs hold no complex numbers: compute with real and imaginary parts, and Fourier transforms as products with "
    "matrices of cosines and sines"
)
IN_NUMPY = tuple(
    getattr(torch, name) for name in "float32 float64 float16 int64 int32 int16 int8 uint8 bool".split()
)
"""Dtypes that numpy has in all releases of torch."""
# A quantized tensor is the floats that it stands for.
_HELD = {d: str(d).removeprefix("torch.") for d in (*IN_NUMPY, torch.uint64, torch.uint32)} | dict.fromkeys(
    (torch.bfloat16, torch.qint8, torch.quint8, torch.qint32), "float32"
)


def narrow(dtype: torch.dtype) -> np.dtype[Any]:
    """Return the dtype in which the graph computes one of torch.

    Raises:
        UnsupportedCallError: there is none (complex numbers, 8-bit floats, uint16).

    >>> import torch
    >>> narrow(torch.int64), narrow(torch.bfloat16)
    (dtype('int64'), dtype('float32'))
    """
    kind = _HELD.get(dtype)
    if kind is None:
        raise UnsupportedCallError(
            f"{dtype} has no operators in a graph; compute in float32, int64, int32, int16, int8, uint8 or bool"
        )
    return np.dtype(kind)


def no_numbers(x: torch.Tensor) -> str:
    """Say why a tensor is not an array of numbers, and what to give instead; "" if it is one."""
    if x.is_nested:
        return "a nested tensor, whose rows differ in size; make it dense with .to_padded_tensor(0.0)"
    if x.layout is not torch.strided:
        return f"a tensor of layout {x.layout}; make it dense with .to_dense()"
    if x.is_quantized:
        return f"a quantized tensor ({x.dtype}); take its .dequantize(), or its .int_repr()"
    if x.is_meta:
        return "a tensor on the device meta, which has no values; make one on the CPU"
    if type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor of the class {type(x).__name__}, which computes in its own way; take a torch.Tensor"
    return ""


def ndarray(x: torch.Tensor) -> Array:
    """Copy the values of a torch tensor to an ndarray of the graph's dtype."""
    want = narrow(x.dtype)
    if why := no_numbers(x):
        raise UnsupportedCallError(why)
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype is torch.bfloat16:
        x = x.float()
    try:
        values: Array = x.contiguous().numpy()
    except RuntimeError as e:
        # Of a transformation such as torch.func.grad, or of another kind of tensor.
        raise UnsupportedCallError(
            f"a constant of the program has no values ({type(x).__name__}: {e})"
        ) from e
    with np.errstate(all="ignore"):
        return np.array(values, want, order="C")


def constant(x: torch.Tensor, name: str = "") -> Tensor:
    """Turn a torch tensor into a constant of the graph."""
    value = ndarray(x)
    scalar = value.ndim == 0
    tensor = from_stored(value.reshape(1) if scalar else value, array_dtype(value), scalar, const=True)
    set_name(tensor, name)
    return tensor


def of_numpy(value: Array, dtype: torch.dtype) -> torch.Tensor:
    """Convert an ndarray of the graph to a torch tensor of the dtype that the torch program has there."""
    return torch.from_numpy(np.array(value, order="C")).to(dtype)


def is_complex(value: Any) -> bool:
    """Return whether a torch tensor or a Python number is complex."""
    return isinstance(value, complex) or (isinstance(value, torch.Tensor) and value.is_complex())


def touches_complex(node: Any) -> bool:
    """Return whether a node of an exported graph takes or returns complex numbers."""
    values = [node.meta.get("val"), *node.args, *node.kwargs.values()]
    leaves = torch.utils._pytree.tree_leaves(values)
    return any(is_complex(v.meta.get("val") if isinstance(v, torch.fx.Node) else v) for v in leaves)


def plain_number(value: Any) -> Any:
    """Convert a Python number to one that the graph can hold.

    Raises:
        UnsupportedCallError: an integer beyond 64 bits, or a complex number.
    """
    if isinstance(value, complex):
        raise UnsupportedCallError(NO_COMPLEX)
    if type(value) is int and not -(2**63) <= value < 2**64:
        raise UnsupportedCallError(f"the integer {value} has more than 64 bits")
    return value


def tensor_or_axes(value: Any) -> Tensor | ManyAxes:
    """Convert an operator's argument as `as_tensor` does, unless it has more axes than a tensor can have."""
    return value if isinstance(value, ManyAxes) else as_tensor(value)


def is_number(value: Any, number: float) -> bool:
    """Return whether an operator's argument is a number at all sizes, and not only at the example's."""
    return type(value) in (bool, int, float) and bool(value == number)


def as_tensor(value: Any, dtype: Any = None) -> Tensor:
    """Convert an operator's argument to a plain tensor, of a dtype if one is named."""
    if isinstance(value, TracedArray):
        value = snapshot(value)
    if isinstance(value, Tensor):
        return value if dtype is None else _cast(value, dtype)
    if isinstance(value, TracedNumber):
        tensor = recorded(value)
        if tensor is not None:
            return tensor if dtype is None else _cast(tensor, dtype)
    if isinstance(value, ManyAxes):
        raise UnsupportedCallError(value.refusal)
    value = plain_number(value)
    if dtype is None:
        whole = "int32" if isinstance(value, int) and -INT_MAX - 1 <= value <= INT_MAX else "int64"
        dtype = "bool" if isinstance(value, bool) else whole if isinstance(value, int) else "float32"
    kind = np.dtype(dtype)
    with np.errstate(all="ignore"):
        return const(np.asarray(value).astype(kind), kind)


def _cast(x: Tensor, dtype: Any) -> Tensor:
    want = graph_dtype(dtype)
    if want.name == "Bool" and dtype_of(x).name != "Bool":
        # Conversion to bool is a comparison in torch, so that 0.5 and NaN are true.
        return snapshot(TracedArray._around(x) != 0)
    if dtype_of(x).is_float and want.name in ("Int8", "Int16", "Uint8"):
        x = e.cast(x, plain("Int32"))
    return e.cast(x, want)


def as_array(value: Any, dtype: Any = None) -> Any:
    """Convert as `as_tensor` does, to an array that computes as ndarrays do."""
    return TracedArray._around(as_tensor(value, dtype))


_SYMBOLIC = (torch.SymInt, torch.SymFloat)


class FxCall:
    """One call in an exported graph.

    Args:
        node: the node.
        fakes: its arguments as torch's shape inference sees them: fake tensors, numbers, symbolic sizes.
        named: its keyword arguments alike.

    Attributes:
        fake: torch's fake value of the result: a fake tensor, or a tuple of them.
    """

    def __init__(self, node: Any, fakes: Sequence[Any], named: dict[str, Any]) -> None:
        self.node = node
        self.fakes = fakes
        self.named = named
        self.fake = node.meta.get("val")
        self._wide = False

    def in_float32(self) -> FxCall:
        """Return the call with float32 in place of float16."""
        call = FxCall(self.node, self.fakes, self.named)
        call._wide = True
        return call

    def _narrow(self, dtype: torch.dtype) -> np.dtype[Any]:
        return narrow(torch.float32 if self._wide and dtype is torch.float16 else dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the (first) result in the graph."""
        first = self.fake[0] if isinstance(self.fake, (tuple, list)) else self.fake
        return self._narrow(first.dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the (first) result as torch knows it; its sizes may be symbolic."""
        first = self.fake[0] if isinstance(self.fake, (tuple, list)) else self.fake
        return tuple(first.shape)

    def common(self, a: int, b: int) -> np.dtype[Any]:
        """Return the dtype to which torch promotes two arguments together."""
        return self._narrow(torch.result_type(*(_promotable(self.fakes[place]) for place in (a, b))))

    def static(self, sizes: Sequence[Any], what: str) -> list[int]:
        """Require sizes that are numbers, because an operator of MegEngine has them as parameters.

        Raises:
            DynamicSizeError: one of them is symbolic.
        """
        numbers = [n.node.maybe_as_int() if isinstance(n, torch.SymInt) else n for n in sizes]
        if any(not isinstance(n, int) or isinstance(n, TracedNumber) for n in numbers):
            # Of a number of the graph torch's own stands among the arguments.
            known = [n for n in sizes if isinstance(n, torch.SymInt)] or pytree.tree_leaves(
                (self.fakes, self.named)
            )
            raise DynamicSizeError(
                f"{what} depends on a dynamic size {[*map(str, sizes)]}; make this axis static",
                [s for n in known if isinstance(n, _SYMBOLIC) for s in n.node.expr.free_symbols],
            )
        return [int(n) for n in numbers]

    def shape_of(self, place: int) -> tuple[Any, ...]:
        """Return the shape of a tensor argument as torch knows it."""
        return tuple(self.fakes[place].shape)


def _promotable(value: Any) -> Any:
    """Replace a symbolic number by one that torch promotes."""
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else True if isinstance(value, torch.SymBool) else value


def axis_of(axis: int, ndim: int) -> int:
    """Count an axis from the front."""
    return axis % ndim if ndim else 0


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Count the axes of a reduction from the front: one, several, or all if none is given."""
    if axes is None or (isinstance(axes, (list, tuple)) and not axes):
        return tuple(range(ndim))
    dims = axes if isinstance(axes, (list, tuple)) else [axes]
    return tuple(sorted({axis_of(a, ndim) for a in dims})) if ndim else ()


# Operators of torch on float16, which it computes in float32 and rounds once.
#
# Where a lowering takes one step for such an operator, a step in float16 gives the same. Where it takes
# several, or reads a number that float16 cannot hold, it gets float32.

_HALF, _LEAST, _MOST = plain("Float16"), 2.0**-14, 65504.0
_STEPS = (P.Elemwise, P.Reduce, P.MatrixMul)
_IN_STEPS = frozenset(
    (
        *("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "relu", "relu6", "hardtanh", "where"),
        *("nan_to_num", "linear", "addmm", "baddbmm", "addmv"),
        *("linalg_cross", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d"),
    )
)
"""Operators that choose among numbers, so that no step rounds; products, whose weights stay float16; and those of which
torch itself rounds the steps."""
_ROUNDED = ("aten.pow.Tensor_Scalar", "aten.pow.Scalar")
"""Operators of which torch rounds the numbers to float16, too."""


def is_half(call: FxCall) -> bool:
    """Tell whether a call takes or gives float16."""
    fakes = pytree.tree_leaves((call.fake, call.fakes, call.named))
    return any(isinstance(fake, torch.Tensor) and fake.dtype is torch.float16 for fake in fakes)


def needs_float32(name: str, call: FxCall) -> bool:
    """Tell whether a number among the arguments is none of float16, or another tensor without axes stands for one."""
    if name in _ROUNDED:
        return False
    for leaf in pytree.tree_leaves((call.fakes, call.named)):
        if isinstance(leaf, float) and math.isfinite(leaf) and leaf and not _LEAST <= abs(leaf) <= _MOST:
            return True
        if isinstance(leaf, torch.Tensor) and not leaf.shape and leaf.dtype in (torch.float32, torch.float64):
            return True
    return False


def rounds_often(name: str, oprs: Iterable[Opr]) -> bool:
    """Tell whether the operators that were recorded for one of torch's round to float16 several times."""
    steps = [o for o in oprs if o.params and isinstance(o.params[0], _STEPS)]
    return sum(o.outputs[0].dtype == _HALF for o in steps) > 1 and name.split(".")[1] not in _IN_STEPS


def widened(args: Sequence[Any]) -> list[Any]:
    """Return arguments with float32 in place of float16."""

    def wide(leaf: Any) -> Any:
        return e.cast(leaf, "float32") if isinstance(leaf, Tensor) and dtype_of(leaf) == _HALF else leaf

    changed: list[Any] = torch.fx.node.map_aggregate(list(args), wide)
    return changed
