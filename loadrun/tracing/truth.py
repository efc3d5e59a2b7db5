"""A dump's testcases beside the Python code: the recorded graph is compared with the function itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..arrays.array import TracedArray
from ..base.errors import TraceError, TraceWarning
from ..compare.tolerances import MAXERR, default_maxerr, error_between, magnitude
from ..graph.dtypes import Array
from ..ops.registry import implementation
from ..tensors.access import from_stored
from ..tensors.dtypes import narrowed
from ..tensors.naming import here
from ..testcase import Bundle, Testcase
from ..verify.pack.capture import Recorder
from .arguments import Slot
from .checking import TracedCode, arrays_of, check_method, fresh
from .structure import rebuilt

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
                arguments = [rebuilt(x, _as_tensor) for x in (fresh(args), fresh(kwargs))]
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


def _as_tensor(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    value, dtype = narrowed(leaf)
    return from_stored(value.reshape(1) if not value.ndim else value, dtype, not value.ndim, kind=TracedArray)
