"""MegEngine's ``functional.nn``: what networks are made of."""

from __future__ import annotations

from .activation import (
    gelu,
    hsigmoid,
    hswish,
    leaky_relu,
    logsigmoid,
    logsoftmax,
    logsumexp,
    prelu,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from .attention import multi_head_attention
from .conv import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose2d,
    conv_transpose3d,
    deformable_conv2d,
    local_conv2d,
    region_restricted_conv,
)
from .linalg import normalize
from .loss import (
    binary_cross_entropy as binary_cross_entropy,
)
from .loss import (
    cross_entropy as cross_entropy,
)
from .loss import (
    ctc_loss as ctc_loss,
)
from .loss import (
    hinge_loss as hinge_loss,
)
from .loss import (
    l1_loss as l1_loss,
)
from .loss import (
    square_loss as square_loss,
)
from .metric import topk_accuracy as topk_accuracy
from .norm import (
    batch_norm,
    general_norm,
    group_norm,
    instance_norm,
    layer_norm,
    local_response_norm,
    sync_batch_norm,
)
from .pooling import (
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    deformable_psroi_pooling,
    max_pool2d,
)
from .quantized import conv_bias_activation as conv_bias_activation
from .vision import (
    correlation as correlation,
)
from .vision import (
    cvt_color as cvt_color,
)
from .vision import (
    interpolate as interpolate,
)
from .vision import (
    nms as nms,
)
from .vision import (
    remap,
    warp_affine,
    warp_perspective,
)
from .vision import (
    roi_align as roi_align,
)
from .vision import (
    roi_pooling as roi_pooling,
)
from .windows import (
    dropout,
    embedding,
    indexing_one_hot,
    linear,
    one_hot,
    pad,
    pixel_shuffle,
    sliding_window,
    sliding_window_transpose,
)

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "conv_transpose3d",
    "deformable_conv2d",
    "deformable_psroi_pooling",
    "dropout",
    "embedding",
    "gelu",
    "general_norm",
    "group_norm",
    "hsigmoid",
    "hswish",
    "indexing_one_hot",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_conv2d",
    "local_response_norm",
    "logsigmoid",
    "logsoftmax",
    "logsumexp",
    "max_pool2d",
    "multi_head_attention",
    "normalize",
    "one_hot",
    "pad",
    "pixel_shuffle",
    "prelu",
    "region_restricted_conv",
    "relu",
    "relu6",
    "remap",
    "sigmoid",
    "silu",
    "sliding_window",
    "sliding_window_transpose",
    "softmax",
    "softplus",
    "sync_batch_norm",
    "warp_affine",
    "warp_perspective",
]
