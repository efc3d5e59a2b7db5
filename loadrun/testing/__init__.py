"""What tests of models and of loadrun itself need: graphs by hand, one operator on arrays, closeness with reasons.

`loadrun.testing.strategies` has Hypothesis strategies for dtypes, parameter records, tensors and whole graphs; it is
a module of its own because it needs the package hypothesis.
"""

from .builder import GraphBuilder, random_feeds
from .closeness import assert_close
from .operators import operator_graph, run_operator

__all__ = ["GraphBuilder", "assert_close", "operator_graph", "random_feeds", "run_operator"]
