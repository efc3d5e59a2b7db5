"""A model that was translated, beside what it was made from: both run on data of several kinds, and must agree."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .base.errors import EngineError, LoadRunError, UnsupportedError
from .base.proving import LARGE, Watch, is_alone, level, spending, time_left
from .base.registry import late
from .compare.judging import NARROW
from .compare.tolerances import difference, error_of, farthest, is_finite, largest, limit_of
from .engines.others import Asked, Computing, Other
from .engines.reference import ReferenceEngine
from .graph import Opr
from .graph.composite import Composite
from .graph.dtypes import Array, dtype_of
from .graph.excerpts import with_reals
from .inputs.feeds import random_inputs
from .inputs.kinds import OTHERS, TIES, at_sizes, kinds, shaken
from .ops.catalog import select
from .ops.infer import infer_dtypes
from .ops.registry import Shape, implementation
from .passes.narrowing import narrow_array
from .runner import Runner
from .testcase import Bundle

with late(__name__):
    from .base import logger

_QUANTA = 0.15  # A few quanta of 8 bits, of numbers near 1.
_EPS = 2.0**-23
_INSIDE = 32 * 8 * _EPS  # The rounding of sums of ties, which go up to 8.
_NOISE = 16  # As many times the error of rounding is rounding, too: another order of sums has another one.
_MOST = 1 << 20  # Elements of inputs at other sizes, above which nothing is drawn.
_SIZES = "at sizes"
_ORDERING = select(lambda op: op.family in ("select", "image.nms"))


class ProofError(UnsupportedError):
    """What was written gives other numbers than its source; the text says which."""


class Found(NamedTuple):
    """The error of an output in a runtime, by the output's size, and what data show it."""

    runtime: str
    output: str
    data: str
    error: float


@dataclass(frozen=True)
class Proof:
    """What was found.

    Attributes:
        compared: how many sets of data both models ran on.
        dropped: how many of those that were drawn the source refused, or was not finite on.
        left: what was not compared, and why; the same for the same model, so that files are, too.
        found: what was compared, and the errors.
    """

    compared: int = 0
    dropped: int = 0
    left: tuple[str, ...] = ()
    found: tuple[Found, ...] = ()


NOTHING = Proof(left=("it was written without a proof (prove=none)",))


def of_bundle(bundle: Bundle, engine: str = "reference") -> Computing:
    """Return what computes a bundle's outputs, at whatever sizes its graph takes."""
    runner = Runner(replace(bundle, source=replace(bundle.source, refuses=None)), engine)

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        result = runner.run(feeds)
        if result.message is not None:
            raise EngineError(result.message)
        return {o.name: np.atleast_1d(o.value) for o in result.outputs if isinstance(o.value, np.ndarray)}

    return compute


def proved(
    source: Bundle,
    written: Bundle | None,
    cases: Iterable[Mapping[str, Array]],
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    sizes: Sequence[Mapping[str, Shape]] = (),
    what: str = "the written graph",
    compute: Computing | None = None,
    others: Sequence[Other] = (),
    drawn: bool = True,
    runs: int = 2,
    rough: bool = False,
    may_refuse: bool = False,
) -> Proof:
    """Compare a model that was written with its source.

    Args:
        source: the model.
        written: what was written, as it is read back; None if only `others` run it.
        cases: inputs of testcases, which come first.
        inputs, outputs: other names that these have in what was written.
        sizes: shapes of inputs by name, for models that run at several.
        what: what was written, for the error.
        compute: computes the source, by default on the reference engine.
        others: other runtimes of either, which are asked as far as `level` allows.
        drawn: whether data of other kinds follow, as far as `level` says; else the cases are all.
        runs: how often writing runs what is written on each case: quick takes as long.
        may_refuse: whether what was written may refuse other sizes that the model takes.
        rough: whether operators of quantized numbers were fused, which are then rounded less often.

    Raises:
        ProofError: they differ beyond rounding.
    """
    if level() == "none" and drawn and not any(o.required for o in others):
        return NOTHING
    if source.holds_objects:
        return Proof(left=("text, sequences and maps are not compared",))
    names = (inputs or {}, outputs or {})
    try:
        compute = compute or of_bundle(source)
    except LoadRunError as e:
        return Proof(left=(f"the model does not run here: {' '.join(str(e).split())}",))
    with spending():
        gate = _Gate(source, written, names, what, compute, () if is_alone() else others)
        gate.runs, gate.may_refuse = runs, may_refuse
        if rough:
            gate.allow_quanta()
        return gate.run(cases, sizes, drawn=drawn and level() != "none")


def _random_outputs(bundle: Bundle) -> set[str]:
    """List the outputs that differ from run to run."""

    def draws(opr: Opr) -> bool:
        p = opr.params[0] if opr.params else None
        return p.definition.random if isinstance(p, Composite) else implementation(opr.type).random

    if not any(map(draws, bundle.graph.oprs)):
        return set()
    return {n for n, v in bundle.outputs.items() if any(map(draws, bundle.graph.needed([v])))}


class _Gate:
    def __init__(
        self,
        source: Bundle,
        written: Bundle | None,
        names: tuple[Mapping[str, str], Mapping[str, str]],
        what: str,
        compute: Computing,
        others: Sequence[Other],
    ) -> None:
        self.source, self.written, self.what, self.compute = source, written, what, compute
        self.inputs, self.outputs = names
        self._run: Computing | None = None
        self._narrow: dict[str | None, np.dtype[Any]] = {}
        if written is not None:
            # What keeps it from being compiled is an answer to the first data.
            compiled = cache(partial(of_bundle, replace(written, source=replace(written.source, sized=None))))
            self._run = lambda feeds: compiled()(feeds)
            self._narrow = {v.name: v.owner.tensors[0].dtype.np for v in written.inputs}
        self.graphs = [b.graph for b in (source, written) if b is not None]
        oprs = [o for g in self.graphs for o in g.oprs]
        # Which of equal elements comes first is anyone's.
        self._orders = any(o.type in _ORDERING for o in oprs)
        dtypes = {v.dtype.name for o in oprs for v in o.outputs if v.dtype is not None}
        kinds_of_source = (v.dtype for v in source.graph.vars() if v.dtype is not None)
        self._quantized = {d.name for d in kinds_of_source if d.is_quantized}
        self.limit = limit_of(dtypes)
        self.eps = max((NARROW[d] for d in dtypes if d in NARROW), default=_EPS)
        self.noise = _NOISE
        self.random = _random_outputs(source)
        self.asked = [Asked(o) for o in others]
        self.compared = self.dropped = self.runs = 0
        self.seconds, self.may_refuse = 0.0, False
        self.left = ["it draws random numbers"] if self.random else []
        self.late, self.found = list[str](), list[Found]()

    def allow_quanta(self) -> None:
        """Take it for rounding that quantized numbers inside are some quanta off."""
        if self._quantized:
            self.limit, self.noise = _QUANTA, 4
            self.eps = 2.0**-4 if any("4" in d for d in self._quantized) else 2.0**-8

    def _time(self) -> float:
        return time_left(self.runs * self.seconds)

    def run(
        self, cases: Iterable[Mapping[str, Array]], sizes: Sequence[Mapping[str, Shape]], *, drawn: bool
    ) -> Proof:
        first: dict[str, Array] | None = None
        for i, feeds in enumerate(cases):
            if first is not None and self._time() < 0:
                self.late.append(f"testcases from number {i} on")
                break
            if first is None:
                first = dict(feeds)
                for one in self.asked:
                    one.ask(feeds)
            self.look(feeds, f"testcase {i}", drawn=False, asked=i == 0)
        elements, took = 0, 0.0
        for kind, feeds in self._drawn(first, sizes) if drawn else ():
            now = sum(v.size for v in feeds.values())
            # What is computed may grow as the square.
            next_one = took * (now / elements) ** 2 if elements else 0.0
            if next_one > self._time():
                self.late.append(kind)
                continue
            watch = Watch()
            self.look(feeds, kind, drawn=True)
            elements, took = now, watch.seconds
        if self.late:
            logger.get_logger(__name__).debug(
                "not compared for the time, which --prove full takes: %s", ", ".join(self.late)
            )
        elif not self.compared and not self.left:
            self.left.append("the model refuses all data that were drawn, or is not finite on them")
        return Proof(self.compared, self.dropped, tuple(self.left), tuple(self.found))

    def _drawn(
        self, case: dict[str, Array] | None, sizes: Sequence[Mapping[str, Shape]]
    ) -> Iterator[tuple[str, dict[str, Array]]]:
        try:
            feeds = random_inputs(self.source) if case is None else case
        except LoadRunError:
            return
        if level() != "full" and self.source.graph.stored_bytes > LARGE:
            self.left.append("data of other kinds, of a large model (--prove full)")
            yield from islice(kinds(feeds), int(case is None))
            return
        for shapes in sorted(sizes, key=lambda s: sum(map(prod, s.values()))):
            if sum(map(prod, shapes.values())) > _MOST:
                continue
            said = ", ".join(f"{n} {list(s)}" for n, s in shapes.items())
            yield f"{_SIZES} {said}", at_sizes(feeds, shapes)
        # In small numbers one quantum is everything.
        yield from islice(kinds(feeds), 1 if self.limit == _QUANTA else None)

    def look(self, feeds: Mapping[str, Array], kind: str, *, drawn: bool, asked: bool = False) -> None:
        """Compare once.

        Args:
            asked: whether the other runtimes have these data already.

        Raises:
            ProofError: the models differ.
        """
        try:
            with np.errstate(all="ignore"):
                want = self.compute(feeds)
        except LoadRunError as e:
            want = {}
            if kind.startswith(_SIZES) and self._runs(feeds):
                raise refusal(f"{self.what} runs where the model does not ({kind}): {e}") from e
        if not want or (drawn and not all(is_finite(v) for v in want.values())):
            self.dropped += 1
            if asked:
                self.asked = [Asked(one.other) for one in self.asked]
            return
        if self._run is not None:
            watch = Watch()
            try:
                got = self._run(self._fed(feeds))
            except UnsupportedError as e:
                self.left.append(f"{self.what} does not run here: {' '.join(str(e).split())}")
                self._run = None
                return
            except LoadRunError as e:
                # Whole numbers, for which MegEngine's process would end, or sizes that the file itself refuses.
                if isinstance(e.__cause__, ZeroDivisionError) or (
                    self.may_refuse and kind.startswith(_SIZES)
                ):
                    self.dropped += 1
                    return
                raise refusal(f"{self.what} does not run where the model does ({kind}): {e}") from e
            self.seconds += watch.seconds
            named = {n: got[new] for n in want if (new := self.outputs.get(n, n)) in got}
            self._compare(feeds, kind, want, named, f"{self.what} gives other numbers than the model")
        self.compared += 1
        for one in [*self.asked]:
            self._hear(one, feeds, kind, want, drawn=drawn, asked=asked)

    def _runs(self, feeds: Mapping[str, Array]) -> bool:
        """Return whether the written model runs on data."""
        with suppress(LoadRunError):
            return self._run is not None and bool(self._run(self._fed(feeds)))
        return False

    def _fed(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the written model is fed: 64 bits as 32 where it has those."""
        named = {self.inputs.get(n, n): v for n, v in feeds.items()}
        return {
            n: v if self._narrow[n] == v.dtype else narrow_array(v, dtype_of(v))
            for n, v in named.items()
            # What nothing is computed from is left out.
            if n in self._narrow
        }

    def _hear(
        self,
        one: Asked,
        feeds: Mapping[str, Array],
        kind: str,
        want: Mapping[str, Array],
        *,
        drawn: bool,
        asked: bool,
    ) -> None:
        """Compare with what another runtime computes; one that takes too long, or does not run, is let go."""
        other = one.other
        try:
            if not asked:
                one.ask(feeds)
            left = self._time()
            got = one.answer(None if other.required or left == np.inf else max(left, 0.0))
        except TimeoutError:
            self.asked.remove(one)
            self.late.append(f"{other.of} in {other.name}")
            return
        except LoadRunError as e:
            if other.required:
                raise
            if other.told:
                self.asked.remove(one)
                self._tell(f"{other.of} in {other.name}: {' '.join(str(e).split())}", drawn)
            return
        said = f"{other.name} gives other numbers of {other.of}"
        other_infinities = any(is_finite(want[n]) != is_finite(v) for n, v in got.items() if n in want)
        try:
            if other_infinities:
                raise ProofError(f"{said}: other ones are not finite ({kind})")
            self._compare(feeds, kind, want, got, said, other.name)
        except ProofError as e:
            # Runtimes have their own digits of small numbers, and their own edge cases.
            usual = other.told or not drawn or kind.startswith((OTHERS, _SIZES))
            if other.required or (usual and not other_infinities):
                raise
            self.asked.remove(one)
            self._tell(str(e).removesuffix(f"; {_WAY_OUT}"), drawn)

    def _tell(self, said: str, drawn: bool) -> None:
        # Quick asks of drawn data only while there is time, which files must not depend on.
        (logger.get_logger(__name__).debug if drawn and level() != "full" else self.left.append)(said)

    def _compare(
        self,
        feeds: Mapping[str, Array],
        kind: str,
        want: Mapping[str, Array],
        got: Mapping[str, Array],
        said: str,
        runtime: str = "loadrun",
    ) -> None:
        for name, a in want.items():
            b = got.get(name)
            if b is None:
                continue
            random = name in self.random and a.shape == b.shape
            error = 0.0 if random else error_of(a, b)
            exact = kind == TIES and not self._orders and self.eps == _EPS
            if not error <= self.limit and not self._is_rounding(feeds, name, a, b, exact=exact):
                raise refusal(f"{said}: {difference(name, a, b)} ({kind})")
            if not random:
                self.found.append(Found(runtime, name, kind, error))

    def _is_finite_inside(self, feeds: Mapping[str, Array]) -> bool:
        graph = self.source.graph
        needed = graph.needed([*Bundle(graph).outputs.values()])
        infer_dtypes(needed)
        typed = ((v, v.dtype) for o in needed for v in o.outputs)
        inner = [v for v, d in typed if d is not None and (d.is_float or d.is_wide)]
        engine = ReferenceEngine(graph, inner)
        # Integers are as wide as in the file that is written.
        kinds = {n: v.owner.tensors[0].dtype.np for n, v in engine.inputs.items() if n in feeds}
        fed = {n: v.astype(kinds[n]) if v.dtype.kind in "iu" else v for n, v in feeds.items() if n in kinds}
        try:
            with np.errstate(all="ignore"):
                return all(map(self._is_held, engine.run(fed)))
        except LoadRunError:
            return True

    def _is_held(self, value: Array) -> bool:
        """Return whether numbers are finite, and integers of 64 bits fit where 32 are written for them."""
        if value.dtype.kind in "iu" and value.dtype.itemsize > 2 and not self.graphs[-1].exact:
            return not value.size or bool(value.max() < 2**31 and value.min() >= -(2**31))
        return is_finite(value)

    def _is_rounding(self, feeds: Mapping[str, Array], name: str, a: Array, b: Array, *, exact: bool) -> bool:
        """Return whether the source is as far from itself in other last digits or in float64.

        So may what was written be with other last digits in its stored numbers. Nor does a difference say anything
        where numbers inside the source are not finite. Other last digits make ties others,
        which is no excuse where they are exact, as in float64.
        """
        if a.shape != b.shape:
            return False
        if exact and farthest(a, b) <= _INSIDE:
            return True
        if not self._is_finite_inside(feeds):
            return True
        for c, d in self._noises(feeds, name, exact=exact):
            if c is None or d is None or not c.shape == d.shape == a.shape:
                continue
            # Beside zeros every number is infinitely large; what they were computed from says what is small.
            measure, least = (error_of, 0.0) if a.any() else (farthest, self.eps * largest(feeds))
            if measure(a, b) <= self.noise * max(measure(c, d), least):
                return True
        return False

    def _noises(
        self, feeds: Mapping[str, Array], name: str, *, exact: bool
    ) -> Iterator[tuple[Array | None, Array | None]]:
        """Yield what a model gives for an output, and what it gives in other last digits."""
        moved = {n: shaken(v, self.eps) for n, v in feeds.items()}
        others: list[Computing] = [] if exact else [lambda _: self.compute(moved)]
        others.append(lambda fed: of_bundle(self.source, "float64")(fed))
        models: list[tuple[str, Computing, dict[str, Array], list[Computing]]] = [
            (name, self.compute, dict(feeds), others)
        ]
        if self._run is not None and self._quantized and not exact:
            # Steps of quantization hide other digits of the inputs, not those of scales, in both directions.
            scaled: list[Computing] = [partial(self._shaken, sign) for sign in (1, -1)]
            models.append((self.outputs.get(name, name), self._run, self._fed(feeds), scaled))
        for output, model, fed, variants in models:
            with suppress(LoadRunError):
                same = model(fed).get(output)
                for variant in variants:
                    with suppress(LoadRunError):
                        yield same, variant(fed).get(output)

    def _shaken(self, sign: int, fed: Mapping[str, Array]) -> Mapping[str, Array]:
        """Compute what was written with other last digits of its stored numbers."""
        assert self.written is not None
        outputs = self.written.outputs
        graph = with_reals(
            self.written.graph,
            outputs.values(),
            lambda v: np.where(v == 0, v, v + sign * (shaken(v, self.eps) - v)),
        )
        engine = ReferenceEngine(graph, graph.outputs)
        values = engine.run({n: v for n, v in fed.items() if n in engine.inputs})
        return dict(zip(outputs, map(np.atleast_1d, values), strict=True))


_WAY_OUT = "this is a fault of loadrun, which others should know of; prove=none (--prove none) writes the file as it is"


def refusal(said: str) -> ProofError:
    """Return the error for a fault, with the way out."""
    return ProofError(f"{said}; {_WAY_OUT}")
