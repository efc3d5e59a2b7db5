"""Files and lines beside those that the C++ tool of 1.13.0 wrote for fixtures/nets/resnet_basic.mge."""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.cli import main
from loadrun.load_and_run.plan import STATIC_NAMES, ExecutionPlan, _hashed
from loadrun.megengine import Tensor
from loadrun.tracing import trace
from loadrun.verify.diff.stored import read_values

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "fixtures" / "nets" / "resnet_basic.mge")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    with zipfile.ZipFile(ROOT / "tests" / "data" / "load_and_run" / "samples.zip") as z:
        z.extractall(folder)
    return folder


def parts(path: Path) -> tuple[bytes, str, bytes]:
    """Header, text and values of a binary dump."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[:4])
    return data[:40], data[40 : 40 + length].decode(), data[40 + length :]


@pytest.mark.parametrize(("flag", "folder"), [("--bin_io_dump", "bio"), ("--bin_out_dump", "bout")])
def test_binary_dumps(flag: str, folder: str, samples: Path, tmp_path: Path) -> None:
    """The same files, byte for byte but for the rounding of the values."""
    assert main(["load_and_run", MODEL, "--iter", "0", flag, str(tmp_path)]) == 0
    names = sorted(p.name for p in (samples / folder).iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    for name in names:
        theirs, ours = parts(samples / folder / name), parts(tmp_path / name)
        assert ours[:2] == theirs[:2], name
        np.testing.assert_allclose(
            np.frombuffer(ours[2], "<f4"), np.frombuffer(theirs[2], "<f4"), rtol=1e-3, atol=1e-4
        )


def test_dumps_are_read_back(tmp_path: Path) -> None:
    assert main(["load_and_run", MODEL, "--iter", "0", "--bin_io_dump", str(tmp_path)]) == 0
    out = next(v for v in loadrun.load(MODEL).graph.oprs[96].outputs)
    stored = read_values(tmp_path).of(out)
    assert stored is not None
    np.testing.assert_array_equal(stored, loadrun.run(MODEL)[0].outputs[0].value)


def test_text_dump(samples: Path, tmp_path: Path) -> None:
    """The same variables in the same order; of inputs that MegEngine has overwritten by then, the values differ."""
    path = tmp_path / "io.txt"
    assert main(["load_and_run", MODEL, "--iter", "0", "--io_dump", str(path)]) == 0
    ours, theirs = path.read_text().splitlines(), (samples / "io.txt").read_text().splitlines()
    assert len(ours) == len(theirs)
    number = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
    for mine, real in zip(ours, theirs, strict=True):
        if mine.startswith("var"):
            assert mine == real
            continue
        assert number.sub("#", mine.split("[", 1)[0]) == number.sub("#", real.split("[", 1)[0])
        if mine.startswith(" val"):
            got = [float(n) for n in number.findall(mine)]
            np.testing.assert_allclose(
                got, [float(n) for n in number.findall(real.replace("l2", "l2"))], atol=2e-3
            )


def test_lines(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output and the lines that scripts look for are the tool's, but for times and the last digits."""
    assert main(["load_and_run", MODEL, "--iter", "2", "--warmup_iter", "1"]) == 0
    captured = capsys.readouterr()

    def plain(text: str) -> list[str]:
        times = re.sub(r"\d\d:\d\d:\d\d", "TIME", re.sub(r"\[\d\d ", "[DAY ", text))
        return re.sub(r"\d+\.\d+(e-\d+)?", "#", times).splitlines()

    assert plain(captured.out) == plain((samples / "stdout.txt").read_text())
    errors = [float(n) for n in re.findall(r"err=(\S+)", captured.out)]
    assert len(errors) == 3
    assert all(0 < e < 1e-5 for e in errors)
    theirs = [n for n in plain((samples / "stderr.txt").read_text()) if "strategy_normal.cpp" in n]
    ours = [n for n in plain(captured.err) if "strategy_normal.cpp" in n]
    # The first line names the program that ran.
    assert ours[1:] == theirs[1:]


def test_model_info(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load_and_run", MODEL, "--iter", "1", "--model_info"]) == 0
    table = [n for n in (samples / "info.txt").read_text().splitlines() if n.startswith(("+Run", "+--", "|"))]
    assert [n for n in capsys.readouterr().err.splitlines() if n.startswith(("+", "|"))] == table


def test_value_check(samples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load_and_run", MODEL, "--check_var_value", "5"]) == 0
    theirs = [n for n in (samples / "cvv.txt").read_text().splitlines() if n.startswith("VarValueChecker")]
    assert [n for n in capsys.readouterr().err.splitlines() if n.startswith("VarValueChecker")] == theirs


def test_names_and_order(samples: Path) -> None:
    """Numbers, names, classes, what is known beforehand, and the order of execution, of all that the tool executed."""
    real = json.loads((samples / "prof.json").read_text())["graph_exec"]
    plan = ExecutionPlan(loadrun.load(MODEL).graph)
    assert [str(plan.numbers.oprs[o.id].id) for o in plan.order] == real["comp_seq"]
    ours = {str(n.id): (n.name, n.cls) for n in plan.numbers.oprs.values()}
    # 31 and 32 are the limit of scratch memory, which no operator of the file holds.
    theirs = {k: (o["name"], o["type"]) for k, o in real["operator"].items() if k != "31"}
    assert {k: ours[k] for k in theirs} == theirs
    names = {str(n): name for n, name in (*plan.numbers.vars.values(), *plan.numbers.scratch.values())}
    assert {k: names[k] for k in real["var"] if k != "32"} == {
        k: v["name"] for k, v in real["var"].items() if k != "32"
    }
    by_number = {str(plan.numbers.var(v)[0]): v for o in plan.graph.oprs for v in o.outputs}
    for key, said in real["var"].items():
        if key in by_number:
            tags = said["static_infer_tags"]
            known = [STATIC_NAMES[t] for t in plan.infer_type(by_number[key])]
            assert known == [tags["SHAPE"]["infer_type"], tags["VALUE"]["infer_type"]], said["name"]


def test_profile(samples: Path, tmp_path: Path) -> None:
    """The layout of the tool's file; fused operators count for the first of them."""
    path = tmp_path / "p.json"
    assert main(["load_and_run", MODEL, "--iter", "1", "--profile", str(path)]) == 0
    ours, theirs = json.loads(path.read_text()), json.loads((samples / "prof.json").read_text())
    assert ours.keys() == theirs.keys()
    assert ours["profiler"].keys() == theirs["profiler"].keys()
    assert ours["graph_exec"].keys() == theirs["graph_exec"].keys()
    (time,) = ours["profiler"]["device"]["246"].values()
    assert time.keys() == {"start", "kern", "end"}
    assert 0 <= time["start"] <= time["kern"] < time["end"]
    footprint = theirs["profiler"]["opr_footprint"]["298"]
    assert ours["profiler"]["opr_footprint"]["298"]["in_shapes"][:2] == footprint["in_shapes"]
    executed = {k for k, v in ours["profiler"]["host"].items()}
    fused = {
        one["id"] for o in ours["graph_exec"]["operator"].values() for one in o["extra"].get("fused", ())
    }
    computing = {k for k in theirs["graph_exec"]["comp_seq"] if theirs["profiler"]["opr_footprint"].get(k)}
    types = {k: theirs["graph_exec"]["operator"][k]["type"] for k in computing}
    assert {k for k in computing if types[k] == "ConvolutionForward"} <= executed | fused


def test_static_memory(samples: Path, tmp_path: Path) -> None:
    """The tool's layout; pieces that are needed at the same time do not overlap."""
    assert main(["load_and_run", MODEL, "--iter", "0", "--get_static_mem_info", str(tmp_path)]) == 0
    ours, theirs = (
        json.loads((d / "StaticMemoryInfo.json").read_text()) for d in (tmp_path, samples / "mem")
    )
    assert ours["opr"] == theirs["opr"]
    assert next(iter(ours["chunk"].values())).keys() == next(iter(theirs["chunk"].values())).keys()
    weights = [c for c in theirs["chunk"].values() if c["type"] == "weight_mem"]
    mine = [c for c in ours["chunk"].values() if c["type"] == "weight_mem"]
    # The tool has one more piece, of the least size.
    assert sizes(weights) - sizes(mine) == Counter({64: 1})
    assert not sizes(mine) - sizes(weights)
    chunks = [
        tuple(int(c[k]) for k in ("time_begin", "time_end", "logic_addr_begin", "logic_addr_end"))
        for c in ours["chunk"].values()
    ]
    for i, (a, b, low, high) in enumerate(chunks):
        for c, d, other, top in chunks[:i]:
            assert b <= c or d <= a or high <= other or top <= low or low == high or other == top
    graph, real = (json.loads((d / "graph.json").read_text()) for d in (tmp_path, samples / "mem"))
    assert graph["comp_seq"] == real["comp_seq"]


def sizes(chunks: list[dict[str, str]]) -> Counter[int]:
    return Counter(int(c["logic_addr_end"]) - int(c["logic_addr_begin"]) for c in chunks)


def test_model_dump(tmp_path: Path) -> None:
    """The graph without its testcases, checks and all, as it was run."""
    path = tmp_path / "m.mge"
    flags = ["--iter", "0", "--enable_nchw44", "--model_dump", str(path)]
    assert main(["load_and_run", MODEL, *flags]) == 0
    bundle = loadrun.load(path)
    assert not bundle.facts.is_container
    assert [o.owner.type for o in bundle.graph.outputs] == ["AssertEqual"]
    assert sum(o.type == "Dimshuffle" for o in bundle.graph.oprs) == 5


def test_a_profile_beside_a_text_of_all_values(samples: Path, tmp_path: Path) -> None:
    alone, both, text = (tmp_path / n for n in ("alone.json", "both.json", "v.txt"))
    assert main(["load_and_run", MODEL, "--iter", "1", "--profile", str(alone)]) == 0
    flags = ["--iter", "1", "--profile", str(both), "--io_dump", str(text)]
    assert main(["load_and_run", MODEL, *flags]) == 0
    wanted, found = (json.loads(p.read_text())["graph_exec"] for p in (alone, both))
    assert found["operator"].keys() == wanted["operator"].keys()
    assert text.read_text().count("\nvar") == 201


def test_order_of_several_outputs() -> None:
    """Numbers of the ends of nets of 2 to 60 outputs, and the order in which MegEngine 1.13.0 copied them."""
    for numbers, order in json.loads((ROOT / "tests/data/load_and_run/ends.json").read_text()):
        assert _hashed(numbers) == order


def test_numbers_where_there_are_two_outputs_and_inputs(tmp_path: Path) -> None:
    """MegEngine's `replace_vars` gives these names and, behind the inputs', these numbers."""

    def net(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.relu(F.exp(a) + b), F.sigmoid(F.matmul(a, np.ones((4, 3), "f4")))

    traced = trace(net, symbolic=True, capture_as_const=True)
    traced(*(Tensor(np.ones((2, 4), "f4")) for _ in "ab"))
    traced.dump(tmp_path / "two.mge", arg_names=["a", "b"])
    numbers = ExecutionPlan(loadrun.load(tmp_path / "two.mge").graph).numbers
    names = sorted((n.id, n.name) for n in numbers.oprs.values() if n.cls != "ImmutableTensor")
    assert names == [
        (17, "b"),
        (19, "a"),
        (21, "matrix_mul(a,const{4,3}[4])[21]"),
        (24, "SIGMOID(MatrixMul)[24]"),
        (26, "EXP(a)[26]"),
        (28, "FUSE_ADD_RELU(b,EXP)[28]"),
    ]
