"""Metadata of a dump: pickles written so that MegEngine reads them, and read without running anything."""

import pickle
import sys
from typing import Any

from ..base.errors import FormatError, UsageError
from ..base.logger import get_logger
from ..base.registry import resolve
from ..graph import Metadata
from ..passes.options import FLAGS, InferenceOptions
from .checkpoint import read_pickle
from .checkpoint.emit import pickled

_log = get_logger(__name__)


_MODULES = "loadrun.megengine.module"
"""Where the classes of modules are, which may be in a dump's ``user_info``."""


def _class_named(module: str, name: str) -> type | None:
    if not module.startswith(("megengine.module", _MODULES)) or name.startswith("_"):
        return None
    value = getattr(resolve("loadrun.megengine:module"), name, None)
    return value if isinstance(value, type) else None


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


def metadata_of(metadata: Metadata | None) -> dict[str, Any] | None:
    """Return the metadata of a dump as MegEngine's ``Network.metadata`` gives them."""
    if metadata is None or not metadata.is_valid:
        return None
    bits = metadata.optimize_options
    about: dict[str, Any] = {
        "user_info": _user_info(metadata.user_info),
        "graph_modified": metadata.graph_modified,
        "optimized_for_inference": bits != 0,
    }
    chosen = InferenceOptions.from_bits(bits) if bits else None
    return about | {f: True for f in FLAGS if chosen is not None and _chose(chosen, f)}


def _chose(options: InferenceOptions, flag: str) -> bool:
    """Return whether a keyword is needed for these options."""
    plain = InferenceOptions(fuse_grain=False)
    with_it = InferenceOptions.of(**{"enable_fuse_grain": False, flag: True})
    name = next(n for n in vars(plain) if getattr(with_it, n) != getattr(plain, n))
    return bool(getattr(options, name) == getattr(with_it, name))


def _user_info(raw: bytes | None) -> object:
    if raw is None:
        return None
    try:
        return read_pickle(raw, _class_named)
    except FormatError:
        _log.warning("user_info has more than plain values, arrays and tensors, so it is returned as bytes")
        return raw
