"""Batches of a dataset: sampled, transformed and joined.

Source of semantics: MegEngine ``data/dataloader.py``; everything happens in the process that asks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import UsageAssertionError, UsageError
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
        num_workers: accepted for MegEngine's sake; batches are made in this process and come in the same order.
        timeout: seconds that a sample of a `StreamDataset` may take, which is then asked for in a thread of its own;
            0 for as long as it takes.
        preload: whether the arrays of a batch are tensors.
        parallel_stream: accepted for MegEngine's sake.

    Raises:
        ValueError: negative numbers.
        UsageError: dataset and sampler do not go together.

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
        batches = self._streamed(self.dataset) if isinstance(self.dataset, StreamDataset) else self._sampled()
        return map(_loaded, batches) if self.preload else batches

    def __len__(self) -> int:
        return len(self.sampler)

    def _sampled(self) -> Iterator[Any]:
        for indices in self.sampler:
            samples = [self.dataset[i] for i in indices]
            yield self.collator.apply(self.transform.apply_batch(samples))

    def _streamed(self, stream: StreamDataset) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in _in_time(stream, self.timeout) if self.timeout else stream:
            batch.append(self.transform.apply(sample))
            if len(batch) == self.sampler.batch_size:
                yield self.collator.apply(batch)
                batch = []


def get_worker_info() -> None:
    """Return None, as MegEngine does where no worker process asks: there are none."""


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


def _in_time(stream: StreamDataset, seconds: float) -> Iterator[Any]:
    """Give the samples of a stream, each of which may take so long.

    Raises:
        RuntimeError: one takes longer.
    """
    samples, asked, end = iter(stream), queue.SimpleQueue[bool](), object()
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        while asked.get():
            try:
                answers.put((next(samples, end), None))
            except BaseException as e:
                answers.put((end, e))

    threading.Thread(target=answer, daemon=True).start()
    try:
        while True:
            asked.put(True)
            try:
                sample, error = answers.get(timeout=seconds)
            except queue.Empty:
                raise RuntimeError(
                    f"dataloader timeout: a sample of the {type(stream).__name__} took longer than {seconds} s; give "
                    "DataLoader a larger timeout, or 0 for none"
                ) from None
            if error is not None:
                raise error
            if sample is end:
                return
            yield sample
    finally:
        asked.put(False)
