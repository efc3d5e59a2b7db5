"""Tools for tests of models and of loadrun itself: hand-built graphs, single operators on arrays, `assert_close`.

`loadrun.testing.strategies` has Hypothesis strategies for dtypes, parameter records, tensors and whole graphs; it is
a module of its own because it needs the package hypothesis. `loadrun.testing.plugin` is the plugin for pytest.
"""

from typing import TYPE_CHECKING

from ..base.registry import lazy

if TYPE_CHECKING:
    from .builder import GraphBuilder, random_feeds
    from .closeness import assert_close
    from .operators import operator_graph, run_operator

__all__ = ["GraphBuilder", "assert_close", "operator_graph", "random_feeds", "run_operator"]

# For start-up: pytest imports this package in every run.
__getattr__ = lazy(
    __name__,
    {
        "GraphBuilder": ".builder",
        "assert_close": ".closeness",
        "operator_graph": ".operators",
        "random_feeds": ".builder",
        "run_operator": ".operators",
    },
)
