"""A decoder whose cache grows, on a runtime that has a model for each set of sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadrun import trace
from loadrun.graph.dtypes import Array
from loadrun.runner import Runner

WORDS, WIDTH, PLACES = 11, 6, 16


class Decoder:
    """One layer of attention over a growing cache."""

    def __init__(self, dtype: str) -> None:
        rng = np.random.default_rng(7)
        shapes = (WORDS, WIDTH), (PLACES, WIDTH), (WIDTH,) * 2, (WIDTH,) * 2
        self.words, self.places, self.keys, self.values = (
            rng.normal(size=s).astype("f4").astype(dtype) for s in shapes
        )

    def __call__(self, ids: Array, position: Array, past: Array, seen: Array) -> dict[str, Array]:
        x = (ids[:, None] == np.arange(WORDS)).astype(self.words.dtype) @ self.words
        x = x + (position[:, None] == np.arange(PLACES)).astype(self.words.dtype) @ self.places
        past, seen = np.concatenate([past, x @ self.keys], 0), np.concatenate([seen, x @ self.values], 0)
        scores = x @ past.T / WIDTH**0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        found = (weights / weights.sum(-1, keepdims=True)) @ seen
        return {"logits": found @ self.words.T, "present": past, "now_seen": seen}


def test_onnxruntime_runs_more_sizes_of_a_cache_than_it_keeps_models(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    step = trace(symbolic=True, capture_as_const=True)(Decoder("f4"))
    cache = np.zeros((2, WIDTH), "f4")
    step(np.array([3], "i4"), np.array([0], "i4"), cache, cache)
    step.dump(tmp_path / "decoder.mge", arg_names=["ids", "position", "past", "seen"])
    runner, exact = Runner(tmp_path / "decoder.mge", "onnxruntime"), Decoder("f8")
    feeds = {"ids": np.array([2], "i4"), "position": np.array([1], "i4")}
    for rows in (3, 1, 7, 2, 12, 30, 4, 5, 6, 8, 3):
        past = np.linspace(-1, 1, rows * WIDTH, dtype="f4").reshape(rows, WIDTH)
        found = runner.run({**feeds, "past": past, "seen": past[::-1]})
        expected = exact(feeds["ids"], feeds["position"], past.astype("f8"), past[::-1].astype("f8"))
        for name in ("logits", "present"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-4)
