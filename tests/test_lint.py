"""Promises that code can break: nothing from a file is executed, and no file is opened by a name from a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "loadrun").rglob("*.py"))
RUN = {"eval", "exec", "compile", "__import__", "execfile", "breakpoint", "input"}
MODULES = {
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "joblib",
    "code",
    "codeop",
    "runpy",
    "imp",
    "pdb",
}
MODULES |= {"subprocess", "socket", "http", "ftplib", "telnetlib", "xmlrpc", "smtplib", "webbrowser", "pty"}
CALLS = {
    *("os.system", "os.popen", "os.execv", "os.execvp", "os.spawnv", "os.startfile", "numpy.load", "np.load"),
    *(
        "np.fromfile",
        "np.memmap",
        "np.loadtxt",
        "np.genfromtxt",
        "numpy.fromfile",
        "cv2.imread",
        "torch.load",
    ),
    *("onnx.load", "yaml.load", "builtins.eval", "builtins.exec", "importlib.__import__"),
}
CODE = {
    "loadrun/cli/accept.py": {"input"},
    "loadrun/inputs/transform.py": {"compile", "eval"},
    "loadrun/megengine/__main__.py": {"runpy"},
    "loadrun/megengine/hub/hub.py": {"exec_module", "urlopen"},
}
"""Where code is run, checked or because a call says so, and where the network or the user is asked."""
IMPORTS = {
    "loadrun/base/configuration.py": "tomllib, or tomli for Python before 3.11",
    "loadrun/base/registry.py": "a module or attribute that a registry's own line names",
    "loadrun/cli/__init__.py": "a command listed there",
    "loadrun/cli/parsers.py": "a command listed there",
    "loadrun/megengine/absent.py": "a module of the tables there",
    "loadrun/megengine/in_place/megengine.py": "a module of `loadrun.megengine`, for MegEngine's name of it",
    "loadrun/megengine/hub/hub.py": "the hub's own function of that name: code that a call names",
}
"""Where a module is imported by a name that is computed, and where the name comes from."""
STARTS = {
    "loadrun/runtimes/whole.py": "MegEngine and load_and_run, as the command line names them",
    "loadrun/onnx/truth.py": "this Python, for ONNX Runtime's session of a large model",
    "loadrun/verify/blame_pass.py": "this Python, for ONNX Runtime's log of a model",
}
"""Where processes are started, and which."""
OPENS = {
    "loadrun/runtimes/megengine_worker.py": "the dump that loadrun wrote for it",
    "loadrun/base/files.py": "the functions that all others use",
    "loadrun/base/writing.py": "the functions that all others use",
    "loadrun/base/remote.py": "a temporary, in a folder of its own, that is sent to a URL",
    "loadrun/cli/__init__.py": "the null device",
    "loadrun/inputs/lists.py": "a list from a pipe, given in the command line",
    "loadrun/base/logger.py": "the log file that a call names",
    "loadrun/base/limits.py": "what the system says of itself",
    "loadrun/ops/numeric/parallel.py": "what the system says of itself",
    "loadrun/megengine/hub/hub.py": "the archive of a repository that a call names, while it is unpacked",
}
"""Where files are opened otherwise than by `loadrun.base.files` and `writing`."""
WORKERS = {
    "loadrun/base/pipes.py": {"subprocess", "pickle.loads", "os.fdopen"},
}
"""What starts workers and hears them: through pipes that no other process holds, and no file's bytes are a message.

It starts the command of `reduce --fails` as well, as the command line has it.
"""
OPENING = {"open", "os.open", "os.fdopen", "io.open", "io.FileIO", "codecs.open"}
OPENING |= {"tempfile.mkstemp", "tempfile.mkdtemp", "tempfile.NamedTemporaryFile"}
METHODS = {"read_bytes", "read_text", "write_bytes", "write_text", "open"}
PATHS = {
    "loadrun/base/files.py": "the functions that all others use",
    "loadrun/base/writing.py": "the functions that all others use",
    "loadrun/verify/bench/environment.py": "what the system says of itself",
    "loadrun/verify/pack/unpacking.py": "a folder that is only just made",
    "loadrun/inputs/files.py": "a member of an open archive",
    "loadrun/verify/saved.py": "a member of an open archive",
}
"""Where methods of paths and archives open something."""


UNPICKLES = "loadrun/dump/checkpoint/machine.py"
"""What has an unpickler, with a `find_class` that looks nothing up."""


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of an expression that is one, else an empty text."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def faults(tree: ast.Module, path: str) -> Iterator[str]:
    """What a module does that none may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
            if names == ["pickle"]:
                yield f"{path}:{node.lineno} imports from pickle"
        else:
            names = []
        names = [n for n in names if not ((n == "subprocess" and path in STARTS) or n in CODE.get(path, ()))]
        yield from (f"{path}:{node.lineno} imports {n}" for n in names if n.split(".")[0] in MODULES)  # type: ignore[attr-defined]
        if isinstance(node, ast.ClassDef) and path != UNPICKLES:
            bases = [dotted(b) for b in node.bases]
            yield from (f"{path}:{node.lineno} derives from {b}" for b in bases if b.endswith("Unpickler"))
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        at = f"{path}:{node.lineno}"
        # Written pickles are data for MegEngine; none is ever read.
        if (
            (name in RUN - CODE.get(path, set()))
            or name in CALLS
            or (name.startswith("pickle.") and name != "pickle.dumps")
        ):
            yield f"{at} calls {name}"
        if name.split(".")[-1] in {"exec_module", "urlopen"} - CODE.get(path, set()):
            yield f"{at} calls {name}"
        computed = not (node.args and isinstance(node.args[0], ast.Constant))
        if name.split(".")[-1] == "import_module" and computed and path not in IMPORTS:
            yield f"{at} imports a module by a name that is computed"
        if name in OPENING and path not in OPENS:
            yield f"{at} opens a file by {name}"
        elif (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in METHODS
            and path not in {**PATHS, **OPENS}
        ):
            yield f"{at} opens a file by .{node.func.attr}"
        for given in node.keywords:
            wanted = isinstance(given.value, ast.Constant) and not given.value.value
            if given.arg in ("allow_pickle", "shell") and not wanted:
                yield f"{at} gives {given.arg}"


def test_promises() -> None:
    found = []
    for source in SOURCES:
        path = source.relative_to(ROOT).as_posix()
        tree = ast.parse(source.read_text(encoding="utf-8"))
        found += [f for f in faults(tree, path) if f.split()[-1] not in WORKERS.get(path, ())]
    assert found == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("eval('1')", "x.py:1 calls eval"),
        ("pickle.loads(data)", "x.py:1 calls pickle.loads"),
        ("pickle.Unpickler(f)", "x.py:1 calls pickle.Unpickler"),
        ("class A(pickle.Unpickler): pass", "x.py:1 derives from pickle.Unpickler"),
        ("from pickle import loads", "x.py:1 imports from pickle"),
        ("import marshal", "x.py:1 imports marshal"),
        ("import urllib\nimport http.client", "x.py:2 imports http.client"),
        ("np.load(path)", "x.py:1 calls np.load"),
        ("np.save(path, x, allow_pickle=True)", "x.py:1 gives allow_pickle"),
        ("run('ls', shell=flag)", "x.py:1 gives shell"),
        ("open(name)", "x.py:1 opens a file by open"),
        ("Path(name).read_bytes()", "x.py:1 opens a file by .read_bytes"),
        ("path.open('wb')", "x.py:1 opens a file by .open"),
        ("spec.loader.exec_module(module)", "x.py:1 calls spec.loader.exec_module"),
        ("urllib.request.urlopen(url)", "x.py:1 calls urllib.request.urlopen"),
        ("importlib.import_module(name)", "x.py:1 imports a module by a name that is computed"),
    ],
)
def test_the_lint_finds(source: str, found: str) -> None:
    assert list(faults(ast.parse(source), "x.py")) == [found]


def test_reading_a_dump_knows_no_way_to_a_file() -> None:
    """Of the readers of dumps only these open anything: the file itself, a strip info file."""
    for path in (ROOT / "loadrun" / "dump").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {dotted(n.func).split(".")[-1] for n in ast.walk(tree) if isinstance(n, ast.Call)}
        opening = names & {"open", "opened", "mapped", "contents", "Path", *METHODS}
        allowed = {
            "container.py": {"mapped"},
            "options.py": {"contents", "Path"},
            "store.py": {"mapped"},
        }
        assert opening == allowed.get(path.name, set()), path.name


def test_no_exception_is_left_that_nothing_needs() -> None:
    computed = [
        p for p in IMPORTS if not re.search(r"import_module\((?!\")", (ROOT / p).read_text(encoding="utf-8"))
    ]
    assert computed == []


def test_no_test_module_imports_another() -> None:
    """What several share stands in tests/support/."""
    imported = re.compile(r"^ *(?:from|import) (tests\b.*?)(?:\)|(?<![(,])$)", re.M | re.S)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for names in imported.findall(path.read_text(encoding="utf-8")):
            assert not re.search(r"\btest_", names), f"{path}: {names}"


def test_every_test_file_is_collected() -> None:
    """pytest leaves out folders of some names, such as build."""
    left_out = {"build", "dist", "node_modules", "venv", "_darcs", "CVS"}
    files = [p.relative_to(ROOT) for p in (ROOT / "tests").rglob("test_*.py")]
    assert files
    assert [
        str(p) for p in files if left_out.intersection(p.parts) or any(s.startswith(".") for s in p.parts)
    ] == []


def returns_of_nothing(source: str) -> list[str]:
    """Functions that return nothing and whose docstring begins with "Return"."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and isinstance(node.returns, ast.Constant)
        and node.returns.value is None
        and (ast.get_docstring(node) or "").startswith(("Return ", "Yield "))
    ]


def test_docstrings_promise_no_result_where_there_is_none() -> None:
    assert returns_of_nothing('def f(x: int) -> None:\n    """Return the square."""') == ["f"]
    wrong = {path.name: names for path in SOURCES if (names := returns_of_nothing(path.read_text("utf-8")))}
    assert wrong == {}


LINES, FIELDS = 500, 12
"""What a file and a record may hold, so that one reader can."""
LARGE_RECORDS = "Opr"
"""Records with more fields; none is added."""


def fields(record: ast.ClassDef) -> int:
    """How many fields a dataclass or a named tuple declares; 0 for other classes, parameters and options."""
    decorated = any("dataclass" in ast.unparse(d) for d in record.decorator_list)
    bases = {dotted(b).split(".")[-1] for b in record.bases}
    if not (decorated or "NamedTuple" in bases) or record.name.endswith(("Options", "Arguments")):
        return 0
    return sum(
        isinstance(n, ast.AnnAssign) and "ClassVar" not in ast.unparse(n.annotation) for n in record.body
    )


def test_no_file_is_longer_than_one_can_read() -> None:
    lengths = {p.relative_to(ROOT / "loadrun").as_posix(): p.read_text("utf-8").count("\n") for p in SOURCES}
    assert not [p for p, n in lengths.items() if n > LINES]


def test_no_record_has_more_fields_than_one_can_hold() -> None:
    (planted,) = ast.parse("@dataclass\nclass A:\n    a: int\n    b: ClassVar[int] = 1").body
    assert isinstance(planted, ast.ClassDef)
    assert fields(planted) == 1
    records = [
        node
        for path in SOURCES
        # The wire has what MegEngine and ONNX say.
        if path.parent.name != "params" and path.name != "messages.py"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(r.name for r in records if fields(r) > FIELDS) == LARGE_RECORDS.split()
