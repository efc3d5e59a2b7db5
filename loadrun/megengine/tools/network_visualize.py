"""The sizes and operations of dumps, under the name of ``megengine.tools.network_visualize``."""

from ..network.summary import visualize

__all__ = ["visualize"]
