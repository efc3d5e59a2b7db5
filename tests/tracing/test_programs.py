"""Random programs give the same eagerly, traced, compiled, at another batch size, and dumped.

What may not hold is an error that names a line, never another result. Rounding may make a comparison or an index turn
out otherwise; such programs are left out by running them on inputs that differ a little.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import loadrun
from loadrun.base.errors import EngineError, TraceError
from loadrun.engines.reference import ReferenceEngine
from loadrun.tensors import tensor
from loadrun.tracing import DTRConfig, SublinearMemoryConfig, trace
from tests.support import programs_megengine, programs_numpy
from tests.support.cases import fewer
from tests.support.programs import Program, far, leaves, structure

NEAR = 2e-3
EXPLORE = int(os.environ.get("LOADRUN_EXPLORE") or 1)
FEW = settings(
    max_examples=fewer(60 * EXPLORE, 3), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
MEMORY = (
    {},
    {},
    {"dtr_config": DTRConfig(eviction_threshold=1, evictee_minimum_size=1)},
    {"sublinear_memory_config": SublinearMemoryConfig()},
)
OPTIONS = st.fixed_dictionaries(
    {
        "symbolic": st.booleans(),
        "capture_as_const": st.booleans(),
        "symbolic_shape": st.booleans(),
        "without_host": st.booleans(),
        "opt_level": st.integers(0, 3),
        "memory": st.sampled_from(MEMORY),
    }
)
SEEDS = st.integers(0, 2**32)
KEPT = tuple({"seed": n, "level_of": 0, "optimize": False} for n in (1853, 45957, 124668557, 498211668))
"""Programs that once gave something else."""
PLAIN: dict[str, Any] = {
    "symbolic": False,
    "capture_as_const": False,
    "symbolic_shape": False,
    "without_host": False,
    "opt_level": 0,
    "memory": {},
}

Arrays = Sequence[np.ndarray]
Found = tuple[Any, Arrays, Arrays]


def is_numbered(program: Program) -> bool:
    """Whether sizes may have become numbers, which a graph without the Python code keeps."""
    parts = ("for ", "sum(x", "sum(v", "split", "roll", "one_hot", "arange", "ravel", "reshape(-1")
    return any(p in program.source for p in parts)


class Level:
    """One of the two kinds of programs: how they are made and called."""

    def __init__(self, module: Any, wrap: Callable[[np.ndarray], Any], *, exact: bool) -> None:
        self.module = module
        self.wrap = wrap
        self.exact = exact

    def call(self, f: Callable[..., Any], arrays: Arrays) -> Found:
        args = [self.wrap(a) for a in arrays]
        with np.errstate(all="ignore"):
            result = f(*args)
        return result, leaves(result), leaves(args)

    def eager(self, f: Callable[..., Any], arrays: Arrays) -> Found | None:
        """What the Python code gives; None where it fails, or where rounding decides."""
        try:
            want = self.call(f, arrays)
            for by in (1e-5, -1e-5):
                near = [(a * (1 + by) + by / 9).astype(a.dtype) if a.dtype.kind == "f" else a for a in arrays]
                if far(self.call(f, near)[1], want[1], NEAR / 4):
                    return None
        except Exception:
            return None
        finite = all(np.isfinite(a).all() for a in want[1] if a.dtype.kind == "f")
        return want if finite else None

    def agree(self, got: Found, want: Found) -> None:
        assert structure(got[0]) == structure(want[0])
        assert not far(got[1], want[1], NEAR, dtypes=self.exact)
        assert not far(got[2], want[2], NEAR)


LEVELS = {
    "megengine": Level(programs_megengine, tensor, exact=True),
    "numpy": Level(programs_numpy, np.copy, exact=False),
}


def drawn(level: Level, seed: int) -> tuple[Program, list[Any], Callable[..., Any]]:
    program, inputs = level.module.draw(Random(seed))
    return program, inputs, program.function()


def sizes(level: Level, inputs: list[Any]) -> list[Arrays]:
    """Two sets of values, and one of another batch size."""
    first = next((s[0] for s, _ in inputs if s), 1)
    return [level.module.arrays(inputs, n, batch) for n, batch in ((0, None), (1, None), (2, first + 1))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LEVELS)
@FEW
@example(seed=91552, options=PLAIN)
@example(seed=4651, options=PLAIN)
@given(seed=SEEDS, options=OPTIONS)
def test_traced_programs_give_what_they_give_eagerly(kind: str, seed: int, options: dict[str, Any]) -> None:
    level = LEVELS[kind]
    program, inputs, f = drawn(level, seed)
    traced = trace(f, **{k: v for k, v in options.items() if k != "memory"}, **options["memory"])
    fixed = options["without_host"] and is_numbered(program)
    for n, arrays in enumerate(sizes(level, inputs)):
        want = level.eager(f, arrays)
        if want is None or (n == 2 and fixed):
            if n == 0:
                return
            continue
        try:
            got = level.call(traced, arrays)
        except (TraceError, EngineError) as error:
            text = "\n".join([str(error), *getattr(error, "__notes__", ())])
            assert "<program" in text or "program " in text or "arg_" in text or "unknown input" in text
            if n == 0:
                return
            continue
        level.agree(got, want)


def kept(test: Callable[..., None]) -> Callable[..., None]:
    for one in KEPT:
        test = example(**one)(test)
    return test


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", LEVELS)
@FEW
@kept
@given(seed=SEEDS, level_of=st.sampled_from([0, 2]), optimize=st.booleans())
def test_dumped_programs_give_what_they_give_eagerly(
    kind: str, seed: int, level_of: int, optimize: bool
) -> None:
    level = LEVELS[kind]
    program, inputs, f = drawn(level, seed)
    traced = trace(f, symbolic=True, capture_as_const=True, opt_level=level_of)
    given_arrays = sizes(level, inputs)
    if level.eager(f, given_arrays[0]) is None:
        return
    try:
        level.call(traced, given_arrays[0])
    except (TraceError, EngineError):
        return
    file = io.BytesIO()
    traced.dump(file, optimize_for_inference=optimize)
    graph = loadrun.loads(file.getvalue()).graph
    feeds = {v.name or "": v.owner.tensors[0].dtype.np for v in graph.inputs}
    for n, arrays in enumerate(given_arrays):
        want = level.eager(f, arrays)
        if want is None or (n and is_numbered(program)):
            continue
        values = {f"arg_{i}": np.atleast_1d(a) for i, a in enumerate(arrays)}
        try:
            outs = ReferenceEngine(graph).run({k: values[k].astype(d) for k, d in feeds.items()})
        except EngineError:
            assert n
            continue
        shaped = [
            o.reshape(w.shape) if o.size == w.size == 1 else o for o, w in zip(outs, want[1], strict=True)
        ]
        assert not far(shaped, want[1], 2 * NEAR, dtypes=level.exact)
