"""Replaying tasks one after another: a file is opened once and prepared, its results come one after another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.errors import Failure, LoadRunError, UsageError, failure
from ..base.files import contents, nothing_there
from ..base.registry import late
from ..compare.impostors import ImpostorWatch
from ..compare.policy import require_compared
from ..compare.record import header
from ..dump import load_all
from ..dump.record import graph_digest, mismatches, tensor_digest
from ..engines import check_engine, runs_file
from ..graph.dtypes import Array, array_dtype
from ..inputs.feeds import repeated_to
from ..runner import Result, Runner, Verdict, check_errors, random_inputs
from ..testcase import EXPECT, Bundle, LazyTestcases, Testcase, spread
from .reporting import Closed, Event, Opened, Replayed, Task, Warned

with late(__name__):
    import hashlib

    from ..inputs import lists
    from ..passes import inference
    from ..verify import against as side_by_side, bench, cautions, pictures as failure_pictures
    from . import explaining

_KEPT = 16
"""Maximum optimized graphs kept for a model with one graph per set of sizes."""


def prepared(bundle: Bundle, flags: Sequence[str] = (), batch: int | None = None) -> Bundle:
    """Return the bundle with an optimized graph and other batches; the same one when nothing is requested.

    Args:
        bundle: what was read.
        flags: keywords of `optimize_for_inference` in `passes.inference`, and that name itself for none of them.
        batch: items of axis 0 of all that testcases hold, expected values included; where some of these are cut off,
            the rest can fail, but not pass.

    Raises:
        UsageError: two layouts, or an unknown keyword.
        UnsupportedError: an operator of which nothing is known.

    >>> import loadrun
    >>> bundle = prepared(loadrun.load("fixtures/nets/mlp.mge"), batch=5)
    >>> bundle.testcases[0].arrays["data"].shape
    (5, 20)
    """
    if flags:
        bundle = _optimizing(flags)(bundle)
    if batch is not None:
        if batch < 1:
            raise UsageError(f"a batch must have at least one item, found {batch}")
        cases, size = bundle.testcases, batch

        def read(number: int) -> Testcase:
            case = cases[number]
            arrays = {n: repeated_to(a, size) for n, a in case.arrays.items()}
            rows = max((len(a) for n, a in case.arrays.items() if n.endswith(EXPECT) and a.ndim), default=0)
            cut = f"the first {size} of {rows} expected rows were run (--batch-size {size})"
            return replace(case, arrays=arrays, left_out=cut if rows > size else "")

        # A graph for all sizes takes a batch that is asked for, whatever the file declares.
        refuses = None if bundle.at_all_sizes else bundle.source.refuses
        source = replace(bundle.source, refuses=refuses)
        bundle = replace(bundle, testcases=LazyTestcases(read, range(len(cases))), source=source)
    return bundle


def _optimizing(flags: Sequence[str]) -> Callable[[Bundle], Bundle]:
    """Return what optimizes graphs of bundles, for other sizes as well where a model has a graph for each."""
    options = dict.fromkeys((f for f in flags if f != "optimize_for_inference"), True)

    @lru_cache(_KEPT)
    def optimized(bundle: Bundle) -> Bundle:
        bundle = bundle.lowered()
        graph, _ = inference.optimize_for_inference(bundle.graph, **options)

        def sized(arrays: Mapping[str, Array]) -> Bundle:
            return optimized(bundle.for_data(arrays))

        source = replace(bundle.source, guarded=None, sized=sized if bundle.source.sized else None)
        return replace(bundle, graph=graph, source=source)

    return optimized


_PICTURES = 20
"""Maximum failing outputs of a file that are plotted."""

_FAILING = (Verdict.FAIL, Verdict.ERROR)


class Replayer:
    """Replays tasks one after another.

    >>> from loadrun.replay.reporting import Task
    >>> events = list(Replayer().events(Task("fixtures/nets/mlp.mge")))
    >>> [type(e).__name__ for e in events]
    ['Opened', 'Replayed', 'Replayed', 'Replayed', 'Closed']
    >>> [e.result.verdict.value for e in events[1:-1]]
    ['pass', 'pass', 'pass']
    """

    def __init__(self) -> None:
        self._like: tuple[Bundle, Runner] | None = None
        self._drawn = 0

    def events(self, task: Task) -> Iterator[Event]:
        """Yield events; the last event of every dump is `Closed`."""
        self._drawn = 0
        start = time.perf_counter()
        try:
            bundles = self._open(task)
        except Exception as e:
            error = failure(e)
            yield Opened(task.path)
            yield Closed(replace(error, message=nothing_there(task.path) or error.message))
            return
        seconds = time.perf_counter() - start
        for i, (read, bundle) in enumerate(bundles):
            unopened = Opened(task.path if i == 0 else f"{task.path} (dump {i + 1})", i, load_seconds=seconds)
            if "damage" in task.strict and bundle.defects:
                yield unopened
                yield Closed(Failure("; ".join(bundle.defects)))
                continue
            is_open = False
            try:
                for event in self._dump(task, read, bundle, unopened):
                    is_open = True
                    yield event
            except Exception as e:
                if not is_open:
                    yield unopened
                yield Closed(failure(e, named=True))

    def _open(self, task: Task) -> list[tuple[Bundle, Bundle]]:
        """Return the dumps of a file, each as it was read, and prepared."""
        native = any(runs_file(e) for e in task.engines)
        like = self._like[0] if self._like is not None else None
        bundles = load_all(task.path, native=native, like=like, **task.read)
        if like is not None and bundles[0].graph is not like.graph:
            self._like = None
        # If the input data determine the graph, it is not known yet.
        later = task.input_data is not None
        return [
            (b, b if b.source.sized and later else prepared(b, task.optimize, task.batch_size))
            for b in bundles
        ]

    def _dump(self, task: Task, read: Bundle, bundle: Bundle, unopened: Opened) -> Iterator[Event]:
        total = len(bundle.testcases)
        _require_testcases(task, total)
        bundle = _for_sizes(bundle, task)
        many = total if task.input_data is None else lists.count_cases(task.input_data)
        yield replace(
            unopened,
            total=many or 1,
            warnings=tuple(_warnings(bundle, task)),
            damage=tuple(bundle.defects),
            missed=tuple(bundle.facts.missed),
            packed=tuple(_packing(read)),
            facts=_facts(bundle, task) if task.facts else {},
        )
        yield from _altered(read, testcases=task.input_data is None)
        runner, beside = self._runners(bundle, task)
        watch = ImpostorWatch({}, runner.policies, check_errors(bundle))
        said: list[str] = []
        failing: tuple[Result, dict[str, Array]] | None = None
        first: dict[str, Array] = {}
        for results, feeds in _results(runner, beside, task, said):
            yield from (Warned(text) for text in said)
            said.clear()
            watch.results(results[0])
            if failing is None:
                failing = next(((r, feeds) for r in results if r.verdict in _FAILING), None)
            if task.iter and not first:
                first = feeds
            digests = _digests(feeds) if task.facts else {}
            for result in results:
                yield self._replayed(result, feeds, digests, task)
        yield from (Warned(text) for text in said)
        yield from (Warned(text, weak=True) for text in watch.warnings())
        if failing is not None:
            yield from _about_failure(bundle, *failing, task)
        yield _timed(runner, beside, task, first) if task.iter else Closed()

    def _runners(self, bundle: Bundle, task: Task) -> tuple[Runner, side_by_side.EngineComparison | None]:
        """Return what runs a dump, and what compares engines where there are several."""
        unread = bundle.source.file if bundle.source.refusal is not None else None
        outputs = list(bundle.outputs if unread is None else unread.outputs)
        compared = _compared(bundle) if task.input_data is None and len(bundle.testcases) else []
        # With several engines, outputs without a check are compared with the first engine's.
        several = len(task.engines) > 1
        require_compared(task.policies, outputs, outputs if several else compared)
        runner = Runner(bundle, task.engines[0], seed=task.seed, policies=task.policies)
        if self._like is not None:
            # Files often have the same model with other testcases.
            runner.take_engines(self._like[1])
        elif bundle.facts.model is not None:
            self._like = bundle, runner
        if not several:
            return runner, None
        engines = [check_engine(e) for e in task.engines]
        return runner, side_by_side.EngineComparison(bundle, engines, seed=task.seed, policies=task.policies)

    def _replayed(
        self, result: Result, feeds: dict[str, Array], digests: Mapping[str, str], task: Task
    ) -> Replayed:
        shapes = {n: a.shape for n, a in feeds.items() if not n.endswith(EXPECT)}
        pictures: dict[str, failure_pictures.Picture] = {}
        if task.pictures:
            for out in result.outputs:
                failing = out.verdict is Verdict.FAIL and self._drawn < _PICTURES
                if failing and out.expect is not None and out.value is not None:
                    pictures[out.name] = failure_pictures.picture(out.expect, out.value)
                    self._drawn += 1
        if not task.values:
            result = replace(
                result, outputs=tuple(replace(o, value=None, expect=None) for o in result.outputs)
            )
        return Replayed(result, shapes, digests, pictures, feeds if task.feeds else None)


def _results(
    runner: Runner, beside: side_by_side.EngineComparison | None, task: Task, said: list[str]
) -> Iterator[tuple[tuple[Result, ...], dict[str, Array]]]:
    """Yield the results of the testcases, of the data passed, or of random data, with what was fed.

    There is one of each engine.
    """
    bundle = runner.bundle
    if task.input_data is not None:
        many = lists.count_cases(task.input_data) > 1
        for i, feeds in enumerate(task.cases(bundle, said.append)):
            index = i if many else None
            if beside is not None:
                yield beside.run(feeds, index), feeds
            else:
                yield (replace(runner.run(feeds), index=index),), feeds
    elif not len(bundle.testcases):
        feeds = random_inputs(bundle, task.seed)
        yield (runner.run(feeds),) if beside is None else beside.run(feeds, None), feeds
    else:
        for i in range(len(bundle.testcases)):
            if task.testcases is not None and i not in task.testcases:
                continue
            arrays: dict[str, Array] = {}
            try:
                case = bundle.testcases[i]
                arrays = _arrays(case, bundle)
                results = (runner.check(case, i),) if beside is None else beside.check(case, i)
            except UsageError:
                # An engine that is not installed is not the testcase's fault.
                raise
            except LoadRunError as e:
                results = (Result(i, (), Verdict.ERROR, message=str(e)),)
            yield results, arrays


def _about_failure(bundle: Bundle, result: Result, feeds: dict[str, Array], task: Task) -> Iterator[Event]:
    """Say what makes results differ without any fault, and explain the failure where that is asked for."""
    yield from (Warned(text) for text in cautions.cautions(bundle.graph.needed(bundle.outputs.values())))
    if task.explain:
        yield explaining.explained(bundle, result, feeds, engine=task.engines[0], seed=task.seed)


def _for_sizes(bundle: Bundle, task: Task) -> Bundle:
    """Return the bundle for the sizes of the first data passed."""
    if bundle.source.sized is None or task.input_data is None:
        return bundle
    first = next(task.cases(bundle, lambda _: None), None)
    return prepared(bundle if first is None else bundle.for_data(first), task.optimize, task.batch_size)


def _require_testcases(task: Task, total: int) -> None:
    absent = [i for i in task.testcases or () if i >= total]
    if absent:
        raise UsageError(f"there is no testcase {absent[0]}; the file has {total}, counted from 0")


def _compared(bundle: Bundle) -> list[str]:
    """Return the outputs of which the first testcase has an expected value, the values of sequences among them."""
    checked = [c.name for c in bundle.checks if bundle.source.refusal is None]
    values = bundle.testcases[0].file_values
    if not values:
        return checked
    return [*checked, *(n.removesuffix(EXPECT) for n in (*values, *spread(values)) if n.endswith(EXPECT))]


def _arrays(case: Testcase, bundle: Bundle) -> dict[str, Array]:
    """Return what a testcase feeds; without a graph, what its file has but for text and sequences."""
    if bundle.source.refusal is None or case.file_values is None:
        return case.arrays
    return {n: v for n, v in case.file_values.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"}


def _timed(
    runner: Runner, beside: side_by_side.EngineComparison | None, task: Task, first: dict[str, Array]
) -> Closed:
    """Time further runs: of the testcases, or of the first data that the model ran on."""
    cases = runner.bundle.testcases
    chosen = range(len(cases)) if task.testcases is None else task.testcases
    timed: dict[int | None, Testcase] = {i: cases[i] for i in chosen if task.input_data is None}
    timed = timed or {None: Testcase(first)}
    if beside is not None:
        return Closed(turns=beside.time(next(iter(timed.values())), task.iter, 1))
    return Closed(timings=tuple(_timing(runner, i, c, task) for i, c in timed.items()))


def _timing(runner: Runner, number: int | None, case: Testcase, task: Task) -> bench.Timing:
    feeds = runner.inputs_of(case)
    return replace(bench.measure(lambda: runner.run(feeds), task.iter, 1), testcase=number)


def _warnings(bundle: Bundle, task: Task) -> list[str]:
    warnings = [*bundle.warnings, *bundle.defects]
    if bundle.facts.is_container and not len(bundle.testcases):
        warnings.append("the file is of the testcase format, but has no testcases")
    unchecked = (
        not bundle.checks and bundle.outputs and bundle.source.refusal is None and not bundle.holds_objects
    )
    if len(bundle.testcases) and unchecked:
        warnings.append("the testcases have no expected outputs (packed with --no-assert)")
    if not len(bundle.testcases) and task.input_data is None:
        warnings.append(f"there are no testcases, so the model ran once on random data (seed {task.seed})")
        if bundle.source.taken is not None:
            warnings.append(bundle.source.taken)
    return warnings


def _packing(bundle: Bundle) -> list[str]:
    """Return who packed a file."""
    if not isinstance(bundle.record, memoryview):
        return []

    known = header(bundle.record).get("provenance") or {}
    by = ", ".join(f"{k} {known[k]}" for k in ("time", "loadrun", "engine", "seed") if k in known)
    return [f"all digests agree ({by})" if by else "all digests agree"]


def _altered(bundle: Bundle, testcases: bool) -> Iterator[Warned]:
    """Yield what differs from the digests that a file carries."""
    # An ONNX model may have the testcases and the record of a dump.
    if isinstance(bundle.record, memoryview) and bundle.facts.model is not None:
        for text in mismatches(bundle, testcases=testcases):
            yield Warned(text, altered=True)


def _facts(bundle: Bundle, task: Task) -> dict[str, Any]:
    """Digest and inputs of a model, who packed it, and how many bytes it takes."""
    inputs = [
        {"name": v.name, "dtype": v.owner.tensors[0].dtype.spelling, "shape": v.owner.tensors[0].shape}
        for v in bundle.inputs
    ]
    facts: dict[str, Any] = {"model_digest": _model_digest(bundle), "inputs": inputs}
    facts["bytes"] = bundle.facts.size or os.path.getsize(task.path)
    if isinstance(bundle.record, memoryview):
        facts["provenance"] = header(bundle.record).get("provenance")
    return facts


def _model_digest(bundle: Bundle) -> str:
    """Return the digest of the graph, or of the file where no graph could be made of it."""
    if bundle.source.refusal is None:
        return graph_digest(bundle.graph)

    return hashlib.blake2b(contents(bundle.path, "a model"), digest_size=16).hexdigest()


def _digests(feeds: dict[str, Array]) -> dict[str, str]:
    """Return digests of everything that was fed, and of that without the expected values."""
    whole, inputs = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for name in sorted(feeds):
        line = f"{name} {tensor_digest(feeds[name], array_dtype(feeds[name]))}\n"
        for digest in (whole,) if name.endswith(EXPECT) else (whole, inputs):
            digest.update(line.encode("utf-8", "surrogateescape"))
    return {"data_digest": whole.hexdigest(), "input_digest": inputs.hexdigest()}


def serial(tasks: Iterable[Task]) -> Generator[tuple[Task, Event], None, None]:
    """Yield the events of tasks, in order."""
    replayer = Replayer()
    for task in tasks:
        for event in replayer.events(task):
            yield task, event
