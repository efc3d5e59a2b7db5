"""A traced method and a dump's testcases, compared with the Python code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np

from ..base.errors import EngineError, TraceError, TraceWarning
from ..compare.tolerances import MAXERR, default_maxerr, error_between, magnitude
from ..graph.dtypes import Array
from ..ops.registry import implementation
from ..tensors.access import from_stored, stored_shape
from ..tensors.naming import here, shown
from ..tensors.switches import use
from ..tensors.value import Tensor
from ..testcase import Bundle, Testcase
from ..verify.pack.capture import Recorder
from .arguments import Slot, leaves, marked, rebuilt, stand_in
from .calls import arguments_of, called, feeds_of
from .recording import RecordedOpr, Recording, TraceOptions, TraceRecorder
from .replay import Compiled, fed


class TracedCode(Protocol):
    """A traced function, as far as it is compared with its Python code, its ``__wrapped__``."""

    options: TraceOptions

    @property
    def recording(self) -> Recording | None:
        """The first call; None before it."""

    @property
    def compiled(self) -> Compiled | None:
        """What the first call found out; None before it."""

    def __getattr__(self, name: str) -> Any:
        """Return the Python code for ``__wrapped__``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it."""


def check_method(
    mod: Any,
    name: str,
    method: TracedCode,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tolerance: float,
) -> None:
    """Run a method as Python code and as its graph on the same inputs.

    Raises:
        TraceError: they differ; the text says how much, where it began and why that is likely so.
    """
    truth, again = (arrays_of(_call(method.__wrapped__, args, kwargs)) for _ in range(2))
    try:
        computed = arrays_of(_call(method, args, kwargs))
    except (EngineError, TraceError) as e:
        raise TraceError(
            f"{name}: the traced graph fails on inputs that the Python code accepts: {e}\n"
            f"{_cause(mod, method, args, kwargs, truth, again, tolerance)}"
        ) from e
    if len(computed) != len(truth):
        raise TraceError(f"{name}: the Python code returns {len(truth)} tensors, the graph {len(computed)}")
    for (path, want), (_, got) in zip(truth, computed, strict=True):
        error = error_between(want, got)
        if error <= tolerance:
            continue
        which = "output" + "".join(f"[{p!r}]" for p in path)
        if want.shape != got.shape:
            what = f"is {list(want.shape)} from the Python code and {list(got.shape)} from the traced graph"
        else:
            far = np.abs(want.astype(np.float64) - got.astype(np.float64))
            many = int((~(far <= tolerance)).sum())
            what = (
                f"differs by {error:.3g} (tolerance {tolerance:g}) between the Python code and the traced graph, in "
                f"{many} of {want.size} elements"
            )
        raise TraceError(
            f"{name}: {which} {what}\n{_cause(mod, method, args, kwargs, truth, again, tolerance)}"
        )


def fresh(args: Any) -> Any:
    """Arguments in a state of their own, so that what one run assigns to them does not show in another."""
    return rebuilt(args, lambda x: copy(x) if isinstance(x, (Tensor, np.ndarray)) else x)


def _call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return function(*fresh(args), **fresh(dict(kwargs)))


def arrays_of(outputs: Any) -> list[tuple[tuple[Any, ...], Array]]:
    """Return the arrays that a function returned, with their places."""
    return [
        (p, x.numpy() if isinstance(x, Tensor) else np.asarray(x))
        for p, x in leaves(outputs)
        if isinstance(x, (Tensor, np.ndarray, np.generic))
    ]


def _cause(
    mod: Any,
    method: TracedCode,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    truth: Sequence[tuple[Any, Array]],
    again: Sequence[tuple[Any, Array]],
    tolerance: float,
) -> str:
    """Tell where the graph and the Python code part, and the likely reason."""
    assert method.recording is not None
    stable = len(truth) == len(again) and all(
        error_between(a, b) <= tolerance for (_, a), (_, b) in zip(truth, again, strict=True)
    )
    lines: list[str] = []
    fresh, values = _recorded(method, args, kwargs)
    old = method.recording
    part = _first_difference(old, fresh)
    if part is not None:
        kind, before, now = part
        if kind == "path":
            lines.append(
                "first difference: the Python code applies a different operator\n"
                f"  traced: {_line(before)}\n  now:    {_line(now)}"
            )
            reason = "a branch or loop depends on data, or on a size that was used as a number (int(), range(), if)"
        else:
            lines.append(
                f"first difference: a value from outside the graph is different, in {_line(now or before)}"
            )
            reason = "a number or array computed outside the trace, or from a value that was read"
            if _resized(method, args, kwargs):
                reason = f"a size that was used as a number (int(), len(), range()), or {reason}"
    else:
        entry = _first_numeric(old, method, args, kwargs, values, tolerance)
        lines.append(
            f"first operator that differs: {_line(entry)}" if entry else "no single operator differs"
        )
        reason = "rounding; raise check_tolerance if the difference is acceptable"
    if any(implementation(e.opr.type).random for e in old.entries):
        reason = "the method draws random numbers"
        if getattr(mod, "training", False):
            reason += "; the module is in training mode: call .eval() first"
    elif not stable:
        reason = (
            "two runs of the Python code differ from each other: it draws random numbers outside the trace or changes "
            "the object's state"
        )
    elif getattr(mod, "training", False):
        reason += "; the module is in training mode: was .eval() forgotten?"
    return "\n".join((*lines, f"likely cause: {reason}"))


def _recorded(
    method: TracedCode, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Recording, dict[int, Array]]:
    """Return a fresh recording of the method on these inputs, with the values of all its operators."""
    arguments = marked(fresh(args), fresh(dict(kwargs)), tensors_only=method.options.fixed)
    recorder = _Keeping(bool(method.options.symbolic_shape))
    inside = arguments_of(recorder, arguments)
    try:
        with use(recorder):
            called(method.__wrapped__, arguments, inside)
    finally:
        recorder.release()
    return recorder.recording, recorder.kept


def _resized(method: TracedCode, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an argument has another shape than when the method was traced."""
    assert method.recording is not None
    arguments = marked(args, kwargs, tensors_only=method.options.fixed).tensors
    return any(stored_shape(a.tensor) != method.recording.args[a.name].shape for a in arguments)


class _Keeping(TraceRecorder):
    """A recorder that keeps what every operator computed."""

    def __init__(self, symbolic_shape: bool) -> None:
        super().__init__("eager", fixed=False, symbolic_shape=symbolic_shape)
        self.kept: dict[int, Array] = {}

    def _new_tensor(self, kind: Any, var: Any, dtype: Any, scalar: bool, value: Array | None) -> Tensor:
        if value is not None:
            self.kept[var.id] = value
        return super()._new_tensor(kind, var, dtype, scalar, value)


def _first_difference(
    old: Recording, new: Recording
) -> tuple[str, RecordedOpr | None, RecordedOpr | None] | None:
    for before, now in zip(old.entries, new.entries, strict=False):
        a, b = before.opr, now.opr
        if (a.type, a.params, a.output_dtype) != (b.type, b.params, b.output_dtype):
            return "path", before, now
        for x, y in zip(before.sources, now.sources, strict=False):
            if (x.value is None) != (y.value is None):
                return "path", before, now
            if x.value is not None and y.value is not None and x.fixed and not _equal(x.value, y.value):
                return "value", before, now
            if x.value is None and x.var.id != y.var.id and len(old.captures) == len(new.captures):
                return "path", before, now
    if len(old.entries) != len(new.entries):
        longer, n = (
            (old, len(new.entries)) if len(old.entries) > len(new.entries) else (new, len(old.entries))
        )
        extra = longer.entries[n]
        return ("path", extra, None) if longer is old else ("path", None, extra)
    return None


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and error_between(a, b) == 0


def _first_numeric(
    old: Recording,
    method: TracedCode,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    values: Mapping[int, Array],
    tolerance: float,
) -> RecordedOpr | None:
    """Return the first operator whose result in the graph differs from what the Python code computed there."""
    arguments = marked(args, kwargs, tensors_only=method.options.fixed).tensors
    evaluator = fed(old, feeds_of(old, arguments))
    for entry in old.entries:
        for var in entry.opr.outputs:
            want = values.get(var.id)
            if want is not None and error_between(want, evaluator.value(var)) > tolerance:
                return entry
    return None


def _line(entry: RecordedOpr | None) -> str:
    if entry is None:
        return "nothing (it ended)"
    return f"{entry.opr.title} in {shown(entry.place)}"


_WIDE = 8
"""Bytes of the numbers that the graph narrows."""
_MOST = 3
"""Testcases that are told of; what is wrong with one is mostly wrong with all."""


class CheckedRecorder(Recorder):
    """Captures testcases and runs the Python function on each of them, too.

    Args:
        model: the model.
        traced: the function.
        names: the dump's name of every argument of the recording.
        maxerr: tolerance of the checks, one or by output name; None for the default.
    """

    def __init__(
        self,
        model: Bundle,
        traced: TracedCode,
        names: Mapping[str, str],
        maxerr: float | Mapping[str, float] | None,
    ) -> None:
        super().__init__(model)
        self.traced = traced
        self.names = dict(names)
        self.maxerr = maxerr if isinstance(maxerr, Mapping) else {} if maxerr is None else {"": maxerr}
        entries = traced.recording.entries if traced.recording is not None else ()
        # What is drawn at random is another value each time, as the dump says already.
        self._random = any(implementation(entry.opr.type).random for entry in entries)
        self._count = -1
        self._told = 0

    def capture(self, inputs: Mapping[str, Array]) -> Testcase:
        """Run graph and function; where they differ, a `TraceWarning` says how much and why that is likely so."""
        case = super().capture(inputs)
        self._count += 1
        if not self._random and self._told < _MOST and (said := self._difference(case)) is not None:
            self._told += 1
            text = f"testcase {self._count}: {said}\nThe file has the graph's values; check=False turns this check off"
            warnings.warn_explicit(text, TraceWarning, *here())
        return case

    def _difference(self, case: Testcase) -> str | None:
        """Describe where the function's results differ from the graph's; None if they do not."""
        compiled = self.traced.compiled
        assert compiled is not None
        if compiled.call is None:
            return None
        args, kwargs = rebuilt(compiled.call, self._filler(case))
        try:
            truth = self._called(args, kwargs)
        except Exception as e:
            return f"the Python function fails on an input that the graph accepts: {type(e).__name__}: {e}"
        expects = case.expects
        if len(truth) != len(expects):
            lost = [".".join(map(str, p)) for p, _ in truth if p not in compiled.outputs.paths]
            return (
                f"the graph does not have the function's output {', '.join(map(repr, lost))}: what np.array of a list, "
                "float or another library makes of traced values is a constant"
                if lost
                else f"the Python function returns {len(truth)} tensors, the graph {len(expects)}"
            )
        for (_, want), (name, got) in zip(truth, expects.items(), strict=True):
            want = want.reshape(got.shape) if not want.ndim and got.size == 1 else want
            error = error_between(want, got)
            limit = self._limit(name, want, got)
            if not error <= limit:
                return self._explained(name, error, limit, want.dtype.itemsize == _WIDE, args, kwargs)
        return None

    def _called(self, args: Any, kwargs: Any) -> list[tuple[tuple[Any, ...], Array]]:
        """Call the function with ndarrays or, where it needs loadrun's arrays, with those."""
        with np.errstate(all="ignore"):
            try:
                return arrays_of(self.traced.__wrapped__(*fresh(args), **fresh(kwargs)))
            except Exception:
                arguments = [
                    rebuilt(x, lambda leaf: stand_in(leaf) if isinstance(leaf, np.ndarray) else leaf)
                    for x in (fresh(args), fresh(kwargs))
                ]
                return arrays_of(self.traced.__wrapped__(*arguments[0], **arguments[1]))

    def _limit(self, name: str, want: Array, got: Array) -> float:
        """Return the tolerance of an output, no less than the rounding error of its dtype.

        One that nobody gave goes by the size of what is right: a graph that gives 0 has no size of its own.
        """
        least = 16 * float(np.finfo(got.dtype).eps) if got.dtype.kind == "f" else 0.0
        asked = self.maxerr.get(name, self.maxerr.get(""))
        if asked is not None:
            return max(float(asked), least)
        return default_maxerr(magnitude(want), max(MAXERR, least))

    def _explained(self, name: str, error: float, limit: float, wide: bool, args: Any, kwargs: Any) -> str:
        """Describe how much an output differs and the likely reason; `wide`: the function gives it in 64 bits."""
        said = (
            f"{name!r} differs by {error:.3g} (tolerance {limit:g}) between the Python function and the graph"
        )
        try:
            check_method(None, name, self.traced, args, kwargs, limit)
        except TraceError as e:
            # The first line says again how much, the others where and why.
            causes = str(e).splitlines()[1:]
            if not (wide and causes and "rounding" in causes[-1]):
                return "\n".join((said, *causes))
        if wide:
            return f"{said}\nlikely cause: the function computes in 64 bits, the graph in 32"
        return f"{said}\nlikely cause: the function changes state that affects later calls"

    def _filler(self, case: Testcase) -> Callable[[Any], Any]:
        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, Slot):
                return leaf
            name = self.names[leaf.name]
            if name not in case.arrays:
                # No output depends on it.
                return leaf.value()
            value = case.arrays[name]
            value = value.reshape(()) if leaf.scalar and value.size == 1 else value
            if leaf.dtype is not None:
                return value.astype(leaf.dtype)
            array = value.reshape(1) if not value.ndim else value
            return from_stored(array.copy(), case.dtypes[name], leaf.scalar)

        return fill
