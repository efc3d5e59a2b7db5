"""Parameter records and enums of MegEngine operators: fields in wire order, types and defaults.

The one place that knows them; the wire codec, the kernels and the documentation read it.
"""

from .enums import *  # noqa: F403 - these modules hold nothing else
from .nn import *  # noqa: F403
from .tensor import *  # noqa: F403
from .tensor import DType as DTypeParam  # noqa: F401 - beside MegEngine's dtypes
