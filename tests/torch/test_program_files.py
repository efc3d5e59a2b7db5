"""Files of torch.export (.pt2): replayed on torch itself and as the graph that is read from them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.torch
from loadrun.base.errors import (
    FormatError,
    InputError,
    TraceError,
    TraceWarning,
    UnsupportedError,
    UsageError,
)
from loadrun.cli import main
from loadrun.onnx.converting import convert_file

torch = pytest.importorskip("torch", reason="these files are torch's")

from loadrun.torch.archive import append_cases, read_program  # noqa: E402

save = loadrun.torch.save


class Net(torch.nn.Module):
    """Results of several types, a keyword argument, 64-bit integers and a value without axes."""

    def forward(self, x: Any, i: Any, *, k: Any) -> dict[str, Any]:
        return {"a": torch.relu(x) + k, "b": x.sum(), "n": i * 3}


class Eigenvalues(torch.nn.Module):
    """What MegEngine has no operator for."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvals(x).abs()


X = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
INPUTS = (X, torch.tensor([1, 2]))
K = {"k": torch.tensor([0.5, 1.0])}


def written(folder: Path, **options: Any) -> Path:
    path = folder / "net.pt2"
    save(Net(), path, INPUTS, K, **options)
    return path


def saved(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def test_a_dump_in_one_call(tmp_path: Path) -> None:
    path, other = tmp_path / "net.mge", (X * 2, torch.tensor([3, 4]))
    save(Net(), path, INPUTS, K, input_data=["example", {"x": other[0], "i": other[1], **K}, "#rand(0,1000)"])
    bundle = loadrun.load(path)
    with torch.no_grad():
        want = [Net()(*INPUTS, **K), Net()(*other, **K)]
    for case, results in zip(bundle.testcases, want, strict=False):
        for name, value in results.items():
            np.testing.assert_array_equal(case.expects[name].reshape(value.shape), value.numpy())
    assert [r.verdict.value for r in loadrun.run(path)] == ["pass"] * 3


@pytest.mark.parametrize("name", ["net.mge", "net.onnx"])
def test_conversion(name: str, tmp_path: Path) -> None:
    """The testcase goes along, with what torch computed."""
    convert_file(written(tmp_path), tmp_path / name)
    bundle = loadrun.load(tmp_path / name)
    with torch.no_grad():
        want = Net()(*INPUTS, **K)
    for output, value in want.items():
        found = bundle.testcases[0].expects[output].reshape(value.shape)
        np.testing.assert_array_equal(found, value.numpy())
    assert [r.verdict.value for r in loadrun.run(bundle)] == ["pass"]


def test_input_data_of_a_program_file(tmp_path: Path) -> None:
    path = tmp_path / "relu.pt2"
    save(torch.nn.ReLU(), path, (X,), input_data=["example", X * 2, (X.numpy() * 3,)])
    expected = [c.expects["output"].tolist() for c in loadrun.load(path).testcases]
    assert expected == [torch.relu(X * k).tolist() for k in (1, 2, 3)]
    with pytest.raises(UsageError, match="tensors or 'example', found '#ones'"):
        save(torch.nn.ReLU(), path, (X,), input_data="#ones")
    with pytest.raises(InputError, match="must be a tensor, found 1180591620717411303424"):
        save(torch.nn.ReLU(), path, (X,), input_data=2**70)


def test_the_program_and_the_graph_give_what_torch_gave(tmp_path: Path) -> None:
    path = written(tmp_path)
    for engine, way, kind in (
        ("reference", "", "int64"),
        ("torch", "native", "int64"),
    ):
        result = loadrun.Runner(path, engine).replay_one(0)
        assert result.verdict.value == "pass"
        assert result.engine is not None
        assert result.engine.way == way
        assert result["a"].tolist() == [[0.5, 3.0], [3.5, 1.0]]
        assert (result["b"].shape, result["b"].tolist()) == ((), 0.0)
        assert {o.name: o.dtype.spelling for o in result.outputs} == {
            "a": "float32",
            "b": "float32",
            "n": kind,
        }


def test_torch_reads_the_file_as_any_other(tmp_path: Path) -> None:
    program = torch.export.load(written(tmp_path))
    assert program.module()(*INPUTS, **K)["n"].tolist() == [3, 6]


def test_wrong_values_fail_on_both_sides(tmp_path: Path) -> None:
    path = written(tmp_path)
    with zipfile.ZipFile(path) as archive:
        records = {i.filename: archive.read(i) for i in archive.infolist()}
    (name,) = (
        n for n, data in records.items() if n.endswith(".npy") and np.load(_file(data)).tolist() == [3, 6]
    )
    data = records[name]
    records[name] = data[:-16] + np.array([3, 7], "<i8").tobytes()
    changed = tmp_path / "changed.pt2"
    with zipfile.ZipFile(changed, "w") as archive:
        for n, value in records.items():
            archive.writestr(n, value)
    for engine in ("reference", "torch"):
        result = loadrun.Runner(changed, engine).replay_one(0)
        assert {o.name: o.verdict.value for o in result.outputs} == {"a": "pass", "b": "pass", "n": "fail"}


@pytest.mark.parametrize("engine", ["reference", "torch"])
def test_an_expected_value_of_another_dtype_fails(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net(), INPUTS, K), path)
    # ReLU of x, plus k; the sum; three times i. The numbers are right, in other types.
    values = {"x": X.numpy(), "i": INPUTS[1].numpy(), "k": K["k"].numpy()}
    values |= {"a:expect": np.array([[0.5, 3], [3.5, 1]], "f8"), "b:expect": np.float32(0)}
    values["n:expect"] = np.array([3, 6], "i4")
    append_cases(path, [values], {"maxerr": {}})
    result = loadrun.Runner(path, engine).replay_one(0)
    assert {o.name: (o.verdict.value, o.notes) for o in result.outputs} == {
        "a": ("fail", ("its expected value holds float64, but the program has float32",)),
        "b": ("pass", ()),
        "n": ("fail", ("its expected value holds int32, but the program has int64",)),
    }
    assert main([str(path), "--engine", engine, "-q"]) == 1


def _file(data: bytes) -> Any:
    import io

    return io.BytesIO(data)


def test_further_cases_sizes_and_tolerances(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    rows = torch.export.Dim("rows", min=2, max=64)
    shapes = {"input": {0: rows}}
    save(
        torch.nn.ReLU(),
        path,
        (X,),
        cases=[(torch.full((5, 2), -1.0),)],
        maxerr={"output": 0.25},
        dynamic_shapes=shapes,
    )
    for engine in ("reference", "torch"):
        results = list(loadrun.Runner(path, engine).replay())
        assert [r.verdict.value for r in results] == ["pass", "pass"]
        assert [r.outputs[0].shape for r in results] == [(2, 2), (5, 2)]
        assert {r.outputs[0].tolerance.maxerr for r in results} == {0.25}
    assert loadrun.Runner(path, "torch").run({"input": np.full((3, 2), 4, "f4")})["output"].sum() == 24
    with pytest.raises(InputError, match="the input 'input' is missing"):
        loadrun.Runner(path, "torch").run({})
    for maxerr, text in (
        ({"y": 1}, "maxerr names the output 'y'; the outputs are 'output'"),
        (
            "1e-3",
            "maxerr must be a finite number >= 0, found '1e-3'",
        ),
    ):
        with pytest.raises(UsageError, match=text):
            save(torch.nn.ReLU(), path, (X,), maxerr=maxerr)
    with pytest.raises(UsageError, match=r"must be called NAME.pt2 or NAME.mge, found .*net.pt"):
        save(torch.nn.ReLU(), tmp_path / "net.pt", X)


@pytest.mark.parametrize("args", [X, X.numpy()], ids=["tensor", "array"])
@pytest.mark.parametrize("name", ["net.pt2", "net.mge"])
def test_a_single_argument_needs_no_tuple(args: Any, name: str, tmp_path: Path) -> None:
    save(torch.nn.ReLU(), tmp_path / name, args)
    (case,) = loadrun.load(tmp_path / name).testcases
    assert [v.tolist() for v in case.expects.values()] == [[[0, 2], [3, 0]]]


def test_every_size_may_be_open(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    save(torch.nn.ReLU(), path, (X,), cases=[(torch.tensor([[1.0, -2.0, 3.0]]),)], dynamic_shapes=True)
    for engine in ("torch", "reference"):
        outputs = [r.outputs[0] for r in loadrun.Runner(path, engine).replay()]
        assert [o.value.tolist() for o in outputs] == [[[0, 2], [3, 0]], [[1, 0, 3]]]


def test_what_torch_cannot_write(tmp_path: Path) -> None:
    pair = namedtuple("pair", "a b")
    with pytest.raises(TraceError, match=r"torch cannot write the program: .*namedtuple"):
        save(lambda p: p.a + p.b, tmp_path / "net.pt2", (pair(X, X),))
    assert not list(tmp_path.iterdir())


def test_a_file_of_torchs_own_has_its_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "own.pt2")
    torch.export.save(torch.export.export(Net(), INPUTS, K), path)
    assert main([path]) == 3
    assert "the testcases have no expected outputs" in capsys.readouterr().out
    assert main([path, "--engine", "reference,torch"]) == 3
    assert main([path, "--engine", "reference,torch", "--check", "maxerr<=1e-6"]) == 0
    assert "6 checks" not in capsys.readouterr().err


def test_what_only_torch_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.pt2"
    save(Eigenvalues(), path, (torch.tensor([[2.0, 1.0], [1.0, 2.0]]),))
    with pytest.raises(UnsupportedError, match=r"aten\.linalg_eig"):
        loadrun.load(path)
    assert main([str(path), "--engine", "torch"]) == 0
    assert "not run by the reference engine" in capsys.readouterr().out
    result = loadrun.Runner(path, "torch").replay_one(0)
    assert sorted(result["output"].tolist()) == pytest.approx([1, 3], rel=1e-6)
    assert main([str(tmp_path), "--engine", "reference,torch"]) == 3
    assert "not run by reference" in capsys.readouterr().out
    assert main([str(tmp_path), "--engine", "reference,torch", "--allow-uncompared"]) == 0


def test_buffers_begin_anew_in_every_run(tmp_path: Path) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    path = tmp_path / "c.pt2"
    save(Counter(), path, (torch.zeros(1),))
    with pytest.warns(TraceWarning, match="changes its buffers"):
        runner = loadrun.Runner(path, "torch")
    assert [runner.run({"x": np.zeros(1, "f4")})["output"].tolist() for _ in range(2)] == [[1.0], [1.0]]


def test_damage_is_said(tmp_path: Path) -> None:
    """In plain words; what torch and Python's archives say of it is the cause."""
    path = tmp_path / "x.pt2"
    for content, said in (
        ({"x": b""}, "it is damaged, or was written by another version"),
        ({"a/archive_format": b"pt2", "a/models/model.json": b"{"}, "a/models/model.json in it is damaged"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
        with pytest.raises(FormatError, match=said) as told:
            loadrun.load(path)
        assert told.value.__cause__ is not None
        assert str(told.value.__cause__) not in str(told.value)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FormatError, match="the archive is damaged or not complete") as told:
        loadrun.load(path)
    assert str(told.value.__cause__) == "File is not a zip file"


def test_pytest_collects_programs_with_testcases(tmp_path: Path) -> None:
    written(tmp_path)
    torch.export.save(torch.export.export(Net(), INPUTS, K), tmp_path / "plain.pt2")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-q",
        str(tmp_path),
    ]
    for engine in ("reference", "torch"):
        ran = subprocess.run(
            [*command, "--loadrun-engine", engine], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "3 passed" in ran.stdout


class OfDict(torch.nn.Module):
    def forward(self, batch):
        return batch["x"] * 2


@pytest.mark.parametrize("name", ["net.pt2", "net.mge"])
def test_a_dict_alone_is_one_argument(name, tmp_path):
    # As `torch.jit.trace` takes it.
    example = {"x": torch.tensor([1.0, 2.0])}
    torch.testing.assert_close(loadrun.torch.trace(OfDict(), example)(example), torch.tensor([2.0, 4.0]))
    loadrun.torch.save(OfDict(), tmp_path / name, example)
    (result,) = loadrun.Runner(tmp_path / name).replay()
    assert result.verdict.value == "pass"


@pytest.mark.parametrize("name", ["net.mge", "net.pt2"])
def test_small_numbers_beside_large_ones_are_given_their_rounding(name, tmp_path):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    with torch.no_grad():
        for layer in layers:
            layer.weight *= 30
    with pytest.warns(UserWarning, match=r"the tolerance of 'output' is 0.00\d instead of 0.0001"):
        loadrun.torch.save(layers, tmp_path / name, (torch.rand(16, 64),))
    (result,) = loadrun.run(tmp_path / name)
    assert result.verdict.value == "pass"


def test_conditions_with_builtin_functions(tmp_path: Path) -> None:
    """Torch writes those of a diagonal with ``min``."""

    class Diagonal(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.clone()
            y.diagonal(1).copy_(y.diagonal(1) * 2)
            return y

    sizes = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(Diagonal(), (torch.ones(4, 6),), dynamic_shapes=(sizes,))
    assert any("min(" in code for code in program._guards_code)
    torch.export.save(program, tmp_path / "d.pt2")
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    result = loadrun.Runner(tmp_path / "d.pt2").run({"x": x})
    np.testing.assert_array_equal(result[result.outputs[0].name], x + x * np.eye(5, 8, 1))


def test_inputs_that_nothing_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They can be fed, and stay in the signature of a file that is converted."""

    class Half(torch.nn.Module):
        def forward(self, u: Any, x: Any, w: Any) -> Any:
            return x * 2

    arguments = (torch.ones(3), X, torch.tensor([1, 2]))
    save(Half(), tmp_path / "h.pt2", arguments)
    fed = dict(zip("uxw", (a.numpy() for a in arguments), strict=True))
    result = loadrun.Runner(tmp_path / "h.pt2").run(fed)
    np.testing.assert_array_equal(result[result.outputs[0].name], X.numpy() * 2)
    pytest.importorskip("onnx", reason="models are written with the package onnx")
    convert_file(tmp_path / "h.pt2", tmp_path / "h.onnx")
    bundle = loadrun.load(tmp_path / "h.onnx")
    assert [v.name for v in bundle.inputs] == ["u", "x", "w"]
    assert list(bundle.testcases[0].inputs) == ["u", "x", "w"]
    assert main([str(tmp_path / "h.onnx")]) == 0
    assert main([str(tmp_path / "h.pt2")]) == 0
    capsys.readouterr()


def test_programs_of_mapped_functions(tmp_path: Path) -> None:
    """The calls that torch.vmap leaves in a program are known, and run nothing of the file."""

    class Mapped(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.vmap(lambda a: a * a.sum())(x)

    program = torch.export.export(Mapped(), (X,), strict=False)
    torch.export.save(program, tmp_path / "v.pt2")
    result = loadrun.Runner(tmp_path / "v.pt2").run({"x": X.numpy()})
    np.testing.assert_array_equal(result[result.outputs[0].name], [[-1, 2], [-3, 4]])


class Unread(torch.nn.Module):
    def forward(self, x: Any, n: int) -> Any:
        return x * n


def test_a_program_with_an_input_that_nothing_reads_is_packed(tmp_path: Path) -> None:
    """A number is part of the program; the model does without the input."""
    save(Unread(), tmp_path / "a.pt2", (X, 4))
    assert main(["pack", str(tmp_path / "a.pt2"), "-o", str(tmp_path / "a.mge"), "-q"]) == 0
    (case,) = loadrun.load(tmp_path / "a.mge").testcases
    (expect,) = case.expects.values()
    np.testing.assert_array_equal(expect, X.numpy() * 4)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "format: expected a whole number from 1 to 1, found the number 2"),
        ({"maxerr": {"a": True}}, "maxerr.a: expected a finite number of at least 0, found the truth value"),
        ({"maxerr": {"": float("nan")}}, "expected a finite number of at least 0, found the number nan"),
        ({"accepted": "abc"}, "accepted: expected a list"),
        ({"testcases": [{"x": 5}]}, r"testcases\[0\].x: expected a text, found the number 5"),
        ({"testcases": [{"x": "0.0.npy"}, {"x": "0.0.npy"}]}, "a file is the value of two names"),
    ],
)
def test_damaged_testcases(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    with saved(written(tmp_path)) as old, zipfile.ZipFile(tmp_path / "b.pt2", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("testcases.json"):
                data = json.dumps({**json.loads(data), **change}).encode()
            new.writestr(name, data)
    with pytest.raises(FormatError, match=f"the testcases in it are damaged: .*{why}"):
        loadrun.load(tmp_path / "b.pt2")


def test_packed_sequences(tmp_path: Path) -> None:
    rnn = torch.nn.utils.rnn

    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = torch.nn.GRU(4, 3, batch_first=True)

        def forward(self, x: Any, lengths: Any) -> Any:
            packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)

    net, file = Packed().eval(), tmp_path / "net.pt2"
    save(net, file, (torch.rand(3, 5, 4), torch.tensor([5, 2, 4])))
    assert [r.verdict.value for r in loadrun.run(file)] == ["pass"]
    args = torch.rand(3, 5, 4), torch.tensor([1, 5, 3])
    for got, want in zip(torch.export.load(file).module()(*args), net(*args), strict=True):
        torch.testing.assert_close(got, want)


def test_results_that_are_rounding_alone_pass(tmp_path: Path) -> None:
    """What is 0 but for rounding has no tolerance from its own size."""
    x, file = torch.linspace(-3, 3, 12).reshape(3, 4), tmp_path / "net.pt2"
    with pytest.warns(UserWarning, match="10 times the noise"):
        save(lambda x: (x.log_softmax(1).exp() - x.softmax(1)).sum(), file, x)
    assert [r.verdict.value for r in loadrun.run(file)] == ["pass"]


def test_testcases_that_are_damaged_or_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The archive promises them in its comment, which torch skips; each file in it has a checksum of its own."""
    path = tmp_path / "m.pt2"
    loadrun.torch.save(torch.nn.ReLU(), path, (torch.arange(6.0) - 3,), maxerr={"": 1e-6})
    assert torch.export.load(path).module()(torch.tensor([-1.0] * 5 + [2.0])).tolist() == [0.0] * 5 + [2.0]
    assert main([str(path), "-q"]) == 0

    def rewritten(change: Callable[[str, bytes], bytes | None], comment: Callable[[bytes], bytes]) -> str:
        target = tmp_path / "changed.pt2"
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
            for info in old.infolist():
                content = change(info.filename, old.read(info))
                if content is not None:
                    new.writestr(info.filename, content)
            new.comment = comment(old.comment)
        return str(target)

    def loosened(name: str, content: bytes) -> bytes:
        return content.replace(b"1e-06", b"1e+06") if name.endswith("loadrun/testcases.json") else content

    def without_index(name: str, content: bytes) -> bytes | None:
        return None if name.endswith("loadrun/testcases.json") else content

    def same(name: str, content: bytes) -> bytes:
        return content

    for change, comment in (
        (loosened, bytes),
        (without_index, bytes),
        (loosened, lambda _: b""),
        (same, lambda said: said[:-1]),
        (same, lambda said: said[:-32] + said[-32:].upper()),
    ):
        assert main([rewritten(change, comment), "-q"]) == 2
    assert "promises" in capsys.readouterr().err
    assert main([rewritten(same, lambda _: b""), "-q"]) == 0
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        index = next(i for i in archive.infolist() if i.filename.endswith("loadrun/testcases.json"))
    start = data.index(b'{"format"')
    for at in range(start, start + index.file_size):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(FormatError):
            read_program(io.BytesIO(flipped))


class Scaled(torch.nn.Module):
    """A result whose values depend on the sizes."""

    def forward(self, x: Any, y: Any) -> Any:
        return x.sum(1) / x.shape[1] + y.mean()


class Branch(torch.nn.Module):
    """Another result for large sizes."""

    def forward(self, x: Any) -> Any:
        return x * 2 if x.shape[1] <= 50 else x.sum()


def exported(path: Path, module: Any, args: tuple[Any, ...], shapes: Any) -> Path:
    torch.export.save(torch.export.export(module, args, dynamic_shapes=shapes), path)
    return path


def bounded() -> tuple[Any, Any]:
    h = torch.export.Dim("h", min=4, max=8)
    return {1: h}, {0: 2 * h}


def derived() -> tuple[Any, Any]:
    h = torch.export.Dim("h")
    return {1: 2 * h}, {0: 2 * h + 1}


@pytest.mark.parametrize(
    ("shapes", "fine", "refused"),
    [
        (
            bounded,
            [(4, 8), (8, 16)],
            {
                (
                    20,
                    40,
                ): r"input 'x' has shape \[3, 20\], but the program was exported for .* x.size\(\)\[1\] <= 8",
                (3, 6): r"x.size\(\)\[1\] >= 4",
                (6, 13): r"input 'y' has shape \[13\] and input 'x' .* y.size\(\)\[0\] == 2\*x.size\(\)\[1\]",
            },
        ),
        (
            derived,
            [(8, 9), (20, 21)],
            {(7, 8): r"x.size\(\)\[1\] % 2 == 0", (8, 10): r"y.size\(\)\[0\] == "},
        ),
    ],
)
def test_sizes_are_those_that_the_program_declares(
    shapes: Any, fine: list[tuple[int, int]], refused: dict[tuple[int, int], str], tmp_path: Path
) -> None:
    x, y = shapes()
    args = torch.ones(3, 6), torch.ones(12 if shapes is bounded else 7)
    path = exported(tmp_path / "net.pt2", Scaled(), args, {"x": x, "y": y})
    runner = loadrun.Runner(path)
    for n, m in fine:
        feeds = {"x": numbers(3, n), "y": numbers(m)}
        want = Scaled()(*map(torch.from_numpy, feeds.values())).numpy()
        np.testing.assert_allclose(runner.run(feeds).outputs[0].value, want, rtol=1e-6)
    out = str(tmp_path / "out.mge")
    for (n, m), why in refused.items():
        with pytest.raises(InputError, match=why):
            runner.run({"x": numbers(3, n), "y": numbers(m)})
        for options in ([], ["--no-assert", "--replace"]):
            assert main(["pack", str(path), "-d", f"x:{{3,{n}}};y:{{{m}}}", "-o", out, *options]) == 2
    assert not Path(out).exists()
    assert main(["info", str(path)]) == 0


def numbers(*shape: int) -> Any:
    return np.random.default_rng(3).random(shape, np.float32)


def test_a_branch_on_a_size_is_a_condition_of_the_file(tmp_path: Path) -> None:
    """Torch refuses 60, at which the module gives a sum and the graph that was exported a product."""
    path = exported(tmp_path / "net.pt2", Branch(), (torch.ones(3, 6),), {"x": {1: torch.export.Dim.AUTO}})
    runner = loadrun.Runner(path)
    np.testing.assert_array_equal(runner.run({"x": np.ones((3, 50), "f4")}).outputs[0].value, 2)
    with pytest.raises(InputError, match=r"x.size\(\)\[1\] <= 50"):
        runner.run({"x": np.ones((3, 60), "f4")})


def test_torch_runs_programs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "the engine torch runs .pt2 files of torch.export and no other models"
    assert main(["fixtures/nets/mlp.mge", "--engine", "torch"]) == 2
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
    assert main([str(written(tmp_path)), "--engine", "torch:translated"]) == 2
    assert "takes nothing after a colon, found 'translated'" in capsys.readouterr().err


def test_operators_by_torchs_profiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--engine", "torch", "--min-time", "0", "--min-passes", "1", "--top", "50"]
    assert main(["bench", str(written(tmp_path)), *flags]) == 0
    shown = capsys.readouterr().out
    assert " on torch " in shown
    assert "aten::relu" in shown
