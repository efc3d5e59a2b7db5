"""Reading and writing .mge files: the only package that handles raw bytes."""

from ..base.registry import exported
from ..testcase import Bundle as Bundle
from .container import load as load, load_all as load_all, loads as loads

# Replays write nothing.
with exported(__name__) as _exported:
    from .store import save as save

__getattr__ = _exported.find
