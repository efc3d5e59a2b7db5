"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from . import debug_param, distributed, elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .conv import *  # noqa: F403
from .einsum import *  # noqa: F403
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .metric import *  # noqa: F403
from .norm import *  # noqa: F403
from .pooling import *  # noqa: F403
from .tensor import *  # noqa: F403
from .warping import remap, warp_affine, warp_perspective  # noqa: F401
from .windows import *  # noqa: F403
