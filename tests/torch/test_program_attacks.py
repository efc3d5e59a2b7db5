"""Exported programs that would run code while torch reads them are refused, and nothing of them runs."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import loadrun  # noqa: E402  torch may be missing
from loadrun.base.errors import FormatError  # noqa: E402
from loadrun.torch.archive import _check_expression, _check_operator, _guarding, _is_expression  # noqa: E402

Edit = Callable[[str, bytes], "bytes | None"]


class Doubled(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return torch.relu(x) * x.shape[0]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "a.pt2"
    size = torch.export.Dim("n", min=2, max=16)
    exported = torch.export.export(Doubled(), (torch.ones(3, 2),), dynamic_shapes=({0: size},))
    torch.export.save(exported, path)
    return path


def rewritten(program: Path, target: Path, edit: Edit, *more: tuple[str, bytes]) -> Path:
    """The program with other files in its archive; one for which `edit` gives None is as it was."""
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            new.writestr(info.filename, edit(info.filename, content) or content)
        root = next(n for n in old.namelist() if n.endswith("archive_format"))[: -len("archive_format")]
        for name, content in more:
            new.writestr(root + name, content)
    return target


def in_model(change: Callable[[Any], None]) -> Edit:
    def edit(name: str, content: bytes) -> bytes | None:
        if not name.endswith("model.json"):
            return None
        data = json.loads(content)
        change(data)
        return json.dumps(data).encode()

    return edit


def parts(data: Any) -> list[dict[str, Any]]:
    """Every object in some JSON."""
    found: list[dict[str, Any]] = [data] if isinstance(data, dict) else []
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return found + [p for v in inside for p in parts(v)]


def test_a_program_is_read_as_before(program: Path, tmp_path: Path) -> None:
    for path in (program, rewritten(program, tmp_path / "b.pt2", lambda *_: None)):
        bundle = loadrun.load(path)
        assert [v.name for v in bundle.inputs] == ["x"]
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


def test_sizes_that_are_code(program: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def change(data: Any) -> None:
        (*_, last) = [p for p in parts(data) if "expr_str" in p]
        last["expr_str"] = code

    path = rewritten(program, tmp_path / "b.pt2", in_model(change))
    with pytest.raises(FormatError, match="is no arithmetic of sizes"):
        loadrun.load(path)
    assert not mark.exists()


class Touch:
    """An object whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_example_inputs_that_are_objects(program: Path, tmp_path: Path) -> None:
    mark, buffer = tmp_path / "ran", io.BytesIO()
    torch.save(Touch(mark), buffer)
    path = rewritten(
        program, tmp_path / "b.pt2", lambda name, _: buffer.getvalue() if name.endswith("model.pt") else None
    )
    with pytest.raises(FormatError, match="Python objects that are no tensors"):
        loadrun.load(path)
    assert not mark.exists()


def test_constants_that_are_objects(program: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}

    def edit(name: str, _: bytes) -> bytes | None:
        return json.dumps({"config": {"o": entry}}).encode() if "constants_config" in name else None

    kept = ("data/constants/opaque_obj_0", pickle.dumps(Touch(mark)))
    with pytest.raises(FormatError, match=r"Python object \(opaque_obj_0\)"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", edit, kept))
    assert not mark.exists()


def test_functions_that_are_no_operators(program: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        next(p for p in parts(data) if "relu" in str(p.get("target", "")))["target"] = "torch.hub.load"

    with pytest.raises(FormatError, match=r"'torch\.hub\.load', which is no operator"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))


def test_names_that_are_code(program: Path, tmp_path: Path) -> None:
    """What torch would write into the code of a module and run."""
    mark = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def input_name(data: Any) -> None:
        for part in parts(data):
            for key, value in part.items():
                if value == "x" or value == ["x"]:
                    part[key] = f"x={code}" if value == "x" else [f"x={code}"]

    def argument_name(data: Any) -> None:
        next(p for p in parts(data) if "forward_arg_names" in p)["forward_arg_names"] = [f"x={code}"]

    def keyword(data: Any) -> None:
        (part,) = (p for p in parts(data) if p.get("in_spec"))
        part["in_spec"] = part["in_spec"].replace(
            '"context": "[]"', f'"context": {json.dumps(json.dumps([code]))}'
        )

    def guard(data: Any) -> None:
        data["guards_code"] = [f"{code} or True"]

    def module_name(data: Any) -> None:
        next(p for p in parts(data) if "fqn" in p)["fqn"] = f'a", {code}) #'

    for change in (input_name, argument_name, keyword, guard, module_name):
        path = rewritten(program, tmp_path / f"{change.__name__}.pt2", in_model(change))
        with pytest.raises(FormatError, match="would be run as Python"):
            loadrun.Runner(loadrun.load(path)).run()
        assert not mark.exists()


def test_a_value_that_is_called_metadata_is_looked_at(program: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        values = data["graph_module"]["graph"]["tensor_values"]
        values["metadata"] = {"sizes": [{"as_expr": {"expr_str": "exit()", "hint": None}}]}

    with pytest.raises(FormatError, match="is no arithmetic of sizes"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("(L['x'].size()[0] % 2) == 0", True),
        ("L['k']['a b'].size()[1]*L['args'][0].stride()[0] > 20", True),
        ("Eq(Mod(L['x'].size()[0], 2), 0) and math.trunc(L['x'].size()[0]/2) >= 1", True),
        ("math.trunc(0.6*torch.sym_float(L['x'].size()[2])) != 1", True),
        ("torch.load(L['x'])", False),
        ("__import__('os')", False),
        ("L['x'].__class__", False),
        ("math.__loader__", False),
        ("L['x'].size()[0] == 3 or exit()", False),
        ("""L['a", exit(), "']""", False),
        ("9**9**9**9", False),
    ],
)
def test_conditions_on_sizes(text: str, allowed: bool) -> None:
    assert _is_expression(text, _guarding) == allowed


@pytest.mark.parametrize("dim", [None, 1.5, "0", float("nan")])
def test_arguments_that_an_operator_does_not_take(program: Path, tmp_path: Path, dim: object) -> None:
    def change(data: Any) -> None:
        node = next(p for p in parts(data) if p.get("target") == "torch.ops.aten.relu.default")
        node["target"] = "torch.ops.aten.sum.dim_IntList"
        node["inputs"].append({"name": "dim", "arg": {"as_ints": [dim]}, "kind": 1})

    with pytest.raises(FormatError, match=r"aten\.sum\.dim_IntList gets \["):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))


def test_arguments_that_an_operator_lacks(program: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        next(p for p in parts(data) if "relu" in str(p.get("target")))["target"] = (
            "torch.ops.prims.fft_r2c.default"
        )

    with pytest.raises(FormatError, match=r"fft_r2c\.default lacks its argument dim"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))


def test_compiled_code_and_double_names(program: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="compiled code"):
        loadrun.load(
            rewritten(
                program, tmp_path / "b.pt2", lambda *_: None, ("data/aotinductor/model/m.so", b"\x7fELF")
            )
        )
    with pytest.raises(FormatError, match="have the same name"):
        loadrun.load(rewritten(program, tmp_path / "c.pt2", lambda *_: None, ("Models/Model.json", b"{}")))


def test_torch_gets_only_what_was_looked_at(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that belong to no file of the archive, in which another reader might find one."""
    path, given = tmp_path / "b.pt2", []
    path.write_bytes(b"PK\x03\x04 hidden" + program.read_bytes())
    read = torch.export.load
    monkeypatch.setattr(torch.export, "load", lambda f: given.append(f) or read(f))
    loadrun.load(path)
    (checked,) = given
    assert b"hidden" in path.read_bytes()
    assert b"hidden" not in checked.getvalue()


def test_an_archive_that_unfolds(program: Path, tmp_path: Path) -> None:
    path = rewritten(program, tmp_path / "b.pt2", lambda *_: None)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/extra/zeros", bytes(70 << 20))
    with pytest.raises(FormatError, match="unfolds to more than"):
        loadrun.load(path)


def test_json_that_unfolds(program: Path, tmp_path: Path) -> None:
    """A file of 10 kB would take a minute and 2 GB."""
    path = rewritten(program, tmp_path / "b.pt2", lambda *_: None)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/extra/many.json", b"[" + b"{}," * (2 << 20) + b"{}]")
    with pytest.raises(FormatError, match="of JSON"):
        loadrun.load(path)


@pytest.mark.parametrize(
    "text",
    [
        "s77",
        "Symbol('s77', positive=True, integer=True)",
        "2*s0 + 1",
        "Mul(Integer(2), Symbol('s0', integer=True), Pow(Symbol('s1'), Integer(-1)))",
        "s0**2",
        "FloorDiv(s0, 2) - Max(1, s1)",
        "Eq(Mod(s0, 2), 0)",
        "-1.5*s0",
    ],
)
def test_sizes_that_are_sizes(text: str) -> None:
    _check_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "lambdify('x', 'y')",
        "sympify('x')",
        "().__class__",
        "(lambda: 0)()",
        "[x for x in y]",
        "9**9**9**9",
        "Pow(Integer(9), Integer(10000000))",
        "LShift(1, 10**12)",
        "s0**s1**9",
        "Symbol('__import__(1)')",
        "f'{x}'",
        "x := 3",
        "9" * 5000,
        "(" * 3000,
        "s0[0]",
    ],
)
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(FormatError, match="no arithmetic of sizes"):
        _check_expression(text)


def test_operators() -> None:
    for target in (
        "torch.ops.aten.add.Tensor",
        "torch.ops.higher_order.cond",
        "_operator.mul",
        "torch.sym_max",
    ):
        _check_operator(target)
    for target in (
        "torch.ops.load_library",
        "_operator.methodcaller",
        "torch.ops.aten.from_file.default",
        "torch.load",
    ):
        with pytest.raises(FormatError, match="no operator"):
            _check_operator(target)


def test_an_argument_twice(program: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        first, second = next(p for p in parts(data) if "mul" in str(p.get("target", "")))["inputs"]
        first["kind"], second["kind"] = 2, 1

    with pytest.raises(FormatError, match=r"mul\.Tensor gets self twice, by place and by name"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))


def test_arguments_by_name(program: Path, tmp_path: Path) -> None:
    """Torch writes them by place, but takes them by name, too."""

    def change(data: Any) -> None:
        for part in parts(data):
            part.update({"kind": 2} if part.get("kind") == 1 and "arg" in part else {})

    bundle = loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))
    assert [r.verdict.value for r in loadrun.Runner(bundle).replay()] == ["not compared"]


def test_metadata_that_are_no_texts(program: Path, tmp_path: Path) -> None:
    def change(data: Any) -> None:
        next(p for p in parts(data) if "mul" in str(p.get("target", "")))["metadata"]["stack_trace"] = 1

    with pytest.raises(FormatError, match=r"the metadata of torch.ops.aten.mul.Tensor are not texts"):
        loadrun.load(rewritten(program, tmp_path / "b.pt2", in_model(change)))
