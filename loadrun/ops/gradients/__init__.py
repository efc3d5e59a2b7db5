"""Kernels of MegEngine's backward operators, which a dump of a gradient graph holds.

A gradient has the shape and dtype of what it is the gradient of. All are computed in float32, from the forward
operator's inputs where MegEngine would take what its forward kernel kept; narrow floats are rounded once.
"""
