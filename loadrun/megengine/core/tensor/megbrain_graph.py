"""Graphs built operator by operator, under the name of ``megengine.core.tensor.megbrain_graph``."""

from ...network import graphs as _graphs
from ...network.graphs import *  # noqa: F403

__all__ = list(_graphs.__all__)
