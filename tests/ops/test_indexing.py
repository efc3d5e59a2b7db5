"""Indexing operators against plain loops over elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import params as P
from loadrun.graph.params import IndexItem
from loadrun.testing import operator_graph as graph_of, run_operator as run
from tests.support.arrays import ints

X = np.arange(24, dtype="f4").reshape(2, 3, 4)
Item = tuple[int, str]


def desc(*items: Item) -> P.IndexDescMaskDump:
    """Make items such as ``(1, "bes")``: axis, and the letters of the parts that are given (x for an index)."""
    return P.IndexDescMaskDump(items=tuple(IndexItem(a, *(c in parts for c in "besx")) for a, parts in items))


def fails(name: str, params: Any, *inputs: Any, known: tuple[int, ...] = ()) -> str:
    with pytest.raises(EngineError) as e:
        run(name, params, *inputs, known=known)
    return str(e.value)


# Subtensor: Python's own range and list indexing say which elements are meant.


@pytest.mark.parametrize(
    ("parts", "numbers", "want"),
    [
        ("b", [1], [1, 2, 3, 4, 5, 6]),
        ("b", [-2], [5, 6]),
        ("b", [9], []),
        ("e", [3], [0, 1, 2]),
        ("e", [-3], [0, 1, 2, 3]),
        ("e", [99], [0, 1, 2, 3, 4, 5, 6]),
        ("s", [3], [0, 3, 6]),
        ("s", [-1], [6, 5, 4, 3, 2, 1, 0]),
        ("s", [100], [0]),
        ("be", [2, 5], [2, 3, 4]),
        ("be", [5, 2], []),
        ("bes", [1, 6, 2], [1, 3, 5]),
        ("bes", [-1, 0, -2], [6, 4, 2]),
        ("bes", [99, 2, -3], [6, 3]),
        ("es", [3, -1], [6, 5, 4]),
        ("bs", [4, -4], [4, 0]),
        ("bes", [2, 4, -1], []),
        ("x", [0], [0]),
        ("x", [-7], [0]),
        ("x", [6], [6]),
    ],
)
def test_slices_of_a_vector(parts: str, numbers: list[int], want: list[int]) -> None:
    x = np.arange(7, dtype="i4")
    given = [ints(n) for n in numbers]
    (found,) = run("Subtensor", desc((0, parts)), x, *given, known=range(1, 1 + len(given)))
    assert found.tolist() == want


def test_several_axes_in_any_order() -> None:
    (a,) = run("Subtensor", desc((2, "b"), (0, "x")), X, ints(1), ints(-1), known=[1, 2])
    (b,) = run("Subtensor", desc((0, "x"), (2, "b")), X, ints(-1), ints(1), known=[1, 2])
    (c,) = run("Subtensor", desc((-3, "x"), (-1, "b")), X, ints(-1), ints(1), known=[1, 2])
    want = [[X[1, i, j] for j in range(1, 4)] for i in range(3)]
    assert a.tolist() == b.tolist() == c.tolist() == want
    assert np.shares_memory(a, X)


def test_all_axes_indexed_leave_one() -> None:
    (found,) = run(
        "Subtensor", desc((2, "x"), (1, "x"), (0, "x")), X, ints(3), ints(1), ints(0), known=[1, 2, 3]
    )
    assert found.shape == (1,)
    assert found.tolist() == [7]


def test_shape_is_known_when_an_index_is_not() -> None:
    g = graph_of("Subtensor", desc((1, "x")), [X, ints(0)])
    (found,) = ReferenceEngine(g).run({"i0": X, "i1": ints(2)})
    assert found.tolist() == X[:, 2].tolist()
    run("Subtensor", desc((1, "x")), X, ints(1))


def test_empty_axis() -> None:
    empty = np.zeros((3, 0), "f4")
    (found,) = run("Subtensor", desc((1, "bes")), empty, ints(2), ints(0), ints(-1), known=[1, 2, 3])
    assert found.shape == (3, 0)
    assert "out of bounds" in fails("Subtensor", desc((1, "x")), empty, ints(0))


@pytest.mark.parametrize(
    ("items", "numbers", "text"),
    [
        # What real MegEngine refuses as well.
        ([(2, "b")], [-10], "slice -10:: is out of bounds for axis 2 of size 4"),
        ([(2, "e")], [-10], "slice :-10: is out of bounds"),
        ([(2, "es")], [-9, -1], "slice :-9:-1 is out of bounds"),
        ([(1, "s")], [0], "step of the slice along axis 1 is 0"),
        ([(1, "b"), (-2, "x")], [0, 0], "indexed twice"),
        ([(9, "b")], [0], "no axis 9"),
        ([(1, "")], [], "either a slice or an index"),
        ([(1, "bx")], [0, 0], "either a slice or an index"),
        ([(1, "b")], [0, 0], "describes 1 inputs, found 2"),
        ([(i, "b") for i in range(-4, 4)], [0] * 8, "at most 7 axes"),
    ],
)
def test_subtensor_refuses(items: list[Item], numbers: list[int], text: str) -> None:
    given = [ints(n) for n in numbers]
    assert text in fails("Subtensor", desc(*items), X, *given, known=tuple(range(1, 1 + len(given))))


def test_index_out_of_bounds() -> None:
    assert "index 3 is out of bounds for axis 1 of size 3" in fails("Subtensor", desc((1, "x")), X, ints(3))
    assert "index -4 is out of bounds" in fails("Subtensor", desc((1, "x")), X, ints(-4))
    assert "must be a scalar" in fails("Subtensor", desc((1, "x")), X, ints(0, 1))


# SetSubtensor and IncrSubtensor


def test_set_and_incr_subtensor() -> None:
    value = np.array([[100, 200], [300, 400]], "f4")
    items = desc((2, "bs"), (1, "x"))
    given = (ints(3), ints(-2), ints(-1))
    for name, added in (("SetSubtensor", False), ("IncrSubtensor", True)):
        (found,) = run(name, items, X, value, *given, known=[2, 3, 4])
        want = X.copy()
        for i in range(2):
            for j, at in enumerate((3, 1)):
                want[i, 2, at] = value[i, j] + (X[i, 2, at] if added else 0)
        np.testing.assert_array_equal(found, want)


def test_a_single_element_is_set() -> None:
    (found,) = run("SetSubtensor", desc((0, "x")), ints(1, 2, 3), ints(9), ints(1), known=[2])
    assert found.tolist() == [1, 9, 3]
    (found,) = run("IncrSubtensor", desc((0, "x")), ints(1, 2, 3), ints(9), ints(1), known=[2])
    assert found.tolist() == [1, 11, 3]


def test_value_must_fit() -> None:
    # Real MegEngine does not broadcast either: "SetSubtensor shape mismatch".
    text = fails("SetSubtensor", desc((1, "x")), X, np.ones(1, "f4"), ints(0), known=(2,))
    assert "the value has shape [1], the selected part [2, 4]" in text
    assert "one dtype" in fails(
        "IncrSubtensor", desc((1, "x")), X, np.ones((2, 4), "i4"), ints(0), known=(2,)
    )


def test_a_dying_input_is_changed_in_place_and_others_are_not() -> None:
    g = graph_of("Concat", P.Axis(), [X, X])
    (double,) = g.outputs
    value = g.inputs[0]
    at = g.add("GetVarShapeV1", P.OptionalAxisV1(axis=0), inputs=[value])[0]
    first = g.add("SetSubtensor", desc((0, "b")), inputs=[double, value, at])[0]
    second = g.add("IncrSubtensor", desc((0, "e")), inputs=[first, value, at])[0]
    for kept in ([second], [second, first], [second, first, double]):
        g.outputs = kept
        found = ReferenceEngine(g).run({"i0": X, "i1": -X})
        want = [np.concatenate([2 * X, X]), np.concatenate([X, X]), np.concatenate([X, -X])]
        for a, b in zip(found, want, strict=False):
            np.testing.assert_array_equal(a, b)


# Vector indices


INDEX = np.array([[0, -1], [1, 1]], "i4")


def loop(x: Any, index: dict[int, Any]) -> Any:
    """Index element by element, from the definition of advanced indexing."""
    whole = np.broadcast_shapes(*(i.shape for i in index.values()))
    axes = sorted(index)
    rest = [a for a in range(x.ndim) if a not in axes]
    at = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    shape = [x.shape[a] for a in rest]
    out = np.empty((*shape[:at], *whole, *shape[at:]), x.dtype)
    for pos in np.ndindex(*out.shape):
        where, others = pos[at : at + len(whole)], iter(pos[:at] + pos[at + len(whole) :])
        src = [
            int(np.broadcast_to(index[a], whole)[where]) if a in index else next(others)
            for a in range(x.ndim)
        ]
        out[pos] = x[tuple(src)]
    return out


@pytest.mark.parametrize(
    "index",
    [
        {1: INDEX},
        {0: ints(1)},
        {0: ints(1, 0), 2: INDEX},
        {1: ints(2), 2: INDEX},
        {0: ints(0, 1), 1: ints(2, -3), 2: ints(-1, 0)},
        {2: np.zeros((0, 3), "i4")},
    ],
)
def test_multi_axis(index: dict[int, Any]) -> None:
    items = sorted(index, reverse=True)
    (found,) = run("IndexingMultiAxisVec", desc(*((a, "x") for a in items)), X, *(index[a] for a in items))
    np.testing.assert_array_equal(found, loop(X, index))


def test_multi_axis_with_slices() -> None:
    (found,) = run("IndexingMultiAxisVec", desc((2, "b"), (1, "x")), X, ints(1), INDEX, known=[1])
    np.testing.assert_array_equal(found, loop(X[:, :, 1:], {1: INDEX}))
    (found,) = run(
        "IndexingMultiAxisVec",
        desc((2, "x"), (1, "bs"), (0, "x")),
        X,
        *(INDEX, ints(2), ints(-2), ints(1)),
        known=[2, 3],
    )
    np.testing.assert_array_equal(found, loop(X[:, 2::-2], {0: ints(1), 2: INDEX}))
    (found,) = run("IndexingMultiAxisVec", desc((1, "b")), X, ints(2), known=[1])
    np.testing.assert_array_equal(found, X[:, 2:])


def test_multi_axis_set_and_incr() -> None:
    value = np.arange(32, dtype="f4").reshape(2, 2, 2, 4) + 100
    items = desc((1, "x"))
    (found,) = run("IndexingIncrMultiAxisVec", items, X, value, INDEX)
    want = X.copy()
    for pos in np.ndindex(2, 2, 2):
        want[pos[0], INDEX[pos[1:]]] += value[pos]
    np.testing.assert_array_equal(found, want)
    (found,) = run("IndexingSetMultiAxisVec", items, X, value, INDEX)
    for pos in np.ndindex(2, 2, 2):
        want[pos[0], INDEX[pos[1:]]] = value[pos]
    np.testing.assert_array_equal(found, want)


def test_multi_axis_refuses() -> None:
    items = desc((1, "x"))
    assert "index 3 is out of bounds for axis 1" in fails("IndexingMultiAxisVec", items, X, ints(0, 3))
    assert "index -4 is out of bounds" in fails("IndexingMultiAxisVec", items, X, ints(0, -4))
    assert "must be Int32 or Int64, found Float32" in fails(
        "IndexingMultiAxisVec", items, X, np.ones(2, "f4")
    )
    assert "selected part [2, 2, 2, 4]" in fails("IndexingSetMultiAxisVec", items, X, X[0], INDEX)
    assert "broadcast" in fails(
        "IndexingMultiAxisVec", desc((1, "x"), (0, "x")), X, ints(0, 1), ints(0, 0, 0)
    )


# Mesh


def test_mesh() -> None:
    a, b = ints(-1, 0, 3), ints(1, 1)
    (found,) = run("MeshIndexing", desc((2, "x"), (0, "x")), X, a, b)
    assert found.tolist() == [[[X[i, j, k] for k in a] for j in range(3)] for i in b]
    (found,) = run("MeshIndexing", desc((2, "x"), (1, "b")), X, a, ints(1), known=[2])
    assert found.tolist() == [[[X[i, j, k] for k in a] for j in (1, 2)] for i in range(2)]


def test_batched_mesh() -> None:
    a, b = np.array([[0, -1, 1], [3, 2, 2]], "i4"), np.array([[0, -1], [2, 2]], "i4")
    items = desc((2, "x"), (1, "x"))
    (found,) = run("BatchedMeshIndexing", items, X, a, b)
    assert found.tolist() == [[[X[n, j, k] for k in a[n]] for j in b[n]] for n in range(2)]
    (found,) = run("BatchedMeshIndexing", desc((2, "x")), X[:, :, :0], np.zeros((2, 0), "i4"))
    assert found.shape == (2, 3, 0)


def test_mesh_set_and_incr() -> None:
    value = np.arange(12, dtype="f4").reshape(2, 2, 3) + 100
    items = desc((2, "x"), (1, "x"))
    a, b = ints(0, 1, 0), ints(1, 1)
    rows, columns = np.tile(b, (2, 1)), np.tile(a, (2, 1))
    for prefix, i, j in (("", b, a), ("Batched", rows, columns)):
        for how in ("Set", "Incr"):
            name = f"Batched{how}MeshIndexing" if prefix else f"{how}MeshIndexing"
            (found,) = run(name, items, X, value, j, i)
            want = X.copy()
            for n, r, s in np.ndindex(2, 2, 3):
                at = (n, b[r], a[s])
                want[at] = value[n, r, s] + (want[at] if how == "Incr" else 0)
            np.testing.assert_array_equal(found, want, err_msg=name)


def test_mesh_refuses() -> None:
    assert "must have 1 dimensions" in fails("MeshIndexing", desc((1, "x")), X, INDEX)
    assert "must have 2 dimensions" in fails("BatchedMeshIndexing", desc((1, "x")), X, ints(1))
    assert "not be of axis 0" in fails("BatchedMeshIndexing", desc((0, "x")), X, INDEX)
    assert "3 rows for a batch of 2" in fails(
        "BatchedMeshIndexing", desc((1, "x")), X, np.zeros((3, 1), "i4")
    )
    assert "out of bounds" in fails("MeshIndexing", desc((1, "x")), X, ints(3))
    assert "selected part" in fails("SetMeshIndexing", desc((1, "x")), X, X[:, :1], ints(1, 0))


# One-hot and remap


def test_one_hot() -> None:
    index = np.array([[0, 2, 1, 1], [2, 2, 0, 1]], "i4")
    (found,) = run("IndexingOneHot", P.Axis(axis=1), X, index)
    assert found.tolist() == [[[X[n, index[n, k], k] for k in range(4)]] for n in range(2)]
    (changed,) = run("IndexingSetOneHot", P.Axis(axis=1), X, index, -found)
    want = X.copy()
    for n, k in np.ndindex(2, 4):
        want[n, index[n, k], k] *= -1
    np.testing.assert_array_equal(changed, want)


def test_one_hot_refuses() -> None:
    index = np.zeros((2, 4), "i4")
    assert "out of bounds" in fails("IndexingOneHot", P.Axis(axis=1), X, index - 1)
    assert "out of bounds" in fails("IndexingOneHot", P.Axis(axis=1), X, index + 3)
    assert "expected [2, 4]" in fails("IndexingOneHot", P.Axis(axis=1), X, index[:, :3])
    assert "no axis -1" in fails("IndexingOneHot", P.Axis(axis=-1), X, index)
    assert "the value has shape" in fails("IndexingSetOneHot", P.Axis(axis=1), X, index, X)


def test_remap() -> None:
    table = np.array([[[0, 1, 2], [1, 2, 3]], [[1, 0, 0], [0, 0, 0]], [[1, 1, 1], [0, 2, 0]]], "i4")
    (found,) = run("IndexingRemap", P.IndexingRemap(), X, table)
    assert found.tolist() == [[X[tuple(at)] for at in row] for row in table]
    assert "outside" in fails("IndexingRemap", P.IndexingRemap(), X, table - 1)
    assert "must end in a dimension of 3" in fails("IndexingRemap", P.IndexingRemap(), X, table[:, :, :2])
    assert "Float32 or Int32" in fails("IndexingRemap", P.IndexingRemap(), X.astype("f2"), table)
