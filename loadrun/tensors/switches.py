"""What a thread sees of the process: its running trace, and the default device."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ..base.errors import UsageError
from ..graph.dtypes import Array, DType
from ..graph.params import Record
from ..ops.registry import Shape

# A `SessionOf` tensors is what a trace does for the tensors inside it. Only one is active in a thread; the
# tensors that it made carry a variable of its graph, all others are values from outside.

T = TypeVar("T")


class SessionOf(Protocol[T]):
    """The interface of a running trace to the tensors inside it."""

    symbolic_shape: bool
    sizes: dict[Any, T]
    ended: bool

    def apply(
        self,
        type: str,
        params: tuple[Record, ...],
        inputs: Sequence[T],
        n: int,
        output_dtype: DType | None,
        scalar: bool,
    ) -> list[T]:
        """Record an operator, or check it against the recorded one."""

    def joined(self, tensor: T) -> None:
        """Know a tensor that stands for a variable of the session."""

    def value(self, tensor: T) -> Array:
        """Return the value of a tensor of the session, in storage form; computes what is needed."""

    def shape(self, tensor: T) -> Shape:
        """Return the shape of a tensor of the session, in storage form."""

    def detached(self, tensor: T) -> bool:
        """Return whether a tensor is a constant, so that its sizes are numbers."""

    def fluid(self, tensor: T) -> bool:
        """Return whether the data may decide how large a tensor is."""

    def measured(self, tensor: T) -> None:
        """Note that code inside the function took a size as a number."""

    def varies(self, tensor: T, axis: int) -> bool:
        """Return whether the size of a tensor along an axis may differ in another call."""

    def froze(self) -> None:
        """Note that code in C took a symbolic size as a number."""

    def named(self, tensor: T, name: str) -> None:
        """Note that code inside the function named a tensor."""

    def became(self, tensor: T, kind: str) -> None:
        """Note that code inside the function made a Python number, of that kind, of a value."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""


class _Local(threading.local):
    session: SessionOf[Any] | None = None
    exact: bool = False


_local = _Local()


def active() -> SessionOf[Any] | None:
    """Return the session of the trace that is running in this thread, if any."""
    return _local.session


@contextmanager
def use(session: SessionOf[Any] | None) -> Iterator[None]:
    """Make a session the active one inside."""
    before, _local.session = _local.session, session
    try:
        yield
    finally:
        # A generator may outlive the trace in which it began.
        _local.session = None if before is not None and before.ended else before


def is_exact() -> bool:
    """Return whether operators of this thread are computed as definitions say (`Graph.exact`), in wide dtypes too."""
    return _local.exact


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compute operators inside as their definitions say, not as MegEngine's kernels do, in numpy's dtypes too.

    Float64, int64 and unsigned integers that are requested by name stay what they are.
    """
    before, _local.exact = _local.exact, True
    try:
        yield
    finally:
        _local.exact = before


@contextmanager
def suspended() -> Iterator[SessionOf[Any] | None]:
    """Execute at once inside, whatever trace is running."""
    session = _local.session
    with use(None):
        yield session


# Names of devices, as MegEngine writes them; whatever they say, the CPU computes.
#
# Names are checked and make no difference: every tensor is on the default device.

DEFAULT = "xpux:0"
"""Any device: what MegEngine's tensors are on unless another is requested."""
_PLAIN = r"(gpu|cpu|xpu|rocm|multithread)(\d+|x)(:\d+)?"
"""What MegEngine takes as the default device."""
_VALID = (
    r"([cg]pu|rocm)(\d+|x)(:(\d+|default))?|[cg]pu:(\d+|default)|xpu(\d+|x)?(:\d+)?"
    r"|multithread(x|\d+)(:\d+)?|multithread:default:\d+"
)
"""What MegEngine takes as the device of a tensor."""
_KINDS = ("cpu", "gpu", "rocm", "xpu")
_named = ["xpux"]
"""The device of all tensors, as it was set."""


class InvalidDeviceError(UsageError, RuntimeError, AssertionError):
    """No name of a device; MegEngine refuses it with one or the other of these."""


def check_device(name: object) -> None:
    """Accept None, and the names that MegEngine accepts.

    Raises:
        InvalidDeviceError: no such name.

    >>> check_device("cpu0")
    >>> check_device("cuda0")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    loadrun.tensors.switches.InvalidDeviceError: invalid device name cuda0: ...
    """
    if name is not None and (not isinstance(name, str) or not re.fullmatch(_VALID, name)):
        raise InvalidDeviceError(
            f"invalid device name {name}: a device is cpu, gpu or xpu with a number or x, for instance xpux or cpu0"
        )


def check_place(name: object) -> None:
    """Accept the names that MegEngine accepts where a value is moved to and where a device becomes the default one.

    Raises:
        InvalidDeviceError: no such name.
    """
    if not isinstance(name, str) or not re.fullmatch(_PLAIN, name):
        raise InvalidDeviceError(f"invalid device name {name}: expected for instance xpux, cpu0 or gpu0:1")


def is_cuda_available() -> bool:
    """Return whether GPUs compute: never.

    >>> is_cuda_available()
    False
    """
    return False


def get_device_count(device_type: str) -> int:
    """Return how many devices of a kind there are: as many CPUs as the machine has, which xpu stands for too.

    Raises:
        InvalidDeviceError: there is no such kind.

    >>> get_device_count("cpu") == os.cpu_count(), get_device_count("gpu")
    (True, 0)
    """
    if device_type not in _KINDS:
        raise InvalidDeviceError(f"device must be one of {', '.join(_KINDS)}, found {device_type!r}")
    return (os.cpu_count() or 1) if device_type in ("cpu", "xpu") else 0


def get_default_device() -> str:
    """Return the device of tensors, by the name that was set."""
    return _named[0]


def set_default_device(device: str = "xpux") -> None:
    """Name the device of tensors; the CPU computes all the same.

    Raises:
        InvalidDeviceError: no name of a device.
    """
    check_place(device)
    _named[0] = device
