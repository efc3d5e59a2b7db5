"""Graph optimization: one pass a file, each a function from a graph to a graph of the same operators."""

from .inference import optimize_for_inference
from .options import InferenceOptions, Layout
from .shapes import remove_own_shapes
from .simplify import simplify
from .stable import stabilize

__all__ = [
    "InferenceOptions",
    "Layout",
    "optimize_for_inference",
    "remove_own_shapes",
    "simplify",
    "stabilize",
]
