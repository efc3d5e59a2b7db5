"""Models whose files leave sizes open, loaded once and fed at several sizes: numpy's values, and ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.onnx
from loadrun.base.errors import EngineError, InputError, UnsupportedError
from loadrun.cli import main
from loadrun.verify.pack.files import pack_file
from loadrun.verify.pack.options import PackOptions

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
parser = pytest.importorskip("onnx.parser")

F = np.float32
Array = np.ndarray[Any, Any]
Windows = np.lib.stride_tricks.sliding_window_view


@dataclass
class Case:
    """A model, the shapes that it is fed one after another, and what it computes.

    Attributes:
        inputs: the inputs as ONNX's text has them.
        body: the nodes; they give `y`.
        shapes: shapes of the inputs, a row for each run.
        want: the value of `y`.
        stored: constants.
        gives: the type of `y`.
    """

    inputs: str
    body: str
    shapes: list[list[tuple[int, ...]]]
    want: Callable[..., Array]
    stored: dict[str, Array] = field(default_factory=dict)
    gives: str = "float"

    @property
    def model(self) -> bytes:
        made = parser.parse_model(
            f'<ir_version: 9, opset_import: ["" : 20]>\ng ({self.inputs}) => ({self.gives} y) {{ {self.body} }}'
        )
        made.graph.output[0].type.tensor_type.ClearField("shape")
        for name, value in self.stored.items():
            made.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        found: bytes = made.SerializeToString()
        return found

    def feeds(self, row: int) -> dict[str, Array]:
        rng = np.random.default_rng(row)
        found = {}
        for one, shape in zip(
            parser.parse_model(_header(self.inputs)).graph.input, self.shapes[row], strict=True
        ):
            integers = one.type.tensor_type.elem_type == onnx.TensorProto.UINT8
            found[one.name] = (
                rng.integers(0, 255, shape, np.uint8) if integers else rng.normal(size=shape).astype(F)
            )
        return found


def _header(inputs: str) -> str:
    return f'<ir_version: 9, opset_import: ["" : 20]>\ng ({inputs}) => (float y) {{ y = Constant<value_float=0.0>() }}'


def _weights(*shape: int) -> Array:
    return np.random.default_rng(99).normal(size=shape).astype(F)


def correlate(x: Array, w: Array, pads: tuple[tuple[int, int], ...]) -> Array:
    """The convolution of ONNX in float64, of one or two axes of space, by windows."""
    n = len(pads)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads))
    view = Windows(wide, w.shape[2:], tuple(range(2, 2 + n)))
    return np.asarray(
        np.einsum("ncxyij,ocij->noxy" if n == 2 else "ncxi,oci->nox", view, w.astype(np.float64))
    )


def bytes_correlated(x: Array) -> Array:
    return correlate(x.astype(np.int64) - 3, KERNEL8.astype(np.int64) - 1, ((0, 0), (0, 0)))


def placed(x: Array) -> Array:
    found = x.copy()
    found[-1, -1] = 7
    return found


def spread(x: Array) -> Array:
    """Every value twice along both axes."""
    return x.repeat(2, 2).repeat(2, 3)


def upper_windows(x: Array, kernel: int, stride: int) -> Array:
    """Maxima of windows along the last axis, the last of which may reach beyond the end."""
    n = x.shape[-1]
    steps = -(-(n - kernel) // stride) + 1
    rows = [x[..., i * stride : i * stride + kernel].max(-1) for i in range(steps) if i * stride < n]
    return np.stack(rows, -1)


def partitioned(x: Array) -> Array:
    n, h, w, c = x.shape
    return x.reshape(n, h // 4, 4, w // 4, 4, c).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)


def unshuffled(x: Array) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * 4, h // 2, w // 2)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(x: Array) -> Array:
    """One direction, gates in ONNX's order: input, output, forget, cell."""
    w, r = CELL["w"][0].astype(np.float64), CELL["r"][0].astype(np.float64)
    h = np.zeros((x.shape[1], 3))
    cell, found = h, []
    for row in x.astype(np.float64):
        i, o, f, c = np.split(row @ w.T + h @ r.T, 4, -1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        h = sigmoid(o) * np.tanh(cell)
        found.append(h)
    return np.stack(found)[:, None]


def attended(x: Array) -> Array:
    """Self-attention of two heads over the second axis."""
    n, t, c = x.shape
    heads = x.astype(np.float64).reshape(n, t, 2, c // 2).transpose(0, 2, 1, 3)
    scores = heads @ heads.transpose(0, 1, 3, 2) / np.sqrt(c // 2)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.asarray((shares @ heads).transpose(0, 2, 1, 3).reshape(n, t, c))


KERNEL, KERNEL1, KERNEL8 = (
    _weights(4, 3, 3, 3),
    _weights(4, 3, 5),
    np.arange(18, dtype=np.uint8).reshape(1, 2, 3, 3),
)
CELL = {"w": _weights(1, 12, 5), "r": _weights(1, 12, 3)}
SIZES = """
s = Shape(x)
n = Gather<axis=0>(s, i0)  h = Gather<axis=0>(s, i1)  v = Gather<axis=0>(s, i2)
"""
AT = {"i0": np.array([0]), "i1": np.array([1]), "i2": np.array([2]), "i3": np.array([3])}

CASES = {
    "convolution": Case(
        "float[n,3,h,w] x",
        "y = Conv(x, k)",
        [[(1, 3, 9, 11)], [(2, 3, 5, 3)], [(1, 3, 9, 11)]],
        lambda x: correlate(x, KERNEL, ((0, 0), (0, 0))),
        {"k": KERNEL},
    ),
    "convolution along one axis": Case(
        "float[n,3,t] x",
        "y = Conv(x, k)",
        [[(1, 3, 16)], [(3, 3, 5)]],
        lambda x: correlate(x, KERNEL1, ((0, 0),)),
        {"k": KERNEL1},
    ),
    "uneven pads": Case(
        "float[n,3,h,w] x",
        "y = Conv<pads=[1,0,0,2]>(x, k)",
        [[(1, 3, 2, 4)], [(2, 3, 7, 6)]],
        lambda x: correlate(x, KERNEL, ((1, 0), (0, 2))),
        {"k": KERNEL},
    ),
    "convolution of bytes": Case(
        "uint8[n,2,h,w] x",
        "y = ConvInteger(x, k, a, b)",
        [[(1, 2, 6, 7)], [(2, 2, 3, 5)]],
        bytes_correlated,
        {"k": KERNEL8, "a": np.array(3, np.uint8), "b": np.array(1, np.uint8)},
        gives="int32",
    ),
    "writing at the end": Case(
        "float[n,m] x",
        "y = ScatterND(x, i, u)",
        [[(3, 4)], [(5, 2)]],
        placed,
        {"i": np.array([[-1, -1]]), "u": np.array([7], F)},
    ),
    "determinants": Case(
        "float[n,m,m] x",
        "y = Det(x)",
        [[(2, 3, 3)], [(3, 4, 4)]],
        lambda x: np.linalg.det(x.astype(np.float64)),
    ),
    "negative pads": Case(
        "float[n,m] x",
        "y = Pad(x, p)",
        [[(3, 6)], [(4, 9)]],
        lambda x: np.pad(x[:, 1:-2], ((1, 0), (0, 0))),
        {"p": np.array([1, -1, 0, -2])},
    ),
    "backwards from beyond the end": Case(
        "float[n,m] x",
        "y = Slice(x, s, e, a, t)",
        [[(2, 5)], [(3, 7)]],
        lambda x: x[:, ::-1],
        {"s": np.array([2**62]), "e": np.array([-(2**62)]), "a": np.array([1]), "t": np.array([-1])},
    ),
    "maxima of windows": Case(
        "float[n,2,h,w] x",
        "y = MaxPool<kernel_shape=[3,3]>(x)",
        [[(1, 2, 5, 6)], [(2, 2, 3, 8)]],
        lambda x: Windows(x, (3, 3), (2, 3)).max((-1, -2)),
    ),
    "windows beyond the end": Case(
        "float[n,2,t] x",
        "y = MaxPool<kernel_shape=[3],strides=[2],ceil_mode=1>(x)",
        [[(1, 2, 8)], [(2, 2, 9)]],
        lambda x: upper_windows(x, 3, 2),
    ),
    "the largest": Case(
        "float[n,m] x",
        "y, at = TopK(x, k)",
        [[(2, 7)], [(3, 4)]],
        lambda x: -np.sort(-x)[:, :4],
        {"k": np.array([4])},
    ),
    "mirrored borders": Case(
        "float[n,m] x",
        'y = Pad<mode="reflect">(x, p)',
        [[(2, 5)], [(3, 4)]],
        lambda x: np.pad(x, ((0, 0), (3, 2)), "reflect"),
        {"p": np.array([0, 3, 0, 2])},
    ),
    "windows of a picture": Case(
        "float[n,h,w,2] x",
        SIZES
        + """
        a = Div(h, four)  b = Div(v, four)
        t = Concat<axis=0>(n, a, four, b, four, i2)
        r = Reshape(x, t)  q = Transpose<perm=[0,1,3,2,4,5]>(r)  y = Reshape(q, u)
        """,
        [[(1, 8, 12, 2)], [(2, 4, 8, 2)]],
        partitioned,
        {**AT, "four": np.array([4]), "u": np.array([-1, 16, 2])},
    ),
    "pixels into channels": Case(
        "float[n,c,h,w] x",
        SIZES
        + """
        e = Gather<axis=0>(s, i3)
        a = Div(v, i2)  b = Div(e, i2)  d = Mul(h, four)
        t = Concat<axis=0>(n, h, a, i2, b, i2)  u = Concat<axis=0>(n, d, a, b)
        r = Reshape(x, t)  q = Transpose<perm=[0,1,3,5,2,4]>(r)  y = Reshape(q, u)
        """,
        [[(1, 3, 4, 6)], [(2, 1, 8, 2)]],
        unshuffled,
        {**AT, "four": np.array([4])},
    ),
    "twice as large": Case(
        "float[n,1,h,w] x",
        'y = Resize<mode="nearest",coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x, , z)',
        [[(1, 1, 3, 4)], [(2, 1, 5, 2)]],
        spread,
        {"z": np.array([1, 1, 2, 2], F)},
    ),
    "a recurrent layer": Case(
        "float[t,n,5] x",
        "y = LSTM<hidden_size=3>(x, w, r)",
        [[(4, 1, 5)], [(7, 2, 5)]],
        lstm,
        CELL,
    ),
    "attention": Case(
        "float[n,t,8] x",
        SIZES
        + """
        u = Concat<axis=0>(n, h, i2, four)
        r = Reshape(x, u)  q = Transpose<perm=[0,2,1,3]>(r)  k = Transpose<perm=[0,2,3,1]>(r)
        m = MatMul(q, k)  d = Div(m, two)  p = Softmax<axis=-1>(d)  o = MatMul(p, q)
        b = Transpose<perm=[0,2,1,3]>(o)  y = Reshape(b, s)
        """,
        [[(1, 3, 8)], [(2, 6, 8)]],
        attended,
        {**AT, "four": np.array([4]), "two": np.array(2, F)},
    ),
    "one or several": Case(
        "float[n,m] x",
        SIZES.replace("v = Gather<axis=0>(s, i2)", "")
        + """
        alone = Equal(h, i1)  one = Squeeze(alone)
        y = If(one) <
            then_branch = a () => (float then) { then = Squeeze(x, i1) },
            else_branch = b () => (float other) { other = Neg(x) }
        >
        """,
        [[(3, 1)], [(3, 4)]],
        lambda x: x[:, 0] if x.shape[1] == 1 else -x,
        AT,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    runner = loadrun.Runner(loadrun.load(case.model))
    for row in range(len(case.shapes)):
        feeds = case.feeds(row)
        got = runner.run(feeds)["y"]
        want = case.want(*feeds.values())
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"at {case.shapes[row]}")


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_agrees(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="its values are those that count")
    case = CASES[name]
    session = runtime.InferenceSession(case.model, providers=["CPUExecutionProvider"])
    for row in range(len(case.shapes)):
        feeds = case.feeds(row)
        (want,) = session.run(["y"], feeds)
        np.testing.assert_allclose(case.want(*feeds.values()), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_dump_is_right_or_refuses(name: str, tmp_path: Path) -> None:
    """A file holds one graph; at sizes for which it does not hold, it must fail."""
    case = CASES[name]
    first = case.feeds(0)
    path = tmp_path / "model.mge"
    loadrun.save(loadrun.load(case.model, input_shapes={n: x.shape for n, x in first.items()}), path)
    runner = loadrun.Runner(path)
    np.testing.assert_allclose(runner.run(first)["y"], case.want(*first.values()), rtol=2e-5, atol=2e-5)
    for row in range(1, len(case.shapes)):
        feeds = case.feeds(row)
        try:
            got = runner.run(feeds)["y"]
        except (EngineError, InputError):
            continue
        np.testing.assert_allclose(got, case.want(*feeds.values()), rtol=2e-5, atol=2e-5)


ODD = Case(
    "float[k] x, float[n,m] z",
    "a = Reshape(x, s) y = MatMul(a, z)",
    [[(21,), (7, 2)], [(21,), (7, 5)]],
    lambda x, z: x.reshape(3, 7).astype(np.float64) @ z,
    {"s": np.array([3, 7])},
)
"""Of no size that is tried for `k` can a graph be made."""


def test_a_model_whose_sizes_cannot_be_guessed() -> None:
    bundle = loadrun.load(ODD.model)
    assert [v.name for v in bundle.inputs] == ["x", "z"]
    with pytest.raises(EngineError, match=r"Reshape 'a' .* 1 elements .*\[3, 7\]"):
        loadrun.run(bundle)
    for row in range(2):
        feeds = ODD.feeds(row)
        got = loadrun.run(bundle, feeds)[0]["y"]
        np.testing.assert_allclose(got, ODD.want(*feeds.values()), rtol=1e-5, atol=1e-5)


def test_sizes_that_do_not_fit_are_named() -> None:
    runner = loadrun.Runner(loadrun.load(ODD.model))
    with pytest.raises(EngineError, match=r"Reshape 'a' .* 20 elements .*\[3, 7\]"):
        runner.run({"x": np.zeros(20, F), "z": np.zeros((7, 2), F)})
    with pytest.raises(InputError, match=r"'z' has 2 axes, the given array has \[7\]"):
        runner.run({"x": np.zeros(21, F), "z": np.zeros(7, F)})


def test_what_sizes_were_taken_is_said() -> None:
    bundle = loadrun.load(CASES["convolution"].model)
    assert bundle.source.taken is not None
    assert "x [1, 3, 64, 64]" in bundle.source.taken


def test_other_sizes_than_those_given() -> None:
    case = CASES["writing at the end"]
    runner = loadrun.Runner(loadrun.load(case.model, input_shapes={"x": (3, 4)}))
    feeds = case.feeds(1)
    np.testing.assert_array_equal(runner.run(feeds)["y"], placed(*feeds.values()))


def test_what_sizes_decide_is_refused_in_a_file(tmp_path: Path) -> None:
    case = CASES["writing at the end"]
    loadrun.save(loadrun.load(case.model, input_shapes={"x": (3, 4)}), tmp_path / "m.mge")
    with pytest.raises(InputError, match=r"made for \[3, 4\]"):
        loadrun.run(tmp_path / "m.mge", case.feeds(1))


def test_data_that_choose_nothing_at_first_decide_nothing(tmp_path: Path) -> None:
    body = "at = NonZero(x)  i = Transpose(at)  g = GatherND(x, i)  u = Add(g, g)  y = ScatterND(x, i, u)"
    case = Case("float[n,m] x", body, [], np.asarray)
    none, some = np.zeros((3, 4), F), np.eye(3, 4, dtype=F)
    bundle = loadrun.load(case.model, input_shapes={"x": (3, 4)})
    loadrun.save(bundle, tmp_path / "m.mge")
    for runner in (loadrun.Runner(bundle), loadrun.Runner(tmp_path / "m.mge")):
        for x in (none, some):
            np.testing.assert_array_equal(runner.run({"x": x})["y"], 2 * x)


def test_a_file_made_at_an_empty_size_refuses_other_empty_ones(tmp_path: Path) -> None:
    body = "s = Shape <start = 2> (x)  y, i = TopK <axis = -1> (x, s)"
    case = Case("float[2,n,m] x", body, [], np.asarray)
    loadrun.save(loadrun.load(case.model, input_shapes={"x": (2, 0, 1)}), tmp_path / "m.mge")
    with pytest.raises(InputError, match=r"made for \[2, 0, 1\]"):
        loadrun.run(tmp_path / "m.mge", {"x": np.zeros((2, 3, 0), F)})


def test_bounds_computed_from_sizes_may_have_another_sign_in_a_file(tmp_path: Path) -> None:
    case = Case("float[n] x", "n = Shape(x)  s = Sub(n, six)  y = Slice(x, s, far)", [], np.asarray)
    case.stored = {"six": np.array([6]), "far": np.array([2**62])}
    for n in (1, 4, 6, 9):
        x = np.arange(n, dtype=F)
        loadrun.save(loadrun.load(case.model, input_shapes={"x": (n,)}), tmp_path / "m.mge")
        np.testing.assert_array_equal(loadrun.run(tmp_path / "m.mge", {"x": x})[0]["y"], x[n - 6 :])


def test_sizes_that_decide_nothing_stay_open_in_a_file(tmp_path: Path) -> None:
    case = CASES["convolution"]
    loadrun.save(loadrun.load(case.model), tmp_path / "m.mge")
    for row in range(3):
        feeds = case.feeds(row)
        got = loadrun.run(tmp_path / "m.mge", feeds)[0]["y"]
        np.testing.assert_allclose(got, case.want(*feeds.values()), rtol=2e-5, atol=2e-5)


def test_a_model_in_memory_is_loaded() -> None:
    case = CASES["convolution"]
    feeds = case.feeds(0)
    message = onnx.load_from_string(case.model)
    for bundle in (loadrun.load(message), loadrun.onnx.load(case.model)):
        got = loadrun.run(bundle, feeds)[0]["y"]
        np.testing.assert_allclose(got, case.want(*feeds.values()), rtol=2e-5, atol=2e-5)


def test_an_expected_value_that_does_not_broadcast_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    x, y = (make.make_tensor_value_info(n, 1, [4]) for n in "xy")
    graph = make.make_graph([make.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(
        make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx"
    )
    data = tmp_path / "test_data_set_0"
    data.mkdir()
    for name, size in (("input", 4), ("output", 3)):
        array = onnx.numpy_helper.from_array(np.ones(size, "f4"), name[0])
        (data / f"{name}_0.pb").write_bytes(array.SerializeToString())
    assert main([str(tmp_path / "m.onnx")]) == 1
    assert "the shapes differ: expected [3], got [4]" in capsys.readouterr().out


_BRANCHES = """<ir_version: 9, opset_import: ["" : 20]>
g (float[n, t] x, int64[1] axes, int64 rate) => (float[m, k] y)
<int64 fast = {16}, int64[1] one = {1},
 float[1, 1, 4] w4 = {1, 2, 3, 4}, float[1, 1, 9] w9 = {1, 1, 1, 1, 1, 1, 1, 1, 1}>
{
  same = Equal(rate, fast)
  wide = Unsqueeze(x, one)
  out = If(same) <
    then_branch = a () => (float[n, 1, s] p) { p = Conv(wide, w4) },
    else_branch = b () => (float[n, 1, s] q) { q = Conv(wide, w9) }
  >
  y = ReduceSum <keepdims = 0> (out, axes)
}"""


def test_values_that_decide_the_graph_are_taken_from_what_is_fed(tmp_path: Path) -> None:
    bundle = loadrun.load(parser.parse_model(_BRANCHES).SerializeToString())
    runner = loadrun.Runner(bundle)
    # A window of 9 fits no row of 6: the branch that is not taken holds for no such size.
    for rate, axis, size in ((16, 1, 6), (16, 2, 6), (7, 1, 12), (16, 1, 6), (16, 1, 12)):
        x = np.random.default_rng(size).random((2, size), F)
        weights = np.array([1, 2, 3, 4], F) if rate == 16 else np.ones(9, F)
        feeds = {"x": x, "axes": np.array([axis], np.int64), "rate": np.array(rate, np.int64)}
        (y,) = runner.run(feeds).outputs
        whole = Windows(x, len(weights), 1) @ weights
        want = whole if axis == 1 else whole.sum(1, keepdims=True)
        np.testing.assert_allclose(np.asarray(y.value), want, rtol=1e-6)
    constants = {n: feeds[n] for n in ("axes", "rate")}
    model = parser.parse_model(_BRANCHES).SerializeToString()
    loadrun.save(loadrun.load(model, constants=constants, input_shapes={"x": x.shape}), tmp_path / "m.mge")
    (y,) = loadrun.Runner(loadrun.load(tmp_path / "m.mge")).run({"x": x}).outputs
    np.testing.assert_allclose(np.asarray(y.value), whole, rtol=1e-6)


_LARGE = """<ir_version: 9, opset_import: ["" : 20]>
g (float[n] x) => (float[m] y) <int64[1] many = {50}, float nothing = {0}, int64[1] zero = {0}>
{
  REST
  c = Greater(s, many)
  y = If(c) <
    then_branch = a () => (float[k] p) { p = Neg(x) },
    else_branch = b () => (float[k] q) { q = Add(x, x) }
  >
}"""


@pytest.mark.parametrize(
    "counted",
    ["s = Shape(x)", "h = Shape(x)  f = Cast<to=1>(h)  r = Sqrt(f)  t = Mul(r, r)  s = Cast<to=7>(t)"],
)
def test_files_refuse_sizes_at_which_another_branch_is_taken(counted: str, tmp_path: Path) -> None:
    model = parser.parse_model(_LARGE.replace("REST", counted)).SerializeToString()
    small, other, large = (np.ones(n, F) for n in (3, 40, 60))
    runner = loadrun.Runner(loadrun.load(model))
    for x, sign in ((small, 2), (large, -1), (other, 2)):
        np.testing.assert_array_equal(runner.run({"x": x})["y"], sign * x)
    loadrun.save(loadrun.load(model), tmp_path / "m.mge")
    runner = loadrun.Runner(tmp_path / "m.mge")
    np.testing.assert_array_equal(runner.run({"x": other[:1]})["y"], 2 * other[:1])
    with pytest.raises(InputError, match=r"made for \[1\]"):
        runner.run({"x": large})


@pytest.mark.parametrize("sized", [None, {"x": (60,)}])
def test_how_many_entries_data_have_chooses_a_branch(sized: dict[str, tuple[int, ...]] | None) -> None:
    body = "b = Greater(x, nothing)  z = NonZero(b)  w = Shape<start=1>(z)  s = Identity(w)"
    model = parser.parse_model(_LARGE.replace("REST", body)).SerializeToString()
    runner = loadrun.Runner(loadrun.load(model, input_shapes=sized))
    for x, want in ((np.ones(60, F), -1), (-np.ones(60, F), -2), (np.ones(60, F), -1)):
        assert set(np.asarray(runner.run({"x": x})["y"]).tolist()) == {want}


_BACK = [
    (-3, -9, -2),
    (0, -9, -1),
    (9, -9, -3),
    (-9, -9, -2),
    (4, 1, -1),
    (-1, -4, -2),
    (1, 4, -1),
    (-6, 0, -1),
]


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("start", "end", "step"), _BACK)
def test_slices_that_go_back(start: int, end: int, step: int, fed: bool) -> None:
    inputs = "float[n] x, int64[1] s, int64[1] e" if fed else "float[n] x"
    stored = {"t": np.array([step]), "a": np.array([0])}
    bounds = {"s": np.array([start]), "e": np.array([end])}
    body = "y = Slice(x, s, e, a, t)"
    model = Case(inputs, body, [], lambda x: x, stored | ({} if fed else bounds)).model
    first: dict[str, Array] = {"x": np.arange(5, dtype=F), **(bounds if fed else {})}
    runner = loadrun.Runner(loadrun.load(model))
    for n in (5, 2, 8, 1, 3):
        x = np.arange(n, dtype=F)
        # ONNX clamps the start to the ends, where Python stops before the first.
        begin = min(max(start + n if start < 0 else start, 0), n - 1)
        stop = min(max(end + n if end < 0 else end, -1), n - 1)
        want = [x[i] for i in range(begin, stop, step)]
        assert np.asarray(runner.run({**first, "x": x})["y"]).tolist() == want


def positives(count: int) -> Array:
    """Return 90 numbers, some of which are positive."""
    x = -np.random.default_rng(count).random(90).astype(F) - 1
    x[::-1][:count] += 3
    return x


OF_POSITIVES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "as many as fit": (
        'u = Unsqueeze(v, axes)  y = Conv<auto_pad="SAME_UPPER",strides=[2]>(u, k)',
        # One place more in front where the last window begins at the last place.
        lambda v: correlate(v[None, None], np.ones((1, 1, 3), F), ((len(v) % 2, 1),))[..., ::2],
    ),
    "the last window": (
        "u = Unsqueeze(v, axes)  y = MaxPool<kernel_shape=[2],strides=[3],ceil_mode=1>(u)",
        lambda v: upper_windows(v[None, None], 2, 3),
    ),
    "backwards": ("y = Slice(v, far, near, zero, back)", lambda v: v[::-1]),
}


@pytest.mark.parametrize("name", OF_POSITIVES)
def test_sizes_that_data_decide(name: str) -> None:
    body, want = OF_POSITIVES[name]
    stored = {
        "k": np.ones((1, 1, 3), F),
        "axes": np.array([0, 1]),
        "far": np.array([2**62]),
        "near": np.array([-(2**62)]),
        "zero": np.array([0]),
        "back": np.array([-1]),
        "nothing": np.array(0, F),
    }
    case = Case("float[n] x", f"c = Greater(x, nothing)  v = Compress(x, c)  {body}", [], want, stored)
    for sized in (None, {"x": (90,)}):
        runner = loadrun.Runner(loadrun.load(case.model, input_shapes=sized))
        for count in (0, 7, 12) if name == "backwards" else (7, 12, 5):
            x = positives(count)
            np.testing.assert_allclose(runner.run({"x": x})["y"], want(x[x > 0]), rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "gives", "want"),
    [
        ("parts = SplitToSequence(v, seven)  y = SequenceLength(parts)", "int64", lambda n: -(-n // 7)),
        (
            "n = Size(v)  y = Loop(n, , nothing) <body = b (int64 i, bool go, float s) => (bool on, float t) {"
            " on = Identity(go)  one = Cast<to=1>(go)  t = Add(s, one) }>",
            "float",
            lambda n: n,
        ),
    ],
)
def test_steps_that_data_decide(body: str, gives: str, want: Callable[[int], int]) -> None:
    stored = {"nothing": np.array(0, F), "seven": np.array(7)}
    case = Case(
        "float[n] x", f"c = Greater(x, nothing)  v = Compress(x, c)  {body}", [], np.sum, stored, gives
    )
    runner = loadrun.Runner(loadrun.load(case.model))
    for count in (20, 3):
        assert runner.run({"x": positives(count)})["y"].tolist() == want(count)


def test_an_input_that_only_gives_a_size_leaves_nothing_to_pack(tmp_path: Path) -> None:
    body = "s = Shape<start = 0, end = 1>(x)  sh = Concat<axis = 0>(s, two)  y = ConstantOfShape(sh)"
    case = Case("float[n, 3] x", body, [[(5, 3)]], lambda x: np.zeros((len(x), 2), F), {"two": np.array([2])})
    (tmp_path / "m.onnx").write_bytes(case.model)
    with pytest.raises(UnsupportedError, match="none of its outputs depends on an input"):
        pack_file(tmp_path / "m.onnx", tmp_path / "m.mge", PackOptions(input_data=("x:#rand(0,1,5,3)",)))


@pytest.mark.parametrize(
    ("x", "expected", "verdict"),
    [([0, 0, 0], 2, "fail"), ([1, 0, 1], 3, "fail"), ([1, 1, 1], 3, "pass")],
    ids=["none", "fewer", "right"],
)
def test_a_count_that_depends_on_values_fails_where_it_is_wrong(
    x: list[float], expected: int, verdict: str, tmp_path: Path
) -> None:
    """The shapes of both values do not broadcast; the data set before it, which is right, does not matter."""
    made = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]>\ng (float[3] x) => (int64[1,n] y) { y = NonZero(x) }'
    )
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    for k, (data, count) in enumerate((([1, 1, 1], 3), (x, expected))):
        folder = tmp_path / f"test_data_set_{k}"
        folder.mkdir()
        for name, value in (("input_0", np.array(data, F)), ("output_0", np.arange(count)[None])):
            stored = onnx.numpy_helper.from_array(value)
            (folder / f"{name}.pb").write_bytes(stored.SerializeToString())
    results = loadrun.run(tmp_path / "model.onnx")
    assert [r.verdict.value for r in results] == ["pass", verdict]


def test_sizes_stay_open_on_request(tmp_path: Path) -> None:
    case = CASES["convolution"]
    (tmp_path / "m.onnx").write_bytes(case.model)
    shape = case.feeds(0)["x"].shape
    data = (f"x:#rand(0,1,{','.join(map(str, shape))})",)
    for asked in (False, True):
        pack_file(tmp_path / "m.onnx", tmp_path / "m.mge", PackOptions(input_data=data, open_sizes=asked))
        runner = loadrun.Runner(tmp_path / "m.mge")
        for row in range(3):
            feeds = case.feeds(row)
            if not asked and feeds["x"].shape != shape:
                with pytest.raises(InputError, match="made for"):
                    runner.run(feeds)
                continue
            np.testing.assert_allclose(
                runner.run(feeds)["y"], case.want(*feeds.values()), rtol=2e-5, atol=2e-5
            )
