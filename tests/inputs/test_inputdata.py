"""Loading specifications: generated numbers, files, options, many testcases."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from loadrun.base.errors import InputError, LoadRunError, SpecError, UsageError
from loadrun.graph.dtypes import DType
from loadrun.inputs.casting import cast
from loadrun.inputs.generation import fill_values, normal_quantile, stream
from loadrun.inputs.lists import count_cases, expand
from loadrun.inputs.loading import load_cases
from loadrun.inputspec import Generated
from tests.support.input_models import model

Inputs = dict[str, np.ndarray]
X = model(a=("Float32", (2, 3)))


def load(text: str, inputs: list = X, seed: int = 0) -> Inputs:
    return next(load_cases(text, inputs, seed=seed))


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()[:16]


# Generated numbers.


def test_one_generator_feeds_all_inputs() -> None:
    inputs = model(a=("Float32", (2, 3)), b=("Int32", (4,)))
    found = load("#rand(0,9)", inputs)
    assert {n: (a.shape, a.dtype.str) for n, a in found.items()} == {"a": ((2, 3), "<f4"), "b": ((4,), "<i4")}
    assert (found["a"] >= 0).all()
    assert (found["a"] < 9).all()


def test_a_pattern_stands_for_all_inputs_called_so() -> None:
    inputs = model(past0=("Float32", (2,)), past1=("Float32", (3,)), x=("Float32", (1,)))
    found = load("past*:#full(4);x:#ones", inputs)
    assert {n: a.tolist() for n, a in found.items()} == {"past0": [4] * 2, "past1": [4] * 3, "x": [1]}


def test_streams_are_raw_words_of_pcg64() -> None:
    x = load("#rand(0,1)", model(a=("Float32", (3,))))["a"]
    raw = np.random.PCG64(0).random_raw(3)
    np.testing.assert_array_equal(x, ((raw >> np.uint64(11)) * 2.0**-53).astype("f4"))
    # Whole numbers: the range times a 32-bit word, without the lower half.
    y = load("#randint(-5,1000000)", model(a=("Int32", (50,))))["a"]
    raw = np.random.PCG64(0).random_raw(50)
    assert y.tolist() == [(int(w >> np.uint64(32)) * 1000005 >> 32) - 5 for w in raw]


@pytest.mark.parametrize(
    ("text", "seed", "expect"),
    [
        ("#rand(0,1)", 0, "4b5490debadee88a"),
        ("#rand(-3,1e6)", 1, "15f67be7d69b419c"),
        ("#randn(0,1)", 0, "60aba770f4b2acd1"),
        ("#randn(-4.5,0.1)", 2**64 - 1, "7803073cd846d2a9"),
        ("#randint(0,256)", 7, "06b54d4d566112b1"),
        ("#randn(0,1,seed=12345678901)", 3, "3e9154b6bfc0423d"),
    ],
)
def test_golden_bytes(text: str, seed: int, expect: str) -> None:
    """The same on every platform, with every release of numpy and of loadrun."""
    found = load(text, model(a=("Float32", (1000,))), seed)["a"]
    assert digest(found) == expect


def test_golden_bytes_of_many_inputs_and_cases() -> None:
    inputs = model(b=("Float16", (40,)), a=("Uint8", (30,)), c=("Bool", (20,)))
    cases = list(load_cases(["#rand(0,255)", "a:#randn(9,3);c:#randint(0,2);b:#zeros"], inputs, seed=5))
    assert [{n: digest(c[n]) for n in sorted(c)} for c in cases] == GOLDEN_CASES


GOLDEN_CASES = [
    {"a": "84b5123603ae1050", "b": "34f843fe70ebb15a", "c": "9b8f65607d891ebc"},
    {"a": "ae8e051176fc40fc", "b": "5b6fb58e61fa4759", "c": "f9087c7e6e479d6f"},
]


def test_seeds() -> None:
    inputs = model(a=("Float32", (8,)), b=("Float32", (8,)))
    found = load("#rand(0,1)", inputs)
    assert not np.array_equal(found["a"], found["b"])
    named = load("b:#rand(0,1);a:#rand(0,1)", inputs)
    assert all(np.array_equal(found[n], named[n]) for n in "ab"), "the order of parts has no part in it"
    assert not np.array_equal(found["a"], load("#rand(0,1)", inputs, 1)["a"])
    one, two = load_cases(["#rand(0,1)"] * 2, inputs)
    assert not np.array_equal(one["a"], two["a"])
    # A seed of its own holds whatever the run's seed, the testcase, or the input.
    cases = list(load_cases(["a:#rand(0,1,seed=9);b:#rand(0,1,seed=9)"] * 2, inputs, seed=4))
    assert len({c[n].tobytes() for c in cases for n in "ab"}) == 1
    own = load("#rand(0,1,seed=9)", inputs)
    assert np.array_equal(own["a"], cases[0]["a"])
    assert not np.array_equal(own["a"], own["b"])


def test_normal_quantile() -> None:
    """Against Python's own implementation, which takes the platform's logarithm."""
    raw = np.random.PCG64(1).random_raw(5000)
    p = np.concatenate(
        [(raw >> np.uint64(11)) * 2.0**-53, [2.0**-53, 1e-12, 0.075, 0.925, 1 - 2.0**-53, 0.5]]
    )
    expect = [statistics.NormalDist().inv_cdf(x) for x in p]
    np.testing.assert_allclose(normal_quantile(p), expect, rtol=1e-13, atol=1e-15)


def test_distributions() -> None:
    normal = fill_values(Generated("randn", (3.0, 2.0)), (100_000,), stream(0))
    assert abs(normal.mean() - 3) < 4 * 2 / math.sqrt(1e5)
    assert abs(normal.std() - 2) < 0.03
    dice = fill_values(Generated("randint", (1.0, 7.0)), (60_000,), stream(0))
    counts = np.bincount(dice)
    assert counts[0] == 0
    assert len(counts) == 7
    assert abs(counts[1:] - 10_000).max() < 500


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("#zeros", [[0, 0, 0], [0, 0, 0]]),
        ("#ones(1,...)", [[1, 1, 1]]),
        ("#full(-2.5,1,2)", [[-2.5, -2.5]]),
        ("[[1,2],[3,4]]", [[1, 2], [3, 4]]),
        ("[1,2,3]", [[1, 2, 3]]),
        ("[[true,false,true]]", [[1, 0, 1]]),
        ("#zeros(0,3)", []),
    ],
)
def test_plain_values(text: str, expect: list) -> None:
    (case,) = load_cases(text, X, warn=lambda _: None)
    found = case["a"]
    assert found.dtype == np.float32
    assert found.tolist() == expect


# Casts.


def test_arrays_are_data() -> None:
    inputs = model(a=("Float32", (2, 3)), b=("Int32", (4,)))
    a, b = np.arange(6.0).reshape(2, 3), [1, 2, 3, 4]
    cases = [{"a": a, "b": b}, "#ones", {"a": "#full(2)", "b": np.int8(5) * np.ones(4, "i1")}]
    assert count_cases(cases) == 3
    first, ones, last = load_cases(cases, inputs)
    assert (first["a"].dtype, first["a"].tolist()) == (np.float32, a.tolist())
    assert (first["b"].dtype, first["b"].tolist(), last["b"].tolist()) == (np.int32, b, [5] * 4)
    assert (ones["a"] == 1).all()
    assert (last["a"] == 2).all()
    # One array for the only input; repeat and transform are as for files.
    (found,) = load_cases(a, X, repeat=2, input_transform="data + 1")
    assert found["a"].tolist() == (np.repeat(a, 2, axis=0) + 1).tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"c": np.ones(1)}, "the model has no input 'c'"),
        ({"a": object()}, "input data must be numbers, found object"),
        ({"a": "b:#ones"}, "the data of 'a' must be one source"),
        (np.ones(2), "the axes must agree"),
        (b"#ones", "or a dict of arrays by input name, found bytes"),
    ],
)
def test_arrays_that_do_not_fit(data: object, message: str) -> None:
    with pytest.raises(LoadRunError, match=message):
        list(load_cases([data], X))


def test_random_range_of_one_integer() -> None:
    told: list[str] = []
    inputs = model(a=("Int32", (2, 3)))
    for text in ("#rand(0,1)", "#rand(-0.5,0.5)", "#rand(3,4)", "#rand(0,2)", "#randint(0,1)", "#zeros"):
        list(load_cases(text, inputs, warn=told.append))
    assert [t.partition(" are ")[0] for t in told] == [
        f"input 'a': all numbers of {t}" for t in ("#rand(0,1)", "#rand(-0.5,0.5)", "#rand(3,4)")
    ]
    list(load_cases("#rand(0,1)", X, warn=told.append))
    assert len(told) == 3


def test_integers_are_truncated_and_wrap() -> None:
    assert load("#full(3.9)", model(a=("Int32", (2,))))["a"].tolist() == [3, 3]
    assert load("#full(300)", model(a=("Uint8", (2,))))["a"].tolist() == [44, 44]
    assert load("#full(2)", model(a=("Bool", (2,))))["a"].tolist() == [True, True]


def test_other_types() -> None:
    # Recorded of MegEngine: numbers for quantized inputs are what is stored, and wrap.
    stored = cast(np.array([1.7, -3.2, 200.0, 300.7]), DType("QuantizedS8", 0.1))
    assert stored.tolist() == [1, -3, -56, 44]
    assert cast(np.array([9, -9, 7]), DType("QuantizedS4", 0.1)).tolist() == [-7, 7, 7]
    assert cast(np.array([17, 15]), DType("Quantized4Asymm", 0.1, 3)).tolist() == [1, 15]
    assert cast(np.array([1.00390625]), DType("BFloat16")).tolist() == [1.0]
    assert cast(np.array([1e9]), DType("Float16")).tolist() == [math.inf]
    assert cast(np.array([1.5, -2, 300], np.float16), DType("Uint8")).tolist() == [1, 254, 44]
    assert cast(np.array([2**40 + 5]), DType("Int32")).tolist() == [5]
    for bad in (math.nan, math.inf, 1e19):
        with pytest.raises(InputError, match="cannot hold"):
            cast(np.array([bad]), DType("Int32"))


# Which data feeds which input.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:#rand(0,1,7);b:#ones", "the number of axes must agree"),
        ("a:#rand(0,1,7,7,7,...);b:#ones", "more axes than the input"),
        ("a:[1,[2]];b:#ones", "have different lengths"),
        ("a:[[[1]]];b:#ones", "the axes must agree"),
        ("a=#ones;b:#ones", "followed by ':', not '='"),
    ],
)
def test_misfits(text: str, message: str) -> None:
    with pytest.raises(LoadRunError, match=message):
        load(text, model(a=("Float32", (2, 3)), b=("Float32", (4,))))


def test_inputs_without_a_shape(tmp_path: Path) -> None:
    inputs = model(a=("Float32", None))
    assert load("#ones(2,5)", inputs)["a"].shape == (2, 5)
    with pytest.raises(SpecError, match="the file has no shape"):
        load("#ones", inputs)
    with pytest.raises(SpecError, match="the file has no shape"):
        load("#ones(2,...)", inputs)
    with pytest.raises(SpecError, match="the model has no inputs"):
        load("#ones", [])


def test_other_shapes_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"input 'a' has shape \[2, 3\], its data \[2, 9\]"):
        list(load_cases("#ones(2,9)", X))
    warned: list[str] = []
    list(load_cases(["#ones(7,3)", "#ones(2,4)"], X, warn=warned.append))
    assert len(warned) == 1, "another batch is nothing to warn of"


def test_windows_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"cannot read C:/none\.npy"):
        load("C:/none.npy")
    with pytest.raises(InputError, match=r"cannot read /none\.npy"):
        load("C:/none.npy", model(C=("Float32", (2, 3))))


def test_archives_feed_inputs_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = model(a=("Float32", (2,)), b=("Int32", (1,)))
    np.savez("both.npz", a=[1.0, 2.0], b=[3], label=[9])
    np.savez("one.npz", x=[5.0, 6.0])
    entry = {"shape": [2], "type": "float32", "raw": [1, 2]}
    Path("both.json").write_text(json.dumps({"a": entry, "b": {"shape": [1], "type": "int", "raw": [2.5]}}))
    assert {n: a.tolist() for n, a in load("both.npz", inputs).items()} == {"a": [1, 2], "b": [3]}
    assert {n: a.tolist() for n, a in load("both.json", inputs).items()} == {"a": [1, 2], "b": [3]}
    assert load("a:one.npz;b:both.npz!label", inputs)["b"].tolist() == [9]
    assert load("one.npz", model(a=("Float32", (2,))))["a"].tolist() == [5, 6]
    with pytest.raises(SpecError, match=r"one\.npz has no array 'a'; its arrays are 'x'; its inputs are"):
        load("one.npz", inputs)
    with pytest.raises(InputError, match="has no array 'c'; its arrays are 'a', 'b', 'label'"):
        load("a:both.npz!c;b:#ones", inputs)


# Many testcases.


def test_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths start from the list's own folder, then from the current one, as in MegEngine."""
    monkeypatch.chdir(tmp_path)
    Path("sub/deep").mkdir(parents=True)
    for path, value in {"x.npy": 1, "sub/x.npy": 2, "sub/deep/x.npy": 3, "only_here.npy": 4}.items():
        np.save(path, np.full((2, 3), value, "f4"))
    Path("sub/list.txt").write_text(
        "# first\n\n  x.npy  \r\n@deep/more.txt\nonly_here.npy", encoding="utf-8-sig"
    )
    Path("sub/deep/more.txt").write_text("a:x.npy\n##\n#\n@../end.txt\n")
    Path("sub/end.txt").write_text("#full(5)\n")
    specs = ["x.npy", "@sub/list.txt", "#full(6)"]
    assert count_cases(specs) == 6
    assert [c["a"][0, 0] for c in load_cases(specs, X)] == [1, 2, 3, 5, 4, 6]
    wheres = [Path(c.where).as_posix() for c in expand(specs)]
    assert wheres[:4] == ["specification 1", "sub/list.txt:3", "sub/deep/more.txt:1", "sub/deep/../end.txt:1"]


def test_lists_do_not_nest_without_end(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"{i}.txt").write_text(f"@{i + 1}.txt\n")
    with pytest.raises(SpecError, match="nested more than 16 deep"):
        count_cases(f"@{tmp_path}/0.txt")
    (tmp_path / "filled.txt").write_bytes(b"#ones".ljust(2**20) + b"\r\n#zeros\r#ones")
    assert len(list(load_cases(f"@{tmp_path / 'filled.txt'}", X))) == 3
    (tmp_path / "wide.txt").write_text("x" * (2**20 + 9))
    with pytest.raises(SpecError, match="longer than 1048576 bytes"):
        count_cases(f"@{tmp_path}/wide.txt")


def test_faults_tell_which_specification(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("#ones\n" * 899 + "missing.npy\n")
    cases = load_cases(["@" + str(path)], X)
    for _ in range(899):
        next(cases)
    with pytest.raises(InputError, match=r"list\.txt:900: input 'a': cannot read .*missing\.npy"):
        next(cases)
    with pytest.raises(SpecError, match="specification 2: the model has no input 'b'"):
        list(load_cases(["#ones", "b:#ones"], X))
    with pytest.raises(SpecError, match="did you mean 'in:0', quoted as in"):
        load("in:0:#ones", model(**{"in:0": ("Float32", (2,))}))
    assert load('"in:0":#ones', model(**{"in:0": ("Float32", (2,))}))["in:0"].tolist() == [1, 1]


def test_texts_are_checked_before_anything_is_loaded() -> None:
    with pytest.raises(SpecError, match="specification 3"):
        load_cases(["#ones", "missing.npy", "#rand(0"], X)
    with pytest.raises(SpecError, match="no input specification"):
        load_cases([], X)


def test_thousands_of_testcases_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("#full(1)\n" * 2_000)
    inputs = model(a=("Float32", (50, 50)))
    count = 0
    tracemalloc.start()
    for case in load_cases(f"@{path}", inputs):
        count += int(case["a"][0, 0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2_000
    assert peak < 2_000_000


# Options.


def test_repeat(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3], [4, 5, 6]], "f4"))
    inputs = model(a=("Float32", (2, 3)), b=("Float32", (1,)))
    (found,) = load_cases(f"a:{tmp_path}/x.npy;b:#ones", inputs, repeat=2)
    assert found["a"].tolist() == [[1, 2, 3], [1, 2, 3], [4, 5, 6], [4, 5, 6]]
    assert found["b"].tolist() == [1], "generated data is not repeated"
    with pytest.raises(InputError, match="repeated 1000000000 times"):
        list(load_cases(f"a:{tmp_path}/x.npy;b:#ones", inputs, repeat=10**9))
    for bad in (0, -1, 1.5, "2"):
        with pytest.raises(UsageError, match="repeat must be"):
            load_cases("#ones", inputs, repeat=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_bad_seeds(seed: object) -> None:
    with pytest.raises(UsageError, match="a seed must be"):
        load_cases("#ones", X, seed=seed)  # type: ignore[arg-type]


def test_options_must_have_an_effect(tmp_path: Path) -> None:
    """MegEngine asserts that no generated data stands beside them; data beside an image is no fault here."""
    import cv2

    cv2.imwrite(str(tmp_path / "i.png"), np.full((8, 10, 3), 100, np.uint8))
    inputs = model(image=("Uint8", (1, 3, 4, 5)), mask=("Float32", (2,)))
    options = {"resize_input": True, "input_transform": "data // 2"}
    (found,) = load_cases(f"image:{tmp_path}/i.png;mask:#full(7)", inputs, **options)
    assert found["image"].shape == (1, 3, 4, 5)
    assert (found["image"] == 50).all()
    assert found["mask"].tolist() == [7, 7]
    with pytest.raises(SpecError, match="resize_input: there is no image"):
        list(load_cases("#ones", inputs, resize_input=True))
    with pytest.raises(SpecError, match="input_transform: generated data"):
        list(load_cases("#ones", inputs, input_transform="data * 2"))


def test_transform_results_are_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), "f4"))
    spec = f"{tmp_path}/x.npy"
    (found,) = load_cases(spec, X, repeat=2, input_transform="data[:2] * 3")
    assert found["a"].tolist() == [[3, 3, 3]] * 2
    with pytest.raises(InputError, match=r"input 'a': the data has shape \[3\], the input \[2, 3\]"):
        list(load_cases(spec, X, input_transform="data[0]"))
    with pytest.raises(InputError, match="results in a float32, not an array"):
        list(load_cases(spec, X, input_transform="data.max()"))
    with pytest.raises(SpecError, match="unknown name 'open'"):
        load_cases(spec, X, input_transform="open('x')")
