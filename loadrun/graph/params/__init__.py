"""Parameter records and enums of MegEngine operators: fields in wire order, types and defaults.

The one place that knows them; the wire codec, the kernels and the documentation read it.
"""

from . import tensor
from .enums import *  # noqa: F403 - these modules hold nothing else
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403

DTypeParam = tensor.DType
"""The parameter of that name; a dtype of MegEngine is something else."""
