"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from ...build.activation import *  # noqa: F403
from ...build.attention import *  # noqa: F403
from ...build.conv import *  # noqa: F403
from ...build.einsum import *  # noqa: F403
from ...build.elemwise import *  # noqa: F403
from ...build.math import *  # noqa: F403
from ...build.norm import *  # noqa: F403
from ...build.pooling import *  # noqa: F403
from ...build.tensor import *  # noqa: F403
from ...build.warping import remap, warp_affine, warp_perspective  # noqa: F401
from ...build.windows import *  # noqa: F403
from ..absent import absent
from . import elemwise, loss, math, metric, nn, quantized, tensor, utils, vision  # noqa: F401
from .metric import *  # noqa: F403

__getattr__ = absent(__name__)
