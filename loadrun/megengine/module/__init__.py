"""Layers and networks with MegEngine's names, for inference; `quantized` and `qat` hold the quantized ones."""

from ..absent import absent
from . import init as init
from .activation import *  # noqa: F403
from .basic import *  # noqa: F403
from .conv import *  # noqa: F403
from .fused import *  # noqa: F403
from .linear import *  # noqa: F403
from .module import *  # noqa: F403
from .multiheadattn import *  # noqa: F403
from .normalization import *  # noqa: F403
from .pooling import *  # noqa: F403
from .rnn import *  # noqa: F403

# The quantized ones too, for start-up: most programs use float modules alone.
__getattr__ = absent(__name__)
