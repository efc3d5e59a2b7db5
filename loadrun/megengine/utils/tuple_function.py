"""Sizes per axis, given as one number or as a sequence, under the name of ``megengine.utils.tuple_function``."""

from ..module.sizes import get_ndtuple
from ..module.sizes import pair as _pair  # noqa: F401
from ..module.sizes import pair_nonzero as _pair_nonzero  # noqa: F401
from ..module.sizes import quadruple as _quadruple  # noqa: F401
from ..module.sizes import single as _single  # noqa: F401
from ..module.sizes import triple as _triple  # noqa: F401
from ..module.sizes import triple_nonzero as _triple_nonzero  # noqa: F401

__all__ = ["get_ndtuple"]
