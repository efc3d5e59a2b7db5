"""What `loadrun.onnx.writing` writes for a mode of Elemwise that ONNX lacks, read again as that mode.

The patterns are what the writer itself writes for placeholders, so that both stay the same.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ...graph import Opr, Var
from ...graph.composite import Composite
from ...graph.dtypes import Array, DType, plain
from ...graph.params import ElemwiseMode as M
from ...ops.elemwise.table import ARITY
from ..encode import NodeMessage
from ..writing.elemwise import whole_numbers
from ..writing.elemwise_float import compose
from ..writing.emitter import NodeEmitter, UnsupportedOprError

_REAL = (M.LOG1P, M.EXPM1, M.ATAN2)
_WHOLE = (M.ADD, M.SUB, M.MUL, M.FLOOR_DIV, M.MOD, M.SHL, M.SHR, M.ABS, M.NEGATE, M.SIGN, M.MAX, M.MIN)
_INTEGERS = ("Int8", "Uint8", "Int16", "Int32")


@dataclass
class Pattern:
    """The nodes that are written for a mode.

    Attributes:
        mode: the mode.
        dtype: the type of its operands.
        inputs: the names of the operands.
        output: the name of the result.
        nodes: the nodes by the name of what they compute.
        constants: the constants by name.
    """

    mode: M
    dtype: DType
    inputs: tuple[str, ...]
    output: str
    nodes: dict[str, NodeMessage] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def operands(self, var: Var) -> list[Var] | None:
        """Return the operands of the mode where a variable is computed by these nodes, else None."""
        found: dict[str, Var] = {}
        return [found[n] for n in self.inputs] if self._fits(self.output, var, found) else None

    def _fits(self, name: str, var: Var, found: dict[str, Var]) -> bool:
        if name in self.inputs:
            return found.setdefault(name, var) is var and var.dtype == self.dtype
        opr = var.owner
        value = opr.tensors[0].value() if opr.tensors and opr.type != "Host2DeviceCopy" else None
        if name in self.constants:
            return value is not None and np.array_equal(value.reshape(-1), self.constants[name].reshape(-1))
        node, p = self.nodes[name], var.owner.params[0] if var.owner.params else None
        if value is not None:
            # A constant that was converted when it was written.
            (inner,) = node.inputs[:1]
            fits = np.array_equal(value, value.astype(self.dtype.np))
            return (
                node.op_type == "Cast"
                and inner in self.inputs
                and fits
                and found.setdefault(inner, var) is var
            )
        if (
            not isinstance(p, Composite)
            or p.title != node.op_type
            or len(var.owner.inputs) != len(node.inputs)
        ):
            return False
        if p.attributes != node.attributes:
            return False
        return all(self._fits(n, v, found) for n, v in zip(node.inputs, var.owner.inputs, strict=True))


@cache
def _patterns(opset: int) -> dict[str, list[Pattern]]:
    """Return the patterns of an opset by the operator of the last node."""
    found: dict[str, list[Pattern]] = defaultdict(list)
    for pattern in _written(opset):
        if len(pattern.nodes) > 1:
            found[pattern.nodes[pattern.output].op_type].append(pattern)
    return found


def _written(opset: int) -> Iterator[Pattern]:
    for mode, name in [*((m, "Float32") for m in _REAL), *((m, n) for n in _INTEGERS for m in _WHOLE)]:
        dtype, emitter = plain(name), NodeEmitter(opset)
        inputs = tuple(f"operand {i}" for i in range(ARITY[mode]))
        try:
            real = dtype.is_float
            output = (
                compose(emitter, mode, *inputs) if real else whole_numbers(emitter, mode, dtype, list(inputs))
            )
        except UnsupportedOprError:
            continue
        nodes = {n.outputs[0]: n for n in emitter.nodes}
        stored = {n: t.value for n, t in emitter.initializers.items() if t.value is not None}
        yield Pattern(mode, dtype, inputs, output, nodes, stored)


def as_mode(opr: Opr) -> tuple[Pattern, list[Var]] | None:
    """Return the pattern of which an operator is the last node, and the operands; None where it is of none."""
    p = opr.params[0] if opr.params else None
    if isinstance(p, Composite) and not p.definition.domain:
        for pattern in _patterns(p.types.opset).get(p.title, ()):
            operands = pattern.operands(opr.outputs[0])
            if operands is not None:
                return pattern, operands
    return None
