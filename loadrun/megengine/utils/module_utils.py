"""Modules by dotted names, under the name of ``megengine.utils.module_utils``."""

from ..module.paths import get_expand_structure, set_expand_structure, set_module_mode_safe

__all__ = ["get_expand_structure", "set_expand_structure", "set_module_mode_safe"]
