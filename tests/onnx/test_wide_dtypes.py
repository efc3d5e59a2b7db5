"""float64, 64-bit and unsigned integers in ONNX models: kept in memory, narrowed in .mge files if nothing changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.dump.options import DumpOptions
from loadrun.testcase import Testcase
from loadrun.verify.pack.files import FilePacker
from loadrun.verify.pack.options import PackOptions
from loadrun.verify.pack.packing import Packer
from tests.onnx.wire_models import KINDS, attribute, field, model, node, tensor, value

Array = np.ndarray[Any, Any]


def onnx(
    *nodes: bytes, x: Array, to: str = "", shape: tuple[int, ...] | None = None, **stored: Array
) -> bytes:
    """A model with an input like x, stored tensors, and the output y."""
    kept = [field(5, tensor(np.asarray(a), n)) for n, a in stored.items()]
    out = value("y", KINDS[to or x.dtype.name], x.shape if shape is None else shape)
    ins = value("x", KINDS[x.dtype.name], x.shape)
    return model(*nodes, *kept, field(11, ins), field(12, out), opset=18)


def computed(data: bytes, x: Array) -> Array:
    (found,) = loadrun.Runner(loadrun.loads(data)).run({"x": x}).outputs
    assert found.value is not None
    return found.value


N = np.array([1000, 2000, 11000], "i8")
WHOLE: list[tuple[list[bytes], Array, dict[str, Array], str, list[int]]] = [
    (
        [node("Mul", ["x", "a"], ["t"]), node("Mod", ["t", "b"], ["y"])],
        N,
        {"a": np.int64(48271), "b": np.int64(65521)},
        "",
        [i * 48271 % 65521 for i in (1000, 2000, 11000)],
    ),
    (
        [node("Mul", ["x", "a"], ["y"])],
        N,
        {"a": np.int64(1 << 40)},
        "",
        [i << 40 for i in (1000, 2000, 11000)],
    ),
    ([node("Mul", ["x", "a"], ["y"])], np.array([1, 2], "i4"), {"a": np.int32(-(2**31))}, "", [-(2**31), 0]),
    ([node("Mul", ["x", "x"], ["y"])], np.full(16, 12345, "i4"), {}, "", [12345**2] * 16),
    ([node("Add", ["x", "x"], ["y"])], np.array([3 * 10**9, 5], "u4"), {}, "", [6 * 10**9 - 2**32, 10]),
    *(
        (
            [node("Mod", ["x", "x"], ["r"]), node("Sub", ["x", "r"], ["t"]), node("Mod", ["a", "t"], ["y"])],
            np.array([3, 10**9], f"u{size}"),
            {"a": np.array(2**32 - 2, f"u{size}")},
            "",
            [2, (2**32 - 2) % 10**9],
        )
        for size in (4, 8)
    ),
    (
        [node("Div", ["x", "a"], ["y"])],
        np.array([2**64 - 1], "u8"),
        {"a": np.uint64(3)},
        "",
        [(2**64 - 1) // 3],
    ),
    (
        [node("BitShift", ["x", "a"], ["y"], attribute("direction", "LEFT"))],
        np.array([2**40 + 1, 5], "u8"),
        {"a": np.array([23, 62], "u8")},
        "",
        [(2**40 + 1 << 23) % 2**64, (5 << 62) % 2**64],
    ),
    ([node("BitwiseAnd", ["x", "a"], ["y"])], N << 33, {"a": np.int64(1 << 43)}, "", [0, 1 << 43, 0]),
    ([node("Pow", ["x", "a"], ["y"])], np.array([3, -7], "i8"), {"a": np.int64(20)}, "", [3**20, 7**20]),
    ([node("Pow", ["x", "a"], ["y"])], np.array([4, 7, 10], "i4"), {"a": np.float32(0.5)}, "", [2, 2, 3]),
    (
        [node("Cast", ["x"], ["y"], attribute("to", 7))],
        np.array([3e9, -3e9, 1.5, math.nan], "f4"),
        {},
        "int64",
        [3 * 10**9, -3 * 10**9, 1, -(2**63)],
    ),
    (
        [node("Cast", ["x"], ["y"], attribute("to", 6))],
        np.array([3e9, -1.5, math.inf], "f8"),
        {},
        "int32",
        [-(2**31), -1, -(2**31)],
    ),
    ([node("Cast", ["x"], ["y"], attribute("to", 6))], np.array([2**32 + 7], "i8"), {}, "int32", [7]),
]


@pytest.mark.parametrize(("nodes", "x", "stored", "to", "expected"), WHOLE)
def test_integers(
    nodes: list[bytes], x: Array, stored: dict[str, Array], to: str, expected: list[int]
) -> None:
    """Exact to their own width, then wrapped: numbers by Python, casts as x86 does them."""
    got = computed(onnx(*nodes, x=x, to=to, **stored), x)
    assert got.dtype == np.dtype(to or x.dtype)
    assert got.tolist() == expected


R = np.random.default_rng(7)
X, W, B = R.standard_normal((3, 4)), R.standard_normal((4, 5)), R.standard_normal(5)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def _normal(x: Array) -> Array:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)))


def test_float64() -> None:
    """A net in float64 is off by float64's rounding alone; numbers by numpy."""
    nodes = [
        node("Mul", ["x", "x"], ["m"]),
        node("Add", ["m", "x"], ["a"]),
        node("Gemm", ["a", "w", "b"], ["g"]),
        node("Softmax", ["g"], ["y"]),
    ]
    got = computed(onnx(*nodes, x=X, shape=(3, 5), w=W, b=B), X)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, _softmax((X * X + X) @ W + B), rtol=1e-13)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Exp", np.exp),
        ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("Tanh", np.tanh),
        ("Erf", lambda x: np.vectorize(math.erf)(x)),
        ("Softplus", lambda x: np.log1p(np.exp(x))),
        ("ReduceMean", lambda x: x.mean(keepdims=True)),
        ("ReduceL2", lambda x: np.sqrt((x * x).sum(keepdims=True))),
        ("ReduceLogSumExp", lambda x: np.log(np.exp(x).sum(keepdims=True))),
    ],
)
def test_functions_in_float64(op: str, function: Any) -> None:
    np.testing.assert_allclose(computed(onnx(node(op, ["x"], ["y"]), x=X), X), function(X), rtol=1e-13)


def test_convolution_pooling_and_norms_in_float64() -> None:
    x, w = R.standard_normal((1, 2, 6, 6)), R.standard_normal((3, 2, 3, 3))
    got = computed(onnx(node("Conv", ["x", "w"], ["y"]), x=x, shape=(1, 3, 4, 4), w=w), x)
    taps = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    np.testing.assert_allclose(got[0], np.einsum("chwij,ocij->ohw", taps, w), rtol=1e-12)
    pooled = [
        node("AveragePool", ["x"], ["y"], attribute("kernel_shape", [2, 2]), attribute("strides", [2, 2]))
    ]
    got = computed(onnx(*pooled, x=x, shape=(1, 2, 3, 3)), x)
    np.testing.assert_allclose(got, x.reshape(1, 2, 3, 2, 3, 2).mean((3, 5)), rtol=1e-13)
    got = computed(onnx(node("LayerNormalization", ["x", "s"], ["y"]), x=X, s=np.ones(4)), X)
    np.testing.assert_allclose(got, _normal(X), rtol=1e-12)


def test_float16_is_rounded_once_to_even() -> None:
    """2049, 2051 and 2053 lie in the middle of two numbers of float16."""
    x = np.array([2048, 2050, 2052], "f2")
    assert computed(onnx(node("Add", ["x", "a"], ["y"]), x=x, a=np.float16(1)), x).tolist() == [
        2048,
        2052,
        2052,
    ]


def test_float16_sums_are_rounded_once() -> None:
    x = np.full(4096, 1 / 3, "f2")
    (got,) = computed(onnx(node("ReduceSum", ["x"], ["y"]), x=x, shape=(1,)), x)
    assert got == np.float16(4096 * np.float64(x[0]))


@pytest.mark.parametrize("op", ["Exp", "Sigmoid", "Relu", "Clip", "MaxPool"])
def test_nan_stays(op: str) -> None:
    x = np.full((1, 1, 2, 48), np.nan, "f4")
    kernel = [attribute("kernel_shape", [1, 1])] if op == "MaxPool" else []
    inputs = ["x", "l", "h"] if op == "Clip" else ["x"]
    stored = {"l": np.float32(-1), "h": np.float32(1)} if op == "Clip" else {}
    assert np.isnan(computed(onnx(node(op, inputs, ["y"], *kernel), x=x, **stored), x)).all()


def test_the_largest_of_minus_infinities() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, "f4")
    data = onnx(node("MaxPool", ["x"], ["y"], attribute("kernel_shape", [2, 2])), x=x, shape=(1, 1, 1, 1))
    assert computed(data, x).tolist() == [[[[-math.inf]]]]


# Writing .mge files


def packed(data: bytes, x: Array, path: Path, **options: Any) -> loadrun.Bundle:
    Packer(loadrun.loads(data), PackOptions(file=DumpOptions(**options)), warn=print).pack([{"x": x}], path)
    return loadrun.load(path)


INDEXED = onnx(
    node("Gather", ["x", "i"], ["g"]),
    node("Add", ["g", "g"], ["y"]),
    x=N,
    shape=(2,),
    i=np.array([2, 0], "i8"),
)
LOSES = onnx(node("Add", ["x", "a"], ["t"]), node("Sub", ["t", "a"], ["y"]), x=X, a=np.float64(1e9))
MANY = np.full(16, 100001)
LARGE = onnx(
    node("Mul", ["x", "a"], ["t"]),
    node("Mod", ["t", "b"], ["y"]),
    x=MANY,
    a=np.int64(48271),
    b=np.int64(65521),
)


def test_what_32_bits_hold_is_written(tmp_path: Path) -> None:
    bundle = packed(INDEXED, N, tmp_path / "a.mge")
    assert {d.name for d in bundle.testcases[0].dtypes.values()} == {"Int32"}
    (result,) = loadrun.run(bundle)
    assert result.verdict.value == "pass"
    assert result["y"].tolist() == [22000, 2000]


@pytest.mark.parametrize(
    ("data", "x", "text"),
    [
        (LARGE, MANY, r"testcase 0: 't' holds 4827148271 in int64 and 532180975 in int32.*--narrow"),
        (LOSES, X, r"testcase 0: 'y' holds -?\d\.\d+ in float64 and 0.0 in float32"),
        (INDEXED, N << 33, r"testcase 0: 'x' holds 8589934592000 in int64 and 2147483647 in int32"),
        (onnx(node("Add", ["x", "a"], ["y"]), x=N, a=N << 33), N, "holds 8589934592000 in int64"),
    ],
)
def test_what_they_do_not_hold_is_refused(data: bytes, x: Array, text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=text):
        packed(data, x, tmp_path / "a.mge")
    assert not (tmp_path / "a.mge").exists()


def test_narrow_writes_it_and_says_so(tmp_path: Path) -> None:
    bundle = packed(LARGE, MANY, tmp_path / "a.mge", narrow=True)
    assert bundle.warnings == [
        "narrowed on writing, as --narrow requests: int64 as int32; values may differ from those of the model"
    ]
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass"]


def test_saving_testcases_checks_them_too(tmp_path: Path) -> None:
    bundle = loadrun.loads(LARGE)
    bundle.testcases = [Testcase({"x": MANY})]
    with pytest.raises(UsageError, match="'t' holds 4827148271 in int64"):
        loadrun.save(bundle, tmp_path / "a.mge")


@pytest.mark.parametrize("factor", [1001, 1103515245, "itself", "a column"])
def test_products_of_int32_are_written_as_those_of_halves(factor: int | str, tmp_path: Path) -> None:
    """MegEngine's own round to float32, which would show from 2^24 on in all but the last elements."""
    x = np.random.default_rng(1).integers(-(2**31), 2**31, (5, 9)).astype("i4")
    if isinstance(factor, int):
        data = onnx(node("Mul", ["x", "a"], ["y"]), x=x, shape=(5, 9), a=np.int32(factor))
        want = x * np.int32(factor)
    elif factor == "itself":
        data, want = onnx(node("Mul", ["x", "x"], ["y"]), x=x, shape=(5, 9)), x * x
    else:
        column = x[:, :1] // 3
        data, want = onnx(node("Mul", ["a", "x"], ["y"]), x=x, shape=(5, 9), a=column), x * column
    loadrun.save(loadrun.loads(data), tmp_path / "a.mge")
    np.testing.assert_array_equal(loadrun.Runner(tmp_path / "a.mge").run({"x": x})["y"], want)


def test_products_of_integers_are_written_as_those_of_bytes(tmp_path: Path) -> None:
    x, w = np.arange(6).reshape(2, 3) * 1000, np.arange(12).reshape(3, 4) - 5
    bundle = packed(onnx(node("MatMul", ["x", "w"], ["y"]), x=x, shape=(2, 4), w=w), x, tmp_path / "a.mge")
    (result,) = loadrun.run(bundle)
    assert result.verdict.value == "pass"
    assert result["y"].tolist() == (x @ w).tolist()


# Data sets


def set_of(folder: Path, out: bytes, x: Array, **expected: Array) -> Path:
    """A model of the outputs y and z, and a data set of x and of what is expected of some outputs."""
    (folder / "test_data_set_0").mkdir()
    ins, kind = value("x", 1, x.shape), 1
    nodes = [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["z"])]
    outs = [field(12, out), field(12, value("z", kind, x.shape))]
    (folder / "m.onnx").write_bytes(model(*nodes, field(11, ins), *outs))
    (folder / "test_data_set_0" / "input_0.pb").write_bytes(tensor(x))
    for name, array in expected.items():
        place = folder / "test_data_set_0" / f"output_{'yz'.index(name)}.pb"
        place.write_bytes(tensor(array))
    return folder / "m.onnx"


def test_a_missing_output_is_no_pass(tmp_path: Path) -> None:
    x = np.array([1, -2], "f4")
    (result,) = loadrun.run(set_of(tmp_path, value("y", 1, (2,)), x, y=-x))
    assert result.verdict.value == "fail"
    assert {o.name: o.notes for o in result.outputs}["z"] == (
        "its expected value is missing: test_data_set_0 has no output_1.pb",
    )


def test_other_dtypes_and_shapes_of_expected_values_fail(tmp_path: Path) -> None:
    x = np.array([1], "f4")
    (result,) = loadrun.run(set_of(tmp_path, value("y", 1, (1,)), x, y=-x[0], z=np.abs(x).astype("f8")))
    assert {o.name: o.notes for o in result.outputs} == {
        "y": ("its expected value has shape [], the computed one [1]",),
        "z": ("its expected value holds double, but the model has float",),
    }


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize("axes", [[], [1]])
def test_scalars_are_judged_by_their_values(axes: list[int], engine: str, tmp_path: Path) -> None:
    """What a file declares of an output's shape is a hint."""
    pytest.importorskip(engine if engine == "onnxruntime" else "numpy")
    x = np.array([[1, -2]], "f4")
    ins, out = field(11, value("x", 1, x.shape)), field(12, value("y", 1, axes))
    kept = attribute("keepdims", 0)
    nodes = [node("ReduceSum", ["x"], ["y"], kept)]
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / "m.onnx").write_bytes(model(*nodes, ins, out, opset=11))
    (tmp_path / "test_data_set_0" / "input_0.pb").write_bytes(tensor(x))
    verdicts = []
    for expected in (x.sum(), x.sum(keepdims=True)[0], x.sum(keepdims=True)):
        (tmp_path / "test_data_set_0" / "output_0.pb").write_bytes(tensor(np.asarray(expected)))
        (result,) = loadrun.run(tmp_path / "m.onnx", engine=engine)
        verdicts.append(result.verdict.value)
    # The sum of all elements has no axes, whatever the file says.
    assert verdicts == ["pass", "fail", "fail"]


def test_arrays_of_ml_dtypes_are_inputs() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="makes arrays of bfloat16 and int4")
    for name, kind, held in (
        ("bfloat16", 16, [0.5, -2.0, 3.0]),
        ("int4", 22, [-8, 0, 7]),
        ("uint4", 21, [0, 1, 15]),
    ):
        x = np.array(held, getattr(ml_dtypes, name))
        nodes = node("Cast", ["x"], ["y"], attribute("to", 1))
        data = model(nodes, field(11, value("x", kind, (3,))), field(12, value("y", 1, (3,))), opset=21)
        assert computed(data, x).tolist() == held


def test_inputs_that_nothing_reads() -> None:
    ins = [field(11, value(n, 1, (2,))) for n in ("x", "idle")]
    bundle = loadrun.loads(model(node("Neg", ["x"], ["y"]), *ins, field(12, value("y", 1, (2,)))))
    assert [v.name for v in bundle.inputs] == ["x", "idle"]
    x = np.array([1, -2], "f4")
    for feeds in ({"x": x}, {"x": x, "idle": x}):
        assert loadrun.Runner(bundle).run(feeds)["y"].tolist() == [-1, 2]


def test_a_model_and_its_narrowed_file_are_compared(tmp_path: Path) -> None:
    """Each gets the other's inputs in its own dtype."""
    data = onnx(node("Mul", ["x", "x"], ["m"]), node("Softmax", ["m"], ["y"]), x=X)
    (tmp_path / "m.onnx").write_bytes(data)
    packed(data, X, tmp_path / "m.mge")
    names = [str(tmp_path / n) for n in ("m.onnx", "m.mge")]
    for one, other in (names, names[::-1]):
        assert main(["diff", one, "--against", other]) == 0


def test_double_precision_does_not_judge_what_is_float64_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.array([0.5, -2.0])
    path = tmp_path / "m.onnx"
    nodes = node("Exp", ["x"], ["e"]), node("Identity", ["e"], ["i"]), node("Mul", ["i", "x"], ["y"])
    path.write_bytes(onnx(*nodes, x=x))
    assert main(["diff", str(path), "--input", "x:[0.5,-2]"]) == 0
    assert (
        "2 of them are float64 in the model: both sides compute these with the same code"
        in capsys.readouterr().out
    )
    about = loadrun.Runner(path, "float64").run({"x": x}).engine
    assert about is not None
    assert about.arithmetic == "float64, with the reference engine's code for 2 of 3 operators"
    path.write_bytes(onnx(*nodes, x=x.astype("f4")))
    assert main(["diff", str(path), "--input", "x:[0.5,-2]"]) == 0
    assert "same code" not in capsys.readouterr().out


def test_the_usual_tolerance_gives_way_to_rounding(tmp_path: Path) -> None:
    x = np.linspace(0.05, 1, 200, dtype="f4")
    rounding = np.abs((x + np.float32(1000)) - np.float32(1000) - x.astype("f8")).max()
    assert 2.5e-5 < rounding < 5e-5
    for far, tolerance in ((1000.0, 5e-4), (10.0, 1e-4)):
        nodes = node("Add", ["x", "k"], ["s"]), node("Sub", ["s", "k"], ["y"])
        source, target = tmp_path / "m.onnx", tmp_path / "m.mge"
        source.write_bytes(onnx(*nodes, x=x, k=np.float32(far)))
        said: list[str] = []
        np.save(tmp_path / "x.npy", x)
        options = PackOptions(input_data=[f"x:{tmp_path / 'x.npy'}"])
        FilePacker(source, options, warn=said.append).pack(target)
        assert [c.maxerr for c in loadrun.load(target).checks] == [pytest.approx(tolerance)]
        wider = [
            s for s in said if s.startswith("the tolerance of 'y' is 0.0005 instead of 0.0001: 10 times the")
        ]
        assert len(wider) == (tolerance == 5e-4)


@pytest.mark.parametrize(
    ("kind", "first", "second"), [("f8", 0.3, 2.0**60 + 2**10), ("i8", -3, 2**60 + 1), ("u8", 3, 2**64 - 1)]
)
def test_what_is_chosen_by_a_mask_keeps_its_digits_in_onnx_runtime(
    kind: str, first: float, second: float
) -> None:
    pytest.importorskip("onnxruntime", reason="the graph is written for ONNX Runtime")
    x, other = np.array([first, second], kind), np.array([second, first], kind)
    data = onnx(node("Where", ["m", "x", "o"], ["y"]), x=x, m=np.array([True, False]), o=other)
    # ONNX Runtime's Where does not take uint64.
    engines = ("reference", "onnxruntime:translated") if kind != "u8" else ("reference",)
    for engine in engines:
        result = loadrun.Runner(loadrun.loads(data), engine).run({"x": x})
        np.testing.assert_array_equal(result["y"], [first, first])
        assert result["y"].dtype == x.dtype
