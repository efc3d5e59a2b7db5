"""Names of ``megengine.traced_module``; calling one is refused.

>>> from loadrun.megengine.traced_module import trace_module
>>> trace_module(None)  # doctest: +ELLIPSIS
Traceback (most recent call last):
loadrun.base.errors.UnsupportedError: trace_module: loadrun has no graphs of modules; trace and dump the module, ...
"""

from .absent import listed, refusing

__all__ = listed(__name__)

__getattr__ = refusing(__name__)
