"""Single passes where whole nets do not show what they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.graph import Graph
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Convolution, Empty, Reduce, ReduceDataType, ReduceMode, UniformRNG
from loadrun.ops.catalog import TypeParam
from loadrun.passes.arithmetic.fuse import combine_conversions
from loadrun.passes.arithmetic.redistribute import delay_broadcast, distribute_products
from loadrun.passes.cleanup import fold_constants, merge_weights
from loadrun.passes.inference import optimize_for_inference
from loadrun.passes.layouts.layouts import Layouts, reformat
from loadrun.passes.layouts.pad_channels import pad_channels, whole_packs
from loadrun.passes.loadable import make_loadable
from loadrun.passes.older import to_half
from loadrun.passes.rewriter import Rewriter
from loadrun.testing import GraphBuilder as Builder, random_feeds as feeds_of
from tests.support.fixture_files import FIXTURES
from tests.support.optimize_graphs import F32, error, run, titles

INT = DType("Int32")


def same(graph: Graph, made: Graph, limit: float = 0.0) -> None:
    feeds = feeds_of(graph)
    for a, b in zip(run(graph, feeds), run(made, feeds), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert error(a, b) <= limit


def test_products_are_multiplied_out_where_that_saves_work() -> None:
    b = Builder()
    x, y, m = b.input("x", 4, 8), b.input("y", 4, 8), b.input("m", 1, 8)
    a = b.elemwise("MUL", x, b.input("k", 1, 8))
    graph = b.done(b.elemwise("MUL", b.elemwise("ADD", a, b.elemwise("MUL", y, b.input("l", 1, 8))), m))
    made = distribute_products(graph)
    assert sorted(titles(made)) == sorted(["MUL", "MUL", "MUL", "MUL", "ADD"])
    shapes = sorted(v.shape or () for o in made.oprs if o.title == "MUL" for v in o.outputs)
    assert shapes == [(1, 8), (1, 8), (4, 8), (4, 8)]
    same(graph, made, 1e-6)


def test_a_conversion_to_the_type_that_a_value_has_is_not_written() -> None:
    """MegEngine's loader makes none, and stops: "got_type=Elemwise expected_type=TypeCvt"."""
    b = Builder()
    half = TypeParam(dtype=DType("Float16"))
    product = b.elemwise("RELU", b.add("TypeCvtV2", half, inputs=[b.input("x", 4, 8)]))
    graph = b.done(b.add("TypeCvtV2", half, inputs=[product]))
    assert titles(make_loadable(graph)) == ["TypeCvtV2", "RELU"]
    same(graph, make_loadable(graph))


def test_what_saves_nothing_is_not_multiplied_out() -> None:
    b = Builder()
    x, y, m = b.input("x", 4, 8), b.input("y", 4, 8), b.input("m", 1, 8)
    graph = b.done(b.elemwise("MUL", b.elemwise("ADD", x, y), m))
    assert titles(distribute_products(graph)) == ["ADD", "MUL"]


def test_broadcasts_wait() -> None:
    b = Builder()
    x = b.input("x", 1, 3)
    wide = b.add("Broadcast", Empty(), inputs=[x, b.const([5, 3], INT)])
    graph = b.done(b.elemwise("EXP", b.elemwise("MUL", wide, b.const(2.0))))
    made = delay_broadcast(graph)
    assert titles(made) == ["MUL", "EXP", "Broadcast"]
    same(graph, made)


def test_constants_do_not_grow_into_large_ones() -> None:
    b = Builder()
    large = b.add("Broadcast", Empty(), inputs=[b.const([1.0]), b.const([1000, 1000], INT)])
    small = b.add("Broadcast", Empty(), inputs=[b.const([1.0]), b.const([10, 10], INT)])
    made = fold_constants(b.done(b.elemwise("EXP", large), b.elemwise("SIN", small), b.input("x", 1)))
    assert [o.type for o in made.oprs].count("Broadcast") == 1


@pytest.mark.parametrize("exact", [False, True])
def test_constants_are_rounded_to_bfloat16(exact: bool) -> None:
    b = Builder()
    small = b.add("TypeCvtV2", TypeParam(dtype=DType("BFloat16")), inputs=[b.const([0.31])])
    graph = b.done(b.add("TypeCvtV2", TypeParam(dtype=F32), inputs=[small]))
    for opr in graph.oprs:
        opr.exact = exact
    made = fold_constants(graph)
    # 8 bits of 0.31 * 2**2 = 1.24, to nearest: 159 / 128
    assert "TypeCvtV2" not in titles(made)
    assert run(made, {})[0].tolist() == [159 / 512]


def test_weights_are_merged_with_their_names() -> None:
    b = Builder()
    x, w, v = (
        b.input("x", 2),
        b.const([1.0, 2.0], type="SharedDeviceTensor"),
        b.const([3.0, 4.0], type="SharedDeviceTensor"),
    )
    w.name, v.name = "w", "v"
    graph = b.done(b.elemwise("ADD", b.elemwise("MUL", x, w), v))
    made = merge_weights(graph)
    (holder,) = [o for o in made.oprs if o.type == "MultipleDeviceTensorHolder"]
    assert [t.name for t in holder.tensors] == ["w", "v"]
    assert [t.value().tolist() for t in holder.tensors] == [[1.0, 2.0], [3.0, 4.0]]
    same(graph, made)


def conv_net(middle: str) -> Graph:
    """Two convolutions with 6 channels between them."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", 1, 4, 5, 5)
    first = b.add("ConvolutionV2", Convolution(), inputs=[x, b.const(rng.uniform(1, 2, (6, 4, 1, 1)))])
    between = b.elemwise(middle, b.elemwise("ABS", first))
    second = b.add("ConvolutionV2", Convolution(), inputs=[between, b.const(rng.normal(size=(4, 6, 3, 3)))])
    return b.done(second)


@pytest.mark.parametrize(("middle", "padded"), [("TANH", True), ("LOG", False)])
def test_padded_channels_do_not_reach_what_is_infinite_at_zero(middle: str, padded: bool) -> None:
    """The logarithm of a padded channel is minus infinity, and that times a weight of zero is NaN."""
    graph = conv_net(middle)
    made = fold_constants(pad_channels(graph, whole_packs(4)))
    weights = [
        t.shape
        for o in made.oprs
        if o.type == "ImmutableTensor"
        for t in o.tensors
        if t.shape and len(t.shape) == 4
    ]
    assert weights == [(8, 4, 1, 1), (4, 8 if padded else 6, 3, 3)]
    same(graph, made, 1e-6)


def test_float16_leaves_random_numbers_and_conditions_alone() -> None:
    b = Builder()
    noise = b.add("UniformRNGV1", UniformRNG(seed=3), inputs=[b.const([4], INT)])
    index = b.add(
        "TypeCvtV2", TypeParam(dtype=INT), inputs=[b.elemwise("MUL", b.input("x", 4), b.const(9.0))]
    )
    graph = b.done(b.elemwise("ADD", noise, b.input("y", 4)), index)
    made = to_half(graph, wide_sums=True)
    assert [v.dtype for v in made.outputs] == [F32, INT]
    assert [o.type for o in made.oprs].count("UniformRNGV1") == 1
    same(graph, made, 2e-3)


def test_reductions_take_float16() -> None:
    b = Builder()
    wide = b.add("TypeCvtV2", TypeParam(dtype=F32), inputs=[b.input("x", 3, 200, dtype=DType("Float16"))])
    graph = b.done(b.add("ReduceV2", Reduce(mode=ReduceMode.MEAN, axis=1), inputs=[wide]))
    made = combine_conversions(graph)
    (reduce,) = [o for o in made.oprs if o.type == "ReduceV2"]
    assert titles(made) == ["ReduceV2"]
    assert reduce.get(Reduce).data_type == ReduceDataType.FLOAT_O32xC32
    same(graph, made)


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("NCHW", "NCHWc4", (2, 8, 3, 5)),
        ("NCHW", "NCHWc8", (2, 8, 3, 5)),
        ("NCHWc4", "NCHW", (2, 2, 3, 5, 4)),
        ("NCHWc4", "NCHWc32", (1, 16, 3, 5, 4)),
        ("NCHWc32", "NCHWc4", (1, 2, 3, 5, 32)),
        ("NCHW", "CHWNc4", (2, 8, 3, 5)),
        ("CHWNc4", "NCHW", (2, 3, 5, 2, 4)),
        ("NHWC", "NCHWc64", (1, 2, 3, 128)),
        ("KCRS", "KCRSc4k4", (8, 4, 3, 2)),
        ("KCRS", "KRSCk8", (16, 3, 3, 2)),
        ("GKCRS", "GKCRSk4c4", (3, 4, 8, 1, 2)),
        ("C11RS", "C11RSc8", (16, 1, 1, 3, 2)),
    ],
)
def test_layouts(source: str, target: str, shape: tuple[int, ...]) -> None:
    """Against a plain loop over channels, written from the layouts' names."""
    b = Builder()
    graph = b.done(b.input("x", *shape))
    r = Rewriter(graph)
    for opr in r.oprs:
        r.copy(opr)
    (x,) = r.new.oprs[0].outputs
    r.replace(graph.outputs[0], reformat(r, x, source, target))
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert (run(r.finish(), {"x": data})[0] == loop(data, source, target)).all()


def letters(layout: str, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    """(axis letter, stride) of every axis."""
    outer = [c for c in layout if c.isupper() or c == "1"]
    inner = {
        c.upper(): int("".join(d for d in layout[layout.index(c) + 1 :][:2] if d.isdigit()))
        for c in layout
        if c.islower()
    }
    found = [(c, inner.get(c, 1)) for c in outer]
    return found + [(c.upper(), 1) for c in layout if c.islower()]


def loop(data: np.ndarray, source: str, target: str) -> np.ndarray:
    places = letters(source, data.shape)
    wanted = letters(target, ())
    sizes: dict[str, int] = {}
    for (name, _), n in zip(places, data.shape, strict=True):
        sizes[name] = sizes.get(name, 1) * n
    packs = {name: stride for name, stride in wanted if stride > 1}
    shape, seen = [], set()
    for name, stride in wanted:
        if name == "1":
            shape.append(1)
        elif name in seen:
            shape.append(packs[name])
        else:
            shape.append(sizes[name] // stride)
            seen.add(name)
    out = np.empty(shape, data.dtype)
    for index in np.ndindex(*data.shape):
        at: dict[str, int] = {}
        for (name, stride), i in zip(places, index, strict=True):
            at[name] = at.get(name, 0) + i * stride
        done: set[str] = set()
        place = []
        for name, stride in wanted:
            if name == "1":
                place.append(0)
            elif name in done:
                place.append(at[name] % packs[name])
            else:
                place.append(at[name] // stride)
                done.add(name)
        out[tuple(place)] = data[index]
    return out


def test_what_goes_there_and_back_is_taken_from_where_it_came_from() -> None:
    b = Builder()
    r = Rewriter(b.done(b.input("x", 1, 8, 2, 2)))
    for opr in r.oprs:
        r.copy(opr)
    (x,) = r.new.oprs[0].outputs
    layouts = Layouts(r)
    packed = layouts.to(x, "NCHWc4")
    assert layouts.plain(packed) is x
    assert layouts.to(packed, "NCHWc4") is packed
    assert layouts.to(x, "NCHWc4") is packed


def test_inputs_of_open_shape_are_optimized_as_far_as_they_can_be() -> None:
    graph = loadrun.load(FIXTURES / "optimized/cnn_plain.mge").graph
    (tensor,) = graph.inputs[0].owner.tensors
    feeds = feeds_of(graph)
    tensor.shape = None
    before = run(graph, feeds)
    for flags in (
        {},
        {"enable_nchw44": True},
        {"enable_hwcd4": True},
        {"enable_nchw4": True},
        {"enable_ioc16": True},
    ):
        made, _ = optimize_for_inference(graph, **flags)
        for a, c in zip(before, run(made, feeds), strict=True):
            assert error(a, c) < (2e-2 if "enable_ioc16" in flags else 1e-5)


def test_a_graph_changed_by_hand_is_not_mistaken_for_what_a_pass_made() -> None:
    b = Builder()
    made = fold_constants(b.done(b.elemwise("EXP", b.input("x", 2, 3))))
    made.inputs[0].owner.tensors[0].shape = (5, 3)
    assert Rewriter(made).old_shape(made.outputs[0]) == (5, 3)


def test_what_megengine_makes_of_arithmetic() -> None:
    # As MegEngine 1.13 dumps these, at level 0 and at level 2.
    def made(function: Any, level: int) -> list[str]:
        traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True, opt_level=level)(function)
        traced(loadrun.tensor([[1.0, 2.0, 3.0]]))
        return [o.title for o in traced.graph().oprs if not o.tensors]

    tensor, F = loadrun.tensor, loadrun.megengine.functional
    for function, plain, simpler in (
        (lambda x: (x + 1) + 0, ["ADD", "ADD"], ["ADD"]),
        (lambda x: 1 * (x + 1), ["ADD", "MUL"], ["ADD"]),
        (lambda x: (x + 1) ** 1, ["ADD", "POW"], ["ADD"]),
        (lambda x: (x + 1) / 1, ["ADD", "TRUE_DIV"], ["ADD", "TRUE_DIV"]),
        (lambda x: (x + 1) - 0, ["ADD", "SUB"], ["ADD", "SUB"]),
        (lambda x: F.exp(x) * tensor([1.0, 1.0, 1.0]), ["EXP", "MUL"], ["EXP", "MUL"]),
        (lambda x: x + tensor(2.0) * tensor(3.0), ["ADD"], ["ADD"]),
        (lambda x: x + F.sum(tensor([1.0, 2.0])), ["ADD"], ["ADD"]),
        (lambda x: x + tensor([1, 2, 3]).astype("float32").reshape(1, 3), ["ADD"], ["ADD"]),
        (lambda x: x + (F.arange(3) + 1), ["Linspace", "ADD", "ADD"], ["Linspace", "ADD", "ADD"]),
        (lambda x: F.sum(x**2), ["ReduceV2"], ["ReduceV2"]),
        (lambda x: F.sum(x * x), ["MUL", "ReduceV2"], ["MUL", "ReduceV2"]),
        (lambda x: F.mean(x**2), ["POW", "ReduceV2"], ["POW", "ReduceV2"]),
        (lambda x: F.log(F.exp(x) * (x + 1)), None, ["LOG1P", "ADD"]),
    ):
        assert plain is None or made(function, 0) == plain
        assert made(function, 2) == simpler


def test_sums_of_squares_keep_their_values() -> None:
    x = np.array([[1.5, -2.0], [3.0, 0.25]], np.float32)
    for power in (lambda t: t**2, loadrun.megengine.functional.square):
        traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(
            lambda t, power=power: loadrun.megengine.functional.sum(power(t), axis=1)
        )
        traced(loadrun.tensor(x))
        graph = traced.graph(["x"])
        assert next(o for o in graph.oprs if o.type == "ReduceV2").get(Reduce).mode == ReduceMode.SUM_SQR
        assert run(graph, {"x": x})[0].tolist() == [6.25, 9.0625]
