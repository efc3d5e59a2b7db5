"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from ...build.nn import *  # noqa: F403
from . import debug_param, distributed, elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .metric import *  # noqa: F403
