"""MegEngine's operators as ONNX nodes: one module a family of operators.

A translation is registered for every operator that can be written (`writer.translation`); `reasons` says why the
others cannot.
"""

from .reasons import reason
from .writer import TRANSLATIONS, OnnxWriter, Translation, translation

__all__ = ["TRANSLATIONS", "OnnxWriter", "Translation", "reason", "translation"]
