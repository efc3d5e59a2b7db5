"""Tree ensembles of ai.onnx.ml: all samples walk down all trees at once."""

from . import classification, regression  # noqa: F401
