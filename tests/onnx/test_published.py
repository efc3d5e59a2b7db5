"""Models that others published: their outputs are those of ONNX Runtime, or those that came with them.

Nothing is fetched: what is not installed is skipped.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.onnx.truth import installed, runtime
from tests.support.cases import slow_but

HOWTO = Path(__file__).resolve().parent.parent.parent / "docs" / "howto-onnx-import.md"
needs_runtime = pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")


def folder_of(package: str, *parts: str) -> Path | None:
    """A folder of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent.joinpath(*parts)


VOICE = folder_of("silero_vad", "data")
LIGHT = folder_of("onnx", "backend", "test", "data", "light")
SMALL = folder_of("onnx", "backend", "test", "data")
needs_voice = pytest.mark.skipif(VOICE is None, reason="silero-vad is not installed")
needs_onnx = pytest.mark.skipif(LIGHT is None, reason="the package onnx is not installed")


@needs_voice
@needs_runtime
@pytest.mark.parametrize("rate", [16000, 8000])
def test_voice_activity_through_time(rate: int) -> None:
    """Eight pieces of a sound, the state of each handed to the next."""
    assert VOICE is not None
    path = str(VOICE / "silero_vad.onnx")
    size = 576 if rate == 16000 else 288
    constants = {"sr": np.array(rate)}
    shapes = {"input": (1, size), "state": (2, 1, 128)}
    runner = loadrun.Runner(loadrun.load(path, input_shapes=shapes, constants=constants))
    truth = runtime(path, constants)
    t = np.arange(8 * size) / rate
    sound = np.sin(2 * np.pi * 220 * t) * np.sin(2 * np.pi * 3 * t) ** 2
    pieces = (0.3 * sound).astype(np.float32).reshape(8, 1, size)
    state = np.zeros(shapes["state"], np.float32)
    other = state
    for piece in pieces:
        got = runner.run({"input": piece, "state": state})
        want = truth({"input": piece, "state": other})
        state, other = np.asarray(got["stateN"]), want["stateN"]
        np.testing.assert_allclose(np.asarray(got["output"]), want["output"], atol=1e-5)
        np.testing.assert_allclose(state, other, rtol=1e-4, atol=1e-4)


@needs_voice
@needs_runtime
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("silero_vad_16k_op15", {"input": (3, 576), "state": (2, 3, 128)}),
        ("silero_vad_16k_sequence", {"input": (5, 576), "h": (1, 1, 128), "c": (1, 1, 128)}),
        ("silero_vad_half", {"input": (2, 576), "state": (2, 2, 128)}),
        ("silero_vad_op18_ifless", {"input": (1, 576), "state": (2, 1, 128)}),
        ("silero_vad_openvino_16k", {"input": (1, 576), "state": (2, 1, 128)}),
    ],
)
def test_voice_activity_in_other_forms(name: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert VOICE is not None
    path = str(VOICE / f"{name}.onnx")
    rng = np.random.default_rng(1)
    feeds = {n: (0.3 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    bundle = loadrun.load(path, input_shapes=shapes)
    rate = {"sr": np.array(16000)}
    want = runtime(path, rate)(feeds)
    given = {v.name for v in bundle.inputs}
    (got,) = loadrun.run(bundle, {n: v for n, v in {**feeds, **rate}.items() if n in given})
    assert got.message is None
    for output, value in want.items():
        np.testing.assert_allclose(np.asarray(got[output]), value, rtol=1e-4, atol=1e-4)


@needs_voice
@needs_runtime
def test_the_commands_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert VOICE is not None
    page = HOWTO.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^ {4}(loadrun .*)", page, re.M)
    assert len(commands) == 2
    for command in commands:
        text = command.replace("published/silero_vad/data", str(VOICE))
        words = [w.strip('"') for w in re.findall(r'"[^"]*"|\S+', text)][1:]
        assert main([w.replace("vad.mge", str(tmp_path / "vad.mge")) for w in words]) == 0
    assert "computed 1 testcase as well: largest error" in capsys.readouterr().out


# The nets of the package onnx: architectures of the model zoo with the output that belongs to a fixed input


@needs_onnx
@pytest.mark.parametrize(
    "name", slow_but(["shufflenet"], ["densenet121", "inception_v2", "resnet50", "shufflenet"])
)
def test_nets_of_the_zoo(name: str) -> None:
    from loadrun.onnx.messages import TensorProto, parse
    from loadrun.onnx.tensors import array

    assert LIGHT is not None
    bundle = loadrun.load(LIGHT / f"light_{name}.onnx")
    (x,) = bundle.inputs
    shape = x.owner.tensors[0].shape
    assert shape is not None
    count = int(np.prod(shape))
    data = (np.arange(count) / count).astype(np.float32).reshape(shape)
    (got,) = loadrun.run(bundle, {x.name or "": data})
    stored = (LIGHT / f"light_{name}_output_0.pb").read_bytes()
    want = array(parse(TensorProto, memoryview(stored)))
    (output,) = got.outputs
    np.testing.assert_allclose(np.asarray(output.value), want, rtol=1e-3, atol=1e-4)


@needs_onnx
@pytest.mark.parametrize("kind", slow_but(["simple"], ["pytorch-converted", "pytorch-operator", "simple"]))
def test_models_of_old_exporters(kind: str) -> None:
    assert SMALL is not None
    refused = []
    count = 0
    for path in sorted((SMALL / kind).glob("*/model.onnx")):
        try:
            results = loadrun.run(str(path))
        except loadrun.UnsupportedError:
            refused.append(path.parent.name)
            continue
        count += 1
        assert {r.verdict.value for r in results} == {"pass"}, path.parent.name
    assert all(re.search("strnorm|gradient|sequence", n) for n in refused), refused
    assert count >= {"pytorch-converted": 82, "pytorch-operator": 35, "simple": 14}[kind]
