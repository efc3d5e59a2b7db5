"""What a thread sees of the process: the settings behind MegEngine's ``amp`` and ``config``, and its running trace.

MegEngine's code assigns to the attributes of those two modules; `forward` redirects their attributes to this record.
A `SessionOf` tensors is what a trace does for the tensors inside it. Only one is active in a thread; the tensors that
it made carry a variable of its graph, all others are values from outside.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol, TypeVar

from ..base.errors import UsageAssertionError, UsageTypeError
from ..base.records import dataclass
from ..graph.dtypes import Array, DType
from ..graph.params import Record
from ..ops.registry import Shape

__all__ = [
    "SWITCHES",
    "SessionOf",
    "Switches",
    "active",
    "autocast",
    "exact_arithmetic",
    "forward",
    "is_exact",
    "keeps_wide",
    "override",
    "set_symbolic_shape",
    "suspended",
    "symbolic_shape",
    "use",
]

C = TypeVar("C", bound=Callable[..., Any])


@dataclass
class Switches:
    """The settings of mixed precision, and those of ``megengine.config``.

    Attributes:
        autocast: whether operators get inputs of another float type.
        low_prec_dtype: "float16" or "bfloat16", for convolutions and matrix products.
        high_prec_dtype: "float32", for normalizations and functions of the exponential kind.
        compute_mode: "float32" sums float16 products of convolutions and matrix products in float32, whatever the
            functions are told; "default" leaves it to them.
        benchmark_kernel: no effect.
        benchmark_with_subprocess: no effect.
        deterministic_kernel: no effect; results are the same in every run anyway.
        async_level: 0, 1 or 2; no effect, as nothing is asynchronous.
        disable_memory_forwarding: no effect.
    """

    autocast: bool = False
    low_prec_dtype: str = "float16"
    high_prec_dtype: str = "float32"
    compute_mode: str = "default"
    benchmark_kernel: bool = False
    benchmark_with_subprocess: bool = False
    deterministic_kernel: bool = False
    async_level: int = 2
    disable_memory_forwarding: bool = False

    def change_operators(self) -> bool:
        """Return whether any operator might be changed before it is applied."""
        return self.autocast or self.compute_mode != "default"

    def replaced(self, **values: Any) -> dict[str, Any]:
        """Set some of the settings; returns what they were before."""
        if "async_level" in values:
            _check_level(values["async_level"])
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        return before


def _check_level(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageTypeError(f"async_level should be 0, 1 or 2, found {value!r}")
    if not 0 <= value <= 2:
        raise UsageAssertionError(f"async_level should be 0, 1 or 2, found {value!r}")


SWITCHES = Switches()
"""The settings in force."""


def forward(module: str, names: Mapping[str, str]) -> None:
    """Make attributes of an imported module stand for attributes of `SWITCHES`, also when they are assigned.

    Args:
        module: the module's name.
        names: the module's attributes, with those of `Switches` that they stand for.

    >>> from loadrun.megengine import config
    >>> config.async_level = 0
    >>> SWITCHES.replaced(async_level=2)
    {'async_level': 0}
    """
    kind = type("Settings", (ModuleType,), {name: _standing_for(target) for name, target in names.items()})
    sys.modules[module].__class__ = kind


def _standing_for(name: str) -> property:
    def read(module: ModuleType) -> Any:
        return getattr(SWITCHES, name)

    def write(module: ModuleType, value: Any) -> None:
        SWITCHES.replaced(**{name: value})

    return property(read, write)


class autocast:
    """Mixed precision inside a ``with`` block, or inside a function that this decorates.

    Args:
        enabled: False does nothing.
        low_prec_dtype: "float16" or "bfloat16".
        high_prec_dtype: "float32".

    >>> import loadrun.megengine.functional as F
    >>> from loadrun import tensor
    >>> with autocast():
    ...     y = F.matmul(tensor([[1.0]]), tensor([[2.0]]))
    >>> y.dtype
    dtype('float16')
    """

    def __init__(
        self, enabled: bool = True, low_prec_dtype: str = "float16", high_prec_dtype: str = "float32"
    ) -> None:
        self.enabled = enabled
        self.low_prec_dtype = low_prec_dtype
        self.high_prec_dtype = high_prec_dtype
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        inside: dict[str, Any] = {
            "autocast": self.enabled,
            "low_prec_dtype": self.low_prec_dtype,
            "high_prec_dtype": self.high_prec_dtype,
        }
        if not self.enabled:
            # Settings around the block stay in force; those that the block makes end with it.
            inside = {name: getattr(SWITCHES, name) for name in inside}
        self._before.append(SWITCHES.replaced(**inside))

    def __exit__(self, *exc: object) -> None:
        SWITCHES.replaced(**self._before.pop())

    def __call__(self, function: C) -> C:
        """Return the function with mixed precision inside."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


@contextmanager
def override(
    benchmark_kernel: bool | None = None,
    deterministic_kernel: bool | None = None,
    async_level: int | None = None,
    compute_mode: str | None = None,
) -> Iterator[None]:
    """Change settings inside a ``with`` block, or inside a function that this decorates; None leaves one as it is.

    >>> from loadrun.megengine import config
    >>> with config._override(compute_mode="float32"):
    ...     config._compute_mode
    'float32'
    >>> config._compute_mode
    'default'
    """
    settings = {
        "benchmark_kernel": benchmark_kernel,
        "deterministic_kernel": deterministic_kernel,
        "async_level": async_level,
        "compute_mode": compute_mode,
    }
    inside = {name: getattr(SWITCHES, name) if value is None else value for name, value in settings.items()}
    before = SWITCHES.replaced(**inside)
    try:
        yield
    finally:
        SWITCHES.replaced(**before)


_symbolic = False


def symbolic_shape() -> bool:
    """Return whether ``VarNode.shape`` is a node."""
    return _symbolic


def set_symbolic_shape(option: bool) -> bool:
    """Choose whether ``VarNode.shape`` is a node that computes the shape, or numbers.

    Args:
        option: True for a node, so that what is built from it runs at other sizes.

    Returns:
        what was chosen before.
    """
    global _symbolic
    before, _symbolic = _symbolic, bool(option)
    return before


T = TypeVar("T")


class SessionOf(Protocol[T]):
    """The interface of a running trace to the tensors inside it.

    A `standing` session belongs to no trace: it is asked whenever a tensor of it is an input.
    """

    symbolic_shape: bool
    sizes: dict[Any, T]
    ended: bool
    standing: bool = False

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

    def chosen(self, key: tuple[Any, ...], choice: bool) -> bool:
        """Return what was chosen in the recorded call, whatever the sizes of this one suggest."""

    def measured(self, tensor: T) -> None:
        """Note that code inside the function took a size as a number."""

    def named(self, tensor: T, name: str) -> None:
        """Note that code inside the function named a tensor."""

    def became(self, tensor: T, kind: str) -> None:
        """Note that code inside the function made a Python number, of that kind, of a value."""

    def leave(self) -> None:
        """Begin a region that is not recorded: what was made so far becomes values from outside."""


class _Local(threading.local):
    session: SessionOf[Any] | None = None
    exact: bool = False
    wide: bool = False


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
    """Return whether operators of this thread that run at once are computed as definitions say (`Graph.exact`)."""
    return _local.exact


def keeps_wide() -> bool:
    """Return whether float64, int64 and unsigned integers that are requested by name stay what they are."""
    return _local.wide


@contextmanager
def exact_arithmetic(wide: bool = False) -> Iterator[None]:
    """Compute operators inside as their definitions say, not as MegEngine's kernels do.

    Args:
        wide: whether dtypes of numpy that MegEngine lacks are kept.
    """
    before = _local.exact, _local.wide
    _local.exact, _local.wide = True, wide
    try:
        yield
    finally:
        _local.exact, _local.wide = before


@contextmanager
def suspended() -> Iterator[SessionOf[Any] | None]:
    """Execute at once inside, whatever trace is running."""
    session = _local.session
    with use(None):
        yield session
