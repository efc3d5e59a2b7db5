"""Traced products of matrices, einsum and numpy.linalg against numpy's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.arrays.array import TracedArray
from loadrun.base.errors import EngineError, TraceError
from loadrun.tracing import trace
from tests.support.cases import fewer
from tests.support.numpy_cases import (
    Case,
    agree,
    cases,
    check,
    check_dumps,
    check_in_megengine,
    check_traced,
    names,
)

PRODUCTS = cases("""
g @ v
v @ v
v @ g.T
g @ g.T
f @ g.T
f @ v
f @ f.swapaxes(1, 2)
f @ f.swapaxes(1, 2)[:1]
f[:, None] @ f.swapaxes(1, 2)[None]
sq @ sq
v @ f.swapaxes(1, 2)
h @ h.T
h @ g.T
i[0] @ j.T
(i[0] * 10000) @ (j.T * 30000)
i @ i.swapaxes(1, 2)
s @ s.T
u @ u.T
k @ k.T
q @ q.T
n @ n.T
b @ c.T
i[0] @ v
np.matmul(f, v)
np.dot(g, v)
np.dot(g, 2)
np.dot(f, f.swapaxes(1, 2))
np.dot(v, v)
np.dot(f, g.T)
g.dot(v)
np.inner(g, v)
np.inner(f, g)
np.inner(v, 3)
np.outer(v, w)
np.outer(i, [1, 2])
np.tensordot(g, g)
np.tensordot(f, g, 2)
np.tensordot(f, v, 1)
np.tensordot(f, f, ([0, 2], [0, 2]))
np.tensordot(f, f, axes=(1, 1))
np.tensordot(g, v, 0)
np.tensordot(i, i, 3)
np.cross(st, st[::-1])
np.cross(st, st[::-1], axis=1)
np.cross(st[0, 0], [1, 0, 0])
np.cross(st, st[::-1], axisa=1, axisc=0)
""")

EINSUM = cases("""
np.einsum('ij,jk', g, g.T)
np.einsum('ij,kj->ik', g, g)
np.einsum('ij->ji', g)
np.einsum('ij->', g)
np.einsum('ii->i', sq)
np.einsum('ii', sq)
np.einsum('kii->ki', st)
np.einsum('abc,abc->a', f, f)
np.einsum('abc,abc->abc', f, f)
np.einsum('abc,c->ab', f, v)
np.einsum('abc,bc->ac', f, g)
np.einsum('abc,dbc->ad', f, f)
np.einsum('abc,abd->acd', f, f)
np.einsum('i,j->ij', v, w)
np.einsum('i,i->', v, v)
np.einsum('...ij,...kj->...ik', f, g)
np.einsum('...i->...', f)
np.einsum('ij,j,j->i', g, v, v)
np.einsum('ij,jk,kl->il', g, g.T, g)
np.einsum('ij,jk,kl->li', g, g.T, g, optimize=True)
np.einsum('ab,bc,ad->cd', g, g.T, g)
np.einsum('ij,ij->i', i[0], j)
np.einsum('ij,kj->ik', i[0], j)
np.einsum('ij , jk -> ik', g, g.T)
np.einsum(g, [0, 1], v, [1], [0])
np.einsum(g, [0, 1], g.T, [1, 2])
np.einsum('b...->...b', f)
np.einsum('ijk,ilm->jm', f, f)
np.einsum('ij,jk->ik', g[:, :1], g)
np.einsum('bhqd,bhkd->bhqk', f[None], f[None])
""")

LINALG = cases("""
np.linalg.norm(f)
np.linalg.norm(v)
np.linalg.norm(f, axis=1)
np.linalg.norm(g, axis=1, keepdims=True)
np.linalg.norm(v, 1)
np.linalg.norm(v, np.inf)
np.linalg.norm(v, -np.inf)
np.linalg.norm(v, 0)
np.linalg.norm(v, 3)
np.linalg.norm(f, 1, axis=2)
np.linalg.norm(g, 'fro')
np.linalg.norm(g, 1)
np.linalg.norm(g, np.inf)
np.linalg.norm(g, -1)
np.linalg.norm(g, 2)
np.linalg.norm(g, -2)
np.linalg.norm(g, 'nuc')
np.linalg.norm(f, axis=(0, 2))
np.linalg.norm(f, 1, axis=(2, 0), keepdims=True)
np.linalg.norm(f, 2, axis=(0, 1))
np.linalg.norm(i)
np.linalg.norm(f, keepdims=True)
np.linalg.inv(sq)
np.linalg.inv(st)
np.linalg.solve(sq, g)
np.linalg.solve(sq, g[:, 0])
np.linalg.solve(st, st)
np.linalg.det(sq)
np.linalg.det(st)
np.linalg.det(sq[:1, :1])
np.linalg.det(sq[:2, :2])
np.linalg.det(np.ones((4, 4), 'f4') * z)
np.linalg.det(np.eye(5, dtype='f4')[::-1] * z)
np.linalg.slogdet(sq)[0]
np.linalg.slogdet(sq)[1]
np.linalg.svd(g, compute_uv=False)
np.linalg.svd(st, compute_uv=False)
np.abs(np.linalg.svd(g, full_matrices=False)[0])
np.linalg.det(i[0, :2, :2])
""")

ALL = PRODUCTS + EINSUM + LINALG


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ALL, ids=names(ALL))
def test_as_numpy(case: Case) -> None:
    check(case, 5e-4, 5e-4)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", ALL[::5], ids=names(ALL[::5]))
def test_traced(case: Case, symbolic: bool) -> None:
    check_traced(case, symbolic, 5e-4, 5e-4)


@pytest.mark.skipif(not hasattr(np.linalg, "vector_norm"), reason="numpy 2 names")
@pytest.mark.parametrize(
    "text",
    [
        "np.linalg.svdvals(g)",
        "np.linalg.outer(v, w)",
        "np.linalg.matrix_transpose(f)",
        "np.linalg.cross(st, st[::-1])",
        "np.matrix_transpose(f)",
        "np.permute_dims(f, (2, 0, 1))",
        "np.concat([f, f])",
        "np.pow(f, 2)",
        "f.mT",
    ],
)
def test_names_of_numpy_2(text: str) -> None:
    check(cases(text)[0], 5e-4, 5e-4)


@settings(max_examples=fewer(60, 2), deadline=None)
@given(st.data())
def test_any_einsum(data: st.DataObject) -> None:
    size = dict(zip("abcd", data.draw(st.lists(st.integers(1, 3), min_size=4, max_size=4)), strict=True))
    count = data.draw(st.integers(1, 3))
    terms = ["".join(data.draw(st.lists(st.sampled_from("abcd"), max_size=3))) or "a" for _ in range(count)]
    letters = sorted(set("".join(terms)))
    out = "".join(data.draw(st.lists(st.sampled_from(letters), unique=True, max_size=3)))
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=[size[c] for c in t]).astype("f4") for t in terms]
    text = ",".join(terms) + "->" + out
    agree(np.einsum(text, *map(TracedArray, xs)), np.einsum(text, *xs), 1e-4, 1e-4)


@settings(max_examples=fewer(40, 2), deadline=None)
@given(st.data())
def test_any_stacks(data: st.DataObject) -> None:
    lead = [data.draw(st.lists(st.integers(1, 3), max_size=2)) for _ in range(2)]
    lead = [[n if n == 1 else 2 for n in side] for side in lead]
    m, k, n = (data.draw(st.integers(1, 3)) for _ in range(3))
    kind = data.draw(st.sampled_from(["f4", "i4", "u1", "i2"]))
    x = (np.random.default_rng(1).normal(size=[*lead[0], m, k]) * 90).astype("i4").astype(kind)
    y = (np.random.default_rng(2).normal(size=[*lead[1], k, n]) * 90).astype("i4").astype(kind)
    agree(TracedArray(x) @ TracedArray(y), x @ y, 1e-4, 1e-2)


def test_singular_values_compose() -> None:
    x = np.random.default_rng(3).normal(size=(2, 4, 3)).astype("f4")
    u, s, vt = np.linalg.svd(TracedArray(x), full_matrices=True)
    assert (u.shape, s.shape, vt.shape) == ((2, 4, 4), (2, 3), (2, 3, 3))
    u, s, vt = np.linalg.svd(TracedArray(x), full_matrices=False)
    np.testing.assert_allclose((u * s[:, None] @ vt).numpy(), x, atol=1e-5)


def test_errors() -> None:
    x = TracedArray(np.zeros((2, 3), "f4"))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.inv(x)
    with pytest.raises(EngineError, match="singular"):
        np.linalg.inv(x[:, :2])
    with pytest.raises(ValueError, match="mismatch"):
        _ = x @ x
    with pytest.raises(ValueError, match="more operands"):
        np.einsum("ij", x, x)
    with pytest.raises(ValueError, match="subscripts"):
        np.einsum("ijk->i", x)
    with pytest.raises(TraceError, match="up to 16 rows"):
        trace(np.linalg.det)(np.eye(17, dtype="f4"))
    with pytest.raises(TraceError, match=r"np\.linalg\.qr has no lowering"):
        trace(np.linalg.qr)(np.eye(3, dtype="f4"))


@pytest.mark.parametrize(
    "func",
    [
        lambda x: x @ x.T,
        lambda x: np.einsum("ij,kj->ik", x, x),
        lambda x: np.tensordot(x, x, ([0], [0])),
        lambda x: np.linalg.norm(x, axis=0),
        lambda x: x[:, :, None] @ x[:, None, :],
    ],
)
def test_sizes_of_another_call(func: Any) -> None:
    traced = trace(func, symbolic=True, capture_as_const=True)
    for n in (4, 4, 6, 2):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
        agree(traced(x.copy()), func(x.copy()), 1e-4, 1e-4)


@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy(tmp_path: Path) -> None:
    check_dumps(ALL, tmp_path)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_dumps_agree_with_numpy_in_megengine(tmp_path: Path) -> None:
    check_in_megengine(ALL, tmp_path)
