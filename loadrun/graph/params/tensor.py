"""Typed parameter records, fields ordered as in the .mge wire format: elementwise, shape, indexing, control flow."""

from collections.abc import Iterator
from enum import IntEnum
from math import copysign
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, get_args, get_origin, get_type_hints

from . import enums as E

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any):  # noqa: D103
        return lambda cls: cls


Bool = Annotated[bool, "bool"]
I8 = Annotated[int, "byte"]
U8 = Annotated[int, "ubyte"]
I32 = Annotated[int, "int"]
U32 = Annotated[int, "uint"]
U64 = Annotated[int, "ulong"]
F32 = Annotated[float, "float"]
F64 = Annotated[float, "double"]
I32s = Annotated[tuple[int, ...], "[int]"]


class AxisDesc(NamedTuple):
    """One step of AxisAddRemove: method 0 inserts a size-1 axis at `axis`, method 1 removes it."""

    method: int
    axis: int


class IndexItem(NamedTuple):
    """One indexed axis of Subtensor and its relatives; the flags tell which index inputs follow."""

    axis: int
    begin: bool = False
    end: bool = False
    step: bool = False
    idx: bool = False


class DTypeScalar(NamedTuple):
    """A number stored with its dtype: `DTypeEnum` code and four raw bytes, little endian."""

    dtype: int = 0
    storage: bytes = b"\0\0\0\0"


AxisDescs = Annotated[tuple[AxisDesc, ...], "[AxisDesc]"]
IndexItems = Annotated[tuple[IndexItem, ...], "[IndexItem]"]
DTypeScalarField = Annotated[DTypeScalar, "DTypeScalar"]


class RecordField(NamedTuple):
    """One field of a record: name, wire type, default and, for enum fields, the enum class."""

    name: str
    wire: str
    default: Any
    enum: type[IntEnum] | None


def _hints(cls: type) -> Iterator[tuple[str, Any]]:
    """Return the fields of a record and its bases with their types."""
    hints = {n: hint for base in cls.__mro__[:-2][::-1] for n, hint in base.__annotations__.items()}
    if any(isinstance(hint, str) for hint in hints.values()):
        # Only for modules with deferred annotations, since this compiles each of them.
        hints = {n: hint for n, hint in get_type_hints(cls, include_extras=True).items() if n in hints}
    return ((n, hint) for n, hint in hints.items() if get_origin(hint) is not ClassVar)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Immutable parameter record of an operator; subclasses list their fields in wire order.

    Fields left out take MegEngine's defaults; `replace` makes a changed copy.

    >>> from loadrun.graph.params import Pooling
    >>> p = Pooling(window_h=3, window_w=3, pad_h=1, pad_w=1)
    >>> p.stride_h, p.mode.name
    (2, 'MAX')
    >>> p
    Pooling(pad_h=1, pad_w=1, window_h=3, window_w=3)
    """

    code: ClassVar[int]
    _declared: ClassVar[tuple[RecordField, ...] | None]
    _floats: ClassVar[tuple[str, ...]]
    by_code: ClassVar[dict[int, type["Record"]]] = {}

    def __init_subclass__(cls, *, code: int) -> None:
        cls.code = code
        cls._declared = None
        Record.by_code[code] = cls

    @classmethod
    def fields(cls) -> tuple[RecordField, ...]:
        """Return the fields in wire order (vtable slot = index)."""
        if cls._declared is None:
            out = []
            for name, hint in _hints(cls):
                default = getattr(cls, name)
                if get_origin(hint) is Annotated:
                    out.append(RecordField(name, get_args(hint)[1], default, None))
                else:
                    wire = "byte" if hint.__name__ == "DTypeEnum" else "uint"
                    out.append(RecordField(name, wire, default, hint))
            cls._declared = tuple(out)
            cls._floats = tuple(f.name for f in out if f.wire in ("float", "double"))
        return cls._declared

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            known = self.__dict__
            for f in type(self).fields():
                known[f.name] = values.pop(f.name, f.default)
            if values:
                names = ", ".join(f.name for f in type(self).fields()) or "none"
                raise TypeError(
                    f"{type(self).__name__} has no field {', '.join(values)}; its fields are {names}"
                )

        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=...)")

    def replace(self, **values: Any) -> "Self":
        """Return a copy with some fields changed."""
        return type(self)(**dict(self.pairs()) | values)

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Yield pairs of field name and value, in wire order."""
        for f in self.fields():
            yield f.name, getattr(self, f.name)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine, others = self.__dict__, other.__dict__
        if type(self) is not type(other) or mine != others:
            return False
        # 0.0 and -0.0 are equal, but operators that fill with them are not.
        names = self._floats
        return not names or all(copysign(1, mine[n]) == copysign(1, others[n]) for n in names)

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        changed = (
            f"{f.name}={v.name if isinstance(v, IntEnum) else repr(v)}"
            for f in self.fields()
            if (v := getattr(self, f.name)) != f.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


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


class OptionalAxisV1(Record, code=54):
    axis: I32 = 7


class AssertEqual(Record, code=56):
    maxerr: F32 = 0.0001
    verbose: Bool = False


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
