"""Traced numpy code at other sizes and with other data than it was traced with, and what its arrays share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError
from loadrun.tracing import TraceError, trace


def rows(n: int, width: int = 3) -> Any:
    return np.random.default_rng(n).uniform(-2, 2, (n, width)).astype(np.float32)


def fails(t: trace, x: Any) -> bool:
    """Whether the graph cannot run: a bound that lay within the array may not lie before it, as MegEngine has it."""
    try:
        t(x)
    except EngineError as error:
        return "in test_numpy_symbolic.py" in str(error)
    return False


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[-2::-1],
        lambda x: x[:-4:-1],
        lambda x: x[-2:-5:-2] + x[-1, 0],
        lambda x: x[1:-4:-1],
        lambda x: x[-3::-1][:, [0, 1]],
        lambda x: np.array_split(x, 2)[0],
        lambda x: np.array_split(x, 3)[1],
        lambda x: np.meshgrid(x[2:, 0], x[:, 0])[1],
        lambda x: x - x,
        lambda x: (x[:, 0] - x[:, 0]) + x.T,
    ],
)
@pytest.mark.filterwarnings("ignore:.* gives no elements at the traced sizes")
@pytest.mark.parametrize("traced", [1, 2, 3])
def test_what_a_size_decides_follows_it(f: Callable[[Any], Any], traced: int, tmp_path: Path) -> None:
    t = trace(f, symbolic=True, capture_as_const=True, without_host=True)
    t(rows(traced))
    t.dump(tmp_path / "f.mge", arg_names=["x"], output_names=["y"])
    model = loadrun.load(tmp_path / "f.mge")
    for n in (1, 2, 3, 5):
        if n < traced and fails(t, rows(n)):
            continue
        np.testing.assert_allclose(t(rows(n)), f(rows(n)), atol=1e-6)
        np.testing.assert_allclose(
            loadrun.run(model, {"x": rows(n)})[0].outputs[0].value, f(rows(n)), atol=1e-6
        )


def written(x: Any) -> Any:
    y = x * 2
    y[-2::-1] = 7
    z = x + 1
    z[-3::-1, [0, 2]] += 5
    return y, z


def test_parts_written_backwards_follow_the_size() -> None:
    t = trace(written, symbolic=True, capture_as_const=True, without_host=True)
    for n in (1, 4, 2):
        for got, want in zip(t(rows(n)), written(rows(n)), strict=True):
            np.testing.assert_allclose(got, want)


def masked(x: Any) -> Any:
    y = x + 0
    y[y > 0] = y[y > 0] * 2
    z = x + 0
    z[z < 0] += np.abs(z[z < 0])
    return y, z


@pytest.mark.parametrize("symbolic", [False, True])
def test_masks_may_select_one_element_or_many(symbolic: bool) -> None:
    t = trace(masked, symbolic=symbolic)
    for values in ([1, -1, -2], [1, 2, -3], [-1, -2, -3], [1, 2, 3], [-1, 3, 3]):
        x = np.array(values, np.float32)
        for got, want in zip(t(x), masked(x), strict=True):
            np.testing.assert_array_equal(got, want)


def same(x: Any) -> Any:
    y = np.maximum(x, x)
    x[0] = 9
    return y, x


@pytest.mark.parametrize("options", [{"symbolic": True}, {}, {"symbolic": True, "without_host": True}])
def test_results_are_parted_from_the_caller_s_array_before_it_is_written_to(options: Any) -> None:
    t = trace(same, capture_as_const=True, **options)
    for start in (0, 1):
        x = np.arange(start, start + 3, dtype=np.float32)
        y, z = t(x)
        np.testing.assert_array_equal(y, [start, start + 1, start + 2])
        np.testing.assert_array_equal(x, [9, start + 1, start + 2])
        np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize("symbolic", [False, True])
def test_what_is_kept_does_not_change_with_the_caller_s_array(symbolic: bool) -> None:
    kept = []
    t = trace(lambda x, y: kept.append(x) or y + 1, symbolic=symbolic)
    x, y = np.ones(3, np.float32), loadrun.tensor([1.0])
    for _ in range(2):
        x[...] = 1
        t(x, y)
        x[...] = 5
        np.testing.assert_array_equal(kept.pop().numpy(), [1, 1, 1])


def test_arguments_that_share_memory_are_not_written_to() -> None:
    def f(x: Any, y: Any) -> Any:
        x += 1
        return x + y

    whole = np.zeros(4, np.float32)
    with pytest.raises(TraceError, match="assigns to arg_0, which shares its memory with arg_1"):
        trace(f)(whole[1:], whole[:-1])
    t = trace(f, symbolic=True)
    np.testing.assert_array_equal(t(whole[:2], whole[2:]), [1, 1])
    with pytest.raises(TraceError, match="shares its memory"):
        t(whole, whole)
    one = loadrun.tensor([1.0])
    with pytest.raises(TraceError, match="shares its memory"):
        trace(f)(one, one)


def test_a_scalar_s_name_stands_for_a_new_one_after_an_operator_in_place() -> None:
    def f(x: Any) -> Any:
        total = x.sum() > 0
        total += 1.5
        for v in x:
            v *= 2
        return total, x

    x = np.array([1, 2], np.int32)
    total, y = trace(f, symbolic=True)(x)
    assert total == f(np.array([1, 2]))[0] == 2.5
    np.testing.assert_array_equal(y, [1, 2])


def test_the_only_axis_of_an_array_without_axes() -> None:
    def f(x: Any) -> Any:
        s = x.sum()
        return np.cumsum(s, axis=0), np.take(s, [0], axis=-1), np.repeat(s, 2, axis=0), np.max(s, axis=-1)

    x = np.array([1, 2], np.float32)
    for got, want in zip(trace(f, symbolic=True)(x), f(x), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(np.exceptions.AxisError if hasattr(np, "exceptions") else Exception):
        trace(lambda a: np.sort(a.sum()))(x)


def test_copyto_drops_leading_axes() -> None:
    def f(x: Any, y: Any) -> Any:
        np.copyto(x, y[None, None])
        return x + 0

    x, y = np.zeros(3, np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(trace(f)(x, y), y)
    np.testing.assert_array_equal(x, y)


def test_what_is_refused_names_the_line() -> None:
    with pytest.raises(TraceError, match=r"(?s)single bool .* in .*test_numpy_symbolic.py:\d+: trace"):
        trace(lambda x: x[True])(np.zeros(2))
    with pytest.raises(
        TraceError, match=r"(?s)complex128 has no operators .* in .*test_numpy_symbolic.py:\d+: trace"
    ):
        trace(lambda x: x.astype(complex))(np.zeros(2))


def test_sizes_that_the_data_decide_cannot_be_numbers() -> None:
    def f(x: Any) -> Any:
        y = x[x > 0]
        return y.reshape(1, y.shape[0])

    t = trace(f, symbolic_shape=False, without_host=True)
    with pytest.raises(TraceError, match=r"that depends on the data .* in test_numpy_symbolic.py:\d+ `"):
        t(np.array([1, -1, 2], np.float32))
    t = trace(f, without_host=True)
    for values in ([1, -1, 2], [1, 2, 3]):
        x = np.array(values, np.float32)
        np.testing.assert_array_equal(t(x), f(x))
