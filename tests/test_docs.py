"""The documentation says what is true: the site has its tables, the README's Python runs."""

from __future__ import annotations

import ast
import json
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

from loadrun.cli import COMMANDS, main
from loadrun.cli.parsers import options, parsers

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    p.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md", "fixtures/README.md")
    for p in ROOT.glob(pattern)
)


TABLES = runpy.run_path(str(ROOT / "scripts" / "site_tables.py"))


def first_cells(text: str) -> set[str]:
    """What stands first in the rows of Markdown tables."""
    return {
        name for cell in re.findall(r"^\| (`.*?`) \| ", text, re.M) for name in re.findall(r"`([^`]+)`", cell)
    }


@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- tables: " in (ROOT / p).read_text("utf-8")])
def test_the_site_makes_the_tables_that_pages_name(page: str) -> None:
    made = TABLES["on_page_markdown"]((ROOT / page).read_text(encoding="utf-8"))
    assert "<!-- tables:" not in made
    assert "| --- |" in made or "where torch is installed" in made


@pytest.mark.parametrize("kind", ["megengine", "onnx-written"])
def test_tables_name_every_operator_of_megengine(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    registry = json.loads((ROOT / "tests" / "data" / "registry.json").read_text())
    names = {row["name"] for row in registry["operators"]}
    assert names <= first_cells(TABLES["tables"](kind))
    assert main(["info", "--operators", kind]) == 0
    assert names <= {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}


def test_tables_name_operators_of_onnx_and_functions_of_numpy(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, names in {"onnx": {"Conv", "TreeEnsemble"}, "numpy": {"einsum", "linalg.inv"}}.items():
        assert names <= first_cells(TABLES["tables"](kind))
        assert main(["info", "--operators", kind]) == 0
        assert names <= {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "load_and_run"])
def test_the_page_of_options_has_what_help_prints(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    printed = set(re.findall(r"^  (--?[a-z][\w-]*)", capsys.readouterr().out, re.M)) - {"-h"}
    section = TABLES["tables"]("options").split(f"\n## {command}\n")[1].split("\n## ")[0]
    assert {o.split(" ")[0] for o in first_cells(section)} >= printed


def test_readme_python(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "pass" in out
    assert "'out'" in out


def without_measurements(table: str) -> list[list[str]]:
    """The words of every line; errors and times, which differ from machine to machine, stand as ``#``."""
    number = re.compile(r"\d\.\d+e-\d\d|\d+\.\d\d")
    return [
        ["#" if number.fullmatch(w) else w.strip("-") for w in line.split()] for line in table.splitlines()
    ]


def test_readme_shows_what_its_first_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command, shown = re.findall(r"```(?:sh)?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:2]
    assert main(command.split("bin/loadrun ")[1].split()) == 0
    assert without_measurements(capsys.readouterr().out) == without_measurements(shown)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", h).strip().lower()) for h in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_hold(page: str) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def test_the_site_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = set(re.findall(r": (\S+\.md)$", nav, re.M))
    assert {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")} <= named


COMMAND = re.compile(r"(?:^|[`;&|(]|\bbin/)\s*loadrun ([^`\n;&|)]*)", re.M)
"""A command line of loadrun, in a block or in the text."""


def unknown_options(text: str) -> list[str]:
    """Command lines of a page with an option that the command does not have."""
    known = {name: {o for a in options(p) for o in a.option_strings} for name, (_, p) in parsers().items()}
    wrong = []
    for line in COMMAND.findall(text.replace("\\\n", " ")):
        words = line.partition(" #")[0].split()
        name = words[0] if words and words[0] in known else "run"
        given = (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word))
        # MegEngine's tool takes its flags in every spelling; its own page lists them.
        if name != "load_and_run" and any(o not in known[name] and o != "--version" for o in given):
            wrong.append(line)
    return wrong


@pytest.mark.parametrize("page", [p for p in PAGES if p != "CHANGELOG.md"])
def test_options_in_pages_exist(page: str) -> None:
    assert unknown_options((ROOT / page).read_text(encoding="utf-8")) == []


def test_unknown_options_are_seen() -> None:
    text = "```sh\nloadrun pack m.mge -o x --repeat 2\nloadrun m.mge --pack\n```\nor `loadrun info --iter 3 m.mge`."
    assert unknown_options(text) == ["m.mge --pack", "info --iter 3 m.mge"]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or leads from one to an attribute."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:at]))
        except ImportError:
            continue
        return all(hasattr(found, p) and (found := getattr(found, p)) is not None for p in parts[at:])
    return False


def test_names_of_the_package_exist() -> None:
    """What pages and docstrings call `loadrun.megengine.module.name`."""
    files = [ROOT / p for p in PAGES if p != "CHANGELOG.md"] + sorted((ROOT / "loadrun").rglob("*.py"))
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in set(re.findall(r"`(loadrun(?:\.\w+)+)", path.read_text(encoding="utf-8")))
        if name != "loadrun.toml" and not resolves(name)
    ]
    assert wrong == []
    assert not resolves("loadrun.tracing.trace.dumped")


def test_every_promise_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = page.split("## Promises")[1].split("## Functions")[0].splitlines()
    promises = [r for r in rows if r.startswith("| ") and "---" not in r][1:]
    assert len(promises) == 18
    for row in promises:
        named = re.findall(r"`((?:tests/[\w/]*)?(?:test_\w+\.py)?(?:::\w+)?)`", row.split("|")[3])
        assert named, row
        file = folder = ""
        for name in named:
            path, _, function = name.partition("::")
            if path:
                folder = path.rpartition("/")[0] if "/" in path else folder
                file = f"{folder}/{path.rpartition('/')[2]}"
            text = (ROOT / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, name


PYTHON_OPTIONS = {"--loadrun-engine", "--loadrun-timeout"}
STYLES = {"page.py", "notebook.py", "plots.py"}
"""Files with style sheets, whose variables are written like options."""


def named_options(source: str) -> set[str]:
    """The options that the texts of a file name."""
    texts = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
    return {o for t in texts if isinstance(t, str) for o in re.findall(r"(?<![\w-])--[a-z][\w-]*\w", t)}


def test_messages_name_options_that_exist() -> None:
    known = {o for _, p in parsers().values() for a in options(p) for o in a.option_strings}
    known |= {"--version", "--help", "--name", "--noname", *PYTHON_OPTIONS}
    spelled = {o.replace("_", "-") for o in known}
    wrong = {
        f"{path.name}: {o}"
        for path in (ROOT / "loadrun").rglob("*.py")
        if path.name not in STYLES
        for o in named_options(path.read_text(encoding="utf-8"))
        if o.replace("_", "-") not in spelled
    }
    assert wrong == set()
    assert named_options('raise UsageError(f"{x}: drop --batch")') == {"--batch"}
