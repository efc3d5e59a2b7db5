"""What scripts ask of ``megengine.distributed.helper`` before they decide how many processes to start."""

from ..device import get_device_count as get_device_count_by_fork

__all__ = ["get_device_count_by_fork"]
