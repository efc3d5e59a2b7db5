"""Pointwise operators as instructions of `compiled.chain`: which there are, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from ..graph.composite import Composite
from ..graph.dtypes import Array
from ..graph.params import ConvBias, Elemwise, NonlineMode
from ..graph.params import ElemwiseMode as M
from ..ops.registry import Shape
from .compiled import OPERANDS, REGISTERS, Op
from .program import Step

Value = int | float
"""An instruction's result by its number, or a number that is the same in every run."""
_EMPTY = np.zeros(0, np.float32)
_DEAR = {Op.EXP, Op.SIGMOID, Op.TANH, Op.ERF}
"""What alone takes numpy longer than one pass."""


class _Instruction(NamedTuple):
    op: Op
    x: int = -1
    y: int = -1
    p: float = 0.0
    q: float = 0.0


_Code = tuple[int, int, int, int, float, float]
_OUTPUT = _Instruction(Op.LOAD)
"""Reads the output as it was before."""


class Chain:
    """Pointwise operators on arrays that broadcast to one shape, as instructions.

    Args:
        shape: the output's.
        current: the variable that the output holds before, None without one.
        constants: values that are the same in every run.
        shapes: of variables.

    Attributes:
        operands: variables that it reads, in order.
        code, numbers, places: what `compiled.chain` takes; there once it is closed.
    """

    code: Array
    numbers: Array
    places: Array

    def __init__(
        self, shape: Shape, current: int | None, constants: Mapping[int, Array], shapes: Mapping[int, Shape]
    ) -> None:
        self.shape, self.constants, self.shapes = shape, constants, shapes
        self.operands: list[int] = []
        self._list: list[_Instruction] = []
        self._values: dict[int, Value] = {}
        if current is not None:
            self._values[current] = self.add_op(Op.LOAD)

    # What operators are made of

    def add_op(self, op: Op, x: Value = -1, y: Value = -1, p: float = 0.0, q: float = 0.0) -> int:
        """Append an instruction; return the number of its result."""
        self._list.append(_Instruction(op, self._register(x), self._register(y), float(p), float(q)))
        return len(self._list) - 1

    def _register(self, x: Value) -> int:
        if isinstance(x, int):
            return x
        raise _Unfit

    def value(self, var: int) -> Value:
        """Return a variable's value, loading it before its first use.

        Raises:
            _Unfit: it does not lie beside the output, or there are too many.
        """
        if var not in self._values:
            constant = self.constants.get(var)
            if constant is not None and constant.size == 1:
                self._values[var] = float(constant.reshape(()))
            else:
                self._values[var] = self.add_op(Op.LOAD, self.operand(var))
        return self._values[var]

    def operand(self, var: int) -> int:
        """Return the place of a variable among the operands."""
        if var not in self.operands:
            if place(self.shapes[var], self.shape) is None or len(self.operands) == OPERANDS:
                raise _Unfit
            self.operands.append(var)
        return self.operands.index(var)

    def affine(self, x: Value, p: float, q: float) -> Value:
        """Compute ``x * p + q``."""
        return x * p + q if isinstance(x, float) else self.add_op(Op.AFFINE, x, p=p, q=q)

    def clip(self, x: Value, low: float, high: float) -> Value:
        """Keep between two numbers."""
        before = self._list[x] if isinstance(x, int) else None
        if before is not None and before.op is Op.CLIP and max(low, before.p) <= min(high, before.q):
            return self.add_op(Op.CLIP, before.x, p=max(low, before.p), q=min(high, before.q))
        return self.add_op(Op.CLIP, x, p=low, q=high)

    def add(self, x: Value, y: Value) -> Value:
        """Add."""
        if isinstance(y, float):
            return self.affine(x, 1, y)
        return self.affine(y, 1, x) if isinstance(x, float) else self.add_op(Op.ADD, x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Subtract."""
        if isinstance(y, float):
            return self.affine(x, 1, -y)
        return self.affine(y, -1, x) if isinstance(x, float) else self.add(x, self.affine(y, -1, 0))

    def mul(self, x: Value, y: Value) -> Value:
        """Multiply."""
        if isinstance(y, float):
            return self.affine(x, y, 0)
        return self.affine(y, x, 0) if isinstance(x, float) else self.add_op(Op.MUL, x, y)

    def div(self, x: Value, y: Value) -> Value:
        """Divide."""
        return self.add_op(Op.OVER, x, p=y) if isinstance(y, float) else self.add_op(Op.DIV, x, y)

    def least(self, x: Value, y: Value) -> Value:
        """Take the smaller one."""
        if isinstance(y, float):
            return self.clip(x, -inf, y)
        if isinstance(x, float):
            return self.clip(y, -inf, x)
        return self.affine(self.most(self.affine(x, -1, 0), self.affine(y, -1, 0)), -1, 0)

    def most(self, x: Value, y: Value) -> Value:
        """Take the larger one."""
        if isinstance(y, float):
            return self.clip(x, y, inf)
        return self.clip(y, x, inf) if isinstance(x, float) else self.add_op(Op.MAX, x, y)

    def gate(self, x: Value) -> Value:
        """Compute (x + 3) / 6 between 0 and 1; the sum first, which is exact near -3."""
        return self.affine(self.clip(self.affine(x, 1, 3), 0, 6), 1 / 6, 0)

    # From steps to code

    def begin(self, s: Step) -> bool:
        """Add the bias and nonlinearity of a convolution's step; return False if they do not fit."""
        if s.call.opr.type != "ConvBiasForwardV4":
            return True
        mode = s.call.opr.get(ConvBias).nonlineMode
        current = self._values[s.writes[0]]
        try:
            current = self.add(current, self.value(s.reads[2])) if len(s.reads) > 2 else current
            if mode != NonlineMode.IDENTITY:
                current = MODES[M[mode.name]](self, current)
        except _Unfit:
            return False
        self._values[s.writes[0]] = current
        return True

    def follow(self, found: Member) -> bool:
        """Add a pointwise step; return False if it does not fit."""
        try:
            inputs = [None if v is None else self.value(v) for v in found.inputs]
            self._values[found.output] = found.compute(self, *inputs)
        except _Unfit:
            return False
        return True

    def close(self, result: int) -> bool:
        """Make the code that ends with a variable; return False if registers do not suffice."""
        last = self._values[result]
        if isinstance(last, float):
            return False
        first = self._in_place(last)
        code = [] if self._list[last] == _OUTPUT else self._allocated(last)
        if code is None:
            return False
        self.code = np.array([c[:4] for c in first + code], np.int32).reshape(-1, 4)
        self.numbers = np.array([c[4:] for c in first + code], np.float32).reshape(-1, 2)
        places = [place(self.shapes[v], self.shape) for v in self.operands]
        self.places = np.array(places, np.int64).reshape(-1, 2)
        return True

    def _users(self, last: int) -> dict[int, list[int]]:
        """Return by result which instructions read it, of those that lead to the last one."""
        users: dict[int, list[int]] = {last: []}
        for i in range(last, -1, -1):
            ins = self._list[i]
            for v in {ins.x, ins.y} - {-1} if i in users and ins.op is not Op.LOAD else ():
                users.setdefault(v, []).append(i)
        return users

    def _in_place(self, last: int) -> list[_Code]:
        """Turn bias, rounding and bounds that come first into a change of the output itself."""
        users = self._users(last)
        start = next((i for i in sorted(users) if self._list[i] == _OUTPUT), None)
        if start is None or len(users[start]) != 1:
            return []
        (at,) = users[start]
        ins = self._list[at]
        bias = self._list[ins.y if ins.x == start else ins.x]
        if ins.op is not Op.ADD or bias.op is not Op.LOAD or self._place(bias.x)[0] == 1:
            return []
        op, low, high = Op.BIAS, -inf, inf
        if self._only(users, at) is Op.RINT:
            op, at = Op.ROUNDED_BIAS, users[at][0]
        if self._only(users, at) is Op.CLIP:
            at = users[at][0]
            low, high = self._list[at].p, self._list[at].q
        self._list[at] = _OUTPUT
        return [(op, 0, bias.x, 0, low, high)]

    def _only(self, users: Mapping[int, list[int]], i: int) -> Op | None:
        """Return what alone reads a result, None if several instructions do."""
        return self._list[users[i][0]].op if len(users[i]) == 1 else None

    def _place(self, operand: int) -> tuple[int, int]:
        return place(self.shapes[self.operands[operand]], self.shape) or (1, 1)

    def _allocated(self, last: int) -> list[_Code] | None:
        """Give every result a register other than those that its instruction reads; None if they do not suffice."""
        users = self._users(last)
        free, where = list(range(REGISTERS)), dict[int, int]()
        code: list[_Code] = []
        for i in sorted(users):
            op, x, y, p, q = self._list[i]
            if not free:
                return None
            where[i] = to = free.pop()
            if op is not Op.LOAD:
                free += [where[v] for v in {x, y} - {-1} if max(users[v]) == i and v != last]
                x, y = where[x], where.get(y, 0)
            code.append((op, to, x, y, p, q))
        return [*code, (Op.STORE, 0, where[last], 0, 0, 0)]

    def taken_over(self, points: int, channels: int) -> tuple[int | None, bool, float, float]:
        """Leave a bias of channels, rounding and bounds to the convolution itself.

        Returns:
            the bias among the operands, whether sums are rounded, and their bounds.
        """
        if not len(self.code) or self.code[0, 0] not in (Op.BIAS, Op.ROUNDED_BIAS):
            return None, False, -inf, inf
        op, _, bias, _ = self.code[0].tolist()
        if self.places[bias].tolist() != [points, channels]:
            return None, False, -inf, inf
        low, high = self.numbers[0].tolist()
        self.code, self.numbers = self.code[1:], self.numbers[1:]
        return bias, op == Op.ROUNDED_BIAS, low, high

    @property
    def worth(self) -> bool:
        """Whether it takes numpy longer: several operators, or one of many instructions."""
        ops = [ins.op for ins in self._list if ins.op is not Op.LOAD]
        return len(ops) > 1 or bool(_DEAR.intersection(ops))

    @property
    def reads(self) -> tuple[int, ...]:
        """The variables that a step of it reads."""
        return tuple(self.operands)

    def runner(self) -> Callable[[Sequence[Array]], list[Array]]:
        """Return a function that makes operands of what the step reads."""
        fixed = [flat(self.constants[v]) if v in self.constants else None for v in self.operands]
        more = [_EMPTY] * (OPERANDS - len(fixed))

        def operands(args: Sequence[Array]) -> list[Array]:
            return [flat(a) if f is None else f for a, f in zip(args, fixed, strict=True)] + more

        return operands


class _Unfit(Exception):
    """Raised where an operator does not fit into a chain; caught here."""


def flat(x: Array) -> Array:
    """Return the elements as kernels take them, copied where they do not lie in order."""
    return (x if x.flags.c_contiguous and x.flags.aligned else x.copy()).reshape(-1)


def place(own: Shape, shape: Shape) -> tuple[int, int] | None:
    """Return how often each element of an operand repeats, and how many there are; None if it is not that simple.

    >>> place((3, 1, 1), (2, 3, 4, 5)), place((5,), (2, 5)), place((2, 1, 4), (2, 3, 4))
    ((20, 3), (1, 5), None)
    """
    if len(own) > len(shape):
        return None
    wide = (1,) * (len(shape) - len(own)) + own
    axes = [i for i, n in enumerate(wide) if n != 1]
    if not axes:
        return prod(shape), 1
    band = slice(axes[0], axes[-1] + 1)
    return (prod(shape[band.stop :]), prod(own)) if wide[band] == shape[band] else None


class Member(NamedTuple):
    """A pointwise step.

    Attributes:
        output: what it writes.
        shape: the shape of that.
        compute: appends its instructions to a chain.
        inputs: what it reads, None for inputs that are left out.
    """

    output: int
    shape: Shape
    compute: Callable[..., Value]
    inputs: list[int | None]


def member(s: Step, shapes: Mapping[int, Shape]) -> Member | None:
    """Return how a step becomes part of a chain, None if it cannot."""
    opr = s.call.opr
    if (
        s.guard is not None
        or s.merges
        or len(s.writes) != 1
        or any(v not in shapes for v in (*s.reads, *s.writes))
    ):
        return None
    if any(d.name != "Float32" for d in (*s.call.inputs, *s.call.outputs)):
        return None
    if opr.type == "Elemwise":
        compute = MODES.get(opr.get(Elemwise).mode)
        return None if compute is None else Member(s.writes[0], shapes[s.writes[0]], compute, list(s.reads))
    p = opr.param if opr.type == "CompositePointwise" else None
    if not isinstance(p, Composite) or p.definition.domain or p.definition.name not in _COMPOSITES:
        return None
    made = _COMPOSITES[p.definition.name]
    reads = iter(s.reads)
    inputs = [next(reads) if here else None for here in p.present]
    return Member(s.writes[0], shapes[s.writes[0]], lambda c, *xs: made(c, p.attributes, *xs), inputs)


def _one(op: Op) -> Callable[[Chain, Value], Value]:
    return lambda c, x: c.add_op(op, x)


def _normal(c: Chain, x: Value) -> Value:
    """Multiply by the normal distribution function."""
    return c.mul(x, c.affine(c.add_op(Op.ERF, c.affine(x, 0.5**0.5, 0)), 0.5, 0.5))


def _leaky(c: Chain, a: Mapping[str, Any], x: Value) -> Value:
    slope = a.get("alpha", 0.01)
    if slope > 1:
        raise _Unfit
    return c.most(x, c.affine(x, slope, 0))


def _h_swish(c: Chain, x: Value) -> Value:
    return c.mul(x, c.gate(x))


_RELU = (0.0, inf)
MODES: dict[M, Callable[..., Value]] = {
    M.ABS: lambda c, x: c.most(x, c.affine(x, -1, 0)),
    M.ADD: Chain.add,
    M.CLIP: lambda c, x, low, high: c.least(c.most(x, low), high),
    M.ERF: _one(Op.ERF),
    M.EXP: _one(Op.EXP),
    M.FUSE_ADD_H_SWISH: lambda c, x, y: _h_swish(c, c.add(x, y)),
    M.FUSE_ADD_RELU: lambda c, x, y: c.clip(c.add(x, y), *_RELU),
    M.FUSE_ADD_SIGMOID: lambda c, x, y: c.add_op(Op.SIGMOID, c.add(x, y)),
    M.FUSE_ADD_TANH: lambda c, x, y: c.add_op(Op.TANH, c.add(x, y)),
    M.FUSE_MUL_ADD3: lambda c, x, y, z: c.add(c.mul(x, y), z),
    M.FUSE_MUL_ADD4: lambda c, x, y, z, w: c.add(c.mul(x, y), c.mul(z, w)),
    M.GELU: _normal,
    M.HSIGMOID: lambda c, x: c.gate(x),
    M.H_SWISH: _h_swish,
    M.MAX: Chain.most,
    M.MIN: Chain.least,
    M.MUL: Chain.mul,
    M.NEGATE: lambda c, x: c.affine(x, -1, 0),
    M.RELU: lambda c, x: c.clip(x, *_RELU),
    M.RELU6: lambda c, x: c.clip(x, 0, 6),
    M.SIGMOID: _one(Op.SIGMOID),
    M.SILU: lambda c, x: c.mul(x, c.add_op(Op.SIGMOID, x)),
    M.SQRT: _one(Op.SQRT),
    M.SQUARE: lambda c, x: c.mul(x, x),
    M.SUB: Chain.sub,
    M.TANH: _one(Op.TANH),
    M.TRUE_DIV: Chain.div,
}


def _clip(
    c: Chain, a: Mapping[str, Any], x: Value, low: Value | None = None, high: Value | None = None
) -> Value:
    low, high = a.get("min", low), a.get("max", high)
    x = x if low is None else c.most(x, low)
    return x if high is None else c.least(x, high)


def _pair(c: Chain, a: Mapping[str, Any], x: Value) -> Value:
    x = c.div(x, float(a["divide"])) if "divide" in a else x
    x = c.clip(c.add_op(Op.RINT, x), a["low"], a["high"])
    return c.mul(x, float(a["multiply"])) if "multiply" in a else x


def _gelu(c: Chain, a: Mapping[str, Any], x: Value) -> Value:
    if a.get("approximate", "none") == "none":
        return _normal(c, x)
    cube = c.affine(c.mul(x, x), 0.044715 * 0.7978845608, 0.7978845608)
    return c.mul(c.affine(x, 0.5, 0), c.affine(c.add_op(Op.TANH, c.mul(x, cube)), 1, 1))


_COMPOSITES: dict[str, Callable[..., Value]] = {
    "Clip": _clip,
    "Gelu": _gelu,
    "HardSigmoid": lambda c, a, x: c.clip(c.affine(x, a.get("alpha", 0.2), a.get("beta", 0.5)), 0, 1),
    "HardSwish": lambda c, a, x: _h_swish(c, x),
    "LeakyRelu": _leaky,
    "QuantizeLinear, DequantizeLinear": _pair,
    "Round": lambda c, a, x: c.add_op(Op.RINT, x),
}
