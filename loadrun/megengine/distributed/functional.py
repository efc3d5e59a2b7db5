"""Names that training scripts import from ``megengine.functional.distributed``; calling one is refused."""

from ..absent import absent_function

__all__ = [
    "all_gather",
    "all_reduce_max",
    "all_reduce_min",
    "all_reduce_sum",
    "all_to_all",
    "broadcast",
    "collective_comm",
    "gather",
    "reduce_scatter_sum",
    "reduce_sum",
    "remote_recv",
    "remote_send",
    "scatter",
]

_WHY = "loadrun runs in one process, so there is nothing to exchange; leave the call out"
all_gather = absent_function("all_gather", _WHY)
all_reduce_max = absent_function("all_reduce_max", _WHY)
all_reduce_min = absent_function("all_reduce_min", _WHY)
all_reduce_sum = absent_function("all_reduce_sum", _WHY)
all_to_all = absent_function("all_to_all", _WHY)
broadcast = absent_function("broadcast", _WHY)
collective_comm = absent_function("collective_comm", _WHY)
gather = absent_function("gather", _WHY)
reduce_scatter_sum = absent_function("reduce_scatter_sum", _WHY)
reduce_sum = absent_function("reduce_sum", _WHY)
remote_recv = absent_function("remote_recv", _WHY)
remote_send = absent_function("remote_send", _WHY)
scatter = absent_function("scatter", _WHY)
