"""All layers, under one name."""

from .activation import *  # noqa: F403
from .attention import *  # noqa: F403
from .conv import *  # noqa: F403
from .elemwise import *  # noqa: F403
from .math import *  # noqa: F403
from .norm import *  # noqa: F403
from .products import *  # noqa: F403
from .tensor import *  # noqa: F403
from .vision import remap, warp_affine, warp_perspective  # noqa: F401
from .windows import *  # noqa: F403
