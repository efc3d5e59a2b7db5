"""List the literal collections of operators and elementwise modes outside the catalog and the table of modes.

What is known of an operator belongs into its line of `ops/catalog.py`, and what is known of a mode into its row of
`ops/elemwise/table.py`; sets of them are derived from traits. A tuple, list, set or dict that names two or more of
them elsewhere is a table of its own, which a new operator would have to be added to. Not counted are `__all__`, names
for enum members (``LT, LEQ = Mode.LT, Mode.LEQ``) and registrations beside a function (``@kernel("Softmax")``).

    python scripts/operator_tables.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loadrun.graph.params import ElemwiseMode, ElemwiseMultiTypeMode
from loadrun.ops.catalog import CATALOG

ROOT = Path(__file__).resolve().parent.parent
HOMES = ("loadrun/ops/catalog.py", "loadrun/ops/elemwise/table.py")
"""Where such tables belong."""
ONNX = ("loadrun/onnx/operators/", "loadrun/onnx/traced/")
"""Where texts name ONNX's operators, of which some are called as MegEngine's."""
ENUMS = frozenset(("ElemwiseMode", "ElemwiseMultiTypeMode"))
MODES = frozenset(mode.name for mode in (*ElemwiseMode, *ElemwiseMultiTypeMode))
NAMES = frozenset(n for op in CATALOG.values() for n in (op.name, op.class_name))


class Table(NamedTuple):
    """One collection: where it stands and the names in it."""

    file: str
    line: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} names {len(self.names)}: {', '.join(self.names)}"


def aliases(tree: ast.AST) -> frozenset[str]:
    """The names by which a file knows the enums of elementwise modes."""
    found, others = set(ENUMS), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names if a.name in (*ENUMS, "M")}
            others |= {a.asname for a in node.names if a.asname and a.name not in ENUMS}
        elif isinstance(node, ast.Assign) and getattr(node.value, "attr", "") in ENUMS:
            found |= {ast.unparse(t) for t in node.targets}
    # The same letter may stand for another enum in another file.
    return frozenset(found - others)


def elements(node: ast.AST) -> list[ast.expr]:
    """What a literal collection holds, and the words of a text that is nothing but names; nothing of others."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [e.value if isinstance(e, ast.Starred) else e for e in node.elts]
    if isinstance(node, ast.Dict):
        return [e for e in (*node.keys, *node.values) if e is not None]
    words = node.value.split() if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
    return [ast.Constant(word) for word in words] if len(words) > 1 and set(words) <= NAMES else []


def names(node: ast.AST, enums: frozenset[str], texts: bool) -> Iterator[str]:
    """The operators (where texts name them) and modes that a collection names, nested ones included."""
    for e in elements(node):
        if texts and isinstance(e, ast.Constant) and e.value in NAMES:
            yield str(e.value)
        elif (
            isinstance(e, ast.Attribute) and e.attr in MODES and ast.unparse(e.value).split(".")[-1] in enums
        ):
            yield e.attr
        yield from names(e, enums, texts)


def tables_of(source: str, file: str) -> Iterator[Table]:
    """The tables of one file."""
    if len((NAMES | MODES) & set(re.findall(r"\w+", source))) < 2:
        return
    tree = ast.parse(source)
    enums, texts = aliases(tree), not file.startswith(ONNX)
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(targets[0], ast.Tuple) or ast.unparse(targets[0]) == "__all__":
                passed.add(node.value)
        if node in passed or not (found := tuple(dict.fromkeys(names(node, enums, texts)))):
            continue
        passed.update(ast.walk(node))
        if len(found) > 1:
            yield Table(file, getattr(node, "lineno", 0), found)


def tables() -> list[Table]:
    """All tables of the package outside their homes."""
    files = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "loadrun").rglob("*.py"))]
    return [t for f in files if f not in HOMES for t in tables_of((ROOT / f).read_text(encoding="utf-8"), f)]


if __name__ == "__main__":
    found = tables()
    print(*found, sep="\n")
    print(f"{len(found)} tables with {sum(len(t.names) for t in found)} names")
