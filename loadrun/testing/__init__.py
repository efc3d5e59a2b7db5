"""Tools for tests of models and of loadrun itself: hand-built graphs, single operators on arrays, `assert_close`.

`loadrun.testing.strategies` has Hypothesis strategies for dtypes, parameter records, tensors and whole graphs; it is
a module of its own because it needs the package hypothesis. `loadrun.testing.plugin` is the plugin for pytest.
"""

from ..base.registry import exported

# For start-up: pytest imports this package in every run.
with exported(__name__) as _exported:
    from .builder import (
        GraphBuilder as GraphBuilder,
        operator_graph as operator_graph,
        random_feeds as random_feeds,
        run_operator as run_operator,
    )
    from .closeness import assert_close as assert_close

__getattr__ = _exported.find
