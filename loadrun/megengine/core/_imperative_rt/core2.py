"""MegEngine's ``core._imperative_rt.core2``: applying the operators of `loadrun.megengine.core.ops.builtin`."""

from ....build.creation import complex as create_complex
from ....build.creation import imag as get_imag
from ....build.creation import real as get_real
from ....tensors import Tensor
from ....tensors.switches import SWITCHES
from ...opdefs import apply
from ..options import get_option, set_option
from ..tensor.amp import _get_amp_high_prec_dtype, _get_amp_low_prec_dtype  # noqa: F401

__all__ = [
    "AsyncError",
    "Tensor",
    "apply",
    "create_complex",
    "full_sync",
    "get_imag",
    "get_option",
    "get_real",
    "set_option",
    "sync",
]


def sync() -> None:
    """Do nothing: what is requested is computed at once."""


full_sync = sync


def _get_amp_dtype_autocast() -> bool:
    return SWITCHES.autocast


def _get_convert_inputs() -> bool:
    """Return whether operators make tensors of the numbers beside them, as they always do."""
    return True


class AsyncError(RuntimeError):
    """What MegEngine raises for an operator that failed before; here operators raise their own errors at once."""
