"""Shape operators against hand-made values and plain loops over elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import params as P
from loadrun.graph.dtypes import DType, dtype_of
from loadrun.graph.params import AxisDesc
from loadrun.testing import operator_graph as graph_of, run_operator as run
from tests.support.arrays import ints

X = np.arange(24, dtype="f4").reshape(2, 3, 4)


def fails(name: str, params: Any, *inputs: Any, known: tuple[int, ...] = ()) -> str:
    with pytest.raises(EngineError) as e:
        run(name, params, *inputs, known=known)
    return str(e.value)


# GetVarShape


@pytest.mark.parametrize(
    ("shapes", "axis", "want"),
    [
        ([(2, 3, 4)], 7, [2, 3, 4]),
        ([(2, 3, 4)], -1, [4]),
        ([(2, 3, 4)], 0, [2]),
        ([(2, 1, 4), (3, 1)], 7, [2, 3, 4]),
        ([(1,), (3, 1)], 7, [3, 1]),
        ([(3, 1), (1,)], 1, [1]),
        ([(0, 3), (1, 3)], 7, [0, 3]),
        ([(2, 0)], 7, [2, 0]),
    ],
)
def test_get_var_shape(shapes: list[tuple[int, ...]], axis: int, want: list[int]) -> None:
    (found,) = run("GetVarShapeV1", P.OptionalAxisV1(axis=axis), *(np.zeros(s, "f4") for s in shapes))
    assert found.dtype == np.int32
    assert found.tolist() == want


def test_get_var_shape_refuses() -> None:
    assert "do not broadcast" in fails("GetVarShapeV1", P.OptionalAxisV1(), X, X[:, :2])
    assert "no axis 3" in fails("GetVarShapeV1", P.OptionalAxisV1(axis=3), X)


# Reshape and Broadcast


@pytest.mark.parametrize(
    ("axis", "target", "want"),
    [
        (7, (4, 6), (4, 6)),
        (0, (-1, 4), (6, 4)),
        (1, (4, 1), (4, 6)),
        (-1, (2, 2, 99), (2, 2, 6)),
        (7, (1, 24, 1, 1, 1, 1, 1), (1, 24, 1, 1, 1, 1, 1)),
    ],
)
def test_reshape(axis: int, target: tuple[int, ...], want: tuple[int, ...]) -> None:
    (found,) = run("ReshapeV1", P.OptionalAxisV1(axis=axis), X, ints(*target), known=[1])
    assert found.shape == want
    assert found.reshape(-1).tolist() == list(range(24))


def test_reshape_is_a_view_and_takes_targets_at_run_time() -> None:
    g = graph_of("ReshapeV1", P.OptionalAxisV1(), [X, ints(4, 6)])
    (found,) = ReferenceEngine(g).run({"i0": X, "i1": ints(6, 4)})
    assert found.shape == (6, 4)
    assert np.shares_memory(found, X)


def test_reshape_of_other_memory_orders() -> None:
    (found,) = run("ReshapeV1", P.OptionalAxisV1(), X.transpose(2, 0, 1), ints(24), known=[1])
    assert found.tolist() == [X[i, j, k] for k in range(4) for i in range(2) for j in range(3)]


@pytest.mark.parametrize(
    ("axis", "target", "text"),
    [
        (7, (5, 5), "24 elements) to [5, 5] (25 elements)"),
        (7, (-1, 4), "negative"),
        (1, (5, 1), "cannot reshape [2, 3, 4]"),
        (1, (0, 1), "cannot reshape [2, 3, 4]"),
        (3, (4, 6), "no axis 3"),
        (7, (1,) * 8, "1 to 7 dimensions"),
        (7, (), "1 to 7 dimensions"),
        (7, (2**31 - 1,) * 7, "cannot reshape"),
    ],
)
def test_reshape_refuses(axis: int, target: tuple[int, ...], text: str) -> None:
    assert text in fails("ReshapeV1", P.OptionalAxisV1(axis=axis), X, ints(*target), known=(1,))


def test_shapes_must_be_whole_numbers() -> None:
    (found,) = run("ReshapeV1", P.OptionalAxisV1(), X, np.array([4.0, 6.0], "f4"), known=[1])
    assert found.shape == (4, 6)
    assert "whole numbers" in fails("ReshapeV1", P.OptionalAxisV1(), X, np.array([4.5, 6], "f4"), known=(1,))
    assert "whole numbers" in fails("ReshapeV1", P.OptionalAxisV1(), X, np.array([np.nan], "f4"), known=(1,))
    assert "one-dimensional" in fails(
        "ReshapeV1", P.OptionalAxisV1(), X, np.array([[4, 6]], "i4"), known=(1,)
    )


@pytest.mark.parametrize(
    ("shape", "target"),
    [((1,), (2, 3)), ((3, 1), (2, 3, 4)), ((2, 3), (2, 3)), ((1, 3), (0, 3)), ((1,), (1, 1))],
)
def test_broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    (found,) = run("Broadcast", P.Empty(), x, ints(*target), known=[1])
    assert found.shape == target
    padded = x.reshape((1,) * (len(target) - x.ndim) + x.shape)
    for at in itertools.product(*map(range, target)):
        assert found[at] == padded[tuple(min(i, n - 1) for i, n in zip(at, padded.shape, strict=True))]
    assert np.shares_memory(found, x) or not found.size


def test_broadcast_refuses() -> None:
    assert "cannot broadcast [2, 3, 4] to [3, 4]" in fails("Broadcast", P.Empty(), X, ints(3, 4), known=(1,))
    assert "cannot broadcast [2, 3, 4] to [2, 6, 4]" in fails(
        "Broadcast", P.Empty(), X, ints(2, 6, 4), known=(1,)
    )


# Dimshuffle and AxisAddRemove


@pytest.mark.parametrize(
    ("pattern", "ndim", "shape"),
    [
        ((2, 0, 1), 3, (2, 3, 4)),
        ((2, -1, 0, 1), 0, (2, 3, 4)),
        ((-1, 0, -1), 1, (5,)),
        ((2, 0), 3, (2, 1, 4)),
        ((1, -1, 3), 4, (1, 3, 1, 2)),
        ((-1,), 2, (1, 1)),
        ((6, 5, 4, 3, 2, 1, 0), 7, (1, 2, 1, 3, 1, 2, 2)),
    ],
)
def test_dimshuffle(pattern: tuple[int, ...], ndim: int, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    (found,) = run("Dimshuffle", P.Dimshuffle(pattern=pattern, ndim=ndim), x)
    assert found.shape == tuple(1 if a < 0 else shape[a] for a in pattern)
    for at in np.ndindex(*shape):
        assert found[tuple(0 if a < 0 else at[a] for a in pattern)] == x[at]
    assert np.shares_memory(found, x)


@pytest.mark.parametrize(
    ("pattern", "ndim", "text"),
    [
        ((0, 2), 3, "drops an axis"),
        ((0, 1, 2), 4, "for 4 dimensions"),
        ((0, 1, 1, 2), 3, "once each"),
        ((0, 1, 5), 3, "once each"),
        ((-2, 0, 1, 2), 3, "once each"),
        ((), 0, "1 to 7 entries"),
        ((-1,) * 8, 0, "1 to 7 entries"),
    ],
)
def test_dimshuffle_refuses(pattern: tuple[int, ...], ndim: int, text: str) -> None:
    assert text in fails("Dimshuffle", P.Dimshuffle(pattern=pattern, ndim=ndim), X)


def test_axis_add_remove() -> None:
    add, remove = 0, 1

    def shape_of(x: Any, *desc: tuple[int, int]) -> tuple[int, ...]:
        (found,) = run("AxisAddRemove", P.AxisAddRemove(desc=tuple(AxisDesc(*d) for d in desc)), x)
        assert found.tobytes() == x.tobytes()
        assert np.shares_memory(found, x)
        return found.shape

    assert shape_of(X, (add, 1), (add, -1), (remove, 1)) == (2, 3, 4, 1)
    assert shape_of(X, (add, 0), (add, 4)) == (1, 2, 3, 4, 1)
    assert shape_of(X[:1, :, :1], (remove, 0), (remove, -1)) == (3,)
    assert shape_of(X[:1, :1, :1], (remove, 0), (remove, 0), (remove, 0)) == (1,)


@pytest.mark.parametrize(
    ("desc", "text"),
    [
        (((1, 0),), "its size is not 1"),
        (((0, 5),), "no axis 5"),
        (((1, -9),), "no axis -9"),
        (((2, 0),), "method 2"),
        ((), "empty"),
        (((0, 0),) * 5, "cannot add an axis to 7"),
    ],
)
def test_axis_add_remove_refuses(desc: tuple[tuple[int, int], ...], text: str) -> None:
    assert text in fails("AxisAddRemove", P.AxisAddRemove(desc=tuple(AxisDesc(*d) for d in desc)), X)


# Concat and Split


@pytest.mark.parametrize("axis", [-2, 0, 2])
def test_concat(axis: int) -> None:
    at = axis % 3
    parts = [X, X.take(range(1), at), X.take(range(0), at), -X]
    (found,) = run("Concat", P.Axis(axis=axis), *parts)
    lines = [np.moveaxis(p, at, 0) for p in parts]
    np.testing.assert_array_equal(np.moveaxis(found, at, 0), [row for p in lines for row in p])


@pytest.mark.parametrize(
    ("dtypes", "want"),
    [
        # As real MegEngine converts them.
        (("f4", "i4"), "f4"),
        (("f2", "i1"), "f4"),
        (("f2", "f2"), "f2"),
        (("i1", "i4"), "i4"),
        (("?", "i4"), "f4"),
        (("i2", "i1"), "i2"),
    ],
)
def test_concat_converts(dtypes: tuple[str, str], want: str) -> None:
    parts = [np.ones(2, d) for d in dtypes]
    (found,) = run("Concat", P.Axis(), *parts)
    assert found.dtype == np.dtype(want)
    assert found.tolist() == [1] * 4


def test_concat_refuses() -> None:
    assert "no common dtype" in fails("Concat", P.Axis(), np.ones(2, "u1"), np.ones(2, "i4"))
    assert "no axis 3" in fails("Concat", P.Axis(axis=3), X, X)
    assert "input 1 of shape [2, 2, 4] cannot be joined" in fails("Concat", P.Axis(axis=2), X, X[:, :2])
    assert "cannot be joined" in fails("Concat", P.Axis(axis=0), X, X[0])
    scales = {0: DType("QuantizedS8", 0.5), 1: DType("QuantizedS8", 0.6)}
    with pytest.raises(EngineError, match="no common dtype"):
        run("Concat", P.Axis(), np.ones(2, "i1"), np.ones(2, "i1"), dtypes=scales)


def test_split() -> None:
    found = run("Split", P.Axis(axis=-1), X, ints(1), ints(0), ints(3), known=[1, 2, 3])
    assert [f.shape for f in found] == [(2, 3, 1), (2, 3, 0), (2, 3, 3)]
    assert found[0].reshape(-1).tolist() == [0, 4, 8, 12, 16, 20]
    assert found[2][1, 2].tolist() == [21, 22, 23]
    assert np.shares_memory(found[2], X)


def test_split_refuses() -> None:
    assert "do not sum to 3" in fails("Split", P.Axis(axis=1), X, ints(1), ints(1), known=(1, 2))
    assert "do not sum to 3" in fails("Split", P.Axis(axis=1), X, ints(-1), ints(4), known=(1, 2))
    assert "no axis 5" in fails("Split", P.Axis(axis=5), X, ints(3), ints(0), known=(1, 2))
    assert "must be a scalar" in fails("Split", P.Axis(axis=1), X, ints(1, 2), ints(0), known=(1, 2))


# Padding


def padded(x: Any, sides: list[tuple[int, int]], mode: str, value: float) -> Any:
    """Pad by the definition, element by element."""
    out = np.empty([a + n + b for (a, b), n in zip(sides, x.shape, strict=True)], x.dtype)
    for at in np.ndindex(*out.shape):
        src = [i - a for i, (a, _) in zip(at, sides, strict=True)]
        if mode == "CONSTANT":
            inside = all(0 <= i < n for i, n in zip(src, x.shape, strict=True))
            out[at] = x[tuple(src)] if inside else value
        elif mode == "REPLICATE":
            out[at] = x[tuple(min(max(i, 0), n - 1) for i, n in zip(src, x.shape, strict=True))]
        else:
            out[at] = x[
                tuple(
                    -i if i < 0 else 2 * n - 2 - i if i >= n else i for i, n in zip(src, x.shape, strict=True)
                )
            ]
    return out


@pytest.mark.parametrize("mode", ["CONSTANT", "REPLICATE", "REFLECT"])
@pytest.mark.parametrize("ndim", [1, 3, 7])
def test_padding(mode: str, ndim: int) -> None:
    shape = (3, 4, 3, 1, 1, 1, 2)[:ndim]
    sides = [(1, 2), (3, 0), (0, 1), (0, 0), (0, 0), (0, 0), (1, 1)][:ndim]
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    given = {
        f"{end}_offset_dim{i}": s[e] for i, s in enumerate(sides) for e, end in enumerate(("front", "back"))
    }
    p = P.Padding(padding_mode=P.PaddingMode[mode], padding_val=2.5, **given)  # type: ignore[arg-type]
    (found,) = run("Padding", p, x)
    np.testing.assert_array_equal(found, padded(x, sides, mode, 2.5))


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    # Integers as real MegEngine converts the float.
    [("i4", -1.5, -1), ("u1", -1.5, 255), ("i1", 7.9, 7), ("f2", -1.5, -1.5), ("i2", 3.99, 3)],
)
def test_padding_value(dtype: str, value: float, want: float) -> None:
    (found,) = run("Padding", P.Padding(back_offset_dim0=1, padding_val=value), np.ones(2, dtype))
    assert found.tolist() == [1, 1, want]


def test_padding_refuses() -> None:
    reflect, replicate = P.PaddingMode.REFLECT, P.PaddingMode.REPLICATE
    assert "reflection" in fails("Padding", P.Padding(front_offset_dim0=2, padding_mode=reflect), X)
    assert "reflection" in fails("Padding", P.Padding(back_offset_dim2=4, padding_mode=reflect), X)
    empty = np.zeros((0, 2), "f4")
    assert "no edge" in fails("Padding", P.Padding(front_offset_dim1=2, padding_mode=replicate), empty)
    assert "does not take Bool" in fails("Padding", P.Padding(front_offset_dim0=1), np.ones(2, "?"))
    assert "GiB" in fails("Padding", P.Padding(front_offset_dim0=2**32 - 1, back_offset_dim1=2**32 - 1), X)


# Diag, Eye, Linspace, Alloc


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 3])
def test_diag(k: int) -> None:
    m = X[0]
    (found,) = run("Diag", P.Diag(k=k), m)
    assert found.tolist() == [m[i, i + k] for i in range(3) if 0 <= i + k < 4]
    (square,) = run("Diag", P.Diag(k=k), m[0])
    want = np.zeros((4 + abs(k),) * 2, "f4")
    for i in range(4):
        want[i + max(-k, 0), i + max(k, 0)] = m[0, i]
    np.testing.assert_array_equal(square, want)


def test_diag_refuses() -> None:
    assert "outside" in fails("Diag", P.Diag(k=4), X[0])
    assert "outside" in fails("Diag", P.Diag(k=-3), X[0])
    assert "vector or a matrix" in fails("Diag", P.Diag(), X)
    assert "GiB" in fails("Diag", P.Diag(k=2**31 - 1), X[0, 0])


@pytest.mark.parametrize(("k", "shape"), [(0, (3,)), (1, (3, 5)), (-2, (4, 2)), (9, (2, 2)), (-9, (2, 2))])
def test_eye(k: int, shape: tuple[int, ...]) -> None:
    p = P.Eye(k=k, dtype=P.DTypeEnum.Int32)
    (found,) = run("Eye", p, ints(*shape), known=[0])
    rows, columns = (shape * 2)[:2]
    assert found.dtype == np.int32
    assert found.tolist() == [[int(j == i + k) for j in range(columns)] for i in range(rows)]


def test_eye_refuses() -> None:
    assert "1 or 2 dimensions" in fails("Eye", P.Eye(), ints(2, 2, 2), known=(0,))
    assert "GiB" in fails("Eye", P.Eye(), ints(2**31 - 1), known=(0,))


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_linspace(endpoint: bool, n: int) -> None:
    start, stop = np.array([0.1], "f4"), np.array([7.3], "f4")
    (found,) = run("Linspace", P.Linspace(endpoint=endpoint), start, stop, ints(n), known=[2])
    a, b = float(start[0]), float(stop[0])
    want = [a + i * (b - a) / max(n - endpoint, 1) for i in range(n)]
    np.testing.assert_allclose(found, want, rtol=1e-7)


def test_linspace_refuses() -> None:
    one = np.ones(1, "f4")
    assert "scalars" in fails("Linspace", P.Linspace(), np.ones(2, "f4"), one, ints(3), known=(2,))
    assert "negative" in fails("Linspace", P.Linspace(), one, one, ints(-3), known=(2,))


def test_alloc() -> None:
    (found,) = run("Alloc", P.DTypeParam(dtype=P.DTypeEnum.Int8), ints(2, 3), known=[0])
    assert found.dtype == np.int8
    assert found.shape == (2, 3)


# MaskedFill and Where


@pytest.mark.parametrize(
    ("dtype", "value", "want"), [("f4", 2.75, 2.75), ("i4", -2.7, -2), ("u1", -2.7, 254), ("?", 0.5, True)]
)
def test_masked_fill(dtype: str, value: float, want: float) -> None:
    x = (X[:, :2] % 2).astype(dtype)
    mask = np.array([[True, False], [False, True]])
    (found,) = run("MaskedFill", P.Fill(value=value), x, mask)
    for at in np.ndindex(*x.shape):
        assert found[at] == (want if mask[at[:2]] else x[at])


def test_masked_fill_refuses() -> None:
    assert "the mask has shape [3, 4], expected [2, 3]" in fails(
        "MaskedFill", P.Fill(), X, np.ones((3, 4), "?")
    )
    assert "mask must be Bool" in fails("MaskedFill", P.Fill(), X, np.ones((2, 3), "i4"))


def test_where() -> None:
    mask = X % 3 == 0
    (found,) = run("Where", P.Empty(), mask, X, -X)
    assert found.reshape(-1).tolist() == [v if v % 3 == 0 else -v for v in range(24)]
    assert "one plain dtype" in fails("Where", P.Empty(), mask, X, X.astype("i4"))
    assert "expected [2, 3, 4]" in fails("Where", P.Empty(), mask[:1], X, X)


def test_any_dtype_moves() -> None:
    """Moving operators keep the stored numbers of quantized and 4-bit types."""
    q = DType("Quantized4Asymm", 0.5, 3)
    x = np.arange(12, dtype="u1").reshape(3, 4)
    for name, params in (
        ("Dimshuffle", P.Dimshuffle(pattern=(1, 0), ndim=2)),
        ("AxisAddRemove", P.AxisAddRemove(desc=(AxisDesc(0, 0),))),
    ):
        g = graph_of(name, params, [x], dtypes={0: q})
        (found,) = ReferenceEngine(g).run({"i0": x})
        assert g.outputs[0].dtype == q
        assert sorted(found.reshape(-1).tolist()) == list(range(12))
    assert dtype_of(x) == DType("Uint8")
