"""Convolutions with fake quantization (MegEngine's ``module/qat/conv.py``)."""

from .. import conv as Float
from .module import QATWeighted


class Conv2d(QATWeighted, Float.Conv2d):
    """`Conv2d` with fake quantization."""


class ConvRelu2d(Conv2d):
    """`ConvRelu2d` with fake quantization."""

    _relu = True


class ConvTranspose2d(QATWeighted, Float.ConvTranspose2d):
    """`ConvTranspose2d` with fake quantization."""


class ConvTransposeRelu2d(ConvTranspose2d):
    """`ConvTransposeRelu2d` with fake quantization."""

    _relu = True
