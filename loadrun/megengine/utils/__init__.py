"""`tuple_function`, which modules outside of MegEngine take from its ``utils`` package."""

from ..absent import absent

__getattr__ = absent(__name__)
