"""`loadrun diff` names what was broken on purpose."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

import loadrun
from loadrun.base.about import About
from loadrun.cli import main
from loadrun.dump.options import DumpOptions
from loadrun.engines import Setup, register_engine
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, MatrixMul, Reduce, ReduceMode
from loadrun.passes.constants import bare, subgraph
from loadrun.passes.inference import optimize_for_inference
from loadrun.report.differences import optimized
from loadrun.testing import GraphBuilder
from loadrun.verify.diff import FileSide, between, extract, match, read_values, watch
from loadrun.verify.diff.measuring import Distance, agree
from loadrun.verify.diff.stored import read_binary_dump
from tests.support.broken_models import broken, copied, model, weight_changed
from tests.support.cases import slow_but

HIDDEN = {"detector_rcnn-weight_changed-86"}
"""Models in which what was broken has no effect on any value: the differing constant alone tells."""


@pytest.mark.slow
def test_the_guilty_operator_is_named() -> None:
    titles = set()
    for title, bad, good, feeds, opr in broken([*range(40), 86]):
        found = between(bad, good, feeds)
        titles.add(title)
        if title in HIDDEN:
            assert found.agree, title
            assert found.constants, title
            continue
        assert found.roots[0].opr is opr, title
        assert {r.opr.id for r in found.roots} == {opr.id}, title
    assert titles >= HIDDEN


@pytest.mark.parametrize(
    "passes",
    [
        {},
        {"enable_fuse_conv_bias_nonlinearity": True},
        {"enable_nchw44": True, "enable_fuse_conv_bias_nonlinearity": True},
    ],
    ids=["default", "fused", "nchw44"],
)
@pytest.mark.parametrize("name", slow_but(["unet"], ["resnet_basic", "vgg", "unet", "mobilenet_v3", "bert"]))
def test_the_guilty_operator_of_an_optimized_graph(name: str, passes: dict[str, bool]) -> None:
    good, feeds = model(name, named=False)
    bad = optimize_for_inference(copied(good), **passes)[0]
    assert between(bad, good, feeds).agree
    opr = weight_changed(bad, Random(0))
    root = between(bad, good, feeds).roots[0]
    assert opr is root.opr or opr in root.between


def three(mode: str = "TANH", weight: float = 2.0) -> Graph:
    """y = abs(MODE(x * weight)), by hand."""
    b = GraphBuilder()
    x = b.input("x", 3)
    scaled = b.elemwise("MUL", x, b.const([1.0, weight, 3.0]), name="scaled")
    return b.done(b.elemwise("ABS", b.elemwise(mode, scaled, name="bent"), name="y"))


X = {"x": np.array([0.5, 1.0, -1.0], "f4")}


def test_a_changed_weight() -> None:
    found = between(three(weight=2.5), three(), X)
    assert [r.var.name for r in found.rows] == ["scaled", "bent", "y"]
    assert [r.agrees for r in found.rows] == [False, False, False]
    (root,) = found.roots
    assert root.var.name == "scaled"
    (constant,) = found.causes(root)
    assert (constant.count, constant.size, constant.index) == (1, 3, (1,))
    assert (constant.found, constant.expected) == (2.5, 2.0)
    first = found.first
    assert first is not None
    assert first.distance is not None
    assert first.distance.index == (1,)
    # 2.5 against 2, relative to the largest of 0.5, 2 and 3.
    assert first.distance.relative == pytest.approx(0.5 / 3)


def fusing(*modes: str) -> Graph:
    """Outputs u, behind some operators on x + 1, and v = exp(u)."""
    b = GraphBuilder()
    first, *others = modes
    x, one = b.input("x", 3), b.const([1.0, 1.0, 1.0])
    y = b.elemwise(first, x, one)
    for mode in others:
        y = b.elemwise(mode, y)
    u = b.elemwise("COS", y, name="u")
    return b.done(u, b.elemwise("EXP", u, name="v"))


def test_outputs_are_compared_behind_a_fusion() -> None:
    """A walk from the inputs is one operator ahead there, and comes to an output with an inner value."""
    plain = fusing("ADD", "RELU", "SIN")
    for value, other in zip(plain.outputs, ("first", "second"), strict=True):
        value.name = other
    found = between(plain, fusing("FUSE_ADD_RELU", "SIN"), X)
    assert {r.var.name for r in found.rows if r.agrees} >= {"first", "second"}
    assert found.outputs_agree


def test_outputs_that_the_other_model_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part = fusing("ADD", "SIN"), fusing("ADD", "SIN")
    part.outputs = part.outputs[:1]
    for name, graph in (("whole", whole), ("part", part)):
        loadrun.save(graph, tmp_path / f"{name}.mge")
    against = ["--against", str(tmp_path / "part.mge")]
    assert main(["diff", str(tmp_path / "whole.mge"), *against]) == 1
    told = capsys.readouterr().out
    assert "the model's outputs were not all compared" in told
    assert "output 'v' is not in the reference" in told
    assert main(["diff", str(tmp_path / "part.mge"), "--against", str(tmp_path / "whole.mge")]) == 1
    assert "output 'v' is missing" in capsys.readouterr().out


def test_a_weight_that_differs_within_the_tolerance_is_no_folded_batch_norm() -> None:
    graphs = []
    for factor in (1.0, 1.00001, 1.01, 1.1):
        b = GraphBuilder()
        weight = np.arange(1, 7, dtype="f4").reshape(2, 3)
        weight[0, 2] *= factor
        if factor == 1.01:
            weight[0] = np.array([1, 2, 3], "f4") * np.float32(factor)
        x = b.input("x", 4, 3)
        graphs.append(
            b.done(b.add("MatrixMulV2", MatrixMul(transposeB=True), inputs=[x, b.const(weight)], name="y"))
        )
    feeds = {"x": np.ones((4, 3), "f4")}
    (near,) = between(graphs[1], graphs[0], feeds).constants
    assert (near.count, near.is_scaled) == (1, False)
    (scaled,) = between(graphs[2], graphs[0], feeds).constants
    assert (scaled.count, scaled.is_scaled) == (3, True)
    (wrong,) = between(graphs[3], graphs[0], feeds).constants
    assert (wrong.count, wrong.is_scaled) == (1, False)


def test_a_quantized_value_may_be_off_by_one_step() -> None:
    dtype = DType("QuantizedS8", 0.1)
    step, two = (Distance(n, n * 0.1, n * 0.1, (0,), n * 0.1, 0.0) for n in (1, 2))
    assert agree(step, dtype, 1e-3)
    assert not agree(two, dtype, 1e-3)
    assert not agree(step, dtype, 1e-3, exactly=True)


def test_a_replaced_operator() -> None:
    found = between(three("SIGMOID"), three(), X)
    assert [r.var.name for r in found.roots] == ["bent"]
    assert found.rows[0].agrees
    assert not found.constants


def test_a_graph_agrees_with_itself_in_double_precision() -> None:
    graph, feeds = model("resnet_basic", named=True)
    found = between(graph, "float64", feeds)
    assert found.agree
    worst = max(r.distance.relative for r in found.rows if r.distance is not None)
    assert 0 < worst < 1e-5


def test_a_sum_that_cancels_leaves_rounding() -> None:
    """The mean of what had its mean taken away is rounding of the terms, 1e-8 here, and other in every engine."""
    x = np.random.default_rng(0).random((4, 1000), np.float32) + 3

    def centred(shift: float) -> Graph:
        b = GraphBuilder()
        start = b.input("x", *x.shape)
        mean = Reduce(mode=ReduceMode.MEAN, axis=1)
        rest = b.elemwise("SUB", start, b.add("ReduceV2", mean, inputs=[start]))
        return b.done(b.add("ReduceV2", mean, inputs=[b.elemwise("ADD", rest, b.const([shift]))], name="y"))

    found = between(centred(0), "float64", {"x": x})
    (y,) = (r.distance for r in found.rows if r.var.name == "y")
    assert y is not None
    assert 1e-9 < y.absolute < 1e-6
    assert y.relative > 0.1
    assert found.agree
    # A mean of 2e-5 is no rounding of terms up to 0.5.
    moved = between(centred(0), centred(2e-5), {"x": x})
    assert [r.var.name for r in moved.rows if not r.agrees] == ["y"]


def test_unrelated_models_are_refused() -> None:
    b = GraphBuilder()
    other = b.done(b.elemwise("EXP", b.input("z", 2)), b.const([1.0]))
    with pytest.raises(loadrun.LoadRunError, match="the two models cannot be matched"):
        between(three(), other, {**X, "z": np.zeros(2, "f4")})


def test_matching_by_structure_without_names() -> None:
    graph, _ = model("mlp", named=False)
    other, _ = model("mlp", named=True)
    found = match(graph, other)
    assert len(found.pairs) == len([*graph.vars()])


def test_an_extracted_operator_fails_by_itself(tmp_path: Path) -> None:
    bad, good = three(weight=2.5), three()
    root = between(bad, good, X).roots[0]
    path = tmp_path / "alone.mge"
    loadrun.save(extract(bad, root.opr, good, X), path)
    (result,) = loadrun.run(path)
    assert result.verdict.value == "fail"
    bundle = loadrun.load(path)
    assert [o.type for o in bare(bundle).oprs if o.inputs] == ["Elemwise"]
    np.testing.assert_allclose(bundle.testcases[0].expects["scaled"], [0.5, 2.0, -3.0])
    # The same operator with the right weight passes.
    loadrun.save(extract(good, good.oprs[2], good, X), path)
    assert loadrun.run(path)[0].verdict.value == "pass"


def test_stored_values(tmp_path: Path) -> None:
    good = {"scaled": np.array([0.5, 2.0, -3.0], "f4"), "y": np.abs(np.tanh([0.5, 2.0, -3.0])).astype("f4")}
    np.savez(tmp_path / "values.npz", **good)
    found = between(three(), read_values(tmp_path / "values.npz"), X)
    assert found.agree
    assert len(found.rows) == 2
    folder = tmp_path / "values"
    folder.mkdir()
    np.save(folder / "scaled.npy", good["scaled"] + np.float32(1))
    found = between(three(), read_values(folder), X)
    assert [r.var.name for r in found.roots] == ["scaled"]


def test_files_of_bin_io_dump(tmp_path: Path) -> None:
    """The layout that load_and_run writes: three numbers, seven sizes, a text, the values."""
    folder = tmp_path / "bio"
    folder.mkdir()
    for number, name, value in ((10, "scaled", [0.5, 2.0, -3.0]), (16, "bent", np.tanh([0.5, 2.0, -3.0]))):
        text = f"var={{id:{number}, layout:{{3(1) Float32}}, owner:x{{Elemwise}}, name:{name}, slot:0, CompNode}}"
        head = np.array([len(text), 0, 7, 3, 0, 0, 0, 0, 0, 0], "<u4").tobytes()
        (folder / f"{number:06x}").write_bytes(head + text.encode() + np.asarray(value, "<f4").tobytes())
    stored = read_values(folder)
    assert stored.names() == ["scaled", "bent"]
    assert between(three(), stored, X).agree
    assert not between(three("SIGMOID"), stored, X).agree
    (folder / "00000a").write_bytes(b"short")
    with pytest.raises(loadrun.FormatError, match="too few"):
        read_values(folder)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (0, "f4"),
        (1, "u1"),
        (2, "i1"),
        (3, "i2"),
        (4, "i4"),
        (9, "f2"),
        (12, "?"),
        (100000, "u1"),
        (100001, "i4"),
        (100002, "i1"),
    ],
)
def test_types_of_bin_io_dump(number: int, dtype: str, tmp_path: Path) -> None:
    """The numbers are those that megengine.tools.compare_binary_iodump knows, and 12 for Bool."""
    value = np.array([[1, 0, 1]], dtype)
    head = np.array([0, number, 7, 1, 3, 0, 0, 0, 0, 0], "<u4").tobytes()
    path = tmp_path / "00000a"
    path.write_bytes(head + value.tobytes())
    found = read_binary_dump(path)[1]
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, value)


def test_where_nan_begins_and_where_it_is_hidden() -> None:
    b = GraphBuilder()
    x = b.input("x", 2)
    log = b.elemwise("LOG", x, name="log")
    doubled = b.elemwise("ADD", log, log, name="doubled")
    graph = b.done(b.elemwise("LT", doubled, b.const(0.0), name="low"))
    found = watch(graph, {"x": np.array([1.0, -1.0], "f4")})
    assert [(f.var.name, f.what, f.origin, f.hidden) for f in found] == [
        ("log", "NaN", True, False),
        ("doubled", "NaN", False, True),
    ]
    assert found[0].index == (1,)
    assert watch(graph, {"x": np.array([1.0, 2.0], "f4")}) == []
    beyond = watch(graph, {"x": np.array([1.0, 2.0], "f4")}, limit=1.5)
    assert [(f.var.name, f.what) for f in beyond] == [("x", "out of range")]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.mge", tmp_path / "bad.mge"
    loadrun.save(three(), good)
    loadrun.save(three(weight=2.5), bad)
    np.save(tmp_path / "x.npy", X["x"])
    data = ["--input", f"x:{tmp_path / 'x.npy'}"]
    alone = tmp_path / "alone.mge"
    assert main(["diff", str(bad), "--against", str(good), *data, "--output", str(alone)]) == 1
    out = capsys.readouterr().out
    assert "first to diverge: Elemwise 'scaled' (operator 2), worst at [1]: 2.5 against 2" in out
    assert "differs in 1 of 3 elements, most at [1]: 2.5 against 2" in out
    assert main([str(alone), "-q"]) == 1
    capsys.readouterr()
    assert main(["diff", str(good), *data, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["agree"] is True
    assert len(report["rows"]) == 3
    assert main(["diff", str(good), *data, "--range", "1.5"]) == 1
    assert "out of range begins at" in capsys.readouterr().out
    assert main(["diff", str(good), *data, "--range", "inf"]) == 0
    assert main(["diff", str(good), "--against", str(tmp_path / "none.mge"), *data]) == 2
    assert "none.mge: No such file" in capsys.readouterr().err
    assert main(["diff", "fixtures/nets/mlp.mge", "--testcase", "9"]) == 2
    assert "has testcases 0 to" in capsys.readouterr().err


class _Slip:
    """The reference engine on a copy of the graph in which one operator is another one."""

    def __init__(self, graph: Graph, targets: list, setup: Setup) -> None:
        made, known = subgraph(graph, [*targets, *graph.outputs])
        for opr in made.oprs:
            if opr.outputs[0].name == "slip":
                opr.params = (Elemwise(mode=ElemwiseMode.MAX),)
        self._engine = ReferenceEngine(made, [known[v.id] for v in targets], seed=setup.seed)
        self.inputs = self._engine.inputs
        self.about = About("slip", "1", "float32")
        self.run = self._engine.run


@pytest.fixture
def slip(tmp_path: Path) -> Path:
    """``relu((x + 1) * x + x)`` with names, and an engine that computes max(x + 1, x) for the product."""
    register_engine("slip", _Slip)
    b = GraphBuilder()
    x = b.input("x", 4)
    product = b.elemwise("MUL", b.elemwise("ADD", x, b.const(1.0), name="sum"), x, name="slip")
    graph = b.done(b.elemwise("RELU", b.elemwise("ADD", product, x, name="more"), name="y"))
    loadrun.save(graph, tmp_path / "m.mge", DumpOptions(keep_var_name=2))
    return tmp_path / "m.mge"


@pytest.mark.parametrize("how", [[], ["--bisect"]])
def test_an_engine_as_the_other_side(
    slip: Path, how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "alone.mge"
    data = ["--input", "[3,4,5,6]", "--output", str(alone)]
    assert main(["diff", str(slip), "--against", "slip", *data, *how]) == 1
    out = capsys.readouterr().out
    assert "first to diverge: Elemwise 'slip'" in out
    assert f"{alone}: MUL 'slip' alone" in out
    # What the engine gives is expected there: max(x + 1, x) is x + 1.
    (case,) = loadrun.load(alone).testcases
    np.testing.assert_array_equal(case.expects["slip"], [4, 5, 6, 7])
    assert main(["diff", str(slip), "--against", "reference", "--input", "[3,4,5,6]", *how]) == 0


class _Fusing:
    """An engine that computes max(sum, x) for the product, unless (or only if) it is asked for the sum as well."""

    unless = True

    def __init__(self, graph: Graph, targets: list, setup: Setup) -> None:
        asked = any(v.name == "sum" for v in targets)
        wrong = asked != self.unless
        engine = _Slip(graph, targets, setup)._engine if wrong else ReferenceEngine(graph, targets)
        self.inputs, self.run = engine.inputs, engine.run
        self.about = About("fusing", "1", "float32")


def test_an_optimization_that_asking_for_values_hides(
    slip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The outputs of the run that users have count, and halving finds the operator by itself."""
    register_engine("fusing", _Fusing)
    data = ["--against", "fusing", "--input", "[3,4,5,6]", "--json", str(tmp_path / "d.json")]
    assert main(["diff", str(slip), *data]) == 1
    out = capsys.readouterr().out
    assert "output 'y' differs as the engine is used, and agrees once every value is asked for" in out
    assert "to blame: Elemwise 'slip' (operator 3): it agrees as soon as every value is asked for" in out
    found = json.loads((tmp_path / "d.json").read_text())
    assert [r["variable"] for r in found["rows"] if r["to_blame"]] == ["slip"]
    assert [r["agrees"] for r in found["rows"] if r["variable"] == "y"] == [False]
    monkeypatch.setattr(_Fusing, "unless", False)
    assert main(["diff", str(slip), *data]) == 1
    out = capsys.readouterr().out
    assert (
        "the engine's outputs agree as it is used; it computes otherwise once every value is asked for" in out
    )
    assert [r["agrees"] for r in json.loads((tmp_path / "d.json").read_text())["as_used"]] == [True]


def test_the_optimization_of_onnxruntime_is_named(tmp_path: Path) -> None:
    """To the bit, folding a batch norm changes the outputs."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.support.onnx_files import batchnorm_model

    bundle = loadrun.load(batchnorm_model(tmp_path))
    feeds = {"x": np.random.default_rng(0).random((1, 3, 16, 16), "f4")}
    assert bundle.source.file is not None
    side = FileSide(bare(bundle), bundle.source.file, "onnxruntime")
    assert any("onnxruntime at basic: ConvBNFusion" in line for line in optimized(side, feeds, 0.0))
    assert [*optimized(side, feeds, None)] == []


def test_an_engine_that_does_not_run_the_model_says_why(
    fixtures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    why = "onnxruntime cannot run SVD (operator 2): ONNX has no singular value decomposition"
    file = str(fixtures / "ops" / "linalg" / "svd_reduced_3x5_rebuilt.mge")
    for options in ([], ["--bisect"]):
        assert main(["diff", file, "--against", "onnxruntime", *options]) == 2
        assert why in capsys.readouterr().err
    flow = str(fixtures / "nets" / "optical_flow.mge")
    # What comes before the operator is compared.
    assert main(["diff", flow, "--against", "onnxruntime"]) == 3
    shown = capsys.readouterr()
    assert "onnxruntime cannot run CorrelationForward" in shown.err
    assert "the model's outputs were not all compared" in shown.out


def test_bisecting_needs_an_engine(slip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(slip), "--against", str(slip), "--bisect"]) == 2
    assert "--bisect needs an engine" in capsys.readouterr().err
    assert main(["diff", str(slip), "--against", "nonsense"]) == 2


def test_saved_results_as_the_other_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, saved = "fixtures/nets/mlp.mge", str(tmp_path / "results.zip")
    assert main([model, "--output", saved, "-q"]) == 0
    assert main(["diff", model, "--against", saved, "--testcase", "1"]) == 0
    assert "1 values compared" in capsys.readouterr().out
    assert main(["diff", model, "--against", saved, "--testcase", "1", "--input", "#zeros(5,...)"]) == 1


def test_files_of_bin_out_dump(tmp_path: Path) -> None:
    """What load_and_run writes for the output of a check: its name is that of the AssertEqual."""
    folder = tmp_path / "bout"
    folder.mkdir()
    value = np.arange(10, dtype="<f4")
    text = (
        b"var={id:241, shape:{1,10}, Float32, owner:assert_eq(out:expect,out)[240]{AssertEqual}, "
        b'name:assert_eq(out:expect,out)[1414], slot:0, CompNode("cpu0:0" from "xpu0:0")}'
    )
    head = np.array([len(text), 0, 7, 1, 10, 0, 0, 0, 0, 0], "<u4").tobytes()
    (folder / "run0-var241").write_bytes(head + text + value.tobytes())
    assert read_values(folder).names() == ["out"]
