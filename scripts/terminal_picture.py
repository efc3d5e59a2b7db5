"""Draw docs/terminal.svg: what a terminal shows while a broken weight is found.

The commands are run on fixtures in a folder of their own, and the picture holds what they print.

    python scripts/terminal_picture.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import loadrun
from loadrun.graph.dtypes import encode

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 118
NO_BREAK = "\N{NO-BREAK SPACE}"  # browsers join other spaces
LINE, CHARACTER, MARGIN = 17, 7.25, 16
GREEN, RED, ORANGE, GREY = "#7ee787", "#ff7b72", "#ffa657", "#c9d1d9"
COLORS = {
    "$ ": GREEN,
    " pass ": GREEN,
    ", 0 failed": GREEN,
    " FAIL ": RED,
    " 0 passed": RED,
    "to blame": ORANGE,
}


def break_a_weight(folder: Path) -> None:
    """Write good.mge and bad.mge, in which one weight has the wrong sign in nine places."""
    bundle = loadrun.load(ROOT / "fixtures/nets/resnet_basic.mge")
    loadrun.save(bundle, folder / "good.mge")
    tensors = (tensor for opr in bundle.graph.oprs for tensor in opr.tensors)
    weight = next(tensor for tensor in tensors if tensor.shape == (8, 6, 3, 3))
    value = weight.value().copy()
    value[2, 1] *= -1
    weight.data = encode(value, weight.dtype)
    loadrun.save(bundle, folder / "bad.mge")


def shown(folder: Path, arguments: str, keep: tuple[str, ...] = ()) -> list[str]:
    """A command as it is typed, and the lines that it prints: all, or those that begin with one of `keep`."""
    command = [sys.executable, "-m", "loadrun", *arguments.split()]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in ran.stdout.splitlines() if not keep or line.strip().startswith(keep)]
    return [
        f"$ loadrun {arguments}",
        *(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…" for line in lines),
        "",
    ]


def color(line: str) -> str:
    """What a line is drawn in."""
    return next((c for word, c in COLORS.items() if word in line), GREY)


def row(line: str, y: int) -> str:
    """A line of the terminal as an element of the picture."""
    text = escape(line, quote=False).replace(" ", NO_BREAK)
    return f'<text x="{MARGIN}" y="{y}" fill="{color(line)}">{text}</text>'


def picture(lines: list[str]) -> str:
    """The SVG text of a terminal that shows some lines."""
    width, height = round(WIDTH * CHARACTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = "\n".join(row(line, MARGIN + LINE * i - 4) for i, line in enumerate(lines, 1) if line)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f'<g font-family="Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="12">\n'
        f"{rows}\n</g>\n</svg>\n"
    )


def main() -> None:
    """Run the commands and write the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        break_a_weight(folder)
        lines = shown(folder, "good.mge")
        lines += shown(folder, "bad.mge", ("testcase  ", "---", "0 ", "1 ", "2 "))
        lines += shown(
            folder, "diff bad.mge --against good.mge --output guilty.mge", ("to blame", "constant", "guilty")
        )
    (ROOT / "docs/terminal.svg").write_text(picture(lines[:-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
