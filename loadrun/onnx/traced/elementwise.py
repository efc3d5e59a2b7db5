"""Activations, softmax, quotients of integers, and modes of Elemwise that ONNX lacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ...graph import Opr, Var
from ...graph import params as P
from ...graph.composite import Composite
from ...graph.dtypes import Array, DType, plain
from ...layers import emit as e
from ...layers.emit import M
from ...layers.shared import nn as layers
from ...ops.elemwise.table import ARITY
from ...tensors import Tensor
from ...tensors.access import dtype_of
from ..encode import NodeMessage
from ..operators import activations, functions, kernels, reductions
from ..operators.common import refuse_where
from ..writing.elemwise import whole_numbers
from ..writing.elemwise_float import compose
from ..writing.emitter import NodeEmitter, UnsupportedOprError
from . import instead, operand

__all__: list[str] = []


def _mode(mode: Any) -> Any:
    def recorded(x: Any) -> Tensor:
        return e.elem(mode, operand(x))

    return recorded


instead("Relu")(_mode(M.RELU))
instead("HardSwish")(_mode(M.H_SWISH))
instead(functions.softplus)(_mode(M.SOFTPLUS))
instead(activations.sigmoid)(_mode(M.SIGMOID))
instead(activations.silu)(_mode(M.SILU))
instead(kernels.erf)(_mode(M.ERF))


@instead(kernels.gelu)
def gelu(x: Any) -> Tensor:
    return layers.gelu(operand(x))


instead("Swish")(lambda x, *, alpha=1.0: layers.swish(operand(x), alpha))
instead("QuickGelu", domain="com.microsoft")(lambda x, *, alpha=1.702: layers.swish(operand(x), alpha))


@instead(activations.softmax)
def softmax(x: Any, axis: int = -1, *, guard: bool = False) -> Any:
    if not x.size:
        return x
    return layers.softmax(operand(x), axis % max(x.ndim, 1), guard=guard)


@instead(reductions.log_softmax)
def log_softmax(x: Any, axis: int) -> Any:
    return layers.log_softmax(operand(x), axis % max(x.ndim, 1)) if x.size else x


instead("HardSigmoid")(lambda x, *, alpha=0.2, beta=0.5: layers.hard_sigmoid(operand(x), alpha, beta))


@instead(functions.scaled_elu)
def elu(x: Any, alpha: float, gamma: float = 1, steepness: float = 1) -> Tensor:
    return layers.elu(operand(x), alpha, gamma, steepness)


instead("LeakyRelu")(lambda x, *, alpha=0.01: layers.prelu(operand(x), alpha))


@instead("PRelu", since=7)
def prelu(x: Any, slope: Any) -> Any:
    return layers.prelu(operand(x), operand(slope)) if x.dtype.kind == "f" else NotImplemented


_LT, _NEQ = P.ElemwiseMultiTypeMode.LT, P.ElemwiseMultiTypeMode.NEQ


def _divided(x: Any, y: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the operands, the remainder of MegEngine, and 1 where a quotient rounded down is not the one wanted.

    None instead of that for unsigned integers.
    """
    if isinstance(y, np.ndarray):
        refuse_where(y == 0, "whole numbers are divided by 0", ZeroDivisionError)
    n, d = operand(x), operand(y)
    if dtype_of(n).name == "Uint16":
        # Which MegEngine stores alone.
        n, d = e.whole(n), e.whole(d)
    rest = e.elem(M.MOD, n, d)
    if x.dtype.kind == "u":
        return n, d, rest, None
    zero = e.number(0, n)
    turned = e.elem(M.XOR, e.compare(_LT, n, zero), e.compare(_LT, rest, zero))
    return n, d, rest, e.cast(e.elem(M.AND, e.compare(_NEQ, rest, zero), turned), dtype_of(n))


@instead("Div")
def div(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, _, beyond = _divided(x, y)
    quotient = e.elem(M.FLOOR_DIV, n, d)
    return quotient if beyond is None else e.elem(M.ADD, quotient, beyond)


@instead("Mod", since=10)
def mod(x: Any, y: Any, *, fmod: int = 0) -> Any:
    if x.dtype.kind == "f":
        return NotImplemented
    n, d, rest, beyond = _divided(x, y)
    if beyond is None or not fmod:
        return rest
    return e.elem(M.SUB, rest, e.elem(M.COND_LT_MOV, e.number(0, n), beyond, d))


# What `loadrun.onnx.writing` writes for a mode of Elemwise that ONNX lacks, read again as that mode.
#
# The patterns are what the writer itself writes for placeholders, so that both stay the same.

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
        value = _stored(var)
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


def _stored(var: Var) -> Array | None:
    opr = var.owner
    return opr.tensors[0].value() if opr.tensors and opr.type != "Host2DeviceCopy" else None


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
