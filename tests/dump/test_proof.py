"""Faults planted in passes and in the writer are stopped where a dump is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.proving import proving
from loadrun.cli import main
from loadrun.dump.writer import _Common
from loadrun.graph import Graph, Opr, StoredTensor
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import Elemwise, ElemwiseMode, Reduce, ReduceMode
from loadrun.passes import inference, older
from loadrun.passes.constants import subgraph
from loadrun.proof import ProofError

X = np.linspace(-2, 2, 9, dtype="f4").reshape(3, 3)
HALF = np.full((3, 3), 0.5, "f4")


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
