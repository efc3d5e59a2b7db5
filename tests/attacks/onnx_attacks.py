"""ONNX files of a few bytes that ask for gigabytes or hours. Each entry of `ATTACKS` makes one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.onnx.wire_models import attribute, field, graph, model, node, number, tensor, value

__all__ = ["ATTACKS"]

ATTACKS: dict[str, Callable[[], bytes]] = {}


def attack(make: Callable[[], bytes]) -> Callable[[], bytes]:
    """Register an attack."""
    ATTACKS[make.__name__] = make
    return make


def held(name: str, array: np.ndarray) -> bytes:
    """A stored tensor of a graph."""
    return field(5, tensor(array, name))


def ints(name: str, *numbers: int) -> bytes:
    """A stored vector of integers."""
    return held(name, np.array(numbers, np.int64))


@attack
def one_constant() -> bytes:
    """Four gigabytes of zeros, added to an input of two numbers."""
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("ReduceSum", ["c"], ["r"], attribute("keepdims", 0))]
    return graph(*nodes, node("Add", ["x", "r"], ["y"]), ints("s", 1 << 15, 1 << 15))


@attack
def one_constant_computed_with() -> bytes:
    """A gigabyte of zeros, of which each is then changed."""
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Exp", ["c"], ["d"])]
    nodes += [node("ReduceSum", ["d"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, ints("s", 1 << 14, 1 << 14))


@attack
def range_of_numbers() -> bytes:
    """64 million numbers, squared and summed."""
    ends = [held(n, np.array(v, np.int64)) for n, v in (("a", 0), ("b", 1 << 26), ("d", 1))]
    nodes = [node("Range", ["a", "b", "d"], ["n"]), node("Mul", ["n", "n"], ["m"])]
    nodes += [node("ReduceMax", ["m"], ["r"], attribute("keepdims", 0))]
    cast = node("Cast", ["r"], ["f"], attribute("to", 1))
    return graph(*nodes, cast, node("Add", ["x", "f"], ["y"]), *ends)


@attack
def loop_of_products() -> bytes:
    """4,000 products of 1500 x 1500 matrices."""
    body = node("MatMul", ["m", "m"], ["o"]) + node("Identity", ["k"], ["l"]) + field(2, "b")
    body += (
        field(11, value("i", 7, ())) + field(11, value("k", 9, ())) + field(11, value("m", 1, (1500, 1500)))
    )
    body += field(12, value("l", 9, ())) + field(12, value("o", 1, (1500, 1500)))
    turns = field(1, "body") + field(6, body) + field(20, 5)
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("Loop", ["n", "", "c"], ["d"], turns)]
    nodes += [node("ReduceSum", ["d"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, ints("s", 1500, 1500), held("n", np.array(4000, np.int64)))


@attack
def concat_of_constants() -> bytes:
    """28 constants of 100 MB, joined."""
    names = [f"c{i}" for i in range(28)]
    nodes = [node("ConstantOfShape", ["s"], [n]) for n in names]
    nodes += [node("Concat", names, ["d"], attribute("axis", 0))]
    nodes += [node("ReduceSum", ["d"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, ints("s", 5000, 5000))


@attack
def huge_spectrum() -> bytes:
    """A transform of 60 million numbers."""
    nodes = [node("DFT", ["z", "n"], ["f"]), node("ReduceSum", ["f"], ["r"], attribute("keepdims", 0))]
    zeros = held("z", np.zeros((1, 4, 1), np.float32))
    number = held("n", np.array(60_000_011, np.int64))
    return graph(*nodes, node("Add", ["x", "r"], ["y"]), zeros, number)


@attack
def empty_nodes() -> bytes:
    """Half a million nodes of two bytes each."""
    return model(
        field(1, b"") * 500_000, node("Neg", ["x"], ["y"]), field(11, value("x")), field(12, value("y"))
    )


@attack
def short_nodes() -> bytes:
    """100,000 nodes of ten bytes each."""
    many = field(1, field(1, "x") + field(4, "Neg")) * 100_000
    return model(many, node("Neg", ["x"], ["y"]), field(11, value("x")), field(12, value("y")))


@attack
def empty_entries() -> bytes:
    """Half a million pairs of an empty key and an empty value."""
    return graph(node("Neg", ["x"], ["y"])) + field(14, b"") * 500_000


@attack
def numbers_one_by_one() -> bytes:
    """200,000 floats that are not packed."""
    row = number(4 << 3 | 5) + b"\0\0\0\0"
    weight = field(1, 200_000) + field(2, 1) + field(8, "w") + row * 200_000
    nodes = [node("ReduceSum", ["w"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, field(5, weight))


@attack
def nested_loops() -> bytes:
    """Loops in loops, 4,000 turns each."""
    body = node("Identity", ["m"], ["o"]) + node("Identity", ["k"], ["l"])
    for depth in range(3):
        ends = field(11, value("i", 7, ())) + field(11, value("k", 9, ())) + field(11, value("m", 1, (2,)))
        ends += field(12, value("l", 9, ())) + field(12, value("o", 1, (2,)))
        turns = field(1, "body") + field(6, body + ends) + field(20, 5)
        loop = node("Loop", ["n", "", "m" if depth < 2 else "x"], ["o" if depth < 2 else "y"], turns)
        body = loop + node("Identity", ["k"], ["l"])
    return graph(loop, held("n", np.array(4000, np.int64)))


@attack
def one_hot_of_a_trillion() -> bytes:
    """Depth 10^12."""
    nodes = [
        node("OneHot", ["i", "d", "v"], ["h"]),
        node("ReduceSum", ["h"], ["r"], attribute("keepdims", 0)),
    ]
    stored = [ints("i", 1), held("d", np.array(10**12)), held("v", np.array([0, 1], np.float32))]
    return graph(*nodes, node("Add", ["x", "r"], ["y"]), *stored)


@attack
def one_hot_of_an_input() -> bytes:
    """Depth 10^12, of an input's values."""
    nodes = [node("Cast", ["x"], ["i"], attribute("to", 7)), node("OneHot", ["i", "d", "v"], ["h"])]
    nodes += [node("ReduceSum", ["h"], ["y"])]
    return graph(*nodes, held("d", np.array(10**12)), held("v", np.array([0, 1], np.float32)))


@attack
def sparse_zeros() -> bytes:
    """A sparse tensor of 2^28 elements, of which none is stored."""
    part = field(1, tensor(np.zeros(0, np.float32), "w")) + field(2, tensor(np.zeros(0, np.int64)))
    nodes = [node("ReduceSum", ["w"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, field(15, part + field(3, 1 << 28)))


@attack
def far_padding() -> bytes:
    """Padding that is a billion wide."""
    nodes = [node("Pad", ["z", "p"], ["w"]), node("ReduceSum", ["w"], ["r"], attribute("keepdims", 0))]
    return graph(
        *nodes, node("Add", ["x", "r"], ["y"]), held("z", np.zeros(2, np.float32)), ints("p", 0, 1 << 30)
    )


@attack
def tiled() -> bytes:
    """Two numbers, a billion times."""
    nodes = [node("Tile", ["z", "p"], ["w"]), node("ReduceSum", ["w"], ["r"], attribute("keepdims", 0))]
    return graph(
        *nodes, node("Add", ["x", "r"], ["y"]), held("z", np.zeros(2, np.float32)), ints("p", 1 << 29)
    )


@attack
def shape_by_data() -> bytes:
    """Positions of what is not zero in 400 MB that an input of two numbers is repeated to."""
    nodes = [node("Expand", ["x", "s"], ["w"]), node("NonZero", ["w"], ["n"]), node("Shape", ["n"], ["k"])]
    nodes += [node("Cast", ["k"], ["y"], attribute("to", 1))]
    return graph(*nodes, ints("s", 50_000_000, 2))


@attack
def deep_convolution() -> bytes:
    """A convolution of constants that takes 10^13 operations."""
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("ConstantOfShape", ["t"], ["k"])]
    nodes += [node("Conv", ["c", "k"], ["f"]), node("ReduceSum", ["f"], ["r"], attribute("keepdims", 0))]
    return graph(
        *nodes, node("Add", ["x", "r"], ["y"]), ints("s", 1, 64, 256, 256), ints("t", 64, 64, 63, 63)
    )


@attack
def eye() -> bytes:
    """A unit matrix of 30,000 rows."""
    nodes = [node("ConstantOfShape", ["s"], ["c"]), node("EyeLike", ["c"], ["f"])]
    nodes += [node("ReduceSum", ["f"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, ints("s", 30_000, 30_000))


@attack
def doubling() -> bytes:
    """A value joined with itself forty times."""
    nodes = [node("Concat", [f"z{i}", f"z{i}"], [f"z{i + 1}"], attribute("axis", 0)) for i in range(40)]
    nodes += [node("ReduceSum", ["z40"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    return graph(*nodes, held("z0", np.zeros(2, np.float32)))


IMAGE = (1, 1, 4, 4)


@attack
def functions_of_functions() -> bytes:
    """Nine functions, each of which calls the next ten times."""
    functions = b""
    for i in range(9):
        domain, op = ("f", f"F{i + 1}") if i < 8 else ("", "Relu")
        names = ["a", *(f"t{j}" for j in range(9)), "b"]
        called = (node(op, [names[j]], [names[j + 1]], domain=domain) for j in range(10))
        # In a function nodes are field 7, in a graph field 1.
        body = b"".join(bytes([7 << 3 | 2]) + n[1:] for n in called)
        parts = field(1, f"F{i}") + field(4, "a") + field(5, "b") + body + field(10, "f")
        functions += field(25, parts + field(9, field(2, 17)) + field(9, field(1, "f") + field(2, 1)))
    inside = node("F0", ["x"], ["y"], domain="f") + field(11, value("x")) + field(12, value("y"))
    return model(inside, functions=functions + field(8, field(1, "f") + field(2, 1)))


@attack
def window_of_ten_billion() -> bytes:
    """A pooling window whose rows and columns are added up one after another."""
    window = attribute("kernel_shape", [100_000, 100_000]), attribute("pads", [100_000] * 4)
    return graph(node("LpPool", ["x"], ["y"], *window), shape=IMAGE)


@attack
def average_of_millions() -> bytes:
    """Two windows of four million elements, all of padding but four."""
    window = attribute("kernel_shape", [1 << 22, 1]), attribute("strides", [2, 1])
    z = held("z", np.ones((1, 1, 4, 1), np.float32))
    nodes = [node("AveragePool", ["z"], ["p"], *window, attribute("auto_pad", "SAME_UPPER"))]
    return graph(*nodes, node("Add", ["x", "p"], ["y"]), z)


@attack
def million_parts() -> bytes:
    """One constant split into a million parts, of which two have names."""
    nodes = [node("ConstantOfShape", ["s"], ["n"], attribute("value", np.ones(1, np.int64)))]
    nodes += [node("Split", ["z", "n"], ["a", "b"]), node("Add", ["x", "a"], ["y"])]
    return graph(*nodes, held("z", np.ones(1, np.float32)), ints("s", 1 << 20))


@attack
def neighbouring_channels() -> bytes:
    """A sum over two thousand million channels around each one."""
    image = node("Unsqueeze", ["x", "a"], ["i"])
    lrn = node("LRN", ["i"], ["l"], attribute("size", 1 << 31))
    return graph(image, lrn, node("Squeeze", ["l", "a"], ["y"]), ints("a", 0, 2, 3))


@attack
def sequence_of_a_million() -> bytes:
    """Every element of a constant by itself."""
    nodes = [
        node("ConstantOfShape", ["s"], ["c"]),
        node("SplitToSequence", ["c"], ["q"], attribute("keepdims", 0)),
    ]
    nodes += [node("SequenceAt", ["q", "i"], ["a"]), node("Add", ["x", "a"], ["y"])]
    return graph(*nodes, ints("s", 1 << 20), held("i", np.array(0, np.int64)))


@attack
def four_million_steps() -> bytes:
    """A recurrent layer over zeros."""
    weights = [held(n, np.ones((1, 1, 1), np.float32)) for n in "wr"]
    nodes = [node("ConstantOfShape", ["s"], ["c"])]
    nodes += [node("RNN", ["c", "w", "r"], ["h"], attribute("hidden_size", 1))]
    nodes += [node("ReduceSum", ["h"], ["t"], attribute("keepdims", 0)), node("Add", ["x", "t"], ["y"])]
    return graph(*nodes, ints("s", 1 << 22, 1, 1), *weights)


@attack
def wide_kernel() -> bytes:
    """Four million rows become one, each of which has a share in it."""
    cubic = attribute("mode", "cubic"), attribute("antialias", 1)
    nodes = [node("Resize", ["x", "", "", "s"], ["y"], *cubic)]
    data = graph(*nodes, ints("s", 1, 1, 1, 1), shape=(1, 1, 1 << 22, 1))
    return data.replace(b"\x10\x11", b"\x10\x12", 1)


@attack
def empty_and_large() -> bytes:
    """No elements, along an axis that no int32 holds."""
    square = node("Mul", ["z", "z"], ["q"]), node("ReduceSum", ["q", "a"], ["r"])
    weight = field(1, 2) + field(1, 0) + field(1, 1 << 40) + field(2, 1) + field(8, "z")
    total = node("ReduceSum", ["r"], ["t"], attribute("keepdims", 0))
    return graph(*square, total, node("Add", ["x", "t"], ["y"]), field(5, weight), ints("a", 1))


@attack
def region_of_a_billion_points() -> bytes:
    """As many points in a bin as it has cells."""
    rois = held("r", np.array([[0, 0, 1e9, 1e9]], np.float32))
    return graph(node("RoiAlign", ["x", "r", "b"], ["y"]), rois, ints("b", 0), shape=IMAGE)


@attack
def million_rows() -> bytes:
    """Cubic shares of two rows in two million new ones."""
    scales = held("s", np.array([1, 1, 1e6, 1], np.float32))
    cubic = node("Resize", ["x", "", "s"], ["y"], attribute("mode", "cubic"))
    return graph(cubic, scales, shape=(1, 1, 2, 1))


@attack
def many_boxes() -> bytes:
    """2,000 boxes that do not overlap in each of 500 classes."""
    nodes = [node("ConstantOfShape", [n], [n + "0"]) for n in ("b", "c")]
    nodes += [
        node("NonMaxSuppression", ["b0", "c0", "m"], ["n"]),
        node("Cast", ["n"], ["d"], attribute("to", 1)),
    ]
    nodes += [node("ReduceSum", ["d"], ["r"], attribute("keepdims", 0)), node("Add", ["x", "r"], ["y"])]
    stored = [ints("b", 1, 2000, 4), ints("c", 1, 500, 2000), ints("m", 2000)]
    return graph(*nodes, *stored)


@attack
def billion_points() -> bytes:
    """As many points in every bin as an attribute says."""
    aligned = node("RoiAlign", ["x", "r", "b"], ["y"], attribute("sampling_ratio", 10**9))
    return graph(aligned, held("r", np.ones((1, 4), np.float32)), ints("b", 0), shape=IMAGE)


@attack
def many_regions() -> bytes:
    """20,000 regions, each with points by its size."""
    rois = held("r", np.ones((20_000, 4), np.float32))
    return graph(node("RoiAlign", ["x", "r", "b"], ["y"]), rois, ints("b", *[0] * 20_000), shape=IMAGE)


@attack
def block_of_a_million() -> bytes:
    """Blocks of 1000 x 1000, put back by as many filters."""
    sizes = ints("s", 1000, 1000), ints("k", 1000, 1000)
    data = graph(node("Col2Im", ["x", "s", "k"], ["y"]), *sizes, shape=(1, 1_000_000, 1))
    return data.replace(b"\x10\x11", b"\x10\x12", 1)


@attack
def shape_of_shapes() -> bytes:
    """A shape joined with itself forty times."""
    nodes = [node("Concat", [f"s{i}", f"s{i}"], [f"s{i + 1}"], attribute("axis", 0)) for i in range(40)]
    return graph(node("Shape", ["x"], ["s0"]), *nodes, node("Cast", ["s40"], ["y"], attribute("to", 1)))


@attack
def text_of_a_billion_letters() -> bytes:
    """A text joined with itself forty times."""
    texts = field(1, 1) + field(2, 8) + field(6, "ab" * 10) + field(8, "t0")
    nodes = [node("StringConcat", [f"t{i}", f"t{i}"], [f"t{i + 1}"]) for i in range(40)]
    nodes += [node("Equal", ["t40", "t0"], ["q"]), node("Cast", ["q"], ["y"], attribute("to", 1))]
    return model(*nodes, field(5, texts), field(11, value("x")), field(12, value("y")), opset=20)
