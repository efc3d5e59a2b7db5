"""What the parameters of `trace` that concern execution do: levels, memory, profiles."""

from __future__ import annotations

import numpy as np
import pytest

import loadrun.megengine.functional as F
from loadrun.engines.program import MemoryMeter
from loadrun.tensors import Tensor, tensor
from loadrun.tracing import DTRConfig, GraphOptimizationConfig, SublinearMemoryConfig, TraceError, trace

SHAPE = (1, 64, 64)
BYTES = 4 * 64 * 64


def long_lived(x: Tensor) -> Tensor:
    """Eight values that are all needed again at the end, in reverse order."""
    kept = [x]
    for i in range(8):
        kept.append(F.relu(kept[-1] * (1 + i / 10) + i))
    y = kept.pop()
    while kept:
        y = F.exp(-y) + kept.pop()
    return y


def peak(f: trace, x: Tensor) -> int:
    meter = MemoryMeter()
    assert f.engine is not None
    f.engine.run({"arg_0": x.numpy()}, memory=meter)
    return meter.peak


def test_options_may_stand_in_megengines_order_without_names() -> None:
    """MegEngine 1.13.0: symbolic, capture_as_const, record_only, two memory configurations, profiling, opt_level."""
    x = tensor([1.0, 2.0])
    made = trace(lambda x: x + 1, True, True)
    assert made(x).tolist() == [2, 3]
    assert (made.options.symbolic, made.options.capture_as_const, made.options.record_only) == (
        True,
        True,
        False,
    )
    longer = trace(
        lambda x: x + 1, False, True, False, SublinearMemoryConfig(), None, True, 3, without_host=True
    )
    assert (longer.options.profiling, longer.options.opt_level, longer.options.without_host) == (
        True,
        3,
        True,
    )
    with pytest.raises(TypeError, match="symbolic both by position and by name"):
        trace(lambda x: x + 1, False, symbolic=True)
    with pytest.raises(TypeError, match="found 1 more positional arguments; example inputs are for torch"):
        trace(lambda x: x + 1, x)
    with pytest.raises(TypeError, match="found 13 more"):
        trace(lambda x: x + 1, *[True] * 13)


def test_memory_configs_lower_the_peak_and_change_no_bit() -> None:
    x = tensor(np.random.default_rng(0).random(SHAPE, np.float32))
    plain = trace(long_lived, symbolic=True)
    want = plain(x).numpy()
    np.testing.assert_array_equal(plain(x).numpy(), want)
    assert peak(plain, x) >= 8 * BYTES
    config = DTRConfig(eviction_threshold=4 * BYTES, evictee_minimum_size=1)
    for options in ({"dtr_config": config}, {"sublinear_memory_config": SublinearMemoryConfig()}):
        saving = trace(long_lived, symbolic=True, **options)
        for _ in range(2):
            np.testing.assert_array_equal(saving(x).numpy(), want)
        assert peak(saving, x) < peak(plain, x) * 0.85


def test_recomputed_values_do_not_take_the_place_of_constant_outputs() -> None:
    fixed = tensor([1.0, 2.0])
    saving = trace(
        lambda x: (long_lived(x), fixed * 2),
        symbolic=True,
        capture_as_const=True,
        sublinear_memory_config=SublinearMemoryConfig(),
    )
    x = tensor(np.random.default_rng(0).random(SHAPE, np.float32))
    for _ in range(3):
        np.testing.assert_array_equal(saving(x)[1].numpy(), [2, 4])


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_keep_the_results(level: int) -> None:
    rng = np.random.default_rng(1)
    w = tensor(rng.normal(size=(4, 3, 3, 3)).astype("f4"))
    scale, shift = tensor(rng.random((1, 4, 1, 1), np.float32)), tensor(rng.random((1, 4, 1, 1), np.float32))

    def f(x: Tensor) -> Tensor:
        y = F.relu(F.conv2d(x, w) * scale + shift)
        return y.reshape(y.shape).mean(axis=(2, 3)) + 0 - -y[:, :, 0, 0]

    x = tensor(rng.random((2, 3, 8, 8), np.float32))
    want = f(x).numpy()
    config = GraphOptimizationConfig()
    config.jit_fuse_reduce = config.jit_fuse_dimshuffle = level == 3
    traced = trace(f, symbolic=True, capture_as_const=True, opt_level=level, graph_opt_config=config)
    for _ in range(2):
        np.testing.assert_allclose(traced(x).numpy(), want, rtol=1e-5, atol=1e-6)


def test_level_0_computes_as_written_and_level_1_simplifies() -> None:
    def quotient(x: Tensor) -> Tensor:
        y = 2.0 * x
        return y / y

    def log_sum(x: Tensor, y: Tensor) -> Tensor:
        return F.log(F.exp(x) + F.exp(y))

    zero, large = tensor(0.0), tensor(1e4)
    as_written = trace(quotient, symbolic=True, capture_as_const=True, opt_level=0)
    simplified = trace(quotient, symbolic=True, capture_as_const=True, opt_level=1)
    assert np.isnan(as_written(zero).item())
    assert simplified(zero).item() == 1
    assert trace(log_sum, symbolic=True, opt_level=0)(large, zero).item() == np.inf
    assert trace(log_sum, symbolic=True, opt_level=1)(large, zero).item() == 1e4
    unlogged = trace(lambda x: F.log(F.exp(x)), symbolic=True, capture_as_const=True, opt_level=1)
    assert unlogged(large).item() == 1e4


def test_level_3_fuses() -> None:
    f = trace(lambda a, b: F.relu(a + b), symbolic=True, opt_level=3)
    a = tensor([1.0, -3.0])
    assert f(a, a).numpy().tolist() == [2, 0]
    assert f.engine is not None
    assert [o.title for o in f.engine.graph.oprs if not o.tensors] == ["FUSE_ADD_RELU"]


@pytest.mark.parametrize("symbolic", [False, True])
def test_profile(symbolic: bool) -> None:
    f = trace(lambda x: F.exp(-x), symbolic=symbolic, profiling=True)
    for _ in range(3):
        f(tensor([1.0]))
    found = f.get_profile()
    assert found["profiler"]
    names = str(found)
    assert "EXP" in names or "exp" in names.lower()
    with pytest.raises(TraceError, match="create it with profiling=True"):
        trace(lambda x: x).get_profile()
