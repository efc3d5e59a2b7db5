"""ONNX's operators, each defined once as a function in numpy's names, one family a file."""

from collections.abc import Callable
from typing import Any, TypeVar

from ...base.registry import Registry
from ...graph.composite import Definition, OutRules
from .native import cost_of, rule_of

__all__ = ["HOMES", "VERSIONS", "find", "operator"]

F = TypeVar("F", bound=Callable[..., Any])

_FAMILIES = {
    ("elementwise", ""): """
    Add Sub Mul Div Mod Pow Max Min Sum Mean And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual
    Where Neg Abs Sign Round IsNaN IsInf Identity Clip Cast CastLike BitCast BitwiseNot BitwiseAnd
    BitwiseOr BitwiseXor BitShift
    """,
    ("functions", ""): """
    Acos Asin Ceil Cos Exp Floor Log Sigmoid Sin Tanh Erf Sinh Cosh Asinh Acosh Atanh Tan Sqrt Softplus
    HardSwish Atan Reciprocal Relu Elu Celu Selu LeakyRelu PRelu ThresholdedRelu HardSigmoid Softsign
    Shrink Mish Swish SwiGLU Gelu Affine Scale ScaledTanh ParametricSoftplus ImageScaler Crop
    """,
    ("functions", "com.microsoft"): "QuickGelu Gelu BiasGelu FastGelu",
    ("reductions", ""): """
    ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum
    ReduceLogSumExp Softmax LogSoftmax Hardmax ArgMax ArgMin CumSum CumProd
    """,
    ("linalg", ""): "MatMul Gemm Einsum MatMulInteger Det",
    ("linalg", "com.microsoft"): "FusedMatMul TransposeMatMul FusedMatMulActivation FusedGemm Inverse",
    ("convolution", ""): "Conv ConvTranspose DeformConv ConvInteger Col2Im CausalConvWithState",
    ("convolution", "com.microsoft"): "FusedConv NhwcConv NhwcFusedConv",
    ("pooling", ""): """
    MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool
    """,
    ("pooling", "com.microsoft"): "NhwcMaxPool",
    ("norms", ""): """
    BatchNormalization InstanceNormalization GroupNormalization LayerNormalization RMSNormalization
    SimplifiedLayerNormalization LpNormalization MeanVarianceNormalization LRN
    """,
    ("norms", "com.microsoft"): """
    SkipLayerNormalization SkipSimplifiedLayerNormalization SimplifiedLayerNormalization
    """,
    ("shapes", ""): """
    Constant Shape Size Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile
    DepthToSpace SpaceToDepth
    """,
    ("indexing", ""): """
    Gather GatherElements GatherND ScatterElements Scatter ScatterND TensorScatter OneHot ReverseSequence
    TopK NonZero Compress Unique
    """,
    ("resizing", ""): "Resize Upsample",
    ("quantization", "com.microsoft"): "QuantizeLinear DequantizeLinear",
    ("quantization", ""): """
    QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul QLinearConv
    """,
    ("quantized", "com.microsoft"): """
    MatMulIntegerToFloat DynamicQuantizeMatMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax
    QLinearGlobalAveragePool QLinearAveragePool QLinearAdd QLinearMul QLinearConcat MatMulNBits
    GatherBlockQuantized QLinearConv QLinearWhere QGemm QAttention QEmbedLayerNormalization MulInteger
    MatMulInteger16
    """,
    ("recurrent", "com.microsoft"): "DynamicQuantizeLSTM",
    ("recurrent", ""): "RNN GRU LSTM",
    ("attention", ""): "Attention RotaryEmbedding LinearAttention",
    ("attention", "ai.onnx.preview"): "FlexAttention",
    ("transformers", "com.microsoft"): """
    Attention MultiHeadAttention RotaryEmbedding EmbedLayerNormalization GroupQueryAttention
    """,
    ("contrib", "com.microsoft"): """
    GridSample Pad GatherND Trilu Range ExpandDims Unique UnfoldTensor CDist NGramRepeatBlock
    CropAndResize GroupNorm SkipGroupNorm BiasAdd BiasSplitGelu BiasSoftmax GemmFastGelu BiasDropout
    ComplexMul ComplexMulConj IsAllFinite
    """,
    ("sampling", ""): "AffineGrid GridSample MaxRoiPool RoiAlign NonMaxSuppression",
    ("signal", ""): "DFT STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix",
    ("text", ""): """
    StringConcat StringSplit StringNormalizer RegexFullMatch TfIdfVectorizer
    """,
    ("traditional", "ai.onnx.ml"): """
    ArrayFeatureExtractor Binarizer Scaler Normalizer Imputer FeatureVectorizer OneHotEncoder LabelEncoder
    ZipMap LinearRegressor LinearClassifier
    """,
    ("trees", "ai.onnx.ml"): "TreeEnsembleClassifier TreeEnsembleRegressor TreeEnsemble",
    ("svm", "ai.onnx.ml"): "SVMRegressor SVMClassifier",
    ("training", "ai.onnx.preview.training"): "Adagrad Adam Momentum",
    ("control", ""): """
    If Loop Scan SequenceMap SequenceConstruct SequenceEmpty SequenceAt SequenceInsert SequenceErase
    SequenceLength SplitToSequence ConcatFromSequence Optional OptionalHasElement OptionalGetElement
    """,
    ("filling", ""): "ConstantOfShape EyeLike Range Trilu Pad CenterCropPad",
    ("training", ""): """
    NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Dropout RandomUniform RandomUniformLike
    RandomNormal RandomNormalLike Bernoulli
    """,
}
HOMES = {(domain, op): family for (family, domain), ops in _FAMILIES.items() for op in ops.split()}
"""The file of every operator, by domain and name: a model imports those that it needs."""

VERSIONS: Registry[tuple[str, str], list[Definition]] = Registry(
    "definition of ONNX", {key: f"{__name__}.{family}" for key, family in HOMES.items()}
)
"""The definitions of an operator by its domain and name, the oldest first."""


def operator(
    *names: str,
    domain: str = "",
    since: int = 1,
    out: OutRules = (0,),
    pointwise: bool = False,
    shape: Callable[..., Any] | None = None,
    views: bool = False,
) -> Callable[[F], F]:
    """Register a function as the definition of operators; see `loadrun.graph.composite.Definition`.

    >>> from loadrun.onnx.operators import find
    >>> find("", "Clip", 13).since <= 13
    True
    """

    def register(function: F) -> F:
        for name in names:
            definition = Definition(
                domain,
                name,
                function,
                since=since,
                out=out,
                pointwise=pointwise,
                shape=shape,
                views=views,
                native=rule_of(domain, name),
                flops=cost_of(domain, name),
            )
            others = VERSIONS.get((domain, name), [])
            VERSIONS[domain, name] = sorted([*others, definition], key=lambda d: d.since)
        return function

    return register


def find(domain: str, name: str, opset: int) -> Definition | None:
    """Return the definition of an operator in a version of its domain; None if there is none."""
    versions = VERSIONS.get(("" if domain == "ai.onnx" else domain, name), [])
    return next((d for d in reversed(versions) if d.since <= opset), None)
