"""Operators with their parameters as values, named as in ``megengine.core.ops.builtin`` and made from the catalog.

A definition has the parameters that MegEngine's has, in MegEngine's order: those of the operator's records, and those
by which MegEngine spares an input, chooses a device or takes something apart before it makes a graph (`_OWN`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..dtypes import DType
from ..errors import UsageError
from ..graph import Opr, Var
from ..ops.catalog import CATALOG, Op
from ..params import AxisDesc, DTypeEnum, IndexItem, Record, Strategy
from .apply import apply as apply_type
from .device import Device, placed
from .dtypes import graph_dtype, numpy_dtype
from .reducing import without_axis
from .value import Tensor

__all__ = ["DEFINITIONS", "EnumValue", "OpDef", "OperatorNodeConfig", "apply"]

_MODULE = "loadrun.core._imperative_rt.ops"
"""Where the definitions are found, for instance when they are unpickled."""
_NEWER = ("GaussianBlur",)
"""Operators without a definition in MegEngine, which therefore own no enum that others share."""
_FROM_INPUT = -(2**31)
"""An entry of ``slice_items`` that an input gives."""
_NO_AXIS = (7, 2**31 - 1)
"""What stands for no axis, in older records and newer ones."""
_HIDDEN = {"CondTake": {"mode", "val", "eps"}, "Dimshuffle": {"ndim"}}
"""Fields of records that MegEngine's definitions do not show, beside ``workspace_limit``."""
_CLASSES = {
    "bmode": "BorderMode",
    "border_mode": "BorderMode",
    "border_type": "BorderMode",
    "imode": "InterpolationMode",
    "nonlineMode": "NonlineMode",
}
"""Names of enums that do not follow from the name of the parameter."""


class EnumValue:
    """What a parameter can be: equal to its name in any case, and of no order.

    >>> DEFINITIONS["Elemwise"].Mode.ADD == "add"
    True
    """

    __slots__ = ("_member",)
    __hash__ = None  # type: ignore[assignment]
    _enum: ClassVar[type[IntEnum] | type[IntFlag]]
    _member: Any

    @classmethod
    def _of(cls, member: Any) -> Any:
        made = cls.__new__(cls)
        made._member = member
        return made

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
        return self._of(self._enum(self._member | other._member))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.upper() == self.name.upper()
        return type(other) is type(self) and bool(other._member == self._member)

    def __repr__(self) -> str:
        return " + ".join(f"{type(self).__qualname__}.{name}" for name in self._names())

    def __reduce__(self) -> tuple[Any, ...]:
        return (_chosen, (type(self), self.value))


def _chosen(kind: type[EnumValue], value: int) -> Any:
    return kind._of(kind._enum(value))


class _Parameter(NamedTuple):
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
            return None if value is None else _dtype(value)
        if self.enum is not None:
            return self._member(value)
        if self.name == "items":
            return tuple(IndexItem(int(i[0]), *map(bool, i[1:])) for i in value)
        if self.name == "slice_items":
            return tuple(tuple(int(n) for n in entry) for entry in value)
        if self.name == "comp_node":
            return value or ""
        return tuple(value) if isinstance(value, (list, tuple)) else value

    def _member(self, value: Any) -> Any:
        assert self.enum is not None
        if isinstance(value, EnumValue):
            value = value._member
        if type(value) is self.enum:
            return value
        if isinstance(value, str):
            names = {n.lower(): m for n, m in self.enum.__members__.items()}
            if value.lower() in names:
                return names[value.lower()]
        raise _NoChoiceError(f"{self.name} is one of {', '.join(self.enum.__members__)}, found {value!r}")

    def shown(self, value: Any) -> Any:
        """Return a value as MegEngine shows it."""
        if isinstance(value, DType):
            return numpy_dtype(value)
        if self.choices is not None:
            return self.choices._of(value)
        if isinstance(value, tuple):
            return [tuple(v) if isinstance(v, tuple) else v for v in value]
        return value


_OWN: dict[str, dict[str, Any]] = {
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
"""Parameters beside those of the records. Strategies, ranks and handles of generators are kept and change nothing."""


class OpDef:
    """One operator with its parameters; subclasses are named as MegEngine names them.

    Definitions of equal parameters are equal and have one hash. Parameters are attributes, which may be assigned.

    Args:
        values: parameters in MegEngine's order.
        named: parameters by name; enums as members or as names, of any case.

    Raises:
        UsageError: no parameter of this operator, or a value that it cannot have.

    >>> from loadrun import tensor
    >>> add = DEFINITIONS["Elemwise"](mode="add")
    >>> apply(add, tensor([1.0]), tensor([2.0]))[0].tolist()
    [3.0]
    >>> add == DEFINITIONS["Elemwise"]("ADD"), str(add)
    (True, 'ADD')
    """

    __slots__ = ("_values", "scope")
    op: ClassVar[Op]
    parameters: ClassVar[dict[str, _Parameter]] = {}
    fixed: ClassVar[dict[str, Any]] = {}
    _values: dict[str, Any]
    scope: str

    def __init__(self, *values: Any, **named: Any) -> None:
        known = type(self).parameters
        if len(values) > len(known):
            raise _NoParameterError(
                f"{type(self).__name__} has {len(known)} parameters, found {len(values)} values"
            )
        given = dict(zip(known, values, strict=False))
        if twice := [n for n in named if n in given]:
            raise _NoParameterError(f"{twice[0]} of {type(self).__name__} is given by place and by name")
        given.update(named)
        if unknown := [n for n in given if n not in known]:
            raise self._no_parameter(", ".join(unknown))
        object.__setattr__(self, "scope", "")
        object.__setattr__(self, "_values", {n: p.default for n, p in known.items()})
        for name, value in given.items():
            self._values[name] = known[name].checked(value)

    def _no_parameter(self, name: str) -> _NoParameterError:
        known = ", ".join(type(self).parameters) or "none"
        return _NoParameterError(f"{type(self).__name__} has no parameter {name}; it has {known}")

    @property
    def records(self) -> tuple[Record, ...]:
        """The parameters as graphs hold them."""
        given = dict(self._values)
        if self.op.name == "AxisAddRemove":
            given["desc"] = tuple(AxisDesc(self.fixed["method"], int(a)) for a in given.pop("axis"))
        found = []
        for kind in self.op.params:
            found.append(
                kind(**{f.name: _wire(f.default, given[f.name]) for f in kind.fields() if f.name in given})
            )
        return tuple(found)

    @property
    def output_dtype(self) -> DType | None:
        """The dtype that the operator is configured to give."""
        return self._values["dtype"] if "dtype" in _OWN.get(type(self).__name__, ()) else None

    def applied(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the outputs for some inputs."""
        kind = type(self).__name__
        prepare, alone = _PREPARED.get(kind), len(inputs) == 1
        if prepare is not None:
            inputs = prepare(self, inputs)
        records = _with_axis_of(self, inputs)
        probe = Opr(self.op.name, records)
        probe.inputs = [Var(i, probe, 0) for i in range(len(inputs))]
        n = self.op.n_outputs(probe)
        # An empty name stands for no device.
        place = placed(self._values.get("comp_node") or None)
        made = apply_type(
            self.op.name, *records, inputs=inputs, n=n, output_dtype=self.output_dtype, place=place
        )
        return [_reduced(self, made[0], inputs[0])] if kind == "Reduce" and alone else made

    def __getattr__(self, name: str) -> Any:
        known = type(self).parameters.get(name)
        if known is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return known.shown(self._values[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "scope":
            object.__setattr__(self, name, str(value))
            return
        known = type(self).parameters.get(name)
        if known is None:
            raise AttributeError(str(self._no_parameter(name)))
        self._values[name] = known.checked(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OpDef):
            return NotImplemented
        return type(self) is type(other) and self._values == other._values

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self._values.items())))

    def __str__(self) -> str:
        return str(self._values["mode"].name) if self.op.name == "Elemwise" else type(self).__name__

    def __repr__(self) -> str:
        parts = (f"{n}={_text(self._values[n])}" for n in self.parameters)
        return f"{type(self).__name__}({', '.join(parts)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self._values, "scope": self.scope}

    def __setstate__(self, state: dict[str, Any]) -> None:
        held = dict(state)
        object.__setattr__(self, "scope", held.pop("scope"))
        object.__setattr__(self, "_values", held)


def _dtype(value: Any) -> DType:
    if isinstance(value, DTypeEnum):
        return graph_dtype(value.name.lower())
    return graph_dtype(value)


def _wire(default: Any, value: Any) -> Any:
    """Return a value in the type that a record's field has, as its default shows it."""
    return DTypeEnum[value.name] if isinstance(default, DTypeEnum) else value


def _text(value: Any) -> str:
    return (
        value.name if isinstance(value, IntEnum) else str(value) if isinstance(value, DType) else repr(value)
    )


class _NoParameterError(UsageError, TypeError):
    """A parameter that an operator does not have."""


class _NoChoiceError(UsageError, RuntimeError):
    """A value that a parameter cannot have."""


class OperatorNodeConfig:
    """How an operator is to be made: its name, the dtype of its outputs, and its devices.

    >>> config = OperatorNodeConfig()
    >>> config.comp_node_arr = ["xpux", "cpu0:1"]
    >>> config.comp_node_arr[1].logical_name
    'cpu0:1'
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._dtype: Any = None
        self._devices: tuple[Device, ...] = ()

    @property
    def dtype(self) -> Any:
        """The numpy dtype, None for the operator's own."""
        return self._dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        self._dtype = None if value is None else numpy_dtype(graph_dtype(value))

    @property
    def comp_node_arr(self) -> tuple[Device, ...]:
        """The devices."""
        return self._devices

    @comp_node_arr.setter
    def comp_node_arr(self, value: Sequence[str]) -> None:
        self._devices = tuple(placed(name) for name in value)

    @property
    def comp_node(self) -> Device:
        """The device, where there is exactly one.

        Raises:
            UsageError: there are none or several.
        """
        if len(self._devices) != 1:
            raise UsageError(
                f"invalid number of comp_node: comp_node is the one device, found {len(self._devices)}; "
                "comp_node_arr has them all"
            )
        return self._devices[0]

    @comp_node.setter
    def comp_node(self, value: str) -> None:
        self._devices = (placed(value),)


# What MegEngine takes apart before it makes a graph


def apply(op: OpDef, *inputs: Any) -> list[Tensor]:
    """Return the outputs of an operator.

    Args:
        op: the operator.
        inputs: its inputs.

    Raises:
        UsageError: `op` is no operator.
        EngineError: it does not take these inputs.
    """
    if not isinstance(op, OpDef):
        raise _NoOperatorError(
            f"expected an operator of loadrun.core.ops.builtin, found {type(op).__name__} {op!r:.60}"
        )
    return op.applied([x if isinstance(x, Tensor) else Tensor(x) for x in inputs])


class _NoOperatorError(UsageError, TypeError):
    """Something else where an operator is meant."""


def _with_axis_of(op: OpDef, inputs: Sequence[Tensor]) -> tuple[Record, ...]:
    """Return the records, an axis counted from the last one counted from the first."""
    axis = op._values.get("axis")
    if not isinstance(axis, int) or axis >= 0 or not inputs:
        return op.records
    front = axis + max(inputs[0].ndim, 1)
    return tuple(r.replace(axis=front) if "axis" in {f.name for f in r.fields()} else r for r in op.records)


def _reduced(op: OpDef, whole: Tensor, source: Tensor) -> Tensor:
    """Return a reduction as MegEngine gives it: of all axes a scalar, of one without that axis where that is asked."""
    axis = op._values["axis"]
    if axis in _NO_AXIS:
        return whole._as_scalar()
    return whole if op._values["keepdim"] else without_axis(whole, axis % max(source.ndim, 1))


def _targeted(op: OpDef, inputs: list[Tensor]) -> list[Tensor]:
    """Add the shape of one number where neither an axis nor an input says what is left."""
    return [*inputs, _numbers([1])] if len(inputs) == 1 and op._values["axis"] in _NO_AXIS else inputs


def _shaped(op: OpDef, inputs: list[Tensor]) -> list[Tensor]:
    """Add the shape that the definition holds, where no input gives it."""
    shape = op._values["shape"]
    return [*inputs, _numbers(shape)] if len(inputs) == 1 and shape else inputs


def _sectioned(op: OpDef, inputs: list[Tensor]) -> list[Tensor]:
    """Add the sizes of equal sections."""
    n = op._values["nsections"]
    if len(inputs) != 1 or n <= 0:
        return inputs
    size = int(inputs[0].shape[op._values["axis"]])
    if size % n:
        raise UsageError(f"{size} elements along axis {op._values['axis']} do not make {n} equal sections")
    return [inputs[0], *(_numbers([size // n]) for _ in range(n))]


def _sliced(op: OpDef, inputs: list[Tensor]) -> list[Tensor]:
    """Add the numbers of slices that the definition holds."""
    held = op._values["slice_items"]
    if not held:
        return inputs
    if len(held) != len(op._values["items"]):
        raise UsageError(f"{len(op._values['items'])} items need as many slice_items, found {len(held)}")
    given, found = iter(inputs[1:]), [inputs[0]]
    for item, numbers in zip(op._values["items"], held, strict=True):
        for wanted, number in zip(item[1:], numbers, strict=True):
            if wanted:
                found.append(_numbers([number]) if number != _FROM_INPUT else next(given))
    return found


def _numbers(values: Sequence[int]) -> Tensor:
    return Tensor(np.asarray(values, np.int32), is_const=True)


_PREPARED: dict[str, Callable[[OpDef, list[Tensor]], list[Tensor]]] = {
    "AdaptivePooling": _shaped,
    "Broadcast": _shaped,
    "Reduce": _targeted,
    "Reshape": _shaped,
    "Split": _sectioned,
    "Subtensor": _sliced,
}


# Making them


def _shown_fields(name: str, op: Op) -> list[Any]:
    """Return the fields of an operator's records that MegEngine's definition shows."""
    hidden = _HIDDEN.get(name, set()) | {"workspace_limit"}
    fields = [f for p in op.params for f in p.fields()]
    return [f for f in fields if f.name not in hidden]


def _class_name(parameter: str) -> str:
    return _CLASSES.get(parameter) or parameter.title().replace("_", "")


@cache
def _choices(enum: type[IntEnum] | type[IntFlag], owner: str, name: str) -> type[EnumValue]:
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": _MODULE,
        "__qualname__": f"{owner}.{name}",
        "__doc__": f"What {name} can be.",
        "_enum": enum,
    }
    made: type[EnumValue] = type(name, (EnumValue,), body)
    for known, member in enum.__members__.items():
        setattr(made, known, made._of(member))
    return made


class _Owners:
    """Enums that several operators share belong to the first, as in MegEngine."""

    def __init__(self) -> None:
        self.known: dict[type[IntEnum] | type[IntFlag], type[EnumValue]] = {}

    def of(self, enum: type[IntEnum] | type[IntFlag], owner: str, name: str) -> type[EnumValue]:
        if enum not in self.known:
            self.known[enum] = _choices(enum, owner, name)
        return self.known[enum]


def _definition(name: str, op: Op, owners: _Owners, **fixed: Any) -> type[OpDef]:
    """Return the class of an operator."""
    parameters: dict[str, _Parameter] = {}
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": _MODULE,
        "__qualname__": name,
        "__doc__": f"Operator {op.name}.",
        "op": op,
        "fixed": fixed,
        "parameters": parameters,
    }
    if fixed:
        parameters["axis"] = _Parameter("axis", ())
        return type(name, (OpDef,), body)
    for field in _shown_fields(name, op):
        parameters[field.name] = _Parameter(field.name, field.default, field.enum)
    for own, default in _OWN.get(name, {}).items():
        parameters[own] = _Parameter(own, default, type(default) if isinstance(default, IntFlag) else None)
    for kind in parameters.values():
        if kind.name == "dtype" and kind.default is not None:
            parameters["dtype"] = _Parameter("dtype", _dtype(kind.default))
        elif kind.enum is not None:
            choices = owners.of(kind.enum, name, _class_name(kind.name))
            body[_class_name(kind.name)] = choices
            parameters[kind.name] = kind._replace(choices=choices)
    return type(name, (OpDef,), body)


def _all() -> dict[str, type[OpDef]]:
    kinds: dict[str, Op] = {}
    for op in CATALOG.values():
        if op.family:
            kinds.setdefault(op.class_name.removesuffix("Forward"), op)
    axes = kinds.pop("AxisAddRemove")
    owners = _Owners()
    order = sorted(kinds, key=lambda name: (name in _NEWER, name))
    found = {name: _definition(name, kinds[name], owners) for name in order}
    for name, method in (("AddAxis", 0), ("RemoveAxis", 1)):
        found[name] = _definition(name, axes, owners, method=method)
    return found


DEFINITIONS: dict[str, type[OpDef]] = _all()
"""The operators by name."""
