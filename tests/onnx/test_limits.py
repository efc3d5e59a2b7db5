"""What a dump's checks ask goes along to ONNX and back: no file that fails passes for having been converted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import loadrun
from loadrun import Testcase
from loadrun.base.errors import FormatError
from loadrun.cli import main
from loadrun.compare.record import packed_policies
from loadrun.testcase import Bundle
from loadrun.testing import GraphBuilder
from loadrun.verify.pack.capture import embed
from tests.onnx.wire_models import attribute, field, model, node, tensor, value

MLP = "fixtures/nets/mlp.mge"


def shifted(folder: Path, by: float) -> str:
    """A packed net at a tolerance of 1e-6 whose first testcase expects values that are off by a factor."""
    path = str(folder / "m.mge")
    argv = ["--maxerr", "1e-6", "--check", "cosine>=0.9", "--loosen", "-o", path, "-q"]
    assert main(["pack", MLP, *argv]) == 0
    bundle = loadrun.load(path)
    cases = list(bundle.testcases)
    arrays = {n: a * np.float32(1 + by) if n == "out:expect" else a for n, a in cases[0].arrays.items()}
    loadrun.save(bundle, path, testcases=[Testcase(arrays, cases[0].dtypes), *cases[1:]])
    return path


@pytest.mark.parametrize(("by", "code"), [(0.0, 0), (2e-4, 1)])
def test_what_fails_at_its_tolerance_fails_as_onnx(
    by: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """2e-4 is far within the 1e-3 of ONNX's rule, and far beyond 1e-6."""
    path, model = shifted(tmp_path, by), str(tmp_path / "m.onnx")
    assert main([path, "-q"]) == code
    assert main(["convert", path, model, "-q"]) == 0
    assert main([model, "-q"]) == code
    assert main(["convert", model, str(tmp_path / "back.mge"), "-q"]) == 0
    assert main([str(tmp_path / "back.mge"), "-q"]) == code
    limit = loadrun.load(path).checks[0].maxerr
    for name in ("m.onnx", "back.mge"):
        assert loadrun.load(tmp_path / name).checks[0].maxerr == limit
    said = json.loads((tmp_path / "m.test_data_set_0" / "checks.json").read_text())
    assert said["out"]["maxerr"] == limit


def test_what_the_data_say_holds_where_the_metadata_are_lost(tmp_path: Path) -> None:
    path, model = shifted(tmp_path, 2e-4), tmp_path / "m.onnx"
    assert main(["convert", path, str(model), "-q"]) == 0
    data = model.read_bytes()
    assert data.count(b"loadrun:checks") == 1
    model.write_bytes(data.replace(b"loadrun:checks", b"another:checks"))
    assert main([str(model), "-q"]) == 1
    for one in tmp_path.glob("m.test_data_set_*/checks.json"):
        one.unlink()
    assert main([str(model), "-q"]) == 2, "they are promised"
    model.write_bytes(model.read_bytes().replace(b"loadrun:promise", b"another:promise"))
    assert main([str(model), "-q"]) == 0, "ONNX's own rule"


def test_policies_travel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The policy of the dump is violated in ONNX, too, and is there when it comes back."""
    first = str(tmp_path / "p.mge")
    argv = ["pack", MLP, "--replace", "-d", "#rand(0,1)", "--check", "out: atol=1e-3", "-o", first, "-q"]
    assert main(argv) == 0
    for source, target in ((first, "p.onnx"), (str(tmp_path / "p.onnx"), "q.mge")):
        assert main(["convert", source, str(tmp_path / target), "-q"]) == 0
        policies, _ = packed_policies(loadrun.load(tmp_path / target).record)
        assert {n: p.text for n, p in policies.items()} == {"out": "atol=1e-3"}
    bundle = loadrun.load(tmp_path / "p.onnx")
    case = bundle.testcases[0]
    bundle.testcases = [
        Testcase(
            {n: a + np.float32(0.01) if n == "out:expect" else a for n, a in case.arrays.items()}, case.dtypes
        )
    ]
    (out,) = loadrun.run(bundle)[0].outputs
    assert out.verdict is loadrun.Verdict.FAIL


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"out": 1}', '{"out": {"maxerr": "x"}}', '{"out": {"maxerr": NaN}}']
)
def test_a_damaged_text_is_refused(text: str, tmp_path: Path) -> None:
    path, model = shifted(tmp_path, 0.0), tmp_path / "m.onnx"
    assert main(["convert", path, str(model), "-q"]) == 0
    (tmp_path / "m.test_data_set_1" / "checks.json").write_text(text)
    with pytest.raises(FormatError, match="is not a record of checks"):
        loadrun.load(model)


def test_a_conversion_expects_what_the_testcase_does(tmp_path: Path) -> None:
    """An expected value of another rank fails in a conversion, too; it is not replaced by what the model computes."""
    b = GraphBuilder()
    x = b.input("x", 1, 3)
    case = Testcase({"x": np.ones((1, 3), "f4"), "y:expect": np.ones((1, 3, 1), "f4")})
    bundle = embed(Bundle(b.done(b.elemwise("RELU", x, name="y"))), [case], maxerr=1e-4)
    loadrun.save(bundle, tmp_path / "m.mge")
    loadrun.convert_file(tmp_path / "m.mge", tmp_path / "m.onnx")
    assert [main([str(tmp_path / f"m.{kind}"), "-q"]) for kind in ("mge", "onnx")] == [1, 1]


def labelled(folder: Path) -> Path:
    """A model of 4000 labels, of which a data set expects one otherwise, and of values that it expects 0.5 % off."""
    x = np.arange(-2000, 2000, dtype="f4")
    labels = x.astype("i4")
    labels[7] += 5
    nodes = [node("Cast", ["x"], ["labels"], attribute("to", 6)), node("Neg", ["x"], ["y"])]
    ends = [field(11, value("x", 1, x.shape)), field(12, value("labels", 6, x.shape))]
    (folder / "m.onnx").write_bytes(model(*nodes, *ends, field(12, value("y", 1, x.shape)), opset=13))
    (folder / "test_data_set_0").mkdir()
    for name, array in {"input_0": x, "output_0": labels, "output_1": -x * np.float32(1.005)}.items():
        (folder / "test_data_set_0" / f"{name}.pb").write_bytes(tensor(array))
    return folder / "m.onnx"


@pytest.mark.parametrize("engine", ["reference", "onnxruntime"])
@pytest.mark.parametrize(
    ("terms", "verdicts"),
    [
        ({"labels": "ppm<=250"}, ["pass", "fail"]),
        ({"labels": "ppm<=249"}, ["fail", "fail"]),
        ({"y": "rtol=6e-3"}, ["fail", "pass"]),
        ({"y": "rtol=4e-3"}, ["fail", "fail"]),
        ({"labels": "off_by<=5", "y": "cosine>=0.999"}, ["pass", "pass"]),
    ],
)
def test_a_rule_in_place_of_the_data_sets(
    terms: dict[str, str],
    verdicts: list[str],
    engine: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(engine if engine == "onnxruntime" else "numpy")
    path, report, saved = str(labelled(tmp_path)), tmp_path / "r.json", str(tmp_path / "saved.zip")
    checks = [word for name, text in terms.items() for word in ("--check", f"{name}: {text}")]
    # Without the word they are added to the rule.
    assert main([path, "--engine", engine, *checks, "-q"]) == 1
    argv = [path, "--engine", engine, *checks, "--loosen", "--json", str(report), "--output", saved]
    code = main(argv)
    assert code == (0 if verdicts == ["pass"] * 2 else 1)
    shown = capsys.readouterr().out
    assert all(f"LOOSENED: {text}" in shown for text in terms.values())
    outputs = json.loads(report.read_text())["files"][0]["testcases"][0]["outputs"]
    assert [o["verdict"] for o in outputs] == verdicts
    assert [o["name"] for o in outputs if o["loosened"] is not None] == list(terms)
    assert main([saved, "-q"]) == code


@pytest.mark.parametrize("more", [[], ["--maxerr", "labels=1e9", "--maxerr", "y=1e9"]])
@pytest.mark.parametrize(("share", "code"), [(250, 0), (249, 1)])
def test_a_rule_in_place_of_the_data_sets_is_packed(
    share: int, code: int, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, packed = str(labelled(tmp_path)), str(tmp_path / "m.mge")
    argv = ["--check", f"labels: ppm<={share}", "--check", "y: rtol=6e-3", *more, "-o", packed, "-q"]
    assert main(["pack", path, *argv, "--loosen"]) == code
    assert "LOOSENED: the tolerance of 'labels' was 1 and is" in capsys.readouterr().err
    # Nor does a run take it for a check that zeros would pass.
    assert main([packed, "--strict", "weak"]) == code
    assert capsys.readouterr().out.count("LOOSENED: the tolerance was 1") == 2
    policies, loosened = packed_policies(loadrun.load(packed).record)
    assert policies["labels"].text == f"ppm<={share}, rtol=0.001, atol=1e-07, nan=equal"
    assert loosened == {"labels": 1.0, "y": 1.0}


def test_loosening_takes_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MLP, "--loosen"]) == 2
    assert "give the replacement with --check" in capsys.readouterr().err
