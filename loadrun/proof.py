"""A model that was translated, beside what it was made from: both run on data of several kinds, and must agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from .base.errors import EngineError, LoadRunError, UnsupportedError
from .base.proving import level
from .compare.tolerances import error_between
from .engines.reference import ReferenceEngine
from .graph.composite import Composite
from .graph.dtypes import Array
from .inputs.feeds import random_inputs
from .ops.catalog import select
from .ops.registry import Shape, implementation
from .runner import Runner
from .testcase import Bundle

__all__ = [
    "NOTHING",
    "Computing",
    "Proof",
    "ProofError",
    "at_sizes",
    "kinds",
    "of_bundle",
    "proved",
]

_LIMITS = {"Float16": 5e-2, "BFloat16": 5e-2}
_LIMIT = 1e-3
"""The error, of the size of an output, from which on rounding is looked at."""
_NOISE = 16
"""As many times the error of rounding is rounding, too: another order of sums has another one."""
_QUICK = 1.0
_MOST = 1 << 20
"""Elements of inputs at other sizes than the example's, above which nothing is drawn."""
_TIES = "ties"
_ORDERING = select(lambda op: op.family in ("select", "image.nms"))


Computing = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes outputs by name from inputs; raises a LoadRunError where the model refuses these."""


class ProofError(UnsupportedError):
    """What was written gives other numbers than its source; the text says which."""


@dataclass(frozen=True)
class Proof:
    """What was found.

    Attributes:
        compared: how many sets of data both models ran on.
        dropped: how many of those that were drawn the source refused, or was not finite on.
        left: what was not compared, and why.
    """

    compared: int = 0
    dropped: int = 0
    left: tuple[str, ...] = ()


NOTHING = Proof(left=("it was written without a proof (prove=none)",))


def of_bundle(bundle: Bundle, engine: str = "reference") -> Computing:
    """Return what computes a bundle's outputs, at whatever sizes its graph takes."""
    runner = Runner(replace(bundle, refuses=None), engine)

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        result = runner.run(feeds)
        if result.message is not None:
            raise EngineError(result.message)
        return {o.name: np.atleast_1d(o.value) for o in result.outputs if isinstance(o.value, np.ndarray)}

    return compute


def at_sizes(feeds: Mapping[str, Array], shapes: Mapping[str, Shape]) -> dict[str, Array]:
    """Repeat or cut arrays to other sizes, so that positions stay in range.

    >>> at_sizes({"x": np.array([1, 2])}, {"x": (3,)})["x"].tolist()
    [1, 2, 1]
    """
    resized = {}
    for name, value in feeds.items():
        for axis, n in enumerate(shapes.get(name, value.shape)):
            if n != value.shape[axis] and value.shape[axis]:
                value = np.take(value, np.arange(n) % value.shape[axis], axis)
        resized[name] = value
    return resized


def proved(
    source: Bundle,
    written: Bundle,
    cases: Iterable[Mapping[str, Array]],
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    sizes: Sequence[Mapping[str, Shape]] = (),
    what: str = "the written graph",
    compute: Computing | None = None,
    drawn: bool = True,
) -> Proof:
    """Compare a model that was written with its source.

    Args:
        source: the model.
        written: what was written, as it is read back.
        cases: inputs of testcases, which come first.
        inputs, outputs: other names that these have in what was written.
        sizes: shapes of inputs by name, for models that run at several.
        what: what was written, for the error.
        compute: computes the source, by default on the reference engine.
        drawn: whether data of other kinds follow, as far as `level` says; else the cases are all.

    Raises:
        ProofError: they differ beyond rounding.
    """
    if level() == "none" and drawn:
        return NOTHING
    if source.holds_objects:
        return Proof(left=("text, sequences and maps are not compared",))
    if _draws(source):
        return Proof(left=("it draws random numbers",))
    gate = _Gate(source, written, (inputs or {}, outputs or {}), what, compute or of_bundle(source))
    return gate.run(list(cases), sizes, drawn=drawn)


def _draws(bundle: Bundle) -> bool:
    for opr in bundle.graph.oprs:
        p = opr.params[0] if opr.params else None
        if p.definition.random if isinstance(p, Composite) else implementation(opr.type).random:
            return True
    return False


class _Gate:
    def __init__(
        self,
        source: Bundle,
        written: Bundle,
        names: tuple[Mapping[str, str], Mapping[str, str]],
        what: str,
        compute: Computing,
    ) -> None:
        self.source, self.target, self.what, self.compute = source, written, what, compute
        self.inputs, self.outputs = names
        self._run = of_bundle(replace(written, sized=None))
        # Which of equal elements comes first is anyone's.
        self._orders = any(o.type in _ORDERING for o in (*source.graph.oprs, *written.graph.oprs))
        dtypes = {v.dtype.name for o in source.graph.oprs for v in o.outputs if v.dtype is not None}
        self.limit = max((_LIMITS.get(d, _LIMIT) for d in dtypes), default=_LIMIT)
        self.compared = self.dropped = 0

    def run(
        self, cases: Sequence[Mapping[str, Array]], sizes: Sequence[Mapping[str, Shape]], *, drawn: bool
    ) -> Proof:
        began = time.monotonic()
        for i, feeds in enumerate(cases):
            self.look(feeds, f"testcase {i}", drawn=False)
        spent = time.monotonic() - began
        late: list[str] = []
        elements, took = 0, 0.0
        for kind, feeds in self._drawn(dict(cases[0]) if cases else None, sizes) if drawn else ():
            now = sum(v.size for v in feeds.values())
            # What is computed may grow as the square.
            next_one = took * (now / elements) ** 2 if elements else 0.0
            before = time.monotonic()
            if level() == "quick" and before - began + next_one > max(_QUICK, 2 * spent):
                late.append(kind)
                continue
            self.look(feeds, kind, drawn=True)
            elements, took = now, time.monotonic() - before
        left = (f"{', '.join(late)} (for the time; --prove full)",) if late else ()
        return Proof(self.compared, self.dropped, left)

    def _drawn(
        self, case: dict[str, Array] | None, sizes: Sequence[Mapping[str, Shape]]
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        try:
            feeds = random_inputs(self.source) if case is None else case
        except LoadRunError:
            return
        for shapes in sorted(sizes, key=lambda s: sum(map(prod, s.values()))):
            if sum(map(prod, shapes.values())) > _MOST:
                continue
            shown = ", ".join(f"{n} {list(s)}" for n, s in shapes.items())
            yield f"at sizes {shown}", at_sizes(feeds, shapes)
        yield from kinds(feeds)

    def look(self, feeds: Mapping[str, Array], kind: str, *, drawn: bool) -> None:
        """Compare once.

        Raises:
            ProofError: the models differ.
        """
        try:
            with np.errstate(all="ignore"):
                want = self.compute(feeds)
        except LoadRunError:
            self.dropped += 1
            return
        if drawn and not all(_finite(v) for v in want.values()):
            self.dropped += 1
            return
        try:
            got = self._run({self.inputs.get(n, n): v for n, v in feeds.items()})
        except LoadRunError as e:
            if isinstance(e.__cause__, ZeroDivisionError):
                # Whole numbers, for which MegEngine's process would end.
                self.dropped += 1
                return
            raise ProofError(
                f"{self.what} does not run where the model does ({kind}): {e}; {_WAY_OUT}"
            ) from e
        self.compared += 1
        for name, a in want.items():
            b = got.get(self.outputs.get(name, name))
            if b is None:
                continue
            error = _error(a, b)
            exact = kind == _TIES and not self._orders
            if not error <= self.limit and not self._is_rounding(feeds, name, a, b, error, exact=exact):
                raise ProofError(
                    f"{self.what} gives other numbers than the model: {_shown(name, a, b)} ({kind}); {_WAY_OUT}"
                )

    def _is_finite_inside(self, feeds: Mapping[str, Array]) -> bool:
        for graph, names in ((self.source.graph, {}), (self.target.graph, self.inputs)):
            inner = [v for o in graph.needed() for v in o.outputs if v.dtype is not None and v.dtype.is_float]
            known = {v.name for v in graph.inputs}
            arrays = {names.get(n, n): v for n, v in feeds.items() if names.get(n, n) in known}
            try:
                with np.errstate(all="ignore"):
                    if not all(map(_finite, ReferenceEngine(graph, inner).run(arrays))):
                        return False
            except LoadRunError:
                continue
        return True

    def _is_rounding(
        self, feeds: Mapping[str, Array], name: str, a: Array, b: Array, error: float, *, exact: bool
    ) -> bool:
        """Return whether the source is as far from itself in other last digits, or from its values in float64.

        Nor does it say anything where numbers inside it are not finite. Other last digits make ties others, which is no
        excuse where they are exact, as in float64.
        """
        if a.shape != b.shape:
            return False
        if not self._is_finite_inside(feeds):
            return True
        for shaken in (False,) if exact else (True, False):
            try:
                if shaken:
                    c = self.compute({n: _shaken(v) for n, v in feeds.items()}).get(name)
                else:
                    c = of_bundle(self.source, "float64")(feeds).get(name)
            except LoadRunError:
                continue
            if c is not None and c.shape == a.shape and error <= _NOISE * _error(c, a):
                return True
        return False


_WAY_OUT = "this is a fault of loadrun, which others should know of; prove=none (--prove none) writes the file as it is"


def _error(a: Array, b: Array) -> float:
    """Return the error of `b`, of the size of `a`; of 8-bit numbers one is rounding."""
    if a.dtype.kind in "iu" and a.dtype.itemsize == 1 and a.shape == b.shape:
        return float(np.abs(a.astype(np.int64) - b.astype(np.int64)).max(initial=0) > 1)
    return error_between(a, b, by_size=True)


def _finite(value: Array) -> bool:
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def _shaken(x: Array) -> Array:
    """Return real numbers with other last digits; zeros, which may be ties, are none any more."""
    if x.dtype.kind != "f":
        return x
    signs = 1 - 2 * (np.arange(x.size) % 2).reshape(x.shape)
    steps = np.where(x == 0, x.dtype.type(1e-3), np.abs(x)) * (4 * np.finfo(x.dtype).eps * signs)
    return (x + steps).astype(x.dtype)


def kinds(feeds: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield data of other kinds by what they are; positions stay in range.

    >>> [kind for kind, _ in kinds({"x": np.ones(3, "f4")})]
    ['other numbers', 'numbers of 1e-4', 'zeros', 'ties']
    """
    rng = np.random.default_rng(1)
    floats = any(v.dtype.kind == "f" for v in feeds.values())
    yield "other numbers", {n: _redrawn(v, rng) for n, v in feeds.items()}
    if floats:
        yield (
            "numbers of 1e-4",
            {n: v * v.dtype.type(1e-4) if v.dtype.kind == "f" else v for n, v in feeds.items()},
        )
    yield "zeros", {n: np.zeros_like(v) for n, v in feeds.items()}
    if floats:
        yield _TIES, {n: _halves(v) if v.dtype.kind == "f" else v for n, v in feeds.items()}
    if any(v.dtype.kind in "iu" and v.dtype.itemsize <= 2 for v in feeds.values()):
        yield "the ends of integers", {n: _ends(v) for n, v in feeds.items()}


def _redrawn(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype.kind == "f":
        with np.errstate(all="ignore"):
            size = float(np.abs(value).mean()) if value.size else 1.0
        scale = size if 0 < size < np.inf else 1.0
        drawn: Array = np.asarray(rng.normal(size=value.shape) * scale)
        return drawn.astype(value.dtype)
    return value.reshape(-1)[rng.permutation(value.size)].reshape(value.shape)


def _halves(value: Array) -> Array:
    """Return multiples of one half: 0.5, -0.5, 1, -1, up to 8 and back."""
    k = np.arange(value.size) % 32
    return ((k // 2 + 1) / 2 * (1 - 2 * (k % 2))).reshape(value.shape).astype(value.dtype)


def _ends(value: Array) -> Array:
    if value.dtype.kind not in "iu" or value.dtype.itemsize > 2:
        return value
    limits = np.iinfo(value.dtype)
    return np.where(np.arange(value.size).reshape(value.shape) % 2, limits.max, limits.min).astype(
        value.dtype
    )


def _shown(name: str, a: Array, b: Array) -> str:
    """Say where an output differs most."""
    if a.shape != b.shape:
        return f"output {name!r} has shape {list(b.shape)}, in the model {list(a.shape)}"
    with np.errstate(all="ignore"):
        far = np.nan_to_num(np.abs(a.astype(np.float64) - b.astype(np.float64)), nan=np.inf)
    at = np.unravel_index(int(far.argmax()), far.shape)
    place = ", ".join(str(int(i)) for i in at)
    return f"output {name!r} is {b[at]} at [{place}], in the model {a[at]}"
