"""Engines that are runtimes of others: each stands in a file of its own and is imported when it is used.

`loadrun.engines.registry` names the ``make_engine`` of each.
"""
