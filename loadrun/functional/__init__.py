"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from . import debug_param, elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .einsum import *  # noqa: F403
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .metric import *  # noqa: F403
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403
