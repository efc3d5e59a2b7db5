"""Where MegEngine defines the base of data sets of images."""

from . import VisionDataset

__all__ = ["VisionDataset"]
