"""Parameters of operators: their defaults, what they can be, and the enums that MegEngine's definitions show."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, ClassVar, NamedTuple

from ...base.errors import UsageRuntimeError
from ...graph.dtypes import DType
from ...graph.params import DTypeEnum, IndexItem, Strategy
from ...tensors.dtypes import graph_dtype, numpy_dtype

__all__ = ["MODULE", "OWN_PARAMETERS", "EnumValue", "OpParameter", "Owners", "class_name", "dtype_of"]

MODULE = "loadrun.megengine.core._imperative_rt.ops"
"""Where the definitions are found, for instance when they are unpickled."""
_CLASSES = {
    "bmode": "BorderMode",
    "border_mode": "BorderMode",
    "border_type": "BorderMode",
    "imode": "InterpolationMode",
    "nonlineMode": "NonlineMode",
}
"""Names of enums that do not follow from the name of the parameter."""


class EnumValue:
    """A value of a parameter: equal to its name in any case, and of no order.

    >>> from loadrun.megengine.opdefs import DEFINITIONS
    >>> DEFINITIONS["Elemwise"].Mode.ADD == "add"
    True
    """

    __slots__ = ("_member",)
    __hash__ = None  # type: ignore[assignment]
    _enum: ClassVar[type[IntEnum] | type[IntFlag]]
    _member: Any

    @classmethod
    def _wrapped(cls, member: Any) -> Any:
        value = cls.__new__(cls)
        value._member = member
        return value

    @property
    def name(self) -> str:
        """The name, several of flags joined by ``+``."""
        return " + ".join(self._names())

    @property
    def value(self) -> int:
        """The number in files."""
        return int(self._member)

    def dump(self) -> str:
        """Return the name."""
        return self.name

    def _names(self) -> list[str]:
        if issubclass(self._enum, IntFlag):
            return [m.name for m in self._enum if m & self._member and m.name]
        return [self._member.name]

    def __or__(self, other: object) -> Any:
        if type(other) is not type(self) or not issubclass(self._enum, IntFlag):
            return NotImplemented
        return self._wrapped(self._enum(self._member | other._member))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.upper() == self.name.upper()
        return type(other) is type(self) and bool(other._member == self._member)

    def __repr__(self) -> str:
        return " + ".join(f"{type(self).__qualname__}.{name}" for name in self._names())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_chosen, (type(self), self.value))


def _chosen(kind: type[EnumValue], value: int) -> Any:
    return kind._wrapped(kind._enum(value))


class OpParameter(NamedTuple):
    """A parameter of a definition: its default, and the enum or the Python type of its values."""

    name: str
    default: Any
    enum: type[IntEnum] | type[IntFlag] | None = None
    choices: type[EnumValue] | None = None

    def checked(self, value: Any) -> Any:
        """Return a value as it is kept: numbers, members of the parameters' enums, DTypes, tuples.

        Raises:
            UsageError: none that the parameter can have.
        """
        if self.name == "dtype":
            return None if value is None else dtype_of(value)
        if self.enum is not None:
            return self._wrapped(value)
        if self.name == "items":
            return tuple(IndexItem(int(i[0]), *map(bool, i[1:])) for i in value)
        if self.name == "slice_items":
            return tuple(tuple(int(n) for n in entry) for entry in value)
        if self.name == "comp_node":
            return value or ""
        return tuple(value) if isinstance(value, (list, tuple)) else value

    def _wrapped(self, value: Any) -> Any:
        assert self.enum is not None
        if isinstance(value, EnumValue):
            value = value._member
        if type(value) is self.enum:
            return value
        if isinstance(value, str):
            names = {n.lower(): m for n, m in self.enum.__members__.items()}
            if value.lower() in names:
                return names[value.lower()]
        raise UsageRuntimeError(f"{self.name} is one of {', '.join(self.enum.__members__)}, found {value!r}")

    def shown(self, value: Any) -> Any:
        """Return a value as MegEngine shows it."""
        if isinstance(value, DType):
            return numpy_dtype(value)
        if self.choices is not None:
            return self.choices._wrapped(value)
        if isinstance(value, tuple):
            return [tuple(v) if isinstance(v, tuple) else v for v in value]
        return value


def dtype_of(value: Any) -> DType:
    """Return a dtype of the graph, given as a member of the records' enum or as users write it."""
    if isinstance(value, DTypeEnum):
        return graph_dtype(value.name.lower())
    return graph_dtype(value)


def class_name(parameter: str) -> str:
    """Return the name of the enum of a parameter."""
    return _CLASSES.get(parameter) or parameter.title().replace("_", "")


@cache
def _choices(enum: type[IntEnum] | type[IntFlag], owner: str, name: str) -> type[EnumValue]:
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": MODULE,
        "__qualname__": f"{owner}.{name}",
        "__doc__": f"What {name} can be.",
        "_enum": enum,
    }
    kind: type[EnumValue] = type(name, (EnumValue,), body)
    for known, member in enum.__members__.items():
        setattr(kind, known, kind._wrapped(member))
    return kind


class Owners:
    """Enums that several operators share belong to the first, as in MegEngine."""

    def __init__(self) -> None:
        self.known: dict[type[IntEnum] | type[IntFlag], type[EnumValue]] = {}

    def of(self, enum: type[IntEnum] | type[IntFlag], owner: str, name: str) -> type[EnumValue]:
        """Return what an enum is shown as; `owner` gets it where nobody has it yet."""
        if enum not in self.known:
            self.known[enum] = _choices(enum, owner, name)
        return self.known[enum]


OWN_PARAMETERS: dict[str, dict[str, Any]] = {
    "AdaptivePooling": {"shape": ()},
    "BatchConvBias": {"dtype": None},
    "BatchedMatrixMul": {"strategy": Strategy.HEURISTIC, "dimA": 0, "dimB": 0},
    "BetaRNG": {"handle": 0},
    "Broadcast": {"shape": ()},
    "Concat": {"comp_node": ""},
    "ConvBias": {"dtype": None},
    "ConvolutionBackwardData": {"dtype": None},
    "Copy": {"comp_node": ""},
    "Dropout": {"handle": 0},
    "ElemwiseMultiType": {"dtype": None},
    "Eye": {"comp_node": ""},
    "GammaRNG": {"handle": 0},
    "GaussianRNG": {"handle": 0},
    "IndexingOneHot": {"ndim": 0},
    "IndexingSetOneHot": {"ndim": 0},
    "Linspace": {"comp_node": ""},
    "MatrixMul": {"strategy": Strategy.HEURISTIC, "dimA": 0, "dimB": 0},
    "MultiHeadAttn": {"handle": 0},
    "PermutationRNG": {"handle": 0},
    "PoissonRNG": {"handle": 0},
    "Pooling": {"strategy": Strategy.HEURISTIC},
    "Reduce": {"keepdim": True},
    "Reshape": {"shape": ()},
    "ShuffleRNG": {"handle": 0},
    "Split": {"nsections": 0},
    "Subtensor": {"slice_items": ()},
    "UniformRNG": {"handle": 0},
}
"""Parameters beside those of the records. Strategies and ranks are kept and change nothing."""
