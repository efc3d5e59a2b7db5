"""`Function` under the name of ``megengine.autodiff``; `GradManager` can be imported, and refuses to be made."""

from __future__ import annotations

from ..absent import listed, refusing
from ..function import Function

__all__ = ["Function", *listed(__name__)]

__getattr__ = refusing(__name__)
