"""Parameter records of the convolution, pooling and ROI family."""

from . import enums as E
from ._record import F32, U32, U64, Bool, Record


class Convolution(Record, code=3):
    mode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    sparse: E.Sparse = E.Sparse.DENSE
    format: E.Format = E.Format.NCHW
    compute_mode: E.ComputeMode = E.ComputeMode.DEFAULT


class MaskPropagate(Record, code=4):
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    kernel_h: U32 = 1
    kernel_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1


class ConvPooling(Record, code=5):
    method: E.ConvPoolingMethod = E.ConvPoolingMethod.WITH_TEXTURE_OBJ
    convMode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    poolMode: E.ConvPoolingPoolMode = E.ConvPoolingPoolMode.AVERAGE
    nonlineMode: E.ConvPoolingNonlineMode = E.ConvPoolingNonlineMode.IDENTITY
    pool_shape_h: U32 = 1
    pool_shape_w: U32 = 1
    pool_stride_h: U32 = 1
    pool_stride_w: U32 = 1
    pool_pad_h: U32 = 0
    pool_pad_w: U32 = 0
    conv_stride_h: U32 = 1
    conv_stride_w: U32 = 1
    conv_pad_h: U32 = 0
    conv_pad_w: U32 = 0


class ConvBias(Record, code=6):
    nonlineMode: E.NonlineMode = E.NonlineMode.IDENTITY
    mode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    sparse: E.Sparse = E.Sparse.DENSE
    format: E.Format = E.Format.NCHW
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    compute_mode: E.ComputeMode = E.ComputeMode.DEFAULT


class SeparableConv(Record, code=7):
    mode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    borderMode: E.SeparableConvBorderMode = E.SeparableConvBorderMode.BORDER_REPLICATE
    is_symm_kernel: Bool = True
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    ksize_h: U32 = 3
    ksize_w: U32 = 3
    anchor_h: U32 = 1
    anchor_w: U32 = 1


class Images2Neibs(Record, code=8):
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    window_h: U32 = 3
    window_w: U32 = 3


class Pooling(Record, code=9):
    mode: E.PoolingMode = E.PoolingMode.MAX
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 2
    stride_w: U32 = 2
    window_h: U32 = 2
    window_w: U32 = 2
    format: E.Format = E.Format.NCHW


class ROIPooling(Record, code=12):
    mode: E.ROIPoolingMode = E.ROIPoolingMode.MAX
    scale: F32 = 1.0


class Convolution3D(Record, code=41):
    mode: E.Convolution3DMode = E.Convolution3DMode.CROSS_CORRELATION
    pad_d: U32 = 0
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_d: U32 = 1
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_d: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    sparse: E.Convolution3DSparse = E.Convolution3DSparse.DENSE
    data_type: E.Convolution3DDataType = E.Convolution3DDataType.FLOAT
    format: E.Convolution3DFormat = E.Convolution3DFormat.NCDHW


class Conv3DBias(Record, code=42):
    nonlineMode: E.Conv3DBiasNonlineMode = E.Conv3DBiasNonlineMode.IDENTITY
    mode: E.Convolution3DMode = E.Convolution3DMode.CROSS_CORRELATION
    pad_d: U32 = 0
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_d: U32 = 1
    stride_h: U32 = 1
    stride_w: U32 = 0


class SeparableConv3D(Record, code=43):
    mode: E.Convolution3DMode = E.Convolution3DMode.CROSS_CORRELATION
    borderMode: E.SeparableConv3DBorderMode = E.SeparableConv3DBorderMode.BORDER_REPLICATE
    is_symm_kernel: Bool = True
    pad_d: U32 = 0
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_d: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    ksize_d: U32 = 0
    ksize_h: U32 = 3
    ksize_w: U32 = 3
    anchor_d: U32 = 0
    anchor_h: U32 = 1
    anchor_w: U32 = 1


class SeparableFilter(Record, code=46):
    format: E.Format = E.Format.NCHW
    borderMode: E.BorderMode = E.BorderMode.REPLICATE
    is_symm_kernel: Bool = True
    ksize_h: U32 = 3
    ksize_w: U32 = 3
    anchor_h: U32 = 1
    anchor_w: U32 = 1


class LocalShare(Record, code=47):
    mode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    spatial_groups_h: U32 = 1
    spatial_groups_w: U32 = 1
    sparse: E.Sparse = E.Sparse.DENSE
    format: E.Format = E.Format.NCHW
    computeMode: E.ComputeMode = E.ComputeMode.DEFAULT


class ROIAlign(Record, code=48):
    mode: E.ROIAlignMode = E.ROIAlignMode.MAX
    format: E.Format = E.Format.NCHW
    spatial_scale: F32 = 1.0
    offset: F32 = 0.0
    pooled_height: U32 = 1
    pooled_width: U32 = 1
    sample_height: U32 = 2
    sample_width: U32 = 2


class DeformablePSROIPooling(Record, code=49):
    no_trans: Bool = True
    spatial_scale: F32 = 1.0
    trans_std: F32 = 1.0
    pooled_h: U32 = 1
    pooled_w: U32 = 1
    part_size: U32 = 1
    sample_per_part: U32 = 1


class BatchConvBias(Record, code=50):
    nonlineMode: E.NonlineMode = E.NonlineMode.IDENTITY
    mode: E.ConvMode = E.ConvMode.CROSS_CORRELATION
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    sparse: E.Sparse = E.Sparse.DENSE
    format: E.Format = E.Format.NCHW
    compute_mode: E.ComputeMode = E.ComputeMode.DEFAULT


class ExecutionPolicy(Record, code=55):
    strategy: E.Strategy = E.Strategy.HEURISTIC
    workspace_limit: U64 = 2**64 - 1


class AdaptivePooling(Record, code=70):
    mode: E.PoolingMode = E.PoolingMode.MAX
    format: E.Format = E.Format.NCHW


class Correlation(Record, code=75):
    format: E.FormatV0 = E.FormatV0.NCHW
    kernel_size: U32 = 1
    max_displacement: U32 = 1
    stride1: U32 = 1
    stride2: U32 = 1
    pad_size: U32 = 0
    is_multiply: Bool = True


class SlidingWindowTranspose(Record, code=81):
    out_h: U32 = 0
    out_w: U32 = 0
    pad_h: U32 = 0
    pad_w: U32 = 0
    stride_h: U32 = 1
    stride_w: U32 = 1
    dilate_h: U32 = 1
    dilate_w: U32 = 1
    window_h: U32 = 3
    window_w: U32 = 3
