"""Parameter records of convolution, pooling, normalization, recurrent, attention, quantization and image operators."""

from . import enums as E
from .tensor import F32, F64, I32, U32, U64, Bool, Record


class LRN(Record, code=10):
    n: U32 = 5
    k: F32 = 2.0
    alpha: F32 = 0.0001
    beta: F32 = 0.75


class BN(Record, code=11):
    param_dim: E.BNParamDim = E.BNParamDim.DIM_11HW
    fwd_mode: E.BNFwdMode = E.BNFwdMode.TRAINING
    epsilon: F64 = 0.0001
    avg_factor: F64 = 1.0
    scale: F32 = 1.0
    bias: F32 = 0.0


class FakeQuant(Record, code=73):
    qmin: I32 = -(2**31)
    qmax: I32 = 2**31 - 1


class TQT(Record, code=74):
    qmin: I32 = -(2**31)
    qmax: I32 = 2**31 - 1


class LSQ(Record, code=76):
    qmin: I32 = -(2**31)
    qmax: I32 = 2**31 - 1


class LayerNorm(Record, code=85):
    affine: Bool = True
    eps: F32 = 1e-05
    normalized_dim: U64 = 1
    normalized_size: U64 = 1


class Dropout(Record, code=86):
    drop_prob: F32 = 0.0
    seed: U64 = 0


class RNNCell(Record, code=87):
    nonlineMode: E.RNNCellNonlineMode = E.RNNCellNonlineMode.IDENTITY


class RNN(Record, code=88):
    num_layers: U32 = 1
    bidirectional: Bool = False
    bias: Bool = True
    hidden_size: U32 = 128
    dropout: F32 = 0.0
    nonlineMode: E.RNNCellNonlineMode = E.RNNCellNonlineMode.IDENTITY
    fwd_mode: E.BNFwdMode = E.BNFwdMode.TRAINING


class LSTM(Record, code=89):
    num_layers: U32 = 1
    bidirectional: Bool = False
    bias: Bool = True
    hidden_size: U32 = 128
    proj_size: U32 = 0
    dropout: F32 = 0.0
    fwd_mode: E.BNFwdMode = E.BNFwdMode.TRAINING


class Softmax(Record, code=90):
    axis: I32 = -1


class GroupNorm(Record, code=92):
    affine: Bool = True
    eps: F32 = 1e-05
    group: U32 = 1
    format: E.Format = E.Format.NCHW


class GeneralNorm(Record, code=94):
    affine: Bool = True
    eps: F32 = 1e-05
    axis_start: U64 = 0
    axis_end: U64 = 0


class MultiHeadAttn(Record, code=95):
    num_heads: U32 = 1
    embeding_size: U32 = 0
    k_size: U32 = 0
    v_size: U32 = 0
    qproj_size: U32 = 0
    kproj_size: U32 = 0
    vproj_size: U32 = 0
    oproj_size: U32 = 0
    qbias: Bool = False
    kbias: Bool = False
    vbias: Bool = False
    obias: Bool = False
    sm_scaler: F32 = 1.0
    input_order: U32 = 0
    attn_mask_type: E.MultiHeadAttnAttnMaskType = E.MultiHeadAttnAttnMaskType.NO_MASK
    tensor_combination_type: E.MultiHeadAttnTensorCombinationType = E.MultiHeadAttnTensorCombinationType.NONE
    add_zero_attn: Bool = False
    need_weights: Bool = False
    reslink: Bool = False
    training: Bool = True
    seed: U64 = 0
    attn_prob: F32 = 0.0
    out_prob: F32 = 0.0


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


class WarpPerspective(Record, code=13):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    bmode: E.BorderMode = E.BorderMode.REPLICATE
    format: E.Format = E.Format.NCHW
    border_val: F32 = 0.0


class Flip(Record, code=34):
    vertical: Bool = False
    horizontal: Bool = False


class Rotate(Record, code=35):
    clockwise: Bool = True


class CvtColor(Record, code=37):
    mode: E.CvtColorMode = E.CvtColorMode.RGB2GRAY


class WarpAffine(Record, code=38):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    border_mode: E.BorderMode = E.BorderMode.REPLICATE
    border_val: F32 = 0.0
    format: E.Format = E.Format.NHWC


class GaussianBlur(Record, code=39):
    border_mode: E.BorderMode = E.BorderMode.REPLICATE
    kernel_height: U32 = 0
    kernel_width: U32 = 0
    sigma_x: F32 = 0.0
    sigma_y: F32 = 0.0


class Resize(Record, code=40):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    format: E.Format = E.Format.NHWC


class RelayoutFormat(Record, code=45):
    mode: E.RelayoutMode = E.RelayoutMode.NHWC_NHWCD4
    oc: U32 = 0
    group: U32 = 1


class Remap(Record, code=68):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    border_type: E.BorderMode = E.BorderMode.REPLICATE
    format: E.Format = E.Format.NHWC
    scalar: F32 = 0.0


class NMSKeep(Record, code=69):
    iou_thresh: F32 = 0.0
    max_output: U32 = 0


class NvOf(Record, code=71):
    precision: U32 = 1


class DctChannelSelect(Record, code=72):
    format: E.Format = E.Format.NCHW
    fastImpl: E.DctFastImpl = E.DctFastImpl.NONE
    dct_block_size: I32 = 8


class Resize3D(Record, code=96):
    imode: E.InterpolationMode = E.InterpolationMode.LINEAR
    format: E.Convolution3DFormat = E.Convolution3DFormat.NDHWC
    align_corners: Bool = False
