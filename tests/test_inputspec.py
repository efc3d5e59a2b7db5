"""The input DSL: parsing, rendering, errors with a caret, loading."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadrun.dtypes import DType
from loadrun.errors import InputError, LoadRunError, SpecError
from loadrun.graph import Graph, Tensor, Var
from loadrun.inputdata import load_spec
from loadrun.inputspec import FILLS, Fill, InputSpec, ListFile, Part, PathSource, Values, parse
from loadrun.params import Host2DeviceCopy


def model(**inputs: tuple[str, tuple[int, ...]]) -> list[Var]:
    g = Graph()
    for name, (dtype, shape) in inputs.items():
        g.add("Host2DeviceCopy", Host2DeviceCopy(), tensors=[Tensor(DType(dtype), shape, name)], names=[name])
    return g.inputs


def load(text: str, inputs: list[Var], seed: int = 0) -> dict[str, np.ndarray]:
    return load_spec(parse(text), inputs, seed=seed)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.npy", [(None, PathSource("a.npy"))]),
        ("data:cat.jpg", [("data", PathSource("cat.jpg"))]),
        (" data : cat.jpg ; m : x y.npy ", [("data", PathSource("cat.jpg")), ("m", PathSource("x y.npy"))]),
        ("data:we:ird.npy", [("data", PathSource("we:ird.npy"))]),
        ("we::ird.npy", [(None, PathSource("we:ird.npy"))]),
        (r"C:\x\a.npy", [(None, PathSource(r"C:\x\a.npy"))]),
        (r"data:C:\x\a.npy", [("data", PathSource(r"C:\x\a.npy"))]),
        ("'semi;colon.npy'", [(None, PathSource("semi;colon.npy"))]),
        ('"a:b":"c;d.npy"', [("a:b", PathSource("c;d.npy"))]),
        ("x.npz!key", [(None, PathSource("x.npz", "key"))]),
        ("#rand(0,255)", [(None, Fill("rand", (0, 255)))]),
        ("#rand( -1.5e2 , +3 )", [(None, Fill("rand", (-150, 3)))]),
        ("a:#rand(0,1,2,...)", [("a", Fill("rand", (0, 1), (2,), True))]),
        ("#rand(0,1,...)", [(None, Fill("rand", (0, 1), (), True))]),
        ("#randn(0,1,4)", [(None, Fill("randn", (0, 1), (4,)))]),
        ("#randint(0,9,seed=3)", [(None, Fill("randint", (0, 9), seed=3))]),
        ("#zeros", [(None, Fill("zeros"))]),
        ("#full(.5,2,3)", [(None, Fill("full", (0.5,), (2, 3)))]),
        ("{1, 3,224,224}", [(None, Fill("rand", (0, 1), (1, 3, 224, 224), braces=True))]),
        ("[[1, 2],[3,4]]", [(None, Values("[[1,2],[3,4]]"))]),
        ("a:#ones;", [("a", Fill("ones"))]),
    ],
)
def test_parse(text: str, parts: list[tuple[str | None, object]]) -> None:
    assert [(p.name, p.source) for p in parse(text).parts] == parts


def test_list_file() -> None:
    assert parse("@ list.txt").listed == ListFile("list.txt")


@pytest.mark.parametrize(
    ("text", "caret", "message"),
    [
        ("", 0, "expected name:source, found nothing"),
        ("a:", 2, "expected a file"),
        ("a:#rand(0)", 2, "#rand takes 2 numbers before the shape, found 1"),
        ("a:#rnd(0,1)", 2, "unknown generator #rnd; known are #rand"),
        ("#rand(0,1", 9, "expected ')'"),
        ("#rand(0,x)", 8, "expected a number, found 'x'"),
        ("#rand(0,1,...,5)", 14, "nothing but seed=N may follow"),
        ("#rand(0,1,-5)", 10, "must not be negative"),
        ("#rand(0,1,2.5)", 10, "whole number"),
        ("a:b.npy;;c:d.npy", 8, "found nothing"),
        ("'abc", 0, "never closed"),
        ("[1,2", 0, "never closed"),
        ("[1,x]", 0, "nested lists of numbers"),
        ("{1,}", 3, "whole number in {shape}"),
        ("a:@list", 2, "must be the whole specification"),
        ("a:x;a:y", 4, "given twice"),
    ],
)
def test_errors_point_at_the_fault(text: str, caret: int, message: str) -> None:
    with pytest.raises(SpecError) as e:
        parse(text)
    lines = str(e.value).splitlines()
    assert message in lines[0]
    assert lines[1] == f"  {text}"
    if caret < len(text) or "expected" not in message:
        assert lines[2].index("^") - 2 == caret


names = st.text(st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="\"'"), min_size=1)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32).map(float)


@st.composite
def fills(draw: st.DrawFn) -> Fill:
    kind = draw(st.sampled_from(sorted(FILLS)))
    args = tuple(draw(numbers) for _ in range(FILLS[kind][1]))
    shape = draw(st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple))
    rest = shape is not None and draw(st.booleans())
    return Fill(kind, args, shape, rest, draw(st.none() | st.integers(0, 99)))


sources = st.builds(PathSource, names.filter(str.strip).map(str.strip)) | fills()


@given(st.lists(st.tuples(names.map(str.strip).filter(bool), sources), min_size=1, unique_by=lambda p: p[0]))
def test_rendering_parses_back(parts: list[tuple[str, Fill | PathSource]]) -> None:
    spec = InputSpec(tuple(Part(n, s) for n, s in parts))
    assert parse(str(spec)) == spec


@given(st.text(max_size=30))
def test_any_text_parses_or_fails_clearly(text: str) -> None:
    try:
        spec = parse(text)
    except SpecError:
        return
    assert parse(str(spec)) == spec


def test_one_generator_feeds_all_inputs() -> None:
    inputs = model(a=("Float32", (2, 3)), b=("Int32", (4,)))
    found = load("#rand(0,9)", inputs)
    assert {n: (a.shape, a.dtype.str) for n, a in found.items()} == {"a": ((2, 3), "<f4"), "b": ((4,), "<i4")}
    assert (found["a"] >= 0).all()
    assert (found["a"] < 9).all()


def test_generated_bytes_are_fixed() -> None:
    """Golden values: the stream is built from PCG64's raw words, which numpy guarantees."""
    x = load("#rand(0,1)", model(a=("Float32", (3,))))["a"]
    raw = np.random.PCG64(0).random_raw(3)
    np.testing.assert_array_equal(x, ((raw >> np.uint64(11)) * 2.0**-53).astype("f4"))
    assert (
        load("#rand(0,1,seed=5)", model(a=("Float32", (3,))), seed=1)["a"].tolist()
        == load("#rand(0,1,seed=5)", model(a=("Float32", (3,))), seed=2)["a"].tolist()
    )


def test_integers_are_truncated_and_wrap() -> None:
    assert load("#full(3.9)", model(a=("Int32", (2,))))["a"].tolist() == [3, 3]
    assert load("#full(300)", model(a=("Uint8", (2,))))["a"].tolist() == [44, 44]
    assert load("#full(2)", model(a=("Bool", (2,))))["a"].tolist() == [True, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("z:#ones", "no input 'z'; its inputs are a"),
        ("a:#ones", "no data for the input 'b'"),
        ("[1]", "say which input this is for"),
        ("a:#rand(0,1,7);b:#ones", "has 1 axes, the input has 2"),
        ("a:#rand(0,1,7,7,7,...);b:#ones", "gives 3 axes, the input has 2"),
        ("a:[1,2];b:#ones", "shape"),
        ("a:[[1],[2,3]];b:#ones", "not of equal lengths"),
    ],
)
def test_misfits(text: str, message: str) -> None:
    with pytest.raises(LoadRunError, match=message):
        load(text, model(a=("Float32", (2, 3)), b=("Float32", (4,))))


def test_files(tmp_path: Path) -> None:
    inputs = model(a=("Float32", (2, 2)))
    want = np.array([[1, 2], [3, 4]], "f4")
    np.save(tmp_path / "a.npy", want.astype("f8"))
    np.savez(tmp_path / "a.npz", a=want, b=want + 1)
    entry = {"a": {"shape": [2, 2], "type": "float32", "raw": [1, 2, 3, 4]}}
    (tmp_path / "a.json").write_text(json.dumps(entry))
    for name in ("a.npy", "a.npz", "a.json"):
        np.testing.assert_array_equal(load(f"a:{tmp_path}/{name}", inputs)["a"], want)
    np.testing.assert_array_equal(load(f"a:{tmp_path}/a.npz!b", inputs)["a"], want + 1)
    with pytest.raises(InputError, match="no array 'c'; it holds a, b"):
        load(f"a:{tmp_path}/a.npz!c", inputs)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(InputError, match="never unpickled"):
        load(f"a:{tmp_path}/o.npy", model(a=("Float32", (1,))))


def test_images(tmp_path: Path) -> None:
    import cv2

    bgr = np.random.default_rng(0).integers(0, 255, (4, 5, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "i.png"), bgr)
    path = f"a:{tmp_path}/i.png"
    nchw = load(path, model(a=("Float32", (1, 3, 4, 5))))["a"]
    np.testing.assert_array_equal(nchw[0], bgr.transpose(2, 0, 1).astype("f4"))
    np.testing.assert_array_equal(load(path, model(a=("Uint8", (1, 4, 5, 3))))["a"][0], bgr)
    np.testing.assert_array_equal(load(path, model(a=("Uint8", (3, 4, 5))))["a"], bgr.transpose(2, 0, 1))
    gray = load(path, model(a=("Uint8", (1, 1, 4, 5))))["a"][0, 0].astype(int)
    np.testing.assert_allclose(gray, bgr @ [0.114, 0.587, 0.299], atol=1)
    with pytest.raises(InputError, match="none of"):
        load(path, model(a=("Uint8", (1, 5, 6, 7))))
