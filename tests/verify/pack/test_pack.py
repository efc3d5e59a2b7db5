"""`loadrun pack` and what it writes."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.cli.groups import tolerances
from loadrun.compare.record import header, record_at
from loadrun.dump.checkpoint import load_checkpoint
from loadrun.dump.options import DumpOptions, strip_info
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import Array, encode
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
from loadrun.inputs import lists
from loadrun.inputs.lists import TextSource
from loadrun.runner import Verdict
from loadrun.testcase import Bundle
from loadrun.verify.pack.noise import suggest
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.support.small_models import F32, X, unary

MLP = "fixtures/nets/mlp.mge"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file that computes y = -x."""
    loadrun.save(unary(), tmp_path / "m.mge")
    return str(tmp_path / "m.mge")


def pack(*argv: object) -> int:
    return main(["pack", *map(str, argv)])


def verdicts(path: Path) -> list[Verdict]:
    return [r.verdict for r in loadrun.run(path)]


def test_pack(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.mge"
    assert pack(model, "-d", "#full(2)", "-d", "#full(3,5,...)", "-o", out, "--maxerr", "0.5") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[3].split() == ["0", "output", "y", "2x3", "float32", "-2", "-2", "-2", "0"]
    assert shown[-1].startswith(f"{out}: 2 testcases, 14 operators, ")
    bundle = loadrun.load(out)
    assert [t.arrays["y:expect"].tolist() for t in bundle.testcases] == [[[-2] * 3] * 2, [[-3] * 3] * 5]
    assert [(c.name, c.maxerr, c.verbose) for c in bundle.checks] == [("y", 0.5, True)]
    assert verdicts(out) == [Verdict.PASS] * 2


def test_testcases_are_added_or_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = loadrun.load(MLP)
    more, fresh = tmp_path / "more.mge", tmp_path / "fresh.mge"
    assert pack(MLP, "-d", "#zeros", "-o", more) == 0
    assert "4 testcases (3 kept)" in capsys.readouterr().out
    bundle = loadrun.load(more)
    assert [c.maxerr for c in bundle.checks] == [c.maxerr for c in old.checks], "existing checks stay"
    for was, now in zip(old.testcases, bundle.testcases, strict=False):
        assert {n: a.tobytes() for n, a in was.arrays.items()} == {
            n: a.tobytes() for n, a in now.arrays.items()
        }
    assert verdicts(more) == [Verdict.PASS] * 4
    assert pack(more, "--replace", "-d", "#ones", "-o", fresh, "--silent") == 0
    bundle = loadrun.load(fresh)
    assert [t.arrays["data"].sum() for t in bundle.testcases] == [20]
    assert [(c.maxerr, c.verbose) for c in bundle.checks] == [(pytest.approx(1e-4), False)]


def test_packing_onto_its_own_source(model: str) -> None:
    for n in range(1, 4):
        assert pack(model, "-d", f"#full({n})", "-o", model, "-q") == 0
    assert [t.arrays["x"][0, 0] for t in loadrun.load(model).testcases] == [1, 2, 3]


def test_tolerances_of_existing_checks(tmp_path: Path) -> None:
    out = tmp_path / "o.mge"
    assert pack(MLP, "-d", "#zeros", "-o", out, "--maxerr", "out=0.25", "--silent", "--loosen") == 0
    assert [(c.maxerr, c.verbose) for c in loadrun.load(out).checks] == [(0.25, False)]


def test_no_assert(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, both = tmp_path / "plain.mge", tmp_path / "both.mge"
    assert pack(model, "-d", "#full(2)", "-o", plain, "--no-assert") == 0
    bundle = loadrun.load(plain)
    assert (bundle.checks, list(bundle.testcases[0].arrays)) == ([], ["x"])
    assert pack(plain, "-d", "#full(3)", "-o", both) == 0
    assert verdicts(both) == [Verdict.PASS] * 2, "testcases without outputs get them"
    assert pack(both, "-d", "#full(3)", "-o", plain, "--no-assert") == 2
    assert "add --replace to drop them" in capsys.readouterr().err


@pytest.mark.parametrize("fmt", ["FBS", "FBS_V2"])
def test_options_for_data_and_file(fmt: str, model: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3]], "f4"))
    out = tmp_path / "o.mge"
    argv = ["--repeat", 2, "--input-transform", "data * 10", "--format", fmt, "--user-info", "hello"]
    assert pack(model, "-d", tmp_path / "x.npy", "-o", out, *argv, "--keep-var-name", 0) == 0
    bundle = loadrun.load(out)
    assert bundle.graph.header.format == fmt
    assert bundle.testcases[0].inputs["x"].tolist() == [[10, 20, 30]] * 2
    assert bundle.testcases[0].expects["y"].tolist() == [[-10, -20, -30]] * 2
    assert bundle.graph.header.metadata is not None
    assert pickle.loads(bundle.graph.header.metadata.user_info or b"") == "hello"
    assert {v.name for v in bundle.graph.vars()} == {None, "x", "y:expect"}
    assert verdicts(out) == [Verdict.PASS]


def test_append(model: str, tmp_path: Path) -> None:
    out = tmp_path / "o.mge"
    for n in range(3):
        assert pack(model, "-d", f"#full({n})", "-o", out, "--append", "-q") == 0
    bundles = loadrun.load_all(out)
    assert [b.testcases[0].arrays["x"][0, 0] for b in bundles] == [0, 1, 2]
    assert [b.facts.trailing for b in bundles] == [0, 0, 0]
    assert all(b.record is not None for b in bundles)
    assert main([str(out)]) == 0
    # A reader that goes by lengths meets the dumps, one behind the other.
    data = out.read_bytes()
    at = sum(b.facts.size for b in bundles)
    assert [data[sum(b.facts.size for b in bundles[:i]) :][:8] for i in range(3)] == [b"mgbtest0"] * 3
    found = []
    while at < len(data):
        record = record_at(memoryview(data)[at:])
        assert record is not None
        found.append(header(record).get("dump"))
        at += len(record)
    assert found == [0, 1, 2]
    # As files were written before, with each record right behind its dump, they are read, and put right.
    records = [bytes(b.record) for b in bundles]
    sizes = [b.facts.size for b in bundles]
    parts = [data[sum(sizes[:i]) : sum(sizes[: i + 1])] + records[i] for i in range(3)]
    out.write_bytes(b"".join(parts))
    assert [bytes(b.record) for b in loadrun.load_all(out)] == records
    assert pack(model, "-d", "#full(3)", "-o", out, "--append", "-q", "--no-record") == 0
    assert out.read_bytes()[: sum(sizes)] == data[: sum(sizes)]
    assert [b.record is None for b in loadrun.load_all(out)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        ([], "no data to pack; pass some with -d"),
        (["-d", "z:#ones"], "the model has no input 'z'"),
        (["-d", "#ones", "--maxerr", "-1"], "expected a number of at least 0, found '-1'"),
        (["-d", "#ones", "--maxerr", "x"], "NAME=NUMBER: expected a number of at least 0, found 'x'"),
        (["-d", "#ones", "--maxerr", "1", "--maxerr", "2"], "--maxerr is given twice for all outputs"),
        (["-d", "#ones", "--maxerr", "z=1"], "maxerr names the output 'z'; the outputs are 'y'"),
        (["-d", "#ones", "--model-version", "1"], "MegEngine 1.13 cannot read version 1"),
        (["-d", "#ones", "--no-enable-metadata", "--user-info", "x"], "user_info is part of the metadata"),
        (["-d", "#ones", "--format", "FBS_V2", "--compat-older-version", "8.14"], "needs the format FBS"),
    ],
)
def test_usage_errors(
    argv: list[str], what: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(model, *argv, "-o", tmp_path / "o.mge") == 2
    assert what in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["m.mge"]


def test_failure_late_in_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The 900th specification does not fit: no file appears, and the message says which line it was."""
    out = tmp_path / "o.mge"
    listed = tmp_path / "list.txt"
    listed.write_text("#rand(0,1)\n" * 899 + "#rand(0,1,1,7)\n" + "#rand(0,1)\n" * 100)
    assert pack(MLP, "-d", f"@{listed}", "-o", out) == 2
    said = capsys.readouterr().err
    assert "testcase 902" in said, "three testcases were there before"
    assert f"{listed}:900: #rand(0,1,1,7)" in said
    assert os.listdir(tmp_path) == ["list.txt"]
    out.write_bytes(b"old")
    assert pack(MLP, "-d", "missing.npy", "-o", out) == 2
    assert "missing.npy" in capsys.readouterr().err
    assert out.read_bytes() == b"old"


def test_nonfinite_output_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loadrun.save(unary(ElemwiseMode.LOG), tmp_path / "m.mge")
    assert pack(tmp_path / "m.mge", "-d", "#full(1)", "-d", "#full(-1)", "-o", tmp_path / "o.mge") == 0
    assert (
        "testcase 1 (specification 2: #full(-1)): output 'y' holds NaN, so its check fails"
        in capsys.readouterr().err
    )


def test_output_that_is_empty_later(model: str, tmp_path: Path) -> None:
    packer = Packer(loadrun.load(model), warn=print)
    with pytest.raises(loadrun.InputError, match="testcase 1: output 'y' has no elements"):
        packer.pack([{"x": X}, {"x": X[:0]}], tmp_path / "o.mge")


def test_model_without_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph()
    one = StoredTensor(F32, (1,), None, encode(np.array([2], "f4"), F32))
    graph.outputs = graph.add("ImmutableTensor", tensors=[one], names=["y"])
    with pytest.raises(UsageError, match="no inputs, so without checks there is nothing to pack"):
        Packer(Bundle(graph), PackOptions(no_assert=True), warn=print)
    Packer(Bundle(graph), warn=print).pack([{}], tmp_path / "o.mge")
    assert verdicts(tmp_path / "o.mge") == [Verdict.PASS]


def test_no_data(model: str, tmp_path: Path) -> None:
    with pytest.raises(loadrun.InputError, match="no input data to pack"):
        Packer(loadrun.load(model), warn=print).pack([], tmp_path / "o.mge")


@pytest.mark.slow
def test_thousands_of_testcases_stream(model: str, tmp_path: Path) -> None:
    """Memory while packing does not depend on the number of testcases."""

    def held(count: int) -> int:
        """Bytes that are alive when the last testcase is asked for."""
        found = []

        def inputs() -> Iterator[dict[str, Array]]:
            for i in range(count):
                if i == count - 1:
                    gc.collect()
                    found.append(tracemalloc.get_traced_memory()[0])
                yield {"x": np.full((100, 3), i, np.float32)}

        packer = Packer(loadrun.load(model), warn=print)
        tracemalloc.start()
        try:
            assert packer.pack(inputs(), tmp_path / "o.mge").testcases == count
            return found[0]
        finally:
            tracemalloc.stop()

    held(10)
    assert held(400) < held(100) + 20_000
    bundle = loadrun.load(tmp_path / "o.mge")
    assert len(bundle.testcases) == 100


def test_same_command_same_bytes(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    files = [tmp_path / "a.mge", tmp_path / "b.mge"]
    for out in files:
        assert pack(model, "-d", "#rand(0,1)", "-o", out, "--seed", 3) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    loadrun.save(loadrun.load(files[0]), files[1])
    assert files[0].read_bytes() == files[1].read_bytes(), "reading and writing is the identity"


def test_streams() -> None:
    """To an open file; one that cannot be rewound needs to know the number of testcases."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    data = io.BytesIO(b"head")
    data.seek(4)
    packer = Packer(loadrun.loads(dump_bytes(unary())), warn=print)
    result = packer.pack([{"x": X}, {"x": X}], data)
    assert result.tot_bytes == len(data.getvalue()) - 4
    assert len(loadrun.loads(data.getvalue()[4:]).testcases) == 2
    pipe = Pipe()
    with pytest.raises(UsageError, match="cannot be rewound"):
        loadrun.save(unary(), pipe, testcases=iter(()))
    loadrun.save(loadrun.loads(data.getvalue()[4:]), pipe)
    assert pipe.getvalue() == data.getvalue()[4:]


def test_places_that_cannot_be_written(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, said in (
        (tmp_path, f"loadrun: {tmp_path}: expected the name of a file to write, found a folder"),
        (tmp_path / "no" / "o.mge", f"loadrun: {tmp_path / 'no'}: the folder to write to does not exist"),
    ):
        assert pack(model, "-d", "#ones", "-o", target) == 2
        assert capsys.readouterr().err.strip() == said
    assert pack(tmp_path / "missing.mge", "-d", "#ones", "-o", "o.mge") == 2
    assert (
        capsys.readouterr().err.strip() == f"loadrun: {tmp_path / 'missing.mge'}: No such file or directory"
    )


def test_counts(tmp_path: Path) -> None:
    result = loadrun.save(loadrun.load(MLP), tmp_path / "o.mge", DumpOptions(keep_param_name=True))
    assert (result.nr_opr, result.inputs, result.outputs) == (43, ["data", "out:expect"], ["out"])
    assert "layers.0.weight" in result.params
    assert result.content_hash == 0
    assert result.tot_bytes == (tmp_path / "o.mge").stat().st_size
    floats = 4 + 16 + 24 + 32 + 32 * 20 + 32 + 32 + 32 + 24 * 32 + 16 * 24 + 4 * 16 + 1
    assert result.tensor_value_bytes == 4 * floats + 4
    old = loadrun.save(loadrun.load(MLP), tmp_path / "o.mge", format="FBS")
    assert old.content_hash == loadrun.load(tmp_path / "o.mge").graph.header.content_hash != 0


def reread(tmp_path: Path, **options: Any) -> Bundle:
    loadrun.save(loadrun.load(MLP), tmp_path / "o.mge", DumpOptions(**options))
    bundle = loadrun.load(tmp_path / "o.mge")
    assert [r.verdict for r in loadrun.run(bundle)] == [Verdict.PASS] * 3
    return bundle


def test_names_and_priorities(tmp_path: Path) -> None:
    graph = reread(tmp_path, keep_opr_name=True, keep_opr_priority=True).graph
    assert graph.oprs[7].name == "layers.0.MatrixMul"
    assert [graph.oprs[i].dumped.priority for i in (0, 1, 7, 42)] == [-(2**31), -(2**31), 7, 42]
    graph = reread(tmp_path, keep_opr_name=False, keep_var_name=2, dump_format="FBS").graph
    assert {o.name for o in graph.oprs} == {None}
    assert graph.oprs[7].outputs[0].name == "layers.0.MatrixMul"
    graph = reread(tmp_path, keep_var_name=1, dump_format="FBS").graph
    assert (graph.oprs[7].outputs[0].name, graph.oprs[31].outputs[0].name) == (None, "out")


def test_old_release(tmp_path: Path) -> None:
    bundle = reread(tmp_path, compat_older_version="8.14")
    assert (bundle.graph.header.format, bundle.graph.header.magic) == ("FBS", "MGBS")


def test_metadata(tmp_path: Path) -> None:
    assert reread(tmp_path, enable_metadata=False).graph.header.metadata is None
    found = reread(tmp_path, user_info=b"raw", model_version=3)
    assert found.graph.header.metadata is not None
    assert (found.graph.header.metadata.user_info, found.graph.header.model_version) == (b"raw", 3)
    found = reread(tmp_path, user_info={"a": [1, None]})
    assert found.graph.header.metadata is not None
    assert pickle.loads(found.graph.header.metadata.user_info or b"") == {"a": [1, None]}


def test_tensors_in_user_info_are_megengines(tmp_path: Path) -> None:
    found = reread(tmp_path, user_info={"w": loadrun.Tensor([1.5, 2.0])})
    assert found.graph.header.metadata is not None
    raw = found.graph.header.metadata.user_info or b""
    # What MegEngine 1.13 pickles tensors by.
    assert b"megengine.tensor" in raw
    assert b"loadrun" not in raw
    held = load_checkpoint(raw)["w"]
    assert held.tolist() == [1.5, 2.0]


def test_suggested_tolerances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "o.mge"
    argv = [MLP, "-d", "#randn(0,1)", "-o", out, "--maxerr", "auto", "--replace"]
    assert pack(*argv) == 0
    assert "suggested: --maxerr out=" in capsys.readouterr().out
    bundle = loadrun.load(out)
    assert 1e-6 <= bundle.checks[0].maxerr <= 1e-4
    assert isinstance(bundle.record, memoryview)
    assert "10 times the noise of" in header(bundle.record)["policy"]["out"]["reason"]
    assert verdicts(out) == [Verdict.PASS]
    assert pack(*argv, "--maxerr", "0.5") == 0
    assert loadrun.load(out).checks[0].maxerr == 0.5


def test_noise_of_one_operator() -> None:
    """What computes exactly has no noise; exp turns a step of its input into that relative step of its output."""
    assert suggest(Bundle(unary()), {"x": X})["y"].noise == {
        "the number of threads": 0,
        "executing operators one by one": 0,
        "float64 arithmetic": 0,
        "rounding of inputs and weights": 0,
    }
    model = Bundle(unary(ElemwiseMode.EXP))
    x = np.full((2, 3), 80.1, np.float32)
    found = suggest(model, {"x": x})["y"]
    assert (found.wide, found.narrow) == (1, {})
    # Between 64 and 128 float32 numbers lie 2^-17 apart.
    assert found.noise["rounding of inputs and weights"] == pytest.approx(np.expm1(2.0**-17), rel=0.1)
    true = np.exp(x.astype(np.float64))
    got = loadrun.run(model, {"x": x})[0]["y"].astype(np.float64)
    error = (np.abs(true - got) / np.minimum(true, got)).max()
    assert found.noise["float64 arithmetic"] == pytest.approx(error, rel=1e-9)
    assert 0 < error < 2**-21
    assert found.maxerr == 1e-4
    assert found.reason.endswith("e-06 from rounding of inputs and weights, rounded up")


def test_noise_that_float64_alone_shows() -> None:
    """(x + 1e8) - 1e8 is x, and 0 in float32, where numbers of that size lie 8 apart."""
    graph = unary()
    huge = StoredTensor(F32, (1,), None, encode(np.array([1e8], "f4"), F32))
    (big,) = graph.add("ImmutableTensor", tensors=[huge])
    (x,) = graph.inputs
    (up,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, big])
    (down,) = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.SUB), inputs=[up, big], names=["z"])
    (wild,) = graph.add(
        "Elemwise", Elemwise(mode=ElemwiseMode.SIGMOID_GRAD), inputs=[down, down], names=["w"]
    )
    graph.outputs = [down, wild]
    found = suggest(Bundle(graph), {"x": np.full((2, 3), 0.25, np.float32)})
    assert found["z"].noise["float64 arithmetic"] == 0.25
    assert found["z"].noise["rounding of inputs and weights"] == 0
    assert (found["z"].wide, found["z"].narrow, found["z"].maxerr) == (2, {"SIGMOID_GRAD": 1}, 5.0)
    said = "10 times the noise of 0.25 from float64 arithmetic of 2 of 3 operators, without SIGMOID_GRAD, rounded up"
    assert found["z"].reason == said
    # y (1 - y) dy at 1/4 and at 0.
    assert found["w"].noise["float64 arithmetic"] == 0.25 * 0.75 * 0.25


def test_strip_info(tmp_path: Path) -> None:
    """What MegEngine 1.13 itself said of the bare model of this file."""
    from loadrun.passes.constants import bare

    graph = bare(loadrun.load("fixtures/nets/quant_resnet_quint8.mge"))
    types = "Concat ConvBiasForward Elemwise ElemwiseMultiType GetVarShape Host2DeviceCopy ImmutableTensor MatrixMul"
    assert strip_info(graph) == {
        "dtypes": ["Byte", "Float32", "Int32", "Quantized8Asymm", "QuantizedS32"],
        "elemwise_modes": ["ADD"],
        "opr_types": [*types.split(), "PoolingForward", "Reshape", "Subtensor", "TypeCvt"],
    }
    path = tmp_path / "strip.json"
    path.write_text("")
    for append in (True, True, False):
        options = DumpOptions(strip_info_file=str(path), append_json=append)
        loadrun.save(unary() if append else graph, tmp_path / "o.mge", options)
        found = json.loads(path.read_text())
        assert ("NEGATE" in found["elemwise_modes"]) == append
        assert found["hash"] == 0
    with path.open("r+") as f:
        loadrun.save(unary(), tmp_path / "o.mge", DumpOptions(strip_info_file=f, append_json=True))
        f.seek(0)
        assert json.load(f)["elemwise_modes"] == ["ADD", "NEGATE"], "an open file, as MegEngine takes it"
    path.write_text("[]")
    with pytest.raises(UsageError, match="is not a strip info file"):
        loadrun.save(graph, tmp_path / "o.mge", DumpOptions(strip_info_file=str(path), append_json=True))


def test_helpers() -> None:
    assert tolerances(["2"]) == 2
    assert tolerances(None) is None
    text_of = TextSource(["#ones", "#zeros"])
    assert [text_of(i) for i in (1, 0, 1)] == [
        f"specification {i + 1}: #{'ones' if i == 0 else 'zeros'}" for i in (1, 0, 1)
    ]


def test_a_list_is_read_a_few_times_and_not_for_each_line(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every testcase is warned of, its line is looked up each time."""
    np.save(tmp_path / "nan.npy", np.full_like(X, np.nan))
    (tmp_path / "list.txt").write_text("nan.npy\n" * 300)
    parsed = 0
    line = lists._line

    def counted(text: str, where: str) -> object:
        nonlocal parsed
        parsed += 1
        return line(text, where)

    monkeypatch.setattr(lists, "_line", counted)
    assert main(["pack", model, "-d", f"@{tmp_path / 'list.txt'}", "-o", str(tmp_path / "o.mge")]) == 0
    assert 300 <= parsed <= 5 * 300


def test_interrupted(model: str, tmp_path: Path) -> None:
    """Ctrl-C in the middle leaves neither a half file nor a temporary one."""

    def inputs() -> Iterator[dict[str, Array]]:
        yield {"x": X}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Packer(loadrun.load(model), warn=print).pack(inputs(), tmp_path / "o.mge")
    assert os.listdir(tmp_path) == ["m.mge"]


def test_layout_nets_keep_their_output_names(tmp_path: Path) -> None:
    """Optimization renamed the variables; the outputs are still called what the checks call them."""
    source = loadrun.load("fixtures/nets/layout_chain_nchw44.mge")
    out = tmp_path / "o.mge"
    assert (
        pack("fixtures/nets/layout_chain_nchw44.mge", "--replace", "-d", "#rand(0,1)", "-o", out, "-q") == 0
    )
    assert [c.name for c in loadrun.load(out).checks] == [c.name for c in source.checks] == ["map"]
    assert verdicts(out) == [Verdict.PASS]


def test_input_that_feeds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = unary()
    tensor = StoredTensor(F32, (4,), "idle")
    model.add("Host2DeviceCopy", Host2DeviceCopy(), names=["idle"], tensors=[tensor])
    loadrun.save(model, tmp_path / "m.mge")
    assert pack(tmp_path / "m.mge", "-d", "#ones", "-o", tmp_path / "o.mge") == 0
    assert "nothing is computed from the input 'idle', so it is omitted" in capsys.readouterr().err
    assert list(loadrun.load(tmp_path / "o.mge").testcases[0].arrays) == ["x", "y:expect"]


def test_default_tolerances_follow_the_scale(tmp_path: Path) -> None:
    """MegEngine's measure is absolute below 1: zeros in place of numbers near 1e-5 would pass at 1e-4."""
    warned: list[str] = []

    def limits(cases: list[list[float]], **options: Any) -> dict[str, float]:
        packer = Packer(Bundle(unary()), PackOptions(**options), warn=warned.append)
        packer.pack([{"x": np.array([c, c], "f4")} for c in cases], tmp_path / "m.mge")
        return {c.name: float(f"{c.maxerr:.3g}") for c in loadrun.load(tmp_path / "m.mge").checks}

    assert limits([[2e-5, -7e-6, 0]]) == {"y": 1e-8}
    assert limits([[0, 0, 0], [2e-5, 0, 0], [0.3, 0, 0]]) == {"y": 1e-4}
    assert limits([[0.02, 0.03, 0]]) == {"y": 1e-5}
    # What is asked for is taken as it is, MegEngine's own default as well.
    assert limits([[2e-5, -7e-6, 0]], maxerr=1e-4) == {"y": 1e-4}
    assert limits([[2e-5, -7e-6, 0]], maxerr={"y": 1e-3}) == {"y": 1e-3}
    assert not [w for w in warned if "follows its scale" in w]


def test_later_testcases_of_another_scale_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadrun.verify.pack.packing._AHEAD", 10)
    warned: list[str] = []
    packer = Packer(Bundle(unary()), PackOptions(), warn=warned.append)
    packer.pack([{"x": np.full((2, 3), x, "f4")} for x in (1e-3, 5.0)], tmp_path / "m.mge")
    assert [w for w in warned if "the tolerance of 'y' follows its scale in the first testcases, 0.001" in w]


def test_info_shows_the_policy_of_an_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "m.mge")
    argv = ["pack", "fixtures/nets/mlp.mge", "--replace", "-d", "#rand(0,1)", "--check", "out: ulp<=2", "-q"]
    assert main([*argv, "-o", target]) == 0
    capsys.readouterr()
    assert main(["info", target, "--quiet"]) == 0
    shown = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("output"))
    assert shown.endswith("; ulp<=2")


def test_replacing_testcases_by_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "fixtures/nets/mlp.mge", "--replace", "-o", str(tmp_path / "a.mge")]) == 2
    assert "--replace leaves out the testcases of the file" in capsys.readouterr().err


def test_tolerances_are_measured_on_the_testcases_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(MLP, "--maxerr", "auto", "-o", tmp_path / "m.mge") == 0
    assert "suggested: --maxerr out=" in capsys.readouterr().out
