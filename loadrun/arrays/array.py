"""`TracedArray`: what a traced function receives where its caller gave an ndarray."""

from __future__ import annotations

import dis
import operator
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np

from ..base.errors import TraceWarning
from ..base.registry import resolve
from ..graph import Var
from ..graph.dtypes import Array, DType
from ..layers import emit as e
from ..tensors import Tensor
from ..tensors.naming import refused, user_line
from ..tensors.switches import active
from ..tensors.value import Session
from . import indexing as numpy_index
from .array_methods import ArrayMethods
from .axes import checked_shape, given_shape
from .promotion import list_as_tensor, operand
from .views import MemoryCell, ViewPart, permuted, reshaped, whole

T = TypeVar("T", bound="TracedArray")


class TracedArray(ArrayMethods):
    """A traced value that behaves as an ndarray does.

    Operators, methods, indexing, index assignment, in-place operators and numpy's functions are recorded as
    MegEngine's operators; dtypes follow numpy's promotion and are then narrowed (float64 to float32, int64 to
    int32). Basic indexing, transposing and reshaping give views: writing through one changes the other.

    Reading a value (``if``, ``float(x)``, ``np.asarray(x)``, ``x.tolist()``) gives the value of this run; what a
    dump makes of it is a constant.

    Args:
        data: an ndarray, a nested list, a number or a Tensor.
        dtype: a numpy dtype; by default that of `data`, narrowed.

    >>> x = TracedArray([[1.0, 2.0], [3.0, 4.0]])
    >>> row = x[0]
    >>> row *= 10
    >>> (np.sqrt(x * x) + x.T).numpy().tolist()
    [[20.0, 23.0], [23.0, 8.0]]
    """

    _cell: MemoryCell

    def __init__(self, data: Any, dtype: Any = None) -> None:
        inner = data._frozen() if isinstance(data, Tensor) else Tensor(data)
        if dtype is not None:
            inner = e.cast(inner, np.dtype(dtype))
        self._begin(MemoryCell(inner))

    def _begin(self, cell: MemoryCell) -> None:
        self._cell = cell
        self._qparams = None
        self._name = ""

    @classmethod
    def _around(cls: type[T], value: Tensor, *, ordered: bool = True, scalar: bool = False) -> T:
        """Return a new array with memory of its own."""
        return cls._of_cell(MemoryCell(value, ordered=ordered, scalar=scalar))

    @classmethod
    def _of_cell(cls: type[T], cell: MemoryCell) -> T:
        x = cls.__new__(cls)
        x._begin(cell)
        return x

    def _viewed(self, part: ViewPart, *, scalar: bool = True) -> TracedArray:
        """Return a view of this array; of a numpy scalar, which shares no memory, the values in memory of their own.

        Args:
            part: which part.
            scalar: whether what has no axes, of a scalar, is one again.
        """
        alone = self._cell.scalar
        cell = (MemoryCell(self._cell.read()) if alone else self._cell).view(part)
        # Read at once, so that views and copies are recorded in the same order.
        value = cell.read()
        cell.scalar = alone and scalar and value._scalar
        return TracedArray._of_cell(cell)

    def view(self, dtype: Any = None) -> TracedArray:
        """Return a view of the whole array.

        Raises:
            TraceError: another dtype, since bytes cannot be read again.
        """
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if (
                self.dtype.kind in "biu"
                and np.dtype(dtype).kind in "iu"
                and np.dtype(dtype).itemsize == self.itemsize
            ):
                # Integers of as many bits wrap.
                return cast(TracedArray, self.astype(dtype))
            raise refused(f"x.view({np.dtype(dtype)}) reads the bytes as another dtype", way_out="use astype")
        return self._viewed(whole())

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> TracedArray:
        """Reshape the values; the shape is one tuple or several numbers; a view where numpy gives one."""
        want = given_shape(shape[0] if len(shape) == 1 else shape)
        x = operand(self)
        checked_shape(want, e.sizes(x))
        if order == "F":
            turned = self._viewed(permuted(range(len(e.sizes(x)))[::-1]))
            return cast(TracedArray, turned.reshape(want[::-1], copy=copy).T)
        shares = self._cell.shares_when_reshaped(want)
        if copy is False and not shares:
            raise ValueError("Unable to avoid creating a copy while reshaping.")
        return self._reshaped(want, False if copy else shares)

    def _reshaped(self, shape: Sequence[int], shares: bool | None) -> TracedArray:
        """Return a view in another shape, or a copy; a copy that may be a view in numpy where that is not known."""
        if shares:
            return self._viewed(reshaped(shape))
        result = TracedArray._around(e.reshape(operand(self), shape))
        if shares is None:
            result._cell.rival(self._cell)
        return result

    def ravel(self, order: str = "C") -> TracedArray:
        """Return the values as a vector: a view where the array is contiguous."""
        base = self._viewed(permuted(range(self.ndim)[::-1])) if order == "F" else self
        # A strided vector could be a view, but numpy copies: the result is contiguous.
        return base._reshaped((-1,), base._cell.is_dense())

    # numpy's protocols

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return resolve("loadrun.arrays.protocol:array_ufunc")(ufunc, method, inputs, kwargs)

    # The tracer's view: the state of the value as it is now

    @classmethod
    def _of(
        cls: type[T], value: Array | None, dtype: DType, scalar: bool = False, *, const: bool = False
    ) -> T:
        return cls._around(Tensor._of(value, dtype, scalar, const=const))

    @classmethod
    def _recorded(cls: type[T], var: Var, dtype: DType, scalar: bool, session: Session) -> T:
        # The session refers to the value itself, which others may hold after an assignment to this array.
        return cls._around(Tensor._recorded(var, dtype, scalar, session))

    @property
    def _value(self) -> Array | None:
        return self._cell.read()._value

    @_value.setter
    def _value(self, value: Array | None) -> None:
        self._cell.read()._value = value

    @property
    def _dtype(self) -> DType:  # type: ignore[override]
        return self._cell.read()._dtype

    @property
    def _scalar(self) -> bool:  # type: ignore[override]
        return self._cell.read()._scalar

    @property
    def _const(self) -> bool:  # type: ignore[override]
        return self._cell.read()._const

    @property
    def _var(self) -> Var | None:
        return self._cell.read()._var

    @_var.setter
    def _var(self, var: Var | None) -> None:
        self._cell.read()._var = var

    @property
    def _session(self) -> Session | None:
        return self._cell.read()._session

    @_session.setter
    def _session(self, session: Session | None) -> None:
        self._cell.read()._session = session

    def _copy_state(self, other: Tensor) -> None:
        self._cell.write(other._frozen())

    def _frozen(self) -> Tensor:
        return self._cell.read()._frozen()

    def _settle(self) -> None:
        self._cell.read()

    # Writing

    def _written(self, value: Tensor) -> TracedArray:
        """Give this array another value; return a new one where it stands for a numpy scalar."""
        if self._cell.scalar:
            return TracedArray._around(value, scalar=True)
        self._cell.write(value)
        return self

    def __getitem__(self, index: Any) -> Any:
        x = self._cell.read()
        if isinstance(index, str):
            raise IndexError("only integers, slices, ... , None and arrays are valid indices, found a str")
        result = numpy_index.select(x, index)
        if not result.basic:
            # numpy lays the result out by the order of the indices, so only one form of index is certain.
            certain = result.mask is not None or (len(result.entries) > 0 and result.entries[0] is not None)
            return TracedArray._around(numpy_index.read(x, result), ordered=certain and self._cell.ordered)
        part = numpy_index.part_of(x, result)
        if len(result.integers) == len(e.sizes(x)) and not result.dots and "new" not in result.entries:
            return TracedArray._around(part.get(x), scalar=True)
        return self._viewed(part, scalar=not result.dots)

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._cell.scalar:
            raise TypeError("a numpy scalar does not support item assignment")
        x = self._cell.read()
        selection = numpy_index.select(x, index)
        if selection.basic:
            part = numpy_index.part_of(x, selection)
            cell = value._cell if isinstance(value, TracedArray) else None
            if cell is not None and cell.parent is self._cell and cell.part and cell.part.key == part.key:
                # It is the very part that it is assigned to, as in ``x[i] += 1``.
                return
            new = numpy_index.basic_value(x, part, operand(list_as_tensor(value), x._dtype.np))
            self._cell.view(part).write(new)
            return
        self._cell.write(numpy_index.assign(x, selection, operand(list_as_tensor(value), x._dtype.np)))

    # Reading values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = self.numpy()
        session = active()
        if session is not None and not session.detached(self):
            _read_by_numpy()
        return value if dtype is None else value.astype(dtype)

    def __bool__(self) -> bool:
        if e.sizes(self) not in ((), (1,)) and np.prod(e.sizes(self)) != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.item())

    def __index__(self) -> int:
        if self.ndim:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return operator.index(self.item())

    def __len__(self) -> int:
        if not e.sizes(self):
            raise TypeError("len() of unsized object")
        return operator.index(self.shape[0])

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(self == value))

    def __copy__(self) -> TracedArray:
        return cast(TracedArray, self.copy())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = memo[id(self)] = self.copy()
        return result


def _read_by_numpy() -> None:
    """Answer numpy, which asks for the value of a traced array where it does not hand over the call.

    Raises:
        TraceError: it is an index of an ndarray, or is assigned into one.
    """
    frame = sys._getframe(2)
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]] if frame.f_lasti >= 0 else ""
    if name.startswith("STORE_"):
        raise refused(
            "a traced array is assigned into an ndarray, or is an index of one, which would make it a constant",
            way_out="make the ndarray from a traced array: np.zeros_like(x), np.zeros(shape, like=x), or stack the "
            "parts with np.stack",
        )
    if name.startswith("BINARY_"):
        raise refused(
            "a traced array is an index of an ndarray, which would make it a constant",
            way_out="use np.take(table, index, axis=0)",
        )
    warnings.warn(
        f"a traced array is read as an ndarray, which is a constant of the graph, in {user_line()}; a traced array "
        "needs no np.asarray or np.array: use it as it is, or np.array([...], like=x)",
        TraceWarning,
        stacklevel=3,
    )
