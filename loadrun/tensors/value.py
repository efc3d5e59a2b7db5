"""`Tensor`: a value that Python code handles, computed at once or recorded by a trace.

Its state and its methods are here, its operators in `operators`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from ..base.errors import UsageRuntimeError, UsageTypeError
from ..base.registry import late
from ..graph import Var
from ..graph.dtypes import Array, DType
from .dtypes import graph_dtype, numpy_dtype
from .operators import Operators
from .switches import SessionOf, active, check_device, check_place, get_default_device

with late(__name__):
    # They take tensors themselves.
    from . import applying, construct, convert, indexing, quantized_dtypes, reducing, shaping

T = TypeVar("T", bound="Tensor")


class Tensor(Operators):
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
        format: "default"; there is one.

    Raises:
        TypeError: `data` is nothing that a tensor can hold.
        InputError: a value that the dtype does not have (``intb1`` to ``intb4`` hold odd numbers alone).
        UsageError: another format, no name of a device, or a dtype other than that of the tensor given, as MegEngine
            refuses it.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x.shape, x.dtype, (x * 2).numpy().tolist()
    ((2, 2), dtype('float32'), [[2.0, 4.0], [6.0, 8.0]])
    """

    _value: Array | None
    _dtype: DType
    numpy_sizes = False
    """Whether sizes inside a trace are numpy's tuples, not MegEngine's tensors."""
    _scalar: bool
    _const: bool
    _var: Var | None
    _session: Session | None
    _qparams: Any
    _name: str
    _pair: tuple[Tensor, Tensor] | None = None
    _path: str | None = None

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
        # Every operator makes tensors: no reading of annotations.
        for what, text in (("name", name), ("device", device)):
            if text is not None and not isinstance(text, str):
                raise UsageTypeError(
                    f"{what} of a tensor must be a text or None, found a {type(text).__name__}"
                )
        self._const = is_const
        self._qparams = None
        self._name = name or ""
        self._var = None
        self._session = None
        if data is None:
            # MegEngine makes an empty tensor of it.
            data = np.zeros(0, np.float32)
        check_device(device)
        if isinstance(data, Tensor):
            construct.check_kept(data, dtype)
            self._copy_state(data)
        else:
            construct.fill(self, data, dtype)
        if format not in (None, "default"):
            raise UsageRuntimeError(f"values are held in one memory format: leave out format={format!r}")

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
        self._pair = other._pair
        if self._session is not None:
            self._session.joined(self)

    def _frozen(self) -> Tensor:
        """Return what the tensor is now, whatever is assigned to it later."""
        x = Tensor._of(self._value, self._dtype, self._scalar, const=self._const)
        x._var = self._var
        x._session = self._session
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
                    "this tensor was created inside a traced function and its value was not kept, as it is not an "
                    "output and was not read there; return it from the function, or call .numpy() inside it"
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

    @property
    def _tuple_shape(self) -> tuple[int, ...]:
        """The shape as plain numbers."""
        return () if self._scalar else self._sizes()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes; inside a trace with symbolic shapes a tuple of symbolic sizes (`TracedInt`)."""
        if self._pair is not None:
            return self._pair[0].shape
        return convert.shape_of(self, self._tuple_shape, self._session)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype; quantized types carry scale and zero point in its metadata."""
        return numpy_dtype(self._dtype)

    @property
    def device(self) -> str:
        """The default device; everything is computed on the CPU."""
        return get_default_device()

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
            self._qparams = quantized_dtypes.create_qparams()
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
            other = Tensor(other, dtype=self.dtype)
        self._copy_state(other)

    def set_value(self, value: Any) -> None:
        """Make the tensor stand for another value."""
        self._reset(value)

    def __dlpack__(self, **options: Any) -> Any:
        """Hand the value to another library, as numpy's arrays do."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the value: the CPU."""
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
        return applying.apply1("Copy", inputs=[self], scalar=self._scalar)

    def __repr__(self) -> str:
        kind = self.__class__.__name__
        if self._value is None and active() is not None:
            return f"{kind}(traced, shape={[*map(int, self._tuple_shape)]}, dtype={self._dtype})"
        with np.printoptions(precision=4, suppress=False):
            text = f"{kind}({self.numpy()!s}"
        if self._dtype.name != "Float32":
            text += f", dtype={self._dtype if self._dtype.is_quantized else self._dtype.spelling}"
        return f"{text}, device={self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self.__class__, self._stored(), self._dtype, self._scalar, self._name, self._qparams
        return (_rebuild, parts)

    def __copy__(self: T) -> T:
        x = cast(T, _rebuild(self.__class__, self._stored(), self._dtype, self._scalar, self._name))
        x._qparams = self._qparams
        return x

    def __deepcopy__(self: T, memo: dict[int, Any]) -> T:
        x = cast(T, _rebuild(self.__class__, self._stored().copy(), self._dtype, self._scalar, self._name))
        x._qparams = deepcopy(self._qparams, memo)
        memo[id(self)] = x
        return x

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        value = self.item()
        if not isinstance(value, (int, bool)):
            raise TypeError(f"only an integer tensor can be an index, found {self._dtype}")
        return int(value)

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("a scalar tensor has no length")
        return int(shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        for i in range(len(self)):
            yield self[i]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).numpy().any())

    def __getitem__(self, index: Any) -> Tensor:
        return indexing.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is Ellipsis:
            # MegEngine puts the value in the tensor's place, whatever its shape and (for a Tensor) dtype.
            self._reset(value)
        else:
            self._reset(indexing.setitem(self, index, value))

    def reset_zero(self) -> None:
        """Make the tensor stand for zeros of its shape and dtype."""
        self._reset(self * 0)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return 0 if self._scalar else len(self._sizes())

    @property
    def size(self) -> int:
        """The number of elements."""
        return convert.product_of(self.shape)

    @property
    def T(self) -> Tensor:
        """The tensor with its axes reversed."""
        return self.transpose(*range(self.ndim)[::-1])

    def item(self, *args: int) -> Any:
        """Return the value of a one-element tensor (or of the element at `args`) as a Python number.

        Raises:
            AssertionError: the tensor has more elements, or none, and `args` do not choose one.
        """
        if args:
            return self[args].item()
        value = self.numpy()
        if value.size != 1:
            raise AssertionError(
                f"only a tensor of one element can be converted to a number, found shape {list(value.shape)}"
            )
        number = value.item()
        if self._session is not None:
            self._session.became(self, type(number).__name__)
        return number

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return self.numpy().tolist()

    def astype(self, dtype: Any) -> Tensor:
        """Return the values converted to another dtype."""
        want = graph_dtype(dtype)
        return self._frozen() if want == self._dtype else applying.type_cvt(self, want)

    def reshape(self, *shape: Any) -> Tensor:
        """Return the same values in another shape; one size may be -1."""
        return shaping.reshape(self, _expanded(shape))

    def _broadcast(self, *shape: Any) -> Tensor:
        return shaping.broadcast_to(self, _expanded(shape))

    def transpose(self, *pattern: Any) -> Tensor:
        """Return the tensor with its axes permuted; without arguments reversed."""
        axes = _expanded(pattern) if pattern else range(self.ndim)[::-1]
        return shaping.transpose(self, axes)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Return the axes from `start_axis` to `end_axis` joined to one."""
        return shaping.flatten(self, start_axis, end_axis)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the sum over axes."""
        return reducing.sum(self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the product over axes."""
        return reducing.prod(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the smallest value over axes."""
        return reducing.min(self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the largest value over axes."""
        return reducing.max(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        """Return the mean over axes."""
        return reducing.mean(self, axis, keepdims)


def _expanded(args: tuple[Any, ...]) -> Any:
    """Return the one argument where a sequence was given whole."""
    if len(args) != 1:
        return args
    (only,) = args
    whole = isinstance(only, (list, tuple, np.ndarray)) or (isinstance(only, Tensor) and only.ndim > 0)
    return only if whole else args


Session: TypeAlias = SessionOf[Tensor]
"""What a running trace does for the tensors inside it."""


class Parameter(Tensor):
    """A Tensor that a module counts among its parameters.

    >>> from loadrun.megengine import module as M
    >>> layer = M.Linear(2, 1)
    >>> layer.scale = Parameter([1.0])
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'scale', 'weight']
    """


def _rebuild(
    kind: type[Tensor], value: Array, dtype: DType, scalar: bool, name: str, qparams: Any = None
) -> Tensor:
    x = kind._of(value, dtype, scalar)
    x._name = name
    x._qparams = qparams
    return x


tensor = Tensor
"""MegEngine's name for making a Tensor."""
