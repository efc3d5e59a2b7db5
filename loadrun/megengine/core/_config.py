"""One switch under the name of ``megengine.core._config``; the others are in `loadrun.megengine.config`."""

__all__ = ["get_auto_format_convert", "set_auto_format_convert"]

_convert = True


def get_auto_format_convert() -> bool:
    """Return whether MegEngine may change the formats of tensors by itself, which has no effect here."""
    return _convert


def set_auto_format_convert(option: bool) -> None:
    """Set what `get_auto_format_convert` returns."""
    global _convert
    _convert = option
