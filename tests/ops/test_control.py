"""Conditional execution: what is left out, what is joined, what is refused.

What real MegEngine computes stands in fixtures/ops/control; here are the corners that it cannot run or record.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph import Graph, StoredTensor, Var, params as P
from loadrun.graph.dtypes import Array, dtype_of, encode
from loadrun.ops.infer import infer_dtypes, infer_shapes
from loadrun.testing import run_operator as run
from tests.support.arrays import ints

MODE, MERGE, LOGICAL = P.CondExecPredMode, P.CondExecMergeMode, P.CondExecPredLogicalMode
BACKWARDS = P.IndexDescMaskDump(items=(P.IndexItem(0, step=True),))
X, Y = np.array([1, 2], "f4"), np.array([3, 4, 5], "f4")


class Builder:
    """A graph in the making, with the arrays to feed it."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.feeds: dict[str, Array] = {}

    def feed(self, value: Array) -> Var:
        name = f"x{len(self.feeds)}"
        self.feeds[name] = value
        tensor = StoredTensor(dtype_of(value), value.shape, name)
        return self.graph.add("Host2DeviceCopy", P.Host2DeviceCopy(), names=[name], tensors=[tensor])[0]

    def const(self, value: Array) -> Var:
        data = encode(value, dtype_of(value))
        return self.graph.add(
            "ImmutableTensor", tensors=[StoredTensor(dtype_of(value), value.shape, data=data)]
        )[0]

    def op(self, name: str, *params: P.Record, inputs: Sequence[Var], n: int = 1) -> list[Var]:
        return self.graph.add(name, *params, inputs=inputs, n_outputs=n)

    def predicate(self, value: Var, keys: Sequence[float], mode: P.CondExecPredMode = MODE.CASE) -> list[Var]:
        given = [self.const(np.array([k], "f4")) for k in keys]
        n = len(keys) + (mode != MODE.CASE)
        return self.op("CondExecPred", P.CondExecPred(mode=mode), inputs=[*given, value], n=n)

    def mark(self, flag: Var, *values: Var) -> list[Var]:
        return self.op("CondExecMark", P.CondExecMark(), inputs=[*values, flag], n=len(values))

    def backwards(self, x: Var) -> Var:
        return self.op("Subtensor", BACKWARDS, inputs=[x, self.const(ints(-1))])[0]

    def reshape(self, x: Var, *shape: int) -> Var:
        return self.op("ReshapeV1", P.OptionalAxisV1(), inputs=[x, self.const(ints(*shape))])[0]

    def merge(self, mode: P.CondExecMergeMode, values: Sequence[Var], n: int = 1) -> list[Var]:
        return self.op("CondExecMerge", P.CondExecMerge(nr_output=n, mode=mode), inputs=values, n=n)

    def run(self, *outputs: Var, executed: list[str] | None = None) -> list[list[float]]:
        engine = ReferenceEngine(self.graph, outputs)
        seen: list[str] = []
        found = engine.run(self.feeds, lambda o, _: seen.append(f"{o.type}{o.outputs[0].id}"))
        again = engine.run(self.feeds)
        assert [f.tolist() for f in found] == [a.tolist() for a in again]
        if executed is not None:
            executed += seen
        return [f.tolist() for f in found]


def choice(value: float, *, mode: P.CondExecMergeMode = MERGE.EXACT_ONE) -> tuple[Builder, list[Var], Var]:
    """Build two branches: 0 takes x backwards, 1 takes y as it is."""
    b = Builder()
    x, y = b.feed(X), b.feed(Y)
    first, second = b.predicate(b.feed(np.array([value], "f4")), [0, 1])
    branches = [b.backwards(b.mark(first, x)[0]), b.mark(second, y)[0]]
    return b, branches, b.merge(mode, branches)[0]


@pytest.mark.parametrize(("value", "want"), [(0, [2, 1]), (1, [3, 4, 5]), (0.00001, [2, 1])])
def test_one_branch(value: float, want: list[float]) -> None:
    b, _, out = choice(value)
    assert b.run(out) == [want]


@pytest.mark.parametrize("value", [0.5, np.nan])
def test_no_branch(value: float) -> None:
    b, _, out = choice(value)
    with pytest.raises(EngineError, match="exactly one branch must be taken, found none"):
        b.run(out)


def test_several_branches() -> None:
    b = Builder()
    x = b.feed(X)
    flags = b.predicate(b.feed(np.zeros(1, "f4")), [0, 0])
    out = b.merge(MERGE.EXACT_ONE_SAME_SHAPE, [b.mark(f, x)[0] for f in flags])
    with pytest.raises(EngineError, match=r"exactly one branch must be taken, found \[0, 1\]"):
        b.run(*out)


def test_an_index_that_no_shape_allows_in_a_branch_that_is_not_taken() -> None:
    for value, want in ((1, [3, 4, 5]), (0, None)):
        b = Builder()
        x, y = b.feed(X), b.feed(Y)
        first, second = b.predicate(b.feed(np.array([value], "f4")), [0, 1])
        item = P.IndexDescMaskDump(items=(P.IndexItem(0, idx=True),))
        fifth = b.op("Subtensor", item, inputs=[*b.mark(first, x), b.const(ints(5))])[0]
        out = b.merge(MERGE.EXACT_ONE, [fifth, *b.mark(second, y)])[0]
        if want is None:
            with pytest.raises(EngineError, match="index 5 is out of bounds for axis 0 of size 2"):
                b.run(out)
        else:
            assert b.run(out) == [want]


def test_a_branch_that_is_not_taken_is_not_executed() -> None:
    """Its shapes may even be impossible."""
    for value, want in ((1, [3, 4, 5]), (0, None)):
        b = Builder()
        x, y = b.feed(X), b.feed(Y)
        first, second = b.predicate(b.feed(np.array([value], "f4")), [0, 1])
        broken = b.reshape(b.mark(first, x)[0], 7, 7)
        after = b.backwards(b.reshape(broken, 49))
        out = b.merge(MERGE.EXACT_ONE, [after, b.mark(second, y)[0]])[0]
        executed: list[str] = []
        if want is None:
            with pytest.raises(EngineError, match="ReshapeV1"):
                b.run(out)
        else:
            assert b.run(out, executed=executed) == [want]
            assert not any(e.startswith(("Reshape", "Subtensor")) for e in executed)


def test_values_of_a_branch_that_is_not_taken_do_not_exist() -> None:
    b, branches, out = choice(1)
    assert b.run(out, branches[1]) == [Y.tolist()] * 2
    with pytest.raises(EngineError, match="is in a branch that was not taken"):
        b.run(branches[0])


def test_constants_in_a_branch_wait_for_it() -> None:
    """A branch of constants is not computed beforehand, neither when the predicate is constant itself."""
    for make in (Builder.feed, Builder.const):
        for value, want in ((0, [2, 1]), (1, [3, 4, 5])):
            b = Builder()
            x, y = b.const(X), b.const(Y)
            first, second = b.predicate(make(b, np.array([value], "f4")), [0, 1])
            branches = [b.backwards(b.mark(first, x)[0]), b.mark(second, y)[0]]
            assert b.run(*b.merge(MERGE.EXACT_ONE, branches)) == [want]


def test_sum_finds_the_shape_of_zeros_in_a_branch() -> None:
    """Shapes follow without executing, as in MegEngine's static inference."""
    for value, want in ((0, [2, 1]), (9, [0, 0])):
        b = Builder()
        x = b.feed(X)
        (flag,) = b.predicate(b.feed(np.array([value], "f4")), [0])
        inside = b.backwards(b.mark(flag, x)[0])
        shape = b.op("GetVarShapeV1", P.OptionalAxisV1(), inputs=[inside])
        assert b.run(*b.merge(MERGE.SUM, [inside, *shape])) == [want]


def test_sum_needs_a_shape() -> None:
    b = Builder()
    x = b.feed(X)
    (flag,) = b.predicate(b.feed(np.ones(1, "f4")), [0])
    (inside,) = b.mark(flag, x)
    taken = b.op("CondTake", P.CondTake(mode=P.CondTakeMode.GT), inputs=[inside, inside], n=2)[0]
    shape = b.op("GetVarShapeV1", P.OptionalAxisV1(), inputs=[taken])
    with pytest.raises(EngineError, match="follows from a branch that was not taken"):
        b.run(*b.merge(MERGE.SUM, [taken, *shape]))


def test_shapes_of_branches_must_agree_to_be_added() -> None:
    b = Builder()
    flags = b.predicate(b.feed(np.zeros(1, "f4")), [0, 0])
    values = [b.mark(f, v)[0] for f, v in zip(flags, (b.feed(X), b.feed(Y)), strict=True)]
    out = b.merge(MERGE.SUM, [*values, b.const(ints(2))])
    with pytest.raises(EngineError, match="output 0 has different shapes"):
        b.run(*out)


def test_merged_inputs_are_not_written_into() -> None:
    b = Builder()
    x = b.feed(X)
    flags = b.predicate(b.feed(np.zeros(1, "f4")), [0, 0, 0])
    copies = [b.backwards(x) for _ in flags]
    out = b.merge(
        MERGE.SUM, [*(b.mark(f, v)[0] for f, v in zip(flags, copies, strict=True)), b.const(ints(2))]
    )
    assert b.run(*out, *copies) == [[6, 3], [2, 1], [2, 1], [2, 1]]


@pytest.mark.parametrize("outer", [0, 1])
@pytest.mark.parametrize("inner", [0, 1, 2])
def test_nested(outer: int, inner: int) -> None:
    """An inner choice without a taken branch is an error only when the outer branch is taken."""
    b = Builder()
    x, y, q = b.feed(X), b.feed(Y), b.feed(np.array([inner], "f4"))
    first, second = b.predicate(b.feed(np.array([outer], "f4")), [0, 1])
    mx, mq = b.mark(first, x, q)
    branches = [b.mark(flag, mx)[0] for flag in b.predicate(mq, [0, 1])]
    inside = b.merge(MERGE.EXACT_ONE, [b.backwards(branches[0]), branches[1]])[0]
    out = b.merge(MERGE.EXACT_ONE, [inside, b.mark(second, y)[0]])[0]
    if outer == 0 and inner == 2:
        with pytest.raises(EngineError, match="found none"):
            b.run(out)
    else:
        assert b.run(out) == [[[2, 1], [1, 2], []][inner] if outer == 0 else [3, 4, 5]]


def test_conditional_sum_lies_in_the_joined_branch() -> None:
    for value, want in ((0, [[2, 1]]), (5, None)):
        b = Builder()
        x = b.feed(X)
        flags = b.predicate(b.feed(np.array([value], "f4")), [0, 1])
        either = b.op("CondExecPredLogical", P.CondExecPredLogical(mode=LOGICAL.OR), inputs=flags)
        out = b.merge(MERGE.SUM_COND_OUT, [*(b.mark(f, x)[0] for f in flags), *either])[0]
        after = b.backwards(out)
        if want is None:
            with pytest.raises(EngineError, match="not taken"):
                b.run(after)
        else:
            assert b.run(after) == want


def test_mark_if_need() -> None:
    """MegEngine's loader cannot load this operator: it turns into another one."""
    for value in (0, 1):
        b = Builder()
        x, y = b.feed(X), b.feed(Y)
        first, second = b.predicate(b.feed(np.array([value], "f4")), [0, 1])
        mark = P.CondExecMark()
        branches = [b.op("CondExecMarkIfNeed", mark, inputs=[b.mark(f, x)[0], y])[0] for f in (first, second)]
        plain = b.op("CondExecMarkIfNeed", mark, inputs=[x, y])[0]
        joined = b.merge(MERGE.EXACT_ONE, [b.backwards(branches[0]), branches[1]])[0]
        assert b.run(joined, plain) == [[[5, 4, 3], [3, 4, 5]][value], [3, 4, 5]]


@pytest.mark.parametrize(
    ("mode", "two", "three"),
    # Truth tables: for two predicates 00 01 10 11, for three those with 0, 1, 2 and 3 of them true.
    [("OR", "0111", "0111"), ("AND", "0001", "0001"), ("XOR", "0110", "0101")]
    + [("NOR", "1000", "1000"), ("NAND", "1110", "1110"), ("XNOR", "1001", "1010")],
)
def test_logical(mode: str, two: str, three: str) -> None:
    b = Builder()
    no, yes = b.predicate(b.feed(np.zeros(1, "f4")), [1, 0])
    p = P.CondExecPredLogical(mode=LOGICAL[mode])
    pairs = [
        b.op("CondExecPredLogical", p, inputs=i)[0] for i in ([no, no], [no, yes], [yes, no], [yes, yes])
    ]
    triples = [b.op("CondExecPredLogical", p, inputs=[yes] * n + [no] * (3 - n))[0] for n in range(4)]
    assert b.run(*pairs, *triples) == [[int(c)] for c in two + three]


@pytest.mark.parametrize(
    ("mode", "value", "want"),
    [
        ("CASE", 2, [0, 1, 0]),
        ("CASE", 1, [0, 0, 0]),
        ("CASE_FALLBACK", 4, [0, 0, 1, 0]),
        ("CASE_FALLBACK", 1, [0, 0, 0, 1]),
        ("PIECEWISE", -1, [1, 0, 0, 0]),
        ("PIECEWISE", 0, [0, 1, 0, 0]),
        ("PIECEWISE", 3, [0, 0, 1, 0]),
        ("PIECEWISE", 4, [0, 0, 0, 1]),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "i1"])
def test_predicate(mode: str, value: int, want: list[int], dtype: str) -> None:
    keys = [np.array([k], dtype) for k in (0, 2, 4)]
    found = run("CondExecPred", P.CondExecPred(mode=MODE[mode]), *keys, np.array([value], dtype))
    assert [f.tolist() for f in found] == [[w] for w in want]


def test_static_shapes() -> None:
    for value in (0, 1):
        b, branches, out = choice(value)
        same = b.merge(MERGE.EXACT_ONE_SAME_SHAPE, branches)[0]
        b.graph.outputs = [out]
        infer_dtypes(b.graph.oprs)
        known = infer_shapes(b.graph).shapes
        assert [known.get(v.id) for v in (*branches, out, same)] == [(2,), (3,), None, (2,)]


# Graphs that MegEngine refuses to build


def refused(b: Builder, *outputs: Var) -> str:
    with pytest.raises(EngineError) as e:
        b.run(*outputs)
    return str(e.value)


def test_branches_do_not_mix() -> None:
    b, branches, _ = choice(0)
    assert "mixes values of the branches" in refused(b, *b.op("Concat", P.Axis(), inputs=branches))


def test_a_predicate_is_no_value() -> None:
    b = Builder()
    (flag,) = b.predicate(b.feed(np.zeros(1, "f4")), [0])
    assert "takes the predicate" in refused(b, *b.op("Concat", P.Axis(), inputs=[flag, flag]))
    assert "takes the predicate" in refused(b, *b.mark(flag, flag))


def test_a_mark_needs_a_predicate() -> None:
    b = Builder()
    assert "must be a predicate" in refused(b, *b.mark(b.feed(ints(1)), b.feed(X)))


def test_a_merge_needs_branches() -> None:
    b = Builder()
    x = b.feed(X)
    flag = b.predicate(b.feed(np.zeros(1, "f4")), [0])[0]
    (inside,) = b.mark(flag, x)
    assert "does not lie in one branch" in refused(b, *b.merge(MERGE.EXACT_ONE, [inside, x]))
    assert "do not make whole branches of 2" in refused(b, *b.merge(MERGE.EXACT_ONE, [inside] * 3, n=2))


def test_a_mark_stays_inside() -> None:
    b, branches, _ = choice(0)
    other = b.predicate(b.feed(np.zeros(1, "f4")), [0])[0]
    assert "does not lie inside it" in refused(b, *b.mark(other, branches[0]))


def test_predicates_are_scalars_of_one_dtype() -> None:
    zero = np.zeros(1, "f4")
    p = P.CondExecPred()
    for args, text in (
        ((np.zeros(2, "f4"), zero), "must be scalars"),
        ((ints(0), zero), "all keys must be Float32"),
        ((zero != 0, zero != 0), "cannot be Bool"),
    ):
        with pytest.raises(EngineError, match=text):
            run("CondExecPred", p, *args)
