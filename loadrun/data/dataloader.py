"""Batches of a dataset: sampled, transformed and joined.

Source of semantics: MegEngine ``data/dataloader.py``; everything happens in the process that asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import UsageError
from .collator import Collator
from .dataset.base import Dataset, StreamDataset
from .sampler import MapSampler, SequentialSampler, StreamSampler
from .transform.base import PseudoTransform

__all__ = ["DataLoader"]


class DataLoader:
    """Gives the batches of a dataset.

    Args:
        dataset: the samples.
        sampler: which of them make a batch, default one after the other.
        transform: what is done to a batch of samples, default nothing.
        collator: how samples are joined, default `Collator`.
        num_workers: accepted for MegEngine's sake; batches are made in this process and come in the same order.
        timeout: accepted for MegEngine's sake.
        preload: accepted for MegEngine's sake.
        parallel_stream: accepted for MegEngine's sake.

    Raises:
        ValueError: negative numbers.
        UsageError: dataset and sampler do not go together.

    >>> from loadrun.data.dataset import ArrayDataset
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
                raise _NegativeError(f"{name} should not be negative, found {value}")
        stream = isinstance(dataset, StreamDataset)
        if not isinstance(dataset, Dataset):
            raise _MismatchError(f"expected a Dataset, found {type(dataset).__name__}")
        if sampler is None:
            sampler = StreamSampler() if stream else SequentialSampler(dataset)
        if not isinstance(sampler, StreamSampler if stream else MapSampler):
            raise _MismatchError(
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
        return self._streamed(self.dataset) if isinstance(self.dataset, StreamDataset) else self._sampled()

    def __len__(self) -> int:
        return len(self.sampler)

    def _sampled(self) -> Iterator[Any]:
        for indices in self.sampler:
            samples = [self.dataset[i] for i in indices]
            yield self.collator.apply(self.transform.apply_batch(samples))

    def _streamed(self, stream: StreamDataset) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in stream:
            batch.append(self.transform.apply(sample))
            if len(batch) == self.sampler.batch_size:
                yield self.collator.apply(batch)
                batch = []


class _NegativeError(UsageError, ValueError):
    """A number that cannot be negative."""


class _MismatchError(UsageError, AssertionError):
    """A dataset and a sampler that do not go together."""
