"""`loadrun diff --passes`: which optimization of a model makes its outputs diverge, by bisection."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import EngineError, UnsupportedError, UsageError
from ..base.extras import install
from ..base.files import contents
from ..dump import load
from ..dump.container import load_dump
from ..engines import make_file_engine
from ..engines.reference import ReferenceEngine
from ..graph import Graph
from ..graph.dtypes import Array
from ..inputs.feeds import DataOptions, ModelOptions, fit_inputs
from ..passes.constants import bare
from ..passes.inference import inference_passes
from ..passes.options import FLAGS, InferenceOptions
from ..passes.rewriter import Pass
from ..testcase import Bundle, SourceFile
from .diff.measuring import Distance, distance
from .reduce import feeds_to_try

_LEVELS = ("basic", "extended", "all")
_RULES = tuple(
    """
    EliminateIdentity EliminateSlice UnsqueezeElimination EliminateDropout ExpandElimination
    CastElimination PreShapeNodeElimination NoopElimination DivMulFusion FuseReluClip GemmSumFusion
    GemmTransposeFusion NotWhereFusion ConvAddFusion ConvMulFusion ConvBNFusion Pad_Fusion
    MatMul_BatchNormalization_Fusion ClipQuantRewrite ReluQuantRewrite LabelEncoderFusion
    """.split()
)
"""Rules of ONNX Runtime's rule-based transformers; each can be disabled by its own name."""
_LOGGED = re.compile(r"GraphTransformer (\S+) modified: 1")
_OPEN = """
import sys, onnxruntime as ort
o = ort.SessionOptions()
o.log_severity_level = 1
o.graph_optimization_level = getattr(ort.GraphOptimizationLevel, sys.argv[2])
ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
"""


@dataclass(frozen=True, kw_only=True)
class BlamePassOptions(ModelOptions, DataOptions):
    """Say on what optimized models are compared; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        testcase: use only testcase N (default: all).
        tolerance: largest error that counts as equal, relative to the largest value of the output.
    """

    testcase: int | None = None
    tolerance: float = 1e-4


@dataclass(frozen=True)
class BlamedPass:
    """An optimization that makes outputs diverge.

    Attributes:
        of: whose it is: ``onnxruntime``, ``onnxoptimizer``, ``onnxsim`` or ``loadrun``.
        level: the level or flag that it runs at, empty if there is none.
        names: the optimizers that make the difference together, mostly one; none if they could not be distinguished.
        output: the output that is furthest off.
        distance: how far it is off; None if it has another number of elements, or the optimized model cannot run.
        runs: how many optimized models ran.
        command: the command line that shows the difference, empty if there is none.
        without: the command line in which it is gone, empty if there is none.
    """

    of: str
    level: str
    names: tuple[str, ...]
    output: str
    distance: Distance | None
    runs: int
    command: str = ""
    without: str = ""


_Outputs = Mapping[str, Array]
_Worst = tuple[str, Distance | None] | None


def blame_pass(
    model: str | os.PathLike[str],
    options: BlamePassOptions | None = None,
    *,
    warn: Callable[[str], None] = warnings.warn,
) -> list[BlamedPass]:
    """Find the optimizations that make a model's outputs diverge.

    Of an .onnx file those of ONNX Runtime (its levels, then single optimizers), of onnxoptimizer and of onnxsim, where
    they are installed; of any file loadrun's own passes.

    Args:
        model: the model.
        options: on what, and how near is near enough.
        warn: called with what deserves a look.

    Returns:
        the optimizations that are to blame, at most one of each origin; empty if all outputs agree.

    Raises:
        LoadRunError: the file cannot be read or run.

    >>> blame_pass("fixtures/nets/mlp.mge")
    []
    """
    options = options or BlamePassOptions()
    bundle = load_dump(model, native=True, **options.read)
    if bundle.file is not None and bundle.file.format == "onnx" and find_spec("onnxruntime") is None:
        warn(f"only loadrun's own passes are tried: ONNX Runtime is not installed: {install('onnxruntime')}")
    blamed: dict[str, BlamedPass] = {}
    for feeds in feeds_to_try(options, options.testcase, bundle, warn):
        for blame in _on(bundle.for_data(feeds), os.fspath(model), feeds, options, warn):
            blamed.setdefault(blame.of, blame)
    return list(blamed.values())


def runtime_blame(source: SourceFile, feeds: Mapping[str, Array], tolerance: float) -> BlamedPass | None:
    """Find the optimizations of ONNX Runtime that make an ONNX file's outputs diverge.

    Args:
        source: the file.
        feeds: arrays by input name.
        tolerance: how far an output may be off, relative to its largest value.

    Returns:
        None if the outputs agree, or the file has no path.
    """
    if source.format != "onnx" or not isinstance(source.location, str):
        return None
    search = _Search(tolerance, partial(_runtime_outputs, source, feeds), lambda text: None)
    return _runtime(search, source.location)


def _on(
    bundle: Bundle,
    path: str,
    feeds: Mapping[str, Array],
    options: BlamePassOptions,
    warn: Callable[[str], None],
) -> Iterator[BlamedPass]:
    source = bundle.file
    if source is not None and source.format == "onnx" and find_spec("onnxruntime") is not None:
        search = _Search(options.tolerance, partial(_runtime_outputs, source, feeds), warn)
        blame = _runtime(search, path)
        if blame is not None:
            yield blame
        for package in ("onnxoptimizer", "onnxsim"):
            if find_spec(package) is not None and (blame := _tool(search, package, path, feeds)) is not None:
                yield blame
    if (
        bundle.source.refusal is None
        and (blame := _of_loadrun(bundle, path, feeds, options.tolerance)) is not None
    ):
        yield blame


class _Search:
    """Runs one model in several ways and compares its outputs with those of the fewest optimizations that load.

    Raises:
        UnsupportedError: it loads with none.
    """

    def __init__(self, tolerance: float, run: Callable[[str], _Outputs], warn: Callable[[str], None]) -> None:
        self._tolerance, self._run, self.runs, self._warn = tolerance, run, 0, warn
        levels = ("disable", *_LEVELS[:-1])
        plain = next((found for n in levels if (found := self._loaded(f"opt={n}")) is not None), None)
        self._plain = run(f"opt={_LEVELS[-1]}") if plain is None else plain

    def _loaded(self, how: str) -> _Outputs | None:
        self.runs += 1
        try:
            return self._run(how)
        except UnsupportedError as e:
            self._warn(f"left out onnxruntime:{how}: {e}")
            return None

    def worst(self, how: str) -> _Worst:
        """Run it this way; return the output with the largest difference.

        None if all are within the tolerance, or it cannot be loaded so.
        """
        outputs = self._loaded(how)
        return None if outputs is None else _furthest(self._plain, outputs, self._tolerance)

    def compared(self, run: Callable[[], _Outputs]) -> _Worst:
        """Compare outputs with those of the plain model."""
        self.runs += 1
        return _furthest(self._plain, run(), self._tolerance)


def _furthest(plain: _Outputs, other: _Outputs, tolerance: float) -> _Worst:
    off: list[tuple[float, str, Distance | None]] = []
    for name, expected in plain.items():
        apart = distance(other[name], expected, tolerance)
        if apart is None or apart.relative > tolerance:
            off.append((np.inf if apart is None else apart.relative, name, apart))
    if not off:
        return None
    _, name, apart = max(off, key=lambda o: o[0])
    return name, apart


def _runtime_outputs(source: SourceFile, feeds: Mapping[str, Array], how: str) -> _Outputs:
    engine = make_file_engine(f"onnxruntime:{how}", source)
    values = engine.run(engine.fitted(feeds))
    return {n: v for n, v in values.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"}


def _runtime(search: _Search, path: str) -> BlamedPass | None:
    """Bisect ONNX Runtime's levels, then the optimizers that changed the model at the first level that differs."""
    for level in _LEVELS:
        worst = search.worst(f"opt={level}")
        if worst is None:
            continue
        changed = _changing(path, level)

        def differs(disabled: Sequence[str], level: str = level) -> bool:
            return search.worst(f"opt={level}:disable={'+'.join(disabled)}") is not None

        names = () if not changed or differs(changed) else _fewest(changed, differs)
        shown = f"loadrun diff {shlex.quote(path)} --bisect --against onnxruntime:opt={level}"
        without = f"{shown}:disable={'+'.join(names)}" if names else ""
        return BlamedPass("onnxruntime", level, names, *worst, search.runs, shown, without)
    return None


def _fewest(names: Sequence[str], differs: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Find the fewest optimizers without which outputs agree, half of them first, then smaller pieces."""
    left = list(names)
    size = max(len(left) // 2, 1)
    while True:
        start = 0
        while start < len(left) and len(left) > 1:
            fewer = [*left[:start], *left[start + size :]]
            if fewer and not differs(fewer):
                left = fewer
            else:
                start += size
        if size == 1:
            return tuple(left)
        size //= 2


def _changing(path: str, level: str) -> list[str]:
    """List the optimizers that change a model at a level, as ONNX Runtime's log names them."""
    value = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}[level]
    # The log bypasses Python and goes to the process's standard error.
    ran = subprocess.run(
        [sys.executable, "-c", _OPEN, path, value], capture_output=True, check=False, text=True
    )
    names = list(dict.fromkeys(_LOGGED.findall(ran.stderr + ran.stdout)))
    plain = [n for n in names if "RuleBased" not in n]
    return [*plain, *_RULES] if len(plain) < len(names) else plain


def _tool(search: _Search, package: str, path: str, feeds: Mapping[str, Array]) -> BlamedPass | None:
    """Compare a model with the results of onnxoptimizer or onnxsim, both run without optimizations."""
    import onnx  # optional

    model: Any = onnx.load_model_from_string(contents(path, "an ONNX model"))

    def outputs(changed: object) -> _Outputs:
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "changed.onnx")
            onnx.save(changed, file)
            source = load(file, native=True).source.file
            if source is None:
                raise EngineError(f"{package} did not write an ONNX model")
            return _runtime_outputs(source, feeds, "opt=disable")

    if package == "onnxsim":
        import onnxsim as tool  # optional

        worst = search.compared(lambda: outputs(tool.simplify(model)[0]))
        return None if worst is None else BlamedPass(package, "", (), *worst, search.runs)
    import onnxoptimizer  # optional

    names = list(onnxoptimizer.get_fuse_and_elimination_passes())
    worst = search.compared(lambda: outputs(onnxoptimizer.optimize(model, names)))
    if worst is None:
        return None
    first = _first(
        len(names), lambda n: search.compared(lambda: outputs(onnxoptimizer.optimize(model, names[:n])))
    )
    return BlamedPass(package, "", (names[first],), *worst, search.runs)


def _first(count: int, worst: Callable[[int], _Worst]) -> int:
    """Find the first pass with which outputs differ, given that they differ with all passes."""
    passing, failing = 0, count
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if worst(middle) is None:
            passing = middle
        else:
            failing = middle
    return failing - 1


def _of_loadrun(bundle: Bundle, path: str, feeds: Mapping[str, Array], tolerance: float) -> BlamedPass | None:
    """Try loadrun's own optimizations, flag by flag, except half precision, which always differs."""
    bundle = bundle.lowered().for_data(feeds)
    graph, feeds = bare(bundle), fit_inputs(bundle, feeds)
    names = [v.label for v in graph.outputs]
    plain = _values(graph, names, feeds)
    runs = 1
    for flag in ("", *(f for f in FLAGS if "16" not in f and f != "weight_preprocess")):
        passes = list(inference_passes(InferenceOptions.of(**({flag: True} if flag else {}))))

        def worst(count: int, passes: Sequence[Pass] = passes) -> _Worst:
            nonlocal runs
            runs += 1
            changed = graph
            try:
                for one in passes[:count]:
                    changed = one(changed)
                return _furthest(plain, _values(changed, names, feeds), tolerance)
            except EngineError:
                # What cannot run has no output at all.
                return names[0], None

        try:
            off = worst(len(passes))
        except UsageError:
            # The model is refused.
            continue
        if off is None:
            continue
        first = passes[_first(len(passes), worst)]
        return BlamedPass(
            "loadrun", flag, (_name(first),), *off, runs, f"loadrun {shlex.quote(path)}{_option(flag)}"
        )
    return None


def _option(flag: str) -> str:
    """Return load_and_run's flag for a keyword of MegEngine's `trace.dump`."""
    if not flag:
        return " --optimize-for-inference"
    named = {"enable_hwcd4": "enable_nhwcd4", "enable_fuse_grain": "fuse_grain"}.get(flag, flag)
    return f" --{named.replace('_', '-')}"


def _name(one: Pass) -> str:
    return str(getattr(getattr(one, "func", one), "__name__", one))


def _values(graph: Graph, names: Sequence[str], feeds: Mapping[str, Array]) -> _Outputs:
    engine = ReferenceEngine(graph)
    values = engine.run({n: feeds[n] for n in engine.inputs if n in feeds})
    return dict(zip(names, values, strict=True))
