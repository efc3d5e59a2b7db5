"""Parameter records of elementwise, shape, indexing, random and control-flow operators."""

from . import enums as E
from ._record import (
    F32,
    F64,
    I32,
    U32,
    U64,
    AxisDescs,
    Bool,
    DTypeScalar,
    DTypeScalarField,
    I32s,
    IndexItems,
    Record,
)


class Empty(Record, code=1):
    """No fields."""


class Axis(Record, code=2):
    axis: I32 = 0


class MGBAddUpdate(Record, code=16):
    alpha: DTypeScalarField = DTypeScalar()
    beta: DTypeScalarField = DTypeScalar()
    bias: DTypeScalarField = DTypeScalar()


class Elemwise(Record, code=17):
    mode: E.ElemwiseMode = E.ElemwiseMode.RELU


class ElemwiseMultiType(Record, code=18):
    mode: E.ElemwiseMultiTypeMode = E.ElemwiseMultiTypeMode.FUSE_MUL_ADD3_INT16x32x32x32


class PowC(Record, code=19):
    exp: F32 = 0.0


class MatrixMul(Record, code=20):
    transposeA: Bool = False
    transposeB: Bool = False
    compute_mode: E.MatrixMulComputeMode = E.MatrixMulComputeMode.DEFAULT
    format: E.MatrixMulFormat = E.MatrixMulFormat.DEFAULT


class SVD(Record, code=22):
    full_matrices: Bool = False
    compute_uv: Bool = True


class Reduce(Record, code=23):
    mode: E.ReduceMode = E.ReduceMode.SUM
    axis: I32 = 2**31 - 1
    data_type: E.ReduceDataType = E.ReduceDataType.DEFAULT


class Cumsum(Record, code=24):
    axis: I32 = 2**31 - 1
    exclusive: Bool = True
    reverse: Bool = False


class CondTake(Record, code=25):
    mode: E.CondTakeMode = E.CondTakeMode.EQ
    val: F32 = 0.0
    eps: F32 = 1e-06


class Argsort(Record, code=26):
    order: E.ArgsortOrder = E.ArgsortOrder.ASCENDING


class IndexingRemap(Record, code=27):
    is_non_overlapping: Bool = False


class MGBSleep(Record, code=28):
    device: Bool = True
    host: Bool = False
    seconds: F64 = 0.0


class Linspace(Record, code=29):
    endpoint: Bool = True


class LinspaceFull(Record, code=30):
    start: F64 = 0.0
    stop: F64 = 1.0
    endpoint: Bool = True


class Eye(Record, code=31):
    k: I32 = 0
    dtype: E.DTypeEnum = E.DTypeEnum.Float32


class UniformRNG(Record, code=32):
    seed: U64 = 0
    dtype: E.DTypeEnum = E.DTypeEnum.Float32


class GaussianRNG(Record, code=33):
    seed: U64 = 0
    mean: F32 = 0.0
    std: F32 = 1.0
    dtype: E.DTypeEnum = E.DTypeEnum.Float32


class TopK(Record, code=44):
    mode: E.TopKMode = E.TopKMode.KTH_ONLY


class DType(Record, code=51):
    dtype: E.DTypeEnum = E.DTypeEnum.Byte


class PersistentOutputStorage(Record, code=52):
    share_key: I32 = -1


class OptionalAxis(Record, code=53):
    axis: I32 = -1


class OptionalAxisV1(Record, code=54):
    axis: I32 = 7


class AssertEqual(Record, code=56):
    maxerr: F32 = 0.0001
    verbose: Bool = False


class CollectiveComm(Record, code=58):
    mode: E.CollectiveCommMode = E.CollectiveCommMode.REDUCE_SUM


class CondExecPred(Record, code=59):
    mode: E.CondExecPredMode = E.CondExecPredMode.CASE
    eps: F32 = 0.0001


class CondExecPredLogical(Record, code=60):
    mode: E.CondExecPredLogicalMode = E.CondExecPredLogicalMode.OR


class CondExecMark(Record, code=61):
    grad_mode: E.CondExecMarkGradMode = E.CondExecMarkGradMode.SUM
    static_infer: E.CondExecMarkStaticInfer = E.CondExecMarkStaticInfer.SHAPE_VALUE


class CondExecMerge(Record, code=62):
    nr_output: U32 = 1
    mode: E.CondExecMergeMode = E.CondExecMergeMode.EXACT_ONE


class Host2DeviceCopy(Record, code=63):
    enable_value_infer: Bool = True
    dump_default_value: Bool = False
    allow_cpu_mem_fwd: Bool = True


class Dimshuffle(Record, code=64):
    pattern: I32s = ()
    ndim: U32 = 0


class AxisAddRemove(Record, code=65):
    desc: AxisDescs = ()


class IndexDescMaskDump(Record, code=66):
    items: IndexItems = ()


class GammaRNG(Record, code=77):
    seed: U64 = 0


class PoissonRNG(Record, code=78):
    seed: U64 = 0


class PermutationRNG(Record, code=79):
    seed: U64 = 0
    dtype: E.DTypeEnum = E.DTypeEnum.Int32


class BetaRNG(Record, code=80):
    seed: U64 = 0


class Padding(Record, code=82):
    front_offset_dim0: U32 = 0
    front_offset_dim1: U32 = 0
    front_offset_dim2: U32 = 0
    front_offset_dim3: U32 = 0
    front_offset_dim4: U32 = 0
    front_offset_dim5: U32 = 0
    front_offset_dim6: U32 = 0
    back_offset_dim0: U32 = 0
    back_offset_dim1: U32 = 0
    back_offset_dim2: U32 = 0
    back_offset_dim3: U32 = 0
    back_offset_dim4: U32 = 0
    back_offset_dim5: U32 = 0
    back_offset_dim6: U32 = 0
    padding_val: F32 = 0.0
    padding_mode: E.PaddingMode = E.PaddingMode.CONSTANT


class ShuffleRNG(Record, code=83):
    seed: U64 = 0


class CheckNonFinite(Record, code=84):
    scale: F32 = 1.0


class Diag(Record, code=91):
    k: I32 = 0


class Fill(Record, code=93):
    value: F32 = 0.0


class Cross(Record, code=97):
    axisa: I32 = -1
    axisb: I32 = -1
    axisc: I32 = -1


class ExponentialRNG(Record, code=98):
    seed: U64 = 0


class MultinomialRNG(Record, code=99):
    seed: U64 = 0
    num_samples: U64 = 1
    replacement: Bool = False
