"""Layers and networks with MegEngine's names, for inference; `quantized` and `qat` hold the quantized ones."""

from ..absent import absent
from . import init
from .activation import GELU, LeakyReLU, PReLU, ReLU, Sigmoid, SiLU, Softmax
from .basic import (
    Concat,
    DequantStub,
    Dropout,
    Elemwise,
    Identity,
    Pad,
    PixelShuffle,
    QuantStub,
    Sequential,
    SlidingWindow,
    SlidingWindowTranspose,
)
from .conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvRelu2d,
    ConvTranspose2d,
    ConvTranspose3d,
    ConvTransposeRelu2d,
    DeformableConv2d,
    LocalConv2d,
    RegionRestrictedConv,
)
from .fused import (
    BatchMatMulActivation,
    ConvBn2d,
    ConvBnRelu2d,
    ConvTransposeBn2d,
    ConvTransposeBnRelu2d,
    LinearBn1d,
    LinearBnRelu1d,
)
from .linear import Embedding, Linear, LinearRelu
from .module import Module
from .multiheadattn import MultiHeadAttention
from .normalization import (
    BatchNorm1d,
    BatchNorm2d,
    GeneralNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LocalResponseNorm,
    SyncBatchNorm,
)
from .pooling import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, DeformablePSROIPooling, MaxPool2d
from .rnn import LSTM, RNN, LSTMCell, RNNCell

__all__ = [
    "GELU",
    "LSTM",
    "RNN",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool2d",
    "BatchMatMulActivation",
    "BatchNorm1d",
    "BatchNorm2d",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvBn2d",
    "ConvBnRelu2d",
    "ConvRelu2d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "ConvTransposeBn2d",
    "ConvTransposeBnRelu2d",
    "ConvTransposeRelu2d",
    "DeformableConv2d",
    "DeformablePSROIPooling",
    "DequantStub",
    "Dropout",
    "Elemwise",
    "Embedding",
    "GeneralNorm",
    "GroupNorm",
    "Identity",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LinearBn1d",
    "LinearBnRelu1d",
    "LinearRelu",
    "LocalConv2d",
    "LocalResponseNorm",
    "MaxPool2d",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "Pad",
    "PixelShuffle",
    "QuantStub",
    "RNNCell",
    "ReLU",
    "RegionRestrictedConv",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SlidingWindow",
    "SlidingWindowTranspose",
    "Softmax",
    "SyncBatchNorm",
    "init",
]

__getattr__ = absent(__name__)
