"""Read and set what a tensor is to the graph: for the packages above, not for users.

A `Tensor` shows users MegEngine's attributes. Its state in the graph lies behind underscores, and these functions are
the only way to it from other packages; a class derived from `Tensor` knows it as any class knows its parent's.
"""

from typing import Any, TypeVar, overload

from ..graph import Var
from ..graph.dtypes import Array, DType
from .symbolic import TracedNumber
from .value import Session, Tensor

T = TypeVar("T", bound=Tensor)


def dtype_of(x: Tensor) -> DType:
    """Return the graph's dtype."""
    return x._dtype


def is_scalar(x: Tensor) -> bool:
    """Return whether the shape is ``()``; a graph stores such a value as ``[1]``."""
    return x._scalar


def is_constant(x: Tensor) -> bool:
    """Return whether the value is a constant of the graph, whatever a trace does with captured values."""
    return x._const


def value_of(x: Tensor) -> Array | None:
    """Return the value in storage form (at least one axis), None if it is not known yet."""
    return x._value


def stored(x: Tensor) -> Array:
    """Return the value in storage form, computed where needed."""
    return x._stored()


def stored_shape(x: Tensor) -> tuple[int, ...]:
    """Return the sizes in storage form, as plain numbers."""
    return x._sizes()


def static_shape(x: Tensor) -> tuple[int, ...]:
    """Return the shape as users see it, in plain numbers."""
    return x._tuple_shape


def variable_of(x: Tensor) -> Var | None:
    """Return the variable that a tensor of a running trace stands for, else None."""
    return x._var


def recorded_variable(x: Tensor) -> Var:
    """Return the variable of a tensor that is known to belong to a running trace."""
    assert x._var is not None
    return x._var


def session_of(x: Tensor) -> Session | None:
    """Return the session of the running trace that a tensor belongs to, else None."""
    return x._session


def qparams_of(x: Tensor) -> Any:
    """Return the quantization parameters, None until someone asked for them."""
    return x._qparams


def tensor_name(x: Tensor) -> str:
    """Return the name that the tensor was given, empty without one."""
    return x._name


def attribute_path(x: Tensor) -> str | None:
    """Return the path of the module's attribute that the tensor is, None for any other tensor."""
    return x._path


def complex_pair(x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the real and the imaginary part of complex numbers in a trace, None for all other values."""
    return x._pair


def recorded(number: TracedNumber) -> Tensor | None:
    """Return the int32 scalar that a symbolic number is in the running trace, None outside of it."""
    return number._tensor()


def as_vector(x: Tensor) -> Tensor:
    """Return the same value seen as a vector where it is a scalar."""
    return x._vector()


def as_scalar(x: Tensor) -> Tensor:
    """Return a value of one element seen as a scalar."""
    return x._as_scalar()


def snapshot(x: Tensor) -> Tensor:
    """Return what the tensor is now, whatever is assigned to it later."""
    return x._frozen()


def settle(x: Tensor) -> None:
    """Record what a view still has to read."""
    x._settle()


@overload
def from_stored(
    value: Array | None, dtype: DType, scalar: bool = ..., *, const: bool = ..., kind: type[T]
) -> T: ...


@overload
def from_stored(value: Array | None, dtype: DType, scalar: bool = ..., *, const: bool = ...) -> Tensor: ...


def from_stored(
    value: Array | None,
    dtype: DType,
    scalar: bool = False,
    *,
    const: bool = False,
    kind: type[Tensor] = Tensor,
) -> Tensor:
    """Return a tensor around a stored value, without copying or checking."""
    return kind._of(value, dtype, scalar, const=const)


@overload
def from_variable(var: Var, dtype: DType, scalar: bool, session: Session, *, kind: type[T]) -> T: ...


@overload
def from_variable(var: Var, dtype: DType, scalar: bool, session: Session) -> Tensor: ...


def from_variable(
    var: Var, dtype: DType, scalar: bool, session: Session, *, kind: type[Tensor] = Tensor
) -> Tensor:
    """Return a tensor that stands for a variable of the running trace."""
    return kind._recorded(var, dtype, scalar, session)


def copy_state(x: Tensor, other: Tensor) -> None:
    """Make a tensor stand for another one's value."""
    x._copy_state(other)


def detach(x: Tensor) -> None:
    """Take a tensor out of the trace that it was recorded by."""
    x._session = x._var = None


def set_stored(x: Tensor, value: Array | None) -> None:
    """Set the value in storage form."""
    x._value = value


def mark_constant(x: Tensor) -> None:
    """Make the value a constant of the graph."""
    x._const = True


def set_name(x: Tensor, name: str) -> None:
    """Set the name without telling the running trace."""
    x._name = name


def set_attribute_path(x: Tensor, path: str) -> None:
    """Set the path of the module's attribute that the tensor is."""
    x._path = path


def set_qparams(x: Tensor, qparams: Any) -> None:
    """Attach quantization parameters."""
    x._qparams = qparams
