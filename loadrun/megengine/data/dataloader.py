"""Batches of a dataset: sampled, transformed and joined.

Source of semantics: MegEngine ``data/dataloader.py``; everything happens in the process that asks.
"""

from __future__ import annotations

import itertools
import queue
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageAssertionError, UsageError
from ...base.records import dataclass
from ...tensors import Tensor
from .collator import Collator
from .dataset.base import Dataset, StreamDataset
from .sampler import MapSampler, SequentialSampler, StreamSampler
from .transform.base import PseudoTransform

__all__ = ["DataLoader", "get_worker_info"]


class DataLoader:
    """Gives the batches of a dataset.

    Args:
        dataset: the samples.
        sampler: which of them make a batch, default one after the other.
        transform: what is done to a batch of samples, default nothing.
        collator: how samples are joined, default `Collator`.
        num_workers: how many processes MegEngine would start. Batches are made in this one and come in the same order;
            if this is not 0, errors and timeouts are those of MegEngine's workers.
        timeout: seconds that a batch may take with workers, a sample of a `StreamDataset` without, each of which is
            then asked for in a thread of its own; 0 for as long as it takes. As in MegEngine, a dataset that is no
            stream has no timeout without workers.
        preload: whether the arrays of a batch are tensors.
        parallel_stream: whether each of the workers reads a stream of its own, for which `get_worker_info` tells the
            `StreamDataset` which share of the samples it is to give.

    Raises:
        ValueError: negative numbers.
        UsageError: dataset and sampler do not go together.
        RuntimeError: while iterating: a timeout, or with workers any error, whose traceback the text holds.

    >>> from loadrun.megengine.data.dataset import ArrayDataset
    >>> data = ArrayDataset([1, 2, 3])
    >>> [batch[0].tolist() for batch in DataLoader(data, SequentialSampler(data, 2))]
    [[1, 2], [3]]
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Any = None,
        transform: Any = None,
        collator: Any = None,
        num_workers: int = 0,
        timeout: int = 0,
        preload: bool = False,
        parallel_stream: bool = False,
    ) -> None:
        for name, value in (("num_workers", num_workers), ("timeout", timeout)):
            if value < 0:
                raise UsageError(f"{name} should not be negative, found {value}")
        stream = isinstance(dataset, StreamDataset)
        if not isinstance(dataset, Dataset):
            raise UsageAssertionError(f"expected a Dataset, found {type(dataset).__name__}")
        if sampler is None:
            sampler = StreamSampler() if stream else SequentialSampler(dataset)
        if not isinstance(sampler, StreamSampler if stream else MapSampler):
            raise UsageAssertionError(
                f"types of dataset and sampler do not match: {type(dataset).__name__}, {type(sampler).__name__}"
            )
        self.dataset = dataset
        self.sampler: Any = sampler
        self.transform = PseudoTransform() if transform is None else transform
        self.collator = Collator() if collator is None else collator
        self.num_workers = num_workers
        self.timeout = timeout
        self.preload = preload
        self.parallel_stream = parallel_stream

    def __iter__(self) -> Iterator[Any]:
        if not isinstance(self.dataset, StreamDataset):
            batches = self._sampled()
        elif self.num_workers and self.parallel_stream:
            batches = self._shares(self.dataset)
        else:
            batches = self._streamed(self.dataset)
        if self.num_workers:
            batches = _as_of_workers(batches, self.num_workers)
            if self.timeout:
                batches = _in_time(batches, self.timeout, f"a batch of the {type(self.dataset).__name__}")
        return map(_loaded, batches) if self.preload else batches

    def __len__(self) -> int:
        return len(self.sampler)

    def _sampled(self) -> Iterator[Any]:
        for indices in self.sampler:
            samples = [self.dataset[i] for i in indices]
            yield self.collator.apply(self.transform.apply_batch(samples))

    def _streamed(self, stream: StreamDataset) -> Iterator[Any]:
        batch: list[Any] = []
        samples = iter(stream)
        if self.timeout and not self.num_workers:
            samples = _in_time(samples, self.timeout, f"a sample of the {type(stream).__name__}")
        for sample in samples:
            batch.append(self.transform.apply(sample))
            if len(batch) == self.sampler.batch_size:
                yield self.collator.apply(batch)
                batch = []

    def _shares(self, stream: StreamDataset) -> Iterator[Any]:
        """Give batches of as many streams as there are workers, in turn; the last one of a stream may be smaller."""
        seed = int(np.random.default_rng().integers(1 << 31))
        turns = deque(
            (WorkerInfo(worker, self.num_workers, seed + worker), iter(stream))
            for worker in range(self.num_workers)
        )
        while turns:
            info, samples = turns.popleft()
            _asking.worker = info
            try:
                batch = [*map(self.transform.apply, itertools.islice(samples, self.sampler.batch_size))]
                if not batch:
                    continue
                collated = self.collator.apply(batch)
            finally:
                _asking.worker = None
            yield collated
            turns.append((info, samples))


@dataclass(frozen=True)
class WorkerInfo:
    """Which of the workers of a `DataLoader` asks a stream for samples.

    Attributes:
        idx: its place among them.
        worker: how many there are.
        seed: a number of its own for random samples.
    """

    idx: int
    worker: int
    seed: int


class _Asking(threading.local):
    worker: WorkerInfo | None = None


_asking = _Asking()


def get_worker_info() -> WorkerInfo | None:
    """Return which worker asks for a sample of a parallel stream; None outside of one."""
    return _asking.worker


def _loaded(batch: Any) -> Any:
    """Return a batch with tensors in place of arrays, and lists in place of other sequences."""
    if isinstance(batch, np.ndarray):
        return Tensor(batch)
    if isinstance(batch, Mapping):
        return {k: _loaded(v) for k, v in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_loaded, batch))
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        return [*map(_loaded, batch)]
    return batch


def _as_of_workers(batches: Iterator[Any], workers: int) -> Iterator[Any]:
    """Give batches, and raise what fails as MegEngine does for its worker processes, which take turns.

    Raises:
        RuntimeError: a batch cannot be made.
    """
    for worker in itertools.cycle(range(workers)):
        try:
            batch = next(batches)
        except StopIteration:
            return
        except Exception as e:
            raise RuntimeError(
                f"Caught {type(e).__name__} in DataLoader worker process {worker}.\nOriginal {traceback.format_exc()}"
            ) from e
        yield batch


def _in_time(items: Iterator[Any], seconds: float, item: str) -> Iterator[Any]:
    """Give items, each of which may take so long.

    Raises:
        RuntimeError: one takes longer.
    """
    asked, end = queue.SimpleQueue[bool](), object()
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        while asked.get():
            try:
                answers.put((next(items, end), None))
            except BaseException as e:
                answers.put((end, e))

    threading.Thread(target=answer, daemon=True).start()
    try:
        while True:
            asked.put(True)
            try:
                answered, error = answers.get(timeout=seconds)
            except queue.Empty:
                raise RuntimeError(
                    f"dataloader timeout: {item} took longer than {seconds} s; give DataLoader a larger timeout, or "
                    "0 for none"
                ) from None
            if error is not None:
                raise error
            if answered is end:
                return
            yield answered
    finally:
        asked.put(False)
