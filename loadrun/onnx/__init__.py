"""ONNX: models read into graphs of MegEngine's operators."""

from .loading import is_onnx, load_model

__all__ = ["is_onnx", "load_model"]
