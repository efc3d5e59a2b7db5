"""`loadrun reduce` cuts a failing model down to the operator that was broken."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.passes.cleanup import merge_weights
from loadrun.passes.constants import bare
from loadrun.verify.diff import extracting
from loadrun.verify.diff.extracting import computed_values, reduce_graph
from tests.support.broken_models import weight_changed

NETS = Path("fixtures/nets")


def broken(name: str, folder: Path) -> tuple[Path, str]:
    """A copy of a fixture with a changed weight, and the output of the operator that reads it."""
    bundle = loadrun.load(NETS / name)
    opr = weight_changed(bundle.graph, Random(2))
    assert opr is not None
    loadrun.save(bundle, folder / "bad.mge")
    return folder / "bad.mge", opr.outputs[0].name or ""


@pytest.mark.parametrize("name", ["resnet_basic.mge", "mobilenet_v2.mge", "vit.mge"])
def test_one_operator_is_left(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, guilty = broken(name, tmp_path)
    small = tmp_path / "small.mge"
    assert main(["reduce", str(bad), "--against", str(NETS / name), "-o", str(small)]) == 0
    assert "values differ" in capsys.readouterr().out
    bundle = loadrun.load(small)
    assert [o.outputs[0].name for o in bare(bundle).oprs if o.inputs] == [guilty]
    assert main([str(small), "-q"]) == 1


def test_a_slice_holds_no_weights_that_it_does_not_read(tmp_path: Path) -> None:
    """Where one operator holds all weights, as in MegEngine's own dumps."""
    bundle = loadrun.load(NETS / "resnet_basic.mge")
    for opr in bundle.graph.oprs:
        opr.type = "SharedDeviceTensor" if opr.type == "ImmutableTensor" else opr.type
    merged = replace(bundle, graph=merge_weights(bundle.graph))
    (holder,) = (o for o in merged.graph.oprs if o.type == "MultipleDeviceTensorHolder")
    good, bad = tmp_path / "good.mge", tmp_path / "bad.mge"
    loadrun.save(merged, good)
    guilty = weight_changed(merged.graph, Random(2))
    assert guilty is not None
    read = [holder.tensors[v.index] for v in guilty.inputs if v.owner is holder]
    loadrun.save(merged, bad)
    assert main(["reduce", str(bad), "--against", str(good), "-o", str(tmp_path / "reduced.mge")]) == 0
    assert main(["diff", str(bad), str(good), "-o", str(tmp_path / "extracted.mge")]) == 1
    for name in ("reduced.mge", "extracted.mge"):
        small = loadrun.load(tmp_path / name)
        kept = [t.data.nbytes for o in bare(small).oprs for t in o.tensors if t.data is not None]
        assert sum(kept) == sum(t.data.nbytes for t in read if t.data is not None) < bad.stat().st_size / 4
        assert main([str(tmp_path / name), "-q"]) == 1


def test_a_command_says_what_fails(tmp_path: Path) -> None:
    """It ends with 3 where the model has a pooling."""
    script = tmp_path / "check.py"
    script.write_text(
        "import loadrun, sys\n"
        "oprs = loadrun.load(sys.argv[1]).graph.oprs\n"
        "sys.exit(3 * any(o.type == 'PoolingV1' for o in oprs))\n"
    )
    options = loadrun.ReduceOptions(fails=f"{sys.executable} {script} {{}}", runs=20)
    found = loadrun.reduce_file(NETS / "resnet_basic.mge", tmp_path / "small.mge", options)
    assert (found.operators, found.reason) == (1, "exit code 3")
    assert found.runs <= 20
    (opr,) = (o for o in bare(loadrun.load(tmp_path / "small.mge")).oprs if o.inputs)
    assert opr.type == "PoolingV1"
    # The good run is the model's own, so the file passes by itself.
    assert main([str(tmp_path / "small.mge"), "-q"]) == 0


def test_the_reason_stays(tmp_path: Path) -> None:
    """Candidates that fail for another reason do not count."""
    bundle = loadrun.load(NETS / "mlp.mge")
    graph, feeds = bare(bundle), bundle.testcases[0].inputs
    everything = {v.id for v in graph.vars()}

    def judge(candidate: loadrun.Bundle) -> str | None:
        count = sum(o.type == "MatrixMulV2" for o in candidate.graph.oprs)
        return "three products" if count >= 3 else "fewer" if count else None

    found = reduce_graph(
        graph, lambda wanted: computed_values(graph, wanted, feeds, 0), everything, judge, maxerr=1e-4
    )
    assert found.reason == "three products"
    assert sum(o.type == "MatrixMulV2" for o in found.bundle.graph.oprs) == 3


def test_an_interrupt_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, guilty = broken("resnet_basic.mge", tmp_path)

    def interrupt(text: str) -> None:
        if text.startswith("run 6, "):
            raise KeyboardInterrupt

    monkeypatch.setattr(extracting, "tell", interrupt)
    options = loadrun.ReduceOptions(against=str(NETS / "resnet_basic.mge"))
    found = loadrun.reduce_file(bad, tmp_path / "small.mge", options)
    assert found.is_interrupted
    assert 1 < found.operators < found.total
    names = {o.outputs[0].name for o in loadrun.load(tmp_path / "small.mge").graph.oprs if o.outputs}
    assert guilty in names


CHILD = """
import subprocess, sys
writer = open({fifo!r}, "wb", buffering=0)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[writer.fileno()])
writer.write(b"x")
child.wait()
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A command that starts a child and waits for it, and a pipe whose writers are the two."""
    fifo, script = tmp_path / "fifo", tmp_path / "script.py"
    os.mkfifo(fifo)
    script.write_text(CHILD.format(fifo=str(fifo)))
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    yield f"{sys.executable} {script}", reader
    os.close(reader)


def heard(reader: int) -> bytes:
    """The next byte from a pipe, none where nobody can write to it any more."""
    assert select.select([reader], [], [], 30)[0], "somebody still has the pipe"
    return os.read(reader, 1)


@pytest.mark.skipif(os.name == "nt", reason="needs process groups")
@pytest.mark.slow
def test_a_command_that_takes_too_long_ends_with_its_children(
    command: tuple[str, int], tmp_path: Path
) -> None:
    options = loadrun.ReduceOptions(fails=command[0], timeout=3.0, runs=1)
    found = loadrun.reduce_file(NETS / "mlp.mge", tmp_path / "small.mge", options)
    assert found.reason == "it takes longer than 3 s"
    assert heard(command[1]) == b"x"
    assert heard(command[1]) == b""


@pytest.mark.skipif(os.name == "nt", reason="needs process groups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_command_with_its_children(
    number: signal.Signals, command: tuple[str, int], tmp_path: Path
) -> None:
    words = ["reduce", str(NETS / "mlp.mge"), "--fails", command[0], "-o", str(tmp_path / "small.mge")]
    # A script that runs the tests in its background has them ignore SIGINT, and so what they start.
    code = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('loadrun', run_name='__main__')"
    )
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.DEVNULL) as run:
        assert heard(command[1]) == b"x"
        run.send_signal(number)
        assert heard(command[1]) == b""
        assert run.wait() == 128 + number


def test_runs_are_limited(tmp_path: Path) -> None:
    bad, _ = broken("resnet_basic.mge", tmp_path)
    options = loadrun.ReduceOptions(against=str(NETS / "resnet_basic.mge"), runs=4)
    found = loadrun.reduce_file(bad, tmp_path / "small.mge", options)
    assert (found.runs, found.is_interrupted) == (4, True)


def test_a_model_that_stops_on_its_inputs(tmp_path: Path) -> None:
    options = loadrun.ReduceOptions(fails="false", input_data=("data:#rand(0,1,1,7)",))
    with (
        pytest.warns(UserWarning, match=r"its data \[1, 7\]"),
        pytest.raises(UsageError, match="no value for 'out', since the model stops before it"),
    ):
        loadrun.reduce_file(NETS / "mlp.mge", tmp_path / "small.mge", options)


def test_values_without_elements_compare_nothing(tmp_path: Path) -> None:
    options = loadrun.ReduceOptions(against="float64", input_data=("data:#rand(0,1,0,20)",))
    found = loadrun.reduce_file(NETS / "mlp.mge", tmp_path / "small.mge", options, warn=lambda text: None)
    assert found.reason == "not compared"


def test_what_does_not_fail_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, small = str(NETS / "mlp.mge"), str(tmp_path / "small.mge")
    assert main(["reduce", model, "--against", model, "-o", small]) == 2
    said = capsys.readouterr().err
    assert "does not fail" in said
    assert "--maxerr 0.0001 (0 asks for equal values)" in said
    assert not Path(small).exists()
    with pytest.raises(UsageError, match="define the failure"):
        loadrun.reduce_file(model, small, loadrun.ReduceOptions())
    for message in ("[", "(" * 5000, f"a{{{2**40}}}"):
        assert main(["reduce", model, "--fails", "false", "--message", message, "-o", small]) == 2


def test_an_onnx_model_of_what_is_left(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    bad, guilty = broken("resnet_basic.mge", tmp_path)
    options = loadrun.ReduceOptions(against=str(NETS / "resnet_basic.mge"))
    loadrun.reduce_file(bad, tmp_path / "small.onnx", options)
    bundle = loadrun.load(tmp_path / "small.onnx")
    assert list(bundle.outputs) == [guilty]
    assert loadrun.run(bundle)[0].verdict is loadrun.Verdict.FAIL


def test_a_violated_policy_is_a_failure(tmp_path: Path) -> None:
    """float32 is within 1e-4 of float64, but not equal to it."""
    packed, small, shared = (tmp_path / n for n in ("packed.mge", "small.mge", "shared.mge"))
    with pytest.raises(UsageError, match="does not fail"):
        loadrun.reduce_file(NETS / "mlp.mge", small, loadrun.ReduceOptions(against="float64"))
    # It is written, and fails at once: its values are MegEngine's.
    assert main(["pack", str(NETS / "mlp.mge"), "--check", "exact", "-q", "-o", str(packed)]) == 1
    assert loadrun.reduce_file(packed, small, loadrun.ReduceOptions(against="float64")).operators == 1
    assert main(["reduce", str(packed), "--anonymize", "--against", "float64", "-o", str(shared)]) == 0
    assert [main([str(p), "-q"]) for p in (small, shared)] == [1, 1]


def test_the_file_that_is_left_fails_as_it_is_on_the_runtime(tmp_path: Path) -> None:
    """ONNX Runtime computes float16 convolutions in float32, the net rounds every sum to float16."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime runs the candidates")
    net, small = str(tmp_path / "net.onnx"), str(tmp_path / "small.onnx")
    loadrun.convert_file(NETS / "float16_ioc16.mge", net)
    assert main(["reduce", net, "--against", "onnxruntime", "--maxerr", "1e-5", "-o", small]) == 0
    assert main([small, "--engine", "onnxruntime", "-q"]) == 1
