"""Statistics of the intermediate values: what the record holds, and which operator they name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import UsageError
from loadrun.cli import main
from loadrun.dump.record import intermediates_at
from loadrun.graph.dtypes import DType, encode
from loadrun.passes.constants import bare
from loadrun.verify.diff import changed_values
from loadrun.verify.pack.intermediates import figures


def packed(path: Path, model: str = "fixtures/nets/resnet_basic.mge", count: int = 2) -> Path:
    options = loadrun.PackOptions(replace=True, input_data=("#rand(0,1)",) * count, intermediates=True)
    loadrun.pack_file(model, path, options)
    return path


def test_figures() -> None:
    value = np.array([[1.0, -2.0], [0.0, 5.0]], "f4")
    mean, size = 1.0, 2.0
    deviation = float(np.sqrt((0 + 9 + 1 + 16) / 4))
    assert figures(value) == [4, -2, 5, mean, size, pytest.approx(deviation), 1, -2, 0, 5]
    assert figures(np.array([130, 126], "u1"), DType("Quantized8Asymm", 0.5, 128)) == [
        2,
        -1,
        1,
        0,
        1,
        1,
        1,
        -1,
    ]
    assert figures(np.array([np.nan, 1], "f4"))[1:] == [None, None, None, None, None, None, 1]


def test_the_changed_operator_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file whose weight was changed after it was packed, and which has nothing to be compared with."""
    path = packed(tmp_path / "p.mge")
    bundle = loadrun.load(path)
    guilty = [o for o in bundle.graph.oprs if o.type == "ConvolutionV2"][5]
    tensor = guilty.inputs[1].owner.tensors[0]
    value = tensor.value().copy()
    value[0] *= -2
    tensor.data = encode(value, tensor.dtype)
    loadrun.save(bundle, tmp_path / "bad.mge")
    assert main([str(path), "--explain", "-q"]) == 0
    capsys.readouterr()
    assert main([str(tmp_path / "bad.mge"), "--explain"]) == 1
    blamed = [line for line in capsys.readouterr().out.splitlines() if "to blame" in line]
    assert len(blamed) == 1
    assert f"(operator {guilty.id})" in blamed[0]
    assert ", it was " in blamed[0]


def test_every_testcase_has_its_own(tmp_path: Path) -> None:
    bundle = loadrun.load(packed(tmp_path / "p.mge", "fixtures/nets/mlp.mge"))
    one, two = (intermediates_at(bundle.record, i) for i in (0, 1))
    assert one is not None
    assert one != two
    graph = bare(bundle)
    assert changed_values(graph, one, bundle.testcases[0].inputs, tolerance=1e-4) == []
    found = changed_values(graph, one, bundle.testcases[1].inputs, tolerance=1e-4)
    assert found[0].root
    assert intermediates_at(bundle.record, 2) is None
    with pytest.raises(UsageError, match="has changed since"):
        changed_values(graph, one[1:], bundle.testcases[0].inputs, tolerance=1e-4)


def test_files_without_them_hold_none(tmp_path: Path) -> None:
    path = tmp_path / "p.mge"
    assert main(["pack", "fixtures/nets/mlp.mge", "-d", "#ones", "-o", str(path), "-q"]) == 0
    assert intermediates_at(loadrun.load(path).record, 0) is None
    assert intermediates_at(None, 0) is None


def test_a_stride_that_stops_the_model_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum further on cannot take the shapes; the record knows how many elements there were."""
    kept, broken = str(tmp_path / "kept.mge"), str(tmp_path / "broken.mge")
    packed(Path(kept), count=1)
    bundle = loadrun.load(kept)
    opr = next(o for o in bundle.graph.oprs if o.type == "ConvolutionV2" and o.param.stride_h == 1)  # type: ignore[attr-defined]
    opr.params = (opr.params[0].replace(stride_h=2, stride_w=2), *opr.params[1:])
    loadrun.save(bundle, broken)
    capsys.readouterr()
    assert main([broken, "--explain"]) == 2
    out = capsys.readouterr().out
    blamed = next(line for line in out.splitlines() if "to blame" in line)
    assert (opr.outputs[0].name or "") in blamed
    assert "its number of elements is" in blamed
