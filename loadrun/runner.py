"""Replaying a bundle on an engine: one `Result` per testcase, with a verdict for every output."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from .compare import Comparison, assert_equal_error, compare, passes
from .dtypes import Array, DType, dtype_of
from .dump import load
from .engines import Engine, make_engine
from .errors import InputError, LoadRunError, UsageError
from .graph import Graph, Var
from .params import Elemwise, ElemwiseMode, Reduce, ReduceMode
from .testcase import EXPECT, Bundle, Check, Testcase

__all__ = ["FileResult", "OutputResult", "Result", "Runner", "Verdict", "fit_inputs", "random_inputs", "run"]


class Verdict(str, Enum):
    """What a replay says about an output, a testcase or a file; ordered from best to worst by `worst`."""

    PASS = "pass"
    NOT_COMPARED = "not compared"
    FAIL = "fail"
    ERROR = "error"

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """The verdict of a whole: error over fail over pass; not compared only when nothing was compared.

        >>> Verdict.worst([Verdict.PASS, Verdict.NOT_COMPARED]).value
        'pass'
        >>> Verdict.worst([]).value
        'not compared'
        """
        found = set(verdicts)
        for v in (Verdict.ERROR, Verdict.FAIL, Verdict.PASS):
            if v in found:
                return v
        return Verdict.NOT_COMPARED


@dataclass(frozen=True)
class OutputResult:
    """One output of one run.

    Attributes:
        name: output name; for a checked output the one that its expected value carries.
        shape: shape of the value that was computed.
        dtype: its data type.
        verdict: pass or fail for checked outputs, else not compared.
        maxerr: the check's tolerance, None without a check.
        error: MegEngine's error measure, None without a check.
        comparison: all other metrics of expected against computed value.
        value: the computed value (in storage dtype).
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    verdict: Verdict
    maxerr: float | None = None
    error: float | None = None
    comparison: Comparison | None = None
    value: Array | None = None

    @property
    def real(self) -> Array | None:
        """The value in numbers: dequantized for quantized types."""
        if self.value is None or not self.dtype.is_quantized:
            return self.value
        return (self.value.astype(np.float32) - np.float32(self.dtype.zero_point)) * np.float32(
            self.dtype.scale
        )


@dataclass(frozen=True)
class Result:
    """One run: of a testcase, or of a model on given inputs.

    Attributes:
        index: number of the testcase in the file, None for a run on given inputs.
        outputs: one entry per output.
        verdict: the testcase's verdict.
        seconds: wall time of the execution alone, without loading and comparing.
        message: why it could not run, for the verdict error.
    """

    index: int | None
    outputs: tuple[OutputResult, ...]
    verdict: Verdict
    seconds: float = 0.0
    message: str | None = None

    def __getitem__(self, name: str) -> Array:
        """The value of an output by name."""
        for out in self.outputs:
            if out.name == name and out.value is not None:
                return out.value
        raise KeyError(f"no output {name!r}; there are {', '.join(o.name for o in self.outputs) or 'none'}")


_AT_ONCE = 1024
"""For how many checks one walk over the graph tells what their errors depend on."""


@dataclass(eq=False)
class _Targets:
    """Which variables to compute: per check (expect, get, err or None), then the unchecked outputs."""

    checks: list[Check]
    err_in_graph: list[bool]
    plain: list[tuple[str, Var]]

    def vars(self) -> list[Var]:
        out: list[Var] = []
        for check, own in zip(self.checks, self.err_in_graph, strict=True):
            out += [check.expect, check.get] + ([check.err] if own else [])
        return out + [v for _, v in self.plain]


class Runner:
    """Executes a bundle's graph repeatedly.

    Args:
        bundle: what `loadrun.load` returned, or a path.
        engine: name of the engine.
        seed: seed of the graph's random operators.

    Raises:
        UnsupportedError: the graph holds an operator that cannot be executed.
        UsageError: the seed is negative.

    >>> import loadrun
    >>> runner = loadrun.Runner("fixtures/nets/mlp.mge")
    >>> [result.verdict.value for result in runner.replay()]
    ['pass', 'pass', 'pass']
    """

    def __init__(
        self, bundle: Bundle | str | os.PathLike[str], engine: str = "reference", *, seed: int = 0
    ) -> None:
        if seed < 0:
            raise UsageError(f"a seed must be a whole number of at least 0, found {seed}")
        self.bundle = bundle if isinstance(bundle, Bundle) else load(bundle)
        self.engine_name = engine
        self.seed = seed
        self._model: Engine | None = None
        self._checked: tuple[_Targets, Engine] | None = None

    def replay(self) -> Iterator[Result]:
        """Replay every testcase of the bundle; a failing one does not stop the others."""
        for i in range(len(self.bundle.testcases)):
            yield self.replay_one(i)

    def replay_one(self, index: int) -> Result:
        """Replay one testcase by its number."""
        try:
            return self.check(self.bundle.testcases[index], index)
        except LoadRunError as e:
            return Result(index, (), Verdict.ERROR, message=str(e))

    def check(self, testcase: Testcase, index: int | None = None) -> Result:
        """Feed a testcase and evaluate every check of the graph.

        Raises:
            InputError: the testcase does not fit the graph's inputs.
            EngineError: an operator failed.
        """
        if self._checked is None:
            targets = _targets(self.bundle)
            self._checked = targets, self._engine(self.bundle.graph, targets.vars())
        targets, engine = self._checked
        _check_dtypes(engine, testcase)
        start = time.perf_counter()
        values = iter(engine.run(testcase.arrays))
        seconds = time.perf_counter() - start
        outs = []
        for check, own in zip(targets.checks, targets.err_in_graph, strict=True):
            expect, get = next(values), next(values)
            err = next(values) if own else None
            outs.append(_judge(check, expect, get, err))
        outs += [_plain(name, var, next(values)) for name, var in targets.plain]
        shown = _at_border(outs, self.bundle.scalars)
        return Result(index, shown, Verdict.worst(o.verdict for o in outs), seconds)

    def run(self, inputs: Mapping[str, Array] | None = None) -> Result:
        """Run the model on given inputs, without its checks.

        Args:
            inputs: arrays by input name, of the inputs' dtypes or safely convertible to them; default
                `random_inputs`. Shapes may differ from the file's as far as the graph allows.

        Raises:
            InputError: an input is missing, unknown, or of another dtype.
            EngineError: an operator failed.
        """
        feeds = random_inputs(self.bundle, self.seed) if inputs is None else fit_inputs(self.bundle, inputs)
        outputs = self.bundle.outputs
        if self._model is None:
            self._model = self._engine(self.bundle.graph, list(outputs.values()))
        start = time.perf_counter()
        values = self._model.run(feeds)
        seconds = time.perf_counter() - start
        outs = tuple(_plain(n, v, a) for (n, v), a in zip(outputs.items(), values, strict=True))
        return Result(None, _at_border(outs, self.bundle.scalars), Verdict.NOT_COMPARED, seconds)

    def _engine(self, graph: Graph, targets: Sequence[Var]) -> Engine:
        return make_engine(self.engine_name, graph, targets, seed=self.seed)


def run(
    bundle: Bundle | str | os.PathLike[str],
    inputs: Mapping[str, Array] | None = None,
    engine: str = "reference",
    *,
    seed: int = 0,
) -> list[Result]:
    """Replay all testcases of a file, or run its model on given inputs.

    Args:
        bundle: a path, or what `loadrun.load` returned.
        inputs: arrays by input name; without them the embedded testcases are replayed, and a model
            without testcases runs once on `random_inputs`.
        engine: name of the engine.
        seed: seed of random operators and random inputs.

    Returns:
        one `Result` per testcase, or a single one.

    >>> import loadrun
    >>> results = loadrun.run("fixtures/nets/mlp.mge")
    >>> [r.verdict.value for r in results]
    ['pass', 'pass', 'pass']
    """
    runner = Runner(bundle, engine, seed=seed)
    if inputs is None and len(runner.bundle.testcases):
        return list(runner.replay())
    return [runner.run(inputs)]


def random_inputs(bundle: Bundle, seed: int = 0) -> dict[str, Array]:
    """Seeded inputs for a model that brings none: the same bytes on every platform and numpy version.

    Floating-point inputs are uniform in [0, 1), 8-bit ones cover their whole range, other integers (often
    indices) are 0 or 1, booleans are coin flips.

    Raises:
        InputError: the file does not say what shape an input has.
    """
    bits = np.random.PCG64(seed)
    feeds: dict[str, Array] = {}
    for var in bundle.inputs:
        tensor = var.owner.tensors[0]
        if tensor.data is not None:
            continue
        if tensor.shape is None:
            raise InputError(
                f"the file gives no shape for the input {var.name!r}; give its value with --input"
            )
        try:
            feeds[var.name or ""] = _random(bits, tensor.shape, tensor.dtype.np)
        except (MemoryError, ValueError):
            raise InputError(
                f"a random value for the input {var.name!r} of shape {list(tensor.shape)} does not fit the memory"
            ) from None
    return feeds


def _random(bits: np.random.PCG64, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    count = prod(shape)
    raw = bits.random_raw(count) if count else np.zeros(0, np.uint64)
    if kind.kind == "f":
        values = ((raw >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)).astype(kind)
    elif kind.itemsize == 1 and kind.kind in "iu":
        values = (raw >> np.uint64(56)).astype(np.uint8).view(kind)
    else:
        values = (raw >> np.uint64(63)).astype(kind)
    return values.reshape(shape)


def _targets(bundle: Bundle) -> _Targets:
    checks = bundle.checks
    checked = {check.name for check in checks}
    plain = [(n, v) for n, v in bundle.outputs.items() if n not in checked]
    own = _dependent(bundle.graph, [c for c in checks if not _is_standard(c)])
    return _Targets(checks, [id(c) in own for c in checks], plain)


def _is_standard(check: Check) -> bool:
    """Whether the err graph is the formula that MegEngine writes, on the check's own two values."""

    def elemwise(var: Var, mode: ElemwiseMode) -> list[Var] | None:
        opr = var.owner
        fits = opr.type == "Elemwise" and opr.get(Elemwise).mode == mode
        return opr.inputs if fits and len(opr.inputs) == (1 if mode == ElemwiseMode.ABS else 2) else None

    reduce = check.err.owner
    if reduce.type != "ReduceV2" or reduce.get(Reduce).mode != ReduceMode.MAX or len(reduce.inputs) != 2:
        return False
    ratio = elemwise(reduce.inputs[0], ElemwiseMode.TRUE_DIV)
    top = elemwise(ratio[0], ElemwiseMode.ABS) if ratio else None
    difference = elemwise(top[0], ElemwiseMode.SUB) if top else None
    if (
        ratio is None
        or difference is None
        or [id(v) for v in difference] != [id(check.expect), id(check.get)]
    ):
        return False
    bound = elemwise(ratio[1], ElemwiseMode.MAX)
    if bound is None:
        return False
    for one, least in (bound, bound[::-1]):
        smaller = elemwise(least, ElemwiseMode.MIN)
        if smaller is None or not one.owner.tensors:
            continue
        inner = [elemwise(v, ElemwiseMode.ABS) for v in smaller]
        if {id(v[0]) for v in inner if v} == {id(check.expect), id(check.get)}:
            value = one.owner.tensors[one.index]
            return value.dtype.name == "Float32" and value.shape == (1,) and float(value.value()[0]) == 1.0
    return False


def _dependent(graph: Graph, checks: Sequence[Check]) -> set[int]:
    """Ids of the checks whose err is computed from both values; any other says nothing about them.

    One walk over the operators answers for `_AT_ONCE` checks: a bit each, for both values, in one number a
    variable, so that thousands of checks behind a long chain take no walk each.
    """
    found: set[int] = set()
    for start in range(0, len(checks), _AT_ONCE):
        group = checks[start : start + _AT_ONCE]
        bits: dict[int, int] = {}
        for i, check in enumerate(group):
            for place, var in ((2 * i, check.expect), (2 * i + 1, check.get)):
                bits[var.id] = bits.get(var.id, 0) | 1 << place
        reached: dict[int, int] = {}
        for opr in graph.needed(check.err for check in group):
            above = 0
            for var in opr.inputs:
                above |= reached[var.id]
            for var in opr.outputs:
                reached[var.id] = above | bits.get(var.id, 0)
        found.update(id(check) for i, check in enumerate(group) if reached[check.err.id] >> 2 * i & 3 == 3)
    return found


def _judge(check: Check, expect: Array, get: Array, err: Array | None) -> OutputResult:
    dtype = check.get.dtype or dtype_of(get)
    found = compare(expect, get)
    # An error graph of its own may relate two layouts of one value; MegEngine's formula needs equal shapes.
    if err is None and expect.shape != get.shape:
        return OutputResult(
            check.name, get.shape, dtype, Verdict.FAIL, check.maxerr, float("nan"), found, get
        )
    error = float(assert_equal_error(expect, get)) if err is None else float(err.reshape(-1)[0])
    verdict = Verdict.PASS if passes(error, check.maxerr) else Verdict.FAIL
    return OutputResult(check.name, get.shape, dtype, verdict, check.maxerr, error, found, get)


def _plain(name: str, var: Var, value: Array) -> OutputResult:
    return OutputResult(name, value.shape, var.dtype or dtype_of(value), Verdict.NOT_COMPARED, value=value)


def _at_border(outs: Iterable[OutputResult], scalars: frozenset[str]) -> tuple[OutputResult, ...]:
    """The outputs, those without axes in the model as a scalar again."""
    return tuple(
        replace(o, shape=(), value=o.value.reshape(()))
        if o.name in scalars and o.value is not None and o.value.size == 1
        else o
        for o in outs
    )


def _check_dtypes(engine: Engine, testcase: Testcase) -> None:
    for name, var in engine.inputs.items():
        stored = testcase.dtypes.get(name)
        if stored is not None and var.dtype is not None and stored != var.dtype:
            raise InputError(f"the testcase stores {stored} for the input {name!r}, which takes {var.dtype}")


def fit_inputs(bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Bring given arrays to the inputs' dtypes; refuse what would change values."""
    known = {v.name or "": v for v in bundle.graph.inputs}
    unknown = [n for n in inputs if n not in known]
    if unknown:
        names = ", ".join(v.name or "" for v in bundle.inputs) or "none"
        raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {names}")
    fed: dict[str, Array] = {}
    for name, given in inputs.items():
        array = np.asarray(given)
        tensor = known[name].owner.tensors[0]
        want = tensor.dtype.np
        if array.dtype != want:
            if array.dtype.kind not in "fiub" or not _castable(array, want):
                raise InputError(
                    f"input {name!r} takes {tensor.dtype}; the given {array.dtype} array holds values that it cannot"
                )
            array = array.astype(want)
        if tensor.shape is not None and array.ndim != len(tensor.shape) and array.ndim:
            raise InputError(
                f"input {name!r} has shape {list(tensor.shape)}, the given array has {list(array.shape)}; "
                "the number of axes must agree"
            )
        fed[name] = array
    missing = [v.name for v in bundle.inputs if v.name not in fed and v.owner.tensors[0].data is None]
    if missing:
        raise InputError(
            f"no value was given for the input {missing[0]!r}; given: {', '.join(fed) or 'none'}"
        )
    return {n: a for n, a in fed.items() if not n.endswith(EXPECT)}


def _castable(array: Array, want: np.dtype[Any]) -> bool:
    """Whether values survive: any real number as a float (rounded), else only the same number."""
    return want.kind == "f" or bool(np.array_equal(array.astype(want), array))


@dataclass
class FileResult:
    """What the results of one file come to; it does not grow with their number.

    Attributes:
        path: the file.
        message: why the file could not be read or executed, for the verdict error.
        fault: whether that is a fault of loadrun.
        warnings: what MegEngine would only warn of.
        load_seconds: time to read the file.
        testcases: how many results are of testcases, not of a run on given inputs.
        passed, failed: how many checks did.
        errors: how many results have the verdict error.

    >>> import loadrun
    >>> found = FileResult("fixtures/nets/mlp.mge")
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    >>> found.verdict.value, found.testcases, found.passed, found.failed
    ('pass', 3, 3, 0)
    """

    path: str
    message: str | None = None
    fault: bool = False
    warnings: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    testcases: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    verdicts: set[Verdict] = field(default_factory=set, repr=False)

    def add(self, result: Result) -> None:
        """Count a result."""
        self.testcases += result.index is not None
        self.errors += result.verdict is Verdict.ERROR
        self.passed += sum(o.verdict is Verdict.PASS for o in result.outputs)
        self.failed += sum(o.verdict is Verdict.FAIL for o in result.outputs)
        self.verdicts.add(result.verdict)

    @property
    def verdict(self) -> Verdict:
        """The worst of the results' verdicts."""
        return Verdict.ERROR if self.message else Verdict.worst(self.verdicts)
