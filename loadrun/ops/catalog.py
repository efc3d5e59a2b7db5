"""The catalog: one line for every operator that a dump can hold.

The name is the registered one (it makes the type ids); ``params`` are the parameter records in file order,
``inputs`` the roles (``?`` optional, ``...`` repeated), ``outputs`` the number of variables in a file. The
family names the module of `loadrun.ops` with its kernel; operators of an empty family can be read and
written but not run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from .. import params as P
from ..dtypes import DType
from ..graph import Opr
from .typeid import type_id, unversioned_id

__all__ = ["CATALOG", "Op", "TypeParam", "by_name"]


DTypeField = Annotated[DType, "DType"]


class TypeParam(P.Record, code=67):
    """Target of TypeCvt: a whole dtype, with scale and zero point."""

    dtype: DTypeField = DType("Float32")


def _topk(o: Opr) -> int:
    return 1 if o.get(P.TopK).mode == P.TopKMode.KTH_ONLY else 2


def _svd(o: Opr) -> int:
    return 3 if o.get(P.SVD).compute_uv else 1


def _norm_backward(o: Opr) -> int:
    return 1 if len(o.inputs) == 4 else 3


def _batch_norm(o: Opr) -> int:
    return 4 if o.get(P.BN).fwd_mode == P.BNFwdMode.INFERENCE or len(o.inputs) == 3 else 6


def _inputs_plus_one(o: Opr) -> int:
    return len(o.inputs) + 1


def _inputs_minus_one(o: Opr) -> int:
    return len(o.inputs) - 1


def _cond_pred(o: Opr) -> int:
    return len(o.inputs) - (o.get(P.CondExecPred).mode == P.CondExecPredMode.CASE)


def _cond_merge(o: Opr) -> int:
    return o.get(P.CondExecMerge).nr_output


def _tensors(o: Opr) -> int:
    return len(o.tensors)


def _unknown(o: Opr) -> int:
    return 1


@dataclass(frozen=True, eq=False)
class Op:
    """Wire facts of one operator.

    Attributes:
        name: registered name; v1 files and opr_version 1 identify the operator by it.
        category: io, inference, quantization, rng, backward, training, control_flow, utility,
            debug or vendor.
        family: module of `loadrun.ops` that holds the kernel, "" when there is none.
        v2: the name hashed for opr_version 2, "" for operators that are written with opr_version 1.
        retired: names of releases before 1.8 that load as this operator.
        after_1_13_0: whether MegEngine 1.13.0 does not know it yet.
    """

    name: str
    category: str
    family: str
    params: tuple[type[P.Record], ...] = ()
    inputs: str = ""
    outputs: int | Callable[[Opr], int] = 1
    v2: str = ""
    retired: tuple[str, ...] = ()
    after_1_13_0: bool = False

    def n_outputs(self, opr: Opr) -> int:
        """How many variables this operator owns in a file."""
        return self.outputs(opr) if callable(self.outputs) else self.outputs

    @cached_property
    def id_v1(self) -> int:
        """Type id in FBS v1 files with magic MGBC."""
        return type_id(self.name)

    @cached_property
    def id_mgbs(self) -> int:
        """Type id in MGBS files and of opr_version 1."""
        return unversioned_id(self.name)

    @cached_property
    def id_v2(self) -> int | None:
        """Type id of opr_version 2, None when the operator has only version 1."""
        return type_id(self.v2) if self.v2 else None


# fmt: off
_OPS = (
    # io
    Op("ImmutableTensor", "io", "io", v2="ImmutableTensor"),
    Op("Host2DeviceCopy", "io", "io", params=(P.Host2DeviceCopy,), v2="Host2DeviceCopy"),
    Op("SharedDeviceTensor", "io", "io"),
    Op("VolatileSharedDeviceTensor", "io", "io"),
    Op("SharedDeviceTensorWithFormat", "io", "io", v2="SharedDeviceTensorWithFormat"),
    Op("MultipleDeviceTensorHolder", "io", "io", outputs=_tensors, v2="MultipleDeviceTensorHolder"),
    Op("MultipleDeviceTensorWithFormatHolder", "io", "io", outputs=_tensors, v2="MultipleDeviceTensorWithFormatHolder"),
    Op("Copy", "inference", "io", params=(P.Empty,), inputs="src"),
    Op("Identity", "inference", "io", params=(P.Empty,), inputs="src"),
    Op("MarkDynamicVar", "utility", "io", params=(P.Empty,), inputs="src"),
    Op("MarkNoBroadcastElemwise", "utility", "io", params=(P.Empty,), inputs="src"),
    Op("PersistentOutputStorage", "utility", "io", params=(P.PersistentOutputStorage,), inputs="src"),
    Op("VirtualDep", "utility", "io", inputs="var ..."),
    Op("Sleep", "debug", "io", params=(P.MGBSleep,), inputs="src"),
    Op("AssertEqual", "debug", "io", params=(P.AssertEqual,), inputs="expect get err"),
    Op("AddUpdate", "training", "io", params=(P.MGBAddUpdate,), inputs="dest delta"),
    Op("CheckNonFinite", "training", "io", params=(P.CheckNonFinite,), inputs="x0 ...", outputs=_inputs_plus_one),
    Op("VirtualGrad", "training", "io", params=(P.Empty,), inputs="target wrt"),
    # elemwise
    Op("Elemwise", "inference", "elemwise.modes", params=(P.Elemwise,), inputs="x0 x1? x2? x3?"),
    Op("PowC", "inference", "elemwise.modes", params=(P.PowC,), inputs="x"),
    # elemwise_multi
    Op("ElemwiseMultiType", "inference", "elemwise.multi", params=(P.ElemwiseMultiType,), inputs="x0 ..."),
    Op("AffineInt", "inference", "elemwise.multi", params=(P.Empty,), inputs="x k b"),
    # typecvt
    Op("TypeCvtV2", "inference", "typecvt", params=(TypeParam,), inputs="src"),
    # reduce
    Op("ReduceV2", "inference", "reduce", params=(P.Reduce,), inputs="src target_shape?"),
    Op("CumsumV1", "inference", "reduce", params=(P.Cumsum,), inputs="src"),
    # linalg
    Op("MatrixMulV2", "inference", "linalg", params=(P.MatrixMul,), inputs="A B"),
    Op("BatchedMatrixMulV2", "inference", "linalg", params=(P.MatrixMul,), inputs="A B"),
    Op("Dot", "inference", "linalg", params=(P.Empty,), inputs="a b"),
    Op("MatrixInverse", "inference", "linalg", params=(P.Empty,), inputs="src"),
    Op("SVD", "inference", "linalg", params=(P.SVD,), inputs="src", outputs=_svd),
    Op("Cross", "inference", "linalg", params=(P.Cross,), inputs="A B", after_1_13_0=True),
    # shape
    Op("Broadcast", "inference", "shape", params=(P.Empty,), inputs="src target_shape"),
    Op("Dimshuffle", "inference", "shape", params=(P.Dimshuffle,), inputs="src"),
    Op("AxisAddRemove", "inference", "shape", params=(P.AxisAddRemove,), inputs="src"),
    Op("Concat", "inference", "shape", params=(P.Axis,), inputs="x0 x1 ..."),
    Op("GetVarShapeV1", "inference", "shape", params=(P.OptionalAxisV1,), inputs="x0 ..."),
    Op("ReshapeV1", "inference", "shape", params=(P.OptionalAxisV1,), inputs="src target_shape"),
    Op("Split", "inference", "shape", params=(P.Axis,), inputs="src size0 ...", outputs=_inputs_minus_one),
    Op("Diag", "inference", "fill", params=(P.Diag,), inputs="src"),
    Op("Padding", "inference", "fill", params=(P.Padding,), inputs="src"),
    Op("MaskedFill", "inference", "fill", params=(P.Fill,), inputs="src mask"),
    Op("Alloc", "inference", "fill", params=(P.DTypeParam,), inputs="shape"),
    Op("Linspace", "inference", "fill", params=(P.Linspace,), inputs="start stop num"),
    Op("Eye", "inference", "fill", params=(P.Eye,), inputs="shape"),
    Op("Where", "inference", "fill", params=(P.Empty,), inputs="mask x y", after_1_13_0=True),
    # indexing
    Op("Subtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx..."),
    Op("SetSubtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("IncrSubtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("IndexingMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx..."),
    Op("IndexingSetMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("IndexingIncrMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("MeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx..."),
    Op("SetMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("IncrMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..." ),
    Op("BatchedMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx..."),
    Op("BatchedSetMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("BatchedIncrMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx..."),
    Op("IndexingOneHot", "inference", "indexing", params=(P.Axis,), inputs="src index"),
    Op("IndexingSetOneHot", "inference", "indexing", params=(P.Axis,), inputs="src index value"),
    Op("IndexingRemap", "inference", "indexing", params=(P.IndexingRemap,), inputs="src map"),
    # backward
    Op("IndexingRemapBackward", "backward", "", params=(P.IndexingRemap,), inputs="diff map src"),
    Op("DiagBackward", "backward", "", params=(P.Diag,), inputs="diff shape"),
    Op("PaddingBackward", "backward", "", params=(P.Padding,), inputs="diff src"),
    Op("ArgsortBackward", "backward", "", params=(P.Empty,), inputs="diff indices src"),
    Op("WhereBackward", "backward", "", params=(P.Empty,), inputs="diff mask", outputs=2, after_1_13_0=True),
    Op("ConvolutionBackwardFilterV2", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src diff filter", v2="ConvolutionBackwardFilter", retired=("ConvolutionBackwardFilterV1",)),
    Op("Convolution3DBackwardFilter", "backward", "", params=(P.Convolution3D, P.ExecutionPolicy), inputs="src diff filter", v2="Convolution3DBackwardFilter"),
    Op("LocalShareBackwardDataV1", "backward", "", params=(P.LocalShare, P.ExecutionPolicy), inputs="filter diff src", v2="LocalShareBackwardData", retired=("LocalShareBackwardData",)),
    Op("LocalShareBackwardFilterV1", "backward", "", params=(P.LocalShare, P.ExecutionPolicy), inputs="src diff filter", v2="LocalShareBackwardFilter", retired=("LocalShareBackwardFilter",)),
    Op("DeformableConvBackwardDataV1", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask diff", outputs=3, v2="DeformableConvBackwardData", retired=("DeformableConvBackwardData",)),
    Op("DeformableConvBackwardFilterV1", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask diff", v2="DeformableConvBackwardFilter", retired=("DeformableConvBackwardFilter",)),
    Op("RegionRestrictedConvolutionBackwardData", "backward", "", params=(P.Convolution,), inputs="filter diff rin rout src?"),
    Op("RegionRestrictedConvolutionBackwardFilter", "backward", "", params=(P.Convolution,), inputs="src diff rin rout filter"),
    Op("Images2NeibsBackward", "backward", "", params=(P.Images2Neibs,), inputs="diff src"),
    Op("SlidingWindowTransposeBackward", "backward", "", params=(P.SlidingWindowTranspose,), inputs="diff src"),
    Op("LocalBackwardDataV2", "backward", "", params=(P.Convolution,), inputs="filter diff src", retired=("LocalBackwardDataV1",)),
    Op("LocalBackwardFilterV2", "backward", "", params=(P.Convolution,), inputs="src diff filter", retired=("LocalBackwardFilterV1",)),
    Op("GroupLocalBackwardDataV2", "backward", "", params=(P.Convolution,), inputs="filter diff src", retired=("GroupLocalBackwardDataV1",)),
    Op("GroupLocalBackwardFilterV2", "backward", "", params=(P.Convolution,), inputs="src diff filter", retired=("GroupLocalBackwardFilterV1",)),
    Op("LRNBackward", "backward", "", params=(P.LRN,), inputs="src dst diff"),
    Op("PoolingBackwardV1", "backward", "", params=(P.Pooling,), inputs="src dst diff", retired=("PoolingBackward",)),
    Op("AdaptivePoolingBackwardV1", "backward", "", params=(P.AdaptivePooling,), inputs="src out_shape dst diff", retired=("AdaptivePoolingBackward",)),
    Op("ROIPoolingBackward", "backward", "", params=(P.ROIPooling,), inputs="diff src rois index"),
    Op("ROIAlignBackwardV1", "backward", "", params=(P.ROIAlign,), inputs="diff src rois index", retired=("ROIAlignBackward",)),
    Op("DeformablePSROIPoolingBackward", "backward", "", params=(P.DeformablePSROIPooling,), inputs="data rois trans diff count", outputs=2),
    Op("CorrelationBackwardData1", "backward", "", params=(P.Correlation,), inputs="diff a b"),
    Op("CorrelationBackwardData2", "backward", "", params=(P.Correlation,), inputs="diff a b"),
    Op("BatchNormBackwardV1", "backward", "", params=(P.BN,), inputs="x dy saved_mean saved_inv_std scale reserve", outputs=3, retired=("BatchNormBackward",)),
    Op("LayerNormBackward", "backward", "", params=(P.LayerNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward),
    Op("GeneralNormBackward", "backward", "", params=(P.GeneralNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward),
    Op("GroupNormBackward", "backward", "", params=(P.GroupNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward, v2="GroupNormBackward"),
    Op("InstanceNormBackward", "backward", "", params=(P.GroupNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward, v2="InstanceNormBackward"),
    Op("RNNBackward", "backward", "", params=(P.RNN,), inputs="x y h dy dh weights reserve", outputs=3),
    Op("LSTMBackward", "backward", "", params=(P.LSTM,), inputs="x y h c dy dh dc weights reserve", outputs=4 ),
    Op("SoftmaxBackward", "backward", "", params=(P.Softmax,), inputs="y diff"),
    Op("MultiHeadAttnBackward", "backward", "", params=(P.MultiHeadAttn,), inputs="diff q k v wqkv mask? attn mask_reserve reserve", outputs=6),
    Op("FakeQuantBackward", "backward", "", params=(P.FakeQuant,), inputs="diff x scale zero_point"),
    Op("TQTBackward", "backward", "", params=(P.TQT,), inputs="diff x scale", outputs=2),
    Op("LSQBackward", "backward", "", params=(P.LSQ,), inputs="diff x scale zero_point grad_scale", outputs=2 ),
    Op("WarpPerspectiveBackwardDataV2", "backward", "", params=(P.WarpPerspective,), inputs="mat mat_idx? diff src", retired=("WarpPerspectiveBackwardData",)),
    Op("WarpPerspectiveBackwardMatV2", "backward", "", params=(P.WarpPerspective,), inputs="src mat mat_idx? diff", retired=("WarpPerspectiveBackwardMat",)),
    Op("ResizeBackward", "backward", "", params=(P.Resize,), inputs="diff src"),
    Op("RemapBackwardDataV1", "backward", "", params=(P.Remap,), inputs="map diff src", retired=("RemapBackwardData",)),
    Op("RemapBackwardMatV1", "backward", "", params=(P.Remap,), inputs="src map diff", retired=("RemapBackwardMat",)),
    Op("ShuffleRNGBackward", "backward", "", params=(P.ShuffleRNG,), inputs="diff index src"),
    Op("DropoutBackward", "backward", "", params=(P.Dropout,), inputs="diff mask"),
    # relayout
    Op("RelayoutFormatV1", "inference", "relayout", params=(P.RelayoutFormat,), inputs="src", retired=("RelayoutFormat",)),
    # select
    Op("Argmax", "inference", "select", params=(P.Axis,), inputs="src"),
    Op("Argmin", "inference", "select", params=(P.Axis,), inputs="src"),
    Op("Argsort", "inference", "select", params=(P.Argsort,), inputs="src", outputs=2),
    Op("CondTake", "inference", "select", params=(P.CondTake,), inputs="data mask", outputs=2),
    Op("NonZero", "inference", "select", params=(P.Empty,), inputs="src", after_1_13_0=True),
    Op("TopK", "inference", "select", params=(P.TopK,), inputs="data k", outputs=_topk),
    # vendor
    Op("NvOf", "vendor", "", params=(P.NvOf,), inputs="src"),
    Op("ExternCOprRunner", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("TensorRTRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("AtlasRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("CambriconRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown, after_1_13_0=True),
    Op("MagicMindRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown, after_1_13_0=True),
    Op("CustomOpNode", "vendor", "", inputs="x0 ...", outputs=_unknown, v2="CustomOpNode"),
    Op("dynamic", "vendor", "", inputs="x0 ...", outputs=_unknown, v2="dynamic"),
    # conv
    Op("ConvolutionV2", "inference", "conv.convolution", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter", v2="Convolution", retired=("ConvolutionV1",)),
    Op("ConvolutionBackwardDataV2", "inference", "conv.convolution", params=(P.Convolution, P.ExecutionPolicy), inputs="filter diff src_for_shape?", v2="ConvolutionBackwardData", retired=("ConvolutionBackwardDataV1",)),
    Op("Convolution3D", "inference", "conv.convolution", params=(P.Convolution3D, P.ExecutionPolicy), inputs="src filter", v2="Convolution3D"),
    Op("Convolution3DBackwardData", "inference", "conv.convolution", params=(P.Convolution3D, P.ExecutionPolicy), inputs="filter diff src_for_shape?", v2="Convolution3DBackwardData"),
    Op("ConvBiasForwardV4", "inference", "conv.convolution", params=(P.ConvBias, P.ExecutionPolicy), inputs="src filter bias? z?", v2="ConvBiasForward", retired=("ConvBiasForwardV3",)),
    Op("BatchConvBiasForwardV1", "inference", "conv.convolution", params=(P.BatchConvBias, P.ExecutionPolicy), inputs="src filter bias? z?", v2="BatchConvBiasForward", retired=("BatchConvBiasForward",)),
    # local_conv
    Op("LocalShareForwardV1", "inference", "conv.local", params=(P.LocalShare, P.ExecutionPolicy), inputs="src filter", v2="LocalShareForward", retired=("LocalShareForward",)),
    Op("DeformableConvForwardV1", "inference", "conv.local", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask", v2="DeformableConvForward", retired=("DeformableConvForward",)),
    Op("RegionRestrictedConvolution", "inference", "conv.local", params=(P.Convolution,), inputs="src filter rin rout"),
    Op("MaskConvolutionV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter mask", retired=("MaskConvolutionV1",)),
    Op("MaskPropagate", "inference", "conv.windows", params=(P.MaskPropagate,), inputs="src"),
    Op("Images2Neibs", "inference", "conv.windows", params=(P.Images2Neibs,), inputs="src"),
    Op("SlidingWindowTranspose", "inference", "conv.windows", params=(P.SlidingWindowTranspose,), inputs="src"),
    Op("LocalV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter", retired=("LocalV1",)),
    Op("GroupLocalV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter", retired=("GroupLocalV1",)),
    # norm
    Op("LRN", "inference", "norm", params=(P.LRN,), inputs="src"),
    Op("BatchNormV1", "inference", "norm", params=(P.BN,), inputs="x scale bias mean? variance?", outputs=_batch_norm, retired=("BatchNorm",)),
    Op("LayerNorm", "inference", "norm", params=(P.LayerNorm,), inputs="x weight? bias?", outputs=3),
    Op("GeneralNorm", "inference", "norm", params=(P.GeneralNorm,), inputs="x weight? bias?", outputs=3),
    Op("GroupNorm", "inference", "norm", params=(P.GroupNorm,), inputs="x weight? bias?", outputs=3, v2="GroupNorm"),
    Op("InstanceNorm", "inference", "norm", params=(P.GroupNorm,), inputs="x weight? bias?", outputs=3, v2="InstanceNorm"),
    Op("Softmax", "inference", "norm", params=(P.Softmax,), inputs="src", v2="Softmax"),
    # pooling
    Op("PoolingV1", "inference", "pooling", params=(P.Pooling,), inputs="src", retired=("Pooling",)),
    Op("AdaptivePoolingV1", "inference", "pooling", params=(P.AdaptivePooling,), inputs="src out_shape", retired=("AdaptivePooling",)),
    # roi
    Op("ROIPooling", "inference", "image.roi", params=(P.ROIPooling,), inputs="src rois out_shape", outputs=2),
    Op("ROIAlignV1", "inference", "image.roi", params=(P.ROIAlign,), inputs="src rois", outputs=2, retired=("ROIAlign",)),
    Op("DeformablePSROIPoolingForward", "inference", "image.roi", params=(P.DeformablePSROIPooling,), inputs="data rois trans", outputs=2),
    Op("CorrelationForward", "inference", "conv.correlation", params=(P.Correlation,), inputs="a b"),
    Op("NMSKeepMGB", "inference", "image.nms", params=(P.NMSKeep,), inputs="boxes", outputs=2),
    # rnn
    Op("RNNCellForward", "inference", "rnn", params=(P.RNNCell,), inputs="x w_ih b_ih h w_hh b_hh"),
    Op("LSTMCellForward", "inference", "rnn", params=(P.Empty,), inputs="x w_ih b_ih h w_hh b_hh c", outputs=3),
    Op("RNNForward", "inference", "rnn", params=(P.RNN,), inputs="x h weights", outputs=3),
    Op("LSTMForward", "inference", "rnn", params=(P.LSTM,), inputs="x h c weights", outputs=4),
    # attention
    Op("MultiHeadAttn", "inference", "attention", params=(P.MultiHeadAttn,), inputs="q k v wqkv mask? bias_k? bias_v?", outputs=4),
    # quantization
    Op("FakeQuant", "quantization", "quantization", params=(P.FakeQuant,), inputs="x scale zero_point"),
    Op("TQT", "quantization", "quantization", params=(P.TQT,), inputs="x scale"),
    Op("LSQ", "quantization", "quantization", params=(P.LSQ,), inputs="x scale zero_point grad_scale"),
    # warp
    Op("WarpPerspectiveV2", "inference", "image.warp", params=(P.WarpPerspective,), inputs="src... mat mat_idx? out_shape", retired=("WarpPerspective",)),
    Op("WarpAffineV2", "inference", "image.warp", params=(P.WarpAffine,), inputs="src mat out_shape", retired=("WarpAffineV1",)),
    Op("RemapV1", "inference", "image.warp", params=(P.Remap,), inputs="src map_xy", retired=("Remap",)),
    # resize
    Op("ResizeV2", "inference", "image.resize", params=(P.Resize,), inputs="src out_shape", retired=("ResizeV1",)),
    Op("Resize3D", "inference", "image.resize", params=(P.Resize3D,), inputs="src out_shape"),
    # image
    Op("Rotate", "inference", "image.filters", params=(P.Rotate,), inputs="src"),
    Op("CvtColor", "inference", "image.filters", params=(P.CvtColor,), inputs="src"),
    Op("GaussianBlur", "inference", "image.filters", params=(P.GaussianBlur,), inputs="src"),
    Op("Flip", "inference", "image.filters", params=(P.Flip,), inputs="src", after_1_13_0=True),
    Op("DctChannelSelectV1", "inference", "image.filters", params=(P.DctChannelSelect,), inputs="src mask_offset? mask_val?", retired=("DctChannelSelect",)),
    # rng
    Op("UniformRNGV1", "rng", "rng", params=(P.UniformRNG,), inputs="shape", retired=("UniformRNG",)),
    Op("GaussianRNGV1", "rng", "rng", params=(P.GaussianRNG,), inputs="shape", retired=("GaussianRNG",)),
    Op("GammaRNG", "rng", "rng", params=(P.GammaRNG,), inputs="shape_param scale"),
    Op("BetaRNG", "rng", "rng", params=(P.BetaRNG,), inputs="alpha beta"),
    Op("PoissonRNG", "rng", "rng", params=(P.PoissonRNG,), inputs="lambda"),
    Op("PermutationRNG", "rng", "rng", params=(P.PermutationRNG,), inputs="shape"),
    Op("ShuffleRNG", "rng", "rng", params=(P.ShuffleRNG,), inputs="src", outputs=2),
    Op("ExponentialRNG", "rng", "rng", params=(P.ExponentialRNG,), inputs="rate", after_1_13_0=True),
    Op("MultinomialRNG", "rng", "rng", params=(P.MultinomialRNG,), inputs="probs", after_1_13_0=True),
    Op("Dropout", "rng", "rng", params=(P.Dropout,), inputs="x", outputs=2),
    # control
    Op("CondExecPred", "control_flow", "control", params=(P.CondExecPred,), inputs="key0 ... pred", outputs=_cond_pred),
    Op("CondExecPredLogical", "control_flow", "control", params=(P.CondExecPredLogical,), inputs="ppv0 ..."),
    Op("CondExecMark", "control_flow", "control", params=(P.CondExecMark,), inputs="x0 ... ppv", outputs=_inputs_minus_one),
    Op("CondExecMarkIfNeed", "control_flow", "control", params=(P.CondExecMark,), inputs="maybe_ppv x"),
    Op("CondExecMerge", "control_flow", "control", params=(P.CondExecMerge,), inputs="branch vars... extra...", outputs=_cond_merge),
    # control_flow
    Op("opr::Loop", "control_flow", "", outputs=0, v2="opr::Loop"),
    Op("InputMaker", "control_flow", "", outputs=0, v2="InputMaker"),
    Op("CounterProvider", "control_flow", "", outputs=0, v2="CounterProvider"),
)
# fmt: on

CATALOG: dict[str, Op] = {op.name: op for op in _OPS}


def by_name(name: str) -> Op:
    """The catalog entry of a registered or retired name.

    Raises:
        KeyError: no operator has that name.
    """
    if name in CATALOG:
        return CATALOG[name]
    for op in _OPS:
        if name in op.retired or name == op.v2:
            return op
    raise KeyError(name)
