"""Parameter layouts and enum numbers of older releases, brought to today's records and back.

MegEngine itself reads every file as if the current release had written it, so it takes what changed its place
or number for something else; here the release that the file names decides. Releases are compared by
``(major * 1000 + minor) * 100 + patch``, the number that dumps store.
"""

from enum import IntEnum, IntFlag
from typing import Any

from ..graph import params as P

_V1_3, _V1_4, _V1_5, _V1_6 = 100300, 100400, 100500, 100600

# The members of the layout enums in the order of their numbers, newest first: (since, names).
_WINOGRAD = ("NCHW_WINOGRAD", "NCHW88_WINOGRAD", "NCHW44_WINOGRAD")
_COMMON = ("NCHW", "NHWC", "NHWCD4", "NCHW4", "NCHW8", "NCHW32", "NCHW88")
_DOT = (*_COMMON, "NCHW44", "NCHW44_DOT")
_MIXED = ("NCHW4_NCHW32", "NCHW32_NCHW4", "NCHW4_NCHW")
_SMALL = ("NHWC_NCHW", "NHWC_NCHW4_IC_SMALL", "NCHW_NCHW4_IC_SMALL", "CHWN4")
_OLD_FORMATS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (100200, (*_DOT, *_WINOGRAD, *_MIXED, *_SMALL)),
    (500, (*_DOT, *_WINOGRAD, "CHWN4")),
    (400, (*_COMMON, "NCHW44", *_WINOGRAD, "CHWN4")),
    (0, (*_COMMON, "NCHW_WINOGRAD", "NCHW88_WINOGRAD", "CHWN4")),
)
_FORMATS_1_5 = (*_DOT, *_MIXED, "NCHW4_NHWC", *_SMALL, "NCHW64")
_V0_FORMATS_1_5 = (*_DOT, *_WINOGRAD, *_MIXED, "NCHW4_NHWC", *_SMALL)
_OLD_STRATEGY = (
    P.Strategy.HEURISTIC,
    P.Strategy.HEURISTIC | P.Strategy.REPRODUCIBLE,
    P.Strategy.PROFILE,
    P.Strategy.PROFILE | P.Strategy.REPRODUCIBLE,
    P.Strategy.PROFILE | P.Strategy.HEURISTIC,
)
_OLD_BLOCK = P.RecordField("output_block_size", "uint", 0, None)
RETIRED = ("CheckHasInf", "ParamPackConcat", "WinogradFilterPreprocess")
"""Operators of releases before 1.8 that no later release can load."""


def fields(kind: type[P.Record], mge_version: int) -> tuple[P.RecordField, ...]:
    """List the fields of a record in the slot order of that release."""
    now = kind.fields()
    if kind is P.ConvBias and mge_version < _V1_3:
        return (*now[:10], _OLD_BLOCK, *now[10:])
    if kind is P.Images2Neibs and mge_version < _V1_4:
        return tuple(f for f in now if not f.name.startswith("dilate"))
    if kind is P.ExecutionPolicy and mge_version < _V1_3:
        return (now[0]._replace(default=0), *now[1:])
    return now


def upgrade(kind: type[P.Record], values: dict[str, Any]) -> P.Record:
    """Build the record, dropping fields that no longer exist."""
    values.pop(_OLD_BLOCK.name, None)
    return kind(**values)


def member(enum: type[Any], raw: int, mge_version: int) -> IntEnum | IntFlag:
    """Return the enum member that a number stood for in that release.

    Raises:
        ValueError: the number has no member (the message lists the known ones).
    """
    names = _names(enum, mge_version)
    if names is not None:
        return _enum_member(enum, names, raw)
    if enum is P.Strategy and mge_version < _V1_3:
        if raw >= len(_OLD_STRATEGY):
            raise ValueError(f"value {raw} is unknown; this release had 0 to {len(_OLD_STRATEGY) - 1}")
        return _OLD_STRATEGY[raw]
    if enum is P.Strategy and raw > sum(P.Strategy):
        raise ValueError(f"value {raw} is unknown; this loadrun knows the bits up to {sum(P.Strategy)}")
    try:
        return enum(raw)
    except ValueError:
        known = [f"{m.value} {m.name}" for m in enum]
        listed = ", ".join(known) if len(known) <= 6 else f"{known[0]} to {known[-1]}"
        raise ValueError(f"value {raw} is unknown; this loadrun knows {listed}") from None


def number(value: IntEnum | IntFlag, mge_version: int) -> int:
    """Return the number that an enum member had in that release: the inverse of `member`.

    Raises:
        ValueError: the release did not have the member.
    """
    names = _names(type(value), mge_version)
    if names is not None:
        if value.name not in names:
            raise ValueError(f"release {release(mge_version)} had no format {value.name}")
        return names.index(value.name)
    if isinstance(value, P.Strategy) and mge_version < _V1_3:
        if value not in _OLD_STRATEGY:
            raise ValueError(f"release {release(mge_version)} had no strategy {value!r}")
        return _OLD_STRATEGY.index(value)
    return int(value)


def release(mge_version: int) -> str:
    """Name the release: 101300 is 1.13.0."""
    return f"{mge_version // 100000}.{mge_version // 100 % 1000}.{mge_version % 100}"


def _names(enum: type[Any], mge_version: int) -> tuple[str, ...] | None:
    """List the member names by number where that release counted otherwise than today."""
    if enum is P.Format and mge_version < _V1_3:
        return next(names for since, names in _OLD_FORMATS if mge_version >= since)
    if _V1_5 <= mge_version < _V1_6:
        if enum is P.Format:
            return _FORMATS_1_5
        if enum is P.FormatV0:
            return _V0_FORMATS_1_5
    return None


def _enum_member(enum: type[IntEnum], names: tuple[str, ...], raw: int) -> IntEnum:
    if raw >= len(names):
        raise ValueError(f"value {raw} is unknown; this release had 0 to {len(names) - 1}")
    if names[raw] not in enum.__members__:
        raise ValueError(f"value {raw} is the retired format {names[raw]}, which no current release runs")
    return enum[names[raw]]
