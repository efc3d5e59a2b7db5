"""Parameter layouts of older releases, brought to today's records.

Releases are compared by ``(major * 1000 + minor) * 100 + patch``, the number that dumps store.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ..params import ConvBias, ExecutionPolicy, Field, Format, Images2Neibs, Record, Strategy

__all__ = ["fields", "member", "upgrade"]

_V1_3, _V1_4, _V1_5, _V1_6 = 100300, 100400, 100500, 100600

# The numbers that Format members had before 1.3, newest layout first: (since, {number: name}).
_WINOGRAD = ("NCHW_WINOGRAD", "NCHW88_WINOGRAD", "NCHW44_WINOGRAD")
_COMMON = ("NCHW", "NHWC", "NHWCD4", "NCHW4", "NCHW8", "NCHW32", "NCHW88")
_MIXED = (
    "NCHW4_NCHW32",
    "NCHW32_NCHW4",
    "NCHW4_NCHW",
    "NHWC_NCHW",
    "NHWC_NCHW4_IC_SMALL",
    "NCHW_NCHW4_IC_SMALL",
)
_OLD_FORMATS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (100200, (*_COMMON, "NCHW44", "NCHW44_DOT", *_WINOGRAD, *_MIXED, "CHWN4")),
    (500, (*_COMMON, "NCHW44", "NCHW44_DOT", *_WINOGRAD, "CHWN4")),
    (400, (*_COMMON, "NCHW44", *_WINOGRAD, "CHWN4")),
    (0, (*_COMMON, "NCHW_WINOGRAD", "NCHW88_WINOGRAD", "CHWN4")),
)
_FORMATS_1_5 = (
    *(*_COMMON, "NCHW44", "NCHW44_DOT", "NCHW4_NCHW32", "NCHW32_NCHW4", "NCHW4_NCHW", "NCHW4_NHWC"),
    *("NHWC_NCHW", "NHWC_NCHW4_IC_SMALL", "NCHW_NCHW4_IC_SMALL", "CHWN4", "NCHW64"),
)
_OLD_STRATEGY = (
    Strategy.HEURISTIC,
    Strategy.HEURISTIC | Strategy.REPRODUCIBLE,
    Strategy.PROFILE,
    Strategy.PROFILE | Strategy.REPRODUCIBLE,
    Strategy.PROFILE | Strategy.HEURISTIC,
)
_OLD_BLOCK = Field("output_block_size", "uint", 0, None)


def fields(kind: type[Record], mge_version: int) -> tuple[Field, ...]:
    """The fields of a record in the slot order of that release."""
    now = kind.fields()
    if kind is ConvBias and mge_version < _V1_3:
        return (*now[:10], _OLD_BLOCK, *now[10:])
    if kind is Images2Neibs and mge_version < _V1_4:
        return tuple(f for f in now if not f.name.startswith("dilate"))
    if kind is ExecutionPolicy and mge_version < _V1_3:
        return (now[0]._replace(default=0), *now[1:])
    return now


def upgrade(kind: type[Record], values: dict[str, Any]) -> Record:
    """Build the record, dropping fields that no longer exist."""
    values.pop(_OLD_BLOCK.name, None)
    return kind(**values)


def member(enum: type[Any], raw: int, mge_version: int) -> Any:
    """The enum member that a number stood for in that release.

    Raises:
        ValueError: the number has no member (the message lists the known ones).
    """
    if enum is Format and mge_version < _V1_3:
        names = next(names for since, names in _OLD_FORMATS if mge_version >= since)
        return _named(enum, names, raw)
    if enum is Format and _V1_5 <= mge_version < _V1_6:
        return _named(enum, _FORMATS_1_5, raw)
    if enum is Strategy and mge_version < _V1_3 and raw < len(_OLD_STRATEGY):
        return _OLD_STRATEGY[raw]
    try:
        return enum(raw)
    except ValueError:
        known = ", ".join(f"{m.value} {m.name}" for m in enum)
        raise ValueError(f"value {raw} is unknown; known are {known}") from None


def _named(enum: type[IntEnum], names: tuple[str, ...], raw: int) -> Any:
    if raw >= len(names):
        raise ValueError(f"value {raw} is unknown; this release had 0 to {len(names) - 1}")
    if names[raw] not in enum.__members__:
        raise ValueError(f"value {raw} is the retired format {names[raw]}, which no current release runs")
    return enum[names[raw]]
