"""The engine `numba` against float64, at sizes around those of its blocks; other tests run it over all operators."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.engines import make_engine
from loadrun.graph import Graph, params as P
from loadrun.graph.params import ElemwiseMode as M
from loadrun.ops.conv.rules import geometry
from loadrun.ops.elemwise.table import ROWS
from loadrun.ops.numeric.parallel import set_threads, threads
from loadrun.testing import GraphBuilder
from tests.support.conv_plain import conv_plain

pytest.importorskip("numba", reason="numba is not installed")

from loadrun.engines import fast

Array = np.ndarray


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel was called."""
    count: Counter[str] = Counter()

    def counted(name: str) -> None:
        kernel = getattr(fast, name)

        def call(*args: object) -> None:
            count[name] += 1
            kernel(*args)

        monkeypatch.setattr(fast, name, call)

    for name in ("_ends", "depthwise", "layer_norm", "lstm_step"):
        counted(name)
    return count


@pytest.fixture(params=[1, 3])
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    before = threads()
    set_threads(request.param)
    yield
    set_threads(before)


def run(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    return make_engine("numba", graph, graph.outputs).run(feeds)


def close(found: Array, want: Array, tolerance: float = 1e-5) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max()))


# Depthwise convolutions


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 1), (1, 2)])
@pytest.mark.parametrize(
    ("kernel", "pad", "dilate"),
    [((3, 3), (1, 1), (1, 1)), ((5, 7), (2, 3), (1, 1)), ((1, 4), (0, 5), (1, 3)), ((3, 3), (0, 2), (2, 2))],
)
@pytest.mark.parametrize("size", [(7, 7), (13, 61), (70, 40)])
def test_depthwise(
    size: tuple[int, int],
    kernel: tuple[int, int],
    pad: tuple[int, int],
    dilate: tuple[int, int],
    stride: tuple[int, int],
    flip: bool,
    calls: Counter[str],
) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 5, *size)).astype("f4")
    w = rng.normal(size=(5, 2, 1, *kernel)).astype("f4")
    bias = rng.normal(size=(1, 10, 1, 1)).astype("f4")
    b = GraphBuilder()
    names = ("pad", "stride", "dilate")
    window = {
        f"{n}_{a}": v
        for n, both in zip(names, (pad, stride, dilate), strict=True)
        for a, v in zip("hw", both, strict=True)
    }
    mode = P.ConvMode.CONVOLUTION if flip else P.ConvMode.CROSS_CORRELATION
    param = P.ConvBias(mode=mode, sparse=P.Sparse.GROUP, nonlineMode=P.NonlineMode.RELU, **window)
    y = b.add(
        "ConvBiasForwardV4",
        param,
        P.ExecutionPolicy(),
        inputs=[b.input("x", *x.shape), b.const(w), b.const(bias)],
    )
    geo = geometry(x.shape, 5, 1, 2, kernel, pad, stride, dilate)
    turned = np.flip(w, (3, 4)) if flip else w
    want = np.maximum(conv_plain(x.astype("f8"), turned.astype("f8"), geo) + bias, 0)
    close(run(b.done(y), {"x": x})[0], want)
    assert calls["depthwise"] >= 1
    assert not calls["_ends"], "bias and bounds are the kernel's own"


# Pointwise operators


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("mode", [M.SIGMOID, M.FUSE_ADD_SIGMOID, M.SILU, M.GELU, M.ERF], ids=lambda m: m.name)
@pytest.mark.parametrize("shape", [(1,), (1023,), (3, 5, 1025), (2, 300, 9, 50)])
def test_modes(mode: M, shape: tuple[int, ...]) -> None:
    """Functions of a float32 give what float64 gives, to the ends of the numbers; NaN stays NaN."""
    row = ROWS[mode]
    assert row.wide is not None
    x = np.resize(np.concatenate([np.linspace(-200, 200, 4001), [np.inf, 0, 1e-30, -1e-30]]), shape).astype(
        "f4"
    )
    feeds = {f"x{i}": x if i == 0 else np.zeros_like(x) for i in range(row.arity)}
    b = GraphBuilder()
    y = b.elemwise(mode, *[b.input(n, *shape) for n in feeds])
    with np.errstate(all="ignore"):
        want = row.wide(*[a.astype("f8") for a in feeds.values()]).astype("f4")
    np.testing.assert_allclose(run(b.done(y), feeds)[0], want, rtol=2e-6, atol=2e-6)
    feeds["x0"] = np.full(shape, np.nan, "f4")
    assert np.isnan(run(b.done(y), feeds)[0]).all()


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("sizes", [(1, 3, 8, 8), (2, 24, 60, 61)])
def test_what_follows_a_convolution(sizes: tuple[int, ...], calls: Counter[str]) -> None:
    """Bias, bounds, rounding between quantized layers and sums with other arrays, in one pass over each block."""
    onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
    rng = np.random.default_rng(6)
    x = rng.normal(size=sizes).astype("f4")
    w, bias = rng.normal(size=(5, sizes[1], 1, 1)).astype("f4"), rng.normal(size=5).astype("f4")
    shape = ",".join(map(str, sizes))
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        g (float[{shape}] x) => (float y, float z, float s, float t)
        <float low = {{-0.5}}, float high = {{1.5}}, float scale = {{0.05}}, int8 zero = {{-3}}> {{
        c = Conv(x, w, b)
        y = Clip(c, low, high)
        d = Conv(x, w, b)
        q = QuantizeLinear(d, scale, zero)
        z = DequantizeLinear(q, scale, zero)
        e = Conv(x, w, b)
        a = Add(y, e)
        s = Relu(a)
        f = Conv(x, w, b)
        r = QuantizeLinear(f, scale, zero)
        u = DequantizeLinear(r, scale, zero)
        v = Add(u, y)
        o = QuantizeLinear(v, scale, zero)
        t = DequantizeLinear(o, scale, zero) }}""")
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(bias, "b")]
    )
    found = loadrun.Runner(loadrun.load(model.SerializeToString()), "numba").run({"x": x})
    total = np.einsum("nchw,oc->nohw", x.astype("f8"), w[:, :, 0, 0]) + bias[:, None, None]
    clipped = np.clip(total, -0.5, 1.5)
    close(found["y"], clipped)
    close(found["s"], np.maximum(clipped + total, 0))

    def rounded(v: Array) -> Array:
        return np.clip(np.rint(v / 0.05), -125, 130) * 0.05

    for name, want in (("z", rounded(total)), ("t", rounded(rounded(total) + clipped))):
        # A sum may fall on the other side of a half.
        near = np.abs(found[name] - want)
        assert near.max() < 0.051
        assert (near < 1e-4).mean() > 0.99
    assert calls["_ends"] >= 4


# Rows


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 7), (2, 3, 1025), (700, 2000)])
def test_rows(shape: tuple[int, ...], calls: Counter[str]) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=shape).astype("f4") * 5 + 3
    scale, bias = rng.normal(size=(2, shape[-1])).astype("f4")
    b = GraphBuilder()
    v = b.input("x", *shape)
    param = P.LayerNorm(eps=1e-3, normalized_dim=1, normalized_size=shape[-1])
    n = b.add("LayerNorm", param, inputs=[v, b.const(scale), b.const(bias)], n_outputs=3)
    found = run(b.done(*n.owner.outputs), {"x": x})
    wide = x.astype("f8")
    deviation = np.sqrt(wide.var(-1) + 1e-3)
    close(found[0], (wide - wide.mean(-1, keepdims=True)) / deviation[..., None] * scale + bias, 3e-5)
    close(found[1], wide.mean(-1))
    close(found[2], 1 / deviation, 3e-5)
    assert calls["layer_norm"]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
def test_lstm(direction: str, states: bool, calls: Counter[str]) -> None:
    onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
    rng = np.random.default_rng(5)
    many, steps, batch, size, hidden = 1 + (direction == "bidirectional"), 9, 3, 4, 70
    shapes = {
        "x": (steps, batch, size),
        "w": (many, 4 * hidden, size),
        "r": (many, 4 * hidden, hidden),
        "b": (many, 8 * hidden),
    }
    shapes |= {"h": (many, batch, hidden), "c": (many, batch, hidden)}
    data = {n: rng.normal(size=s).astype("f4") * 0.5 for n, s in shapes.items()}
    given = ", ".join(f"float[{','.join(map(str, data[n].shape))}] {n}" for n in data)
    more = ", , h, c" if states else ""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({given}) => (float y, float yh, float yc) {{
        y, yh, yc = LSTM <hidden_size = {hidden}, direction = "{direction}"> (x, w, r, b{more}) }}""")
    found = loadrun.Runner(loadrun.load(model.SerializeToString()), "numba").run(data)
    assert calls["lstm_step"] == many * steps
    want = lstm({n: a.astype("f8") for n, a in data.items()}, direction, states)
    for name, value in zip(("y", "yh", "yc"), want, strict=True):
        close(found[name], value)


def lstm(data: dict[str, Array], direction: str, states: bool) -> list[Array]:
    """ONNX's formula."""

    def sigmoid(v: Array) -> Array:
        return 1 / (1 + np.exp(-v))

    outputs, last = [], []
    for d in range(len(data["w"])):
        x = data["x"]
        backward = direction == "reverse" or d == 1
        h, c = (data[n][d] if states else np.zeros_like(data[n][d]) for n in "hc")
        rows = []
        for step in x[::-1] if backward else x:
            total = step @ data["w"][d].T + h @ data["r"][d].T + sum(np.split(data["b"][d], 2))
            i, o, f, g = np.split(total, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            rows.append(h)
        outputs.append(rows[::-1] if backward else rows)
        last.append((h, c))
    return [np.stack(outputs, 1), *(np.stack(s) for s in zip(*last, strict=True))]


# The engine


def test_it_says_which_kernels_computed() -> None:
    import numba

    runner = loadrun.Runner(loadrun.load("fixtures/nets/mlp.mge"), "numba")
    result = runner.replay_one(0)
    assert result.engine is not None
    assert result.engine.text.startswith(f"numba {numba.__version__} (numpy {np.__version__}), float32")


def test_only_this_engine_imports_numba() -> None:
    code = (
        "import loadrun, sys; loadrun.Runner(loadrun.load('fixtures/nets/mlp.mge')).replay_one(0); "
        "print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "loadrun.engines.fast", None)
    with pytest.raises(UsageError, match=r"needs numba .*: pip install loadrun\[fast\]"):
        loadrun.Runner(loadrun.load("fixtures/nets/mlp.mge"), "numba").replay_one(0)


def test_kernels_are_compiled_where_nothing_can_be_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from numba import types

    def refused(*args: object, cache: bool = False, **options: object) -> object:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*args, **options)

    njit = fast.njit
    monkeypatch.setattr(fast, "njit", refused)

    def one(out: Array) -> None:
        out[0] = 1

    out = np.zeros(1, "f4")
    fast.compiled(types.float32[::1])(one)(out)
    assert out[0] == 1
