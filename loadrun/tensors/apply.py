"""Applying one of MegEngine's operators to tensors: at once, or recorded by the trace that is running.

A `Session` is what a running trace is for the code inside it. Only one is active in a thread; the tensors that
it made carry a variable of its graph, all others are values from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..base.errors import EngineError, LoadRunError, TraceError
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType, round_bfloat16
from ..graph.params import Elemwise, ElemwiseMode, Record
from ..ops.catalog import TypeParam, types
from ..ops.numeric.parallel import blas_serial
from ..ops.op import Trait
from ..ops.registry import Call, Kernel, Shape, implementation
from . import device as devices
from . import formats
from .settings import adapted, in_force

if TYPE_CHECKING:
    from .device import Device
    from .value import Tensor

__all__ = [
    "Session",
    "active",
    "apply",
    "apply1",
    "elemwise_param",
    "generator",
    "paired",
    "register_tensor_class",
    "suspended",
    "tensor_class",
    "type_cvt",
    "unrecordable",
    "use",
]

_KEEPS_SCALARS = types(Trait.ELEMENTWISE | Trait.FORWARDS)


class Session(Protocol):
    """What a running trace does for the tensors inside it.

    A `standing` session belongs to no trace: it is asked whenever a tensor of it is an input.
    """

    symbolic_shape: bool
    sizes: dict[Any, Tensor]
    ended: bool
    standing: bool = False

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[Tensor],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[Tensor]:
        """Record an operator, or check it against the recorded one."""

    def joined(self, tensor: Tensor) -> None:
        """Know a tensor that stands for a variable of the session."""

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a tensor of the session, in storage form; computes what is needed."""

    def shape(self, tensor: Tensor) -> Shape:
        """Return the shape of a tensor of the session, in storage form."""

    def detached(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is a constant, so that its sizes are numbers."""

    def fluid(self, tensor: Tensor) -> bool:
        """Tell whether the data may decide how large a tensor is."""

    def chosen(self, key: tuple[Any, ...], choice: bool) -> bool:
        """Return what was chosen in the recorded call, whatever the sizes of this one suggest."""

    def measured(self, tensor: Tensor) -> None:
        """Note that code inside the function took a size as a number."""

    def named(self, tensor: Tensor, name: str) -> None:
        """Note that code inside the function named a tensor."""

    def became(self, tensor: Tensor, kind: str) -> None:
        """Note that code inside the function made a Python number, of that kind, of a value."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""


class _Local(threading.local):
    session: Session | None = None
    rng: np.random.Generator | None = None


_local = _Local()


def active() -> Session | None:
    """Return the session of the trace that is running in this thread, if any."""
    return _local.session


@contextmanager
def use(session: Session | None) -> Iterator[None]:
    """Make a session the active one inside."""
    before, _local.session = _local.session, session
    try:
        yield
    finally:
        # A generator may end when the trace in which it began has ended.
        _local.session = None if before is not None and before.ended else before


@contextmanager
def suspended() -> Iterator[Session | None]:
    """Execute at once inside, whatever trace is running."""
    session = _local.session
    with use(None):
        yield session


_classes: list[type[Tensor]] = []


def register_tensor_class(kind: type[Tensor]) -> None:
    """Make the class known to the modules that it is made of."""
    _classes[:] = [kind]


def tensor_class() -> type[Tensor]:
    """`Tensor`, for the modules that it is made of and which therefore cannot import it."""
    return _classes[0]


def generator() -> np.random.Generator:
    """Return the random generator of this thread's eager operators."""
    if _local.rng is None:
        _local.rng = np.random.default_rng()
    return _local.rng


def seed(value: int | None) -> None:
    """Start the random generator of this thread anew."""
    _local.rng = np.random.default_rng(value)


def apply(
    type: str,
    *params: Record,
    inputs: Sequence[Tensor],
    n: int = 1,
    output_dtype: DType | None = None,
    scalar: bool | None = None,
    place: Device | None = None,
) -> list[Tensor]:
    """Apply an operator of the catalog to tensors.

    Args:
        type: the operator's registered name, for instance ``ConvolutionV2``.
        params: its parameter records.
        inputs: tensors in the operator's order, already of dtypes that it takes.
        n: how many outputs it has.
        output_dtype: the dtype that the operator is configured to give.
        scalar: whether the outputs are scalars (shape ``()``, stored as ``[1]``); by default they are when the
            operator is elementwise and all its inputs are.
        place: the device of the outputs; by default that of the inputs.

    Raises:
        EngineError: the operator does not take these inputs; the text says what was found and expected.
        DeviceMixtureError: the inputs are on different devices.
    """
    if in_force():
        params, inputs = adapted(type, params, inputs)
    if scalar is None:
        scalar = type in _KEEPS_SCALARS and bool(inputs) and False not in [x._scalar for x in inputs]
    session = _local.session
    if session is None:
        for x in inputs:
            if x._session is not None and x._session.standing:
                session = x._session
    # Before the operator is applied, which a mixture of formats or devices forbids.
    format = formats.format_of(type, inputs) if formats.in_use() else formats.DEFAULT
    # Variables of edited graphs know it themselves.
    if place is None and devices.in_use() and (session is None or not session.standing):
        place = devices.device_of(type, inputs)
    if session is not None:
        for x in inputs:
            if x._pair is not None:
                return [tensor_class()._on_pairs(type, params, inputs)]
        made = session.apply(type, params, inputs, n, output_dtype, scalar)
    else:
        values, dtypes = execute(type, params, inputs, [x._stored() for x in inputs], n, output_dtype)
        make = tensor_class()._of
        made = [make(v, d, scalar and v.size == 1) for v, d in zip(values, dtypes, strict=True)]
    if place is not None:
        for x in made:
            x._place = place
    return made if format == formats.DEFAULT else formats.marked(type, format, made)


def paired(real: Tensor, imag: Tensor, dtype: DType) -> Tensor:
    """Return what stands for complex numbers in a trace: their real and imaginary parts."""
    made = tensor_class()._of(None, dtype, real._scalar)
    made._pair = real, imag
    made._place = real._place
    return made


def unrecordable(what: str) -> TraceError:
    """Return the error for complex numbers where a graph cannot hold them."""
    return TraceError(
        f"complex numbers cannot be recorded, found {what}; a graph holds real ones: take them apart with F.real and "
        "F.imag, and put them together with F.complex"
    )


def apply1(
    type: str,
    *params: Record,
    inputs: Sequence[Tensor],
    output_dtype: DType | None = None,
    scalar: bool | None = None,
    place: Device | None = None,
) -> Tensor:
    """`apply` for an operator with one output."""
    return apply(type, *params, inputs=inputs, output_dtype=output_dtype, scalar=scalar, place=place)[0]


@cache
def elemwise_param(mode: ElemwiseMode) -> Elemwise:
    """The record of an elementwise mode, one object each, by which a later call of a trace knows it at once."""
    return Elemwise(mode=mode)


def type_cvt(x: Tensor, dtype: DType) -> Tensor:
    """Return the tensor converted to another dtype; the tensor itself where it has that dtype."""
    return x if x._dtype == dtype else apply1("TypeCvtV2", TypeParam(dtype=dtype), inputs=[x])


class _Prepared(NamedTuple):
    """An operator, ready to be run at once: what does not depend on the values."""

    opr: Opr
    kernel: Kernel
    outputs: tuple[DType, ...]
    memo: dict[Any, Any]


@lru_cache(maxsize=1024)
def _prepared(
    type: str, params: tuple[Record, ...], dtypes: tuple[DType, ...], n: int, output_dtype: DType | None
) -> _Prepared:
    impl = implementation(type)
    opr = Opr(type, params, output_dtype=output_dtype)
    opr.inputs = [Var(i, opr, 0, dtype=d) for i, d in enumerate(dtypes)]
    opr.outputs = [Var(len(dtypes) + i, opr, i) for i in range(n)]
    return _Prepared(opr, impl.kernel, tuple(impl.dtype(opr, dtypes)), {})


def execute(
    type: str,
    params: tuple[Record, ...],
    inputs: Sequence[Tensor],
    arrays: Sequence[Array],
    n: int,
    output_dtype: DType | None,
) -> tuple[list[Array], list[DType]]:
    """Run an operator's kernel once; returns the output arrays and their dtypes."""
    dtypes = tuple([x._dtype for x in inputs])
    try:
        opr, kernel, outs, memo = _prepared(type, params, dtypes, n, output_dtype)
        call = Call(opr, dtypes, outs, memo=memo, rng=generator())
        with np.errstate(all="ignore"), blas_serial():
            result: Any = kernel(call, *arrays)
    except LoadRunError as e:
        raise e.__class__(f"{Opr(type, params).title}: {e}") from e
    except MemoryError:
        raise
    except Exception as e:
        raise EngineError(f"{Opr(type, params).title} cannot take {_shapes_text(inputs, arrays)}: {e}") from e
    values = result if isinstance(result, tuple) else (result,)
    return [
        round_bfloat16(v) if d.name == "BFloat16" else v for v, d in zip(values, outs, strict=True)
    ], list(outs)


def _shapes_text(inputs: Sequence[Tensor], arrays: Sequence[Array]) -> str:
    return (
        ", ".join(f"{x._dtype} {list(a.shape)}" for x, a in zip(inputs, arrays, strict=True)) or "no inputs"
    )
