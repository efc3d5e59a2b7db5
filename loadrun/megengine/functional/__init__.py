"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from ...layers.activation import *  # noqa: F403
from ...layers.attention import *  # noqa: F403
from ...layers.conv import *  # noqa: F403
from ...layers.einsum import *  # noqa: F403
from ...layers.elemwise import *  # noqa: F403
from ...layers.math import *  # noqa: F403
from ...layers.norm import *  # noqa: F403
from ...layers.pooling import *  # noqa: F403
from ...layers.tensor import *  # noqa: F403
from ...layers.warping import remap, warp_affine, warp_perspective  # noqa: F401
from ...layers.windows import *  # noqa: F403
from ..absent import absent
from . import elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .metric import *  # noqa: F403

__getattr__ = absent(__name__)
