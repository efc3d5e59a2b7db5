"""Which samples make a batch.

Source of semantics: MegEngine ``data/sampler.py``; the same seeds draw the same indices.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...base.errors import NotDefinedError, UsageError

__all__ = [
    "Infinite",
    "MapSampler",
    "RandomSampler",
    "ReplacementSampler",
    "Sampler",
    "SequentialSampler",
    "StreamSampler",
]


class Sampler(ABC):
    """Gives the indices of batches."""

    @abstractmethod
    def __init__(self) -> None: ...


def _batches(indices: Iterable[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    batch = []
    for index in indices:
        batch.append(index)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


class MapSampler(Sampler):
    """Indices of a dataset that has a length; subclasses define ``sample``.

    Args:
        dataset: what is sampled.
        batch_size: how many samples a batch has.
        drop_last: leave out a last batch that is not full.
        num_samples: how many samples there are for all ranks, default as many as the dataset has.
        world_size: between how many ranks samples are shared out, default 1.
        rank: whose samples these are.
        seed: seed of what draws at random.

    Raises:
        ValueError: numbers that do not fit.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise UsageError(f"batch_size should be a positive integer value, found {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise UsageError(f"drop_last should be a boolean value, found {drop_last!r}")
        if num_samples is not None and (not isinstance(num_samples, int) or num_samples <= 0):
            raise UsageError(f"num_samples should be a positive integer value, found {num_samples!r}")
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.world_size = 1 if world_size is None else world_size
        self.rank = rank or 0
        self.num_samples = math.ceil((len(dataset) if num_samples is None else num_samples) / self.world_size)
        if self.num_samples < batch_size:
            raise UsageError(
                f"num_samples should be greater than batch_size, found {self.num_samples} samples a rank for "
                f"batches of {batch_size}"
            )
        # Every rank has to draw the same.
        self.rng = np.random.RandomState(0 if seed is None and self.world_size > 1 else seed)

    def __iter__(self) -> Any:
        return self.batch()

    def __len__(self) -> int:
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def sample(self) -> Any:
        """Return the indices for all ranks.

        Raises:
            UsageError: a subclass does not define it.
        """
        raise NotDefinedError(f"{type(self).__name__} defines no sample(), which gives the indices")

    def scatter(self, indices: list[Any]) -> list[Any]:
        """Return the indices of this rank; the first ones come again where they do not go round."""
        total = self.num_samples * self.world_size
        padded = indices + indices[: total - len(indices)]
        return padded[self.rank : total : self.world_size]

    def batch(self) -> Iterator[list[Any]]:
        """Return the batches."""
        indices = list(self.sample())
        return _batches(
            self.scatter(indices) if self.world_size > 1 else indices, self.batch_size, self.drop_last
        )


class StreamSampler(Sampler):
    """Batches of a dataset without a length."""

    def __init__(self, batch_size: int = 1) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return self.batch()

    def batch(self) -> Iterator[list[int]]:
        """Return the batches, without end."""
        return _batches(self.sample(), self.batch_size, True)

    def sample(self) -> Iterator[int]:
        """Return the numbers of samples."""
        return itertools.count()


def _sequence(indices: Any, what: str) -> Any:
    if indices is not None and not isinstance(indices, Sequence):
        raise UsageError(f"{what} should be None or a sequence, found {indices!r:.60}")
    return indices


class SequentialSampler(MapSampler):
    """All samples in order, or those of given indices.

    >>> list(SequentialSampler(range(5), batch_size=2))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Any = None,
        world_size: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank)
        self.indices = _sequence(indices, "indices")

    def sample(self) -> Any:
        """Return the indices."""
        return range(len(self.dataset)) if self.indices is None else self.indices


class RandomSampler(MapSampler):
    """All samples, or those of given indices, in random order."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        indices: Any = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, None, world_size, rank, seed)
        self.indices = _sequence(indices, "indices")

    def sample(self) -> Any:
        """Return the indices, shuffled."""
        return self.rng.permutation(len(self.dataset) if self.indices is None else self.indices).tolist()


class ReplacementSampler(MapSampler):
    """Samples drawn independently of one another, by weights if there are any."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_samples: int | None = None,
        weights: Any = None,
        world_size: int | None = None,
        rank: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, num_samples, world_size, rank, seed)
        if _sequence(weights, "weights") is not None and len(weights) != len(dataset):
            raise UsageError(f"there are {len(weights)} weights for {len(dataset)} samples")
        self.weights = None if weights is None else np.array(weights) / sum(weights)

    def sample(self) -> Any:
        """Return as many indices as there are samples to be drawn."""
        size = self.num_samples * self.world_size
        return self.rng.choice(len(self.dataset), size=size, replace=True, p=self.weights).tolist()


class Infinite(MapSampler):
    """A sampler that begins again when it ends.

    Args:
        sampler: the sampler.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.sampler_iter = iter(sampler)

    def sample(self) -> Any:
        """Refuse: batches come from the sampler within."""
        raise NotDefinedError("sample method not supported in Infinite")

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.sampler_iter)
        except StopIteration:
            self.sampler_iter = iter(self.sampler)
            return next(self.sampler_iter)

    def __len__(self) -> int:
        return int(np.iinfo(np.int64).max)

    def __getattr__(self, name: str) -> Any:
        if name == "sampler":
            raise AttributeError(name)
        return getattr(self.sampler, name)
