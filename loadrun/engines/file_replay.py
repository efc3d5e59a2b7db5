"""Replaying a model's own file on a runtime that reads such files: the same verdicts as for graphs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..base.errors import InputError
from ..base.registry import late
from ..compare.judging import Criteria, judge, judge_empty, policy_for
from ..compare.metrics import Formula
from ..compare.policy import Policy
from ..compare.results import OutputResult, Result, Verdict
from ..graph import Graph, Var
from ..graph.dtypes import Array, DType, array_dtype, held_array
from ..testcase import EXPECT, FileValue, SourceFile, Testcase
from .protocol import FileEngine
from .reference import ReferenceEngine

with late(__name__):
    from . import wide

_ABSENT = "the model returns no such value"


class FileJudge:
    """A file's own rule of comparison.

    Args:
        source: the file.
        policies: what outputs must fulfil besides, by name, all others under the empty name.
        loosened: the tolerances that outputs had before they were loosened, by name.
    """

    def __init__(
        self, source: SourceFile, policies: Mapping[str, Policy], loosened: Mapping[str, float]
    ) -> None:
        self.source, self.policies, self.loosened = source, policies, loosened

    def judged(self, output: str, expect: FileValue, get: FileValue) -> Iterator[OutputResult]:
        """Judge an output, or every value of a sequence."""
        expected, computed = dict(_flat(output, expect)), dict(_flat(output, get))
        if not expected and not computed and isinstance(expect, list) == isinstance(get, list):
            yield judge_empty(output)
        for name, value in computed.items():
            if name in expected:
                yield self._one(output, name, expected[name], value)
            else:
                plain = self._plain(output, name, value)
                yield replace(
                    plain, verdict=Verdict.FAIL, error=math.nan, notes=("there is no expected value",)
                )
        for name in expected.keys() - computed.keys():
            dtype = self._dtype(output, expected[name])
            yield OutputResult(
                name, expected[name].shape, dtype, Verdict.FAIL, error=math.nan, notes=(_ABSENT,)
            )

    def _plain(self, output: str, name: str, value: Array) -> OutputResult:
        return OutputResult(name, value.shape, self._dtype(output, value), Verdict.NOT_COMPARED, value=value)

    def _dtype(self, output: str, value: Array) -> DType:
        """Return the data type of a value: the declared one, where the value is of that, else its own."""
        known = self.source.outputs.get(output)
        return known if known is not None and known.np == value.dtype else array_dtype(value)

    def _one(self, output: str, name: str, expect: Array, get: Array) -> OutputResult:
        error = self.source.error(output, expect, get)
        maxerr = self.source.maxerr(output)
        policy, loosened = policy_for(self.policies, name), self.loosened.get(output)
        dtype = self._dtype(output, get)
        terms = self.source.terms(output)
        criteria = Criteria(name, dtype, maxerr, policy=policy, loosened=loosened, terms=terms, by_shape=True)
        if error is None:
            return judge(criteria, expect, get)
        check_error = np.array([error])
        asked = criteria._replace(formula=Formula.OTHER)
        if "U" in (expect.dtype.kind, get.dtype.kind):
            # Texts are compared as numbers that stand for them; nothing else can be asked of them.
            asked = asked._replace(policy=replace(policy, loosens=False))
            return replace(judge(asked, *_numbered(expect, get), check_error), value=get, expect=None)
        result = judge(asked, expect, get, check_error)
        if expect.dtype != get.dtype:
            note = f"expected {expect.dtype} values, but the runtime returns {get.dtype}"
            result = result.failing(note) if policy.loosens else replace(result, notes=(*result.notes, note))
        return result


class FileReplay(FileJudge):
    """A file on a runtime.

    Args:
        source: the file.
        engine: the runtime, with the file loaded.
        policies, loosened: see `FileJudge`.
    """

    def __init__(
        self,
        source: SourceFile,
        engine: FileEngine,
        policies: Mapping[str, Policy],
        loosened: Mapping[str, float],
    ) -> None:
        super().__init__(source, policies, loosened)
        self.engine = engine

    def check(self, testcase: Testcase, index: int | None) -> Result:
        """Feed a testcase and judge every output of which it has an expected value.

        Raises:
            InputError: the testcase does not fit the file's inputs.
            EngineError: the runtime fails.
        """
        values = testcase.arrays if testcase.file_values is None else testcase.file_values
        seconds, outputs = self._run({n: v for n, v in values.items() if not n.endswith(EXPECT)})
        expected = {n.removesuffix(EXPECT): v for n, v in values.items() if n.endswith(EXPECT)}
        outs: list[OutputResult] = []
        for name in dict.fromkeys((*outputs, *expected)):
            value = outputs.get(name)
            if name not in expected:
                outs += [self._plain(name, n, v) for n, v in _flat(name, value)]
            elif testcase.file_values is None:
                outs += self.judged(name, _in_form_of(value, expected[name]), value)
            else:
                outs += self.judged(name, expected[name], value)
        return Result(index, tuple(outs), Verdict.of_outputs(outs), seconds, engine=self.engine.about)

    def run(self, inputs: Mapping[str, FileValue]) -> Result:
        """Run the file on given inputs, without checks.

        Raises:
            InputError: an input is missing, unknown, or of another type.
            EngineError: the runtime fails.
        """
        seconds, outputs = self._run(inputs)
        outs = [self._plain(name, n, v) for name, value in outputs.items() for n, v in _flat(name, value)]
        return Result(None, tuple(outs), Verdict.NOT_COMPARED, seconds, engine=self.engine.about)

    def _run(self, inputs: Mapping[str, FileValue]) -> tuple[float, Mapping[str, FileValue]]:
        feeds = self.engine.fitted(inputs)
        start = time.perf_counter()
        outputs = self.engine.run(feeds)
        return time.perf_counter() - start, outputs


def file_inputs(testcase: Testcase) -> dict[str, FileValue]:
    """Return the inputs of a testcase as its model's file has them.

    >>> case = Testcase({"x": np.ones(1, "i4")}).with_file_values({"x": np.ones((), "i8"), "y:expect": None})
    >>> file_inputs(case)
    {'x': array(1)}
    """
    values = testcase.arrays if testcase.file_values is None else testcase.file_values
    return {n: v for n, v in values.items() if not n.endswith(EXPECT)}


def file_errors(source: SourceFile, testcase: Testcase) -> dict[str, Callable[[Array, Array], float] | None]:
    """Return what measures two values' error by a file's own rule, by the names of the testcase's outputs."""

    def measure(output: str) -> Callable[[Array, Array], float]:
        def error(expect: Array, get: Array) -> float:
            distance = source.error(output, expect, get)
            return math.nan if distance is None else distance

        return error

    errors: dict[str, Callable[[Array, Array], float] | None] = {}
    for name, value in (testcase.file_values or {}).items():
        output = name.removesuffix(EXPECT)
        for part, array in _flat(output, value) if name.endswith(EXPECT) else ():
            if source.error(output, array, array) is not None:
                errors[part] = measure(output)
    return errors


def _flat(name: str, value: FileValue) -> Iterator[tuple[str, Array]]:
    """Yield an output as arrays by name: values of a sequence are numbered, those of a map are one array."""
    if value is None:
        return
    if isinstance(value, np.ndarray):
        yield name, value.astype(str) if value.dtype.kind in "OS" else value
    elif isinstance(value, Mapping):
        yield name, np.asarray([value[k] for k in value])
    elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Mapping) for v in value):
        # The scores of a classifier: a map from class to number for each item.
        yield name, np.asarray([[v[k] for k in v] for v in value])
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _flat(f"{name}.{i}", item)
    else:
        yield name, np.asarray(value)


def _in_form_of(value: FileValue, expect: FileValue) -> FileValue:
    """Convert an expected value from the graph's form to the type of the file's own value."""
    if not isinstance(value, np.ndarray) or not isinstance(expect, np.ndarray):
        return expect
    if value.dtype.kind not in "biuf":
        return expect
    converted = expect.astype(value.dtype)
    return converted.reshape(()) if value.ndim == 0 and converted.size == 1 else converted


def _numbered(expect: Array, get: Array) -> tuple[Array, Array]:
    """Numbers in place of texts, equal where those are."""
    texts = [str(v) for a in (expect, get) for v in a.reshape(-1)]
    known = {text: i for i, text in enumerate(sorted(set(texts)))}
    numbers = np.array([known[t] for t in texts], np.int64)
    return numbers[: expect.size].reshape(expect.shape), numbers[expect.size :].reshape(get.shape)


class GraphFile:
    """A graph made ready for repeated execution on values as its file has them; see `loadrun.engines.FileEngine`.

    Args:
        graph: the graph, of one operator for each node of the file.
        engine: ``reference`` or ``float64``.
        seed: seed of the random operators.

    Attributes:
        about: what executes, and how it computes.
    """

    def __init__(self, graph: Graph, engine: str, seed: int) -> None:
        kind = wide.Float64Engine if engine == "float64" else ReferenceEngine
        self._engine: ReferenceEngine | wide.Float64Engine = kind(graph, seed=seed)
        self._outputs = [v.name or "" for v in graph.outputs]
        self.about = self._engine.about

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """Return the values of the inputs that the graph reads as its engine takes them.

        Raises:
            InputError: an input is missing, or holds what its type cannot.
        """
        missing = sorted(self._engine.inputs.keys() - feeds.keys())
        if missing:
            names = ", ".join(self._engine.inputs) or "none"
            raise InputError(f"the input {missing[0]!r} is missing; the model's inputs are {names}")
        return {n: _held(n, feeds[n], v) for n, v in self._engine.inputs.items()}

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, FileValue]:
        """Execute the graph.

        Raises:
            EngineError: an operator failed.
        """
        results = self._engine.run(inputs)  # type: ignore[arg-type]
        values = (r[()] if r.dtype.kind == "O" and not r.ndim else r for r in results)
        return dict(zip(self._outputs, values, strict=True))


def _held(name: str, value: FileValue, var: Var) -> Array:
    dtype = var.owner.tensors[0].dtype
    array = held_array(value, dtype)
    if dtype.name == "Object":
        return array
    if dtype.name == "String":
        return array.astype(object)
    if array.dtype.kind not in "biuf":
        raise InputError(f"the input {name!r} takes {dtype.spelling}, the given value holds {array.dtype}")
    return array.astype(dtype.np, copy=False)
