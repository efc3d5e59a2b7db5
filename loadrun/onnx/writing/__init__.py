"""MegEngine's operators as ONNX nodes: one module a family of operators.

A translation is registered for every operator that can be written (`writer.translation`); `REASONS` says why the
others cannot.
"""

from __future__ import annotations

from importlib import import_module

from ...ops.catalog import CATALOG, Op
from .writer import TRANSLATIONS, Translation, Writer, translation

__all__ = ["TRANSLATIONS", "Translation", "Writer", "load_families", "reason", "translation"]

_FAMILIES = (
    *("io", "elemwise", "elemwise_multi", "shape", "indexing", "reduce", "linalg", "conv", "pooling"),
    *("quantization", "norm", "select", "relayout", "rnn", "resize", "warp", "roi"),
)
REASONS = {
    "SVD": "ONNX has no singular value decomposition",
    "MatrixInverse": "ONNX has no inverse of a matrix",
    "GammaRNG": "ONNX has no gamma distribution",
    "BetaRNG": "ONNX has no beta distribution",
    "PoissonRNG": "ONNX has no Poisson distribution",
    "NvOf": "it runs only on graphics processors",
    "AddUpdate": "it changes a weight; ONNX's graphs do not keep state",
    "VirtualGrad": "it stands for gradients",
    "CheckNonFinite": "it belongs to training",
}
_CATEGORIES = {
    "backward": "it computes gradients, which belong to training",
    "training": "it belongs to training",
    "vendor": "it runs only inside its vendor's runtime or a private plug-in",
    "control_flow": "MegEngine itself can neither dump nor load it",
}


def load_families() -> None:
    """Import the families, so that `TRANSLATIONS` is complete."""
    for family in _FAMILIES:
        import_module(f"{__package__}.{family}")


def reason(name: str) -> str:
    """Why operators of a type cannot be written.

    >>> reason("SVD")
    'ONNX has no singular value decomposition'
    """
    op: Op | None = CATALOG.get(name)
    if name in REASONS:
        return REASONS[name]
    if op is not None and op.category in _CATEGORIES:
        return _CATEGORIES[op.category]
    return "no composition of ONNX's operators is known for it"
