"""A bundle as a task wants it: its graph optimized, its data repeated or cut to a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..base.errors import UsageError
from ..graph.dtypes import Array
from ..testcase import EXPECT, Bundle, LazyTestcases, Testcase

__all__ = ["prepared"]

_KEPT = 16
"""Optimized graphs that are kept where a model has one for each set of sizes."""


def prepared(bundle: Bundle, flags: Sequence[str] = (), batch: int | None = None) -> Bundle:
    """Return the bundle with an optimized graph and other batches; the same one when nothing is asked for.

    Args:
        bundle: what was read.
        flags: keywords of `optimize_for_inference` in `passes.inference`, and that name itself for none of them.
        batch: items of axis 0 of all that testcases hold, expected values included; where some of these are cut off,
            the rest can fail, but not pass.

    Raises:
        UsageError: two layouts, or an unknown keyword.
        UnsupportedError: an operator of which nothing is known.

    >>> import loadrun
    >>> bundle = prepared(loadrun.load("fixtures/nets/mlp.mge"), batch=5)
    >>> bundle.testcases[0].arrays["data"].shape
    (5, 20)
    """
    if flags:
        bundle = _Optimized(flags)(bundle)
    if batch is not None:
        if batch < 1:
            raise UsageError(f"a batch must have at least one item, found {batch}")
        given, size = bundle.testcases, batch

        def read(number: int) -> Testcase:
            case = given[number]
            arrays = {
                n: a[np.arange(size) % len(a)] if a.ndim and len(a) else a for n, a in case.arrays.items()
            }
            rows = max((len(a) for n, a in case.arrays.items() if n.endswith(EXPECT) and a.ndim), default=0)
            cut = f"the first {size} of {rows} expected rows were run (--batch-size {size})"
            return replace(case, arrays=arrays, left_out=cut if rows > size else "")

        bundle = replace(bundle, testcases=LazyTestcases(read, range(len(given))))
    return bundle


class _Optimized:
    """Makes bundles whose graphs are optimized, for other sizes as well where a model has a graph for each."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._options = dict.fromkeys((f for f in flags if f != "optimize_for_inference"), True)
        self._kept = lru_cache(_KEPT)(self._made)

    def __call__(self, bundle: Bundle) -> Bundle:
        return self._kept(bundle)

    def _made(self, bundle: Bundle) -> Bundle:
        from ..passes.inference import optimize_for_inference  # for start-up

        graph, _ = optimize_for_inference(bundle.graph, **self._options)

        def sized(arrays: Mapping[str, Array]) -> Bundle:
            return self(bundle.for_data(arrays))

        return replace(bundle, graph=graph, guarded=None, sized=sized if bundle.sized else None)
