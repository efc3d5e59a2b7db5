"""Mixed precision under the name of ``megengine.core.tensor.amp``: the settings of `loadrun.megengine.amp`."""

from __future__ import annotations

from ....tensors.switches import SWITCHES, forward

__all__ = ["enabled", "high_prec_dtype", "low_prec_dtype"]

enabled: bool
high_prec_dtype: str
low_prec_dtype: str


def _get_amp_low_prec_dtype() -> str:
    return SWITCHES.low_prec_dtype


def _get_amp_high_prec_dtype() -> str:
    return SWITCHES.high_prec_dtype


def _set_amp_low_prec_dtype(dtype: str) -> None:
    SWITCHES.replaced(low_prec_dtype=dtype)


def _set_amp_high_prec_dtype(dtype: str) -> None:
    SWITCHES.replaced(high_prec_dtype=dtype)


forward(
    __name__,
    {
        "_enabled": "autocast",
        "enabled": "autocast",
        "low_prec_dtype": "low_prec_dtype",
        "high_prec_dtype": "high_prec_dtype",
    },
)
