"""Traced functions and methods: what `trace` makes."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from ..base.errors import TraceError
from ..base.locks import ForkLock
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..tensors.switches import active
from ..tensors.value import Tensor
from ..testcase import Bundle
from ..verify.pack.capture import Recorder
from .arguments import Slot, marked
from .calls import execute, record, replay
from .compiled import Compiled, Outputs
from .dumping import Dumps
from .recording import Recording, TraceOptions
from .structure import leaves, rebuilt
from .truth import CheckedRecorder


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
