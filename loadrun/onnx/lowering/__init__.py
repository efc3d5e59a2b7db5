"""Lowerings of ONNX's operators to MegEngine's, one family a file; `loadrun.onnx.call` imports and finds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...build import emit as e
from ...build.layers.sizes import is_open, of_length, refused_where
from ...graph import params as P
from ...graph.dtypes import Array
from ...tensors import Tensor, const
from ...tensors.access import dtype_of, session_of, value_of
from ...tensors.convert import TracedInt
from ..values import UnsupportedNodeError

__all__ = [
    "HOMES",
    "M",
    "cast",
    "const_like",
    "flags",
    "floats",
    "folded",
    "in_float",
    "is_open",
    "limits",
    "of_length",
    "refused_if",
    "transposed",
]

_FAMILIES = {
    ("text", ""): "StringConcat StringSplit StringNormalizer",
    ("elementwise", ""): """
    Add Sub Mul Div Mod Pow Max Min Sum Mean And Or Xor Not Equal Less LessOrEqual Greater
    GreaterOrEqual Where Neg Abs Sign Round IsNaN IsInf Identity Clip Cast CastLike BitCast BitwiseNot
    BitwiseAnd BitwiseOr BitwiseXor BitShift
    """,
    ("shapes", ""): """
    Constant Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile
    DepthToSpace SpaceToDepth
    """,
    ("creation", ""): "ConstantOfShape EyeLike Range Trilu",
    ("functions", ""): """
    Acos Asin Ceil Cos Exp Floor Log Sigmoid Sin Tanh Erf Sinh Cosh Asinh Acosh Atanh Tan Sqrt Softplus
    HardSwish Atan Reciprocal Relu Elu Celu Selu LeakyRelu PRelu ThresholdedRelu HardSigmoid Softsign
    Shrink Mish Swish SwiGLU Gelu
    """,
    ("early", ""): "Affine Scale ScaledTanh ParametricSoftplus ImageScaler Crop",
    ("functions", "com.microsoft"): "QuickGelu Gelu BiasGelu FastGelu",
    ("linalg", ""): "MatMul Gemm Einsum MatMulInteger Det",
    ("linalg", "com.microsoft"): "FusedMatMul TransposeMatMul FusedMatMulActivation FusedGemm Inverse",
    ("convolution", ""): "Conv ConvTranspose DeformConv ConvInteger Col2Im CausalConvWithState",
    ("convolution", "com.microsoft"): "FusedConv NhwcConv NhwcFusedConv",
    ("reductions", ""): """
    ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
    ReduceLogSumExp Softmax LogSoftmax Hardmax ArgMax ArgMin CumSum CumProd
    """,
    ("pooling", ""): "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool",
    ("norms", ""): """
    BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization
    SimplifiedLayerNormalization LpNormalization MeanVarianceNormalization LRN
    """,
    ("norms", "com.microsoft"): """
    SkipLayerNormalization SkipSimplifiedLayerNormalization SimplifiedLayerNormalization
    """,
    ("indexing", ""): """
    Gather GatherElements GatherND ScatterElements Scatter ScatterND TensorScatter OneHot
    ReverseSequence TopK NonZero Compress Unique
    """,
    ("padding", ""): "Pad CenterCropPad",
    ("quantization", "com.microsoft"): "QuantizeLinear DequantizeLinear",
    ("quantization", ""): "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul QLinearConv",
    ("resizing", ""): "Resize Upsample",
    ("recurrent", "com.microsoft"): "DynamicQuantizeLSTM",
    ("recurrent", ""): "RNN GRU LSTM",
    ("control", ""): "If Loop Scan",
    ("attention", ""): "Attention RotaryEmbedding LinearAttention",
    ("attention", "ai.onnx.preview"): "FlexAttention",
    ("sequences", ""): """
    SequenceConstruct SequenceEmpty SequenceAt SequenceInsert SequenceErase SequenceLength
    SplitToSequence ConcatFromSequence SequenceMap Optional OptionalHasElement OptionalGetElement
    """,
    ("randomness", ""): "RandomUniform RandomUniformLike RandomNormal RandomNormalLike Bernoulli",
    ("sampling", ""): "AffineGrid GridSample MaxRoiPool RoiAlign",
    ("losses", ""): "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Dropout",
    ("signal", ""): "DFT STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix",
    ("detection", ""): "NonMaxSuppression",
    ("transformers", "com.microsoft"): """
    Attention MultiHeadAttention RotaryEmbedding EmbedLayerNormalization NhwcMaxPool
    """,
    ("grouped", "com.microsoft"): "GroupQueryAttention",
    ("experts", "com.microsoft"): "MoE QMoE",
    ("contrib", "com.microsoft"): """
    GridSample Pad GatherND Trilu Range ExpandDims Unique UnfoldTensor CDist NGramRepeatBlock
    CropAndResize GroupNorm SkipGroupNorm BiasAdd BiasSplitGelu BiasSoftmax GemmFastGelu BiasDropout
    ComplexMul ComplexMulConj IsAllFinite
    """,
    ("contrib_quantized", "com.microsoft"): """
    MatMulIntegerToFloat DynamicQuantizeMatMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax
    QLinearGlobalAveragePool QLinearAveragePool QLinearAdd QLinearMul QLinearConcat MatMulNBits
    GatherBlockQuantized QLinearConv QLinearWhere QGemm QAttention QEmbedLayerNormalization MulInteger
    MatMulInteger16
    """,
    ("traditional", "ai.onnx.ml"): """
    ArrayFeatureExtractor Binarizer Scaler Normalizer Imputer FeatureVectorizer OneHotEncoder
    LabelEncoder ZipMap LinearRegressor LinearClassifier
    """,
    ("trees.classification", "ai.onnx.ml"): "TreeEnsembleClassifier",
    ("trees.regression", "ai.onnx.ml"): "TreeEnsembleRegressor TreeEnsemble",
    ("svm", "ai.onnx.ml"): "SVMRegressor SVMClassifier",
    ("ngrams", ""): "TfIdfVectorizer",
    ("training", "ai.onnx.preview.training"): "Adagrad Adam Momentum",
}
HOMES = {(domain, op): family for (family, domain), ops in _FAMILIES.items() for op in ops.split()}
"""The file of every operator, by domain and name: a model imports those that it needs."""


M = P.ElemwiseMode
cast = e.cast
folded = e.folded


def const_like(value: float | np.generic | Array, x: Tensor) -> Tensor:
    """Build a constant scalar in the type of a tensor."""
    return const(np.asarray(value), dtype_of(x))


def floats(x: Tensor) -> Tensor:
    """Return the tensor itself where it is of floats, else as float32."""
    return x if dtype_of(x).is_float else e.real(x)


def refused_if(x: Tensor, wrong: Tensor, what: str) -> Tensor:
    """Return the tensor itself, and an error where one of some booleans is true, at once if they are known."""
    session = session_of(wrong)
    known = value_of(wrong) if session is None else e.known(wrong)
    if known is not None and known.any():
        raise UnsupportedNodeError(what)
    if known is not None or session is None:
        return x
    count = e.summed(cast(e.flat(wrong), "int32"), [0], True)
    return refused_where(x, TracedInt(0, (lambda t, _: t, count, 0), session), what)


def in_float(x: Tensor) -> Tensor:
    """Return the tensor as float32, one of 64 bits as float64."""
    return e.real(x)


def transposed(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Permute the axes; leave a scalar as it is."""
    return x if list(axes) == list(range(x.ndim)) else e.permute(x, axes)


def limits(kind: int) -> tuple[int, int]:
    """Return the smallest and largest number of an ONNX integer type."""
    small = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1), 2: (0, 255), 3: (-128, 127), 4: (0, 65535)}
    return small.get(kind) or {5: (-32768, 32767)}.get(kind, (-(2**31), 2**31 - 1))


def flags(values: Sequence[float] | None, count: int, default: int) -> list[int]:
    """Return one number for each spatial axis."""
    return [default] * count if values is None else [int(v) for v in values]
