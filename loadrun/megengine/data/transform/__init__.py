"""Functions of samples, images above all, as ``megengine.data.transform`` has them.

They work on numpy arrays. OpenCV resizes where it is installed, else numpy does; the hue needs it.
"""

from . import vision
from .base import PseudoTransform, Transform, VisionTransform
from .colour import (
    BrightnessTransform,
    ColorJitter,
    Compose,
    ContrastTransform,
    GaussianNoise,
    HueTransform,
    Lighting,
    Normalize,
    SaturationTransform,
    TorchTransformCompose,
)
from .geometry import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ShortestEdgeResize,
    ToMode,
)

__all__ = [
    "BrightnessTransform",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ContrastTransform",
    "GaussianNoise",
    "HueTransform",
    "Lighting",
    "Normalize",
    "Pad",
    "PseudoTransform",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResize",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "SaturationTransform",
    "ShortestEdgeResize",
    "ToMode",
    "TorchTransformCompose",
    "Transform",
    "VisionTransform",
    "vision",
]
