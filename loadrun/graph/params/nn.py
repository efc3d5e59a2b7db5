"""Parameter records of normalization, recurrent, attention and quantization operators."""

from . import enums as E
from ._record import F32, F64, I32, U32, U64, Bool, Record


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
