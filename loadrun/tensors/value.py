"""`Tensor`: a value that Python code handles, computed at once or recorded by a trace."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

import numpy as np

from ..base.errors import UsageError
from ..graph import Var
from ..graph.dtypes import Array, DType, odd, plain, round_bfloat16
from . import formats
from .apply import Session, active, apply1, register_tensor_class
from .complex_pairs import on_pairs
from .device import Device, check_place, default_device, placed
from .dtypes import graph_dtype, narrowed, numpy_dtype
from .followed import TracedNumber
from .methods import Methods
from .qparams import create_qparams
from .shaping import stack
from .sizes import Shape, shape_of

__all__ = ["Parameter", "Tensor", "tensor"]

T = TypeVar("T", bound="Tensor")
_BFLOAT16 = numpy_dtype(plain("BFloat16"))


class Tensor(Methods):
    """An n-dimensional array with MegEngine's semantics.

    Operators and methods compute at once, or, inside a traced function, are recorded. A Tensor is a value:
    there are no views, ``x[i] = v`` makes `x` stand for the changed value.

    Args:
        data: an ndarray, a nested list of numbers, a number, or another Tensor.
        dtype: a numpy dtype or its name; by default that of `data`, narrowed to what MegEngine has
            (float64 to float32, int64 to int32).
        device: a name that MegEngine knows; everything is computed on the CPU.
        is_const: inside a trace, whether the value is a constant of the graph even where captured values are not.
        no_cache: accepted for MegEngine's sake.
        name: the name of the value in a dump.
        format: "default", "nchw" or "nhwc" (4 or 5 dimensions): what `format` says, and what comes of it says as in
            MegEngine. Values and shapes are the same in each.

    Raises:
        TypeError: `data` is nothing that a tensor can hold.
        InputError: a value that the dtype does not have (``intb1`` to ``intb4`` hold odd numbers alone).
        UsageError: an unknown format, or one that does not go with the shape; a dtype, a device or a format other than
            that of the tensor given, as MegEngine refuses it.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, (x * 2).numpy().tolist()
    ((2, 2), dtype('float32'), [[2.0, 4.0], [6.0, 8.0]])
    """

    _value: Array | None
    _dtype: DType
    _scalar: bool
    _const: bool
    _var: Var | None
    _session: Session | None
    _qparams: Any
    _name: str
    _place: Device | None = None
    _pair: tuple[Tensor, Tensor] | None = None
    _format: str = formats.DEFAULT
    _on_pairs = staticmethod(on_pairs)
    __array_priority__ = 1000.0

    def __init__(
        self,
        data: Any,
        dtype: Any = None,
        device: str | None = None,
        is_const: bool = False,
        no_cache: bool = False,
        name: str | None = None,
        format: str | None = None,
    ) -> None:
        self._const = is_const
        self._qparams = None
        self._name = name or ""
        self._var = None
        self._session = None
        if data is None:
            # MegEngine makes a tensor without elements of it.
            data = np.zeros(0, np.float32)
        given = isinstance(data, Tensor)
        place = default_device() if device is None else placed(device)
        if given:
            _check_kept(data, dtype, None if device is None else place)
            self._copy_state(data)
        else:
            self._fill(data, dtype)
            self._place = place
        if format is not None:
            formats.mark(self, formats.checked(format, self._ndim(), self._format if given else None))

    def _fill(self, data: Any, dtype: Any) -> None:
        """Take on the value of what a tensor is made of, if it is no tensor itself."""
        if isinstance(data, (list, tuple)) and (isinstance(data, Shape) or _holds_tensors(data)):
            parts = [v if isinstance(v, Tensor) else Tensor(v) for v in data]
            whole = stack(parts)
            self._copy_state(whole if dtype is None else whole.astype(dtype))
            return
        if isinstance(data, TracedNumber) and (scalar := data._tensor()) is not None:
            self._copy_state(scalar if dtype is None else scalar.astype(dtype))
            return
        array = np.asarray(data)
        if array.dtype.name == "bfloat16":
            array = array.astype(_BFLOAT16)
        if array.dtype.kind not in "fiubc":
            raise TypeError(
                f"a tensor holds numbers, found {_type_text(data)}; give an ndarray, a nested list of numbers "
                "of equal lengths, or a number"
            )
        if dtype is not None:
            want = graph_dtype(dtype)
            with np.errstate(all="ignore"):
                array = odd(array, want) if want.is_odd else array.astype(want.np)
        else:
            array, want = narrowed(array)
            if want.is_odd:
                array = odd(array, want)
        if want.name == "BFloat16":
            # An array of that dtype may hold more: numpy does not round to it.
            array = round_bfloat16(array)
        if array is data or array.base is not None:
            array = array.copy()
        self._scalar = array.ndim == 0
        self._value = array.reshape(1) if self._scalar else np.ascontiguousarray(array)
        self._dtype = want

    @classmethod
    def _of(
        cls: type[T], value: Array | None, dtype: DType, scalar: bool = False, *, const: bool = False
    ) -> T:
        """Return a tensor around a stored value, without copying or checking."""
        x = cls.__new__(cls)
        x._value = value
        x._dtype = dtype
        x._scalar = scalar
        x._const = const
        x._var = None
        x._session = None
        x._qparams = None
        x._name = ""
        return x

    @classmethod
    def _recorded(cls: type[T], var: Var, dtype: DType, scalar: bool, session: Session) -> T:
        """Return a tensor that stands for a variable of the running trace."""
        x = cls._of(None, dtype, scalar)
        x._var = var
        x._session = session
        session.joined(x)
        return x

    def _copy_state(self, other: Tensor) -> None:
        self._value = other._value
        self._dtype = other._dtype
        self._scalar = other._scalar
        self._var = other._var
        self._session = other._session
        self._format = other._format
        self._place = other._place
        self._pair = other._pair
        if self._session is not None:
            self._session.joined(self)

    def _frozen(self) -> Tensor:
        """Return what the tensor is now, whatever is assigned to it later."""
        x = Tensor._of(self._value, self._dtype, self._scalar, const=self._const)
        x._var = self._var
        x._session = self._session
        x._format = self._format
        x._place = self._place
        x._pair = self._pair
        if x._session is not None:
            x._session.joined(x)
        return x

    def _settle(self) -> None:
        """Record what is left to record for the value to be known; for tensors nothing."""

    def _stored(self) -> Array:
        """Return the value in storage form: at least 1-d."""
        if self._value is None:
            if self._pair is not None:
                real, imag = (part._stored() for part in self._pair)
                return real + np.complex64(1j) * imag
            if self._session is None:
                raise RuntimeError(
                    "this tensor was made inside a traced function and its value was not kept: it is neither an "
                    "output nor was it read there; return it from the function, or call .numpy() inside it"
                )
            return self._session.value(self)
        return self._value

    def _sizes(self) -> tuple[int, ...]:
        """Return the sizes in storage form, as plain numbers."""
        if self._value is not None:
            return self._value.shape
        if self._pair is not None:
            return self._pair[0]._sizes()
        return self._session.shape(self) if self._session is not None else self._stored().shape

    def _ndim(self) -> int:
        return 0 if self._scalar else len(self._sizes())

    @property
    def _tuple_shape(self) -> tuple[int, ...]:
        """The shape as plain numbers."""
        return () if self._scalar else self._sizes()

    def _shape_entries(self) -> tuple[Any, ...]:
        """Return the shape as functions take it: sizes, or tensors that compute them."""
        return self.shape

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes; inside a trace with symbolic shapes a tuple of numbers that the graph follows (`TracedInt`)."""
        if self._pair is not None:
            return self._pair[0].shape
        return shape_of(self, self._tuple_shape, self._session)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; quantized types carry scale and zero point in its metadata."""
        return numpy_dtype(self._dtype)

    @property
    def device(self) -> Device:
        """The device that it was given, or that what it was computed from has; everything is computed on the CPU."""
        return self._place or default_device()

    @property
    def name(self) -> str:
        """The name that the value has in a dump, empty for an automatic one."""
        return self._name

    @name.setter
    def name(self, value: str | None) -> None:
        self._name = value or ""
        if self._session is not None:
            self._session.named(self, self._name)

    @property
    def qparams(self) -> Any:
        """Quantization parameters attached to the value."""
        if self._qparams is None:
            self._qparams = create_qparams()
        return self._qparams

    def numpy(self) -> Array:
        """Return the value as an ndarray of `dtype`: stored integers for quantized types.

        Inside a traced function this is a read of the value: it is computed up to here.

        Raises:
            TraceError: in a ``record_only`` trace, which computes nothing.
        """
        value = self._stored()
        return (value.reshape(()) if self._scalar else value).copy().view(self.dtype)

    def _vector(self) -> Tensor:
        """Return the same value seen as 1-d where it is a scalar."""
        if not self._scalar:
            return self
        x = self._frozen()
        x._scalar = False
        return x

    def _as_scalar(self) -> Tensor:
        """Return a value of one element seen as a scalar."""
        x = self._frozen()
        x._scalar = True
        return x

    def _reset(self, other: Any) -> None:
        """Make the tensor stand for another value."""
        if not isinstance(other, Tensor):
            other = Tensor(other, dtype=self.dtype, device=self._place)
        self._copy_state(other)

    def set_value(self, value: Any) -> None:
        """Make the tensor stand for another value."""
        self._reset(value)

    @property
    def format(self) -> str:
        """The memory format in which MegEngine would hold the value; it may be assigned."""
        return self._format

    @format.setter
    def format(self, value: str) -> None:
        formats.mark(self, formats.checked(value, self._ndim()))

    def __dlpack__(self, **options: Any) -> Any:
        """Hand the value to another library, as numpy's arrays do."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device of the value: the CPU."""
        return self.numpy().__dlpack_device__()

    def detach(self) -> Tensor:
        """Return the same value; there are no gradients to part from."""
        return self._frozen()

    def to(self, device: str, *, _borrow: bool = False) -> Tensor:
        """Return the same value; every device is the CPU.

        Raises:
            ValueError: MegEngine has no device of this name.
        """
        check_place(device)
        return apply1("Copy", inputs=[self], scalar=self._scalar, place=placed(device))

    def _dev_tensor(self) -> DeviceTensor:
        """Return the value as MegEngine's graphs take it."""
        x = DeviceTensor._of(self._stored(), self._dtype, self._scalar)
        x._place = self.device
        return x

    def __repr__(self) -> str:
        kind = self.__class__.__name__
        if self._value is None and active() is not None:
            return f"{kind}(traced, shape={[*map(int, self._tuple_shape)]}, dtype={self._dtype})"
        with np.printoptions(precision=4, suppress=False):
            text = f"{kind}({self.numpy()!s}"
        if self._dtype.name != "Float32":
            text += f", dtype={self._dtype if self._dtype.is_quantized else self._dtype.spelling}"
        return f"{text}, device={self.device})"

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Any, ...]:
        place = None if self._place is None else str(self._place)
        parts = self.__class__, self._stored(), self._dtype, self._scalar, self._name, place, self._qparams
        return (_rebuild, parts)

    def __copy__(self: T) -> T:
        x = cast(
            T, _rebuild(self.__class__, self._stored(), self._dtype, self._scalar, self._name, self._place)
        )
        x._qparams = self._qparams
        return x

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        x = cast(
            T,
            _rebuild(
                self.__class__, self._stored().copy(), self._dtype, self._scalar, self._name, self._place
            ),
        )
        x._qparams = deepcopy(self._qparams, memo)
        memo[id(self)] = x
        return x


register_tensor_class(Tensor)


class DeviceTensor(Tensor):
    """A value as MegEngine's graphs take and give it."""

    @property
    def comp_node(self) -> Device:
        """The device."""
        return self.device


class Parameter(Tensor):
    """A Tensor that a module counts among its parameters.

    >>> from loadrun import module as M
    >>> layer = M.Linear(2, 1)
    >>> layer.scale = Parameter([1.0])
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'scale', 'weight']
    """


def _rebuild(
    kind: type[Tensor],
    value: Array,
    dtype: DType,
    scalar: bool,
    name: str,
    place: str | None = None,
    qparams: Any = None,
) -> Tensor:
    x = kind._of(value, dtype, scalar)
    x._name = name
    x._place = placed(place)
    x._qparams = qparams
    return x


tensor = Tensor
"""MegEngine's name for making a Tensor."""


class _OtherThanGivenError(UsageError, RuntimeError):
    """A tensor is to be made of another, and to be what that is not."""


def _check_kept(data: Tensor, dtype: Any, place: Device | None) -> None:
    """Refuse a dtype and a device that the tensor given does not have.

    Raises:
        UsageError: one of them is another.
    """
    if dtype is not None and graph_dtype(dtype) != data._dtype:
        raise _OtherThanGivenError(
            f"a tensor made of another keeps its dtype, found dtype={dtype!s:.60} for one of {data._dtype}; "
            "convert it with x.astype(dtype)"
        )
    if place is not None and place != data.device:
        raise _OtherThanGivenError(
            f"a tensor made of another keeps its device, found device={place!s} for one on {data.device!s}; "
            "move it with x.to(device)"
        )


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(v, Tensor) or (isinstance(v, (list, tuple)) and _holds_tensors(v)) for v in data)


def _type_text(data: Any) -> str:
    return f"{type(data).__name__} {data!r:.60}"
