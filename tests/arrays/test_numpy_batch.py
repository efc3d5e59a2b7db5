"""Code that was traced with one batch size runs with others, from one sample on: sizes stay values of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.tracing import trace
from tests.support.numpy_cases import agree

V = np.array([0.5, -1, 2], "f4")
TEXTS = """
x - x.mean(0, keepdims=True)
x[:, :2] - x[:, :2].mean(0, keepdims=True)
x[:, :2] * V[None, :2]
x[:, 1:] * V[1:]
np.broadcast_to(x.mean(0), x.shape)
np.concatenate([x, np.full_like(x, V)], 1)
np.stack([x, x * 0 + V])
np.tile(x, (1, 2))
np.repeat(x, 3, 0)
np.where(x > 0, x, V)
np.where(x > 0, 0, x)
np.where(np.ones((1, 1), bool), 0, x)
np.linspace(x[:, 0], x[:, 1], 3)
np.linspace(x, V, 3, axis=-1)
np.take_along_axis(x, np.argsort(x, 1), 1)
np.take_along_axis(x, np.argmax(x, 1)[:, None], 1)
np.einsum('ij,kj->ik', x, x)
np.einsum('ij,j->i', x, V)
np.matmul(x[:, None], x[:, :, None])
x @ x.T
x @ np.ones((3, 2), 'f4')
np.pad(x, ((1, 0), (0, 2)))
np.clip(x, V, V + 1)
np.full_like(x, 3)
np.full_like(x, V)
np.zeros((x.shape[0], 2), like=x)
np.cumsum(x, 0)
np.sort(x, 1)
np.median(x, 1)
np.quantile(x, 0.3, axis=1)
np.linalg.norm(x, axis=1, keepdims=True)
x / np.linalg.norm(x, axis=1, keepdims=True)
x.reshape(x.shape[0], -1, 1)
x.reshape(-1, 3, 1)
x.reshape(x.shape)
x.ravel()
x.T.reshape(-1)
x[:, None, :] - x[None, :, :]
np.outer(x[:, 0], V)
np.meshgrid(x[:, 0], V)
np.moveaxis(x[None], 0, -1)
x.flatten() * 2
x[:, [2, 0]]
x[:, ::-1]
x[::-1]
x[-1]
x[0]
np.flip(x)
np.roll(x, 1, 1)
np.triu(x)
np.diff(x)
np.searchsorted(np.sort(V), x)
np.var(x, 1, ddof=1)
np.average(x, 1, V + 2)
np.average(x, 0)
np.maximum.accumulate(x, 1)
np.cumprod(x, 1)
np.select([x > 1, x < -1], [x, V], 0)
x.size * x
x.shape[0] * x + len(V)
np.arange(x.shape[0], like=x) + x[:, 0]
np.eye(x.shape[0], like=x) @ x
np.array([x[0], V], like=x)
np.argmax(x, 0)
np.sum(x, (0, 1))
np.split(x, 3, axis=1)
np.hstack([x, x])
np.vstack([x, V])
y = x.copy(); y[:, 0] = 1; y
y = x.copy(); y[:, 1:] = V[1:]; y
y = x.copy(); y[y < 0] = 0; y
y = x.copy(); y[:] = V; y
y = x.copy(); y += V; y
y = x.copy(); y[0] = V; y
y = x.copy(); z = y.reshape(-1); z += 1; y
y = x.copy(); z = y.T; z[0] = 4; y
y = np.zeros_like(x); y[...] = x[:, :1]; y
y = np.zeros(x.shape, like=x); y[:, 2] = x.sum(1); y
np.digitize(x, [-1, 0, 1])
""".strip().splitlines()


def _func(text: str) -> Any:
    scope: dict[str, Any] = {"np": np, "V": V}
    *steps, last = text.split("; ")
    exec("def func(x):\n" + "".join(f"    {s}\n" for s in steps) + f"    return {last}\n", scope)
    return scope["func"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", TEXTS, ids=[t.replace(" ", "") for t in TEXTS])
@pytest.mark.parametrize("first", [1, 3])
def test_other_batch_sizes(text: str, first: int) -> None:
    func = _func(text)
    traced = trace(func, symbolic=True, capture_as_const=True)
    for n in (first, first, 4, 1, 2):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype("f4")
        agree(traced(x.copy()), func(x.copy()), 1e-4, 1e-4)
