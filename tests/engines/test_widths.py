"""Integers of 64 bits that do not fit the 32 of a .mge file are told, with data that no testcase has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun

parser = pytest.importorskip("onnx.parser", reason="models are built with the package onnx")

SMALL = np.array([[1, -2, 3], [4, 5, -6]])
MODELS = {
    "a product": ("y = Mul(x, x)", 70000, 4_900_000_000),
    "a product with a constant": ("c = Constant<value_int=40000>()  y = Mul(x, c)", 70000, 2_800_000_000),
    "a sum": ("y = Add(x, x)", 2**30, 2**31),
    "a difference": ("n = Neg(x)  y = Sub(n, x)", 2**30 + 1, -(2**31) - 2),
    "a reduction": (
        "a = Constant<value_ints=[1]>()  s = ReduceSum<keepdims=0>(x, a)  y = Add(s, s)",
        2**30 - 1,
        2**31,
    ),
    "a power": ("c = Constant<value_int=3>()  y = Pow(x, c)", 1291, 1291**3),
    "a product of matrices": ("t = Transpose(x)  m = MatMul(x, t)  y = MatMul(m, x)", 40000, 64000001159888),
    "a product with a constant matrix": (
        "w = Constant<value = int64[3, 3] {3, 0, 0, 0, 1, 0, 0, 0, 1}>()  y = MatMul(x, w)",
        2**30,
        3 * 2**30,
    ),
    "a sum of products": ('m = Einsum<equation="ij,ij->i">(x, x)  y = Add(m, m)', 46340, 46340**2 * 2 + 26),
    "inside, where the end fits": (
        "m = Mul(x, x)  c = Constant<value_int=7>()  y = Div(m, c)",
        70000,
        4_900_000_000,
    ),
}


def packed(tmp_path: Path, nodes: str) -> loadrun.Runner:
    shape = "2" if "keepdims=0" in nodes or "->i" in nodes else "2, 3"
    text = f'<ir_version: 9, opset_import: ["" : 20]>\ng (int64[2, 3] x) => (int64[{shape}] y) {{ {nodes} }}'
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    options = loadrun.PackOptions(input_data=(SMALL,))
    loadrun.pack_file(tmp_path / "m.onnx", tmp_path / "m.mge", options)
    return loadrun.Runner(tmp_path / "m.mge")


@pytest.mark.parametrize("name", MODELS)
def test_what_does_not_fit_is_told(name: str, tmp_path: Path) -> None:
    nodes, large, whole = MODELS[name]
    runner = packed(tmp_path, nodes)
    assert [r.verdict.value for r in runner.replay()] == ["pass"]
    small = np.array([[7, -8, 9], [1000, 0, -999]]) if name != "a power" else SMALL
    assert not runner.run({"x": small}).outputs[0].notes
    x = SMALL.copy()
    x[0, 0] = large
    (note,) = runner.run({"x": x}).outputs[0].notes
    assert f"is {whole} in the model and" in note
    assert "integers of 64 bits do not fit" in note


REAL = np.array([[1.5, -2, 3], [4, 5, -6]], "f4")
BYTES = np.array([[1, 2, 3], [4, 5, 6]], "u1")
INSIDE = {
    "a cast of a real number": (REAL, "y = Cast<to=7>(x)", np.float32(3e9), 3_000_000_000),
    "a cast that is multiplied": (REAL, "c = Cast<to=7>(x)  y = Mul(c, c)", np.float32(70000), 4_900_000_000),
    "where the end is a real number": (
        REAL,
        "c = Cast<to=7>(x)  d = Add(c, c)  y = Cast<to=1>(d)",
        np.float32(2**30),
        2**31,
    ),
    "a cast of 32 bits": (
        np.int32(REAL),
        "c = Cast<to=7>(x)  y = Mul(c, c)",
        np.int32(70000),
        4_900_000_000,
    ),
    "a product of bytes": (
        BYTES,
        "t = Transpose(x)  m = MatMulInteger(x, t)  c = Cast<to=7>(m)  k = Constant<value_int=40000>()  y = Mul(c, k)",
        np.uint8(255),
        (255**2 + 13) * 40000,
    ),
}
KINDS = {"f4": "float", "i4": "int32", "u1": "uint8"}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_cast_inside_is_told(name: str, tmp_path: Path) -> None:
    small, nodes, large, whole = INSIDE[name]
    end = {"where the end is a real number": "float[2, 3]", "a product of bytes": "int64[2, 2]"}
    text = (
        f'<ir_version: 9, opset_import: ["" : 20]>\n'
        f"g ({KINDS[small.dtype.str[1:]]}[2, 3] x) => ({end.get(name, 'int64[2, 3]')} y) {{ {nodes} }}"
    )
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    loadrun.pack_file(tmp_path / "m.onnx", tmp_path / "m.mge", loadrun.PackOptions(input_data=(small,)))
    runner = loadrun.Runner(tmp_path / "m.mge")
    assert [r.verdict.value for r in runner.replay()] == ["pass"]
    assert not runner.run({"x": small}).outputs[0].notes
    x = small.copy()
    x[0, 0] = large
    (note,) = runner.run({"x": x}).outputs[0].notes
    assert f"is {whole} in the model and" in note


def test_what_sizes_make_is_told(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import loadrun.onnx
    import loadrun.torch

    def mean_of_pairs(x: Any) -> Any:
        return x.sum() / (x.shape[0] * x.shape[0])

    traced = loadrun.torch.trace(mean_of_pairs, torch.ones(5), dynamic_shapes=True)
    assert traced(torch.ones(50000)).item() == np.float32(2e-5)
    loadrun.onnx.export(traced, f=tmp_path / "m.onnx", input_names=["x"])
    (out,) = loadrun.Runner(tmp_path / "m.onnx").run({"x": np.ones(50000, "f4")}).outputs
    assert out.value == np.float32(2e-5)
    traced.dump(tmp_path / "m.mge", arg_names=["x"])
    runner = loadrun.Runner(tmp_path / "m.mge")
    (out,) = runner.run({"x": np.ones(500, "f4")}).outputs
    assert out.value == np.float32(0.002)
    assert not out.notes
    (note,) = runner.run({"x": np.ones(50000, "f4")}).outputs[0].notes
    assert "is 2500000000 in the model and" in note


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_what_does_not_fit_in_a_dump_of_numpy_code_is_told(kind: type, tmp_path: Path) -> None:
    @loadrun.trace(symbolic=True, capture_as_const=True)
    def squares(x: Any) -> Any:
        return np.dot(x, x.T)

    squares(SMALL.astype(kind))
    squares.dump(tmp_path / "m.mge", arg_names=["x"], input_data=["example"])
    large = SMALL * 30000
    (out,) = loadrun.Runner(tmp_path / "m.mge").run({"x": large.astype(kind)}).outputs
    if kind is np.int32:
        # Which wraps in numpy, too.
        assert out.value.tolist() == np.dot(large.astype(kind), large.T.astype(kind)).tolist()
        assert not out.notes
        return
    assert "is 12600000000 in the model and" in out.notes[0]


def test_32_bits_wrap_as_they_do_in_the_model(tmp_path: Path) -> None:
    text = '<ir_version: 9, opset_import: ["" : 20]>\ng (int32[3] x) => (int32[3] y) { y = Mul(x, x) }'
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    loadrun.pack_file(
        tmp_path / "m.onnx", tmp_path / "m.mge", loadrun.PackOptions(input_data=(np.int32([1, 2, 3]),))
    )
    (out,) = loadrun.run(tmp_path / "m.mge", {"x": np.int32([70000, 2, 3])})[0].outputs
    assert out.value is not None
    assert out.value[0] == 70000 * 70000 - 2**32
    assert not out.notes
