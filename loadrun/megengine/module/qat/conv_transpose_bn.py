"""Transposed convolution and batch normalization with fake quantization (``module/qat/conv_transpose_bn.py``)."""

from .. import conv_transpose_bn as Float
from .folding import Folded


class ConvTransposeBn2d(Folded, Float.ConvTransposeBn2d):
    """`ConvTransposeBn2d` with fake quantization."""

    def _scale_shape(self) -> tuple[int, ...]:
        groups = self.conv_transpose2d.groups
        return (1, -1, 1, 1) if groups == 1 else (groups, 1, -1, 1, 1)


class ConvTransposeBnRelu2d(ConvTransposeBn2d):
    """`ConvTransposeBnRelu2d` with fake quantization."""

    _relu = True
