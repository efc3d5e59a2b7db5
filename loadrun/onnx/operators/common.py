"""What definitions of several families share."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...arrays.names import kernel, np
from ...graph.composite import Flag
from ...graph.dtypes import Array, DType
from ...ops.registry import UnknownShape
from ..tensors import NAMES
from ..types import dtype_of_kind

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def tensor_type(number: int) -> DType:
    """Return the type that ONNX's TensorProto numbers so.

    >>> str(tensor_type(7))
    'Int64'
    """
    if number not in NAMES or NAMES[number] == "complex128":
        raise ValueError(f"{number} is the number of no type of tensors")
    return dtype_of_kind(number)


def refuse_unless(fits: bool, why: str) -> None:
    """Raise an error unless a condition holds."""
    if not fits:
        raise ValueError(why)


@kernel
def refuse_where(wrong: Array, why: str, error: type[Exception] = ValueError) -> None:
    """Raise an error where one of some booleans is true."""
    if np.any(wrong):
        raise error(why)


def one_of(name: str, value: T, *known: T) -> T:
    """Return an attribute's value, which must be one of some."""
    refuse_unless(value in known, f"its {name} is {value!r}, expected {', '.join(map(str, known))}")
    return value


def axis_of(axis: int, rank: int) -> int:
    """Count an axis from the front."""
    refuse_unless(-rank <= axis < max(rank, 1), f"axis {axis} does not exist in {rank} axes")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int] | Array | None, rank: int) -> list[int]:
    """Count axes from the front; all of them where none are given."""
    return list(range(rank)) if axes is None else [axis_of(int(a), rank) for a in axes]


@kernel
def integers(values: Array | None) -> list[int]:
    """Return the whole numbers of an array, none of an input that is left out; where it is traced, symbolic sizes."""
    return [] if values is None else [int(v) for v in values.reshape(-1)]


def unknown_shape(*inputs: Any, **attributes: Any) -> Any:  # noqa: ANN401 - it never returns
    """Say that the shape depends on data."""
    raise UnknownShape


def like_first(x: Array, *others: Array | None, **attributes: object) -> tuple[int, ...]:
    """Give the result the shape of the first input."""
    return x.shape


_KEPT: OrderedDict[tuple[int, str], tuple[object, Any]] = OrderedDict()
_MOST_KEPT = 256


def once(attribute: object, tag: str, make: Callable[[], T]) -> T:
    """Return what was made of an attribute before: long lists are made to tables at the first call alone.

    Args:
        attribute: the list, always the same object for a node.
        tag: what is made of it.
        make: makes it.

    >>> numbers = [1, 2]
    >>> once(numbers, "sum", lambda: sum(numbers)), once(numbers, "sum", lambda: 0)
    (3, 3)
    """
    key = id(attribute), tag
    kept = _KEPT.get(key)
    if kept is None or kept[0] is not attribute:
        kept = _KEPT[key] = attribute, make()
        if len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    result: T = kept[1]
    return result


def with_attributes(function: Callable[..., Any], called: F, **attributes: object) -> F:
    """Give a function the signature of another one, and further attributes; 0 and 1 are truth values."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=value,
            annotation=Flag if type(value) is int and value in (0, 1) else object,
        )
        for name, value in attributes.items()
        if name not in signature.parameters
    ]
    called.__signature__ = signature.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    return called


def taking(**attributes: object) -> Callable[[F], F]:
    """Give a function that passes attributes on a signature that names them; see `with_attributes`."""
    return lambda function: with_attributes(function, function, **attributes)
