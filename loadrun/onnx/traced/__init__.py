"""The definitions of ONNX's operators on traced arrays: how a graph of composites becomes one of MegEngine's operators.

`recording.py` walks the graph at the sizes of its inputs. What is known at these sizes stays an array and is computed;
all else are `TracedArray`s, on which the definitions are called: `loadrun.arrays` records what numpy's functions
compute. A value that depends on inputs is never read: where a definition asks for one, the model is refused.

Where MegEngine has an operator or a layer that is faster or more exact, a function stands beside the definition, which
takes and returns the same. It takes the place of an operator, or of a `kernel` that definitions call, which serves all
of them; a constant is a numpy array there, and `operand` gives the tensor of either. It may return NotImplemented: then
the definition itself is recorded. ::

    @instead("Softmax", since=13)
    def softmax(x: Any, *, axis: int = -1) -> Any:
        return layers.softmax(operand(x), axis)

    @instead(convolution.convolved)
    def convolved(x: Any, w: Any, window: Window, group: int = 1) -> Any: ...
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ...arrays import promotion
from ...arrays.array import TracedArray
from ...base.errors import UnsupportedError
from ...tensors import Tensor
from ...tensors.access import is_scalar
from ..operators import VERSIONS

__all__ = ["HALVES", "KERNELS", "OPERATORS", "Untraceable", "instead", "known", "operand", "traced"]

F = TypeVar("F", bound=Callable[..., Any])

OPERATORS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What is recorded for the functions of definitions."""
KERNELS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What is recorded for functions that definitions call."""
HALVES: set[str] = set()
"""Operators that round once, or not at all, so that float16 need not become float32 for them."""


for _names in (
    "Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile DepthToSpace SpaceToDepth Gather",
    "Identity Where Pad Add Sub Mul Div Neg Abs Max Min Relu Sqrt Equal Less LessOrEqual Greater GreaterOrEqual",
):
    HALVES.update(_names.split())


class Untraceable(UnsupportedError):
    """A value that data decide is needed while the graph is made; the text says which."""


def traced(value: Any) -> TracedArray:
    """Return a traced array of one, or of a constant."""
    if isinstance(value, TracedArray):
        return value
    tensor = value if isinstance(value, Tensor) else operand(value)
    return TracedArray._around(tensor, scalar=is_scalar(tensor))


def known(value: Any, what: str) -> Any:
    """Return an array that is known.

    Raises:
        Untraceable: it depends on the model's inputs.
    """
    if isinstance(value, Tensor):
        raise Untraceable(
            f"its {what} must be known, but depends on the model's inputs; give it as constants="
        )
    return value


def operand(value: Any, dtype: Any = None) -> Tensor:
    """Return the tensor of a traced array or of a constant.

    Args:
        value: what a definition gets.
        dtype: a numpy dtype to convert it to.
    """
    return promotion.operand(value, value.dtype if dtype is None else dtype)


def instead(
    *targets: str | Callable[..., Any], domain: str = "", since: int | None = None, halves: bool = False
) -> Callable[[F], F]:
    """Register what is recorded instead of a definition or a kernel; see above.

    Args:
        targets: names of operators, or kernels.
        domain: the operators' domain.
        since: the version of the definitions, all of them by default.
        halves: whether it takes float16 as it is; else it gets float32, and its result is rounded.
    """

    def register(function: F) -> F:
        for target in targets:
            if callable(target):
                KERNELS[getattr(target, "__wrapped__", target)] = function
                continue
            for definition in VERSIONS[domain, target]:
                if since in (None, definition.since):
                    OPERATORS[definition.function] = function
            HALVES.update([target] if halves else [])
        return function

    return register
