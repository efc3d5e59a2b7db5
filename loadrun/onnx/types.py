"""ONNX's element types as types of a graph, and the shapes that a file declares."""

from collections.abc import Sequence

from ..base.errors import FormatError
from ..graph.composite import ObjectType
from ..graph.dtypes import DType
from .messages import TypeProto, ValueInfoProto
from .tensors import NAMES


def type_of(kind: TypeProto | None) -> DType | None:
    """Return a declared type as a graph holds it, None if it is not declared."""
    if kind is None:
        return None
    if kind.tensor is not None:
        return dtype_of_kind(kind.tensor.elem) if kind.tensor.elem else None
    if kind.sequence is not None:
        return ObjectType("sequence", type_of(kind.sequence.of))
    if kind.optional is not None:
        return ObjectType("optional", type_of(kind.optional.of))
    return ObjectType("map") if kind.map is not None else None


def sizes_of(info: ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Return the declared sizes of a tensor, or of those that a sequence or an optional value holds.

    They are numbers, names of open ones or None; None stands for no shape.
    """
    kind = info.type
    while kind is not None and (holder := kind.sequence or kind.optional) is not None:
        kind = holder.of
    tensor = kind.tensor if kind is not None else None
    if tensor is None or tensor.shape is None:
        return None
    return tuple(d.param or None if d.value is None or d.value < 0 else d.value for d in tensor.shape.dims)


_OWN = {"float": "Float32", "double": "Float64", "bfloat16": "BFloat16", "float4e2m1": "Float4E2M1"}
_OWN |= {f"float8{n}": f"Float8{n.upper()}" for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0")}
_DTYPES = {kind: DType(_OWN.get(name, name.capitalize())) for kind, name in NAMES.items()}
_KINDS = {dtype.name: kind for kind, dtype in _DTYPES.items()}


def dtype_of_kind(kind: int) -> DType:
    """Return the type with ONNX's number.

    Raises:
        FormatError: there is none.

    >>> dtype_of_kind(16).name
    'BFloat16'
    """
    if kind not in _DTYPES:
        raise FormatError(f"the unknown element type {kind}")
    return _DTYPES[kind]


def kind_of_dtype(dtype: DType) -> int:
    """Return ONNX's number of a type.

    >>> kind_of_dtype(DType("Int64"))
    7
    """
    return _KINDS[dtype.name]


def declared_shape(info: ValueInfoProto) -> tuple[int | None, ...] | None:
    """Return the shape of an input as the file declares it, with None for open sizes; None without one."""
    sizes = sizes_of(info) if info.type is not None and info.type.tensor is not None else None
    return None if sizes is None else tuple(n if isinstance(n, int) else None for n in sizes)


def axis_of(info: ValueInfoProto, axis: int) -> tuple[int | None, str]:
    """Return the declared size of an input's axis (None if open) and its name, or a name made up for it."""
    declared = declared_shape(info)
    if declared is None:
        return None, f"{info.name} {axis}"
    name = (sizes_of(info) or ())[axis]
    return declared[axis], name if isinstance(name, str) else f"{info.name} {axis}"


class StandIn:
    """Sizes to assume where none are given: of the first axes, and of the others.

    Args:
        infos: the model's inputs; a first axis that shares its name with a later axis has the size of those.

    Attributes:
        first, other: the sizes; 1 by default.
    """

    def __init__(self, infos: Sequence[ValueInfoProto] = (), first: int = 1, other: int = 1) -> None:
        self.first, self.other = first, other
        self._other: set[str] = set()
        for info in infos:
            sizes = sizes_of(info) or ()
            self._other.update(n for n in (sizes[1:] if len(sizes) > 1 else sizes) if isinstance(n, str))
            if len(sizes) == 1:
                self._other.add(f"{info.name} 0")

    def of(self, name: str, axis: int) -> int:
        """Return the size of an axis by its name and number."""
        return self.other if axis or name in self._other else self.first
