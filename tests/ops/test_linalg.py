"""Matrix products, Dot, MatrixInverse, SVD and Cross against Python integers and double precision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array, DType
from loadrun.graph.params import SVD, Cross, Empty, MatrixMul, MatrixMulComputeMode, MatrixMulFormat as Format
from loadrun.ops.numeric.special import int_matmul, round_half
from loadrun.testing import operator_graph as graph_of, run_operator as run

I8, I16 = DType("Int8"), DType("Int16")


def whole(dtype: str, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, int(info.max) + 1, shape).astype(dtype)


def flags() -> list[tuple[bool, bool]]:
    return list(itertools.product((False, True), repeat=2))


@pytest.mark.parametrize(("ta", "tb"), flags())
@pytest.mark.parametrize("batch", [(), (3,)])
def test_float32(ta: bool, tb: bool, batch: tuple[int, ...]) -> None:
    r = np.random.default_rng(0)
    a, b = r.standard_normal((*batch, 17, 33)).astype("f4"), r.standard_normal((*batch, 33, 9)).astype("f4")
    want = a.astype("f8") @ b.astype("f8")
    name = "BatchedMatrixMulV2" if batch else "MatrixMulV2"
    args = [np.ascontiguousarray(a.swapaxes(-1, -2)) if ta else a, b.swapaxes(-1, -2) if tb else b]
    (got,) = run(name, MatrixMul(transposeA=ta, transposeB=tb), *args)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [1, 700, 1100, 5000, 20_000])
def test_int8_is_exact(k: int) -> None:
    a, b = np.full((2, k), -128, "i1"), np.full((k, 3), -128, "i1")
    a[0, ::3], b[1::2, 1] = 127, 126
    (got,) = run("MatrixMulV2", MatrixMul(), a, b)
    assert got.dtype == np.int32
    assert got.tolist() == [
        [sum(int(u) * int(v) for u, v in zip(row, col, strict=True)) for col in b.T] for row in a
    ]


def test_products_wrap() -> None:
    a, b = np.full((1, 4), 32767, "i2"), np.full((4, 1), 32767, "i2")
    assert run("MatrixMulV2", MatrixMul(), a, b)[0].tolist() == [[4 * 32767**2 - 2**32]]
    a8, b8 = np.full((1, 3), 127, "i1"), np.full((3, 1), 127, "i1")
    g = graph_of("MatrixMulV2", MatrixMul(), [a8, b8], output_dtype=I16)
    assert ReferenceEngine(g).run({"i0": a8, "i1": b8})[0].tolist() == [[3 * 127 * 127 - 65536]]


def test_long_int16_products() -> None:
    a, b = whole("i2", 3, 9000), whole("i2", 9000, 2, seed=1)
    want = np.array([[sum(int(u) * int(v) for u, v in zip(r, c, strict=True)) for c in b.T] for r in a])
    assert int_matmul(a, b, np.int64).tolist() == want.tolist()
    assert int_matmul(a, b).tolist() == want.astype(np.int32).tolist()


@pytest.mark.parametrize(
    ("a", "out"),
    [
        (DType("QuantizedS8", 0.5), "QuantizedS32"),
        (DType("Quantized8Asymm", 0.5, 120), "QuantizedS32"),
        (DType("Quantized4Asymm", 0.5, 7), "QuantizedS32"),
        (DType("QuantizedS4", 0.5), "QuantizedS16"),
    ],
)
@pytest.mark.parametrize(("ta", "tb"), flags())
@pytest.mark.parametrize("known", [(), (1,), (0, 1)])
def test_quantized(a: DType, out: str, ta: bool, tb: bool, known: tuple[int, ...]) -> None:
    b = DType(a.name, 0.25, max(0, a.zero_point - 3))
    r = np.random.default_rng(2)
    x, y = (r.integers(a.range[0], a.range[1] + 1, s).astype(a.np) for s in ((5, 40), (40, 6)))
    args = [x.T.copy() if ta else x, y.T.copy() if tb else y]
    p = MatrixMul(transposeA=ta, transposeB=tb)
    g = graph_of("MatrixMulV2", p, args, known=known, dtypes={0: a, 1: b})
    engine = ReferenceEngine(g)
    for _ in range(2):
        (got,) = engine.run({f"i{i}": v for i, v in enumerate(args) if i not in known})
        want = (x.astype("i8") - a.zero_point) @ (y.astype("i8") - b.zero_point)
        np.testing.assert_array_equal(got, want.astype(got.dtype))
    assert g.outputs[0].dtype == DType(out, 0.125)


def test_float16_rounds_after_every_addition() -> None:
    """In compute mode DEFAULT, as recorded from MegEngine; FLOAT32 rounds once."""
    a, b = np.full((1, 5000), 1, "f2"), np.full((5000, 1), 0.5, "f2")
    a[0, 0] = 2048
    assert run("MatrixMulV2", MatrixMul(), a, b)[0].tolist() == [[2048]]
    wide = MatrixMul(compute_mode=MatrixMulComputeMode.FLOAT32)
    assert run("MatrixMulV2", wide, a, b)[0].tolist() == [[3524]]
    r = np.random.default_rng(3)
    x, y = r.standard_normal((2, 9, 20)).astype("f2"), r.standard_normal((2, 20, 300)).astype("f2")
    total = np.zeros((2, 9, 300), "f4")
    for k in range(20):
        step = x[:, :, k, None].astype("f4") * y[:, None, k].astype("f4")
        total = round_half(total + step).astype("f4")
    np.testing.assert_array_equal(run("BatchedMatrixMulV2", MatrixMul(), x, y)[0], total)


def packed(a: Array, pack: int, form: Format, transpose: bool) -> Array:
    """Pack [M, K] as blocks: the inner ones [k, m] in MK4 and MK8, [m, k] in MK4_DOT."""
    m, k = a.shape
    out = np.empty((m // pack, k // pack, pack, pack), a.dtype)
    for i, j in itertools.product(range(m), range(k)):
        inner = (i % pack, j % pack) if form == Format.MK4_DOT else (j % pack, i % pack)
        out[(i // pack, j // pack, *inner)] = a[i, j]
    return out.swapaxes(0, 1) if transpose else out


@pytest.mark.parametrize("form", [Format.MK4, Format.MK8, Format.MK4_DOT])
@pytest.mark.parametrize(("ta", "tb"), flags())
@pytest.mark.parametrize("dtype", ["f4", "i1"])
def test_packed_formats(form: Format, ta: bool, tb: bool, dtype: str) -> None:
    pack = 8 if form == Format.MK8 else 4
    a, b = whole("i1", 2 * pack, 3 * pack).astype(dtype), whole("i1", 3 * pack, 5, seed=1).astype(dtype)
    want = a.astype("i8") @ b.astype("i8")
    pb = b.reshape(3, pack, 5).transpose(0, 2, 1)
    (got,) = run(
        "MatrixMulV2",
        MatrixMul(format=form, transposeA=ta, transposeB=tb),
        packed(a, pack, form, ta),
        pb.swapaxes(0, 1) if tb else pb,
    )
    np.testing.assert_array_equal(got.transpose(0, 2, 1).reshape(2 * pack, 5), want)


def test_n32k4_dot() -> None:
    a, b = whole("i1", 1, 8), whole("i1", 8, 64, seed=1)
    blocks = b.reshape(2, 4, 2, 32).transpose(2, 0, 3, 1)
    (got,) = run("MatrixMulV2", MatrixMul(format=Format.N32K4_DOT), a, blocks)
    np.testing.assert_array_equal(got, a.astype("i8") @ b.astype("i8"))


def test_without_elements() -> None:
    a, b = np.zeros((2, 0), "f4"), np.zeros((0, 3), "f4")
    assert run("MatrixMulV2", MatrixMul(), a, b)[0].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert run("MatrixMulV2", MatrixMul(), np.zeros((0, 4), "i1"), np.zeros((4, 3), "i1"))[0].shape == (0, 3)
    got = run("BatchedMatrixMulV2", MatrixMul(), np.zeros((2, 3, 0), "f4"), np.zeros((2, 0, 4), "f4"))[0]
    assert got.shape == (2, 3, 4)
    assert not got.any()


def test_unaligned_constant_weights() -> None:
    r = np.random.default_rng(5)
    a, b = r.standard_normal((4, 6)).astype("f4"), r.standard_normal((6, 5)).astype("f4")
    odd = np.frombuffer(b"\0" + b.tobytes(), np.uint8)[1:].view("f4").reshape(6, 5)
    np.testing.assert_array_equal(
        run("MatrixMulV2", MatrixMul(), a, odd)[0], run("MatrixMulV2", MatrixMul(), a, b)[0]
    )


F = np.zeros


@pytest.mark.parametrize(
    ("name", "params", "inputs", "dtypes", "text"),
    [
        (
            "MatrixMulV2",
            MatrixMul(),
            [F((2, 3), "f4"), F((4, 5), "f4")],
            {},
            r"inner dimensions 3 and 4 differ",
        ),
        ("MatrixMulV2", MatrixMul(), [F(3, "f4"), F((3, 5), "f4")], {}, "2-dimensional"),
        ("MatrixMulV2", MatrixMul(), [F((2, 3), "f4"), F((3, 2), "f2")], {}, "inputs of one dtype"),
        ("MatrixMulV2", MatrixMul(), [F((2, 3), "u1"), F((3, 2), "u1")], {}, "does not take Uint8"),
        (
            "MatrixMulV2",
            MatrixMul(format=Format.MK4),
            [F((2, 3), "f4"), F((3, 2), "f4")],
            {},
            "format MK4 takes",
        ),
        ("BatchedMatrixMulV2", MatrixMul(), [F((2, 3, 3), "f4"), F((3, 3, 3), "f4")], {}, "of one batch"),
        (
            "BatchedMatrixMulV2",
            MatrixMul(),
            [F((2, 3, 3), "i2"), F((2, 3, 3), "i2")],
            {},
            "does not take Int16",
        ),
        ("Dot", Empty(), [F(3, "f4"), F(4, "f4")], {}, "two vectors of one length"),
        ("Dot", Empty(), [F((3, 1), "f4"), F(3, "f4")], {}, "two vectors of one length"),
        ("MatrixInverse", Empty(), [F((2, 3), "f4")], {}, "square matrices"),
        ("MatrixInverse", Empty(), [F((3, 3), "f4")], {}, "singular"),
        ("MatrixInverse", Empty(), [F((3, 3), "f2")], {}, "singular"),
        ("MatrixInverse", Empty(), [F((3, 3), "i4")], {}, "takes Float32 or Float16"),
        ("SVD", SVD(), [F(3, "f4")], {}, "SVD takes matrices"),
        ("SVD", SVD(), [np.full((2, 2), np.nan, "f4")], {}, "NaN or infinity"),
        ("Cross", Cross(), [F((2, 4), "f4"), F((2, 4), "f4")], {}, "vectors of 3 elements"),
        ("Cross", Cross(axisa=5), [F((2, 3), "f4"), F((2, 3), "f4")], {}, "axis 5"),
        ("Cross", Cross(), [F((2, 3), "f4"), F((4, 3), "f4")], {}, "differ beside"),
    ],
)
def test_refused(
    name: str, params: MatrixMul, inputs: list[Array], dtypes: dict[int, DType], text: str
) -> None:
    with pytest.raises(EngineError, match=text):
        run(name, params, *inputs, dtypes=dtypes)


def test_output_dtype_must_fit() -> None:
    a = np.zeros((2, 2), "i1")
    g = graph_of("MatrixMulV2", MatrixMul(), [a, a], output_dtype=DType("Float32"))
    with pytest.raises(EngineError, match="gives Int32, not Float32"):
        ReferenceEngine(g)


@pytest.mark.parametrize("dtype", ["f4", "i1", "i2", "i4", "u1"])
def test_dot(dtype: str) -> None:
    a, b = whole("u1", 50).astype(dtype), whole("u1", 50, seed=1).astype(dtype)
    (got,) = run("Dot", Empty(), a, b)
    exact = sum(int(u) * int(v) for u, v in zip(a, b, strict=True))
    assert got.tolist() == np.array([exact]).astype(dtype).tolist()
    (spread,) = run("Dot", Empty(), a, b[:1])
    assert spread.tolist() == np.array([sum(map(int, a)) * int(b[0])]).astype(dtype).tolist()


def test_inverse() -> None:
    x = (np.random.default_rng(6).uniform(-1, 1, (2, 3, 5, 5)) + 4 * np.eye(5)).astype("f4")
    x = x[:, :, ::-1]  # the pivots are not on the diagonal
    (got,) = run("MatrixInverse", Empty(), x)
    np.testing.assert_allclose(got.astype("f8") @ x, np.broadcast_to(np.eye(5), x.shape), atol=1e-5)
    (half,) = run("MatrixInverse", Empty(), x.astype("f2"))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, got, atol=3e-3)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 3, 5, 4), (1, 5), (5, 1), (70, 66), (66, 70)])
def test_svd(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).uniform(-1, 1, shape).astype("f4")
    u, s, vt = run("SVD", SVD(), x)
    np.testing.assert_allclose(u * s[..., None, :] @ vt, x, atol=2e-5)
    k = min(shape[-2:])
    np.testing.assert_allclose(
        u.swapaxes(-1, -2) @ u, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), atol=2e-5
    )
    np.testing.assert_allclose(s, np.linalg.svd(x.astype("f8"), compute_uv=False), rtol=1e-5, atol=1e-6)
    assert (np.diff(s, axis=-1) <= 0).all()
    (alone,) = run("SVD", SVD(compute_uv=False), x)
    np.testing.assert_allclose(alone, s, rtol=1e-5, atol=1e-6)
    full = run("SVD", SVD(full_matrices=True), x)
    assert full[0].shape == (*shape[:-1], shape[-2])
    assert full[2].shape == (*shape[:-2], shape[-1], shape[-1])


@pytest.mark.parametrize("matrix", [np.zeros((4, 3)), np.diag([3.0, 0, -2, 0]), np.ones((5, 4)), np.tri(6)])
def test_svd_of_special_matrices(matrix: Array) -> None:
    u, s, vt = run("SVD", SVD(), matrix.astype("f4"))
    np.testing.assert_allclose(u * s @ vt, matrix, atol=1e-5)


@pytest.mark.parametrize("axes", [(-1, -1, -1), (0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("dtype", ["f4", "i4", "f2"])
def test_cross(axes: tuple[int, int, int], dtype: str) -> None:
    r = np.random.default_rng(8)
    a, b = r.integers(-9, 9, (2, 4, 3)), r.integers(-9, 9, (2, 4, 3))
    ax, bx, cx = axes
    p = Cross(axisa=ax, axisb=bx, axisc=cx)
    (got,) = run("Cross", p, np.moveaxis(a, -1, ax).astype(dtype), np.moveaxis(b, -1, bx).astype(dtype))
    np.testing.assert_array_equal(got, np.moveaxis(np.cross(a, b), -1, cx))
