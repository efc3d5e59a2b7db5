"""The float64 engine shares nothing with the kernels that it judges: what is wrong in one of them shows.

Every numeric helper of the kernels is made wrong, alone and all together: the float64 engine gives the same bits as
before, the reference engine gives something else.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.ops
from loadrun.compare import assert_equal_error
from loadrun.engines.reference import ReferenceEngine
from loadrun.engines.wide import WideEngine
from loadrun.graph import Graph
from loadrun.graph.dtypes import Array
from loadrun.ops import registry
from loadrun.ops.catalog import CATALOG, types
from loadrun.ops.formulas import FORMULAS
from loadrun.ops.infer import infer_dtypes
from loadrun.ops.op import Trait
from tests.support.fixture_files import FIXTURES

pytestmark = pytest.mark.usefixtures("compiled")
ROOT = Path(__file__).resolve().parents[2]
COMPOSITE = {n for n, op in CATALOG.items() if op.category == "composite"}
"""Operators whose definitions both engines run; ONNX's node cases and ONNX Runtime judge those."""
FORMULA_FILES = sorted(p for p in (ROOT / "loadrun/ops/formulas").glob("*.py") if p.stem != "composite")

RULES = {
    "catalog": "what operators are",
    "conv.layout": "which axis is which",
    "conv.rules": "shapes, sizes and layouts of convolutions",
    "elemwise.formulas": "the float64 formulas of the modes",
    "elemwise.table": "which of them a mode has, beside its kernels",
    "image.planes": "layouts of images",
    "numeric.stream": "what random operators draw from",
    "op": "what operators are",
    "registry": "what a call is",
}
"""What formulas may import of `loadrun.ops`, and what it is."""
CONVERTS = "typecvt"
"""Between dtypes both engines convert by the same code."""


def imports(path: Path, package: str) -> Iterator[str]:
    """Yield the modules of loadrun that a file imports, functions and TYPE_CHECKING included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("loadrun"))
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], node.module or ""]).rstrip(".")
            base = base if node.level else node.module or ""
            for name in node.names if base.startswith("loadrun") else ():
                inside = ROOT / f"{base.replace('.', '/')}/{name.name}"
                known = inside.is_dir() or inside.with_suffix(".py").exists()
                yield f"{base}.{name.name}" if known else base


def test_formulas_import_no_kernel() -> None:
    """Directly or through what they import; only the table of modes, of which they take formulas, knows kernels."""
    waiting = [
        "loadrun.ops.elemwise.formulas",
        *(f"loadrun.ops.formulas.{p.stem}" for p in FORMULA_FILES),
    ]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name == "loadrun.ops.elemwise.table":
            continue
        path = ROOT / name.replace(".", "/")
        package = name.removesuffix(".__init__") if path.is_dir() else name.rpartition(".")[0]
        waiting += imports(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"), package)
    ours = "loadrun.ops."
    used = {n.removeprefix(ours) for n in seen if n.startswith(ours) and not n.startswith(f"{ours}formulas")}
    assert used - {"typeid"} == set(RULES), "what is shared with the kernels changed"
    assert not {n for n in seen if n.startswith("loadrun.engines")}
    table = [n for p in FORMULA_FILES for n in ast.walk(ast.parse(p.read_text())) if _takes_rows(n)]
    assert [n.attr for n in table] == ["wide"]


def _takes_rows(node: ast.AST) -> bool:
    """Tell whether it reads an attribute of a row of the table of modes."""
    value = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id == "ROWS"


# ---- Wrong kernels


@dataclass(frozen=True)
class Sample:
    """A recorded model all of whose numbers the float64 engine computes by formulas, and what it gives."""

    file: str
    graph: Graph
    feeds: dict[str, Array]
    wide: list[Array]
    kinds: frozenset[str]

    def run(self, engine: type[ReferenceEngine] | type[WideEngine]) -> list[Array]:
        return list(engine(self.graph, self.graph.outputs).run(self.feeds))

    def differs(self) -> bool:
        """Tell whether the reference engine fails or disagrees with the float64 engine."""
        try:
            found = self.run(ReferenceEngine)
        except loadrun.LoadRunError:
            return True
        return any(
            a.shape != b.shape or not assert_equal_error(a.astype(np.float32), b) <= 1e-3
            for a, b in zip(self.wide, found, strict=True)
        )


HALVES = ("Float16", "BFloat16")
EACH = 6
FOLDERS = {
    *(
        "attention",
        "conv",
        "dump_options",
        "elemwise",
        "format",
        "index",
        "linalg",
        "matmul",
        "norm",
    ),
    *("pooling", "reduce", "rnn", "roi", "shape", "sort", "vision", "window", "windows"),
}
"""The families of fixtures that have operators with a float64 formula."""
"""Recorded models of every operator."""


def key_of(graph: Graph) -> frozenset[str]:
    """Operators with formulas, elementwise ones by their modes."""
    oprs = [o for o in graph.needed(graph.outputs) if o.type in FORMULAS]
    return frozenset(o.title if o.type == "Elemwise" else o.type for o in oprs)


@cache
def samples() -> list[Sample]:
    found: list[Sample] = []
    count: dict[str, int] = {}
    for path in sorted((FIXTURES / "ops").rglob("*.mge")):
        if path.name.endswith(".v1.mge") or path.name.startswith("xfail_"):
            continue
        bundle = loadrun.load(path)
        graph = bundle.graph
        record = path.with_suffix(".npz")
        if bundle.checks:
            graph.outputs = [c.get for c in bundle.checks]
            feeds = dict(bundle.testcases[0].arrays)
        elif record.exists() and path.name.startswith("written_"):
            with np.load(record) as z:
                feeds = {k[3:]: z[k] for k in z.files if k.startswith("in.")}
        else:
            continue
        kinds = key_of(graph)
        oprs = graph.needed(graph.outputs)
        converts = any(o.type == "TypeCvtV2" for o in oprs)
        infer_dtypes(oprs)
        others = {v.dtype.name for o in oprs for v in o.outputs if v.dtype and v.dtype.name in HALVES}
        if not kinds or converts or others or all(count.get(k, 0) >= EACH for k in kinds):
            continue
        engine = WideEngine(graph)
        wide = engine.run(feeds)
        if engine.narrow or any(a.dtype != np.float64 for a in wide):
            continue
        count |= {k: count.get(k, 0) + 1 for k in kinds}
        found.append(Sample(str(path.relative_to(FIXTURES)), graph, feeds, wide, kinds))
    return found


def moved(x: Array) -> Array:
    return (x * 1.01 + 0.01).astype(x.dtype)


def is_float(x: object) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.size > 0


def wrong(function: Callable[..., Any], called: set[str], name: str) -> Callable[..., Any]:
    """A function that gives other numbers, whether it returns them or writes them into its arguments."""

    def changed(result: Any) -> Any:
        if is_float(result):
            called.add(name)
            return moved(result)
        if type(result) is tuple:
            return tuple(changed(r) for r in result)
        return wrong(result, called, name) if inspect.isfunction(result) else result

    def replacement(*args: Any, **named: Any) -> Any:
        given = [a for a in (*args, *named.values()) if is_float(a) and a.flags.writeable]
        before = [a.copy() for a in given]
        result = function(*args, **named)
        for a, old in zip(given, before, strict=True):
            if not np.array_equal(a, old, equal_nan=True):
                called.add(name)
                a[...] = moved(a)
                if result is a:
                    return result
        return changed(result)

    return replacement


@cache
def modules() -> dict[str, Any]:
    found = pkgutil.walk_packages(loadrun.ops.__path__, "loadrun.ops.")
    return {m.name.removeprefix("loadrun.ops."): importlib.import_module(m.name) for m in found}


@cache
def helpers() -> dict[str, Callable[..., Any]]:
    """All functions of the kernels' modules, but of those that only move numbers or convert between dtypes."""
    moving = {op.family for op in CATALOG.values() if Trait.MOVES in op.traits}
    rules = {*RULES, *moving, CONVERTS, "control", "infer", "numbering", "typeid"}
    return {
        f"{short}.{name}": value
        for short, module in modules().items()
        if short not in rules and not short.startswith("formulas")
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and (inspect.isfunction(value) or hasattr(value, "cache_clear"))
    }


@contextmanager
def made_wrong(names: Iterable[str]) -> Iterator[set[str]]:
    """Put wrong functions in the place of some helpers, wherever they are imported or listed.

    Yields:
        the names of those that gave or wrote numbers.
    """
    called: set[str] = set()
    instead = {id(helpers()[n]): wrong(helpers()[n], called, n) for n in names}
    undo: list[tuple[dict[Any, Any], Any, Any]] = []
    cached = [v for m in modules().values() for v in vars(m).values() if hasattr(v, "cache_clear")]
    for module in modules().values():
        tables = [v for n, v in vars(module).items() if isinstance(v, dict) and not n.startswith("__")]
        for table in (vars(module), *tables):
            undo += [(table, n, v) for n, v in table.items() if id(v) in instead]
    for table, name, value in undo:
        table[name] = instead[id(value)]
    for function in cached:
        function.cache_clear()
    try:
        yield called
    finally:
        for table, name, value in undo:
            table[name] = value
        for function in cached:
            function.cache_clear()


def test_samples_agree() -> None:
    """Without a wrong kernel both engines agree on every one."""
    assert [s.file for s in samples() if s.differs()] == []
    assert {s.file.split("/")[1] for s in samples()} == FOLDERS


def test_wrong_helpers_do_not_reach_the_float64_engine() -> None:
    with made_wrong(helpers()) as called:
        for sample in samples():
            for old, new in zip(sample.wide, sample.run(WideEngine), strict=True):
                np.testing.assert_array_equal(new, old, err_msg=sample.file)
    assert called == set()


HIDDEN = {
    "reduce._extreme": "changes the maximum of nothing but minus infinity, which no recorded sample has",
    "numeric.parallel.scratch": "gives memory to write into, whose numbers nobody reads",
    "numeric.special.round_half": "runs on float32 only because a wrong `rnn._as_is` is no longer that function",
}
"""Helpers that no number depends on here, and why."""


def test_the_reference_engine_shows_every_wrong_helper() -> None:
    """Each alone, on the first models in which it computes something."""
    where: dict[str, list[Sample]] = {}
    with made_wrong(helpers()) as called:
        for sample in samples():
            called.clear()
            sample.differs()
            for name in called:
                where.setdefault(name, []).append(sample)
    hidden = set()
    for name, found in where.items():
        with made_wrong([name]):
            if not any(s.differs() for s in found[:EACH]):
                hidden.add(name)
    assert hidden == set(HIDDEN)
    assert {n.rpartition(".")[0] for n in where} >= {
        *("attention", "conv.correlation", "conv.depthwise", "conv.fast", "conv.gemm"),
        *("conv.local", "conv.transpose", "conv.volume", "elemwise.floats", "image.resize", "image.roi"),
        *(
            "image.sampling",
            "image.warp",
            "image.warp_kernels",
            "norm",
            "numeric.parallel",
            "pooling",
            "reduce",
        ),
        *("rnn",),
    }


UNRECORDED = frozenset({"BatchConvBiasForwardV1", "Cross", "MaskConvolutionV2"})
"""Operators of which no fixture has numbers alone; `test_float64_formulas` holds their formulas against others'."""


@pytest.mark.parametrize("kind", sorted(set(FORMULAS) - UNRECORDED - COMPOSITE))
def test_the_reference_engine_shows_every_wrong_kernel(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registered kernel itself: the operator's numbers change here and stay there."""
    found = [s for s in samples() if any(o.type == kind for o in s.graph.needed(s.graph.outputs))][:EACH]
    assert found, f"no recorded {kind}"
    right = registry.implementation(kind)
    replaced = replace(right, kernel=wrong(right.kernel, set(), kind), bind=None)
    monkeypatch.setitem(registry._IMPLS, kind, replaced)
    assert any(s.differs() for s in found)
    for sample in found:
        for old, new in zip(sample.wide, sample.run(WideEngine), strict=True):
            np.testing.assert_array_equal(new, old, err_msg=sample.file)


def test_operators_without_records_are_those() -> None:
    """A fixture that comes later takes its operator off the list."""
    recorded = {o.type for s in samples() for o in s.graph.oprs}
    assert set(FORMULAS) - recorded - COMPOSITE == UNRECORDED
    assert not UNRECORDED & types(Trait.MOVES)
