"""The settings of `loadrun.megengine.config` under the name of ``megengine.core._config``, and one more."""

from ...tensors.switches import forward
from ..config import __all__ as settings

__all__ = ["get_auto_format_convert", "set_auto_format_convert"]

_convert = True

forward(
    __name__, {n: n for n in settings} | dict.fromkeys(("_compute_mode", "__compute_mode"), "compute_mode")
)


def get_auto_format_convert() -> bool:
    """Return whether MegEngine may change the formats of tensors by itself, which has no effect here."""
    return _convert


def set_auto_format_convert(option: bool) -> None:
    """Set what `get_auto_format_convert` returns."""
    global _convert
    _convert = option
