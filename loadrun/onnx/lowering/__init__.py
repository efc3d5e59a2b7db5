"""Lowerings of ONNX's operators to MegEngine's, one family a file; importing this room registers them."""

from . import (  # noqa: F401
    convolution,
    elementwise,
    functions,
    indexing,
    linalg,
    norms,
    pooling,
    reductions,
    shapes,
)
