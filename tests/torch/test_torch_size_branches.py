"""What a trace decides by sizes, in files: other sizes give what torch gives there, or are refused."""

import math

import numpy as np
import pytest

import loadrun.onnx
import loadrun.torch
from loadrun import EngineError, InputError

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
