"""`loadrun MODEL --input`: several testcases, options, messages."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from loadrun.cli import main
from loadrun.dump import save
from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, Host2DeviceCopy
from loadrun.graph.params.enums import ElemwiseMode
from loadrun.testcase import Bundle
from loadrun.testing import GraphBuilder


@pytest.fixture
def negate(tmp_path: Path) -> str:
    graph = Graph()
    tensor = StoredTensor(DType("Float32"), (2, 3), "x")
    (x,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[tensor], names=["x"])
    graph.outputs = graph.add("Elemwise", Elemwise(mode=ElemwiseMode.NEGATE), inputs=[x], names=["y"])
    save(graph, tmp_path / "m.mge")
    return str(tmp_path / "m.mge")


def test_several_testcases(negate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list.txt").write_text("#full(2)\n# comment\n#full(3)\n")
    out = tmp_path / "out"
    argv = [
        negate,
        "--allow-uncompared",
        "--input",
        "#full(1)",
        "--input",
        f"@{tmp_path}/list.txt",
        "--output",
        str(out),
    ]
    assert main(argv) == 0
    assert "1 file, 3 testcases" in capsys.readouterr().out
    assert [np.load(out / f"{i}.y.npy")[0, 0] for i in range(3)] == [-1, -2, -3]


def test_options(negate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3]], "f4"))
    out = tmp_path / "out"
    argv = [
        negate,
        "--allow-uncompared",
        "--input",
        f"{tmp_path}/x.npy",
        "--repeat",
        "2",
        "--output",
        str(out),
    ]
    assert main([*argv, "--input-transform", "data * 10", "--iter", "2"]) == 0
    assert np.load(out / "y.npy").tolist() == [[-10, -20, -30]] * 2
    assert "2 runs after 1 warm-up" in capsys.readouterr().out
    for option in (["--repeat", "2"], ["--resize-input"], ["--input-transform", "data"]):
        assert main([negate, *option]) == 2
        assert "apply to input data" in capsys.readouterr().err


def test_seeds(negate: str, tmp_path: Path) -> None:
    def run(seed: str) -> bytes:
        assert (
            main(
                [
                    negate,
                    "--allow-uncompared",
                    "--input",
                    "#rand(0,1)",
                    "--seed",
                    seed,
                    "--output",
                    str(tmp_path / seed),
                ]
            )
            == 0
        )
        return (tmp_path / seed / "y.npy").read_bytes()

    assert run("1") != run("2")
    assert run("1") == run("1")


def test_warnings_and_errors(negate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                negate,
                "--allow-uncompared",
                "--input",
                "#ones(2,4)",
                "--input",
                "#ones(1,4)",
                "--json",
                str(tmp_path / "r"),
            ]
        )
        == 0
    )
    assert "warning: input 'x' has shape [2, 3], its data [2, 4]" in capsys.readouterr().out
    assert "its data [1, 4]" in json.dumps(json.loads((tmp_path / "r").read_text())["files"][0]["warnings"])
    assert main([negate, "--input", "#ones", "--input", "y:#ones"]) == 2
    shown = capsys.readouterr().out
    assert (
        "  error: specification 2: the model has no input 'y'; its input is 'x' (Float32 [2, 3])\n"
        "           y:#ones\n"
        "           ^\n"
    ) in shown
    assert main([negate, "--input", "#ones", "--seed", "-1"]) == 2
    assert "--seed: expected a whole number from 0 to 2**64 - 1" in capsys.readouterr().err


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the files that OpenCV was given to decode."""
    found: list[int] = []
    decode = cv2.imdecode

    def counted(raw: np.ndarray, flags: int) -> np.ndarray:
        found.append(raw.size)
        return decode(raw, flags)

    monkeypatch.setattr(cv2, "imdecode", counted)
    return found


@pytest.fixture
def takes_picture(tmp_path: Path) -> str:
    graph = GraphBuilder()
    x = graph.input("x", 1, 3, 8, 8)
    save(Bundle(graph.done(graph.elemwise("ADD", x, x, name="y"))), tmp_path / "picture.mge")
    return str(tmp_path / "picture.mge")


def damaged(path: Path) -> str:
    """A picture that is not what its file promises: libjpeg and libpng say so on standard error, each time."""
    pixels = np.random.PCG64(3).random_raw(8 * 8 * 3).astype("u1").reshape(8, 8, 3)
    raw = bytearray(cv2.imencode(path.suffix, pixels)[1].tobytes())
    at = len(raw) * 3 // 4
    raw[at : at + 8] = bytes(8)
    path.write_bytes(bytes(raw))
    return str(path)


LOOKED_AT = ["--iter", "2", "--range", "inf", "--top", "1", "--explain"]


def test_a_picture_is_decoded_once(takes_picture: str, tmp_path: Path, decoded: list[int]) -> None:
    """Also where the model runs on it again: timed, and looked at operator by operator."""
    picture = damaged(tmp_path / "a.jpg")
    assert main([takes_picture, "--input", picture, "--allow-uncompared", *LOOKED_AT]) == 0
    assert len(decoded) == 1
    assert main(["load_and_run", takes_picture, "--input", picture, "--iter", "1", "--thread", "3"]) == 0
    assert len(decoded) == 2


def test_a_picture_that_cannot_be_decoded_is_said_once(
    takes_picture: str, tmp_path: Path, decoded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing more is tried on it, and reports are written."""
    picture, report = damaged(tmp_path / "a.png"), tmp_path / "r.json"
    assert main([takes_picture, "--input", picture, *LOOKED_AT, "--json", str(report)]) == 2
    assert len(decoded) == 1
    said = capsys.readouterr()
    assert (said.out + said.err).count("a.png is a PNG image that is damaged or cut off") == 1
    (file,) = json.loads(report.read_text())["files"]
    assert "damaged or cut off" in file["message"]
