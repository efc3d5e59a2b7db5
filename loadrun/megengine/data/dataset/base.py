"""Sets of samples: by index, from arrays, joined, and streams.

Source of semantics: MegEngine ``data/dataset/meta_dataset.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from ....base.errors import UsageAssertionError, UsageError

__all__ = ["ArrayDataset", "ConcatDataset", "Dataset", "StreamDataset"]


class Dataset(ABC):
    """Samples by index; subclasses define ``__getitem__`` and ``__len__``."""

    @abstractmethod
    def __init__(self) -> None: ...

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def __len__(self) -> int: ...


class StreamDataset(Dataset):
    """Samples one after the other; subclasses define ``__iter__``."""

    @abstractmethod
    def __init__(self) -> None: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, index: Any) -> Any:
        raise UsageAssertionError("can not get item from StreamDataset by index")

    def __len__(self) -> int:
        raise UsageAssertionError("StreamDataset does not have length")


class ArrayDataset(Dataset):
    """Samples made of the entries of several arrays of equal length.

    >>> ArrayDataset([1, 2, 3], "abc")[1]
    (2, 'b')

    Raises:
        ValueError: the lengths differ.
    """

    def __init__(self, *arrays: Any) -> None:
        lengths = [len(a) for a in arrays]
        if len(set(lengths)) > 1:
            raise UsageError(f"lengths of input arrays are inconsistent: {', '.join(map(str, lengths))}")
        self.arrays = arrays

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(a[index] for a in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])


class ConcatDataset(Dataset):
    """Datasets one behind the other.

    >>> ConcatDataset([ArrayDataset([1, 2]), ArrayDataset([3])])[-1]
    (3,)

    Raises:
        UsageError: there is none, or one is a stream.
        ValueError: an index before the first.
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise UsageAssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, StreamDataset) for d in self.datasets):
            raise UsageAssertionError("ConcatDataset does not support StreamDataset")
        self.cumulative_sizes = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: Any) -> Any:
        if index < -len(self):
            raise UsageError("absolute value of index should not exceed dataset length")
        index = index + len(self) if index < 0 else index
        which = bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]
