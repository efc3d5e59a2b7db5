"""Metadata of a dump: pickles written so that MegEngine reads them."""

import pickle
import sys

from ..base.errors import UsageError
from .checkpoint.emit import pickled

_MODULES = "loadrun.megengine.module"
"""Where the classes of modules are, which may be in a dump's ``user_info``."""


def _name_of(kind: type) -> tuple[str, str] | None:
    """Return the module and the name under which MegEngine has a class; a class that exists has been imported."""
    modules = sys.modules.get(_MODULES)
    return ("megengine.module", kind.__name__) if getattr(modules, kind.__name__, None) is kind else None


def information(value: object) -> bytes:
    """Return ``user_info`` as a dump keeps it: a pickle in MegEngine's terms where these suffice."""
    try:
        return pickled(value, _name_of)
    except UsageError:
        return pickle.dumps(value, protocol=4)
