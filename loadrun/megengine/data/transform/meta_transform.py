"""The base of all transforms, under the name of ``megengine.data.transform.meta_transform``."""

from .base import PseudoTransform, Transform

__all__ = ["PseudoTransform", "Transform"]
