"""Traced functions and methods: what `trace` makes, which records a function, checks later calls and dumps it."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ..base.errors import TraceError
from ..base.locks import ForkLock
from ..base.registry import resolve
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..tensors.switches import active, use
from ..tensors.value import Tensor
from ..testcase import Bundle
from ..verify.pack.capture import Recorder
from .arguments import Slot, leaves, marked, rebuilt
from .calls import execute, record, replay
from .checking import CheckedRecorder
from .dumping import Dumps
from .recording import Recording, TraceOptions
from .replay import Compiled, Outputs
from .torch_door import is_torch_call


class TraceState:
    """What the calls of one function, or of one method of one object, share.

    Attributes:
        lock: held while a call runs.
        compiled: what the first call found out; None before it.
    """

    def __init__(self) -> None:
        self.lock = ForkLock()
        self.compiled: Compiled | None = None


class Traced(Dumps):
    """A function whose first call is recorded and whose later calls run the compiled graph; `trace` makes it.

    As an attribute of a class it is a method: every instance has a recording of its own.

    Args:
        function: what is traced.
        options: how.
        owner: the instance, for a method.
        state: what is shared with other bound methods of that instance.

    Raises:
        TypeError: `function` cannot be called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: TraceOptions,
        owner: Any = None,
        state: TraceState | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"trace wraps a function, found {type(function).__name__} {function!r:.60}")
        functools.update_wrapper(self, function, updated=())
        # A class attribute of this name would be taken for what the class wraps, one of the instance would keep a
        # method's owner alive.
        del self.__dict__["__wrapped__"]
        self.options = options
        self._function = function
        self._owner = owner
        self._state = state or TraceState()
        # By what instances are, not by what they are equal to, each for as long as it lives.
        self._methods: dict[int, tuple[weakref.ref[Any], TraceState]] = {}

    @property
    def compiled(self) -> Compiled | None:
        """What the first call found out; None before it."""
        return self._state.compiled

    @property
    def recording(self) -> Recording | None:
        """What the first call did; None before it."""
        compiled = self._state.compiled
        return None if compiled is None else compiled.recording

    @property
    def outputs(self) -> Outputs | None:
        """What the first call returned, as variables of the recording; None before it."""
        compiled = self._state.compiled
        return None if compiled is None else compiled.outputs

    @property
    def engine(self) -> ReferenceEngine | None:
        """What runs the compiled graph; None before the first call, and where nothing is computed."""
        compiled = self._state.compiled
        return None if compiled is None else compiled.engine

    def example(self) -> Mapping[str, Array]:
        """Return the tensors of the recorded call by the names that the recording has for them.

        Raises:
            TraceError: the trace cannot be dumped, and keeps none of them.
        """
        compiled = self._state.compiled
        if compiled is None or compiled.call is None:
            raise TraceError("this trace has no example; create it with capture_as_const=True and call it")
        return {x.name: x.example for _, x in leaves(compiled.call) if isinstance(x, Slot)}

    @property
    def integers(self) -> Collection[str]:
        """The arguments that are ndarrays of 64-bit integers, or of unsigned ones of 32 bits."""
        compiled = self._state.compiled
        slots = [] if compiled is None or compiled.call is None else leaves(compiled.call)
        return [
            x.name
            for _, x in slots
            if isinstance(x, Slot) and x.kind.name == "Int32" and x.dtype not in (None, np.dtype(np.int32))
        ]

    def reset(self) -> None:
        """Forget the recording: the next call records again."""
        with self._state.lock:
            self._state.compiled = None

    def __getattr__(self, name: str) -> Any:
        if name != "__wrapped__" or "_function" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return (
            self._function if self._owner is None else self._function.__get__(self._owner, type(self._owner))
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an instance, with a recording of its own.

        Raises:
            TypeError: no one can know how long the instance lives.
        """
        if instance is None or self._owner is not None or not hasattr(self._function, "__get__"):
            return self
        methods, key = self._methods, id(instance)
        if key not in methods:
            try:
                life = weakref.ref(instance, lambda _: methods.pop(key, None))
            except TypeError:
                raise TypeError(
                    f"a traced method keeps one recording per instance, but {type(instance).__name__} has "
                    "__slots__ without '__weakref__'; add it, or trace a function that takes the object by keyword"
                ) from None
            methods[key] = life, TraceState()
        return self.remade(self._function, self.options, instance, methods[key][1])

    @classmethod
    def remade(
        cls,
        function: Callable[..., Any],
        options: TraceOptions,
        owner: Any = None,
        state: TraceState | None = None,
    ) -> Traced:
        """Return another one of a function, as the class of a trace may take its options one by one."""
        traced = object.__new__(cls)
        Traced.__init__(traced, function, options, owner, state)
        return traced

    def __reduce__(self) -> Any:
        """Reduce to its name or its owner's attribute, else to what copies are made of, which are traced again."""
        if self._owner is not None:
            return getattr, (self._owner, self._function.__name__)
        target: Any = sys.modules.get(getattr(self._function, "__module__", None) or "")
        name = getattr(self._function, "__qualname__", "")
        for part in name.split("."):
            target = getattr(target, part, None)
        return name if target is self else (self.remade, (self._function, self.options))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: recorded the first time, compiled later."""
        if active() is not None:
            # Inside another trace the function is a part of that one.
            return self.__wrapped__(*args, **kwargs)
        options, state = self.options, self._state
        with state.lock:
            arguments = marked(args, kwargs, tensors_only=options.fixed)
            if state.compiled is None:
                outputs, state.compiled = record(self.__wrapped__, options, arguments)
            elif options.without_host:
                outputs = execute(state.compiled, arguments)
            else:
                outputs = replay(self.__wrapped__, options, state.compiled, arguments)
        # What was never computed has no value to return.
        as_arrays = arguments.tensors and options.mode != "never"
        if as_arrays and not any(isinstance(a.original, Tensor) for a in arguments.tensors):
            return rebuilt(outputs, lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf)
        return outputs

    def _checked(
        self, model: Bundle, names: Mapping[str, str], maxerr: float | Mapping[str, float] | None
    ) -> Recorder:
        """Capture testcases of a model and run the Python function beside it."""
        return CheckedRecorder(model, self, names, maxerr)

    def get_profile(self) -> dict[str, Any]:
        """Return what the operators took in the last compiled call, in the form of MegEngine's profile.

        Raises:
            TraceError: `profiling` was not requested, or no compiled call has run.
        """
        if not self.options.profiling:
            raise TraceError("the trace has no profile; create it with profiling=True")
        if self.engine is None:
            raise TraceError("no compiled call has run yet; the first call records, call the function again")
        return self.engine.get_profile()


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
