"""A classifier in plain numpy, pre-processing included: traced through numpy's own protocols, packed and replayed.

    python examples/numpy_pipeline.py --output pipeline.mge

`classify` does not use loadrun: it runs on ndarrays unchanged, and the trace records MegEngine's operators.
"""

from __future__ import annotations

import argparse

import numpy as np

import loadrun
from loadrun import tracing as jit

_RNG = np.random.default_rng(0)
MEAN = np.array([123.7, 116.3, 103.5], np.float32)
STD = np.array([58.4, 57.1, 57.4], np.float32)
W1 = (_RNG.normal(size=(64, 192)) / 14).astype(np.float32)
W2 = (_RNG.normal(size=(10, 64)) / 8).astype(np.float32)


def preprocess(image: np.ndarray) -> np.ndarray:
    """From (N, 64, 64, 3) uint8 pixels, blue first, to (N, 192) normalized numbers."""
    x = (image[..., ::-1].astype(np.float32) - MEAN) / STD
    n, h, w, c = x.shape
    x = x.reshape(n, h // 8, 8, w // 8, 8, c).mean(axis=(2, 4))
    return np.transpose(x, (0, 3, 1, 2)).reshape(n, -1)


def classify(image: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of ten classes, the best class and its margin over the second."""
    hidden = np.maximum(preprocess(image) @ W1.T, 0)
    scores = hidden @ W2.T
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    prob = e / e.sum(axis=1, keepdims=True)
    ordered = np.sort(prob, axis=1)
    return {"prob": prob, "best": np.argmax(prob, axis=1), "margin": ordered[:, -1] - ordered[:, -2]}


def main(argv: list[str] | None = None) -> int:
    """Trace, dump, replay at two batch sizes."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--output", default="pipeline.mge")
    args = p.parse_args(argv)

    traced = jit.trace(classify, symbolic=True, capture_as_const=True)
    image = _RNG.integers(0, 256, (1, 64, 64, 3), np.uint8)
    found, want = traced(image), classify(image)
    for name in want:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-4, atol=1e-6)
    traced.dump(
        args.output,
        arg_names=["image"],
        input_data=["image:#randint(0,256,seed=0)", "image:#randint(0,256,5,...,seed=1)"],
        # The difference of two numbers may be small and has the rounding of both.
        maxerr={"margin": 1e-6},
    )
    verdicts = [r.verdict.value for r in loadrun.run(args.output)]
    print(f"{args.output}: {', '.join(verdicts)}")
    return 0 if verdicts == ["pass", "pass"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
