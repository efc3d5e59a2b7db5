"""Torch modules become the nodes that torch's own exporter writes, or fewer."""

import io
import warnings
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from torch import nn  # noqa: E402

from loadrun.onnx import export  # noqa: E402

ort.set_default_logger_severity(4)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.p = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.q(x).reshape(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-1, -2)) * 0.5
        a = a.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -1e9).softmax(-1) @ v
        return self.p(a.transpose(1, 2).reshape(b, t, d))


class Means(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) + x.amax((2, 3)) + x[:, :, 0, 1]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.net(x)[0]


def block(*layers):
    net = nn.Sequential(*layers)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    return net.eval()


torch.manual_seed(0)
CASES = {
    "cnn": (
        block(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU6(), nn.Conv2d(4, 2, 1), nn.ReLU()),
        (1, 3, 6, 6),
        {"Conv": 2, "Clip": 1, "Relu": 1},
    ),
    "depthwise": (
        block(nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.BatchNorm2d(4), nn.Hardtanh(-2, 2)),
        (2, 4, 6, 6),
        {"Conv": 1, "Clip": 1},
    ),
    "upsampling": (nn.ConvTranspose2d(3, 2, 2, 2), (1, 3, 4, 4), {"ConvTranspose": 1}),
    "head": (
        block(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5)),
        (2, 3, 4, 4),
        {"ReduceMean": 1, "Reshape": 1, "Gemm": 1},
    ),
    "perceptron": (
        block(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 2)),
        (2, 3, 4),
        {"MatMul": 2, "Add": 3, "Div": 1, "Erf": 1, "Mul": 2},
    ),
    "attention": (
        Attention().eval(),
        (2, 5, 8),
        {
            "MatMul": 4,
            "Add": 2,
            "Mul": 1,
            "Where": 1,
            "Softmax": 1,
            "Reshape": 2,
            "Transpose": 3,
            "Gather": 3,
        },
    ),
    "means": (Means(), (2, 3, 4, 5), {"ReduceMean": 1, "ReduceMax": 1, "Gather": 2, "Add": 2}),
    "recurrent": (Recurrent().eval(), (2, 3, 4), {"Transpose": 2, "LSTM": 1, "Squeeze": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_nodes(name):
    net, shape, expected = CASES[name]
    x = torch.randn(shape)
    data = export(net, (x,), opset_version=17, verify=True).data
    assert dict(Counter(n.op_type for n in onnx.load_from_string(data).graph.node)) == expected
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(y, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    torchs = io.BytesIO()
    with warnings.catch_warnings():
        # The exporter is an older one.
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), torchs, opset_version=17, dynamo=False)
    kinds = [n.op_type for n in onnx.load_from_string(torchs.getvalue()).graph.node]
    assert sum(expected.values()) <= 1.05 * sum(k not in ("Constant", "Identity") for k in kinds)


def test_gelu_is_one_node_from_opset_20_on():
    data = export(nn.GELU(), (torch.randn(2, 3),), opset_version=20).data
    assert [n.op_type for n in onnx.load_from_string(data).graph.node] == ["Gelu"]


@pytest.mark.parametrize("name", ["attention", "perceptron", "cnn"])
def test_open_batch(name):
    net, shape, _ = CASES[name]
    x = torch.randn(shape)
    made = export(net, (x,), opset_version=17, input_names=["x"], dynamic_axes={"x": {0: "n"}}, verify=True)
    session = ort.InferenceSession(made.data, providers=["CPUExecutionProvider"])
    for n in (1, 3, 4):
        x = torch.randn(n, *shape[1:])
        (y,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(y, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
