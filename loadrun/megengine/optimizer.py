"""Names that training scripts import from ``megengine.optimizer``; calling one is refused.

>>> from loadrun.megengine.optimizer import SGD
>>> SGD([], lr=0.1)  # doctest: +ELLIPSIS
Traceback (most recent call last):
loadrun.base.errors.UnsupportedError: SGD: loadrun runs networks, it does not train them; ...
"""

from .absent import listed, refusing

__all__ = listed(__name__)

__getattr__ = refusing(__name__)
