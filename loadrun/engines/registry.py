"""Engines by name: loadrun's own, those of other packages (entry points), those registered by a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..base.errors import UsageError
from ..base.limits import EndedBySignal
from ..base.registry import Registry, late
from ..graph import Graph, Var
from ..testcase import Bundle, SourceFile
from .protocol import (
    TRANSLATED,
    Engine,
    Factory,
    FileEngine,
    FileFactory,
    ForeignEngine,
    Setup,
    blamed,
)

with late(__name__):
    from importlib import metadata

    from . import reference, wide

GROUP = "loadrun.engines"
"""The entry-point group in which other packages name their factories."""
NAMES = {
    "reference": "numpy, every operator (the default)",
    "float64": "the same operators in double precision",
    "numba": "the reference engine with kernels that numba compiles (pip install loadrun[fast])",
    "onnxruntime": (
        "ONNX Runtime, which runs .onnx files unchanged; onnxruntime:PROVIDER:KEY=VALUE sets execution provider and "
        "options, onnxruntime:translated runs loadrun's graph"
    ),
    "openvino": "OpenVINO on the CPU in float32, .onnx files unchanged; also openvino:bf16 and openvino:f16",
    "torch": "PyTorch, which runs .pt2 files unchanged and nothing else",
    "megengine": "MegEngine itself, in the Python of megengine:PYTHON",
    "load_and_run": "MegEngine's C++ tool: load_and_run:PATH",
}
"""The names that loadrun itself knows, and what they are."""
_OWN: Registry[str, Factory] = Registry(
    "engine",
    {
        "onnxruntime": "loadrun.runtimes.onnxruntime:make_engine",
        "openvino": "loadrun.runtimes.openvino:make_engine",
        "torch": "loadrun.runtimes.torch:make_engine",
        "megengine": "loadrun.runtimes.megengine:make_engine",
        "load_and_run": "loadrun.runtimes.load_and_run:make_engine",
    },
)
_FILE_ENGINES: Registry[str, FileFactory] = Registry(
    "engine for files",
    {
        "onnxruntime": "loadrun.runtimes.onnxruntime:open_file",
        "openvino": "loadrun.runtimes.openvino:open_file",
        "torch": "loadrun.runtimes.torch:open_file",
    },
)
_CHECKS: Registry[str, Callable[[str], object]] = Registry(
    "engine with options",
    {
        "onnxruntime": "loadrun.runtimes.onnxruntime:OnnxRuntime",
        "openvino": "loadrun.runtimes.openvino:OpenVINO",
        "torch": "loadrun.runtimes.torch:check_argument",
    },
)
_FILES = {"onnxruntime": "onnx", "openvino": "onnx", "torch": "pt2"}
_TAKE_GRAPHS = ("reference", "float64", "numba")
"""The engines of this package, which run every graph and take nothing after a colon."""
_registered: dict[str, Factory] = {}


def register_engine(name: str, factory: Factory) -> None:
    """Make an engine known by a name, for `Runner(engine=...)` and `make_engine`.

    Packages do it without being imported by an entry point of the group ``loadrun.engines``.

    Args:
        name: letters, digits and underscores; a name that is registered already gets the new factory.
        factory: called as ``factory(graph, targets, setup)``; see `Engine` and `Setup`.

    Raises:
        UsageError: the name is one of loadrun's own, or no name.

    >>> from loadrun.engines.reference import ReferenceEngine
    >>> register_engine("mine", lambda graph, targets, setup: ReferenceEngine(graph, targets, seed=setup.seed))
    >>> "mine" in engine_names()
    True
    """
    if not name.isidentifier():
        raise UsageError(f"an engine's name consists of letters, digits and underscores, found {name!r}")
    if name in NAMES:
        raise UsageError(f"{name!r} is one of loadrun's engines; choose another name")
    _registered[name] = factory


def engine_names() -> list[str]:
    """Return the names of all engines, those of other packages and programs after loadrun's own.

    >>> "reference" in engine_names(), "onnxruntime" in engine_names()
    (True, True)
    """
    others = {*_registered, *(e.name for e in _entry_points())} - set(NAMES)
    return [*NAMES, *sorted(others)]


def known_elsewhere(engine: str) -> bool:
    """Return whether another process knows an engine: one that only this program registered is not known there.

    >>> known_elsewhere("onnxruntime:CPU"), known_elsewhere("nobody")
    (True, False)
    """
    name = engine.partition(":")[0]
    return name in NAMES or any(e.name == name for e in _entry_points())


def _entry_points() -> Iterable[metadata.EntryPoint]:
    return metadata.entry_points(group=GROUP)


def check_engine(engine: str) -> str:
    """Return an engine's name, with or without an argument after a colon, if there is such an engine.

    Raises:
        UsageError: there is none.
    """
    if not isinstance(engine, str):
        raise UsageError(f"an engine is given by its name, found {type(engine).__name__}")
    name = engine.partition(":")[0]
    if name not in NAMES and name not in _registered and name not in engine_names():
        raise UsageError(f"engine {engine!r} is unknown; expected one of {', '.join(engine_names())}")
    return engine


def check_argument(engine: str) -> None:
    """Check what stands after the colon in an engine's name, where that is possible without a model.

    Raises:
        UsageError: the engine has no such option, or its runtime is not installed.

    >>> check_argument("onnxruntime")
    >>> check_argument("reference:fast")
    Traceback (most recent call last):
    loadrun.base.errors.UsageError: the engine reference takes nothing after a colon, found 'fast'
    """
    name, _, argument = engine.partition(":")
    if argument and name in _TAKE_GRAPHS:
        _no_argument(name, argument)
    if argument and name in _CHECKS:
        _CHECKS[name](argument)


def split_engines(text: str) -> list[str]:
    """Split names at commas.

    Raises:
        UsageError: one of them is unknown.

    >>> split_engines("reference,onnxruntime:CPUExecutionProvider")
    ['reference', 'onnxruntime:CPUExecutionProvider']
    """
    return [check_engine(part.strip()) for part in text.split(",")]


def baseline_for(engine: str) -> str:
    """Return the engine run beside the reference engine to find the operator at which a failing engine diverges.

    It is the one that failed; where that is the reference engine, the same operators in double precision.

    >>> baseline_for("onnxruntime"), baseline_for("reference")
    ('onnxruntime', 'float64')
    """
    return "float64" if engine == "reference" else engine


def make_engine(
    engine: str, graph: Graph, targets: Sequence[Var], *, seed: int = 0, profile: bool = False
) -> Engine:
    """Prepare a graph for execution by an engine.

    Args:
        engine: the engine's name, with its argument after a colon where it takes one.
        graph: the graph.
        targets: the variables to compute.
        seed: seed of the random operators.
        profile: let the runtime's own profiler watch the runs; see `loadrun.engines.profile.Profiling`.

    Raises:
        UsageError: no engine has that name, or its runtime is not installed.
        UnsupportedError: the engine cannot execute an operator of the graph.

    >>> import numpy as np
    >>> from loadrun.testing import GraphBuilder
    >>> b = GraphBuilder()
    >>> graph = b.done(b.elemwise("EXP", b.input("x", 2), name="y"))
    >>> engine = make_engine("reference", graph, graph.outputs)
    >>> [v.tolist() for v in engine.run({"x": np.zeros(2, "f4")})]
    [[1.0, 1.0]]
    """
    name, _, argument = check_engine(engine).partition(":")
    factory, setup = _factory(name), Setup(argument, seed, profile)
    if name in NAMES:
        return factory(graph, targets, setup)
    with blamed(name, "to take the model"):
        return ForeignEngine(name, factory(graph, targets, setup), targets)


def runs_file(engine: str, format: str | None = None) -> bool:
    """Return whether an engine runs files of a format (default: any) unchanged, instead of the graph built from them.

    >>> runs_file("onnxruntime"), runs_file("onnxruntime:translated"), runs_file("reference")
    (True, False, False)
    """
    name, *options = engine.split(":")
    return name in _FILES and format in (None, _FILES[name]) and TRANSLATED not in options


def runs_composites(engine: str) -> bool:
    """Return whether an engine runs composite operators: those of loadrun itself do.

    >>> runs_composites("float64"), runs_composites("openvino")
    (True, False)
    """
    return engine in _TAKE_GRAPHS


def file_of(bundle: Bundle, engine: str) -> SourceFile | None:
    """Return the file that an engine runs in place of a bundle's graph, None if it runs the graph."""
    source = bundle.file
    return source if source is not None and runs_file(engine, source.format) else None


def make_file_engine(engine: str, source: SourceFile, *, profile: bool = False) -> FileEngine:
    """Load a model's own file into a runtime that `runs_file`.

    Raises:
        EngineError: the runtime does not take the file.
        UsageError: the runtime is not installed, or does not know an option.
    """
    name, _, argument = check_engine(engine).partition(":")
    return _FILE_ENGINES[name](source, Setup(argument, profile=profile))


def _factory(name: str) -> Factory:
    if name in NAMES:
        return _OWN[name]
    if name not in _registered:
        entry = next(e for e in _entry_points() if e.name == name)
        try:
            _registered[name] = entry.load()
        except EndedBySignal:
            raise
        except (Exception, SystemExit) as e:
            why = f"{type(e).__name__}: {e}" if str(e) else type(e).__name__
            raise UsageError(f"the engine {name!r} ({entry.value}) cannot be loaded: {why}") from e
    return _registered[name]


@_OWN.register("reference")
def _reference(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    _no_argument("reference", setup.argument)
    return reference.ReferenceEngine(graph, targets, seed=setup.seed)


@_OWN.register("float64")
def _float64(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    _no_argument("float64", setup.argument)
    return wide.Float64Engine(graph, targets, seed=setup.seed)


@_OWN.register("numba")
def _numba(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    _no_argument("numba", setup.argument)
    try:
        from .fast import NumbaEngine  # for start-up, and numba is optional
    except ImportError as e:
        raise UsageError(f"the engine numba needs numba ({e}): pip install loadrun[fast]") from e
    return NumbaEngine(graph, targets, seed=setup.seed)


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise UsageError(f"the engine {name} takes nothing after a colon, found {argument!r}")
