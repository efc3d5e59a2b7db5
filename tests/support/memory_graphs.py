"""Graphs whose memory can be counted by hand, and random ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from loadrun.graph import Graph, StoredTensor, Var, params as P
from loadrun.graph.dtypes import DType
from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy

Array = np.ndarray[Any, Any]
F32 = DType("Float32")
UNARY = (ElemwiseMode.EXP, ElemwiseMode.TANH, ElemwiseMode.NEGATE, ElemwiseMode.SIGMOID)
BINARY = (ElemwiseMode.ADD, ElemwiseMode.MUL, ElemwiseMode.MAX)


class Builder:
    """A graph in the making; every value has float32 elements."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, shape: tuple[int, ...], name: str = "x") -> Var:
        tensors = [StoredTensor(F32, shape, name)]
        return self.graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=tensors)[0]

    def constant(self, value: Array) -> Var:
        data = np.ascontiguousarray(value, "<f4")
        tensor = StoredTensor(F32, data.shape, None, data.reshape(-1).view(np.uint8))
        return self.graph.add("ImmutableTensor", tensors=[tensor])[0]

    def elemwise(self, mode: ElemwiseMode, *inputs: Var) -> Var:
        return self.graph.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]

    def concat(self, *inputs: Var, axis: int = 0) -> Var:
        return self.graph.add("Concat", P.Axis(axis=axis), inputs=inputs)[0]

    def sum(self, x: Var, axis: int = 0) -> Var:
        return self.graph.add("ReduceV2", P.Reduce(mode=P.ReduceMode.SUM, axis=axis), inputs=[x])[0]

    def flip(self, x: Var) -> Var:
        """The axes of a matrix swapped: a view."""
        return self.graph.add("Dimshuffle", P.Dimshuffle(pattern=(1, 0), ndim=2), inputs=[x])[0]

    def halves(self, x: Var, rows: int) -> list[Var]:
        """The first rows and the others: two views."""
        sizes = [self.ints(rows - rows // 2), self.ints(rows // 2)]
        return self.graph.add("Split", P.Axis(axis=0), inputs=[x, *sizes], n_outputs=2)

    def concat_half(self, x: Var, rows: int) -> Var:
        """The halves of a matrix in the other order: new memory of the same size."""
        first, second = self.halves(x, rows)
        return self.concat(second, first)

    def norm(self, x: Var, columns: int) -> list[Var]:
        """Rows normalized, their means and their deviations."""
        p = P.LayerNorm(affine=False, eps=1e-3, normalized_dim=1, normalized_size=columns)
        return self.graph.add("LayerNorm", p, inputs=[x], n_outputs=3)

    def column(self, x: Var, rows: int) -> Var:
        return self.graph.add("ReshapeV1", P.OptionalAxisV1(), inputs=[x, self.ints(rows, 1)])[0]

    def ints(self, *values: int) -> Var:
        data = np.array(values, "<i4")
        tensor = StoredTensor(DType("Int32"), data.shape, None, data.view(np.uint8))
        return self.graph.add("ImmutableTensor", tensors=[tensor])[0]

    def random(self, *shape: int) -> Var:
        return self.graph.add("UniformRNGV1", P.UniformRNG(seed=3), inputs=[self.ints(*shape)])[0]


def random_graph(rng: random.Random, n: int, *, draws: bool = False, flips: bool = True) -> Graph:
    """A graph of about `n` operators that joins all its values into one scalar.

    Args:
        draws: whether random operators are among them.
        flips: whether transpositions are, whose results later kernels cannot write into.
    """
    b = Builder()
    values: list[tuple[Var, int, int]] = [(b.input((4, 6)), 4, 6)]
    kinds = ["unary", "binary", "binary", "concat", "sum", "flip", "halves", "norm"] + ["random"] * draws
    for _ in range(n):
        # Recent values are likelier, so that there are long chains and a few long skips.
        x, rows, columns = values[-min(int(rng.expovariate(0.4)) + 1, len(values))]
        same = [v for v, *shape in values if shape == [rows, columns]]
        beside = [(v, r) for v, r, c in values if c == columns and r + rows <= 64]
        kind = rng.choice(kinds)
        if kind == "unary":
            values.append((b.elemwise(rng.choice(UNARY), x), rows, columns))
        elif kind == "binary":
            values.append((b.elemwise(rng.choice(BINARY), x, rng.choice(same)), rows, columns))
        elif kind == "concat" and beside:
            other, more = rng.choice(beside)
            values.append((b.concat(x, other), rows + more, columns))
        elif kind == "sum":
            values.append((b.sum(x), 1, columns))
        elif kind == "flip" and flips:
            values.append((b.flip(x), columns, rows))
        elif kind == "halves" and rows > 1:
            first, second = b.halves(x, rows)
            values += [(first, rows - rows // 2, columns), (second, rows // 2, columns)]
        elif kind == "norm":
            y, mean, _ = b.norm(x, columns)
            values.append((y, rows, columns))
            values.append((b.elemwise(ElemwiseMode.MUL, x, b.column(mean, rows)), rows, columns))
        elif kind == "random":
            values.append((b.random(rows, columns), rows, columns))
    read = {v.id for o in b.graph.oprs for v in o.inputs}
    total = None
    for v, *_ in values:
        if v.id not in read:
            part = b.sum(b.sum(v), 1)
            total = part if total is None else b.elemwise(ElemwiseMode.ADD, total, part)
    assert total is not None
    b.graph.outputs = [total]
    return b.graph
