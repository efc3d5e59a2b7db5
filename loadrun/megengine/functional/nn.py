"""MegEngine's ``functional.nn``: what networks are made of."""

from ...layers.activation import *  # noqa: F403
from ...layers.attention import *  # noqa: F403
from ...layers.conv import *  # noqa: F403
from ...layers.math import normalize  # noqa: F401
from ...layers.norm import *  # noqa: F403
from ...layers.vision import *  # noqa: F403
from ...layers.windows import *  # noqa: F403
from .loss import binary_cross_entropy, cross_entropy, ctc_loss, hinge_loss, l1_loss, square_loss  # noqa: F401
from .quantized import conv_bias_activation  # noqa: F401
from .utils import *  # noqa: F403
