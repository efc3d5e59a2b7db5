"""Imports go downward only, along the edges that the table in docs/architecture.md allows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from loadrun.tensors import Tensor, TracedInt

PACKAGE = "loadrun"
OPTIONAL = re.compile(r"#.*\boptional\b")
"""What the comment of an import inside a function says."""
INSIDE = {
    "loadrun/__main__.py": "before it the collector is turned off",
    "loadrun/onnx/traced/recording.py": "modules that register what they hold with it",
}
"""Imports inside functions of packages that are not optional, and why."""

NAMED = re.compile(rf"({PACKAGE}(?:\.\w+)+):\w+")
"""What stands higher, as `loadrun.base.registry` finds it."""


class Import(NamedTuple):
    """One imported module.

    Attributes:
        file: where it stands.
        line: its line.
        target: the module's full name.
        inside: whether it stands inside a function.
        typing: whether it stands under ``if TYPE_CHECKING``, or is of a name that a package exports.
        named: whether it is a text, ``"module:attribute"``, which `loadrun.base.registry` resolves when it is needed.
    """

    file: str
    line: int
    target: str
    inside: bool
    typing: bool
    named: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


parsed = cache(ast.parse)


@pytest.fixture(scope="module", autouse=True)
def _released() -> Iterator[None]:
    """Let no later search for garbage walk through the trees."""
    yield
    parsed.cache_clear()


def package(module: str) -> str:
    """The package of a module: ``loadrun.ops.conv.plain`` lies in ``ops``, the root itself in ``loadrun``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else PACKAGE


def imports(source: str, file: str, module: str, modules: frozenset[str]) -> Iterator[Import]:
    """Every import of a file, and every text ``"loadrun.module:attribute"``."""
    package = module.split(".")
    if not file.endswith("__init__.py"):
        package = package[:-1]

    # Only such texts stand in expressions; imports are statements.
    parts = ast.AST if NAMED.search(source) else (ast.stmt, ast.excepthandler, ast.match_case)

    def visit(node: ast.AST, inside: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, parts):
                continue
            for target in targets(child):
                named = isinstance(child, ast.Constant)
                yield Import(file, getattr(child, "lineno", 0), target, inside, typing, named)
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            for_types |= isinstance(child, ast.With) and "exported(" in ast.unparse(child.items[0])
            yield from visit(child, inside or function, typing or for_types)

    def targets(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for a in node.names:
                yield f"{base}.{a.name}" if f"{base}.{a.name}" in modules else base
        elif isinstance(node, ast.Constant) and (found := NAMED.fullmatch(str(node.value))):
            yield found[1]

    yield from visit(parsed(source), False, False)


@cache
def sources(root: Path) -> dict[str, tuple[str, str]]:
    """File and text of every module of the package."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = (str(path.relative_to(root)), path.read_text(encoding="utf-8"))
    return found


@cache
def found_imports(root: Path) -> list[tuple[str, Import]]:
    """Pairs of a module and an import in it."""
    modules = frozenset(sources(root))
    return [(m, i) for m, (file, text) in sources(root).items() for i in imports(text, file, m, modules)]


def table(text: str, title: str) -> dict[str, frozenset[str]]:
    """A table of two columns below a heading: names in backticks on both sides."""
    section = text.split(f"\n### {title}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    allowed: dict[str, frozenset[str]] = {}
    for left, right in rows:
        for name in re.findall(r"`(\w+)`", left):
            allowed[name] = allowed.get(name, frozenset()) | frozenset(re.findall(r"`(\w+)`", right))
    return allowed


@pytest.fixture(scope="module")
def root() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def edges(root: Path) -> dict[str, frozenset[str]]:
    """What every package may import."""
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    return table(text, "Who may import whom")


def test_every_package_stands_in_the_table_once(root: Path, edges: dict[str, frozenset[str]]) -> None:
    packages = {package(m) for m in sources(root)}
    assert packages == set(edges)
    unknown = frozenset().union(*edges.values()) - set(edges)
    assert not unknown, f"named on the right alone: {sorted(unknown)}"


def test_the_table_has_no_circle(edges: dict[str, frozenset[str]]) -> None:
    try:
        tuple(TopologicalSorter(edges).static_order())
    except CycleError as e:
        pytest.fail(f"packages in a circle: {' -> '.join(e.args[1])}")


def test_imports_are_those_of_the_table(root: Path, edges: dict[str, frozenset[str]]) -> None:
    """Imports inside functions and under TYPE_CHECKING included; a name in the table that nothing uses goes."""
    used: dict[str, set[str]] = {name: set() for name in edges}
    wrong = []
    for module, found in found_imports(root):
        here, there = package(module), package(found.target)
        if found.named or found.target.split(".")[0] != PACKAGE or here == there:
            continue
        used[here].add(there)
        if there not in edges[here]:
            wrong.append(f"{found}, but {here} may not import {there}")
    assert not wrong, "\n".join(wrong)
    assert used == {name: set(below) for name, below in edges.items()}


def test_what_stands_higher_is_found_by_the_names_of_the_table(root: Path) -> None:
    text = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for module, named in found_imports(root):
        if named.named and package(module) != package(named.target):
            found.setdefault(package(module), set()).add(package(named.target))
    assert found == {name: set(above) for name, above in table(text, "Found by name").items()}


def test_imports_inside_functions_are_few_and_optional(root: Path) -> None:
    """What is there and loaded late is imported ``with late(__name__)``."""
    inside, wrong = 0, []
    for module, found in found_imports(root):
        if not found.inside or found.named:
            continue
        inside += 1
        near = sources(root)[module][1].splitlines()[found.line - 2 : found.line]
        if found.file not in INSIDE and not any(OPTIONAL.search(line) for line in near):
            wrong.append(f"{found} inside a function without saying that it is optional")
    assert not wrong, "\n".join(wrong)
    assert inside <= 40


def late_imports(source: str, module: str, is_package: bool) -> Iterator[str]:
    """The full names of what a file imports late."""
    package = module if is_package else module.rpartition(".")[0]
    for block in parsed(source).body:
        if not isinstance(block, ast.With) or not ast.unparse(block.items[0]).startswith("late("):
            continue
        for node in block.body:
            assert isinstance(node, (ast.Import, ast.ImportFrom)), f"{module}:{node.lineno} is no import"
            base = "" if isinstance(node, ast.Import) else node.module or ""
            if isinstance(node, ast.ImportFrom) and node.level:
                base = ".".join(filter(None, (package.rsplit(".", node.level - 1)[0], base)))
            yield from (".".join(filter(None, (base, a.name))) for a in node.names)


def test_what_is_imported_late_is_a_module(root: Path) -> None:
    """A name of a module would be a module itself."""
    late = {
        name
        for module, (file, source) in sources(root).items()
        for name in late_imports(source, module, file.endswith("__init__.py"))
    }
    assert "loadrun.engines.file_replay" in late
    assert [name for name in sorted(late) if find_spec(name) is None] == []


METHODS = ("loadrun.tensors.operators", "loadrun.tensors.value")
"""The files of the class `Tensor`, whose methods call functions that take tensors: they import these late."""


def test_files_form_no_circle(root: Path) -> None:
    """Not even inside a package, in functions, or for types alone."""
    modules = sources(root)
    graph: dict[str, set[str]] = {m: set() for m in modules}
    for module, found in found_imports(root):
        if not found.named and found.target in modules and found.target != module:
            graph[module].add(found.target)
    for module in modules:
        # A package's files are imported by its __init__, and name each other beneath it.
        graph[module] -= {m for m in graph[module] if module.startswith(f"{m}.")}
    for module in METHODS:
        graph[module] -= set(late_imports(modules[module][1], module, False))
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as e:
        pytest.fail(f"files in a circle: {' -> '.join(e.args[1])}")


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Lines and names of the private attributes that a file uses of anything but its own `self` and `cls`."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not own:
                yield node.lineno, node.attr


DERIVED = {"loadrun.arrays.array", "loadrun.arrays.array_methods"}
"""The files of the classes derived from `Tensor`, which know its state as any class knows its parent's."""


def attributes_of_tensors() -> set[str]:
    """The private attributes of tensors and of sizes."""
    names = {n for kind in (Tensor, TracedInt) for n in (*dir(kind), *kind.__annotations__)}
    return {n for n in names | set(vars(Tensor(0))) if re.fullmatch(r"_[a-z]\w*", n)}


def test_packages_read_the_state_of_tensors_by_functions(
    root: Path, edges: dict[str, frozenset[str]]
) -> None:
    private, derived = attributes_of_tensors(), set()
    wrong = []
    for module, (file, source) in sources(root).items():
        if "tensors" not in edges[package(module)]:
            continue
        used = [
            f"{file}:{line} uses {name} of a tensor"
            for line, name in private_names(source)
            if name in private
        ]
        if module in DERIVED:
            derived |= {module} if used else set()
        else:
            wrong += used
    assert not wrong, "\n".join(wrong)
    assert derived == DERIVED


DUMPED = """
import io, numpy, loadrun
double = loadrun.trace(lambda x: x * 2, symbolic=True, capture_as_const=True)
double(numpy.ones(2, "f4"))
double.dump(io.BytesIO(), user_info={"made": [1, 2]})
"""


@pytest.mark.parametrize("code", ["import loadrun.onnx", DUMPED])
def test_megengines_names_are_imported_by_those_who_ask(code: str) -> None:
    told = "import sys; print([m for m in sys.modules if m.startswith('loadrun.megengine')])"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{told}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def passed_on(source: str) -> Iterator[tuple[int, str]]:
    """Lines where parsed arguments leave the function that parsed them: annotations of a Namespace, calls with one."""
    if not re.search(r"Namespace|parse_args", source):
        return
    for node in ast.walk(parsed(source)):
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            if re.search(r"\bNamespace\b", ast.unparse(node.annotation)):
                yield node.lineno, "is annotated as a Namespace"
        elif isinstance(node, ast.FunctionDef):
            yield from _given_away(node)


def _given_away(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    parsed = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("parse_args")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) != "vars":
            for given in (*node.args, *(k.value for k in node.keywords)):
                if isinstance(given, ast.Name) and given.id in parsed:
                    yield node.lineno, f"hands {given.id} to {ast.unparse(node.func)}"


def test_parsed_arguments_become_records_where_they_are_parsed(root: Path) -> None:
    """Only `cli` parses, and a Namespace goes no deeper than the function that made it."""
    wrong = []
    for module, (file, source) in sources(root).items():
        if package(module) != "cli" and re.search(r"^\s*(from|import) argparse\b", source, re.M):
            wrong.append(f"{file} imports argparse")
        wrong += [f"{file}:{line} {what}" for line, what in passed_on(source)]
    assert not wrong, "\n".join(wrong)


PLANTED_ARGUMENTS = """
def main(argv):
    args = parser().parse_args(argv)
    run(args.files, vars(args))
    deeper(1, args)
def deeper(n, args: argparse.Namespace): ...
"""


def test_parsed_arguments_that_go_deeper_are_seen() -> None:
    assert sorted(passed_on(PLANTED_ARGUMENTS)) == [
        (5, "hands args to deeper"),
        (6, "is annotated as a Namespace"),
    ]


PLANTED = """
from .graph import Graph
def f():
    from .cli import main
    from .tracing import trace  # for start-up
    resolve("loadrun.arrays.protocol:array_ufunc")
if TYPE_CHECKING:
    from . import runner
"""


def test_imports_are_found() -> None:
    modules = frozenset(("loadrun", "loadrun.graph", "loadrun.cli", "loadrun.tracing", "loadrun.runner"))
    found = [*imports(PLANTED, "loadrun/dtypes.py", "loadrun.dtypes", modules)]
    assert [*private_names("self._a; x._b; x.c; x.__class__; cls._d")] == [(1, "_b")]
    assert [(i.target, i.inside, i.typing, i.named) for i in found] == [
        ("loadrun.graph", False, False, False),
        ("loadrun.cli", True, False, False),
        ("loadrun.tracing", True, False, False),
        ("loadrun.arrays.protocol", True, False, True),
        ("loadrun.runner", False, True, False),
    ]
