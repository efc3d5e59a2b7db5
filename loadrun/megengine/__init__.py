"""MegEngine's Python API on loadrun's tensors: a script runs with ``import loadrun.megengine as megengine``.

``python -m loadrun.megengine script.py`` runs an unchanged script, with this package standing for ``megengine``.
Nothing else of loadrun needs this package.
"""

from ..base.registry import exported
from . import absent  # noqa: F401 - modules that went are found from now on

__version__ = "1.13.0"
"""The MegEngine whose API this is."""

# Of these four names compute, the others are refused one by one.
_DEVICE = """
get_default_device get_device_count is_cuda_available set_default_device
coalesce_free_memory get_allocated_memory get_cuda_compute_capability get_cuda_device_property get_cuda_driver_version
get_cuda_version get_cudnn_version get_max_allocated_memory get_max_reserved_memory get_mem_status_bytes
get_reserved_memory get_tensorrt_version is_atlas_available is_cambricon_available is_rocm_available
reset_max_memory_stats set_prealloc_config
"""
_MODULES = """
amp autodiff config core data device distributed dtr functional hub jit logger module optimizer quantization random
serialization tools traced_module utils
"""
_LOGGER = "logger.enable_debug_log logger.get_logger logger.set_log_file logger.set_log_level"
with exported(__name__, " device.".join((_MODULES + _LOGGER, *_DEVICE.split()))) as _exported:
    from .serialization import load as load, save as save
    from .tensor import Parameter as Parameter, Tensor as Tensor, tensor as tensor

__getattr__, __dir__ = _exported.find, _exported.listed


def _sync() -> None:
    """Do nothing: what is requested is computed at once."""


_full_sync = _sync
