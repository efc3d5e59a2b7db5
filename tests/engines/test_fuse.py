"""Fused convolutions give the bits of the separate operators."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.engines import make_engine
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Convolution, Elemwise, ElemwiseMode, Host2DeviceCopy, Sparse
from loadrun.ops.conv.rules import geometry
from loadrun.ops.numeric.parallel import set_threads, threads
from tests.support.cases import fewer
from tests.support.conv_plain import conv_plain

F32 = DType("Float32")


pytestmark = pytest.mark.usefixtures("compiled")


def constant(g: Graph, value: np.ndarray) -> Var:
    data = value.astype("<f4")
    return g.add(
        "ImmutableTensor", tensors=[StoredTensor(F32, data.shape, None, data.reshape(-1).view(np.uint8))]
    )[0]


def build(depthwise: bool, batch: int) -> tuple[Graph, list[Var], dict[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    g = Graph()
    x_shape, y_shape = (batch, 6, 9, 7), (batch, 6, 9, 7)
    x, r = (
        g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, s, n)], names=[n])[0]
        for n, s in (("x", x_shape), ("r", y_shape))
    )
    weight = rng.normal(size=(6, 1, 1, 3, 3) if depthwise else (6, 6, 3, 3))
    param = Convolution(pad_h=1, pad_w=1, sparse=Sparse.GROUP if depthwise else Sparse.DENSE)
    (v,) = g.add("ConvolutionV2", param, inputs=[x, constant(g, weight)])
    scale, bias = constant(g, rng.normal(size=(1, 6, 1, 1))), constant(g, rng.normal(size=(6, 1, 1)))
    zero, six = constant(g, np.zeros(1)), constant(g, np.full(1, 6.0))

    def elemwise(mode: ElemwiseMode, *inputs: Var) -> Var:
        return g.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]

    chain = [v]
    chain.append(elemwise(ElemwiseMode.FUSE_MUL_ADD3, scale, chain[-1], bias))
    chain.append(elemwise(ElemwiseMode.FUSE_ADD_RELU, chain[-1], r))
    chain.append(elemwise(ElemwiseMode.SUB, six, chain[-1]))
    chain.append(elemwise(ElemwiseMode.MAX, zero, chain[-1]))
    chain.append(elemwise(ElemwiseMode.MUL, chain[-1], chain[-1]))
    chain.append(elemwise(ElemwiseMode.H_SWISH, chain[-1]))
    g.outputs = [chain[-1]]
    feeds = {n: rng.normal(size=s).astype("f4") for n, s in (("x", x_shape), ("r", y_shape))}
    return g, chain, feeds


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_same_bits(depthwise: bool, batch: int) -> None:
    g, chain, feeds = build(depthwise, batch)
    (fused,) = ReferenceEngine(g).run(feeds)
    seen: list[str] = []
    (separate,) = ReferenceEngine(g).run(feeds, observe=lambda opr, outs: seen.append(opr.title))
    assert seen.count("H_SWISH") == 1
    assert len(seen) >= len(chain)
    np.testing.assert_array_equal(fused.view("u4"), separate.view("u4"))


@pytest.mark.parametrize("kept", ["", "gate", "sum"])
@pytest.mark.parametrize("mode", [ElemwiseMode.SIGMOID, ElemwiseMode.SOFTPLUS])
def test_gates_are_fused(mode: ElemwiseMode, kept: str) -> None:
    """What multiplies a convolution's result by a function of itself, unless somebody else wants either."""
    rng = np.random.default_rng(0)
    g = Graph()
    x = g.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, (2, 3, 5, 7), "x")], names=["x"]
    )
    (v,) = g.add("ConvolutionV2", Convolution(), inputs=[*x, constant(g, rng.normal(size=(4, 3, 2, 2)))])
    (gate,) = g.add("Elemwise", Elemwise(mode=mode), inputs=[v])
    (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MUL), inputs=[gate, v])
    (more,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[y, gate if kept == "sum" else y])
    g.outputs = [more, gate] if kept == "gate" else [more]
    feeds = {"x": rng.normal(size=(2, 3, 5, 7)).astype("f4") * 9}
    engine = ReferenceEngine(g)
    separate = engine.run(feeds, observe=lambda opr, outs: None)
    for _ in range(2):
        found = engine.run(feeds)
        for a, b in zip(found, separate, strict=True):
            np.testing.assert_array_equal(a.view("u4"), b.view("u4"))
    (program,) = [p for key, p in engine._programs.items() if key[0]]
    assert len(program.steps) == (4 if kept else 1)


@pytest.mark.parametrize("stride", [(2, 2), (1, 2), (3, 1)])
@pytest.mark.parametrize("wanted", [False, True])
def test_stride_phases_are_sorted_before_channels_are_many(stride: tuple[int, int], wanted: bool) -> None:
    rng, size = np.random.default_rng(4), (2, 3, 12, 20)
    g = Graph()
    x = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, size, "x")], names=["x"])
    many, each = rng.normal(size=(8, 3, 1, 1)), rng.normal(size=(8, 1, 1, 3, 3))
    (v,) = g.add("ConvolutionV2", Convolution(), inputs=[*x, constant(g, many)])
    (v,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[v])
    param = Convolution(pad_h=1, pad_w=1, stride_h=stride[0], stride_w=stride[1], sparse=Sparse.GROUP)
    (y,) = g.add("ConvolutionV2", param, inputs=[v, constant(g, each)])
    (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[y])
    g.outputs = [y, v] if wanted else [y]
    data = rng.normal(size=size)
    middle = np.maximum(np.einsum("oc,nchw->nohw", many[:, :, 0, 0], data), 0)
    geo = geometry(middle.shape, 8, 1, 1, (3, 3), (1, 1), stride, (1, 1))
    engine = ReferenceEngine(g)
    for _ in range(2):
        found = engine.run({"x": data.astype("f4")})
        np.testing.assert_allclose(found[0], np.maximum(conv_plain(middle, each, geo), 0), 1e-4, 1e-5)
    (program,) = [p for key, p in engine._programs.items() if key[0]]
    sorts = [s.binder.__self__.before for s in program.steps]  # type: ignore[union-attr]
    assert sorts == [None if wanted else stride, None]


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("behind", [False, True])
def test_fed_filters_may_change(kernel: int, behind: bool) -> None:
    """What is derived from filters is kept for constant ones alone."""
    rng = np.random.default_rng(1)
    g, shapes = Graph(), {"x": (1, 4, 7, 7), "w": (4, 1, 1, kernel, kernel)}
    ins = [
        g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, s, n)], names=[n])[0]
        for n, s in shapes.items()
    ]
    pad = kernel // 2
    (y,) = g.add("ConvolutionV2", Convolution(pad_h=pad, pad_w=pad, sparse=Sparse.GROUP), inputs=ins)
    g.outputs = g.add("Elemwise", Elemwise(mode=ElemwiseMode.RELU), inputs=[y]) if behind else [y]
    engine = ReferenceEngine(g)
    for _ in range(3):
        feeds = {n: rng.normal(size=s).astype("f4") for n, s in shapes.items()}
        wide = {n: a.astype("f8") for n, a in feeds.items()}
        geo = geometry((1, 4, 7, 7), 4, 1, 1, (kernel, kernel), (pad, pad), (1, 1), (1, 1))
        want = conv_plain(wide["x"], wide["w"], geo)
        np.testing.assert_allclose(engine.run(feeds)[0], np.maximum(want, 0) if behind else want, 1e-4, 1e-5)


def test_wanted_values_are_kept() -> None:
    """A value inside the chain that the caller wants is computed as well."""
    g, chain, feeds = build(False, 1)
    together = ReferenceEngine(g, chain).run(feeds)
    for var, value in zip(chain, together, strict=True):
        (alone,) = ReferenceEngine(g, [var]).run(feeds)
        np.testing.assert_array_equal(alone.view("u4"), value.view("u4"))


def test_other_batch_sizes_get_their_own_program() -> None:
    g, _, _ = build(False, 1)
    engine = ReferenceEngine(g)
    _, _, three = build(False, 3)
    (whole,) = engine.run(three)
    rows = [engine.run({n: a[i : i + 1] for n, a in three.items()})[0] for i in range(3)]
    np.testing.assert_allclose(whole, np.concatenate(rows), rtol=1e-5, atol=1e-5)


def limits(size: tuple[int, ...]) -> ReferenceEngine:
    """MIN(0.75, MAX(x, -0.5)) after a convolution that changes nothing."""
    g = Graph()
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, size, "x")], names=["x"])
    weight = constant(g, np.eye(size[1])[:, :, None, None])
    (v,) = g.add("ConvolutionV2", Convolution(), inputs=[x, weight])
    low, high = constant(g, np.full(1, -0.5)), constant(g, np.full((1, 1, 1, 1), 0.75))
    (top,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.MAX), inputs=[v, low])
    g.outputs = list(g.add("Elemwise", Elemwise(mode=ElemwiseMode.MIN), inputs=[high, top]))
    return ReferenceEngine(g)


@pytest.mark.parametrize("size", [(2, 6, 9, 7), (1, 1, 4, 4), (1, 3, 5, 5), (1, 2, 300, 310)])
def test_limits_are_fused(size: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).normal(size=size).astype("f4")
    engine = limits(size)
    (found,) = engine.run({"x": x})
    np.testing.assert_array_equal(found, np.clip(x, np.float32(-0.5), np.float32(0.75)))
    assert [len(p.steps) for p in engine._programs.values()] == [1]


@pytest.mark.parametrize("size", [(1, 1, 4, 4), (1, 1, 5, 5), (3, 1, 7, 9), (1, 1, 300, 311)])
def test_limits_make_of_nan_what_they_make_of_it_alone(size: tuple[int, ...]) -> None:
    """MAX gives the bound for NaN in whole vectors of 16 elements, and keeps NaN after them; MIN gives the bound."""
    x = np.random.default_rng(5).normal(size=size).astype("f4")
    flat = x.reshape(-1)
    flat[[0, flat.size // 2, -1]] = np.nan
    want = np.where(np.isnan(x), np.float32(-0.5), np.clip(x, np.float32(-0.5), np.float32(0.75)))
    if flat.size % 16:
        want.reshape(-1)[-1] = 0.75
    (found,) = limits(size).run({"x": x})
    (separate,) = limits(size).run({"x": x}, observe=lambda opr, outs: None)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(separate, want)


M = ElemwiseMode
ONE = [M.RELU, M.ABS, M.H_SWISH, M.NEGATE]
TWO = [M.ADD, M.SUB, M.MUL, M.FUSE_ADD_RELU, M.MAX, M.MIN, M.SWITCH_GT0]


@st.composite
def chains(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """A convolution and up to five operators behind it, with numbers, channels and whole arrays beside it."""
    sizes = st.integers(1, 40) if draw(st.booleans()) else st.sampled_from([1, 7])
    groups = draw(st.sampled_from([1, 1, 2, 5]))
    n, icg, ocg = (draw(st.integers(1, 4)) for _ in range(3))
    kernel = draw(st.sampled_from([1, 3]))
    shape = (n, groups * icg, draw(sizes), draw(sizes))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    g = Graph()
    feeds = {"x": rng.normal(size=shape).astype("f4")}
    (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(F32, shape, "x")], names=["x"])
    param = Convolution(
        pad_h=kernel // 2, pad_w=kernel // 2, sparse=Sparse.GROUP if groups > 1 else Sparse.DENSE
    )
    lead = (groups,) if groups > 1 else ()
    (current,) = g.add(
        "ConvolutionV2", param, inputs=[x, constant(g, rng.normal(size=(*lead, ocg, icg, kernel, kernel)))]
    )
    out = (n, groups * ocg, *shape[2:])
    for i in range(draw(st.integers(1, 5))):
        mode = draw(st.sampled_from([*ONE, *TWO]))
        inputs = [current]
        if mode in TWO:
            kinds = [(1,), (1, 1, 1, 1), (1, out[1], 1, 1), (out[1], 1, 1), out]
            size = draw(st.sampled_from(kinds))
            value = rng.normal(size=size)
            if draw(st.booleans()):
                data = StoredTensor(F32, size, f"o{i}")
                inputs += g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[data], names=[f"o{i}"])
                feeds[f"o{i}"] = value.astype("f4")
            else:
                inputs.append(constant(g, value))
            inputs = inputs[:: draw(st.sampled_from([1, -1]))]
        (current,) = g.add("Elemwise", Elemwise(mode=mode), inputs=inputs)
    g.outputs = [current]
    if draw(st.booleans()):
        for value in feeds.values():
            value.reshape(-1)[rng.integers(value.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return g, feeds


EXAMPLES = fewer(int(os.environ.get("LOADRUN_EXPLORE", 1)) * 60, 2)


@settings(max_examples=EXAMPLES, deadline=None)
@given(chains(), st.integers(1, 3))
def test_compiled_chains_are_those_of_the_operators(
    drawn: tuple[Graph, dict[str, np.ndarray]], count: int
) -> None:
    """Numbers that no NaN and no infinity reaches differ by rounding; what a kernel makes of those is its own."""
    pytest.importorskip("numba", reason="numba is not installed")
    g, feeds = drawn
    with np.errstate(all="ignore"):
        (wide,) = make_engine("float64", g, g.outputs).run(feeds)
        zeros = {n: np.nan_to_num(x, posinf=0, neginf=0) for n, x in feeds.items()}
        (beside,) = make_engine("float64", g, g.outputs).run(zeros)
    finite = all(np.isfinite(x).all() for x in feeds.values())
    engine, before = make_engine("numba", g, g.outputs), threads()
    set_threads(count)
    try:
        for _ in range(2):
            (found,) = engine.run(feeds)
            places = np.isfinite(wide) & (wide == beside)
            assert places.all() or not finite
            largest = max(1.0, float(np.abs(wide[places]).max(initial=0)))
            np.testing.assert_allclose(found[places], wide[places], rtol=1e-5, atol=1e-5 * largest)
    finally:
        set_threads(before)


@settings(max_examples=EXAMPLES, deadline=None)
@given(chains(), st.integers(1, 3))
def test_chains_give_the_bits_of_their_operators(
    drawn: tuple[Graph, dict[str, np.ndarray]], count: int
) -> None:
    """With constants and data, NaN and infinities among them, in a second run as in the first."""
    g, feeds = drawn
    (separate,) = ReferenceEngine(g).run(feeds, observe=lambda opr, outs: None)
    engine, before = ReferenceEngine(g), threads()
    set_threads(count)
    try:
        for _ in range(2):
            (fused,) = engine.run(feeds)
            nan = np.isnan(separate)
            np.testing.assert_array_equal(np.isnan(fused), nan)
            np.testing.assert_array_equal(fused[~nan].view("u4"), separate[~nan].view("u4"))
    finally:
        set_threads(before)
