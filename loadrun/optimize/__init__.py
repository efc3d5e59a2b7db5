"""Graph optimization: one pass a file, each a function from a graph to a graph of the same operators."""

from .cleanup.empties import empty_at
from .cleanup.loadable import make_loadable
from .cleanup.stable import as_made, stabilize
from .inference import optimize_for_inference
from .options import InferenceOptions, Layout
from .simplify import simplify

__all__ = [
    "InferenceOptions",
    "Layout",
    "as_made",
    "empty_at",
    "make_loadable",
    "optimize_for_inference",
    "simplify",
    "stabilize",
]
