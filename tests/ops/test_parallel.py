"""The thread pool: every chunk once, errors, nesting, scratch memory, BLAS threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from loadrun.ops.numeric import parallel as pool
from loadrun.ops.numeric.special import short_buffers
from tests.support.cases import fewer


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    before = pool.threads()
    pool.set_threads(request.param)
    yield request.param
    pool.set_threads(before)


def test_every_chunk_once(count: int) -> None:
    for n in (0, 1, 2, 7, 100):
        done = np.zeros(n, int)

        def work(i: int, done: np.ndarray = done) -> None:
            done[i] += 1

        pool.parallel(work, n)
        assert (done == 1).all()


def test_several_threads_take_part() -> None:
    before = pool.threads()
    pool.set_threads(2)
    both = threading.Barrier(2, timeout=20)
    # Each chunk waits for the other, so one thread alone would never finish.
    pool.parallel(lambda i: both.wait(), 2)  # type: ignore[arg-type, return-value]
    pool.set_threads(before)


def test_errors_come_back(count: int) -> None:
    def work(i: int) -> None:
        if i == 3:
            raise ValueError("chunk 3")

    with pytest.raises(ValueError, match="chunk 3"):
        pool.parallel(work, 5)
    pool.parallel(lambda i: None, 5)


def test_nested_calls_run_in_place(count: int) -> None:
    done = np.zeros((3, 4), int)

    def outer(i: int) -> None:
        def inner(j: int) -> None:
            done[i, j] += 1

        pool.parallel(inner, 4)

    pool.parallel(outer, 3)
    assert (done == 1).all()


def test_number_of_threads() -> None:
    before = pool.threads()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        pool.set_threads(0)
    assert pool.threads() == before


def test_matrix_product(count: int) -> None:
    a, b = (np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((300, 70), (70, 90)))
    with pool.blas_serial():
        found = pool.matmul(a, b)
        wide = pool.matmul(b.T, a.T)
    np.testing.assert_allclose(found, a.astype("f8") @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(wide, (a.astype("f8") @ b).T, rtol=1e-4, atol=1e-4)


def test_blas_threads_are_restored(count: int) -> None:
    before = pool.blas_threads()
    with pool.blas_serial():
        assert pool.blas_threads() in (1, None)
        with pool.blas_serial():
            pass
        assert pool.blas_threads() in (1, None)
    assert pool.blas_threads() == before


@settings(max_examples=fewer(200, 2), deadline=None)
@given(st.integers(1, 5000), st.integers(1, 16), st.integers(1, 10**12))
def test_shares_cover_everything_once(size: int, parts: int, work: int) -> None:
    """In order, as many as there are parts, and none but the last ends between two multiples of 16."""
    cut = pool.shares(size, parts, work)
    assert len(cut) == parts
    assert [i for s in cut for i in range(s.start, s.stop)] == list(range(size))
    assert all(s.stop % 16 == 0 for s in cut[:-1])


def test_scratch() -> None:
    a = pool.scratch("test", (3, 5))
    assert a.shape == (3, 5)
    assert a.ctypes.data % 64 == 0
    again = pool.scratch("test", (15,))
    assert np.shares_memory(a, again)
    assert not np.shares_memory(a, pool.scratch("other", (15,)))
    huge = pool.scratch("test", (pool._KEEP,), np.uint16)
    assert huge.nbytes > pool._KEEP
    assert not np.shares_memory(huge, pool.scratch("test", (3, 5)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_fork() -> None:
    before = pool.threads()
    pool.set_threads(2)
    pool.parallel(lambda i: None, 2)
    child = os.fork()
    if not child:
        done = [0, 0]

        def work(i: int) -> None:
            done[i] = 1

        pool.parallel(work, 2)
        os._exit(0 if done == [1, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.set_threads(before)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({}, None),
    ],
)
def test_quota_of_a_container(files: dict[str, str], wanted: int | None, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert pool.quota(tmp_path) == wanted


def test_short_buffers_end_with_their_block() -> None:
    """numpy's buffers are as before, after an error as well; inside, results are the same."""
    before = np.getbufsize()
    wide, column = np.arange(6000, dtype="f4").reshape(2, 3000), np.array([[1], [2]], "f4")
    want = wide[:, ::2] + column
    with short_buffers():
        assert np.getbufsize() < before
        np.testing.assert_array_equal(wide[:, ::2] + column, want)
    assert np.getbufsize() == before
    with pytest.raises(KeyError), short_buffers():
        raise KeyError
    assert np.getbufsize() == before
