"""A bundle as a task wants it: its graph optimized, its data repeated or cut to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..base.errors import UsageError
from ..testcase import EXPECT, Bundle, LazyTestcases, Testcase

__all__ = ["prepared"]


def prepared(bundle: Bundle, flags: Sequence[str] = (), batch: int | None = None) -> Bundle:
    """The bundle with an optimized graph and other batches; the same one when nothing is asked for.

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
        from ..passes.inference import optimize_for_inference  # for start-up

        named = [f for f in flags if f != "optimize_for_inference"]
        graph, _ = optimize_for_inference(bundle.graph, **dict.fromkeys(named, True))
        bundle = replace(bundle, graph=graph)
    if batch is not None:
        if batch < 1:
            raise UsageError(f"a batch has at least one item, found {batch}")
        given, size = bundle.testcases, batch

        def read(number: int) -> Testcase:
            case = given[number]
            arrays = {
                n: a[np.arange(size) % len(a)] if a.ndim and len(a) else a for n, a in case.arrays.items()
            }
            rows = max((len(a) for n, a in case.arrays.items() if n.endswith(EXPECT) and a.ndim), default=0)
            cut = f"the first {size} of {rows} expected rows alone were run (--batch-size {size})"
            return replace(case, arrays=arrays, left_out=cut if rows > size else "")

        bundle = replace(bundle, testcases=LazyTestcases(read, range(len(given))))
    return bundle
