"""load_and_run's JSON form for arrays."""

import json
import math
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..graph.dtypes import Array

_TYPES = {"float32": "f4", "float": "f4", "int32": "i4", "int": "i4", "int8": "i1", "uint8": "u1"}
_FORM = 'expected {"name": {"shape": [...], "type": "float32", "raw": [...]}} with a type of ' + ", ".join(
    _TYPES
)


def json_arrays(text: str | bytes) -> dict[str, Array]:
    """Return the arrays of a JSON text by name.

    Integer types are rounded to nearest, halves away from zero, as load_and_run does.

    Raises:
        InputError: the text has another form, a raw list of the wrong length, or numbers beyond the type.

    >>> json_arrays('{"x": {"shape": [2], "type": "int8", "raw": [1.5, -2]}}')["x"]
    array([ 2, -2], dtype=int8)
    """
    try:
        members = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InputError(f"{_FORM}: {type(e).__name__}: {str(e)[:100]}") from None
    if not isinstance(members, dict):
        raise InputError(f"{_FORM}: found a {type(members).__name__}")
    return {name: _array(name, fields) for name, fields in members.items()}


def _array(name: str, fields: object) -> Array:
    shape, kind, raw = (
        (fields.get(k) for k in ("shape", "type", "raw")) if isinstance(fields, dict) else (None,) * 3
    )
    if shape is None or kind is None or raw is None:
        raise InputError(f"{_FORM}: {name!r:.80} lacks one of the three")
    if not isinstance(shape, list) or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise InputError(f"{name!r:.80}: the shape must be a list of whole numbers, found {shape!r:.80}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InputError(f"{_FORM}: the type of {name!r:.80} is {kind!r:.40}")
    if not isinstance(raw, list) or not all(isinstance(n, (int, float)) for n in raw):
        raise InputError(f"{_FORM}: the raw list of {name!r:.80} holds something else than numbers")
    if len(raw) != math.prod(shape):
        raise InputError(
            f"{name!r:.80}: shape {shape} takes a raw list of {math.prod(shape)} numbers, found {len(raw)}"
        )
    try:
        values = np.array(raw, np.float64).reshape(shape)
    except (ValueError, OverflowError):
        raise InputError(f"{name!r:.80}: no array has the shape {shape}, or holds the numbers") from None
    array = _typed(values, np.dtype(_TYPES[kind]), name)
    return array.reshape(1) if array.ndim == 0 else array


def _typed(values: Array, dtype: np.dtype[Any], name: str) -> Array:
    if dtype.kind in "iu":
        values = np.trunc(values + np.copysign(0.5, values))
        limits = np.iinfo(dtype)
        if not ((values >= limits.min) & (values <= limits.max)).all():
            raise InputError(f"{name!r:.80}: the raw list holds numbers that {dtype} does not")
    with np.errstate(over="ignore"):
        return values.astype(dtype)
