"""Broken and malicious ONNX files: one error that says what is wrong, never another exception."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, FormatError, LoadRunError, OutOfMemoryError, UnsupportedError
from loadrun.cli import main
from loadrun.onnx.messages import looks_like
from loadrun.onnx.wire import packed_varints
from tests.onnx.wire_models import attribute, field, graph, model, node, number, tensor, value

MODELS = Path(__file__).parent.parent.parent / "fixtures" / "onnx"


def test_the_builder_makes_a_model() -> None:
    data = graph(node("Neg", ["x"], ["y"]))
    assert looks_like(memoryview(data))
    (result,) = loadrun.run(loadrun.loads(data))
    assert result["y"].shape == (2,)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (graph(node("Neg", ["z"], ["y"])), "reads 'z', which no earlier node computes"),
        (graph(node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])), "reads 'b'"),
        (graph(node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])), "two nodes compute 'y'"),
        (
            graph(node("Neg", ["x"], ["x"]), node("Abs", ["x"], ["y"])),
            "a node computes 'x', which is an input",
        ),
        (graph(node("Neg", ["x"], ["w"])), "no node computes the graph's output 'y'"),
        (model(node("Neg", ["x"], ["y"]), field(11, value("x"))), "has no outputs"),
        (field(1, 8) + field(7, b"\x0a\xff\x01"), "does not fit"),
        (field(1, 8) + field(7, field(1, field(1, b"\xff\xfe"))), "not UTF-8"),
        (field(1, 8) + field(8, field(2, 17)) + number(7 << 3 | 3), "a group"),
        (field(1, 8) + number(7 << 3 | 2) + b"\xff" * 11, "has no end"),
    ],
)
def test_contradictions(data: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=text) as caught:
        loadrun.load(path)
    assert str(caught.value).startswith(str(path))


def test_messages_that_lie_in_each_other() -> None:
    inner = b""
    for _ in range(100):
        # Graph, node, attribute, and so on.
        inner = field(1, field(5, field(6, inner)))
    with pytest.raises(FormatError, match="deeper than 64"):
        loadrun.loads(field(1, 8) + field(7, inner))


def test_a_function_that_calls_itself() -> None:
    own = node("Own", ["a"], ["b"], domain="d")[2:]
    body = field(1, "Own") + field(4, "a") + field(5, "b") + field(7, own) + field(10, "d")
    data = graph(node("Own", ["x"], ["y"], domain="d")) + field(25, body)
    with pytest.raises(FormatError, match="is nested in itself"):
        loadrun.loads(data)


@pytest.mark.parametrize("dims", [(1 << 40, 1 << 40), (-3,), (1 << 62,)])
def test_sizes_that_no_memory_holds(dims: tuple[int, ...]) -> None:
    weight = b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, "w") + field(9, b"\0" * 8)
    with pytest.raises(FormatError, match="'w'"):
        loadrun.loads(graph(node("Add", ["x", "w"], ["y"]), field(5, weight)))


def test_inputs_that_no_memory_holds() -> None:
    data = graph(node("Neg", ["x"], ["y"]), shape=(1 << 40, 1 << 40))
    with pytest.raises(LoadRunError):
        loadrun.run(loadrun.loads(data))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("../secret", "plain name inside the model's folder"),
        ("/etc/passwd", "plain name inside the model's folder"),
        ("a/../../secret", "plain name inside the model's folder"),
        ("C:\\secret", "plain name inside the model's folder"),
        ("", "plain name inside the model's folder"),
        ("link", "which leads to"),
        ("folder", "expected a plain file"),
        ("missing", "cannot be read"),
        ("short", "has 4"),
    ],
)
def test_external_data_outside_the_folder(place: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "a").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "short").write_bytes(b"\0" * 4)
    outside = field(13, field(1, "location") + field(2, place)) + field(
        13, field(1, "length") + field(2, "8")
    )
    weight = field(1, 2) + field(2, 1) + field(8, "w") + field(14, 1) + outside
    (folder / "m.onnx").write_bytes(graph(node("Add", ["x", "w"], ["y"]), field(5, weight)))
    with pytest.raises(FormatError, match=text):
        loadrun.load(folder / "m.onnx")


def test_external_data_inside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 4 + b"\0\0\x80\x3f" * 2)
    entries = {"location": "w.bin", "offset": "4", "length": "8"}
    outside = b"".join(field(13, field(1, k) + field(2, v)) for k, v in entries.items())
    weight = field(1, 2) + field(2, 1) + field(8, "w") + field(14, 1) + outside
    (tmp_path / "m.onnx").write_bytes(graph(node("Sub", ["w", "x"], ["y"]), field(5, weight)))
    (result,) = loadrun.run(tmp_path / "m.onnx")
    x = loadrun.random_inputs(loadrun.load(tmp_path / "m.onnx"))["x"]
    assert result["y"].tolist() == (1 - x).tolist()


def test_every_unsupported_node_is_named() -> None:
    data = graph(
        node("StringSplit", ["x"], ["a"]),
        node("Wonder", ["x"], ["b"], domain="own"),
        node("Neg", ["a"], ["c"]),
        node("Sum", ["b", "c"], ["y"]),
    )
    with pytest.raises(UnsupportedError) as caught:
        loadrun.loads(data)
    text = str(caught.value)
    assert "2 parts of the model" in text
    assert "'a' (StringSplit)" in text
    assert "'b' (own.Wonder)" in text
    assert "Neg" not in text


def test_integers_beyond_32_bits_are_kept() -> None:
    big = field(1, 1) + field(2, 7) + field(8, "big") + field(7, 1 << 40)
    parts = [
        node("Add", ["x", "big"], ["y"]),
        field(5, big),
        field(11, value("x", 7, (1,))),
        field(12, value("y", 7)),
    ]
    bundle = loadrun.loads(model(*parts))
    (found,) = loadrun.Runner(bundle).run({"x": np.array([2])}).outputs
    assert found.value is not None
    assert found.value.tolist() == [(1 << 40) + 2]


@pytest.mark.parametrize("size", [(1 << 42), (1 << 61)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_pictures_of_sizes_that_no_memory_holds(size: int, mode: str) -> None:
    sizes = field(5, tensor(np.array([1, 1, size, 2]), "s"))
    resize = node("Resize", ["x", "", "", "s"], ["y"], attribute("mode", mode))
    bundle = loadrun.loads(graph(resize, sizes, shape=(1, 1, 2, 2)))
    with pytest.raises(
        OutOfMemoryError, match=rf"Resize 'y' .* gives Float32 \[1, 1, {size}, 2\], .* of memory"
    ):
        loadrun.run(bundle)


def test_sizes_of_data_that_no_memory_holds() -> None:
    """They are known when the data are there, and are refused before there is an array of them."""
    inputs = [field(11, value("x")), field(11, value("s", 7, (1,)))]
    nodes = [node("Reshape", ["x", "one"], ["z"]), node("Tile", ["z", "s"], ["y"])]
    data = model(*nodes, field(5, tensor(np.array([-1]), "one")), *inputs, field(12, value("y", 1, ())))
    bundle = loadrun.loads(data)
    feeds = {"x": np.ones(2, np.float32), "s": np.array([1 << 40])}
    with pytest.raises(OutOfMemoryError, match=r"Tile 'y' .* gives Float32 \[2199023255552\], 8192.0 GiB"):
        loadrun.Runner(bundle).run(feeds)
    feeds["s"][0] = 2
    assert loadrun.Runner(bundle).run(feeds)["y"].tolist() == [1.0] * 4


def test_inputs_that_an_operator_cannot_take_are_shown() -> None:
    with pytest.raises(
        UnsupportedError, match=r"EyeLike 'y' .* cannot take shapes \[2\]: an input of 1 axes"
    ):
        loadrun.loads(graph(node("EyeLike", ["x"], ["y"])))


def test_indices_of_a_sparse_tensor_that_are_no_whole_numbers() -> None:
    values, where = tensor(np.ones(1, "f"), "w"), tensor(np.full(1, 0.5, "f"), "")
    sparse = field(15, field(1, values) + field(2, where) + field(3, 2))
    with pytest.raises(FormatError, match="the indices of a sparse tensor must be int64, found float32"):
        loadrun.loads(graph(node("Add", ["x", "w"], ["y"]), sparse))


@pytest.mark.parametrize("k", [1 << 62, -(1 << 62)])
def test_a_diagonal_that_is_far_away(k: int) -> None:
    bundle = loadrun.loads(graph(node("EyeLike", ["x"], ["y"], attribute("k", k)), shape=(2, 3)))
    (found,) = loadrun.Runner(bundle).run({"x": np.ones((2, 3), np.float32)}).outputs
    assert found.value is not None
    assert not found.value.any()


@pytest.mark.parametrize(("name", "broken"), [("control", 110), ("quantized", 110), ("dynamic", 100)])
def test_mutated_files(name: str, broken: int) -> None:
    whole = (MODELS / name / "model.onnx").read_bytes()
    random = Random(7)
    refused = 0
    for _ in range(120):
        data = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(data))
            if random.random() < 0.3:
                del data[at : at + random.randint(1, 9)]
            else:
                data[at] = random.randrange(256)
        try:
            loadrun.loads(bytes(data))
        except LoadRunError:
            refused += 1
    # Which of them fail before they run is a matter of the engine; all end with an error that says why.
    assert refused >= broken


def test_varints_of_several_bytes() -> None:
    numbers = [0, 1, 127, 128, 300, 2**31, 2**40, -1]
    data = b"".join(number(n) for n in numbers)
    assert packed_varints(memoryview(data)).tolist() == numbers


def test_errors_of_a_model_name_no_line_of_python() -> None:
    """Who reads a file is not where its operators are written."""
    data = graph(node("Concat", ["x", "x"], ["a"], attribute("axis", 0)), node("Add", ["a", "x"], ["y"]))
    with pytest.raises(UnsupportedError, match=r"do not broadcast$"):
        loadrun.loads(data)


@pytest.mark.parametrize(
    ("op", "reads", "at"),
    [
        ("Gather", "xi", [2**62]),
        ("GatherElements", "xi", [-(2**33)]),
        ("GatherND", "xi", [[2**62]]),
        ("ScatterND", "xix", [[2**62], [0]]),
        ("ScatterElements", "xix", [2**32, 1]),
    ],
)
def test_positions_outside_of_any_tensor(op: str, reads: str, at: object) -> None:
    """In 32 bits 2^62 would be the first element."""
    data = graph(node(op, [*reads], ["y"]), field(5, tensor(np.array(at, np.int64), "i")))
    with pytest.raises(EngineError, match=f"{op} 'y' .* out of (range|bounds)"):
        loadrun.run(loadrun.loads(data))


def test_cubic_shares_at_both_ends_of_many_rows() -> None:
    """At -0.5 the neighbours lie 1.5, 0.5, 0.5, 1.5 away: their shares are -3/32, 19/32, 19/32, -3/32."""
    scales = field(5, tensor(np.array([1, 1, 1e5, 1], np.float32), "s"))
    shape = (1, 1, 2, 1)
    cubic = [node("Resize", ["x", "", "s"], ["y"], attribute("mode", "cubic"))]
    bundle = loadrun.loads(graph(*cubic, scales, shape=shape))
    (result,) = loadrun.run(bundle, {"x": np.array([1, 3], "f4").reshape(shape)})
    rows = result["y"].reshape(-1)
    assert rows.shape == (200_000,)
    assert rows[[0, -1]].tolist() == pytest.approx([0.8125, 3.1875], abs=1e-3)
    assert rows[100_000] == pytest.approx(2.0, abs=1e-3)


def test_a_large_weight_is_computed_when_the_model_runs() -> None:
    data = graph(
        node("Constant", [], ["s"], attribute("value", np.array([1536, 2048, 1, 1]))),
        node("ConstantOfShape", ["s"], ["w"], attribute("value", np.full(1, 0.5, np.float32))),
        node("Conv", ["x", "w"], ["y"], attribute("group", 2)),
        shape=(1, 4096, 1, 1),
    )
    result = loadrun.Runner(loadrun.loads(data)).run({"x": np.ones((1, 4096, 1, 1), np.float32)})
    assert (result["y"] == 1024).all()


def test_info_names_the_file_of_a_model_that_cannot_be_expressed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(node("Nope", ["x"], ["y"])))
    for options in ([], ["--engine", "reference"]):
        assert main(["info", str(path), *options]) == 2
        assert capsys.readouterr().err.startswith(
            f"loadrun: {path}: 1 part of the model cannot be expressed:"
        )


@pytest.mark.parametrize("rows", [0, -1])
def test_regions_of_no_bins(rows: int) -> None:
    """Warnings are errors in tests: a division by the number of bins would be one."""
    stored = [
        field(5, tensor(np.zeros((1, 4), np.float32), "r")),
        field(5, tensor(np.zeros(1, np.int64), "i")),
    ]
    pooled = node("RoiAlign", ["x", "r", "i"], ["y"], attribute("output_height", rows))
    with pytest.raises(UnsupportedError, match=f"bins {rows}x1 with 0 points each; expected 1 and more"):
        loadrun.loads(graph(pooled, *stored, shape=(1, 1, 4, 4)))


@pytest.mark.parametrize(
    ("rate", "low", "high"),
    [(8000, -800.0, 4000.0), (8000, 0.0, np.inf), (0, 0.0, 4000.0), (8000, np.nan, 1.0)],
)
def test_frequencies_that_no_sound_has(rate: int, low: float, high: float) -> None:
    sizes = [field(5, tensor(np.array(v), n)) for n, v in (("b", 10), ("n", 16), ("rate", rate))]
    edges = [field(5, tensor(np.array(v, np.float32), n)) for n, v in (("low", low), ("high", high))]
    filters = node("MelWeightMatrix", ["b", "n", "rate", "low", "high"], ["y"])
    with pytest.raises(EngineError, match=f"MelWeightMatrix 'y' .* Hz at {rate} samples"):
        loadrun.run(loadrun.loads(graph(filters, *sizes, *edges)))
