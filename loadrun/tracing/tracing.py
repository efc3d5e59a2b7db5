"""`trace`: record what a function computes, check and accelerate later calls, dump it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ..base.registry import resolve
from ..tensors.switches import active, use
from .recording import TraceOptions
from .torch_door import is_torch_call
from .traced import Traced


def is_tracing() -> bool:
    """Return whether the code that runs is being recorded or compared with a recording.

    >>> from loadrun import tensor, trace
    >>> from loadrun.tracing import is_tracing
    >>> @trace(symbolic=True)
    ... def asked(x):
    ...     asked.told = is_tracing()
    ...     return x + 1
    >>> _ = asked(tensor([1.0]))
    >>> asked.told, is_tracing()
    (True, False)
    """
    return active() is not None


@contextmanager
def exclude_from_trace() -> Iterator[None]:
    """Leave a region of a traced function out of the graph; it is executed at once in every call.

    What the function made before becomes values from outside for what comes after.

    >>> from loadrun import tensor, trace
    >>> from loadrun.tracing import exclude_from_trace
    >>> @trace(symbolic=True)
    ... def half_recorded(x):
    ...     y = x * 2
    ...     with exclude_from_trace():
    ...         print(y.tolist())
    ...     return y + 1
    >>> half_recorded(tensor([1.0])).tolist(), half_recorded(tensor([2.0])).tolist()
    [2.0]
    [4.0]
    ([3.0], [5.0])
    """
    session = active()
    if session is None:
        yield
        return
    session.leave()
    with use(None):
        yield


P = ParamSpec("P")
R = TypeVar("R", covariant=True)
P2 = ParamSpec("P2")
R2 = TypeVar("R2")


class _Absent:
    """The function where only options are given."""


class trace(Traced, Generic[P, R]):
    """A function whose first call is recorded and whose later calls run the compiled graph.

    Every call runs the Python code (unless `without_host`); in later calls nothing is computed by it, each
    operator is only compared with the recorded one, and the graph is executed as a whole.

    Args:
        function: a function of Tensors or ndarrays; with ndarrays it is traced through numpy's protocols and
            returns ndarrays. Values that are neither are passed through.
        symbolic: record first and execute the whole graph then, instead of operator by operator.
        capture_as_const: tensors from outside (parameters, closures) are constants of the graph; needed to dump.
        record_only: never execute; implies `symbolic` and `capture_as_const`.
        sublinear_memory_config: plan recomputation in advance to save memory, see `SublinearMemoryConfig`.
        dtr_config: evict and recompute tensors while executing, see `DTRConfig`.
        profiling: measure operators; see `get_profile`.
        opt_level: 0 the graph as recorded, 1 constants folded, common parts joined and arithmetic simplified,
            2 more of it, 3 elementwise operators fused as well.
        graph_opt_config: details of the fusion, see `GraphOptimizationConfig`.
        symbolic_shape: sizes are values of the graph, so that it runs at other sizes.
        without_host: later calls do not run the Python code at all.
        imperative: accepted for MegEngine's sake; there is one executor.
        examples: example inputs, for a torch module; else options without names, in the order above.
        of_torch: the options that ``torch.jit.trace`` has besides, for a torch module.

    With options alone it is the decorator that takes the function; with a torch module it gives what
    `loadrun.torch.trace` gives.

    Raises:
        TypeError: `function` cannot be called, or an option is given twice.
        ValueError: there is no such `opt_level`.
        TraceError: in a later call that takes another path than the first; the text shows both source lines.

    >>> import numpy as np
    >>> from loadrun.tracing import trace
    >>> @trace(symbolic=True, capture_as_const=True)
    ... def scaled(x):
    ...     return x * 2 + 1
    >>> scaled(np.ones(3, "f4")), scaled(np.zeros(2, "f4"))
    (array([3., 3., 3.], dtype=float32), array([1., 1.], dtype=float32))
    """

    if TYPE_CHECKING:
        # A traced function has the parameters and the result of the function. `__init__` would hide `__new__`.
        __call__: Callable[P, R]

        @overload  # type: ignore[override]
        def __get__(self, instance: None, owner: Any) -> trace[P, R]: ...
        @overload
        def __get__(self: trace[Concatenate[Any, P2], R2], instance: Any, owner: Any) -> trace[P2, R2]: ...
        def __get__(self, instance: Any, owner: Any = None) -> Any: ...

    else:

        def __init__(self, function, *examples, **options):
            super().__init__(function, _options(examples, options))

    @overload
    def __new__(cls, function: Callable[P, R], *examples: Any, **options: Any) -> trace[P, R]: ...
    @overload
    def __new__(cls, **options: Any) -> _Decorator: ...
    def __new__(cls, function: Any = _Absent, *examples: Any, **options: Any) -> Any:
        """Return a traced function, or where there is none yet the decorator that makes one."""
        if function is _Absent and "func" in options:
            # As torch.jit.trace has it.
            return cls(options.pop("func"), *examples, **options)
        if function is _Absent:
            return functools.partial(cls, **options)
        named = [options[n] for n in ("example_inputs", "example_kwarg_inputs") if n in options]
        if is_torch_call(function, *examples, *named):
            return resolve("loadrun.torch.methods:traced_method")(function, *examples, **options)
        return super().__new__(cls)


def _options(examples: tuple[Any, ...], options: dict[str, Any]) -> TraceOptions:
    """Return the options of a call, passed by position and by name."""
    names = [f.name for f in fields(TraceOptions) if f.name != "live"]
    unknown = sorted(set(options) - set(names))
    if unknown or (examples and not isinstance(examples[0], bool)) or len(examples) > len(names):
        surplus = ", ".join(unknown) or f"{len(examples)} more positional arguments"
        raise TypeError(
            f"trace takes a function and options, found {surplus}; example inputs are for torch modules"
        )
    unnamed = dict(zip(names, examples, strict=False))
    if twice := sorted(set(unnamed) & set(options)):
        raise TypeError(f"trace got {', '.join(twice)} both by position and by name")
    return TraceOptions(**unnamed, **options)


def _signature() -> inspect.Signature:
    """Return the parameters of `trace` by name, which editors complete."""
    known = inspect.signature(TraceOptions).parameters.values()
    options = [p.replace(kind=p.KEYWORD_ONLY) for p in known if p.name not in ("live", "exact")]
    of_class = inspect.signature(trace.__new__).parameters
    return inspect.Signature([*(of_class[n] for n in ("cls", "function", "examples")), *options])


trace.__new__.__signature__ = _signature()  # type: ignore[attr-defined]

if TYPE_CHECKING:

    class _Decorator(trace[..., Any]):
        """Options alone, to type checkers."""

        def __call__(self, function: Callable[P2, R2]) -> trace[P2, R2]: ...
