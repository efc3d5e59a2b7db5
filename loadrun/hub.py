"""Pretrained weights, under the name of ``megengine.hub``."""

from .checkpoint.hub import load_serialized_obj_from_url, pretrained

__all__ = ["load_serialized_obj_from_url", "pretrained"]
