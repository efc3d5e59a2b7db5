"""Graph optimization: one pass a file, each a function from a graph to a graph of the same operators."""

from .inference import optimize_for_inference
from .loadable import make_loadable
from .options import InferenceOptions, Layout
from .simplify import simplify
from .stable import stabilize

__all__ = [
    "InferenceOptions",
    "Layout",
    "make_loadable",
    "optimize_for_inference",
    "simplify",
    "stabilize",
]
