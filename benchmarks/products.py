"""What the matrix products of a model take by themselves: the bound that numpy's BLAS sets.

    python benchmarks/products.py MODEL.mge [--rounds 5]

One thread, processor time, least of all rounds. Every product of a run is repeated with operands of its own of the
same shapes and orders; weights are taken from several copies in turn, since a model finds them outside of the cache.
Beside them stands the whole model, measured in turn with the products, so that a busy machine slows down both.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from tabulate import tabulate

import loadrun
from loadrun.ops.numeric.parallel import set_threads

Operand = tuple[tuple[int, ...], bool]
Product = tuple[Operand, Operand]

COPIES = 24 << 20
"""Bytes of copies of the left operand: more than the second-level cache holds."""
MOST = 12


def recorded(run: Callable[[], object]) -> Counter[Product]:
    """The shapes and orders of all float32 products of matrices, with how often they occur."""
    found: Counter[Product] = Counter()
    real = np.matmul

    def matmul(a: Any, b: Any, *rest: Any, **given: Any) -> Any:
        if a.dtype == b.dtype == np.float32 and min(a.shape[-2:]) > 1:
            found[(a.shape, a.strides[-1] != 4), (b.shape, b.strides[-1] != 4)] += 1
        return real(a, b, *rest, **given)

    with mock.patch.object(np, "matmul", matmul):
        run()
    return found


def operand(given: Operand, rng: np.random.Generator) -> Any:
    """An array of that shape; turned: its last two axes lie the other way round in memory."""
    shape, turned = given
    if turned:
        return rng.random((*shape[:-2], shape[-1], shape[-2]), np.float32).swapaxes(-2, -1)
    return rng.random(shape, np.float32)


def prepared(product: Product) -> Callable[[], float]:
    """What measures one product in seconds."""
    rng = np.random.default_rng(0)
    left, right = product
    size = 4 * int(np.prod(left[0]))
    many = [operand(left, rng) for _ in range(max(1, min(MOST, COPIES // size)))]
    b = operand(right, rng)
    out = np.matmul(many[0], b)

    def measure() -> float:
        before = time.process_time()
        for a in many:
            np.matmul(a, b, out=out)
        return (time.process_time() - before) / len(many)

    return measure


def main() -> None:
    """Print what products and the whole take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    set_threads(1)
    bundle = loadrun.load(args.model)
    runner, inputs = loadrun.Runner(bundle), bundle.testcases[0].inputs

    def whole() -> float:
        before = time.process_time()
        runner.run(inputs)
        return time.process_time() - before

    whole()
    found = recorded(whole)
    measures = {p: prepared(p) for p in found}
    least = dict.fromkeys(found, float("inf"))
    total = float("inf")
    for _ in range(args.rounds):
        for p, measure in measures.items():
            least[p] = min(least[p], measure())
            total = min(total, whole())
    rows, seconds, work = [], 0.0, 0.0
    for product, count in sorted(found.items(), key=lambda item: -item[1] * least[item[0]]):
        (a, _), (b, _) = product
        flops = 2 * float(np.prod(a)) * b[-1]
        rows.append((a, b, count, 1e3 * least[product], flops / least[product] / 1e9))
        seconds, work = seconds + count * least[product], work + count * flops
    print(tabulate(rows, ("left", "right", "times", "ms each", "GFLOP/s"), floatfmt=".1f"))
    print(f"\nproducts alone: {1e3 * seconds:.1f} ms, {work / seconds / 1e9:.0f} GFLOP/s")
    print(f"the whole model: {1e3 * total:.1f} ms, of which products are {seconds / total:.0%}")


if __name__ == "__main__":
    main()
