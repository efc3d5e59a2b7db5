"""What `loadrun pack` writes is executed by real MegEngine with all checks holding, whatever stands behind it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from test_oracle import FOLDERS, ROOT, pytestmark, run

import loadrun
from loadrun.dtypes import DType
from loadrun.dump.options import DumpOptions
from loadrun.graph import Graph, Tensor
from loadrun.ops.catalog import TypeParam
from loadrun.packing import Packer
from loadrun.params import CondTake, CondTakeMode, Elemwise, ElemwiseMode, Host2DeviceCopy

__all__ = ["pytestmark"]

F32 = DType("Float32")
DTYPES = [
    *(
        DType(n)
        for n in ("Float32", "Bool", "Uint8", "Int8", "Int16", "Uint16", "Int32", "Float16", "BFloat16")
    ),
    *(DType(n, 0.1) for n in ("QuantizedS8", "QuantizedS32", "QuantizedS4")),
    *(DType(n, 0.1, 7) for n in ("Quantized8Asymm", "Quantized4Asymm")),
]


def verdicts(files: list[Path]) -> dict[str, str]:
    found = run(files)
    return {f.name: found.get(str(f), {}).get("result", "none") for f in files}


def model(dtype: DType) -> Graph:
    graph = Graph()
    tensor = Tensor(F32, (2, 3), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"], tensors=[tensor])
    (z,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[x], names=["z"])
    y = z
    if dtype != F32:
        (y,) = graph.add("TypeCvtV2", TypeParam(dtype=dtype), inputs=[z], names=["y"])
    graph.outputs = [y, z, z]
    return graph


def data(seed: int, batch: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(batch, 3)).astype("f4")}


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_packed_fixtures_hold_in_megengine(folder: str, format: str, tmp_path: Path) -> None:
    """Fixtures with their checks made anew, of loadrun's outputs, within the tolerances that the fixtures have."""
    files = []
    for path in sorted((ROOT / folder).glob("*.mge")):
        bundle = loadrun.load(path)
        if path.name.startswith("xfail_") or not len(bundle.testcases) or not bundle.checks:
            continue
        limits = {c.name: max(c.maxerr, 1e-5) for c in bundle.checks}
        packer = Packer(bundle, maxerr=limits, replace=True, silent=True, warn=lambda _: None)
        files.append(tmp_path / path.name)
        inputs = (case.inputs for case in bundle.testcases)
        packer.pack(inputs, files[-1], DumpOptions(dump_format=format))
    found = verdicts(files)
    assert {n: v for n, v in found.items() if v != "pass"} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_packed_written_graphs_hold_in_megengine(folder: str, tmp_path: Path) -> None:
    """Graphs that loadrun wrote, of operators that MegEngine's Python cannot create, packed on recorded data."""
    files = []
    for path in sorted((ROOT / folder).glob("*.mge")):
        bundle = loadrun.load(path)
        recorded = path.with_suffix(".npz")
        if not path.name.startswith("written_") or len(bundle.testcases) or not recorded.exists():
            continue
        with np.load(recorded) as arrays:
            inputs = {k[3:]: arrays[k] for k in arrays.files if k.startswith("in.")}
        said: list[str] = []
        packer = Packer(bundle, maxerr=1e-3, silent=True, warn=said.append)
        packer.pack([inputs], tmp_path / path.name)
        if loadrun.load(tmp_path / path.name).checks and not any("its check fails" in s for s in said):
            files.append(tmp_path / path.name)
    found = verdicts(files)
    assert {n: v for n, v in found.items() if v != "pass"} == {}


@pytest.mark.parametrize("format", ["FBS_V2", "FBS"])
def test_every_dtype_and_outputs_twice(format: str, tmp_path: Path) -> None:
    good, bad = [], []
    for dtype in DTYPES:
        packer = Packer(loadrun.Bundle(model(dtype)), warn=print)
        good.append(tmp_path / f"{dtype.name}.mge")
        packer.pack([data(0, 2), data(1, 5)], good[-1], DumpOptions(dump_format=format))
        bundle = loadrun.load(good[-1])
        cases = list(bundle.testcases)
        name = next(n for n in cases[1].arrays if n.endswith(":expect"))
        value = cases[1].arrays[name]
        wrong = ~value if value.dtype == bool else (value == 0).astype(value.dtype)
        cases[1].arrays[name] = wrong
        bundle.testcases = cases
        bad.append(tmp_path / f"bad_{dtype.name}.mge")
        loadrun.save(bundle, bad[-1])
    assert set(verdicts(good).values()) == {"pass"}
    assert set(verdicts(bad).values()) == {"fail"}, "the second testcase's checks do look"


@pytest.mark.parametrize(
    "options",
    [
        DumpOptions(keep_var_name=0),
        DumpOptions(keep_var_name=1, dump_format="FBS"),
        DumpOptions(keep_var_name=2, keep_opr_name=True, keep_param_name=True, keep_opr_priority=True),
        DumpOptions(keep_opr_name=False, user_info="text", enable_metadata=True, model_version=3),
        DumpOptions(enable_metadata=False, dump_format="FBS", keep_opr_priority=True),
        DumpOptions(compat_older_version="8.14"),
    ],
)
def test_options(options: DumpOptions, tmp_path: Path) -> None:
    files = []
    for net in ("mlp", "quant_mobilenet_quint8", "lstm_2_both", "many_inputs_outputs"):
        files.append(tmp_path / f"{net}.mge")
        loadrun.save(loadrun.load(ROOT / "nets" / f"{net}.mge"), files[-1], options)
    assert set(verdicts(files).values()) == {"pass"}


def test_added_testcases_and_empty_outputs(tmp_path: Path) -> None:
    added, empty = tmp_path / "added.mge", tmp_path / "empty.mge"
    bundle = loadrun.load(ROOT / "nets" / "mlp.mge")
    feeds = {"data": np.ones((4, 20), "f4")}
    Packer(bundle, warn=print).pack([feeds, feeds], added)
    graph = model(F32)
    z = graph.outputs[0]
    never = CondTake(mode=CondTakeMode.LT, val=-1)
    none, _ = graph.add("CondTake", never, inputs=[z, z], n_outputs=2, names=["none", "where"])
    graph.outputs.append(none)
    said: list[str] = []
    Packer(loadrun.Bundle(graph), warn=said.append).pack([data(0, 2)], empty)
    assert said == ["output 'none' has no elements, so it gets no check"]
    assert verdicts([added, empty]) == {"added.mge": "pass", "empty.mge": "pass"}


def test_nothing_behind_the_testcases_is_read(tmp_path: Path) -> None:
    """The same file with its record, with garbage in its place and without passes alike."""
    stream = io.BytesIO()
    packer = Packer(loadrun.Bundle(model(F32)), warn=print)
    packer.pack([data(0, 2)], stream, record=True)
    whole = stream.getvalue()
    bundle = loadrun.loads(whole)
    assert isinstance(bundle.record, memoryview)
    end = len(whole) - len(bundle.record)
    files = []
    for name, tail in (("record", whole[end:]), ("garbage", b"\xff" * 999), ("nothing", b"")):
        files.append(tmp_path / f"{name}.mge")
        files[-1].write_bytes(whole[:end] + tail)
    assert set(verdicts(files).values()) == {"pass"}
