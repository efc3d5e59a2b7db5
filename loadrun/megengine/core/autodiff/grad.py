"""`Function` under the name of ``megengine.core.autodiff.grad``; the rest can be imported, and refuses."""

from ...absent import TRAINING, absent_class, absent_function
from ...function import Function

__all__ = ["Function", "Grad", "GradKey", "get_grad_managers"]

Grad = absent_class("Grad", TRAINING)
GradKey = absent_class("GradKey", TRAINING)
get_grad_managers = absent_function("get_grad_managers", TRAINING)
