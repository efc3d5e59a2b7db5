"""Layers of networks recorded as MegEngine's operators, written once for every front end; `nn` has them all."""
