"""Mutants of a model and its testcases: does a check catch what must not pass?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.errors import LoadRunError
from ..base.failures import Failure, failure
from ..base.files import files_of
from ..compare.codes import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS
from ..compare.results import Result, Verdict
from ..dump import load_all
from ..engines import Choice
from ..graph import Graph, Opr, StoredTensor
from ..graph.dtypes import Array, DType, encode
from ..inputs.feeds import ModelOptions
from ..passes.checks import Origins
from ..passes.copies import subgraph
from ..runner import Runner
from ..testcase import EXPECT, Bundle, Testcase

__all__ = ["Audit", "AuditOptions", "Score", "audit", "audit_files"]

_FEW = 2
"""Testcases that a mutant is tried on."""


@dataclass
class Score:
    """How an output's check did.

    Attributes:
        output: name of the output.
        caught: mutants that changed the output and failed, by what was done.
        passed: those that changed the output by more than rounding does and passed all the same.
        reason: why the check compared nothing in the first place.
    """

    output: str
    caught: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    reason: str | None = None

    @property
    def mutants(self) -> int:
        """How many mutants changed the output."""
        return sum(self.caught.values()) + sum(self.passed.values())

    @property
    def value(self) -> float | None:
        """The share of them that was caught, None where none changed the output."""
        return sum(self.caught.values()) / self.mutants if self.mutants else None


def audit(
    bundle: Bundle, *, mutants: int = 20, seed: int = 0, engine: str | Choice = "reference"
) -> list[Score]:
    """Try mutants of a file on its own checks.

    Weights are negated, set to zero and permuted, one stored tensor at a time; some numbers of inputs are moved by one;
    inputs of two testcases of equal shapes change places, so that each meets the other's expected values. A mutant
    counts for an output whose value it changes in more than the last bits.

    Args:
        bundle: a file with checks and testcases.
        mutants: at most that many of each kind; which weights, is drawn.
        seed: seed of the draw and of random operators.
        engine: name of the engine.

    Returns:
        a score for every check.

    >>> import loadrun
    >>> [(s.output, s.value) for s in audit(loadrun.load("fixtures/nets/mlp.mge"), mutants=3)]
    [('out', 1.0)]
    """
    scores = {c.name: Score(c.name) for c in bundle.checks}
    cases = [bundle.testcases[i] for i in range(min(_FEW, len(bundle.testcases)))]
    if not scores or not cases:
        return list(scores.values())
    # A mutant is one graph: where a model has one for each set of sizes, it is run at those of the first testcase.
    bundle = bundle.for_data(cases[0].arrays)
    cases = [case for case in cases if bundle.for_data(case.arrays) is bundle]
    # The file itself, which some engines run, is no graph.
    bundle = replace(bundle, source=None, sized=None)
    runner = Runner(bundle, engine, seed=seed)
    truth = [runner.check(case) for case in cases]
    for result in truth:
        for out in result.outputs:
            if out.verdict is not Verdict.PASS and out.name in scores:
                scores[out.name].reason = out.reason or out.verdict.value
    for what, graph in _models(bundle.graph, mutants, seed):
        other = Runner(_with(bundle, graph), engine, seed=seed)
        _note(scores, what, truth, cases, other.check)
    for what, changed in _inputs(cases, seed):
        _note(scores, what, truth, changed, runner.check)
    return list(scores.values())


@dataclass(frozen=True, kw_only=True)
class AuditOptions(ModelOptions):
    """Say how files are audited; the options of `ModelOptions` are among these.

    Attributes:
        mutants: at most that many of each kind for a file.
        seed: seed of the draw and of random operators.
        engine: what executes the models.
    """

    mutants: int = 20
    seed: int = 0
    engine: str | Choice = "reference"


@dataclass
class Audit:
    """The mutants that the checks of files caught, and those that they missed.

    Attributes:
        scores: pairs of a file and the score of one of its checks.
        failures: pairs of a file and why it could not be read or run.
    """

    scores: list[tuple[str, Score]] = field(default_factory=list)
    failures: list[tuple[str, Failure]] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """Return the exit code of `loadrun audit`: 0 when every check passes and caught one mutant."""
        if self.failures:
            return max(f.code for _, f in self.failures)
        reached = [s for _, s in self.scores if s.mutants]
        if any(not s.caught for s in reached):
            return EXIT_FAIL
        silent = any(s.reason is not None for _, s in self.scores)
        return EXIT_PASS if reached and not silent else EXIT_NOT_COMPARED


def audit_files(files: Iterable[str | os.PathLike[str]], options: AuditOptions | None = None) -> Audit:
    """Try mutants of files on their own checks; see `audit`.

    Args:
        files: names, patterns and folders.
        options: how many mutants.

    Raises:
        InputError: a file does not exist.

    >>> found = audit_files(["fixtures/nets/mlp.mge"], AuditOptions(mutants=3))
    >>> [(path, s.output, s.value) for path, s in found.scores], found.exit_code
    ([('fixtures/nets/mlp.mge', 'out', 1.0)], 0)
    """
    options, found = options or AuditOptions(), Audit()
    for path in files_of([os.fspath(f) for f in files]):
        try:
            for bundle in load_all(path, **options.read):
                how = {"mutants": max(1, options.mutants), "seed": options.seed}
                found.scores += [(path, s) for s in audit(bundle, **how, engine=options.engine)]
        except Exception as e:
            found.failures.append((path, failure(e)))
    return found


def _note(
    scores: Mapping[str, Score],
    what: str,
    truth: list[Result],
    cases: list[Testcase],
    check: Callable[[Testcase], Result],
) -> None:
    """Run a mutant and count it for the outputs that it changes."""
    changed: dict[str, bool] = {}
    for right, case in zip(truth, cases, strict=True):
        try:
            found = check(case)
        except LoadRunError:
            # A mutant that does not run at all is no test of a check.
            continue
        before = {o.name: o for o in right.outputs}
        for out in found.outputs:
            old = before.get(out.name)
            if out.name in scores and old is not None and _differs(old.value, out.value):
                changed[out.name] = changed.get(out.name, False) or out.verdict is Verdict.FAIL
    for name, failed in changed.items():
        counts = scores[name].caught if failed else scores[name].passed
        counts[what] = counts.get(what, 0) + 1


def _differs(old: Array | None, new: Array | None) -> bool:
    """Tell whether a value is another one, by more than rounding."""
    if old is None or new is None or old.shape != new.shape:
        return old is not new
    if old.dtype.kind not in "f":
        return not np.array_equal(old, new)
    with np.errstate(all="ignore"):
        a, b = old.astype(np.float64), new.astype(np.float64)
        near = np.abs(a - b) <= max(1e-5, 8 * np.finfo(old.dtype).eps) * np.maximum(
            np.abs(a), np.abs(b)
        ) + 1e-12 * np.nanmax(np.abs(a), initial=0)
        return bool((~(near | (np.isnan(a) & np.isnan(b)) | (a == b))).any())


def _models(graph: Graph, most: int, seed: int) -> Iterator[tuple[str, Graph]]:
    """Yield copies of a graph with one stored tensor changed."""
    rng = np.random.default_rng(seed)
    places = [(opr, i) for opr in _model(graph) for i, t in enumerate(opr.tensors) if _is_weight(t)]
    for what, change in _CHANGES.items():
        order = rng.permutation(len(places))[:most]
        for k in sorted(order.tolist()):
            opr, i = places[k]
            tensor = opr.tensors[i]
            new = change(tensor.value(), tensor.dtype, rng)
            if new is None:
                continue
            made, known = subgraph(graph, graph.outputs)
            twin = known[opr.outputs[0].id].owner
            twin.tensors[i] = copy(tensor)
            twin.tensors[i].data = encode(new, tensor.dtype)
            yield what, made


def _model(graph: Graph) -> list[Opr]:
    """List the operators with stored tensors that a model is made of, without what only computes errors."""
    origins = Origins(graph)
    used: set[int] = set()
    for opr in graph.oprs:
        if opr.type != "AssertEqual" and not any(id(v) in origins.expected for v in opr.inputs):
            used.update(id(v) for v in opr.inputs)
    return [o for o in graph.oprs if o.type != "Host2DeviceCopy" and any(id(v) in used for v in o.outputs)]


def _is_weight(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor is numbers that a model multiplies with, not a shape or an index."""
    return (
        tensor.data is not None
        and (tensor.dtype.is_float or tensor.dtype.is_quantized)
        and tensor.shape != ()
    )


def _negated(value: Array, dtype: DType, rng: np.random.Generator) -> Array | None:
    wide = value.astype(np.float64)
    new = 2 * float(dtype.zero_point) - wide if dtype.is_asymmetric else -wide
    if value.dtype.kind in "iu":
        new = np.clip(new, np.iinfo(value.dtype).min, np.iinfo(value.dtype).max)
    return new.astype(value.dtype)


def _zeroed(value: Array, dtype: DType, rng: np.random.Generator) -> Array | None:
    return np.full_like(value, dtype.zero_point if dtype.is_asymmetric else 0)


def _permuted(value: Array, dtype: DType, rng: np.random.Generator) -> Array | None:
    return rng.permutation(value.reshape(-1)).reshape(value.shape) if value.size > 1 else None


_CHANGES: dict[str, Callable[[Array, DType, np.random.Generator], Array | None]] = {
    "weights negated": _negated,
    "weights zero": _zeroed,
    "weights permuted": _permuted,
}


def _with(bundle: Bundle, graph: Graph) -> Bundle:
    made = copy(bundle)
    made.graph = graph
    return made


def _inputs(cases: list[Testcase], seed: int) -> Iterator[tuple[str, list[Testcase]]]:
    """Testcases with inputs moved by one, and with those of another testcase."""
    rng = np.random.default_rng(seed)
    for name in cases[0].inputs:
        moved = []
        for case in cases:
            value = case.arrays[name]
            # All of them moved alike is nothing to a softmax or a normalization.
            some = rng.integers(0, 2, value.size).astype(bool)
            some[:1], some[1:2] = True, False
            some = some.reshape(value.shape)
            new = value ^ some if value.dtype.kind == "b" else value + some.astype(value.dtype)
            moved.append(Testcase({**case.arrays, name: new}, case.dtypes))
        yield "inputs moved by one", moved
    if len(cases) == 2:
        first, second = cases
        if {n: a.shape for n, a in first.arrays.items()} == {n: a.shape for n, a in second.arrays.items()}:
            swapped = [
                Testcase(
                    {n: (a if n.endswith(EXPECT) else other.arrays[n]) for n, a in own.arrays.items()},
                    own.dtypes,
                )
                for own, other in ((first, second), (second, first))
            ]
            yield "testcases swapped", swapped
