"""Data for JSON, without the NaN and Infinity literals that are not valid JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, overload


@overload
def plain(value: Mapping[str, Any]) -> dict[str, Any]: ...


@overload
def plain(value: object) -> object: ...


def plain(value: object) -> object:
    """Return data for JSON: non-finite floats become the strings "nan", "inf" and "-inf".

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, 'nan']}
    """
    kind = type(value)
    # The abstract-class checks below are slow; nearly everything is one of these.
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [plain(v) for v in value]
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "item"):
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
