"""``Tensor.format``: what MegEngine 1.13 says of every result of a tensor in nhwc, recorded from its answers."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import Tensor
from loadrun.engines.reference import ReferenceEngine
from loadrun.tracing import trace

DATA = np.arange(2 * 4 * 6 * 8, dtype=np.float32).reshape(2, 4, 6, 8) % 13
OTHER = np.arange(384, dtype=np.float32).reshape(2, 4, 6, 8) % 7
WEIGHT = np.arange(3 * 4 * 3 * 3, dtype=np.float32).reshape(3, 4, 3, 3) % 5
GROUPED = np.ones((2, 2, 2, 3, 3), np.float32)
BIAS = np.ones((1, 3, 1, 1), np.float32)
UNIT = np.ones((1, 4, 1, 1), np.float32)
PLACES = np.float32([[[1, 0, 0], [0, 1, 0]]] * 2)
KEEP = """
x + x, x + y, y + x, x * 2, -x, F.relu(x), F.exp(x), F.sigmoid(x), F.clip(x, 0, 1), F.maximum(x, y), x ** 2, x // 2
x % 2, abs(x), F.square(x), F.sqrt(x), F.pow(x, y), F.floor(x), F.gelu(x), F.hswish(x), F.leaky_relu(x), F.softplus(x)
F.logsigmoid(x), F.minimum(x, 1), F.round(x), F.silu(x), F.hsigmoid(x), F.relu6(x), F.atan2(x, x), F.floor_div(x, x + 1)
x + T(UNIT), x + np.float32(3), x - x.mean(), F.dropout(x, 0.5, False), F.nn.dropout(x, 0.0, True)
F.normalize(x, axis=1)
F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2), F.adaptive_max_pool2d(x, 2)
F.concat([x, x]), F.concat([x, y], axis=1), F.concat([y, x], axis=2), x.astype("float16"), x.astype("int32")
F.vision.interpolate(x, scale_factor=2), F.vision.interpolate(x, scale_factor=2, mode="nearest")
F.vision.interpolate(x, (3, 3)), F.vision.warp_affine(x, T(PLACES), (3, 3))
F.conv2d(x, n(WEIGHT)), F.conv2d(x, n(WEIGHT), n(BIAS)), F.conv2d(x, n(WEIGHT), T(BIAS))
F.conv2d(y, T(WEIGHT), n(BIAS))
F.conv2d(x, n(GROUPED), groups=2), F.batch_norm(x, n(UNIT), n(UNIT), n(UNIT), n(UNIT))
F.broadcast_to(x, (2, 4, 6, 8)), F.broadcast_to(x[:, :1], (2, 4, 6, 8)), F.reshape(x, (2, 4, 8, 6)), x[:, 0:2], x[0:1]
x[:, :, 1:3, ::2], x[:, [0, 1]], x[[0, 1]], F.copy(x), x.detach(), T(x), x.to("cpu0")
F.zeros_like(x), F.ones_like(x), F.full_like(x, 3.0)
"""
DEFAULT = """
y, x > y, x == x, F.isnan(x), F.logical_and(x > 1, x > 1), F.concat([y, y], axis=1), F.stack([x, x]), F.sum(x), x.mean()
F.mean(x, axis=1, keepdims=True), F.max(x, axis=(2, 3)), x[0], x[..., 1], x[:, :, [0, 1], [1, 2]], x[0, 0, 0, 0]
x[x > 3]
F.flatten(x, 1), x.flatten(), x.reshape(2, -1), F.reshape(x, (2, 4, 48)), x.reshape(1, 2, 4, 6, 8), x.T
F.broadcast_to(x[:1], (3, 1, 4, 6, 8)), x.transpose(0, 2, 3, 1), F.transpose(x, (0, 1, 3, 2)), F.swapaxes(x, 1, 2)
F.split(x, 2, axis=1)[0], F.softmax(x, axis=1), F.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), F.expand_dims(x, 0)
F.squeeze(x[0:1], 0), F.matmul(x, y.transpose(0, 1, 3, 2)), F.conv_transpose2d(x, n(np.ones((4, 3, 2, 2), "f4")))
F.argmax(x, axis=1), F.tile(x, (1, 1, 1, 2)), F.repeat(x, 2, axis=0), F.roll(x, 1, 1), F.cumsum(x, axis=1)
F.nn.pixel_shuffle(x, 2), F.group_norm(x, 2, False), F.layer_norm(x, (8,), False), F.nn.instance_norm(x, False)
F.local_response_norm(x), F.vision.remap(x, T(np.zeros((2, 3, 3, 2), "f4"))), F.sliding_window(x, 3), x[..., None]
F.vision.warp_perspective(x, T(np.stack([np.eye(3, dtype="f4")] * 2)), (3, 3)), F.logsumexp(x, 1)
F.linear(x, T(np.ones((3, 8), "f4"))), F.topk(x.reshape(-1, 8), 2)[0], F.cond_take(x > 3, x)[0]
"""
SUMS = {
    "x + y": 3432.0,
    "F.max_pool2d(x, 2)": 948.0,
    "F.avg_pool2d(x, 2)": 570.75,
    "F.adaptive_max_pool2d(x, 2)": 378.0,
    "F.conv2d(x, n(WEIGHT))": 60102.0,
    "F.conv2d(x, n(WEIGHT), n(BIAS))": 60246.0,
    "F.conv2d(y, T(WEIGHT), n(BIAS))": 30854.0,
    "F.conv2d(x, n(GROUPED), groups=2)": 20586.0,
    "F.concat([x, y], axis=1)": 3432.0,
    "F.cumsum(x, axis=1)": 5697.0,
    'F.conv_transpose2d(x, n(np.ones((4, 3, 2, 2), "f4")))': 27396.0,
    "x[:, 0:2]": 1136.0,
}
"""What MegEngine gives, summed."""


def expressions(text: str) -> list[str]:
    found: list[str] = []
    depth = start = 0
    text = text.strip().replace("\n", ", ")
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()]


def n(array: np.ndarray) -> Tensor:
    return Tensor(array, format="nhwc")


def evaluated(source: str) -> Any:
    return eval(source, {**globals(), "T": Tensor, "n": n, "x": n(DATA), "y": Tensor(OTHER)})


@pytest.mark.parametrize("source", expressions(KEEP))
def test_kept(source: str) -> None:
    assert evaluated(source).format == "nhwc"


@pytest.mark.parametrize("source", expressions(DEFAULT))
def test_not_kept(source: str) -> None:
    assert evaluated(source).format == "default"


@pytest.mark.parametrize(("source", "total"), SUMS.items())
def test_values_are_megengines(source: str, total: float) -> None:
    assert float(evaluated(source).numpy().astype(np.float64).sum()) == total


@pytest.mark.parametrize("source", expressions(KEEP))
def test_values_and_shapes_are_those_of_the_default_format(source: str) -> None:
    if "dropout" in source or "warp_affine" in source:
        return
    want = eval(source, {**globals(), "T": Tensor, "n": Tensor, "x": Tensor(DATA), "y": Tensor(OTHER)})
    np.testing.assert_array_equal(evaluated(source).numpy(), want.numpy())


def test_a_picture_in_nhwc_is_warped_along_the_axes_that_it_shows() -> None:
    got = evaluated("F.vision.warp_affine(x, T(PLACES), (3, 3))")
    np.testing.assert_array_equal(got.numpy(), DATA[:, :, :3, :3])


@pytest.mark.parametrize("source", ["F.conv2d(x, T(WEIGHT))", "F.conv2d(y, n(WEIGHT))"])
def test_a_convolution_takes_one_format(source: str) -> None:
    with pytest.raises(RuntimeError, match=r"an image and a weight of one format.*attribute \.format"):
        evaluated(source)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (1, 2, 3, 4, 5, 6)])
def test_only_four_and_five_dimensions_can_be_nhwc(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match=f"4 and 5 dimensions.*found {len(shape)}"):
        Tensor(np.ones(shape, np.float32), format="nhwc")
    assert Tensor(np.ones(shape, np.float32), format="nchw").format == "nchw"


def test_formats_that_cannot_be() -> None:
    with pytest.raises(RuntimeError, match="'default', 'nchw', 'nhwc', found 'foo'"):
        Tensor(DATA, format="foo")
    for x, format in ((n(DATA), "default"), (Tensor(DATA), "nhwc")):
        with pytest.raises(RuntimeError, match=rf"keeps it, found format='{format}'"):
            Tensor(x, format=format)
    with pytest.raises(RuntimeError, match="one format, found 'nchw' and 'nhwc'"):
        n(DATA) + Tensor(DATA, format="nchw")
    mixed = Tensor(DATA, format="nchw") + Tensor(DATA)
    assert mixed.format == "nchw"


def test_assigning() -> None:
    x = n(DATA)
    x[:, 0:1] = Tensor([5.0])
    assert (x.format, x.numpy()[:, :2].sum()) == ("nhwc", 5 * 96 + DATA[:, 1].sum())
    x += 1
    assert x.format == "nhwc"
    x._reset(DATA)
    assert x.format == "default"
    x[...] = n(DATA)
    assert x.format == "nhwc"
    x.format = "default"
    assert (x.format, (x + 1).format) == ("default", "default")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_in_the_default_format(copied: Callable[[Any], Any]) -> None:
    assert copied(n(DATA)).format == "default"


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grouped = M.Conv2d(4, 8, 3, groups=2)
        self.conv = M.Conv2d(8, 3, 1)
        self.bn = M.BatchNorm2d(3)
        self.fc = M.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(F.relu(self.grouped(x))))
        self.seen = x.format
        return self.fc(F.flatten(F.avg_pool2d(x, 4), 1)[:, :3])


def test_a_module_in_nhwc() -> None:
    net = Net()
    net.eval()
    made = copy.deepcopy(net)
    for tensor in made.tensors():
        if tensor.ndim in (4, 5):
            tensor.format = "nhwc"
    np.testing.assert_array_equal(made(n(DATA)).numpy(), net(Tensor(DATA)).numpy())
    assert made.seen == "nhwc"
    for model, x in ((made, Tensor(DATA)), (net, n(DATA))):
        with pytest.raises(RuntimeError, match="one format"):
            model(x)


@pytest.mark.parametrize("options", [{"symbolic": False}, {"symbolic": True}, {"without_host": True}])
def test_traced_results_are_in_the_same_format(options: dict[str, Any]) -> None:
    weight = n(WEIGHT)
    traced = trace(lambda x: (F.conv2d(x, weight) + 1, F.sum(x)), capture_as_const=True, **options)
    for _ in range(3):
        picture, total = traced(n(DATA))
        assert (picture.format, total.format) == ("nhwc", "default")
        assert float(picture.numpy().sum()) == 60246.0


def test_dumps_hold_the_plain_layout() -> None:
    """MegEngine traces a net in nhwc but fails to dump it: ``assertion `cflt.icpg * cflt.group == ...'``."""
    weight = n(WEIGHT)
    traced = trace(lambda x: F.conv2d(x, weight), symbolic=True, capture_as_const=True)
    traced(n(DATA))
    file = io.BytesIO()
    traced.dump(file)
    graph = loadrun.loads(file.getvalue()).graph
    assert graph.inputs[0].owner.tensors[0].shape == DATA.shape
    (got,) = ReferenceEngine(graph).run({"arg_0": DATA})
    assert float(got.sum()) == 60102.0
