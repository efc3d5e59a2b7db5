"""The nodes that are written of ONNX's own operators once they have been MegEngine's, and of numpy's.

Expected are the nodes of the model itself, or those that exporters write; values are ONNX Runtime's of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from loadrun.onnx import export  # noqa: E402
from loadrun.onnx.converting import ConvertOptions, convert_file  # noqa: E402
from tests.support.onnx_files import model, write  # noqa: E402

ort.set_default_logger_severity(4)
FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(5)
node = helper.make_node


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def onnx_model(nodes: Sequence[Any], shape: Sequence[int], stored: dict[str, Any], opset: int = 17) -> Any:
    """A model from `x` of a shape to `y`."""
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()]
    return model(nodes, [("x", FLOAT, shape)], [("y", FLOAT, None)], initializer=initializers, opset=opset)


def kinds(made: Any) -> list[str]:
    return sorted(n.op_type for n in made.graph.node)


def run(made: Any, x: Any) -> Any:
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return y


def trips(made: Any, folder: Path, opset: int = 17) -> list[Any]:
    """Write a model as .mge and as .onnx again, twice; returns both .onnx."""
    path = write(folder, made)
    results = []
    for k in range(2):
        convert_file(path, folder / f"{k}.mge")
        path = folder / f"{k}.onnx"
        convert_file(folder / f"{k}.mge", path, ConvertOptions(opset=opset))
        results.append(onnx.load(path))
    return results


def quantized(x: str, y: str, scale: float, zero: int) -> list[Any]:
    names = [f"{y}.scale", f"{y}.zero"]
    constants = [
        node("Constant", [], [names[0]], value=numpy_helper.from_array(np.float32(scale))),
        node("Constant", [], [names[1]], value=numpy_helper.from_array(np.int8(zero))),
    ]
    return [
        *constants,
        node("QuantizeLinear", [x, *names], [f"{y}.q"]),
        node("DequantizeLinear", [f"{y}.q", *names], [y]),
    ]


W, B, F = numbers(5, 3, 3, 3), numbers(5), numbers(12, 7)
CASES: dict[str, tuple[list[Any], list[int], dict[str, Any]]] = {
    "clip": (
        [node("Clip", ["x", "low", "high"], ["y"])],
        [2, 3],
        {"low": np.float32(-0.5), "high": np.float32(0.7)},
    ),
    "conv": ([node("Conv", ["x", "w", "b"], ["y"])], [1, 3, 6, 6], {"w": W, "b": B}),
    "conv_relu_residual": (
        [
            node("Conv", ["x", "w", "b"], ["c"]),
            node("Relu", ["c"], ["d"]),
            node("Add", ["c", "d"], ["e"]),
            node("Relu", ["e"], ["y"]),
        ],
        [1, 3, 6, 6],
        {"w": W, "b": B},
    ),
    "transposed": (
        [node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 2])],
        [1, 5, 4, 4],
        {"w": W, "b": numbers(3)},
    ),
    "gemm": ([node("Gemm", ["x", "w", "b"], ["y"], transB=1)], [4, 7], {"w": F, "b": numbers(12)}),
    "gemm_plain": ([node("Gemm", ["x", "w", "b"], ["y"])], [4, 12], {"w": F, "b": numbers(7)}),
    "linear": (
        [node("MatMul", ["x", "w"], ["c"]), node("Add", ["c", "b"], ["y"])],
        [2, 3, 12],
        {"w": F, "b": numbers(7)},
    ),
    "attention": (
        [
            node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
            node("MatMul", ["x", "t"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1),
            node("MatMul", ["p", "x"], ["y"]),
        ],
        [2, 3, 5, 4],
        {},
    ),
    "softmax": ([node("Softmax", ["x"], ["y"], axis=1)], [2, 4, 3], {}),
    "mean": ([node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)], [2, 3, 4, 5], {}),
    "mean_kept": ([node("ReduceMean", ["x"], ["y"], axes=[1, 3])], [2, 3, 4, 5], {}),
    "where": (
        [node("Where", ["mask", "x", "b"], ["y"])],
        [2, 3],
        {"mask": np.array([[True, False, True]]), "b": np.float32(-9)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes_come_back(name: str, tmp_path: Path) -> None:
    nodes, shape, stored = CASES[name]
    made, x = onnx_model(nodes, shape, stored), numbers(*shape)
    first, second = trips(made, tmp_path)
    assert kinds(first) == kinds(made)
    assert first.SerializeToString() == second.SerializeToString()
    np.testing.assert_allclose(run(first, x), run(made, x), rtol=1e-5, atol=1e-6)


def test_bias_behind_a_residual(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        node("Add", ["c", "r"], ["d"]),
        node("Add", ["b", "d"], ["y"]),
    ]
    made = onnx_model(nodes, [1, 3, 6, 6], {"w": numbers(3, 3, 3, 3), "b": numbers(1, 3, 1, 1)})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["Add", "Conv", "Relu"]
    assert [len(n.input) for n in first.graph.node if n.op_type == "Conv"] == [3]
    x = numbers(1, 3, 6, 6)
    np.testing.assert_allclose(run(first, x), run(made, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (1, 1, 1, 4), (1, 4, 4, 4), (1, 4, 1, 4)])
def test_what_differs_by_place_is_no_bias(shape: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "b"], ["y"])]
    made = onnx_model(nodes, [1, 3, 4, 4], {"w": numbers(4, 3, 1, 1), "b": numbers(*shape)})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["Add", "Conv"]
    x = numbers(1, 3, 4, 4)
    np.testing.assert_allclose(run(first, x), run(made, x), rtol=1e-5, atol=1e-6)


def test_bounds_in_the_wrong_order_stay_apart(tmp_path: Path) -> None:
    nodes = [node("Min", ["x", "low"], ["c"]), node("Max", ["c", "high"], ["y"])]
    made = onnx_model(nodes, [2, 3], {"low": np.float32(-1), "high": np.float32(1)})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["Max", "Min"]
    x = numbers(2, 3)
    assert np.array_equal(run(first, x), run(made, x))


def test_products_that_others_read_stay(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["c"]),
        node("Add", ["c", "b"], ["d"]),
        node("Mul", ["c", "d"], ["y"]),
    ]
    made = onnx_model(nodes, [4, 12], {"w": F, "b": numbers(7)})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["Add", "MatMul", "Mul"]


def test_a_maximum_along_another_axis_stays(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], axes=[1]),
        node("Sub", ["x", "m"], ["d"]),
        node("Softmax", ["d"], ["y"], axis=2),
    ]
    made = onnx_model(nodes, [2, 3, 4], {})
    first, _ = trips(made, tmp_path)
    assert Counter(kinds(first))["ReduceMax"] == 1
    x = numbers(2, 3, 4)
    np.testing.assert_allclose(run(first, x), run(made, x), rtol=1e-5, atol=1e-6)


def test_a_stack_that_is_repeated_is_read_once(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], axes=[0]),
        node("Transpose", ["m"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    made, x = onnx_model(nodes, [2, 3, 5, 7], {}), numbers(2, 3, 5, 7)
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["MatMul", "ReduceMax", "Transpose"]
    np.testing.assert_allclose(run(first, x), x @ x.max(0).swapaxes(1, 2), rtol=1e-5, atol=1e-6)


def test_different_reductions_stay_apart(tmp_path: Path) -> None:
    nodes = [node("ReduceMax", ["x"], ["m"], axes=[1]), node("ReduceSum", ["m", "axes"], ["y"])]
    made = onnx_model(nodes, [2, 3, 4], {"axes": np.array([2])})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["ReduceMax", "ReduceSum"]


def integer_net(whole: Any, scale: Any, bias: Any) -> Any:
    """A quantized convolution as ONNX Runtime's quantizer writes it."""
    stored = {"w.q": whole, "w.s": scale, "w.z": np.zeros(scale.shape, np.int8)}
    stored |= {"b.q": bias, "b.s": np.float32(0.02) * scale, "b.z": np.zeros(scale.shape, np.int32)}
    nodes = [
        *quantized("x", "a", 0.02, -3),
        node("DequantizeLinear", ["w.q", "w.s", "w.z"], ["w"], axis=0),
        node("DequantizeLinear", ["b.q", "b.s", "b.z"], ["b"], axis=0),
        node("Conv", ["a", "w", "b"], ["c"]),
        *quantized("c", "y", 0.05, 7),
    ]
    return onnx_model(nodes, [1, 3, 6, 6], stored)


def test_integer_weights_come_back(tmp_path: Path) -> None:
    whole = RNG.integers(-127, 128, (5, 3, 3, 3), dtype=np.int8)
    whole[:, 0, 0, 0] = 127
    whole[2] = 0
    scale = RNG.uniform(0.001, 0.02, 5).astype("f4")
    bias = RNG.integers(-999, 999, 5, dtype=np.int32)
    bias[2] = 0
    made = integer_net(whole, scale, bias)
    first, second = trips(made, tmp_path)
    assert kinds(first) == sorted(k for k in kinds(made) if k != "Constant")
    assert first.SerializeToString() == second.SerializeToString()
    stored = [numpy_helper.to_array(t) for t in first.graph.initializer]
    assert [v.tolist() for v in stored if v.dtype == np.int8 and v.ndim == 4] == [whole.tolist()]
    assert [v.tolist() for v in stored if v.dtype == np.int32 and v.any()] == [bias.tolist()]
    x = numbers(1, 3, 6, 6)
    assert np.array_equal(run(first, x), run(made, x))


def test_weights_that_are_no_integers_stay_floats(tmp_path: Path) -> None:
    nodes = [*quantized("x", "a", 0.02, -3), node("Conv", ["a", "w"], ["y"])]
    made = onnx_model(nodes, [1, 3, 6, 6], {"w": W})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == ["Conv", "DequantizeLinear", "QuantizeLinear"]
    assert W.tolist() in [numpy_helper.to_array(t).tolist() for t in first.graph.initializer]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantization_per_channel(dtype: Any, tmp_path: Path) -> None:
    scale = np.array([0.1, 0.25, 0.5], "f4")
    zero = np.array([0, 7, 30], dtype)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    made = onnx_model(nodes, [2, 3, 4], {"s": scale, "z": zero})
    first, _ = trips(made, tmp_path)
    assert kinds(first) == kinds(made)
    # Ties, and what is beyond the range.
    x = (np.arange(-12, 12).reshape(2, 3, 4) * 12.625 * scale[:, None]).astype("f4")
    assert np.array_equal(run(first, x), run(made, x))


def test_numpy_code() -> None:
    weight, bias = numbers(6, 4), numbers(4)

    def net(x: Any) -> Any:
        return np.maximum(np.minimum(np.mean(np.matmul(x, weight) + bias, axis=(0, 2)), 0.1), -0.1)

    x = numbers(2, 3, 6)
    made = onnx.load_from_string(export(net, x).data)
    assert kinds(made) == ["Add", "Clip", "MatMul", "ReduceMean"]
    np.testing.assert_allclose(run(made, x), net(x), rtol=1e-5, atol=1e-6)


def test_products_at_open_sizes() -> None:
    weight, bias = numbers(6, 4), numbers(4)

    def net(x: Any) -> Any:
        y = np.matmul(x, weight) + bias
        return np.matmul(y, np.swapaxes(y, -1, -2))

    x = numbers(2, 3, 6)
    data = export(net, x, input_names=["x"], dynamic_axes={"x": {0: "n", 1: "t"}}).data
    assert kinds(onnx.load_from_string(data)) == ["Add", "MatMul", "MatMul", "Transpose"]
    for shape in ((1, 1, 6), (3, 3, 6), (4, 7, 6)):
        x = numbers(*shape)
        np.testing.assert_allclose(run(onnx.load_from_string(data), x), net(x), rtol=1e-4, atol=1e-5)


def test_both_operands_repeated(tmp_path: Path) -> None:
    nodes = [
        node("Expand", ["x", "shape"], ["a"]),
        node("Expand", ["w", "shape2"], ["c"]),
        node("MatMul", ["a", "c"], ["y"]),
    ]
    stored = {"shape": np.array([4, 2, 3]), "shape2": np.array([4, 3, 2]), "w": numbers(1, 3, 2)}
    made, x = onnx_model(nodes, [1, 2, 3], stored), numbers(1, 2, 3)
    first, _ = trips(made, tmp_path)
    np.testing.assert_allclose(run(first, x), run(made, x), rtol=1e-5, atol=1e-6)
