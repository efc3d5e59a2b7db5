"""MegEngine's functional API for inference: eager on tensors and arrays, recorded inside a traced function."""

from ...layers.nn import *  # noqa: F403
from ..absent import absent
from . import elemwise, loss, nn, quantized, utils  # noqa: F401
from .utils import *  # noqa: F403

__getattr__ = absent(__name__)
