"""The catalog: one line for every operator that a dump can hold.

A line declares everything that is known of an operator but for its kernel (`loadrun.ops.op.Op` says what the
fields mean); every set of operators that another package needs is derived from the lines with `types`. Operators of
an empty family can be read and written but not run, among them all that compute gradients but transposed convolutions.
"""

from collections.abc import Callable
from typing import Annotated

from ..graph import Opr, params as P
from ..graph.dtypes import DType
from .op import Op, Trait as T

DTypeField = Annotated[DType, "DType"]


class TypeParam(P.Record, code=67):
    """Target of TypeCvt: a whole dtype, with scale and zero point."""

    dtype: DTypeField = DType("Float32")


def _norm_backward(o: Opr) -> int:
    return 1 if len(o.inputs) == 4 else 3


def _batch_norm(o: Opr) -> int:
    return 4 if o.get(P.BN).fwd_mode == P.BNFwdMode.INFERENCE or len(o.inputs) == 3 else 6


def _inputs_minus_one(o: Opr) -> int:
    return len(o.inputs) - 1


def _tensors(o: Opr) -> int:
    return len(o.tensors)


def _unknown(o: Opr) -> int:
    return 1


# fmt: off
_OPS = (
    # composite: no dump holds them, see `graph.composite`
    Op("Composite", "composite", "composite", traits=T.GENERIC | T.INFERRED, wide="composite.composite"),
    Op("CompositeLayer", "composite", "composite", traits=T.GENERIC, wide="composite.composite"),
    Op("CompositePointwise", "composite", "composite", traits=T.GENERIC | T.INFERRED | T.ELEMENTWISE | T.IN_PLACE, wide="composite.composite"),
    Op("CompositeSizes", "composite", "composite", traits=T.GENERIC | T.INFERRED | T.SHAPE_ONLY),
    Op("CompositeRandom", "composite", "composite", traits=T.GENERIC | T.RANDOM),
    # io
    Op("ImmutableTensor", "io", "io", traits=T.CONSTANT | T.NO_WORKSPACE | T.VERSION_2),
    Op("Host2DeviceCopy", "io", "io", params=(P.Host2DeviceCopy,), traits=T.GENERIC | T.EFFECTS | T.NO_WORKSPACE | T.VERSION_2),
    Op("SharedDeviceTensor", "io", "io", traits=T.CONSTANT | T.NO_WORKSPACE),
    Op("VolatileSharedDeviceTensor", "io", "io", traits=T.EFFECTS | T.NO_WORKSPACE),
    Op("SharedDeviceTensorWithFormat", "io", "io", traits=T.CONSTANT | T.NO_WORKSPACE | T.VERSION_2),
    Op("MultipleDeviceTensorHolder", "io", "io", outputs=_tensors, traits=T.CONSTANT | T.NO_WORKSPACE | T.VERSION_2),
    Op("MultipleDeviceTensorWithFormatHolder", "io", "io", outputs=_tensors, traits=T.CONSTANT | T.NO_WORKSPACE | T.VERSION_2),
    Op("Copy", "inference", "io", params=(P.Empty,), inputs="src", traits=T.FORWARDS | T.VIEW | T.CONTIGUOUS | T.MOVES | T.INFERRED | T.NO_WORKSPACE | T.REARRANGES | T.COMPLEX),
    Op("Identity", "inference", "io", params=(P.Empty,), inputs="src", traits=T.FORWARDS | T.VIEW | T.CONTIGUOUS | T.MOVES | T.INFERRED | T.NO_WORKSPACE | T.REARRANGES | T.COMPLEX),
    Op("MarkDynamicVar", "utility", "io", params=(P.Empty,), inputs="src", traits=T.VIEW | T.MOVES | T.NO_WORKSPACE | T.DATA_SHAPED),
    Op("MarkNoBroadcastElemwise", "utility", "io", params=(P.Empty,), inputs="src", traits=T.VIEW | T.MOVES | T.NO_WORKSPACE),
    Op("PersistentOutputStorage", "utility", "io", params=(P.PersistentOutputStorage,), inputs="src", traits=T.EFFECTS),
    Op("VirtualDep", "utility", "io", inputs="var ...", traits=T.GENERIC | T.VIEW | T.CONTIGUOUS | T.EFFECTS | T.NO_WORKSPACE),
    Op("Sleep", "debug", "io", params=(P.MGBSleep,), inputs="src", traits=T.VIEW | T.CONTIGUOUS | T.EFFECTS | T.NO_WORKSPACE),
    Op("AssertEqual", "debug", "io", params=(P.AssertEqual,), inputs="expect get err", traits=T.GENERIC | T.EFFECTS | T.NO_WORKSPACE),
    Op("AddUpdate", "training", "io", params=(P.MGBAddUpdate,), inputs="dest delta", traits=T.GENERIC | T.EFFECTS | T.NO_WORKSPACE),
    Op("CheckNonFinite", "training", "io", params=(P.CheckNonFinite,), inputs="x0 ...", outputs=lambda o: len(o.inputs) + 1, traits=T.GENERIC | T.EFFECTS),
    Op("VirtualGrad", "training", "", params=(P.Empty,), inputs="target wrt"),
    # elemwise
    Op("Elemwise", "inference", "elemwise.modes", params=(P.Elemwise,), inputs="x0 x1? x2? x3?", traits=T.ELEMENTWISE | T.IN_PLACE | T.INFERRED | T.NO_WORKSPACE | T.FOLDED, wide="basic.elemwise"),
    Op("PowC", "inference", "elemwise.modes", params=(P.PowC,), inputs="x", traits=T.ELEMENTWISE | T.IN_PLACE | T.INFERRED, wide="basic.power"),
    # elemwise_multi
    Op("ElemwiseMultiType", "inference", "elemwise.multi", params=(P.ElemwiseMultiType,), inputs="x0 ...", traits=T.GENERIC | T.ELEMENTWISE | T.INFERRED | T.NO_WORKSPACE | T.FOLDED),
    Op("AffineInt", "inference", "elemwise.multi", params=(P.Empty,), inputs="x k b"),
    # typecvt
    Op("TypeCvtV2", "inference", "typecvt", params=(TypeParam,), inputs="src", traits=T.GENERIC | T.ELEMENTWISE | T.INFERRED | T.NO_WORKSPACE | T.FOLDED),
    # reduce
    Op("ReduceV2", "inference", "reduce", params=(P.Reduce,), inputs="src target_shape?", traits=T.INFERRED | T.FOLDED, wide="basic.reduce"),
    Op("CumsumV1", "inference", "reduce", params=(P.Cumsum,), inputs="src", wide="basic.cumsum"),
    # linalg
    Op("MatrixMulV2", "inference", "linalg", params=(P.MatrixMul,), inputs="A B", traits=T.LINEAR | T.LIMITED, wide="basic.matmul"),
    Op("BatchedMatrixMulV2", "inference", "linalg", params=(P.MatrixMul,), inputs="A B", traits=T.LINEAR | T.LIMITED, wide="basic.matmul"),
    Op("Dot", "inference", "linalg", params=(P.Empty,), inputs="a b", wide="basic.dot"),
    Op("MatrixInverse", "inference", "linalg", params=(P.Empty,), inputs="src", wide="basic.inverse"),
    Op("SVD", "inference", "linalg", params=(P.SVD,), inputs="src", outputs=lambda o: 3 if o.get(P.SVD).compute_uv else 1, all_outputs=3, traits=T.GENERIC),
    Op("Cross", "inference", "linalg", params=(P.Cross,), inputs="A B", traits=T.LATER, wide="basic.cross"),
    # shape
    Op("Broadcast", "inference", "shape", params=(P.Empty,), inputs="src target_shape", traits=T.VIEW | T.MOVES | T.INFERRED | T.TAKES_SIZES | T.NO_WORKSPACE | T.COMPLEX),
    Op("Dimshuffle", "inference", "shape", params=(P.Dimshuffle,), inputs="src", traits=T.VIEW | T.MOVES | T.INFERRED | T.NO_WORKSPACE | T.REARRANGES | T.COMPLEX | T.FOLDED),
    Op("AxisAddRemove", "inference", "shape", params=(P.AxisAddRemove,), inputs="src", traits=T.VIEW | T.CONTIGUOUS | T.MOVES | T.INFERRED | T.NO_WORKSPACE | T.REARRANGES | T.COMPLEX | T.FOLDED),
    Op("Concat", "inference", "shape", params=(P.Axis,), inputs="x0 x1 ...", traits=T.MOVES | T.INFERRED | T.TAKES_SIZES | T.NO_WORKSPACE | T.COMPLEX | T.FOLDED),
    Op("GetVarShapeV1", "inference", "shape", params=(P.OptionalAxisV1,), inputs="x0 ...", traits=T.GENERIC | T.INFERRED | T.SHAPE_ONLY | T.NO_WORKSPACE),
    Op("ReshapeV1", "inference", "shape", params=(P.OptionalAxisV1,), inputs="src target_shape", traits=T.VIEW | T.CONTIGUOUS | T.MOVES | T.INFERRED | T.TAKES_SIZES | T.NO_WORKSPACE | T.REARRANGES | T.COMPLEX | T.FOLDED),
    Op("Split", "inference", "shape", params=(P.Axis,), inputs="src size0 ...", outputs=_inputs_minus_one, traits=T.VIEW | T.MOVES | T.INFERRED | T.NO_WORKSPACE | T.COUNTED),
    Op("Diag", "inference", "fill", params=(P.Diag,), inputs="src", traits=T.MOVES),
    Op("Padding", "inference", "fill", params=(P.Padding,), inputs="src", cls="PaddingForward", traits=T.MOVES),
    Op("MaskedFill", "inference", "fill", params=(P.Fill,), inputs="src mask", traits=T.MOVES),
    Op("Alloc", "inference", "fill", params=(P.DTypeParam,), inputs="shape", traits=T.GENERIC | T.INFERRED | T.NO_WORKSPACE),
    Op("Linspace", "inference", "fill", params=(P.Linspace,), inputs="start stop num", traits=T.INFERRED | T.NO_WORKSPACE, wide="basic.linspace"),
    Op("Eye", "inference", "fill", params=(P.Eye,), inputs="shape", traits=T.GENERIC | T.NO_WORKSPACE),
    Op("Where", "inference", "fill", params=(P.Empty,), inputs="mask x y", cls="WhereForward", traits=T.MOVES | T.LATER),
    # indexing
    Op("Subtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx...", traits=T.VIEW | T.MOVES | T.INFERRED | T.TAKES_SIZES | T.NO_WORKSPACE | T.COMPLEX | T.FOLDED),
    Op("SetSubtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.INTO_FIRST | T.MOVES | T.INFERRED | T.TAKES_SIZES | T.NO_WORKSPACE),
    Op("IncrSubtensor", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.GENERIC | T.INTO_FIRST | T.NO_WORKSPACE),
    Op("IndexingMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx...", traits=T.MOVES | T.INFERRED | T.COMPLEX),
    Op("IndexingSetMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.MOVES),
    Op("IndexingIncrMultiAxisVec", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.GENERIC),
    Op("MeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx...", traits=T.MOVES),
    Op("SetMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.MOVES),
    Op("IncrMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.GENERIC),
    Op("BatchedMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="src idx...", traits=T.MOVES),
    Op("BatchedSetMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.MOVES),
    Op("BatchedIncrMeshIndexing", "inference", "indexing", params=(P.IndexDescMaskDump,), inputs="dest value idx...", traits=T.GENERIC),
    Op("IndexingOneHot", "inference", "indexing", params=(P.Axis,), inputs="src index", traits=T.MOVES),
    Op("IndexingSetOneHot", "inference", "indexing", params=(P.Axis,), inputs="src index value", traits=T.MOVES),
    Op("IndexingRemap", "inference", "indexing", params=(P.IndexingRemap,), inputs="src map"),
    # backward
    Op("IndexingRemapBackward", "backward", "", params=(P.IndexingRemap,), inputs="diff map src"),
    Op("DiagBackward", "backward", "", params=(P.Diag,), inputs="shape diff"),
    Op("PaddingBackward", "backward", "", params=(P.Padding,), inputs="diff src"),
    Op("ArgsortBackward", "backward", "", params=(P.Empty,), inputs="diff indices src"),
    Op("WhereBackward", "backward", "", params=(P.Empty,), inputs="diff mask", outputs=2, traits=T.LATER),
    Op("ConvolutionBackwardFilterV2", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src diff filter", traits=T.LIMITED | T.VERSION_2),
    Op("Convolution3DBackwardFilter", "backward", "", params=(P.Convolution3D, P.ExecutionPolicy), inputs="src diff filter", traits=T.VERSION_2),
    Op("LocalShareBackwardDataV1", "backward", "", params=(P.LocalShare, P.ExecutionPolicy), inputs="filter diff src", traits=T.VERSION_2),
    Op("LocalShareBackwardFilterV1", "backward", "", params=(P.LocalShare, P.ExecutionPolicy), inputs="src diff filter", traits=T.VERSION_2),
    Op("DeformableConvBackwardDataV1", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask diff", outputs=3, traits=T.VERSION_2),
    Op("DeformableConvBackwardFilterV1", "backward", "", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask diff", traits=T.VERSION_2),
    Op("RegionRestrictedConvolutionBackwardFilter", "backward", "", params=(P.Convolution,), inputs="src diff rin rout filter"),
    Op("Images2NeibsBackward", "backward", "", params=(P.Images2Neibs,), inputs="diff src"),
    Op("SlidingWindowTransposeBackward", "backward", "", params=(P.SlidingWindowTranspose,), inputs="diff src"),
    Op("LocalBackwardDataV2", "backward", "", params=(P.Convolution,), inputs="filter diff src"),
    Op("LocalBackwardFilterV2", "backward", "", params=(P.Convolution,), inputs="src diff filter"),
    Op("GroupLocalBackwardDataV2", "backward", "", params=(P.Convolution,), inputs="filter diff src"),
    Op("GroupLocalBackwardFilterV2", "backward", "", params=(P.Convolution,), inputs="src diff filter"),
    Op("LRNBackward", "backward", "", params=(P.LRN,), inputs="src dst diff"),
    Op("PoolingBackwardV1", "backward", "", params=(P.Pooling,), inputs="src dst diff"),
    Op("AdaptivePoolingBackwardV1", "backward", "", params=(P.AdaptivePooling,), inputs="src out_shape dst diff"),
    Op("ROIPoolingBackward", "backward", "", params=(P.ROIPooling,), inputs="diff src rois index"),
    Op("ROIAlignBackwardV1", "backward", "", params=(P.ROIAlign,), inputs="diff src rois index"),
    Op("DeformablePSROIPoolingBackward", "backward", "", params=(P.DeformablePSROIPooling,), inputs="data rois trans diff count", outputs=2),
    Op("CorrelationBackwardData1", "backward", "", params=(P.Correlation,), inputs="diff a b"),
    Op("CorrelationBackwardData2", "backward", "", params=(P.Correlation,), inputs="diff a b"),
    Op("BatchNormBackwardV1", "backward", "", params=(P.BN,), inputs="x dy saved_mean saved_inv_std scale reserve", outputs=3),
    Op("LayerNormBackward", "backward", "", params=(P.LayerNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward),
    Op("GeneralNormBackward", "backward", "", params=(P.GeneralNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward),
    Op("GroupNormBackward", "backward", "", params=(P.GroupNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward, traits=T.VERSION_2),
    Op("InstanceNormBackward", "backward", "", params=(P.GroupNorm,), inputs="diff x weight? mean rstd", outputs=_norm_backward, traits=T.VERSION_2),
    Op("RNNBackward", "backward", "", params=(P.RNN,), inputs="x y h dy dh weights reserve", outputs=3),
    Op("LSTMBackward", "backward", "", params=(P.LSTM,), inputs="x y h c dy dh dc weights reserve", outputs=4),
    Op("SoftmaxBackward", "backward", "", params=(P.Softmax,), inputs="y diff"),
    Op("MultiHeadAttnBackward", "backward", "", params=(P.MultiHeadAttn,), inputs="diff q k v wqkv mask? attn mask_reserve reserve", outputs=6),
    Op("FakeQuantBackward", "backward", "", params=(P.FakeQuant,), inputs="diff x scale zero_point"),
    Op("TQTBackward", "backward", "", params=(P.TQT,), inputs="diff x scale", outputs=2),
    Op("LSQBackward", "backward", "", params=(P.LSQ,), inputs="diff x scale zero_point grad_scale", outputs=2),
    Op("WarpPerspectiveBackwardDataV2", "backward", "", params=(P.WarpPerspective,), inputs="mat mat_idx? diff src"),
    Op("WarpPerspectiveBackwardMatV2", "backward", "", params=(P.WarpPerspective,), inputs="src mat mat_idx? diff"),
    Op("ResizeBackward", "backward", "", params=(P.Resize,), inputs="diff src"),
    Op("RemapBackwardDataV1", "backward", "", params=(P.Remap,), inputs="map diff src"),
    Op("RemapBackwardMatV1", "backward", "", params=(P.Remap,), inputs="src map diff"),
    Op("ShuffleRNGBackward", "backward", "", params=(P.ShuffleRNG,), inputs="diff index src"),
    Op("DropoutBackward", "backward", "", params=(P.Dropout,), inputs="diff mask"),
    # relayout
    Op("RelayoutFormatV1", "inference", "relayout", params=(P.RelayoutFormat,), inputs="src"),
    # select
    Op("Argmax", "inference", "select", params=(P.Axis,), inputs="src", traits=T.GENERIC),
    Op("Argmin", "inference", "select", params=(P.Axis,), inputs="src", traits=T.GENERIC),
    Op("Argsort", "inference", "select", params=(P.Argsort,), inputs="src", outputs=2, cls="ArgsortForward", traits=T.MOVES),
    Op("CondTake", "inference", "select", params=(P.CondTake,), inputs="data mask", outputs=2, traits=T.MOVES | T.DATA_SHAPED),
    Op("NonZero", "inference", "select", params=(P.Empty,), inputs="src", traits=T.GENERIC | T.LATER),
    Op("TopK", "inference", "select", params=(P.TopK,), inputs="data k", outputs=lambda o: 1 if o.get(P.TopK).mode == P.TopKMode.KTH_ONLY else 2, traits=T.COUNTED | T.MOVES, all_outputs=2),
    # vendor
    Op("NvOf", "vendor", "", params=(P.NvOf,), inputs="src"),
    Op("ExternCOprRunner", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("TensorRTRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("AtlasRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown),
    Op("CambriconRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown, traits=T.LATER),
    Op("MagicMindRuntimeOpr", "vendor", "", inputs="x0 ...", outputs=_unknown, traits=T.LATER),
    Op("CustomOpNode", "vendor", "", inputs="x0 ...", outputs=_unknown, traits=T.VERSION_2),
    Op("dynamic", "vendor", "", inputs="x0 ...", outputs=_unknown, traits=T.VERSION_2),
    # conv
    Op("ConvolutionV2", "inference", "conv.convolution", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter", cls="ConvolutionForward", traits=T.LINEAR | T.LIMITED | T.PACKED | T.VERSION_2, wide="windows.convolution"),
    Op("ConvolutionBackwardDataV2", "inference", "conv.convolution", params=(P.Convolution, P.ExecutionPolicy), inputs="filter diff src_for_shape?", traits=T.LINEAR | T.LIMITED | T.VERSION_2, wide="windows.transposed"),
    Op("Convolution3D", "inference", "conv.convolution", params=(P.Convolution3D, P.ExecutionPolicy), inputs="src filter", cls="Convolution3DForward", traits=T.LIMITED | T.VERSION_2, wide="windows.convolution"),
    Op("Convolution3DBackwardData", "inference", "conv.convolution", params=(P.Convolution3D, P.ExecutionPolicy), inputs="filter diff src_for_shape?", traits=T.LIMITED | T.VERSION_2, wide="windows.transposed"),
    Op("ConvBiasForwardV4", "inference", "conv.convolution", params=(P.ConvBias, P.ExecutionPolicy), inputs="src filter bias? z?", traits=T.LIMITED | T.PACKED | T.VERSION_2, wide="windows.convolution", title="ConvBias"),
    Op("BatchConvBiasForwardV1", "inference", "conv.convolution", params=(P.BatchConvBias, P.ExecutionPolicy), inputs="src filter bias? z?", traits=T.LIMITED | T.VERSION_2, title="BatchConvBias", wide="windows.batched"),
    # local_conv
    Op("LocalShareForwardV1", "inference", "conv.local", params=(P.LocalShare, P.ExecutionPolicy), inputs="src filter", traits=T.LIMITED | T.VERSION_2, wide="windows.local_share"),
    Op("DeformableConvForwardV1", "inference", "conv.local", params=(P.Convolution, P.ExecutionPolicy), inputs="src filter offset mask", traits=T.LIMITED | T.VERSION_2, wide="windows.deformable"),
    Op("RegionRestrictedConvolution", "inference", "conv.local", params=(P.Convolution,), inputs="src filter rin rout", cls="RegionRestrictedConvolutionForward", wide="windows.region_restricted"),
    Op("RegionRestrictedConvolutionBackwardData", "inference", "conv.local", params=(P.Convolution,), inputs="filter diff rin rout src?", traits=T.LIMITED, wide="windows.region_data"),
    Op("MaskConvolutionV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter mask", wide="windows.masked"),
    Op("MaskPropagate", "inference", "conv.windows", params=(P.MaskPropagate,), inputs="src"),
    Op("Images2Neibs", "inference", "conv.windows", params=(P.Images2Neibs,), inputs="src", cls="Images2NeibsForward", traits=T.MOVES),
    Op("SlidingWindowTranspose", "inference", "conv.windows", params=(P.SlidingWindowTranspose,), inputs="src", cls="SlidingWindowTransposeForward", wide="windows.unfolded"),
    Op("LocalV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter", cls="LocalForward", wide="windows.local"),
    Op("GroupLocalV2", "inference", "conv.local", params=(P.Convolution,), inputs="src filter", cls="GroupLocalForward", wide="windows.local"),
    # norm
    Op("LRN", "inference", "norm", params=(P.LRN,), inputs="src", cls="LRNForward", wide="layers.lrn"),
    Op("BatchNormV1", "inference", "norm", params=(P.BN,), inputs="x scale bias mean? variance?", outputs=_batch_norm, cls="BatchNormForward", traits=T.LIMITED, wide="layers.batch_norm", all_outputs=6),
    Op("LayerNorm", "inference", "norm", params=(P.LayerNorm,), inputs="x weight? bias?", outputs=3, cls="LayerNormForward", traits=T.IN_PLACE, wide="layers.layer_norm"),
    Op("GeneralNorm", "inference", "norm", params=(P.GeneralNorm,), inputs="x weight? bias?", outputs=3, cls="GeneralNormForward", wide="layers.general_norm"),
    Op("GroupNorm", "inference", "norm", params=(P.GroupNorm,), inputs="x weight? bias?", outputs=3, cls="GroupNormForward", traits=T.VERSION_2, wide="layers.group_norm"),
    Op("InstanceNorm", "inference", "norm", params=(P.GroupNorm,), inputs="x weight? bias?", outputs=3, cls="InstanceNormForward", traits=T.VERSION_2, wide="layers.group_norm"),
    Op("Softmax", "inference", "norm", params=(P.Softmax,), inputs="src", cls="SoftmaxForward", traits=T.IN_PLACE | T.VERSION_2, wide="layers.softmax"),
    # pooling
    Op("PoolingV1", "inference", "pooling", params=(P.Pooling,), inputs="src", cls="PoolingForward", traits=T.CHANNELWISE | T.LIMITED, wide="windows.pooling"),
    Op("AdaptivePoolingV1", "inference", "pooling", params=(P.AdaptivePooling,), inputs="src out_shape", cls="AdaptivePoolingForward", traits=T.CHANNELWISE, wide="windows.pooling"),
    # roi
    Op("ROIPooling", "inference", "image.roi", params=(P.ROIPooling,), inputs="src rois out_shape", outputs=2, cls="ROIPoolingForward"),
    Op("ROIAlignV1", "inference", "image.roi", params=(P.ROIAlign,), inputs="src rois", outputs=2, cls="ROIAlignForward", wide="images.roi_align"),
    Op("DeformablePSROIPoolingForward", "inference", "image.roi", params=(P.DeformablePSROIPooling,), inputs="data rois trans", outputs=2),
    Op("CorrelationForward", "inference", "conv.correlation", params=(P.Correlation,), inputs="a b", title="Correlation", wide="images.correlation"),
    Op("NMSKeepMGB", "inference", "image.nms", params=(P.NMSKeep,), inputs="boxes", outputs=2, cls="NMSKeep"),
    # rnn
    Op("RNNCellForward", "inference", "rnn", params=(P.RNNCell,), inputs="x w_ih b_ih h w_hh b_hh", wide="layers.rnn_cell"),
    Op("LSTMCellForward", "inference", "rnn", params=(P.Empty,), inputs="x w_ih b_ih h w_hh b_hh c", outputs=3, cls="LSTMCell", wide="layers.lstm_cell"),
    Op("RNNForward", "inference", "rnn", params=(P.RNN,), inputs="x h weights", outputs=3, cls="RNN", wide="layers.rnn"),
    Op("LSTMForward", "inference", "rnn", params=(P.LSTM,), inputs="x h c weights", outputs=4, cls="LSTM", wide="layers.lstm"),
    # attention
    Op("MultiHeadAttn", "inference", "attention", params=(P.MultiHeadAttn,), inputs="q k v wqkv mask? bias_k? bias_v?", outputs=4, cls="MultiHeadAttnForward", traits=T.RANDOM, wide="layers.attention"),
    # quantization
    Op("FakeQuant", "quantization", "quantization", params=(P.FakeQuant,), inputs="x scale zero_point", cls="FakeQuantForward"),
    Op("TQT", "quantization", "quantization", params=(P.TQT,), inputs="x scale", cls="TQTForward"),
    Op("LSQ", "quantization", "quantization", params=(P.LSQ,), inputs="x scale zero_point grad_scale", cls="LSQForward"),
    # warp
    Op("WarpPerspectiveV2", "inference", "image.warp", params=(P.WarpPerspective,), inputs="src... mat mat_idx? out_shape", cls="WarpPerspectiveForward", traits=T.CHANNELWISE, float32_inputs=(1,), wide="images.warp_perspective"),
    Op("WarpAffineV2", "inference", "image.warp", params=(P.WarpAffine,), inputs="src mat out_shape", cls="WarpAffineForward", traits=T.CHANNELWISE, float32_inputs=(0, 1), wide="images.warp_affine"),
    Op("RemapV1", "inference", "image.warp", params=(P.Remap,), inputs="src map_xy", cls="RemapForward", float32_inputs=(1,), wide="images.remap"),
    # resize
    Op("ResizeV2", "inference", "image.resize", params=(P.Resize,), inputs="src out_shape", cls="ResizeForward", traits=T.CHANNELWISE, wide="images.resize"),
    Op("Resize3D", "inference", "image.resize", params=(P.Resize3D,), inputs="src out_shape", cls="Resize3DForward", wide="images.resize_volume"),
    # image
    Op("Rotate", "inference", "image.filters", params=(P.Rotate,), inputs="src", cls="RotateForward"),
    Op("CvtColor", "inference", "image.filters", params=(P.CvtColor,), inputs="src", cls="CvtColorForward"),
    Op("GaussianBlur", "inference", "image.filters", params=(P.GaussianBlur,), inputs="src", cls="GaussianBlurForward"),
    Op("Flip", "inference", "image.filters", params=(P.Flip,), inputs="src", cls="FlipForward", traits=T.GENERIC | T.LATER),
    Op("DctChannelSelectV1", "inference", "image.filters", params=(P.DctChannelSelect,), inputs="src mask_offset? mask_val?", cls="DctChannelSelectForward"),
    # rng
    Op("UniformRNGV1", "rng", "rng", params=(P.UniformRNG,), inputs="shape", traits=T.RANDOM),
    Op("GaussianRNGV1", "rng", "rng", params=(P.GaussianRNG,), inputs="shape", traits=T.RANDOM),
    Op("GammaRNG", "rng", "rng", params=(P.GammaRNG,), inputs="shape_param scale", traits=T.RANDOM),
    Op("BetaRNG", "rng", "rng", params=(P.BetaRNG,), inputs="alpha beta", traits=T.RANDOM),
    Op("PoissonRNG", "rng", "rng", params=(P.PoissonRNG,), inputs="lambda", traits=T.RANDOM),
    Op("PermutationRNG", "rng", "rng", params=(P.PermutationRNG,), inputs="shape", traits=T.RANDOM),
    Op("ShuffleRNG", "rng", "rng", params=(P.ShuffleRNG,), inputs="src", outputs=2, cls="ShuffleRNGForward", traits=T.RANDOM),
    Op("ExponentialRNG", "rng", "rng", params=(P.ExponentialRNG,), inputs="rate", traits=T.RANDOM | T.LATER),
    Op("MultinomialRNG", "rng", "rng", params=(P.MultinomialRNG,), inputs="probs", traits=T.RANDOM | T.LATER),
    Op("Dropout", "rng", "rng", params=(P.Dropout,), inputs="x", outputs=2, cls="DropoutForward", traits=T.RANDOM),
    # control
    Op("CondExecPred", "control_flow", "control", params=(P.CondExecPred,), inputs="key0 ... pred", outputs=lambda o: len(o.inputs) - (o.get(P.CondExecPred).mode == P.CondExecPredMode.CASE), traits=T.GENERIC | T.FLOAT32_ONLY | T.NO_WORKSPACE),
    Op("CondExecPredLogical", "control_flow", "control", params=(P.CondExecPredLogical,), inputs="ppv0 ...", traits=T.GENERIC | T.NO_WORKSPACE),
    Op("CondExecMark", "control_flow", "control", params=(P.CondExecMark,), inputs="x0 ... ppv", outputs=_inputs_minus_one, traits=T.GENERIC | T.VIEW | T.NO_WORKSPACE),
    Op("CondExecMarkIfNeed", "control_flow", "control", params=(P.CondExecMark,), inputs="maybe_ppv x", traits=T.GENERIC),
    Op("CondExecMerge", "control_flow", "control", params=(P.CondExecMerge,), inputs="branch vars... extra...", outputs=lambda o: o.get(P.CondExecMerge).nr_output, traits=T.GENERIC | T.NO_WORKSPACE),
    # control_flow
    Op("opr::Loop", "control_flow", "", outputs=0, cls="Loop", traits=T.VERSION_2),
    Op("InputMaker", "control_flow", "", outputs=0, cls="LoopImpl::InputMaker", traits=T.VERSION_2),
    Op("CounterProvider", "control_flow", "", outputs=0, cls="LoopImpl::DescImplBase::CounterProvider", traits=T.VERSION_2),
)
# fmt: on

CATALOG: dict[str, Op] = {op.name: op for op in _OPS}


def select(holds: Callable[[Op], bool]) -> frozenset[str]:
    """Return the names of the operators that satisfy a condition.

    >>> sorted(select(lambda op: op.family == "elemwise.modes"))
    ['Elemwise', 'PowC']
    """
    return frozenset(op.name for op in _OPS if holds(op))


def types(traits: T) -> frozenset[str]:
    """Return the names of the operators that have any of some traits.

    >>> sorted(types(T.ELEMENTWISE))
    ['CompositePointwise', 'Elemwise', 'ElemwiseMultiType', 'PowC', 'TypeCvtV2']
    """
    wanted = traits.value  # as numbers, since every start makes a dozen of these sets
    return select(lambda op: bool(op.traits.value & wanted))


def draws(opr: Opr) -> bool:
    """Return whether an operator draws random numbers; dropout with the probability 0 does not.

    >>> draws(Opr("Dropout", (P.Dropout(drop_prob=0.5),))), draws(Opr("Dropout")), draws(Opr("ReduceV2"))
    (True, False, False)
    """
    if opr.type == "Dropout":
        return opr.get(P.Dropout).drop_prob > 0
    if opr.type == "MultiHeadAttn":
        attention = opr.get(P.MultiHeadAttn)
        return attention.training and (attention.attn_prob > 0 or attention.out_prob > 0)
    return T.RANDOM in CATALOG[opr.type].traits
