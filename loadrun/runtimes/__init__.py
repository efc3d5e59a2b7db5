"""Backends: engines that run models on other runtimes, one file each, imported when it is used.

`loadrun.engines.registry` names the ``make_engine`` of each.
"""
