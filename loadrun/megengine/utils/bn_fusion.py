"""`fuse_conv_bn_relu_module` and its kin under the name of ``megengine.utils.bn_fusion``."""

from ..module.fusion import fold_weight_bias, fuse_conv_bn_relu_module, fuse_linear_bn_relu_module

__all__ = ["fold_weight_bias", "fuse_conv_bn_relu_module", "fuse_linear_bn_relu_module"]
