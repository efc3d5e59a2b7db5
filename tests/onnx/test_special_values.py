"""NaN, infinities and zeros through every function of one tensor and every reduction, as numpy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")

Array = np.ndarray[Any, Any]
F = np.float32
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 2.5, -2.5, 100, -100, 1e-30, 0.3, -0.3, 3, -3], F
)
LONG = np.concatenate([np.linspace(-80, 80, 93), [np.inf, -np.inf, np.nan]]).astype(F)
"""More than the blocks of 64 in which MegEngine's kernels treat NaN otherwise than in the rest."""

UNARY: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Floor": np.floor,
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Identity": lambda x: x,
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softsign": lambda x: np.where(np.isinf(x), np.nan, x / (1 + np.abs(x))),
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    "IsNaN": np.isnan,
    "IsInf": np.isinf,
}
REDUCED: dict[str, Callable[[Array], Any]] = {
    "ReduceL1": lambda x: np.abs(x).sum(),
    "ReduceL2": lambda x: np.sqrt((x * x).sum()),
    "ReduceLogSum": lambda x: np.log(x.sum()),
    "ReduceMax": np.max,
    "ReduceMean": np.mean,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x: (x * x).sum(),
}
PARTS = {
    "NaN": [1, np.nan, 2, 3],
    "NaN at the end": [1, 2, 3, np.nan],
    "infinity": [1, np.inf, 2, 3],
    "both infinities": [np.inf, 1, -np.inf, 2],
    "nothing but minus infinity": [-np.inf] * 4,
    "zeros": [0.0, -0.0, 0.0, 0.0],
}


def runner(operator: str, gives: int, kind: int = 1, *stored: Any) -> loadrun.Runner:
    make, tensors = onnx.helper, onnx.TensorProto
    info = make.make_tensor_value_info("x", kind, [None])
    names = [f"c{i}" for i in range(len(stored))]
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in zip(names, stored, strict=True)]
    nodes = [make.make_node(operator, ["x", *names], ["y"])]
    graph = make.make_graph(nodes, "g", [info], [make.make_tensor_value_info("y", gives, None)], constants)
    assert tensors.FLOAT == 1
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)
    return loadrun.Runner(loadrun.load(model.SerializeToString()))


@pytest.mark.parametrize("operator", UNARY)
def test_functions_of_one_tensor(operator: str) -> None:
    run = runner(operator, 9 if operator.startswith("Is") else 1)
    for x in (SPECIAL, LONG):
        with np.errstate(all="ignore"):
            want = np.asarray(UNARY[operator](x.astype(np.float64))).astype(F)
        np.testing.assert_allclose(run.run({"x": x})["y"], want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("operator", REDUCED)
def test_reductions(operator: str) -> None:
    run = runner(operator, 1)
    for name, values in PARTS.items():
        with np.errstate(all="ignore"):
            want = REDUCED[operator](np.array(values, np.float64))
        got = run.run({"x": np.array(values, F)})["y"]
        np.testing.assert_allclose(got, [want], rtol=1e-5, err_msg=name)


def test_whole_numbers_to_powers_with_fractions() -> None:
    """The result is cut off, as a conversion to integers does; 8 to the power 1/3 is 2 all the same."""
    cases = (
        ([4, 9, 2, 0, 16], [0.5], [2, 3, 1, 0, 4]),
        ([2, 3, 5, 10], [1.5], [2, 5, 11, 31]),
        ([8, 27, 64], [1 / 3], [2, 3, 4]),
        ([2, 3, 7], [2.0], [4, 9, 49]),
        ([2, 3, 7], [-1.0], [0, 0, 0]),
    )
    for base, exponent, want in cases:
        run = runner("Pow", 6, 6, np.array(exponent, F))
        np.testing.assert_array_equal(run.run({"x": np.array(base, np.int32)})["y"], want)


def averages(op: str, x: Any, scale: float, to: float, zeros: tuple[int, int], **attributes: Any) -> Any:
    names, small = ["x", "a", "p", "b", "q"], x.dtype.type
    values = [x, F(scale), small(zeros[0]), F(to), small(zeros[1])]
    make = onnx.helper
    infos = [
        make.make_tensor_value_info(n, make.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, values, strict=True)
    ]
    node = make.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    out = make.make_tensor_value_info("y", infos[0].type.tensor_type.elem_type, None)
    graph = make.make_graph([node], "g", infos, [out])
    opsets = [make.make_opsetid("", 17), make.make_opsetid("com.microsoft", 1)]
    bundle = loadrun.load(make.make_model(graph, opset_imports=opsets).SerializeToString())
    (result,) = loadrun.run(bundle, dict(zip(names, values, strict=True)))
    return result["y"]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.05, 0.03), (0.02, 0.04)])
def test_ties_of_quantized_averages(kind: type, scales: tuple[float, float]) -> None:
    """ONNX Runtime's float32: windows are summed row by row, sums of whole planes are multiplied by a / (b * n)."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(3).integers(low, high, (4, 8, 6, 5), endpoint=True).astype(kind)
    zeros = (low + 117, low + 77)
    a, b = F(scales[0]), F(scales[1])
    real = a * (x.astype(np.int32) - zeros[0]).astype(F)
    total = np.zeros((4, 8, 4, 4), F)
    for i in range(3):
        for j in range(2):
            total += real[:, :, i : i + 4, j : j + 4]
    want = np.clip(np.rint(total / F(6) / b + F(zeros[1])), low, high)
    got = averages("QLinearAveragePool", x, *scales, zeros, kernel_shape=[3, 2])
    np.testing.assert_array_equal(got, want)
    whole = (x.astype(np.int32) - zeros[0]).sum((2, 3), keepdims=True).astype(F)
    want = np.clip(np.rint(whole * (a / (b * F(30)))) + zeros[1], low, high)
    np.testing.assert_array_equal(averages("QLinearGlobalAveragePool", x, *scales, zeros), want)


def test_forms_of_operators_that_only_onnx_runtime_or_nobody_has() -> None:
    """Mean and variance as before opset 9, by their definition; CELU without a slope, by ONNX's formula."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(F)

    def run(op: str, x: Array, opset: int, **attributes: Any) -> Array:
        y, value = onnx.helper.make_tensor_value_info, onnx.helper.make_node(op, ["x"], ["y"], **attributes)
        graph = onnx.helper.make_graph([value], "g", [y("x", 1, x.shape)], [y("y", 1, None)])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
        (result,) = loadrun.run(loadrun.load(model.SerializeToString()), {"x": x})
        return np.asarray(result["y"])

    for across, divides in ((0, 0), (0, 1), (1, 0), (1, 1)):
        axes = (0, 1, 2, 3) if across else (0, 2, 3)
        want = x - x.mean(axes, keepdims=True)
        want = want / x.std(axes, keepdims=True) if divides else want
        got = run("MeanVarianceNormalization", x, 1, across_channels=across, normalize_variance=divides)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    celu = run("Celu", F([-2, -0.5, 0, 3]), 12, alpha=0.0)
    np.testing.assert_array_equal(celu, [0, 0, np.nan, np.nan])
