"""Samples, batches and what is done to images before a network sees them, as ``megengine.data`` has it."""

from . import dataset, transform
from .collator import Collator
from .dataloader import DataLoader
from .sampler import (
    Infinite,
    MapSampler,
    RandomSampler,
    ReplacementSampler,
    Sampler,
    SequentialSampler,
    StreamSampler,
)

__all__ = [
    "Collator",
    "DataLoader",
    "Infinite",
    "MapSampler",
    "RandomSampler",
    "ReplacementSampler",
    "Sampler",
    "SequentialSampler",
    "StreamSampler",
    "dataset",
    "transform",
]
