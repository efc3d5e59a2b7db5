"""The same layer through ONNX, torch, numpy and MegEngine becomes the same operators, with torch's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine as mge
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph

onnx = pytest.importorskip("onnx", reason="needs the package onnx")
torch = pytest.importorskip("torch", reason="needs the package torch")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
F = torch.nn.functional
MF = mge.functional
Array = np.ndarray[Any, Any]

_GIVEN = frozenset(("Host2DeviceCopy", "ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder"))


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass
class Layer:
    """One layer in the words of every front end.

    Attributes:
        node: ONNX's operator and its attributes; its inputs are x and the weights.
        torch: of torch tensors.
        megengine: of MegEngine tensors, None where MegEngine's own function is another formula.
        numpy: of arrays, None where numpy has no such function.
        own: the operators that it must become, None where MegEngine has none.
        settings: inputs of ONNX's operator that are parameters elsewhere.
    """

    node: tuple[str, dict[str, Any]]
    torch: Callable[..., Any]
    shape: Sequence[int] = (2, 4, 6, 5)
    weights: Sequence[Any] = ()
    megengine: Callable[..., Any] | None = None
    numpy: Callable[..., Any] | None = None
    own: dict[str, int] | None = None
    opset: int = 22
    settings: Sequence[Any] = ()


C = _numbers(4, seed=1)
B = _numbers(4, seed=2)
V = np.abs(_numbers(4, seed=3)) + 1
K = _numbers(6, 4, 3, 3, seed=4)
L = _numbers(5, seed=5)


def _column(v: Any) -> Any:
    return v.reshape(1, -1, 1, 1)


LAYERS = {
    "layer norm": Layer(
        ("LayerNormalization", {}),
        lambda x, w, b: F.layer_norm(x, (5,), w, b),
        weights=(L, L[::-1].copy()),
        megengine=lambda x, w, b: MF.layer_norm(x, (5,), True, w, b),
        own={"LayerNorm": 1},
    ),
    "layer norm of two axes": Layer(
        ("LayerNormalization", {"axis": 2}),
        lambda x, w: F.layer_norm(x, (6, 5), w),
        weights=(_numbers(6, 5),),
        megengine=lambda x, w: MF.layer_norm(x, (6, 5), True, w, np.zeros((6, 5), "f")),
        own={"LayerNorm": 1},
    ),
    "instance norm": Layer(
        ("InstanceNormalization", {}),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        weights=(C, B),
        megengine=lambda x, w, b: MF.instance_norm(x, True, w, b),
        own={"InstanceNorm": 1},
    ),
    "instance norm of sequences": Layer(
        ("InstanceNormalization", {}),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        shape=(2, 4, 7),
        weights=(C, B),
        own={"InstanceNorm": 1, "AxisAddRemove": 2},
    ),
    "instance norm of volumes": Layer(
        ("InstanceNormalization", {}),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
        shape=(2, 4, 3, 2, 3),
        weights=(C, B),
    ),
    "group norm": Layer(
        ("GroupNormalization", {"num_groups": 2}),
        lambda x, w, b: F.group_norm(x, 2, w, b),
        weights=(C, B),
        megengine=lambda x, w, b: MF.group_norm(x, 2, True, w, b),
        own={"GroupNorm": 1},
    ),
    "batch norm": Layer(
        ("BatchNormalization", {}),
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b),
        weights=(C, B, B, V),
        megengine=lambda x, w, b, m, v: MF.batch_norm(x, *map(_column, (m, v, w, b))),
        own={"BatchNormV1": 1},
    ),
    "batch norm of volumes": Layer(
        ("BatchNormalization", {}),
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b),
        shape=(2, 4, 3, 2, 3),
        weights=(C, B, B, V),
        own={"Elemwise": 2},
    ),
    "rms norm": Layer(
        ("RMSNormalization", {"epsilon": 1e-5}),
        lambda x, w: F.rms_norm(x, (5,), w, 1e-5),
        weights=(L,),
        opset=23,
    ),
    "softmax": Layer(
        ("Softmax", {"axis": 1}),
        lambda x: torch.softmax(x, 1),
        megengine=lambda x: MF.softmax(x, 1),
        own={"Softmax": 1},
    ),
    "log softmax": Layer(("LogSoftmax", {"axis": 1}), lambda x: torch.log_softmax(x, 1)),
    "gelu": Layer(("Gelu", {}), F.gelu, megengine=MF.gelu, own={"Elemwise": 1}),
    "gelu by tanh": Layer(("Gelu", {"approximate": "tanh"}), lambda x: F.gelu(x, approximate="tanh")),
    "elu": Layer(("Elu", {"alpha": 0.5}), lambda x: F.elu(x, 0.5)),
    "celu": Layer(("Celu", {"alpha": 0.5}), lambda x: F.celu(x, 0.5)),
    "selu": Layer(("Selu", {}), F.selu),
    "mish": Layer(("Mish", {}), F.mish),
    "leaky relu": Layer(
        ("LeakyRelu", {"alpha": 0.25}),
        lambda x: F.leaky_relu(x, 0.25),
        megengine=lambda x: MF.leaky_relu(x, 0.25),
        own={"Elemwise": 1},
    ),
    "softplus": Layer(("Softplus", {}), F.softplus, megengine=MF.softplus, own={"Elemwise": 1}),
    "hard sigmoid": Layer(
        ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        F.hardsigmoid,
        megengine=MF.hsigmoid,
        own={"Elemwise": 1},
    ),
    "convolution": Layer(
        ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        lambda x, w, b: F.conv2d(x, w, b, (2, 1), 1),
        weights=(K, _numbers(6, seed=6)),
        megengine=lambda x, w, b: MF.conv2d(x, w, _column(b), (2, 1), 1),
        own={"ConvolutionV2": 1, "Elemwise": 1},
    ),
    "convolution padded behind": Layer(
        ("Conv", {"auto_pad": "SAME_UPPER", "dilations": [1, 1]}),
        lambda x, w: F.conv2d(F.pad(x, (0, 1, 0, 1)), w),
        weights=(_numbers(6, 4, 2, 2),),
        own={"Padding": 1, "ConvolutionV2": 1},
    ),
    "grouped convolution of sequences": Layer(
        ("Conv", {"group": 2}),
        lambda x, w: F.conv1d(x, w, groups=2),
        shape=(2, 4, 7),
        weights=(_numbers(6, 2, 3),),
        own={"ConvolutionV2": 1, "AxisAddRemove": 2},
    ),
    "transposed convolution": Layer(
        ("ConvTranspose", {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]}),
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1),
        weights=(_numbers(4, 3, 3, 3),),
        megengine=lambda x, w: MF.conv_transpose2d(x, w, None, 2, 1, 1),
    ),
    "max pooling": Layer(
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
        lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
        megengine=lambda x: MF.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
        own={"PoolingV1": 1},
    ),
    "max pooling of sequences": Layer(
        ("MaxPool", {"kernel_shape": [3]}),
        lambda x: F.max_pool1d(x, 3, 1),
        shape=(2, 4, 7),
        own={"PoolingV1": 1, "AxisAddRemove": 2},
    ),
    "max pooling of volumes": Layer(
        ("MaxPool", {"kernel_shape": [2, 2, 1], "strides": [2, 1, 1]}),
        lambda x: F.max_pool3d(x, (2, 2, 1), (2, 1, 1)),
        shape=(2, 4, 4, 3, 3),
    ),
    "average pooling": Layer(
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
        lambda x: F.avg_pool2d(x, 2, 1, 1, count_include_pad=False),
        megengine=lambda x: MF.avg_pool2d(x, 2, 1, 1),
        own={"PoolingV1": 1},
    ),
    "average pooling to the end": Layer(
        ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    ),
    "borders": Layer(
        ("Pad", {"mode": "edge"}),
        lambda x: F.pad(x, (1, 2, 0, 3), mode="replicate"),
        settings=(np.int64([0, 0, 0, 1, 0, 0, 3, 2]),),
        megengine=lambda x: MF.nn.pad(x, ((0, 0), (0, 0), (0, 3), (1, 2)), "edge"),
        numpy=lambda x: np.pad(x, ((0, 0), (0, 0), (0, 3), (1, 2)), "edge"),
        own={"Padding": 1},
    ),
    "attention": Layer(
        ("Attention", {"scale": 0.5, "is_causal": 1}),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5, is_causal=True),
        shape=(2, 2, 3, 4),
        weights=(_numbers(2, 2, 3, 4, seed=7), _numbers(2, 2, 3, 4, seed=8)),
        opset=23,
    ),
}


_OF_ONE_BATCH = {"attention"}
_GUARDED = {"attention"}
"""ONNX's layers that give zeros where all is masked, torch's NaN."""


def _by_onnx(layer: Layer, x: Array) -> loadrun.Bundle:
    given = (*layer.weights, *layer.settings)
    names = [f"w{i}" for i in range(len(given))]
    op, attributes = layer.node
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attributes)],
        "layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in zip(names, given, strict=True)],
    )
    opsets = [helper.make_opsetid("", layer.opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return loadrun.load(model.SerializeToString(), input_shapes={"x": x.shape})


def _by_torch(layer: Layer, x: Array, dynamic: Any = None) -> Graph:
    weights = [torch.from_numpy(w) for w in layer.weights]
    args = (torch.from_numpy(x),)
    return loadrun.torch.trace(lambda x: layer.torch(x, *weights), args, dynamic_shapes=dynamic).graph()


def _traced(function: Callable[..., Any], x: Array, weights: Sequence[Any] = ()) -> Graph:
    traced = loadrun.trace(lambda x: function(x, *weights), capture_as_const=True)
    traced(x)
    return traced.graph()


def _run(graph: Graph, x: Array) -> tuple[dict[str, int], Array]:
    """Which operators a run at these sizes executes, by type, and the result."""
    engine = ReferenceEngine(graph)
    executed: Counter[str] = Counter()
    (name,) = engine.inputs
    (value,) = engine.run({name: x}, lambda opr, _: executed.update([opr.type]))
    return dict(executed), value


def _graphs(layer: Layer, x: Array) -> dict[str, Graph]:
    graphs = {"onnx": _by_onnx(layer, x).lasting([{"x": x}]).graph, "torch": _by_torch(layer, x)}
    if layer.megengine is not None:
        weights = [mge.Tensor(w) for w in layer.weights]
        graphs["megengine"] = _traced(layer.megengine, mge.Tensor(x), weights)
    if layer.numpy is not None:
        graphs["numpy"] = _traced(layer.numpy, x)
    return graphs


@pytest.mark.parametrize("name", LAYERS)
def test_same_operators_and_values(name: str) -> None:
    layer = LAYERS[name]
    x = _numbers(*layer.shape, seed=9)
    want = layer.torch(torch.from_numpy(x), *map(torch.from_numpy, layer.weights)).numpy()
    found = {}
    for front, graph in _graphs(layer, x).items():
        found[front], got = _run(graph, x)
        np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=front)
    if name in _GUARDED:
        del found["onnx"]
    first = next(iter(found.values())) if layer.own is None else layer.own
    assert found == dict.fromkeys(found, first)


@pytest.mark.parametrize("name", LAYERS)
def test_other_sizes(name: str) -> None:
    """What was loaded and traced for one batch runs with another, with the values of torch."""
    layer = LAYERS[name]
    if name in _OF_ONE_BATCH:
        pytest.skip("its weights have the size of the batch")
    x, more = (_numbers(n, *layer.shape[1:], seed=n) for n in (2, 5))
    want = layer.torch(torch.from_numpy(more), *map(torch.from_numpy, layer.weights)).numpy()
    open_batch = ({0: torch.export.Dim("n")},)
    for graph in (_by_onnx(layer, x).graph, _by_torch(layer, x, open_batch)):
        _, got = _run(graph, more)
        np.testing.assert_allclose(got, want, 1e-5, 1e-5)
