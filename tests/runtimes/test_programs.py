"""load_and_run and MegEngine's own Python, stood in for by programs that speak as they do."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, UsageError
from loadrun.engines import make_engine
from loadrun.graph import Graph
from loadrun.graph.dtypes import DType
from loadrun.runtimes.whole import MessageProcess
from loadrun.testing import GraphBuilder
from loadrun.verify.diff.stored import read_binary_dump

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs are scripts for a POSIX system")

HEAD = (
    "7502000000000000070000000100000"  # the length of the text, dtype 0 (float32), room for 7 sizes, size 1
    "00a0000000000000000000000000000000000000000000000"
)
"""The first 40 bytes of what load_and_run 1.13.0 wrote for a float32 variable of shape [1, 10]."""

TOOL = """
import struct, sys
sys.path.insert(0, {root!r})
import numpy as np, loadrun
from loadrun.engines.reference import ReferenceEngine
args = sys.argv[1:]
given = dict(zip(args[1::1], args[2::1]))
print("[22 04:13:26 run@strategy_normal.cpp:138] load_and_run:", file=sys.stderr)
print("using MegBrain 1.13.0(0) and MegDNN 9.3.0", file=sys.stderr)
assert given["--iter"] == "1" and given["--warmup_iter"] == "0" and ("--cpu" in args or "--multithread" in args)
graph = loadrun.load(args[0]).graph
feeds = {{}}
for part in filter(None, given.get("--input", "").split(";")):
    name, path = part.split(":", 1)
    feeds[name] = np.load(path)
{before}
for var, value in zip(graph.outputs, ReferenceEngine(graph).run(feeds)):
    sizes = list(value.shape) + [0] * (7 - value.ndim)
    shape = ",".join(map(str, value.shape))
    text = ("var={{id:%d, shape:{{%s}}, Float32, owner:op[1]{{Elemwise}}, name:%s, slot:0, "
            'CompNode("cpu0:0" from "xpux:0"), s, 4, 8}} owner_opr_inputs= 0={{id:1, name:in0, slot:0}}'
            % (var.id, shape, var.name)).encode()
    with open("%s/run0-var%d" % (given["--bin_out_dump"], var.id), "wb") as f:
        f.write(struct.pack("<3I7I", len(text), {kind}, 7, *sizes) + text + value.tobytes())
"""


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def tool(folder: Path, before: str = "", kind: int = 0) -> str:
    return f"load_and_run:{script(folder / 'tool', TOOL.format(root=str(ROOT), before=before, kind=kind))}"


def sums() -> Graph:
    """``x; y`` and ``name with spaces`` added; inputs whose names no command line can hold."""
    g = GraphBuilder()
    x, y = g.input("x; y:z", 2, 2), g.input("w w", 2)
    both = g.elemwise("ADD", x, y, name="a:b;c")
    return g.done(both, g.elemwise("NEGATE", both, name="n"), both)


FEEDS = {"x; y:z": np.array([[1, 2], [3, 4]], "f4"), "w w": np.array([10, 20], "f4")}


def test_files_go_to_load_and_run_and_come_back(tmp_path: Path) -> None:
    graph = sums()
    engine = make_engine(tool(tmp_path), graph, graph.outputs)
    found = [a.tolist() for a in engine.run(FEEDS)]
    assert found == [[[11, 22], [13, 24]], [[-11, -22], [-13, -24]], [[11, 22], [13, 24]]]
    assert (engine.about.version, engine.about.arithmetic) == ("1.13.0", "float32")


def test_checks_are_judged_here(tmp_path: Path, fixtures: Path) -> None:
    results = list(loadrun.Runner(fixtures / "nets" / "mlp.mge", tool(tmp_path)).replay())
    assert [r.verdict.value for r in results] == ["pass"] * 3


def test_the_layout_is_that_of_the_tool(tmp_path: Path) -> None:
    text = (b"var={id:241, shape:{1,10}, Float32, owner:x, name:out, slot:0, }" + b" " * 629)[:629]
    path = tmp_path / "run0-var241"
    path.write_bytes(bytes.fromhex(HEAD) + text + np.arange(10, dtype="<f4").tobytes())
    name, value = read_binary_dump(path)
    assert (name, value.tolist()) == ("out", [list(range(10))])
    quantized = {"out": DType("QuantizedS32", 0.5)}
    assert read_binary_dump(path, quantized)[1].dtype == np.int32


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (
            "sys.stderr.write('terminate called after throwing\\n  what():  mgb::AssertionError: assertion failed\\n"
            "backtrace:\\n0x1'); sys.exit(134)",
            r"load_and_run was killed by SIGABRT: mgb::AssertionError: assertion failed$",
        ),
        ("import os; os.kill(os.getpid(), 11)", "load_and_run was killed by SIGSEGV"),
        ("sys.exit('ERROR: unknown command line flag')", "exit code 1: ERROR: unknown command line flag"),
        ("sys.exit(0)", "wrote no value of 'a:b;c'"),
    ],
)
def test_errors_of_load_and_run(before: str, said: str, tmp_path: Path) -> None:
    graph = sums()
    with pytest.raises(EngineError, match=said):
        make_engine(tool(tmp_path, before), graph, graph.outputs).run(FEEDS)


def test_where_load_and_run_is() -> None:
    graph = sums()
    with pytest.raises(UsageError, match="give its path, as in load_and_run:/path"):
        make_engine("load_and_run", graph, graph.outputs)
    with pytest.raises(UsageError, match=r"no program '\./absent'"):
        make_engine("load_and_run:./absent", graph, graph.outputs)


PYTHON = """
import json, sys
sys.path.insert(0, {root!r})
import numpy as np, loadrun
from loadrun.engines.reference import ReferenceEngine
out, models, runs = sys.stdout.buffer, {{}}, 0
for line in sys.stdin.buffer:
    message = json.loads(line)
    arrays = {{}}
    for name, dtype, shape in message["arrays"]:
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(sys.stdin.buffer.read(count * np.dtype(dtype).itemsize), dtype).reshape(shape)
    answer, found = {{}}, []
    if message["do"] == "hello":
        answer["version"] = "1.13.0"
    elif message["do"] == "load":
        models[message["model"]] = loadrun.load(message["path"], copy=True).graph
    elif message["do"] == "run":
        {before}
        found = ReferenceEngine(models[message["model"]]).run(arrays)
    answer["arrays"] = [["", a.dtype.str, list(a.shape)] for a in found]
    out.write(json.dumps(answer).encode() + b"\\n" + b"".join(a.tobytes() for a in found))
    out.flush()
"""


def python(folder: Path, before: str = "pass") -> str:
    return f"megengine:{script(folder / 'python', PYTHON.format(root=str(ROOT), before=before))}"


def test_a_process_for_all_models(tmp_path: Path) -> None:
    spec = python(tmp_path)
    graphs = [sums(), sums()]
    engines = [make_engine(spec, g, g.outputs) for g in graphs]
    for engine in engines * 2:
        assert engine.run(FEEDS)[1].tolist() == [[-11, -22], [-13, -24]]
    about = engines[0].about
    assert (about.engine, about.version, about.arithmetic) == ("megengine", "1.13.0", "float32")
    assert about.provider == spec.partition(":")[2]


def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    graph = sums()
    mark = tmp_path / "once"
    before = f"import os; os.path.exists({str(mark)!r}) or (open({str(mark)!r}, 'w').close(), os.kill(os.getpid(), 6))"
    engine = make_engine(python(tmp_path, before), graph, graph.outputs)
    with pytest.raises(EngineError, match="MegEngine was killed by SIGABRT"):
        engine.run(FEEDS)
    assert engine.run(FEEDS)[0].tolist() == [[11, 22], [13, 24]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; sys.exit('no module named megengine')", "exit code 1: no module named megengine"),
        ("print('hello')\nimport time; time.sleep(9)", "sent 'hello', which is not a valid answer"),
        ('print(\'{"arrays": [["", "|O", [1]]]}\', flush=True)', "which is not a valid answer"),
    ],
)
def test_what_is_no_megengine(text: str, said: str, tmp_path: Path) -> None:
    graph = sums()
    spec = f"megengine:{script(tmp_path / 'python', text)}"
    with pytest.raises(UsageError, match=f"cannot run MegEngine: .*{said}"):
        make_engine(spec, graph, graph.outputs)


def test_a_python_that_is_not_there() -> None:
    graph = sums()
    with pytest.raises(UsageError, match=r"cannot be started: \./absent: No such file"):
        make_engine("megengine:./absent", graph, graph.outputs)


def test_a_process_of_a_parent_is_not_used(tmp_path: Path) -> None:
    worker = MessageProcess([sys.executable, "-c", "input()"], "it")
    assert worker.alive
    worker.owner += 1
    assert not worker.alive
    worker.owner -= 1
    worker.close()
    assert not worker.alive


@pytest.mark.oracle
def test_megengine_gives_what_files_recorded(fixtures: Path) -> None:
    spec = f"megengine:{os.environ['LOADRUN_ORACLE']}"
    for name in ("bert", "detector_rcnn", "layout_quant_nchw44", "mlp", "quant_resnet_tqt", "unet"):
        for result in loadrun.Runner(fixtures / "nets" / f"{name}.mge", spec).replay():
            assert result.verdict.value == "pass", (name, result)
            assert max(o.error or 0.0 for o in result.outputs) <= 1e-5


@pytest.mark.oracle
def test_errors_of_megengine() -> None:
    g = GraphBuilder()
    x, y = g.input("x", 2), g.input("y", 3)
    graph = g.done(g.elemwise("ADD", x, y))
    engine = make_engine(f"megengine:{os.environ['LOADRUN_ORACLE']}", graph, graph.outputs)
    with pytest.raises(EngineError, match=r"^MegEngine: "):
        engine.run({"x": np.zeros(2, "f4"), "y": np.zeros(3, "f4")})
