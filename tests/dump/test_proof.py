"""Faults planted in passes and in the writer are stopped where a dump is written."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base import proving as base_proving
from loadrun.base.proving import proving
from loadrun.cli import main
from loadrun.dump import narrowing as dump_proving
from loadrun.dump.writer import _Common
from loadrun.graph import Graph, Opr, StoredTensor
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Elemwise, ElemwiseMode, Reduce, ReduceMode
from loadrun.ops import registry
from loadrun.passes import inference, older
from loadrun.passes.constants import subgraph
from loadrun.proof import ProofError, proved
from loadrun.runtimes import megengine
from loadrun.testcase import ModelSource

X = np.linspace(-2, 2, 9, dtype="f4").reshape(3, 3)
HALF = np.full((3, 3), 0.5, "f4")


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine leaves out nothing."""
    monkeypatch.setattr(base_proving, "_QUICK", 600.0)


@loadrun.trace(symbolic=True, capture_as_const=True)
def model(x: Any) -> Any:
    import loadrun.megengine.functional as F

    return F.relu(x - loadrun.Tensor(HALF)).sum(axis=1)


def dumped(target: Path, **options: Any) -> loadrun.Bundle:
    model(loadrun.Tensor(X))
    model.dump(target, arg_names=["x"], output_names=["y"], **options)
    return loadrun.load(target)


def changed(kind: str, change: Callable[[Opr], None]) -> Callable[[Graph], Graph]:
    """A pass that changes the operators of a type."""

    def fault(graph: Graph) -> Graph:
        copy, _ = subgraph(graph, graph.outputs, everything=True)
        for opr in copy.oprs:
            if opr.type == kind:
                change(opr)
        return copy

    return fault


def mode(new: ElemwiseMode) -> Callable[[Opr], None]:
    def change(opr: Opr) -> None:
        opr.params = (Elemwise(mode=new),)

    return change


def constant(opr: Opr) -> None:
    dtype = DType("Float32")
    opr.tensors = [StoredTensor(dtype, (3, 3), None, encode(HALF, dtype))]


def same_axis(opr: Opr) -> None:
    if len(opr.inputs) == 1:
        opr.params = (Reduce(axis=-1, mode=ReduceMode.SUM),)


FAULTS = {
    "a sign": changed("Elemwise", mode(ElemwiseMode.SUB)),
    "a function": changed("Elemwise", mode(ElemwiseMode.FUSE_ADD_TANH)),
    "a bound": changed("Elemwise", mode(ElemwiseMode.ADD)),
    "a constant": changed("ImmutableTensor", constant),
    "a sum": changed("ReduceV2", lambda o: setattr(o, "params", (Reduce(axis=1, mode=ReduceMode.MAX),))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_pass_is_stopped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "make_loadable", FAULTS[name])
    with pytest.raises(ProofError, match=r"the graph in the .mge file .*output 'y'"):
        dumped(tmp_path / "m.mge")
    assert not (tmp_path / "m.mge").exists()
    with proving("none"):
        bundle = dumped(tmp_path / "m.mge")
    assert "not proven: it was written without a proof (prove=none)" in bundle.warnings


def test_a_size_taken_from_the_example_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of a batch, which the trace divides by its symbolic size, and the pass by the example's."""
    import loadrun.megengine.functional as F

    @loadrun.trace(symbolic=True, capture_as_const=True)
    def mean(x: Any) -> Any:
        return F.sum(x * x, axis=0) / x.shape[0]

    def of_example(opr: Opr) -> None:
        opr.type, opr.params, opr.inputs = "ImmutableTensor", (), []
        dtype = DType("Float32")
        opr.tensors = [StoredTensor(dtype, (1,), None, encode(np.float32([3]), dtype))]

    mean(loadrun.Tensor(X))
    monkeypatch.setattr(inference, "make_loadable", changed("TypeCvtV2", of_example))
    with pytest.raises(
        ProofError, match=r"gives other numbers than the model: output .* \(at sizes x \[1, 3\]\)"
    ):
        mean.dump(tmp_path / "m.mge", arg_names=["x"])


def test_a_wrong_pass_is_stopped_by_testcases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "make_loadable", FAULTS["a constant"])
    with pytest.raises(ProofError, match=r"output 'y' .*testcase 0"):
        dumped(tmp_path / "m.mge", input_data="example")


def test_a_wrong_formula_for_older_runtimes_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "fixtures/ops/elemwise/relu6_float32.mge"
    options = loadrun.dump.options.DumpOptions(no_change_graph=False)
    loadrun.save(loadrun.load(source), tmp_path / "m.mge", options)
    other = older._ELEMWISE[ElemwiseMode.SOFTPLUS]
    monkeypatch.setitem(older._ELEMWISE, ElemwiseMode.RELU6, other)
    with pytest.raises(ProofError, match="gives other numbers"):
        loadrun.save(loadrun.load(source), tmp_path / "n.mge", options)


def test_a_wrong_writer_is_stopped_at_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "m.mge")
    dumped(tmp_path / "m.mge", input_data="example")
    before = (tmp_path / "m.mge").read_bytes()
    right = _Common.inputs

    def turned(self: Any, e: Any, opr: Opr) -> Any:
        opr.inputs.reverse()
        try:
            return right(self, e, opr)
        finally:
            opr.inputs.reverse()

    monkeypatch.setattr(_Common, "inputs", turned)
    other = str(tmp_path / "n.mge")
    for argv in (
        ["pack", path, "-d", "#rand(0,1)", "-o", other],
        ["convert", path, other],
        ["convert", path, str(tmp_path / "folder")],
        ["accept", path, "--reason", "as it is"],
    ):
        main(argv)
        assert not (tmp_path / "n.mge").exists(), argv
    assert (tmp_path / "m.mge").read_bytes() == before
    with pytest.raises(ProofError, match=r"what is read back of the .mge file is another graph .*operator 2"):
        loadrun.save(loadrun.load(path), other)


@pytest.mark.parametrize(
    "flag", ["enable_ioc16", "enable_io16xc32", "enable_nchw44", "enable_nchw88", "enable_hwcd4"]
)
def test_precision_and_layouts_are_no_fault(flag: str, tmp_path: Path) -> None:
    options = ["--replace", f"--{flag.replace('_', '-')}", "-o", str(tmp_path / "m.mge"), "-q"]
    source = "fixtures/nets/layout_float_unoptimized.mge"
    # Checks of 1e-4 may not hold.
    assert main(["pack", source, "-d", "#rand(0,1)", *options]) in (0, 1)
    assert not [w for w in loadrun.load(tmp_path / "m.mge").warnings if "not proven" in w]


def test_files_do_not_depend_on_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    # Another graph that computes the same, so that it is run.
    monkeypatch.setattr(inference, "make_loadable", changed("ReduceV2", same_axis))
    written: list[bytes] = []
    for seconds in (1.0, -1e9):
        monkeypatch.setattr(base_proving, "_QUICK", seconds)
        monkeypatch.setattr(base_proving._Clock, "written_for", seconds)
        bundle = dumped(tmp_path / "m.mge", input_data=["example", {"x": 2 * X}])
        assert not bundle.warnings
        loadrun.onnx.export(bundle, f=tmp_path / "m.onnx")
        written += [(tmp_path / "m.mge").read_bytes(), (tmp_path / "m.onnx").read_bytes()]
    assert written[:2] == written[2:]


def test_what_is_large_is_compared_on_its_testcases_and_read_back_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadrun.proof.LARGE", 0)
    monkeypatch.setattr(dump_proving, "LARGE", 0)
    monkeypatch.setattr("loadrun.dump.store.LARGE", 0)
    monkeypatch.setattr(dump_proving, "_ENDS", 4)
    path = tmp_path / "m.mge"
    with proving("full"):
        assert not dumped(path).warnings
    loadrun.save(loadrun.load(path), tmp_path / "n.mge")
    with (tmp_path / "o.mge").open("wb") as file:
        loadrun.save(loadrun.load(path), file)
    assert loadrun.load(tmp_path / "o.mge").warnings == [
        "not proven: its weights are too large to be read back"
    ]
    right = _Common.inputs

    def doubled(self: Any, e: Any, opr: Opr) -> Any:
        return right(self, e, opr.inputs[0].owner if opr.type == "ReduceV2" else opr)

    monkeypatch.setattr(_Common, "inputs", doubled)
    before = (tmp_path / "n.mge").read_bytes()
    with pytest.raises(ProofError, match=r"what is read back of the .mge file is another graph"):
        loadrun.save(loadrun.load(path), tmp_path / "n.mge")
    assert (tmp_path / "n.mge").read_bytes() == before


def test_a_layout_without_a_kernel_here_is_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = loadrun.load("fixtures/nets/layout_float_unoptimized.mge")
    known = registry.implementation

    def missing(name: str) -> Any:
        if name == "RelayoutFormatV1":
            raise loadrun.base.errors.UnsupportedError("operator RelayoutFormatV1 cannot be executed")
        return known(name)

    graph, _ = inference.optimize_for_inference(source.graph, enable_hwcd4=True)
    assert any(o.type == "RelayoutFormatV1" for o in graph.oprs)
    for module in list(sys.modules.values()):
        if module.__name__.startswith("loadrun") and getattr(module, "implementation", None) is known:
            monkeypatch.setattr(module, "implementation", missing)
    loadrun.save(graph, tmp_path / "m.mge", made_of=source.graph)
    (said,) = loadrun.load(tmp_path / "m.mge").warnings
    assert said.startswith(
        "not proven: the graph in the .mge file does not run here: operator RelayoutFormatV1"
    )


def test_a_model_that_refuses_all_data_is_not_proven() -> None:
    model(loadrun.Tensor(X))
    graph = model.graph(arg_names=["x"])
    source = loadrun.Bundle(graph, source=ModelSource(refuses=lambda arrays: None))

    def never(feeds: Any) -> Any:
        raise loadrun.base.errors.InputError("no")

    proof = proved(source, loadrun.Bundle(graph), [], compute=never)
    assert proof.left == ("the model refuses all data that were drawn, or is not finite on them",)
    assert (proof.compared, proof.dropped) == (0, 4)


def test_sizes_that_the_model_refuses_are_refused_by_what_is_written() -> None:
    def wide(x: Any) -> Any:
        return x * 2

    def narrow(x: Any) -> Any:
        return (x.reshape(-1, 3) * 2).reshape(x.shape)

    source, written = (loadrun.Bundle(_graph_of(f)) for f in (narrow, wide))
    case = {"x": np.ones(6, "f4")}
    proved(source, source, [case], sizes=[{"x": (7,)}])
    proved(source, written, [case], sizes=[{"x": (9,)}])
    with pytest.raises(ProofError, match=r"runs where the model does not \(at sizes x \[7\]\)"):
        proved(source, written, [case], sizes=[{"x": (7,)}])


def test_where_numbers_come_from_shows_at_sizes_larger_than_one() -> None:
    """What is repeated of one number is the same from wherever it is taken."""

    def turned(x: Any) -> Any:
        return x[::-1] * 2

    def straight(x: Any) -> Any:
        return x * 2

    source, written = (loadrun.Bundle(_graph_of(f)) for f in (turned, straight))
    case = {"x": np.ones(1, "f4")}
    with pytest.raises(
        ProofError, match=r"gives other numbers than the model: output 'y' .*at sizes x \[3\]"
    ):
        proved(source, written, [case], sizes=[{"x": (3,)}])


def test_a_busy_machine_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes take the time that passes, not that of this one's processors."""

    def example(x: Any) -> Any:
        return x * 2

    def not_at_five(x: Any) -> Any:
        return x * 2 + (x.shape[0] > 4)

    source, written = (loadrun.Bundle(_graph_of(f)) for f in (example, not_at_five))
    passed = itertools.count(0.0, 100.0)
    monkeypatch.setattr(base_proving, "_QUICK", 30.0)
    monkeypatch.setattr(base_proving.time, "monotonic", lambda: next(passed))
    with pytest.raises(ProofError, match=r"at sizes x \[5\]"):
        proved(source, written, [{"x": np.ones(2, "f4")}], sizes=[{"x": (n,)} for n in (3, 4, 5)])


def _graph_of(function: Callable[[Any], Any]) -> Graph:
    traced = loadrun.trace(function, symbolic=True, capture_as_const=True, symbolic_shape=True)
    traced(np.ones(6, "f4"))
    return traced.graph(["x"], ["y"])


def test_a_record_that_is_kept_says_what_is_not_proven(tmp_path: Path) -> None:
    """Random numbers are not compared; what the record says of testcases stays."""
    import loadrun.megengine.functional as F
    import loadrun.megengine.random as random

    @loadrun.trace(symbolic=True, capture_as_const=True)
    def drawing(x: Any) -> Any:
        return F.relu6(x + random.uniform(size=(3, 3)))

    drawing(loadrun.Tensor(X))
    with pytest.warns(UserWarning, match="random numbers"):
        drawing.dump(tmp_path / "m.mge", arg_names=["x"], input_data="example")
    bundle = loadrun.load(tmp_path / "m.mge")
    assert isinstance(bundle.record, memoryview)
    options = loadrun.dump.options.DumpOptions(no_change_graph=False, dump_format="FBS")
    loadrun.save(bundle, tmp_path / "n.mge", options)
    assert "not proven: it draws random numbers" in loadrun.load(tmp_path / "n.mge").warnings


def test_megengine_has_a_say_where_everything_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(graph: Graph) -> Any:
        (name,) = loadrun.Bundle(graph).outputs
        return "MegEngine", lambda feeds: {name: np.float32([0, 1, 2])}, lambda: None

    monkeypatch.setattr(megengine, "beside", wrong)
    dumped(tmp_path / "m.mge")
    with proving("full"), pytest.raises(ProofError, match=r"MegEngine gives other numbers of the .mge file"):
        dumped(tmp_path / "n.mge")
    monkeypatch.setattr(megengine, "beside", lambda graph: None)
    with proving("full"):
        dumped(tmp_path / "n.mge")


@pytest.mark.oracle
def test_megengine_itself_has_a_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADRUN_MEGENGINE", os.environ["LOADRUN_ORACLE"])
    with proving("full"):
        assert not dumped(tmp_path / "m.mge", input_data="example").warnings
        source = loadrun.load("fixtures/nets/layout_float_unoptimized.mge").graph
        graph, _ = inference.optimize_for_inference(source, enable_hwcd4=True)
        loadrun.save(graph, tmp_path / "n.mge", made_of=source)
    (said,) = loadrun.load(tmp_path / "n.mge").warnings
    assert said.startswith("not proven: the .mge file in MegEngine: ")
