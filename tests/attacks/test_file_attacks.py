"""Files that change, are cut, are no files, or have names that are made to deceive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError
from loadrun.base.writing import replacing
from loadrun.cli import main
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.report import text
from loadrun.verify.bench import Timing
from tests.onnx.wire_models import graph, node
from tests.support.small_models import unary

MLP = "fixtures/nets/mlp.mge"
F32 = DType("Float32")
DECEIVING = "a\x1b[31mb\u202egpj.exe\x07\r\n"


def copied(folder: Path) -> Path:
    path = folder / "m.mge"
    path.write_bytes(Path(MLP).read_bytes())
    return path


# Changes


def test_a_file_that_is_cut_while_it_is_in_use(tmp_path: Path) -> None:
    """Reading behind the end of a mapped file kills a process; here it is a verdict."""
    path = copied(tmp_path)
    runner, kept = loadrun.Runner(path), loadrun.Runner(loadrun.load(path, copy=True))
    assert runner.replay_one(0).verdict.value == "pass"
    os.truncate(path, 0)
    result = runner.replay_one(1)
    assert result.verdict.value == "error"
    assert "m.mge: the file was written to while it was in use; load it again" in (result.message or "")
    with pytest.raises(FormatError, match="was written to"):
        runner.run({"data": np.zeros((1, 20), "f4")})
    with pytest.raises(FormatError, match="was written to"):
        list(runner.bundle.testcases[1:])
    assert [r.verdict.value for r in kept.replay()] == ["pass"] * 3


def test_a_file_that_is_written_to_or_replaced(tmp_path: Path) -> None:
    path = copied(tmp_path)
    runner = loadrun.Runner(path)
    with replacing(path) as f:
        f.write(b"another")
    assert [r.verdict.value for r in runner.replay()] == ["pass"] * 3, "the mapping keeps the replaced file"
    path.unlink()
    assert runner.replay_one(0).verdict.value == "pass"
    runner = loadrun.Runner(copied(tmp_path))
    os.utime(path, ns=(1, 1))
    assert runner.replay_one(0).verdict.value == "error"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
@pytest.mark.parametrize("command", ["run", "info", "convert", "pack"])
def test_a_pipe_as_model(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "p")
    for path, what in ((tmp_path / "p", "pipe"), (Path("/dev/zero"), "device")):
        more = {"convert": ["-o", f"{tmp_path}/o/"], "pack": ["-d", "#ones", "-o", str(tmp_path / "o")]}
        assert main([command, str(path), *more.get(command, [])]) == 2
        said = capsys.readouterr()
        assert f"a .mge file must be a regular file, not a {what}" in said.out + said.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no named pipes")
def test_a_list_from_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is read once, though its testcases are counted, run and timed."""
    os.mkfifo(tmp_path / "p")
    writer = threading.Thread(target=(tmp_path / "p").write_text, args=("# two\n#ones\n\ndata:#zeros\n",))
    writer.start()
    assert main([MLP, "--input", f"@{tmp_path / 'p'}", "--allow-uncompared", "--iter", "1"]) == 0
    writer.join()
    assert "2 testcases" in capsys.readouterr().out


# Verifying


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "packed.mge"
    assert main(["pack", MLP, "-d", "#rand(0,1)", "-o", str(path), "-q"]) == 0
    return path


@pytest.mark.parametrize(
    ("cut", "said", "code"),
    [(1, "claims", 2), (20, "claims", 2), (-3, "3 bytes after the end belong to no part of the file", 1)],
)
def test_verify_finds_what_was_cut_or_added(
    cut: int, said: str, code: int, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = packed.read_bytes()
    assert main([str(packed), "-q"]) == 0
    packed.write_bytes(data[:-cut] if cut > 0 else data + b"abc")
    assert main([str(packed), "-q"]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err


@pytest.mark.parametrize(
    ("part", "said"),
    [("weight", "the model is not the one that was packed"), ("input", "the input 'data' has changed")],
)
def test_verify_finds_a_changed_bit(
    part: str, said: str, packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The least bit of a number, which no check notices."""
    bundle, data = loadrun.load(packed, copy=True), bytearray(packed.read_bytes())
    weights = (
        t.data for o in bundle.graph.oprs for t in o.tensors if t.data is not None and t.data.size > 99
    )
    values = next(weights) if part == "weight" else bundle.testcases[0].inputs["data"]
    data[data.index(values.tobytes())] ^= 1
    packed.write_bytes(data)
    assert main([str(packed), "-q"]) == 1
    assert said in capsys.readouterr().out
    assert {r.verdict.value for r in loadrun.run(packed)} == {"pass"}


# Names


def named(*outputs: str) -> Graph:
    graph = unary()
    graph.outputs = []
    for name in outputs:
        mode = Elemwise(mode=ElemwiseMode.NEGATE)
        graph.outputs += graph.add("Elemwise", mode, inputs=graph.oprs[0].outputs, names=[name])
    return graph


def test_outputs_whose_names_become_equal(tmp_path: Path) -> None:
    names = ["a~", "a__2", "a/", "A_", "é", "é"]
    loadrun.save(named(*names), tmp_path / "m.mge")
    argv = [
        str(tmp_path / "m.mge"),
        "--input",
        "#ones",
        "--allow-uncompared",
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(argv) == 0
    assert len(os.listdir(tmp_path / "out")) == len(names)
    packed = str(tmp_path / "p.mge")
    assert main(["pack", str(tmp_path / "m.mge"), "-d", "#ones", "-o", packed, "-q"]) == 0
    assert main(["convert", packed, "-o", str(tmp_path / "u") + "/"]) == 0
    about = json.loads((tmp_path / "u" / "testcases.json").read_text())
    files = [v["file"].lower() for v in about["testcases"][0].values()]
    assert len(set(files)) == len(names) + 1


def test_files_of_one_name(tmp_path: Path) -> None:
    """Two models called m.mge, and the dumps of one file, keep their outputs apart."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        loadrun.save(unary(), tmp_path / folder / "m.mge")
    both = tmp_path / "b" / "m.mge"
    both.write_bytes(both.read_bytes() * 2)
    paths = [str(tmp_path / folder / "m.mge") for folder in ("a", "b")]
    assert main([*paths, "--input", "#ones", "--allow-uncompared", "--output", str(tmp_path / "out")]) == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["m.y.npy", "m.y_2.npy", "m.y_3.npy"]


def test_outputs_do_not_follow_links(tmp_path: Path) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("precious")
    out.mkdir()
    loadrun.save(unary(), tmp_path / "m.mge")
    for name in ("y.npy", "r.json", "o.mge"):
        (out / name).symlink_to(precious)
    model = str(tmp_path / "m.mge")
    common = ["--input", "#ones", "--allow-uncompared", "--output", str(out), "--json", str(out / "r.json")]
    assert main([model, *common]) == 0
    assert main(["pack", model, "-d", "#ones", "-o", str(out / "o.mge")]) == 0
    assert precious.read_text() == "precious"
    assert np.load(out / "y.npy").shape == (2, 3)


def test_nothing_from_a_file_commands_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of inputs, outputs and files, on both streams, in tables and messages, of every command."""
    graph = named(DECEIVING)
    graph.oprs[0].tensors[0].name = graph.oprs[0].outputs[0].name = DECEIVING
    graph.oprs[1].name = DECEIVING
    path = tmp_path / f"{DECEIVING}.mge"
    loadrun.save(graph, path)
    packed = str(tmp_path / "p.mge")
    codes = [
        main(
            [
                str(path),
                "--input",
                "#full(1e300)",
                "--allow-uncompared",
                "--output",
                str(tmp_path / DECEIVING),
            ]
        ),
        main([str(path), "--input", "x:#ones"]),
        main(["info", str(path), str(tmp_path / f"none{DECEIVING}")]),
        main(["info", "--json", str(path)]),
        main(["pack", str(path), "-d", "#ones", "-o", packed]),
        main([packed]),
        main(["convert", packed, "-o", str(tmp_path / f"u{DECEIVING}") + "/"]),
        main(["convert", packed, "-o", str(tmp_path / f"u{DECEIVING}") + "/"]),
        main([packed, "--json", str(tmp_path / DECEIVING)]),
        main([packed, f"--{DECEIVING}"]),
        main(["load_and_run", packed, "--model_info", "--verbose"]),
    ]
    assert codes == [0, 2, 2, 0, 0, 0, 0, 2, 2, 2, 0]
    said = capsys.readouterr()
    for line in (said.out + said.err).split("\n"):
        assert line.isprintable(), ascii(line)


def test_a_terminal_of_another_encoding(tmp_path: Path) -> None:
    loadrun.save(named("输出"), tmp_path / "m.mge")
    command = [sys.executable, "-m", "loadrun", str(tmp_path / "m.mge"), "--input", "#ones"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False
    )
    assert done.returncode == 3, done.stderr
    assert rb"\u8f93\u51fa" in done.stdout


def test_json_without_literals_that_are_none(tmp_path: Path) -> None:
    graph = Graph()
    for name in ("y:expect", "x"):
        graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (1,), name)], names=[name])
    (y,) = graph.add("Identity", inputs=graph.oprs[1].outputs, names=["y"])
    checked = [*graph.oprs[0].outputs, y, y]
    graph.outputs = graph.add("AssertEqual", AssertEqual(maxerr=float("nan")), inputs=checked)
    one = np.ones(1, "f4")
    case = loadrun.Testcase({"x": one, "y:expect": one}, {"x": F32, "y:expect": F32})
    loadrun.save(loadrun.Bundle(graph, [case]), tmp_path / "m.mge")
    assert main(["convert", str(tmp_path / "m.mge"), "-o", str(tmp_path / "u") + "/"]) == 0

    def refuse(text: str) -> float:
        raise AssertionError(text)

    about = json.loads((tmp_path / "u" / "testcases.json").read_text(), parse_constant=refuse)
    assert about["checks"][0]["maxerr"] == "nan"


# Ends


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or os.name == "nt", reason="signals of POSIX")
def test_a_signal_leaves_no_temporaries(tmp_path: Path) -> None:
    lines = tmp_path / "list.txt"
    lines.write_text("#rand(0,1)\n" * 20_000)
    target = tmp_path / "out"
    target.mkdir()
    (target / "o.mge").write_bytes(b"old")
    command = [sys.executable, "-m", "loadrun", "pack", MLP, "-d", f"@{lines}", "-o", str(target / "o.mge")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            while len(os.listdir(target)) == 1 and child.poll() is None:
                time.sleep(0.01)
            child.terminate()
            assert child.wait(120) == 128 + signal.SIGTERM
        finally:
            child.kill()
    assert os.listdir(target) == ["o.mge"]
    assert (target / "o.mge").read_bytes() == b"old"


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 128 + 15), ("SIGINT", 130)])
def test_a_signal_is_not_lost_where_python_drops_exceptions(name: str, code: int) -> None:
    """Python drops what is raised while a generator is closed."""
    program = f"""
import signal, sys, time
from loadrun.cli import _ended_by_signals
signal.signal(signal.SIGINT, signal.default_int_handler)  # where a script started the tests in its background
def lines():
    try:
        yield
    finally:
        signal.raise_signal(signal.{name})
with _ended_by_signals():
    try:
        some = lines()
        next(some)
        del some
        time.sleep(30)
    except KeyboardInterrupt:
        sys.exit(130)
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (child.returncode, child.stderr) == (code, "")


@pytest.mark.skipif(not hasattr(signal, "SIGTERM") or os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("after", ["time.sleep(30)", "pass"])
def test_a_signal_is_not_lost_where_code_drops_every_exception(after: str) -> None:
    """Some C code clears what is raised in the Python that it calls; a command may be over before it is repeated."""
    program = f"""
import signal, time
from loadrun.cli import _ended_by_signals
with _ended_by_signals():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException:
        pass
    {after}
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20)
    assert (child.returncode, child.stderr) == (128 + 15, "")


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    """A process without standard streams must not write its messages into the file that gets their number."""
    command = f'exec "{sys.executable}" -m loadrun pack {MLP} -d "#ones" -o "{tmp_path}/o.mge" {closed}'
    child = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (child.returncode, child.stderr) == (0, "")
    assert main([str(tmp_path / "o.mge")]) == 0


# Time and the last net


def test_times_of_many_runs() -> None:
    samples = tuple((i * 7919 % 100_003) / 1e6 for i in range(100_000))
    start = time.process_time()
    found = Timing(samples)
    assert found.deviation == pytest.approx(0.025, rel=0.01)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("length", [200, 8000])
def test_many_checks_behind_a_chain(length: int) -> None:
    """Thousands of checks whose errors lie behind the same operators: a walk for each took half a minute."""
    graph = Graph()
    (expect,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (3,), "y:expect")])
    expect.name = "y:expect"
    (x,) = graph.add(
        "Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[StoredTensor(F32, (3,), "x")]
    )
    (get,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[x], names=["y"])
    (error,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.SUB), inputs=[expect, get])
    for _ in range(length):
        (error,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.ABS), inputs=[error])
    graph.outputs = []
    for _ in range(2000):
        graph.outputs += graph.add("AssertEqual", AssertEqual(maxerr=1.0), inputs=[expect, get, error])
    one = np.ones(3, "f4")
    runner = loadrun.Runner(loadrun.Bundle(graph))
    start = time.process_time()
    result = runner.check(loadrun.Testcase({"x": one, "y:expect": -one}))
    assert time.process_time() - start < 10
    assert {o.verdict.value for o in result.outputs} == {"not compared"}


def test_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a verdict of its file, and the next file is still run."""
    from loadrun.replay import serial

    real = serial.Runner

    def broken(bundle: loadrun.Bundle, *args: object, **named: object) -> loadrun.Runner:
        if "mlp" in bundle.path:
            raise KeyError("an impossible key")
        return real(bundle, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(serial, "Runner", broken)
    assert main([MLP, "fixtures/nets/scalars.mge", "--json", str(tmp_path / "r.json")]) == 70
    said = capsys.readouterr().out
    assert "error: this is a bug in loadrun; please report it: KeyError at test_file_attacks.py:" in said
    report = json.loads((tmp_path / "r.json").read_text())
    assert [f["verdict"] for f in report["files"]] == ["error", "pass"]
    assert report["exit_code"] == 70


def test_a_warning_about_a_file_cannot_control_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(node(DECEIVING, ["x"], ["y"])))
    assert main(["diff", str(path)]) == 2
    said = capsys.readouterr().err
    assert "a\\x1b[31mb\\u202egpj" in said
    assert not {*"\x1b\u202e\x07\r"} & {*said}


def test_a_warning_in_a_report_cannot_control_the_terminal() -> None:
    assert text.warning("a\x1b[31mb\u202egpj") == "  warning: a\\x1b[31mb\\u202egpj"
