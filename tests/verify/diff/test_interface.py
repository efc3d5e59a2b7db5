"""What two models promise to their callers, and what their files hold, is compared before what they compute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.testing import GraphBuilder

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_files import model, write

F32, F64, I64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def branches(
    folder: Path,
    name: str,
    *,
    outputs: Sequence[tuple[str, int, Sequence[int]]] = (("y", F32, [2, 3]), ("z", F32, [2, 3])),
    inputs: Sequence[str] = ("a", "b"),
    last: Any = None,
    slope: float = 0.5,
    shift: Sequence[float] = (1.0, 2.0, 3.0),
    opset: int = 18,
) -> str:
    """A file of y = leaky(a) + shift and z = y * b."""
    one, two = inputs
    nodes = [
        helper.make_node("LeakyRelu", [one], ["bent"], "leaky", alpha=slope),
        helper.make_node("Add", ["bent", "shift"], ["y"], "shifted"),
        *(last or [helper.make_node("Mul", ["y", two], ["z"], "scaled")]),
    ]
    stored = [numpy_helper.from_array(np.array(shift, "f4"), "shift")]
    fed = [(n, F32, [2, 3]) for n in sorted(inputs, key=("a", "b", *inputs).index)]
    made = model(nodes, fed, list(outputs), initializer=stored, opset=opset)
    return str(write(folder / name, made))


WIDE = [helper.make_node("Mul", ["y", "b"], ["m"], "scaled"), helper.make_node("Cast", ["m"], ["z"], to=F64)]
DEEPER = [
    helper.make_node("Mul", ["y", "b"], ["m"], "scaled"),
    helper.make_node("Unsqueeze", ["m", "axes"], ["z"], "deeper"),
]
Y, Z = ("y", F32, [2, 3]), ("z", F32, [2, 3])


@pytest.mark.parametrize(
    ("other", "there", "back"),
    [
        (
            {"outputs": [Y]},
            ["1 output against 2", "output 'z' is missing"],
            ["2 outputs against 1", "output 'z' is not in the reference"],
        ),
        (
            {"outputs": [Z, Y]},
            ["the outputs come in another order: z, y against y, z"],
            ["the outputs come in another order: y, z against z, y"],
        ),
        (
            {"outputs": [Y, ("z", F64, [2, 3])], "last": WIDE},
            ["output 'z' is Float64 against Float32"],
            ["output 'z' is Float32 against Float64"],
        ),
        (
            {
                "outputs": [Y, ("other", F32, [2, 3])],
                "last": [helper.make_node("Mul", ["y", "b"], ["other"])],
            },
            ["output 'other' is called 'z' in the reference"],
            ["output 'z' is called 'other' in the reference"],
        ),
        (
            {"inputs": ("a", "c"), "last": [helper.make_node("Mul", ["y", "c"], ["z"])]},
            ["input 'c' is called 'b' in the reference"],
            ["input 'b' is called 'c' in the reference"],
        ),
    ],
    ids=["number", "order", "dtype", "name", "input"],
)
def test_another_interface_is_a_failure(
    other: dict[str, Any],
    there: list[str],
    back: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All values that can be compared are the same; the file fails a caller all the same."""
    good, bad = branches(tmp_path, "good"), branches(tmp_path, "bad", **other)
    for pair, said in (((bad, good), there), ((good, bad), back)):
        assert main(["diff", pair[0], "--against", pair[1], "--json", str(tmp_path / "d.json")]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[: len(said)] == [f"the models differ before they run: {line}" for line in said]
        found = json.loads((tmp_path / "d.json").read_text())
        assert found["interface"] == said
        assert not found["agree"]
    assert main(["diff", good, "--against", good]) == 0


def test_another_rank_of_an_output_is_a_failure(tmp_path: Path) -> None:
    good = branches(tmp_path, "good")
    made = model(
        [
            helper.make_node("LeakyRelu", ["a"], ["bent"], "leaky", alpha=0.5),
            helper.make_node("Add", ["bent", "shift"], ["y"], "shifted"),
            *DEEPER,
        ],
        [("a", F32, [2, 3]), ("b", F32, [2, 3])],
        [Y, ("z", F32, None)],
        initializer=[
            numpy_helper.from_array(np.array([1, 2, 3], "f4"), "shift"),
            numpy_helper.from_array(np.array([0]), "axes"),
        ],
    )
    bad = str(write(tmp_path / "bad", made))
    assert loadrun.diff_files(bad, good).interface == ("output 'z' has 3 axes against 2",)
    assert loadrun.diff_files(good, bad).interface == ("output 'z' has 2 axes against 3",)


def test_inputs_in_another_order_and_of_another_rank(tmp_path: Path) -> None:
    files = []
    for name, fed in (
        ("good", [("a", F32, [2, 3]), ("b", F32, [1, 3])]),
        ("turned", [("b", F32, [1, 3]), ("a", F32, [2, 3])]),
        ("flat", [("a", F32, [2, 3]), ("b", F32, [3])]),
    ):
        made = model([helper.make_node("Sub", ["a", "b"], ["y"])], fed, [("y", F32, [2, 3])])
        files.append(str(write(tmp_path / name, made)))
    good, turned, flat = files
    assert loadrun.diff_files(turned, good).interface == (
        "the inputs come in another order: b, a against a, b",
    )
    # The one's random numbers do not fit the other.
    with pytest.warns(UserWarning, match="the values were not compared"):
        assert loadrun.diff_files(flat, good).interface == ("input 'b' has 1 axis against 2",)


def test_a_conversion_has_the_same_interface(tmp_path: Path) -> None:
    """A dump has no int64 and no scalars, and MegEngine names what has no name."""
    nodes = [
        helper.make_node("ReduceSum", ["a"], ["total"], keepdims=0),
        helper.make_node("ArgMax", ["a"], ["best"], axis=1, keepdims=0),
    ]
    made = model(nodes, [("a", F32, [2, 3])], [("total", F32, []), ("best", I64, [2])])
    onnx = write(tmp_path / "m", made)
    loadrun.convert_file(onnx, tmp_path / "m.mge")
    assert loadrun.diff_files(tmp_path / "m.mge", onnx).agree
    assert loadrun.diff_files(onnx, tmp_path / "m.mge").agree


def test_a_renamed_scalar_has_the_rank_that_it_had(tmp_path: Path) -> None:
    files = []
    for name in ("total", "other"):
        nodes = [helper.make_node("ReduceSum", ["a"], [name], keepdims=0)]
        files.append(write(tmp_path / name, model(nodes, [("a", F32, [2, 3])], [(name, F32, [])])))
    assert loadrun.diff_files(*files).interface == ("output 'total' is called 'other' in the reference",)


def test_a_program_and_its_dump_have_the_same_interface(tmp_path: Path) -> None:
    """Its int64 are int32 in a dump."""
    torch = pytest.importorskip("torch")
    for name in ("m.pt2", "m.mge"):
        loadrun.torch.save(torch.nn.Softmax(1), tmp_path / name, (torch.tensor([[1.0, 3.0, 2.0]]),))
        loadrun.torch.save(
            lambda x, i: (x[i], x.argmax(1)),
            tmp_path / f"i{name}",
            (torch.tensor([[1.0, 3.0, 2.0], [4.0, 5.0, 7.0]]), torch.tensor([1])),
        )
    for name in ("", "i"):
        assert loadrun.diff_files(tmp_path / f"{name}m.pt2", tmp_path / f"{name}m.mge").agree


def test_what_cannot_run_on_the_same_inputs_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = GraphBuilder()
    loadrun.save(b.done(b.elemwise("NEGATE", b.input("x", 3), name="y")), tmp_path / "one.mge")
    b = GraphBuilder()
    both = b.elemwise("ADD", b.input("x", 3), b.input("w", 3), name="y")
    loadrun.save(b.done(both), tmp_path / "two.mge")
    assert main(["diff", str(tmp_path / "one.mge"), str(tmp_path / "two.mge")]) == 1
    told = capsys.readouterr()
    assert "input 'w' is missing" in told.out
    assert "the values were not compared: the models have other inputs" in told.err


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"shift": (1.0, 2.5, 3.0)},
            "  constant 'shift' differs in 1 of 3 elements, most at [1]: 2.5 against 2",
        ),
        ({"slope": 0.25}, "to blame: LeakyRelu 'leaky' (operator 2): alpha 0.25 against 0.5"),
        (
            {"last": [helper.make_node("Div", ["y", "b"], ["z"], "scaled")]},
            "to blame: Div 'scaled' (operator 5): Div against Mul",
        ),
        (
            {"last": [helper.make_node("Mul", ["y", "a"], ["z"], "scaled")]},
            "to blame: Mul 'scaled' (operator 5): input 1 is 'a' against 'b'",
        ),
        (
            {
                "last": [
                    helper.make_node("Neg", ["y"], ["n"], "minus"),
                    helper.make_node("Mul", ["n", "b"], ["z"], "scaled"),
                ]
            },
            "to blame: Neg 'minus' (operator 5): it is not in the reference",
        ),
    ],
    ids=["initializer", "attribute", "operator", "input", "node"],
)
def test_files_are_compared_by_the_names_that_their_users_gave(
    other: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = branches(tmp_path, "good"), branches(tmp_path, "bad", **other)
    data = "a:[[-1,2,-3],[4,-5,6]];b:[[1,1,1],[2,2,3]]"
    assert main(["diff", bad, "--against", good, "--input", data]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == said
