"""Count the lines of the package and those of them that are code: neither blank, nor comment, nor docstring.

python scripts/code_lines.py [FOLDER]
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OTHER = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    """Return how many lines of a source file are code."""
    lines = {
        line
        for token in tokenize.generate_tokens(
            iter(path.read_text("utf-8").splitlines(keepends=True)).__next__
        )
        if token.type not in OTHER
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def main(folder: Path = ROOT / "loadrun") -> None:
    """Print both numbers for each package of a folder, and in all."""
    lines, code = Counter[str](), Counter[str]()
    for path in folder.rglob("*.py"):
        package = path.relative_to(folder).parts[0] if path.parent != folder else "."
        lines[package] += len(path.read_bytes().splitlines())
        code[package] += code_lines(path)
    for package, count in [*lines.most_common(), ("all", lines.total())]:
        print(f"{count:7} {code[package] if package != 'all' else code.total():7}  {package}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
