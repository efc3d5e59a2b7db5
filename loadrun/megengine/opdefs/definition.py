"""`OpDef`: an operator with its parameters, applied to inputs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar

from ...base.errors import UsageTypeError
from ...graph import Opr, Var
from ...graph.dtypes import DType
from ...graph.params import AxisDesc, DTypeEnum, Record
from ...ops.catalog import Op
from ...tensors.access import as_scalar
from ...tensors.apply import apply as apply_type
from ...tensors.device import placed
from ...tensors.reducing import without_axis
from ...tensors.value import Tensor
from .handles import drawing
from .inputs import NO_AXIS, PREPARED
from .parameters import OWN_PARAMETERS, OpParameter

__all__ = ["OpDef", "apply"]


class OpDef:
    """One operator with its parameters; subclasses are named as MegEngine names them.

    Definitions of equal parameters are equal and have one hash. Parameters are attributes, which may be assigned.

    Args:
        values: parameters in MegEngine's order.
        named: parameters by name; enums as members or as names, of any case.

    Raises:
        UsageError: no parameter of this operator, or a value that it cannot have.

    >>> from loadrun import tensor
    >>> from loadrun.megengine.opdefs import DEFINITIONS, apply
    >>> add = DEFINITIONS["Elemwise"](mode="add")
    >>> apply(add, tensor([1.0]), tensor([2.0]))[0].tolist()
    [3.0]
    >>> add == DEFINITIONS["Elemwise"]("ADD"), str(add)
    (True, 'ADD')
    """

    __slots__ = ("_values", "scope")
    op: ClassVar[Op]
    parameters: ClassVar[dict[str, OpParameter]] = {}
    fixed: ClassVar[dict[str, Any]] = {}
    _values: dict[str, Any]
    scope: str

    def __init__(self, *values: Any, **named: Any) -> None:
        known = type(self).parameters
        if len(values) > len(known):
            raise UsageTypeError(
                f"{type(self).__name__} has {len(known)} parameters, found {len(values)} values"
            )
        arguments = dict(zip(known, values, strict=False))
        if twice := [n for n in named if n in arguments]:
            raise UsageTypeError(f"{twice[0]} of {type(self).__name__} is given by place and by name")
        arguments.update(named)
        if unknown := [n for n in arguments if n not in known]:
            raise self._no_parameter(", ".join(unknown))
        object.__setattr__(self, "scope", "")
        object.__setattr__(self, "_values", {n: p.default for n, p in known.items()})
        for name, value in arguments.items():
            self._values[name] = known[name].checked(value)

    def _no_parameter(self, name: str) -> UsageTypeError:
        known = ", ".join(type(self).parameters) or "none"
        return UsageTypeError(f"{type(self).__name__} has no parameter {name}; it has {known}")

    @property
    def records(self) -> tuple[Record, ...]:
        """The parameters as graphs hold them."""
        values = dict(self._values)
        if self.op.name == "AxisAddRemove":
            values["desc"] = tuple(AxisDesc(self.fixed["method"], int(a)) for a in values.pop("axis"))
        params = []
        for kind in self.op.params:
            params.append(
                kind(**{f.name: _wire(f.default, values[f.name]) for f in kind.fields() if f.name in values})
            )
        return tuple(params)

    @property
    def output_dtype(self) -> DType | None:
        """The dtype that the operator is configured to give."""
        return self._values["dtype"] if "dtype" in OWN_PARAMETERS.get(type(self).__name__, ()) else None

    def applied(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the outputs for some inputs."""
        kind = type(self).__name__
        prepare, alone = PREPARED.get(kind), len(inputs) == 1
        if prepare is not None:
            inputs = prepare(self._values, inputs)
        records = drawing(self._values.get("handle", 0), _with_axis_of(self, inputs))
        probe = Opr(self.op.name, records)
        probe.inputs = [Var(i, probe, 0) for i in range(len(inputs))]
        n = self.op.n_outputs(probe)
        # An empty name stands for no device.
        place = placed(self._values.get("comp_node") or None)
        outputs = apply_type(
            self.op.name, *records, inputs=inputs, n=n, output_dtype=self.output_dtype, place=place
        )
        return [_reduced(self, outputs[0], inputs[0])] if kind == "Reduce" and alone else outputs

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
        values = dict(state)
        object.__setattr__(self, "scope", values.pop("scope"))
        object.__setattr__(self, "_values", values)


def _wire(default: Any, value: Any) -> Any:
    """Return a value in the type that a record's field has, as its default shows it."""
    return DTypeEnum[value.name] if isinstance(default, DTypeEnum) else value


def _text(value: Any) -> str:
    return (
        value.name if isinstance(value, IntEnum) else str(value) if isinstance(value, DType) else repr(value)
    )


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
        raise UsageTypeError(
            f"expected an operator of loadrun.megengine.core.ops.builtin, found {type(op).__name__} {op!r:.60}"
        )
    return op.applied([x if isinstance(x, Tensor) else Tensor(x) for x in inputs])


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
    if axis in NO_AXIS:
        return as_scalar(whole)
    return whole if op._values["keepdim"] else without_axis(whole, axis % max(source.ndim, 1))
