"""Small graphs with a check whose error graph a test makes up: ``y = -x`` against an expected value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loadrun import Bundle
from loadrun.graph import Graph, StoredTensor, Var
from loadrun.graph.dtypes import DType, encode
from loadrun.graph.params import AssertEqual, Elemwise, ElemwiseMode as M, Host2DeviceCopy, Reduce, ReduceMode

F32, F16, I32, I16, I8, U8, B = (
    DType(n) for n in ("Float32", "Float16", "Int32", "Int16", "Int8", "Uint8", "Bool")
)
N = 6
RIGHT = -np.arange(1, N + 1, dtype="f4")


def feed(g: Graph, name: str, shape: tuple[int, ...] = (N,), dtype: DType = F32) -> Var:
    return g.add(
        "Host2DeviceCopy", Host2DeviceCopy(), tensors=[StoredTensor(dtype, shape, name)], names=[name]
    )[0]


def constant(g: Graph, value: float, dtype: DType = F32, shape: tuple[int, ...] = (1,)) -> Var:
    stored = StoredTensor(dtype, shape, None, encode(np.full(shape, value, dtype.np), dtype))
    return g.add("ImmutableTensor", tensors=[stored])[0]


def elem(g: Graph, mode: M, *inputs: Var) -> Var:
    return g.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]


def reduced(g: Graph, x: Var, mode: ReduceMode = ReduceMode.MAX, to: int = 1) -> Var:
    return g.add("ReduceV2", Reduce(mode=mode), inputs=[x, constant(g, to, I32)])[0]


def ratio(g: Graph, e: Var, y: Var, one: float = 1.0, dtype: DType = F32, division: M = M.TRUE_DIV) -> Var:
    """``|e - y| / max(one, min(|e|, |y|))`` without the maximum, as MegEngine writes it."""
    top = elem(g, M.ABS, elem(g, M.SUB, e, y))
    least = elem(g, M.MIN, elem(g, M.ABS, y), elem(g, M.ABS, e))
    return elem(g, division, top, elem(g, M.MAX, constant(g, one, dtype), least))


Measure = Callable[[Graph, Var, Var], Var]


def bundle_of(measure: Measure, maxerr: float = 1e-3, shape: tuple[int, ...] = (N,)) -> Bundle:
    """``y = -x`` with a check whose error is what `measure` makes of expected and computed value."""
    g = Graph()
    e, x = feed(g, "y:expect", shape), feed(g, "x")
    (y,) = g.add("Elemwise", Elemwise(mode=M.NEGATE), inputs=[x], names=["y"])
    g.outputs = g.add("AssertEqual", AssertEqual(maxerr=maxerr), inputs=[e, y, measure(g, e, y)])
    return Bundle(g)


def standard(g: Graph, e: Var, y: Var) -> Var:
    return reduced(g, ratio(g, e, y))
