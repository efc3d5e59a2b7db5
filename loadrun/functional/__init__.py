"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from . import elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .metric import *  # noqa: F403
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403
