"""Names that training scripts import from ``megengine.optimizer``; calling one is refused.

>>> SGD([], lr=0.1)  # doctest: +ELLIPSIS
Traceback (most recent call last):
loadrun.base.errors.UnsupportedError: SGD: loadrun runs networks, it does not train them; ...
"""

from .absent import TRAINING, absent_class, absent_function

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "LAMBFp16",
    "LRScheduler",
    "MultiStepLR",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_value",
]

Optimizer = absent_class("Optimizer", TRAINING)
Adadelta = absent_class("Adadelta", TRAINING, Optimizer)
Adagrad = absent_class("Adagrad", TRAINING, Optimizer)
Adam = absent_class("Adam", TRAINING, Optimizer)
AdamW = absent_class("AdamW", TRAINING, Optimizer)
LAMB = absent_class("LAMB", TRAINING, Optimizer)
LAMBFp16 = absent_class("LAMBFp16", TRAINING, LAMB)
SGD = absent_class("SGD", TRAINING, Optimizer)
LRScheduler = absent_class("LRScheduler", TRAINING)
MultiStepLR = absent_class("MultiStepLR", TRAINING, LRScheduler)
clip_grad_norm = absent_function("clip_grad_norm", TRAINING)
clip_grad_value = absent_function("clip_grad_value", TRAINING)
