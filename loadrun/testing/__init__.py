"""Tools for tests of models and of loadrun itself: hand-built graphs, single operators on arrays, `assert_close`.

`loadrun.testing.strategies` has Hypothesis strategies for dtypes, parameter records, tensors and whole graphs; it is
a module of its own because it needs the package hypothesis. `loadrun.testing.plugin` is the plugin for pytest.
"""

from typing import TYPE_CHECKING

from ..base.registry import lazy

if TYPE_CHECKING:
    from .builder import GraphBuilder, operator_graph, random_feeds, run_operator
    from .closeness import assert_close

__all__ = ["GraphBuilder", "assert_close", "operator_graph", "random_feeds", "run_operator"]

# For start-up: pytest imports this package in every run.
__getattr__ = lazy(
    __name__,
    {
        "GraphBuilder": ".builder",
        "assert_close": ".closeness",
        "operator_graph": ".builder",
        "random_feeds": ".builder",
        "run_operator": ".builder",
    },
)
