"""Graphs as users edit them: MegEngine's ``Network``, its nodes, and the tools around them."""
