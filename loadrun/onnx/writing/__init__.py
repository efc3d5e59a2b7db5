"""MegEngine's operators as ONNX nodes: one module a family of operators.

A translation is registered for every operator that can be written (`writer.translation`); `reason` says why the
others cannot.
"""

from __future__ import annotations

from importlib import import_module

from .writer import TRANSLATIONS, OnnxWriter, Translation, reason, translation

__all__ = ["TRANSLATIONS", "OnnxWriter", "Translation", "load_families", "reason", "translation"]

_FAMILIES = (
    *(
        "io",
        "following",
        "elemwise",
        "elemwise_multi",
        "shape",
        "indexing",
        "reduce",
        "linalg",
        "conv",
        "pooling",
    ),
    *("quantization", "norm", "select", "relayout", "rnn", "resize", "warp", "roi", "windows"),
    *("image", "attention", "rng", "control"),
)


def load_families() -> None:
    """Import the families, so that `TRANSLATIONS` is complete."""
    for family in _FAMILIES:
        import_module(f"{__package__}.{family}")
