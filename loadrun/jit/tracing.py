"""`trace`: record what a function computes, check and accelerate later calls, dump it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import numpy as np

from ..dtypes import Array
from ..engines.reference import ReferenceEngine
from ..errors import TraceError
from ..graph import Var
from ..imperative.apply import active, use
from ..imperative.convert import as_tensor
from ..imperative.followed import Followed
from ..imperative.sizes import Shape
from ..imperative.source import shown
from ..imperative.value import Tensor
from ..locks import ForkLock
from ..optimize import simplify
from ..rewrite.copies import subgraph
from .arguments import Argument, TraceArgumentError, changed_among, settle
from .bound import Bound, reduced
from .compiled import Check, Replay, ShapeCache, checks_in, judge, run
from .config import GraphOptimizationConfig
from .dumping import Dumps
from .recording import Recorder, Recording
from .structure import leaves, rebuilt
from .torch_door import is_torch_call, traced_torch

__all__ = ["exclude_from_trace", "is_tracing", "trace"]


def is_tracing() -> bool:
    """Whether the code that runs is being recorded or compared with a recording."""
    return active() is not None


@contextmanager
def exclude_from_trace() -> Iterator[None]:
    """Leave a region of a traced function out of the graph; it is executed at once in every call.

    What the function made before becomes values from outside for what comes after.
    """
    session = active()
    if session is None:
        yield
        return
    session.leave()
    with use(None):
        yield


class trace(Dumps):
    """Wrap a function so that its first call is recorded and later calls run the compiled graph.

    Every call runs the Python code (unless `without_host`); in later calls nothing is computed by it, each
    operator is only compared with the recorded one, and the graph is executed as a whole.

    Args:
        function: a function of Tensors or ndarrays; with ndarrays it is traced through numpy's protocols and
            returns ndarrays. Values that are neither are passed through.
        symbolic: record first and execute the whole graph then, instead of operator by operator.
        capture_as_const: tensors from outside (parameters, closures) are constants of the graph; needed to dump.
        record_only: never execute; implies `symbolic` and `capture_as_const`.
        sublinear_memory_config: plan recomputation beforehand to save memory, see `SublinearMemoryConfig`.
        dtr_config: evict and recompute tensors while executing, see `DTRConfig`.
        profiling: measure operators; see `get_profile`.
        opt_level: 0 the graph as recorded, 1 constants folded, common parts joined and arithmetic simplified,
            2 more of it, 3 elementwise operators fused as well.
        graph_opt_config: details of the fusion, see `GraphOptimizationConfig`.
        symbolic_shape: sizes are values of the graph, so that it runs at other sizes.
        without_host: later calls do not run the Python code at all.
        imperative: accepted for MegEngine's sake; there is one executor.

    Raises:
        TraceError: a later call took another path than the first; the text shows both source lines.

    >>> import numpy as np
    >>> from loadrun.jit import trace
    >>> @trace(symbolic=True, capture_as_const=True)
    ... def scaled(x):
    ...     return x * 2 + 1
    >>> scaled(np.ones(3, "f4")), scaled(np.zeros(2, "f4"))
    (array([3., 3., 3.], dtype=float32), array([1., 1.], dtype=float32))
    """

    __slots__ = ("_owner",)
    _owner: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A trace, or with options alone the decorator that makes one; of a torch module what `loadrun.torch` makes."""
        if args and is_torch_call(args):
            return traced_torch(*args, **kwargs)
        return super().__new__(cls) if args or "function" in kwargs else functools.partial(cls, **kwargs)

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        symbolic: bool = False,
        capture_as_const: bool = False,
        record_only: bool = False,
        sublinear_memory_config: Any = None,
        dtr_config: Any = None,
        profiling: bool = False,
        opt_level: int = 2,
        graph_opt_config: Any = None,
        symbolic_shape: bool = True,
        without_host: bool = False,
        imperative: bool = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"trace wraps a function, found {type(function).__name__} {function!r:.60}")
        if opt_level not in (0, 1, 2, 3):
            raise ValueError(f"opt_level is 0, 1, 2 or 3, found {opt_level!r}")
        functools.update_wrapper(self, function, updated=())
        # A class attribute of this name would be taken for what the class wraps, one of the instance would keep a
        # method's owner alive.
        del self.__dict__["__wrapped__"]
        self._function = function
        self._owner = None
        self._options: dict[str, Any] = {
            "symbolic": symbolic,
            "capture_as_const": capture_as_const,
            "record_only": record_only,
            "sublinear_memory_config": sublinear_memory_config,
            "dtr_config": dtr_config,
            "profiling": profiling,
            "opt_level": opt_level,
            "graph_opt_config": graph_opt_config,
            "symbolic_shape": symbolic_shape,
            "without_host": without_host,
            "imperative": imperative,
        }
        self._fixed = capture_as_const or record_only
        self._mode = "never" if record_only else "lazy" if symbolic else "eager"
        self._lock = ForkLock()
        self._bound = Bound()
        self.reset()

    def reset(self) -> None:
        """Forget the recording: the next call records anew."""
        with self._lock:
            self.recording: Recording | None = None
            self._outputs: Any = None
            self._targets: list[Var] = []
            self._updates: list[tuple[Tensor, Var]] = []
            self._assigned: list[tuple[str, Var, bool]] = []
            self._checks: list[Check] = []
            self._engine: ReferenceEngine | None = None
            self._shapes = ShapeCache()

    def __getattr__(self, name: str) -> Any:
        if name != "__wrapped__" or "_function" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return (
            self._function if self._owner is None else self._function.__get__(self._owner, type(self._owner))
        )

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A trace with a recording of its own for every instance whose method is wrapped."""
        if instance is None or self._owner is not None or not hasattr(self._function, "__get__"):
            return self
        state = self._bound.state(instance, lambda: type(self)(self._function, **self._options).__dict__)
        found = object.__new__(type(self))
        found.__dict__ = state
        found._owner = instance
        return found

    def __reduce__(self) -> Any:
        """Copies are traced anew."""
        return reduced(self, self._function, self._options, self._owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function: recorded the first time, compiled later; see the class."""
        if active() is not None:
            # Inside another trace the function is a part of that one.
            return self.__wrapped__(*args, **kwargs)
        with self._lock:
            found, args, kwargs = self._arguments(args, kwargs)
            if self.recording is None:
                outputs = self._record(found, args, kwargs)
            elif self._options["without_host"]:
                outputs = self._execute(found)
            else:
                outputs = self._replay(found, args, kwargs)
        # What was never computed has no value to return.
        plain = found and self._mode != "never" and not any(isinstance(a.original, Tensor) for a in found)
        return rebuilt(outputs, _to_numpy) if plain else outputs

    def _arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Argument], tuple[Any, ...], dict[str, Any]]:
        """The tensors among the arguments, and the arguments with their places marked by them."""
        found: list[Argument] = []

        def marked(prefix: str, value: Any) -> Any:
            paths = iter([p for p, _ in leaves(value)])

            def mark(leaf: Any) -> Any:
                path = next(paths)
                if not isinstance(leaf, (Tensor, np.ndarray)):
                    return leaf
                found.append(Argument("_".join(map(str, (prefix, *path))), leaf))
                return found[-1]

            return rebuilt(value, mark)

        for i, arg in enumerate(args):
            if self._fixed and not any(isinstance(x, (Tensor, np.ndarray)) for _, x in leaves(arg)):
                raise TraceArgumentError(
                    "Only support tensor type args when capture_as_const is enabled: positional argument "
                    f"{i} is {type(arg).__name__} {arg!r:.60}; pass it by keyword, or as a tensor or ndarray"
                )
        marked_args = tuple(marked(f"arg_{i}", a) for i, a in enumerate(args))
        marked_kwargs = {k: marked(f"kwarg_{k}", v) for k, v in kwargs.items()}
        return found, marked_args, marked_kwargs

    # The first call

    def _record(self, found: list[Argument], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder = Recorder(
            self._mode, fixed=self._fixed, symbolic_shape=bool(self._options["symbolic_shape"])
        )
        inside = {id(a): recorder.argument(a.name, a.tensor) for a in found}
        try:
            with use(recorder):
                outputs = self._call(args, kwargs, inside)
            tensors = [(p, x) for p, x in leaves(outputs) if isinstance(x, Tensor)]
            # A value from outside that is returned is a part of the graph only where the graph runs alone.
            alone = self._fixed or self._options["without_host"]
            outs = [recorder.source(x).var if alone or x._session is recorder else None for _, x in tensors]
            if self._options["without_host"]:
                self._check_alone(recorder, kwargs)
            changed = changed_among(found, inside, recorder.found)
            assigned = [
                (a.name, recorder.source(t).var, t._scalar)
                for a, t in changed
                if alone or t._session is recorder
            ]
            inside.clear()
            recording = recorder.found
            alive = [(t, t._var) for t in recorder.alive() if t._var is not None]
            checks = checks_in(recording)
            held = [*(v for _, v in alive), *(v for _, v, _ in assigned), *(c.error for c in checks)]
            targets = list({v.id: v for v in (*outs, *held) if v is not None}.values())
            captured = {id(c.tensor) for c in recording.captures}
            updates = [(t, v) for t, v in alive if id(t) in captured]
            del alive
            engine = self._compile(recording, targets)
            if self._mode == "lazy":
                values = self._first_values(recorder, engine, targets)
                judge(checks, values)
                for tensor in recorder.alive():
                    if tensor._value is None and tensor._var is not None:
                        tensor._value = values[tensor._var.id]
            settle(found, changed, recorder.alive())
        finally:
            _release(recorder)
        self.recording, self._targets, self._engine = recording, targets, engine
        self._updates, self._assigned, self._checks = updates, assigned, checks
        self._outputs = (
            outputs if outputs is None else rebuilt(outputs, _structure),
            outs,
            [p for p, _ in tensors],
        )
        return outputs

    def _first_values(
        self, recorder: Recorder, engine: ReferenceEngine | None, targets: list[Var]
    ) -> dict[int, Array]:
        started = len(recorder.evaluator.values) > len(recorder.found.args) + len(recorder.found.captures)
        if engine is None or started:
            return {v.id: recorder.evaluator.value(v) for v in targets}
        names = {v.name or "": v for v in recorder.found.graph.inputs}
        feeds = {n: recorder.evaluator.values[v.id] for n, v in names.items()}
        return run(engine, recorder.found, feeds, targets)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], inside: Mapping[int, Tensor]) -> Any:
        def unmark(leaf: Any) -> Any:
            return inside[id(leaf)] if isinstance(leaf, Argument) else leaf

        outputs = self.__wrapped__(
            *(rebuilt(a, unmark) for a in args), **{k: rebuilt(v, unmark) for k, v in kwargs.items()}
        )
        return rebuilt(outputs, _settled, whole=(Shape, as_tensor))

    def _check_alone(self, recorder: Recorder, kwargs: Mapping[str, Any]) -> None:
        """Refuse what later calls without the Python code cannot do again."""
        if recorder.found.excluded is not None:
            raise TraceError(
                f"the function leaves a region out of the trace in {shown(recorder.found.excluded)}, which would not "
                "run in later calls with without_host=True"
            )
        if recorder.found.counted is not None:
            raise TraceError(
                "a size that the data decide is used as a number, as symbolic_shape=False asks, in "
                f"{shown(recorder.found.counted)}; later calls with without_host=True could not follow it"
            )
        self._check_unknown(recorder, kwargs)

    def _check_unknown(self, recorder: Recorder, kwargs: Mapping[str, Any]) -> None:
        """Later calls without the Python code cannot ask closures for their tensors."""
        if self._fixed:
            return
        known: set[int] = set()
        for value in kwargs.values():
            if callable(getattr(value, "named_tensors", None)):
                known.update(id(t) for _, t in value.named_tensors())
        unknown = [c for c in recorder.found.captures if not c.fixed and id(c.tensor) not in known]
        if unknown:
            raise TraceError(
                "have some unknown input tensors in trace result, maybe you can set `capture_as_const=True` when "
                f"trace: {len(unknown)} tensor(s) come from outside the function and are no arguments"
            )

    def _compile(self, recording: Recording, targets: list[Var]) -> ReferenceEngine | None:
        if self._mode == "never":
            return None
        graph, _ = subgraph(recording.graph, targets)
        config = self._options["graph_opt_config"] or GraphOptimizationConfig()
        graph = simplify(graph, self._options["opt_level"], **vars(config))
        return ReferenceEngine(
            graph,
            dtr=self._options["dtr_config"],
            sublinear=self._options["sublinear_memory_config"],
            profile=self._options["profiling"],
        )

    def get_profile(self) -> dict[str, Any]:
        """What the operators took in the last compiled call, in the form of MegEngine's profile.

        Raises:
            TraceError: `profiling` was not asked for, or no compiled call has run.
        """
        if not self._options["profiling"]:
            raise TraceError("the trace does not measure; make it with profiling=True")
        if self._engine is None:
            raise TraceError("no compiled call has run yet; the first call records, call the function again")
        return self._engine.get_profile()

    # Later calls

    def _replay(self, found: list[Argument], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.recording is not None
        self._check_arguments(self.recording, found)
        session = Replay(
            self.recording,
            {a.name: a.tensor._stored() for a in found},
            self._shapes,
            symbolic_shape=bool(self._options["symbolic_shape"]),
        )
        inside = {id(a): session.argument(a.name, a.tensor) for a in found}
        try:
            with use(session):
                outputs = self._call(args, kwargs, inside)
            session.finish()
            self._check_outputs(session, outputs)
            changed = changed_among(found, inside, self.recording)
            inside.clear()
            if self._mode != "never":
                values = session.compute(self._engine, self._targets)
                judge(self._checks, values)
                for tensor in session.alive():
                    if tensor._value is None and tensor._var is not None:
                        tensor._value = values.get(tensor._var.id)
            settle(found, changed, session.alive())
        finally:
            _release(session)
        return outputs

    def _check_arguments(self, recording: Recording, found: list[Argument], *, alone: bool = False) -> None:
        names = [a.name for a in found]
        if names != list(recording.args):
            raise TraceError(
                f"the function was traced with the tensors {', '.join(recording.args) or 'none'} as arguments, now "
                f"it is called with {', '.join(names) or 'none'}; call .reset() to trace it anew"
            )
        for a in found:
            var, shape = recording.args[a.name], a.tensor._tuple_shape
            traced = () if a.name in recording.scalars else var.shape or ()
            # Where the Python code runs again it tells itself what other sizes change.
            if a.tensor._dtype != var.dtype or (alone and len(shape) != len(traced)):
                raise TraceError(
                    f"{a.name} was traced as {var.dtype} with {len(traced)} axes, now it is {a.tensor._dtype} of "
                    f"shape {list(shape)}; call .reset() to trace the function anew"
                )
            if alone and recording.measured is not None and shape != traced:
                raise TraceError(
                    f"{a.name} was traced with shape {list(traced)}, now it has {list(shape)}, but with "
                    f"symbolic_shape=False sizes are numbers, first in {shown(recording.measured)}; call .reset() to "
                    "trace the function anew"
                )

    def _check_outputs(self, session: Replay, outputs: Any) -> None:
        found = [(p, x) for p, x in leaves(outputs) if isinstance(x, Tensor)]
        paths = [p for p, _ in found]
        for (path, tensor), var in zip(found, self._outputs[1], strict=False):
            if tensor._session is session and tensor._var is not var:
                raise TraceError(
                    "trace error because data unreadable: the function returns another value than when it was traced "
                    f"as its output {list(path) or ''}"
                )
        if paths != self._outputs[2]:
            raise TraceError(
                f"the function returned {len(self._outputs[2])} tensors when it was traced, now {len(paths)} or in "
                "another structure"
            )

    def _execute(self, found: list[Argument]) -> Any:
        """Run the compiled graph alone."""
        assert self.recording is not None
        self._check_arguments(self.recording, found, alone=True)
        feeds = {a.name: a.tensor._stored() for a in found}
        feeds.update((c.var.name or "", c.tensor._stored()) for c in self.recording.captures if not c.fixed)
        if self._engine is None:
            raise TraceError("a record_only trace computes nothing; dump it and run the dump")
        values = run(self._engine, self.recording, feeds, self._targets)
        judge(self._checks, values)
        for tensor, var in self._updates:
            tensor._value = values[var.id]
        structure, outs, _ = self._outputs
        scalars = iter(outs)

        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, _Hole):
                return leaf
            var = next(scalars)
            assert var.dtype is not None
            return leaf.kind._of(values[var.id], var.dtype, leaf.scalar)

        outputs = None if structure is None else rebuilt(structure, fill)
        arguments = {a.name: a for a in found}
        changed = []
        for name, var, scalar in self._assigned:
            assert var.dtype is not None
            changed.append((arguments[name], Tensor._of(values[var.id], var.dtype, scalar)))
        made = (x for _, x in leaves(outputs) if isinstance(x, Tensor))
        settle(found, changed, (*made, *(t for t, _ in self._updates)))
        return outputs


class _Hole:
    """The place of a tensor in the structure of the outputs."""

    __slots__ = ("kind", "scalar")

    def __init__(self, kind: type[Tensor], scalar: bool) -> None:
        self.kind = kind
        self.scalar = scalar


def _structure(leaf: Any) -> Any:
    return _Hole(leaf.__class__, leaf._scalar) if isinstance(leaf, Tensor) else leaf


def _settled(leaf: Any) -> Any:
    """An output as it is when the function returns: sizes are values of the graph, views have read their base.

    Raises:
        TraceError: code that has not run yet.
    """
    if isinstance(leaf, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        if isinstance(leaf, CoroutineType):
            leaf.close()
        raise TraceError(
            f"the function returns the {type(leaf).__name__} {leaf.__qualname__!r}, whose code runs when nothing is "
            "traced any more; return a list, or await the result outside"
        )
    if isinstance(leaf, Followed):
        return as_tensor(leaf)
    if isinstance(leaf, Tensor):
        leaf._settle()
    return leaf


def _to_numpy(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, Tensor) else leaf


def _release(session: Recorder | Replay) -> None:
    """Part all tensors from an ended session; those without a value cannot be read any more."""
    session.ended = True
    for tensor in session.alive():
        tensor._session = tensor._var = None
