"""What a trace decides by sizes, in files: other sizes give what torch gives there, or are refused."""

import math

import numpy as np
import pytest

import loadrun.onnx
import loadrun.torch
from loadrun import EngineError, InputError
from loadrun.cli import main

torch = pytest.importorskip("torch", reason="torch is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
F = torch.nn.functional


def padded(x, rows):
    return F.pad(x, (0, rows)).cumsum(-1)


def same(x):
    """Pad as TensorFlow does, by a branch, and halve."""
    rows = 1 if x.shape[-1] % 2 == 0 else 2
    return F.avg_pool1d(padded(x, rows), 3, 2)


def halved(x):
    return F.max_pool1d(x, 3, 2, 1)


def by_remainder(x):
    return padded(x, 0) if x.shape[-1] // 2 % 2 == 0 else padded(x, 1)


def after_pooling(x):
    return by_remainder(halved(x))


def three_times(x):
    return same(same(same(x)))


def of_bits(x):
    return x + 1 if x.shape[-1] & 2 else x


def of_fractions(x):
    return padded(x, int(math.sqrt(x.shape[-1]) < 6.5) + int(x.shape[-1] / 4 == 8))


def in_parts(x):
    return torch.cat([part * i for i, part in enumerate(x.split(12, -1))], -1)


def minus(x):
    return padded(x, -x.shape[-1] % 2)


def of_extremes(x):
    rows = max((math.ceil(x.shape[-1] / 2) - 1) * 2 + 3 - x.shape[-1], 0)
    return padded(x, rows + min(x.shape[-1] % 4, x.shape[-1] // 2 % 3))[..., : min(x.shape[-1], 10)]


@pytest.mark.filterwarnings("ignore:the model holds where")
@pytest.mark.parametrize(
    ("function", "right"),
    [
        (by_remainder, 12),
        (after_pooling, 32),
        (three_times, 40),
        (of_bits, 32),
        (of_fractions, 32),
        (in_parts, 32),
        (minus, 49),
        (of_extremes, 6),
    ],
)
def test_files_keep_what_sizes_decided(function, right, tmp_path):
    x = torch.rand(2, 3, 32)
    traced = loadrun.torch.trace(function, (x,), dynamic_shapes=True)
    traced.dump(tmp_path / "m.mge", input_data=[(x,)])
    loadrun.onnx.export(traced, (), tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options)
    runner = loadrun.Runner(tmp_path / "m.mge")
    computed = set()
    for size in (2, 3, 4, 5, 6, 12, 18, 24, 31, 32, 33, 34, 36, 40, 48, 49, 64, 66):
        x = torch.rand(2, 3, size)
        fed = {"x": x.numpy()}
        for run, refusals in (
            (lambda fed: runner.run(fed)["output"], (EngineError, InputError)),
            (lambda fed: session.run(None, fed)[0], Exception),
        ):
            try:
                found = run(fed)
            except refusals:
                continue
            np.testing.assert_allclose(found, function(x).numpy(), 1e-5, 1e-5, err_msg=f"of size {size}")
            computed.add((size, refusals))
    assert {size for size, _ in computed} >= {32, right}
    assert len([1 for size, _ in computed if size == right]) == 2


class UpTo50(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] <= 50 else x * 3


def _refused(path, onnx_runtime=False):
    """The sizes of 2, 50 and 51 that a file refuses."""
    runner = loadrun.Runner(loadrun.load(path)) if not onnx_runtime else None
    session = onnxruntime.InferenceSession(path) if onnx_runtime else None
    refused = []
    for rows in (2, 50, 51):
        x = np.ones((rows, 4), "f4")
        try:
            (y,) = session.run(None, {"x": x}) if session else [o.value for o in runner.run({"x": x}).outputs]
        except (EngineError, onnxruntime.capi.onnxruntime_pybind11_state.Fail):
            refused.append(rows)
        else:
            np.testing.assert_array_equal(y, 2 * x)
    return refused


@pytest.mark.filterwarnings("ignore:the model holds where")
def test_a_condition_is_one_node_of_its_name(tmp_path):
    onnx = pytest.importorskip("onnx")
    first, packed, again = (str(tmp_path / n) for n in ("a.onnx", "a.mge", "b.onnx"))
    x = torch.ones(3, 4)
    loadrun.onnx.export(UpTo50(), (x,), first, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    assert main(["pack", first, "-d", "x:#ones(3,4)", "-o", packed, "--open-sizes", "--quiet"]) == 0
    assert main(["convert", packed, again, "--quiet"]) == 0
    for path in (first, again):
        nodes = [(n.op_type, n.name) for n in onnx.load(path).graph.node]
        assert nodes == [("If", "requires x.size()[0] <= 50"), ("Mul", "Mul_1")]
        assert _refused(path) == _refused(path, onnx_runtime=True) == [51]
    assert _refused(packed) == [51]
