"""Convolution and batch normalization with fake quantization (MegEngine's ``module/qat/conv_bn.py``)."""

from .. import conv_bn as Float
from .folding import Folded


class ConvBn2d(Folded, Float.ConvBn2d):
    """`ConvBn2d` with fake quantization."""

    def _scale_shape(self) -> tuple[int, ...]:
        groups = self.conv.groups
        return (-1, 1, 1, 1) if groups == 1 else (groups, -1, 1, 1, 1)


class ConvBnRelu2d(ConvBn2d):
    """`ConvBnRelu2d` with fake quantization."""

    _relu = True
