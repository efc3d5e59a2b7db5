"""Traces as methods of all kinds of objects, copies of them, generators, and what stays in memory."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

import loadrun.megengine.functional as F
from loadrun.tensors import Tensor, tensor
from loadrun.tensors.switches import active
from loadrun.tracing import TraceError, exclude_from_trace, trace


@trace(symbolic=True)
def doubled(x: Tensor) -> Tensor:
    return x * 2


def tripled(x: Tensor) -> Tensor:
    return x * 3


class Scaled:
    def __init__(self, k: float) -> None:
        self.k = k

    @trace(symbolic=True)
    def run(self, x: Tensor) -> Tensor:
        return x * self.k


class Equal(Scaled):
    """All instances are equal, as far as Python asks."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Holder:
    """A trace that is an attribute of the object whose method it traces."""

    def __init__(self, k: float) -> None:
        self.k = k
        self.run = trace(self._run, symbolic=True)

    def _run(self, x: Tensor) -> Tensor:
        return x * self.k


def test_an_instance_lives_no_longer_for_its_recording() -> None:
    one = Scaled(2.0)
    assert one.run(tensor([1.0])).item() == 2
    life = weakref.ref(one)
    run = one.run
    del one
    assert run(tensor([2.0])).item() == 4
    del run
    gc.collect()
    assert life() is None


def test_instances_that_are_equal_have_recordings_of_their_own() -> None:
    a, b = Equal(2.0), Equal(3.0)
    for _ in range(2):
        assert a.run(tensor([1.0])).item() == 2
        assert b.run(tensor([1.0])).item() == 3


def test_what_a_bound_trace_knows_stays_with_the_instance() -> None:
    one = Scaled(2.0)
    one.run(tensor([1.0]))
    assert one.run.recording is not None
    one.run.reset()
    assert one.run.recording is None
    assert Scaled.run.recording is None
    assert one.run.__name__ == "run"


def test_slots_need_a_place_for_weak_references() -> None:
    class Closed:
        __slots__ = ()

        @trace
        def run(self, x: Tensor) -> Tensor:
            return x

    class Open:
        __slots__ = ("__weakref__",)

        @trace(symbolic=True)
        def run(self, x: Tensor) -> Tensor:
            return x + 1

    with pytest.raises(TypeError, match="Closed has __slots__ without '__weakref__'; add it"):
        Closed().run(tensor([1.0]))
    one = Open()
    assert [one.run(tensor([v])).item() for v in (1.0, 2.0)] == [2, 3]


def test_static_and_class_methods() -> None:
    class Kinds:
        k = 5.0

        @staticmethod
        @trace(symbolic=True)
        def fixed(x: Tensor) -> Tensor:
            return x + 1

        @classmethod
        @trace(symbolic=True)
        def of(cls, x: Tensor) -> Tensor:
            return x * cls.k

    for _ in range(2):
        assert Kinds.fixed(tensor([1.0])).item() == 2
        assert Kinds.of(tensor([1.0])).item() == 5


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_traced_anew(again: Any) -> None:
    assert again(doubled) is doubled
    inner = trace(tripled, symbolic=True, capture_as_const=True, opt_level=1)
    inner(tensor([1.0]))
    other = again(inner)
    assert other is not inner
    assert other.recording is None
    assert other.options == inner.options
    assert other(tensor([2.0])).item() == 6
    one = Scaled(2.0)
    one.run(tensor([1.0]))
    two = again(one)
    two.k = 7.0
    assert two.run(tensor([1.0])).item() == 7
    assert again(one.run)(tensor([1.0])).item() == 2


def test_a_deep_copy_traces_its_own_methods() -> None:
    one = Holder(2.0)
    one.run(tensor([1.0]))
    two = copy.deepcopy(one)
    two.k = 3.0
    assert two.run(tensor([1.0])).item() == 3
    assert one.run(tensor([1.0])).item() == 2


def test_code_that_has_not_run_cannot_be_traced() -> None:
    def later(x: Tensor) -> Generator[Tensor, None, None]:
        yield x + 1

    async def sometime(x: Tensor) -> Tensor:
        return x + 1

    with pytest.raises(TraceError, match=r"returns the generator '.*later', whose code runs after"):
        trace(later)(tensor([1.0]))
    with pytest.raises(TraceError, match=r"returns the coroutine '.*sometime'"):
        trace(sometime)(tensor([1.0]))


def test_a_generator_left_in_an_excluded_region_does_not_bring_its_trace_back() -> None:
    left = []

    def parts(x: Tensor) -> Generator[Tensor, None, None]:
        with exclude_from_trace():
            yield x * 2

    @trace
    def f(x: Tensor) -> Tensor:
        left.append(parts(x))
        return next(left[0]) + 1

    assert f(tensor([1.0])).item() == 3
    left.pop().close()
    assert active() is None


def test_a_scalar_and_a_vector_of_one_element_are_told_apart() -> None:
    f = trace(lambda x: x * 2 + 1, symbolic=True)
    assert f(tensor(3.0)).shape == ()
    for value in (tensor([1.0]), tensor([1.0, 2.0])):
        found = f(value)
        assert found.shape == value.shape
        np.testing.assert_array_equal(found.numpy(), value.numpy() * 2 + 1)
    alone = trace(lambda x: x * 2 + 1, symbolic=True, without_host=True)
    alone(tensor(3.0))
    with pytest.raises(TraceError, match=r"arg_0 was traced as Float32 with 0 axes, but now is .* \[2\]"):
        alone(tensor([1.0, 2.0]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"symbolic": True}, marks=pytest.mark.slow),
        pytest.param({"capture_as_const": True, "without_host": True}, marks=pytest.mark.slow),
    ],
)
def test_calls_leave_nothing_in_memory(options: dict[str, bool]) -> None:
    traces: list[tuple[Any, Any]] = [
        (trace(lambda x: F.softmax(x * 2).sum(axis=0)[1:], **options), tensor),
        (trace(lambda x: np.exp(x)[..., ::-1].sum(0), **options), np.asarray),
    ]
    for f, kind in traces:
        inputs = [kind(np.ones((n, 3), np.float32)) for n in range(1, 5)]
        gc.collect()
        gc.disable()
        for i in range(8):
            f(inputs[i % 4])
        before = len(gc.get_objects())
        for i in range(56):
            f(inputs[i % 4])
        grown = len(gc.get_objects()) - before
        gc.enable()
        assert grown < 50
