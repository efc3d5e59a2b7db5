"""Shapes that no array has, in dumps, ONNX models and pictures: the file is refused, or its run ends in a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, FormatError, SpecError
from loadrun.cli import main
from loadrun.dump.writer import dump_bytes
from loadrun.graph import Graph, Header, StoredTensor
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import AxisAddRemove, AxisDesc, Empty, IndexDescMaskDump, IndexItem, OptionalAxisV1
from loadrun.inputs.generation import fill_values, stream
from loadrun.inputspec import Generated
from loadrun.verify.describe import describe
from tests.attacks.attack_files import constant
from tests.onnx.wire_models import field, graph, node


def measured(*sizes: int, more: int = 0) -> Graph:
    """A number repeated to a shape, with further axes, and what shape that has."""
    made, int32 = Graph(header=Header(has_middle_tensors=False)), DType("Int32")
    held = StoredTensor(int32, (len(sizes),), None, encode(np.array(sizes, np.int32), int32))
    (shape,) = made.add("ImmutableTensor", tensors=[held])
    (one,) = made.add("SharedDeviceTensor", tensors=[constant(1.0)])
    (wide,) = made.add("Broadcast", Empty(), inputs=[one, shape])
    if more:
        added = AxisAddRemove(desc=tuple(AxisDesc(0, i) for i in range(more)))
        (wide,) = made.add("AxisAddRemove", added, inputs=[wide])
    made.outputs = made.add("GetVarShapeV1", OptionalAxisV1(), inputs=[wide])
    return made


FAR = 2**31 - 1


@pytest.mark.parametrize(
    ("sizes", "more"),
    [((FAR,) * 3, 0), ((FAR,) * 7, 0), ((2,) * 7, 56), ((1,) * 63, 0), ((0, FAR, FAR, 8), 0)],
)
def test_dumps(sizes: tuple[int, ...], more: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mge"
    path.write_bytes(dump_bytes(measured(*sizes, more=more)))
    assert main(["info", str(path)]) == 0
    assert main([str(path)]) in (2, 3)
    out, err = capsys.readouterr()
    assert "bug" not in out + err
    assert describe(loadrun.load(path)).model.operators


def test_a_shape_of_three_axes_is_measured() -> None:
    (result,) = loadrun.run(loadrun.loads(dump_bytes(measured(2, 3, 4))))
    assert [o.value.tolist() for o in result.outputs if o.value is not None] == [[2, 3, 4]]


@pytest.mark.parametrize("dims", [(0, 1 << 62), (0, 1 << 62, 1 << 62), (0,) * 64, (1 << 63, 0), (1,) * 40])
def test_onnx_tensors(dims: tuple[int, ...]) -> None:
    size = 4 * int(all(dims))
    weight = b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, "w") + field(9, b"\0" * size)
    with pytest.raises((FormatError, EngineError), match=r"'w'|axes|shapes"):
        loadrun.loads(graph(node("Add", ["x", "w"], ["y"]), field(5, weight)))


@pytest.mark.parametrize("head", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"II+\0\x08\0\0\0"])
@pytest.mark.parametrize(
    "rest", [b"\xff" * 20, b"\0" * 20, b"\x08\0\0\0" + b"\xff" * 16, b"\x7f" + b"\xff" * 19]
)
def test_pictures(head: bytes, rest: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.tif"
    path.write_bytes((head + rest)[:24])
    assert main(["fixtures/nets/mlp.mge", "--input", f"data:{path}"]) == 2
    out, err = capsys.readouterr()
    assert "p.tif is a TIFF image that is damaged or cut off" in out + err


def test_an_index_of_more_numbers_than_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Graph(header=Header(has_middle_tensors=False))
    (one,) = made.add("SharedDeviceTensor", tensors=[constant(1.0)])
    items = IndexDescMaskDump(items=(IndexItem(0, begin=True, end=True),))
    made.outputs = made.add("Subtensor", items, inputs=[one])
    path = tmp_path / "m.mge"
    path.write_bytes(dump_bytes(made))
    assert main(["info", str(path)]) == 0
    assert "Subtensor" in capsys.readouterr().out
    assert main(["convert", str(path), str(tmp_path / "m.onnx")]) == 2
    assert "the index describes 2 inputs, found 0" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(0, 1 << 62), (1 << 62, 0, 1 << 62), (1,) * 70])
def test_numbers_for_a_shape_that_no_array_has(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="cannot have the shape"):
        fill_values(Generated("rand", (0.0, 1.0)), shape, stream(0))
