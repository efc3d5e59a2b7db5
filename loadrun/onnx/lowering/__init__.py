"""Lowerings of ONNX's operators to MegEngine's, one family a file; importing this room registers them."""

from . import (  # noqa: F401
    attention,
    control,
    convolution,
    elementwise,
    functions,
    indexing,
    linalg,
    losses,
    norms,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    sampling,
    shapes,
)
