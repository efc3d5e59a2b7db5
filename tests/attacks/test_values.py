"""Values and types at the edge of what files can say: an error or a verdict, never a traceback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import FormatError, InputError, UsageError
from loadrun.cli import main
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode, Host2DeviceCopy, MatrixMul
from loadrun.inputs.files import read_npy
from loadrun.inputs.transform import TransformExpression
from tests.attacks.attack_files import V2

MLP = "fixtures/nets/mlp.mge"


def test_complex_values_in_a_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, dtype = Graph(), DType("Complex64")
    for name in ("y:expect", "x"):
        graph.add(
            "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(dtype, (3,), name)], names=[name]
        )
    (y,) = graph.add("Identity", inputs=graph.oprs[1].outputs, names=["y"])
    expect = graph.oprs[0].outputs[0]
    graph.outputs = graph.add("AssertEqual", AssertEqual(maxerr=1.0), inputs=[expect, y, y])
    values = np.array([1 + 2j, 0, -1j], "c8")
    case = loadrun.Testcase({"x": values, "y:expect": values}, {"x": dtype, "y:expect": dtype})
    loadrun.save(loadrun.Bundle(graph, [case]), tmp_path / "m.mge")
    assert main([str(tmp_path / "m.mge")]) in (2, 3)
    assert "bug in loadrun" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "shape", [(2**31 - 1, 2**31 - 1, 2), (2**31, 2**30), (2**32 - 1, 2**31 - 1), (2**31 - 1, 2**32 - 1)]
)
@pytest.mark.parametrize("kind", ["Elemwise", "MatrixMulV2"])
def test_shapes_of_63_bits(
    shape: tuple[int, ...], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    f = V2()
    x = f.held(f.tensor(list(shape), name=f.e.string("x")), "Host2DeviceCopy", Host2DeviceCopy())
    inputs = f.e.numbers([0] * (1 if kind == "Elemwise" else 2))
    param = Elemwise(mode=ElemwiseMode.RELU) if kind == "Elemwise" else MatrixMul()
    y = f.operator(kind, (7, "offset", inputs, 0), param=param)
    path = tmp_path / "m.mge"
    path.write_bytes(f.finish([x, y], (4, "offset", f.outputs([1]), 0)))
    codes = [main([*command, str(path)]) for command in ([], ["info"], ["info", "--json"])]
    said = capsys.readouterr()
    assert codes[0] == 2
    assert set(codes) <= {0, 2, 3}
    assert "bug in loadrun" not in said.out + said.err


def test_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("-1", str(2**64), "x", "1.5"):
        assert main([MLP, "--seed", seed]) == 2
    with pytest.raises(UsageError, match="found -1"):
        loadrun.Runner(MLP, seed=-1)
    assert main([MLP, "--seed", str(2**64 - 1)]) == 0


@pytest.mark.parametrize("name", [b"QuantizedS9", b"Quantized8As", b"QuantizedS3", b"Quantized1x"])
def test_quantized_types_that_are_none(name: bytes, tmp_path: Path) -> None:
    mark = {"mgb_dtype": {"name": "QuantizedS8", "scale": 0.5}}
    path = tmp_path / "c.pkl"
    save_checkpoint({"w": np.zeros(3, np.dtype("i1", metadata=mark))}, path)
    good = path.read_bytes()
    assert good.count(b"\x0bQuantizedS8") == 1
    bad = good.replace(b"\x0bQuantizedS8", bytes([len(name)]) + name)
    with pytest.raises(FormatError, match="a quantized dtype is not as MegEngine writes it"):
        load_checkpoint(bad)


def test_quantized_types_in_other_numbers(tmp_path: Path) -> None:
    """QuantizedS32 is stored in int32, Quantized8Asymm has a zero point."""
    for name in (b"QuantizedS32", b"Quantized8Asymm"):
        mark = {"mgb_dtype": {"name": "QuantizedS8", "scale": 0.5}}
        save_checkpoint({"w": np.zeros(3, np.dtype("i1", metadata=mark))}, tmp_path / "c")
        data = (tmp_path / "c").read_bytes()
        data = data.replace(b"\x0bQuantizedS8", bytes([len(name)]) + name)
        with pytest.raises(FormatError, match="not as MegEngine writes it"):
            load_checkpoint(data)


def test_fields_of_a_dtype() -> None:
    with pytest.raises(InputError, match="has no items"):
        TransformExpression("data.dtype[0]")(np.zeros(3))


def test_a_header_that_is_shorter_than_it_says(tmp_path: Path) -> None:
    import io

    for data in (b"\x93NUMPY\x01\0\0\0", b"\x93NUMPY\x01\0\x01\0{", b"\x93NUMPY\x02\0\0\0\0\0", b""):
        with pytest.raises(InputError, match=r"is not a \.npy array"):
            read_npy(io.BytesIO(data), len(data), "a.npy")
