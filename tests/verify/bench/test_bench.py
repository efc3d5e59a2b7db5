"""`loadrun bench`: what is measured, compared, written, and when it fails."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import InputError, UsageError
from loadrun.cli import main
from loadrun.engines import Setup, registry
from loadrun.engines.liveness import PeakMeter
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, Var
from loadrun.graph.params import MatrixMul
from loadrun.report.benchmark import benchmark_json, comparisons
from loadrun.report.changes import compare_reports
from loadrun.report.profile import bytes_text, cost_table, costs, memory_table, trace_events
from loadrun.testcase import Bundle
from loadrun.testing import GraphBuilder
from loadrun.verify.bench.files import regressions, require_baseline
from loadrun.verify.bench.running import peak_memory, run_subjects
from loadrun.verify.bench.timing import Round, Subject
from loadrun.verify.describe import describe
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer

NETS = Path(__file__).resolve().parents[3] / "fixtures" / "nets"
MLP, RESNET = str(NETS / "mlp.mge"), str(NETS / "resnet_basic.mge")


def product_model(rows: int = 64) -> Bundle:
    """x (rows x 32) times a constant (32 x 16), then the absolute value."""
    b = GraphBuilder()
    x = b.input("x", rows, 32)
    w = b.const(np.ones((32, 16), "f4"))
    y = b.add("MatrixMulV2", MatrixMul(), inputs=[x, w], name="block.product")
    return Bundle(b.done(b.elemwise("ABS", y, name="block.abs")))


def test_measured() -> None:
    found = run_subjects([Subject(MLP), Subject(MLP, threads=1)], seconds=0.0, passes=3)
    assert [len(m.timing.samples) for m in found] == [3, 3]
    first = found[0]
    assert first.cases == 3
    each = [times for r in first.rounds for times in r.each]
    assert [len(e) for e in each] == [3, 3, 3]
    np.testing.assert_allclose([np.mean(e) for e in each], first.timing.samples)
    assert first.verdict.value == "pass"
    assert first.load > 0
    assert first.first > 0
    assert len(first.timing.processor) == 3
    described = describe(loadrun.load(MLP))
    assert first.weights >= described.model.parameter_bytes > 0


def test_operations_are_those_of_all_testcases(tmp_path: Path) -> None:
    path = tmp_path / "m.mge"
    loadrun.save(product_model(), path)
    (found,) = run_subjects([Subject(str(path))], seconds=0.0, passes=1)
    # 2 * 64 * 32 * 16 multiply-adds' operations, and one for each of 64 * 16 absolute values.
    assert found.flops == 2 * 64 * 32 * 16 + 64 * 16
    assert found.rate == found.flops / found.timing.median
    (batch,) = run_subjects([Subject(str(path), batch=8)], seconds=0.0, passes=1)
    assert batch.flops == found.flops // 8
    assert batch.verdict.value == "not compared"


def test_files_of_other_numbers_of_testcases_are_compared_by_the_run(tmp_path: Path) -> None:
    """The same bytes with one and with six data sets, six times as much work a pass."""
    bundle = product_model(2048)
    for count in (1, 6):
        x = np.ones((2048, 32), "f4")
        cases = [{"x": x}] * count
        Packer(bundle, PackOptions(), warn=lambda _: None).pack(cases, tmp_path / f"{count}.mge")
    subjects = [Subject(str(tmp_path / f"{count}.mge")) for count in (1, 6)]
    (one, six) = run_subjects(subjects, seconds=0.0, passes=2)
    assert (one.cases, six.cases) == (1, 6)
    assert one.flops == six.flops == 2 * 2048 * 32 * 16 + 2048 * 16
    for m in (one, six):
        # Times as if every run took a second.
        m.rounds = [Round([[1.0] * m.cases] * 5, 5.0 * m.cases, 5.0 * m.cases)]
    (told,) = comparisons([one, six])
    assert "do not differ measurably: 1.00x [1.00, 1.00]" in told
    assert one.throughput == six.throughput == 1.0
    assert one.paces() == six.paces() == [1.0]
    assert [m.timing.processor for m in (one, six)] == [(1.0,) * 5] * 2


def test_runs_that_waited_are_compared_by_processor_time() -> None:
    """By the clock the first is 60 times slower, since others had the processor; the second computes 5 % more."""
    found = run_subjects([Subject(MLP), Subject(RESNET)], seconds=0.0, passes=1)
    for m, work, wait in zip(found, (1.0, 1.05), (60.0, 1.0), strict=True):
        m.rounds = [Round([[work * wait]], work * (1 + 0.001 * (i % 3)), work * wait) for i in range(20)]
    (told,) = comparisons(found)
    assert "is 1.05x [1.05, 1.05] slower than" in told
    assert "by processor time: runs got 2% of a processor" in told
    (entry,) = benchmark_json(found)["comparisons"]
    assert entry["by"] == "processor"
    assert entry["ratio"] == pytest.approx(1 / 1.05)
    # Nobody waited: the clock tells.
    found[0].rounds = [r._replace(each=[[1.0]]) for r in found[0].rounds]
    (told,) = comparisons(found)
    assert "processor" not in told


def test_peak_memory_and_who_is_alive() -> None:
    bundle = product_model()
    meter = peak_memory(bundle, {"x": np.zeros((64, 32), "f4")})
    # The product alone: the absolute value is written into its memory.
    assert meter.peak == 64 * 16 * 4
    assert [(a.nbytes, a.shape) for a in meter.alive] == [(64 * 16 * 4, (64, 16))]
    text = memory_table(meter)
    assert "peak: 4.0 KiB of intermediate values" in text
    assert "block." in text


def test_who_is_alive_is_what_was_at_the_peak() -> None:
    graph = Graph()
    oprs = [graph.add("Host2DeviceCopy", names=[n])[0].owner for n in "abcdef"]
    meter, held = PeakMeter(), {}
    for opr, size in zip(oprs[:3], (1, 4, 2), strict=True):
        held[opr] = np.zeros(size, "u1")
        meter(opr, [held[opr]])
    # After the peak of 7 bytes: one is freed, one comes, one is seen under another name.
    del held[oprs[0]]
    meter(oprs[3], [kept := np.zeros(1, "u1")])
    meter(oprs[4], [held[oprs[1]].reshape(2, 2)])
    del kept
    assert (meter.peak, meter.at) == (7, oprs[2])
    assert [a.name[0] for a in meter.alive] == ["b", "c", "a"]
    meter(oprs[5], [np.zeros(9, "u1")])
    assert [a.name[0] for a in meter.alive] == ["f", "e", "c"]


def test_testcase_and_errors() -> None:
    (found,) = run_subjects([Subject(RESNET)], seconds=0.0, passes=1, testcase=1)
    assert found.cases == 1
    with pytest.raises(UsageError, match="there is no testcase 3; the file has 3"):
        run_subjects([Subject(RESNET)], testcase=3)


def profile_of(bundle: Bundle) -> dict[str, Any]:
    engine = ReferenceEngine(bundle.graph, profile=True)
    engine.run({"x": np.zeros((64, 32), "f4")})
    return engine.get_profile()


def test_costs_and_trace() -> None:
    profile = profile_of(product_model())
    rows = costs(profile)
    assert sorted(c.name for c in rows) == ["ABS", "MatrixMulV2"]
    assert sum(c.flops for c in rows) == 2 * 64 * 32 * 16 + 64 * 16
    assert [(c.name, c.count) for c in costs(profile, "prefix:1")] == [("block", 2)]
    assert {c.name for c in costs(profile, "name")} == {"block.product", "block.abs"}
    assert "100.0%" in cost_table(profile, "prefix")
    assert "and 1 more" in cost_table(profile, "type", 1)
    events = trace_events(profile, "m")["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in spans] == ["block.product", "block.abs"]
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans)
    assert spans[0]["ts"] + spans[0]["dur"] <= spans[1]["ts"] + 1e-6
    assert {e["name"] for e in events if e["ph"] == "M"} == {"process_name", "thread_name"}
    assert json.loads(json.dumps(events)) == events
    assert [bytes_text(n) for n in (0, 1023, 1024, 3 << 30)] == ["0 B", "1023 B", "1.0 KiB", "3.0 GiB"]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, profile, trace = (str(tmp_path / n) for n in ("r.json", "p.json", "t.json"))
    flags = ["--min-time", "0", "--min-passes", "2", "--threads", "1,2", "--json", report]
    looks = ["--profile", profile, "--perfetto", trace, "--top", "3", "--by", "prefix:1", "--memory"]
    assert main(["bench", MLP, *flags, *looks]) == 0
    out = capsys.readouterr().out
    assert "1 thread " in out
    assert "2 threads" in out
    assert "p90 takes 64 passes, there were 2" in out
    assert "2 threads" in out.splitlines()[-1] or "alive" in out
    data = json.loads(Path(report).read_text())
    assert [s["threads"] for s in data["subjects"]] == [1, 2]
    assert all(len(s["wall_seconds"]) == 2 for s in data["subjects"])
    assert data["subjects"][0]["percentiles"]["90"] is None
    assert {"ratio", "low", "high"} <= data["comparisons"][0].keys()
    assert "profiler" in json.loads(Path(profile).read_text())
    assert json.loads(Path(trace).read_text())["traceEvents"]


def test_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "base.json"
    flags = ["--min-time", "0", "--min-passes", "5"]
    assert main(["bench", MLP, *flags, "--json", str(base)]) == 0
    data = json.loads(base.read_text())

    def scaled(factor: float) -> str:
        changed = json.loads(json.dumps(data))
        for s in changed["subjects"]:
            for clock in ("wall_seconds", "processor_seconds"):
                s[clock] = [t * factor for t in s[clock]]
        path = tmp_path / f"{factor}.json"
        path.write_text(json.dumps(changed))
        return str(path)

    capsys.readouterr()
    assert main(["bench", MLP, *flags, "--baseline", scaled(1000), "--max-slowdown", "10%"]) == 0
    assert re.search(r"faster than its baseline.*: ok", capsys.readouterr().out)
    assert main(["bench", MLP, *flags, "--baseline", scaled(0.001), "--max-slowdown", "10%"]) == 1
    out = capsys.readouterr().out
    assert "slower, allowed 10%" in out
    assert main(["bench", MLP, RESNET, *flags, "--baseline", scaled(1000)]) == 3
    assert "resnet_basic.mge: not compared, it is not in the baseline" in capsys.readouterr().out
    assert main(["bench", RESNET, *flags, "--baseline", str(base)]) == 2
    assert "nothing that was measured is in the baseline" in capsys.readouterr().err
    base.write_text("[")
    assert main(["bench", MLP, *flags, "--baseline", str(base)]) == 2
    base.write_text("{}")
    capsys.readouterr()
    assert main(["bench", MLP, *flags, "--baseline", str(base)]) == 2
    assert capsys.readouterr().out == ""  # told before anything is measured


def test_a_model_of_the_baseline_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old" / "x"
    old.mkdir(parents=True)
    for name in ("a.mge", "b.mge"):
        shutil.copy(MLP, old / name)
    monkeypatch.chdir(tmp_path)
    flags = ["--min-time", "0", "--min-passes", "1", "--max-slowdown", "1000x"]
    assert main(["bench", "old", *flags, "--json", "base.json"]) == 0
    # Not part of this run is nothing, also where the folder has moved to another place.
    assert main(["bench", "old/x/a.mge", *flags, "--baseline", "base.json"]) == 0
    (tmp_path / "old").rename(tmp_path / "new")
    assert main(["bench", "new/x/a.mge", *flags, "--baseline", "base.json"]) == 0
    (tmp_path / "new" / "x" / "b.mge").unlink()
    capsys.readouterr()
    assert main(["bench", "new", *flags, "--baseline", "base.json"]) == 3
    assert "old/x/b.mge: not compared, it is in the baseline and not there now" in capsys.readouterr().out


def test_regressions_with_known_answers() -> None:
    (found,) = run_subjects([Subject(MLP)], seconds=0.0, passes=1)
    was = {"benchmark": 2, "subjects": [{**found.subject.key, "wall_seconds": [1.0] * 20}], "environment": {}}
    for factor, allowed, failed in (
        (1.05, 0.1, False),
        (1.2, 0.1, True),
        (1.2, 0.25, False),
        (0.5, 0.1, False),
    ):
        found.rounds = [Round([[factor]], factor, factor)] * 20
        assert regressions([found], was, allowed)[0].failed is failed
    # Slower in the middle, but within what chance does: no failure.
    found.rounds = [Round([[t]], t, t) for t in (0.5, 1.3, 0.5, 1.3, 1.3)]
    assert not regressions([found], was, 0.1)[0].failed
    with pytest.raises(InputError, match="is not a file of"):
        require_baseline({"benchmark": 0}, "b.json")


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    def report(name: str, *paths: str) -> str:
        key = {"file": "model.onnx", "engine": "reference", "threads": None, "batch": None}
        subjects = [{**key, "path": p, "wall_seconds": [1.0 + i] * 20} for i, p in enumerate(paths)]
        (tmp_path / name).write_text(json.dumps({"benchmark": 2, "subjects": subjects}))
        return str(tmp_path / name)

    old = report("old.json", "/a/x/model.onnx", "/a/y/model.onnx", "/a/z/model.onnx")
    # Elsewhere, in another order: x took 1 s and takes 2, z took 3 and takes 1.
    found = compare_reports(old, report("new.json", "b/z/model.onnx", "b/x/model.onnx"))
    assert [(c.kind, c.file) for c in found.changes] == [
        ("slowdown", "x/model.onnx"),
        ("missing", "y/model.onnx"),
        ("speedup", "z/model.onnx"),
    ]
    found = compare_reports(old, report("one.json", "b/y/model.onnx"))
    assert found.common == 1
    assert {c.kind for c in found.changes} == {"missing", "speedup"}


def test_a_failing_check_fails(tmp_path: Path) -> None:
    bundle = loadrun.load(MLP)
    case = bundle.testcases[0]
    arrays = {n: a + 1 if n.endswith(":expect") else a for n, a in case.arrays.items()}
    path = tmp_path / "bad.mge"
    loadrun.save(replace(bundle, testcases=[replace(case, arrays=arrays)], record=None), path)
    assert main(["bench", str(path), "--min-time", "0", "--min-passes", "1"]) == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--threads", "0"],
        ["--batch-size", "a"],
        ["--by", "size"],
        ["--min-time", "x"],
        ["--max-slowdown", "-1%"],
        ["--max-slowdown", "10"],
        ["--max-slowdown", "0.9x"],
        ["--max-slowdown", "x"],
    ],
)
def test_bad_usage(flags: list[str]) -> None:
    assert main(["bench", MLP, *flags]) == 2


def test_engines_have_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that a runtime leaves waiting would take the processors from the engine that is measured next."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(
        registry._registered, "here", lambda graph, targets, setup: ReferenceEngine(graph, targets)
    )
    subjects = [Subject(MLP, "reference", threads=1), Subject(MLP, "onnxruntime"), Subject(MLP, "here")]
    found = run_subjects(subjects, seconds=0.05, passes=3)
    assert [m.about.split()[0] for m in found[:2]] == ["reference", "onnxruntime"]
    assert [m.verdict.value for m in found] == ["pass"] * 3
    for m in found:
        assert len(m.timing.samples) == len(m.timing.processor) >= 3
        assert len(m.rounds) == len(found[0].rounds)
        assert sum(r.span for r in m.rounds) >= 0.05


def test_the_process_of_a_subject_may_die(tmp_path: Path) -> None:
    package = tmp_path / "dies.py"
    package.write_text("import os\n\ndef make(graph, targets, setup):\n    os._exit(7)\n")
    info = tmp_path / "dies-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dies\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[loadrun.engines]\ndies = dies:make\n")
    sys.path.insert(0, str(tmp_path))
    try:
        failures: list[str] = []
        found = run_subjects(
            [Subject(MLP), Subject(MLP, "dies")],
            seconds=0.0,
            passes=2,
            failed=lambda s, e: failures.append(f"{s.engine}: {e}"),
        )
    finally:
        sys.path.remove(str(tmp_path))
    assert [len(m.timing.samples) for m in found] == [2]
    assert failures == [f"dies: {MLP} on dies: the process that ran it ended with exit code 7"]


def test_a_bad_file_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mge").write_bytes(b"nothing of the kind")
    (tmp_path / "b.mge").write_bytes(Path(MLP).read_bytes())
    report = tmp_path / "r.json"
    flags = ["--min-time", "0", "--min-passes", "2", "--json", str(report), "--top", "1"]
    assert main(["bench", str(tmp_path), *flags, "--threads", "1,2"]) == 2
    said = capsys.readouterr()
    assert said.err.count("a.mge: expected a MegEngine dump") == 1
    assert [s["file"] for s in json.loads(report.read_text())["subjects"]] == ["b.mge"] * 2
    assert main(["bench", str(tmp_path / "a.mge"), "--min-time", "0"]) == 2


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_operators_by_the_engines_own_profiler(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(engine)
    trace = tmp_path / "t.json"
    flags = ["--engine", engine, "--min-time", "0", "--min-passes", "1", "--top", "50", "--memory"]
    assert main(["bench", MLP, *flags, "--perfetto", str(trace)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if line.startswith("operators of")]
    assert head.startswith(f"operators of mlp.mge on {engine} ")
    assert "memory of mlp.mge on the reference engine" in lines
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    # Products of the layers, and tanh between them, in the names that the runtime has for them.
    kinds = [e["cat"].lower() for e in events]
    products = ("matmul", "gemm", "fullyconnected", "addmm")
    assert sum(any(word in kind for word in products) for kind in kinds) >= 2
    assert all(0 <= e["ts"] < 60e6 and 0 <= e["dur"] < 60e6 for e in events)


def test_files_are_profiled_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["convert", MLP, str(tmp_path / "m.onnx")]) == 0
    assert main([str(tmp_path / "m.onnx"), "--engine", "onnxruntime", "--top", "5"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "native" in next(line for line in said if line.startswith("operators of m.onnx"))


def test_an_engine_without_a_profiler_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plain(graph: Graph, targets: Sequence[Var], setup: Setup) -> ReferenceEngine:
        return ReferenceEngine(graph, targets)

    monkeypatch.setitem(registry._registered, "plain", plain)
    assert main(["bench", MLP, "--engine", "plain", "--min-time", "0", "--top", "1"]) == 0
    said = "operators of mlp.mge on the reference engine (plain has no profiler), the least time of 5 runs"
    assert said in capsys.readouterr().out
