"""`Function` under the name of ``megengine.core.autodiff.grad``; the rest can be imported, and refuses."""

from ...absent import listed, refusing
from ...function import Function

__all__ = ["Function", *listed(__name__)]

__getattr__ = refusing(__name__)
