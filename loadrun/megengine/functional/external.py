"""Names that scripts import from ``megengine.functional.external``; calling one is refused."""

from ..absent import listed, refusing

__all__ = listed(__name__)

__getattr__ = refusing(__name__)
