"""Engines: ways to execute a graph. `reference` is numpy; others are imported only when used."""
