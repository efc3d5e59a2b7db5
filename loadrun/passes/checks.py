"""The checks of a graph: MegEngine's error formula written, recognized, and examined for blind spots.

A dump computes the error of a check in operators of its own, so a file may hold any formula, or one that looks at
nothing. What follows from the structure alone is here; `loadrun.compare.judging` judges the rest by the numbers.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from ..base.registry import late
from ..compare.metrics import Formula
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import DType
from ..graph.params import AssertEqual, Elemwise, ElemwiseMode, Host2DeviceCopy, Reduce, ReduceMode
from ..ops.catalog import TypeParam, select, types
from ..ops.elemwise.table import ROWS, ModeTrait
from ..ops.op import Trait
from ..testcase import EXPECT, FORWARDING, Check
from .constants import is_pure, number, subgraph

with late(__name__):
    import hashlib

_F32 = DType("Float32")
_M = ElemwiseMode
_LAYOUT = types(Trait.REARRANGES) | select(lambda op: op.family in ("typecvt", "relayout")) | {"Subtensor"}
_QUOTIENTS = [mode for mode, row in ROWS.items() if row.neutral == 1 and ModeTrait.CANCELS in row.traits]
_COMMUTATIVE = (_M.ADD, _M.MUL, _M.MAX, _M.MIN)
_LARGEST_CONE = 256
_CONES = 20_000
"""Operators between expected value and error; MegEngine's have at most 40, in layout-optimized networks."""


def add_check(
    graph: Graph, name: str, get: Var, shape: tuple[int, ...] | None, *, maxerr: float, verbose: bool
) -> Var:
    """Append the expected value of a variable and the check of it, as MegEngine's ``trace.dump`` does.

    The error is ``max(|expect - get| / max(1, min(|expect|, |get|)))`` in the operators that MegEngine writes.
    Types other than float32 are converted for it: MegEngine has no ABS of bool, no difference of quantized values
    and wraps small integers around, so that 255 would equal 0.

    Args:
        graph: what to extend.
        name: name of the output.
        get: the variable, of known dtype.
        shape: shape of the expected value, which testcases may change.
        maxerr: tolerance.
        verbose: whether MegEngine prints the error.

    Returns:
        the output of the AssertEqual.
    """
    assert get.dtype is not None
    tensor = StoredTensor(get.dtype, shape, name + EXPECT)
    (expect,) = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name + EXPECT], tensors=[tensor])

    def elemwise(mode: ElemwiseMode, *inputs: Var) -> Var:
        return graph.add("Elemwise", Elemwise(mode=mode), inputs=inputs)[0]

    a, b = expect, get
    if get.dtype != _F32:
        a, b = (graph.add("TypeCvtV2", TypeParam(dtype=_F32), inputs=[v])[0] for v in (expect, get))
    top = elemwise(_M.ABS, elemwise(_M.SUB, a, b))
    least = elemwise(_M.MIN, elemwise(_M.ABS, a), elemwise(_M.ABS, b))
    bound = elemwise(_M.MAX, least, number(graph, 1, _F32))
    ratio = elemwise(_M.TRUE_DIV, top, bound)
    target = number(graph, 1, DType("Int32"))
    (err,) = graph.add("ReduceV2", Reduce(mode=ReduceMode.MAX), inputs=[ratio, target])
    return graph.add("AssertEqual", AssertEqual(maxerr=maxerr, verbose=verbose), inputs=[a, b, err])[0]


def set_tolerances(graph: Graph, tolerances: Mapping[int, float], verbose: bool | None) -> None:
    """Change checks in place: maxerr by operator id, and whether they print."""
    for opr in graph.oprs:
        if opr.type == "AssertEqual":
            old = opr.get(AssertEqual)
            opr.params = (
                AssertEqual(
                    maxerr=tolerances.get(opr.id, old.maxerr),
                    verbose=old.verbose if verbose is None else verbose,
                ),
            )


def formula(check: Check) -> Formula:
    """Identify the formula of a check's error graph, on the check's own two values.

    >>> import loadrun
    >>> [formula(c).value for c in loadrun.load("fixtures/nets/mlp.mge").checks]
    ['real']
    """
    ratio = _maximum(check.err)
    for mode in _QUOTIENTS if ratio is not None else ():
        assert ratio is not None
        top, bound = _args(ratio, mode, 2) or (None, None)
        if top is None or bound is None:
            continue
        one = _bounded(bound, check)
        if one is None or _ids(_absolute(top, _M.SUB)) != _ids([check.expect, check.get]):
            return Formula.OTHER
        kind = "integer" if mode is _M.FLOOR_DIV else {"Float32": "real", "Float16": "narrow"}.get(one.name)
        return Formula(kind or "other")
    return Formula.OTHER


def _maximum(err: Var) -> Var | None:
    """Return what an error is the maximum of, over all elements."""
    reduce = err.owner
    if reduce.type != "ReduceV2" or reduce.get(Reduce).mode != ReduceMode.MAX or len(reduce.inputs) != 2:
        return None
    target = _constant(reduce.inputs[1])
    return reduce.inputs[0] if target is not None and target.tolist() == [1] else None


def _bounded(bound: Var, check: Check) -> DType | None:
    """Return the dtype of the 1 in ``max(1, min(|expect|, |get|))``, None for anything else."""
    for one, least in permutations(_args(bound, _M.MAX, 2), 2):
        value = _constant(one)
        if value is None or value.tolist() != [1]:
            continue
        smaller = [x for v in _args(least, _M.MIN, 2) for x in _args(v, _M.ABS, 1)]
        if set(_ids(smaller)) == set(_ids([check.expect, check.get])):
            return one.owner.tensors[one.index].dtype
    return None


def _args(var: Var, mode: ElemwiseMode, count: int) -> list[Var]:
    """Return the inputs of an elementwise operator of a mode, none for anything else."""
    opr = var.owner
    fits = opr.type == "Elemwise" and opr.get(Elemwise).mode == mode and len(opr.inputs) == count
    return opr.inputs if fits else []


def _absolute(var: Var, mode: ElemwiseMode) -> list[Var]:
    inner = _args(var, _M.ABS, 1)
    return _args(inner[0], mode, 2) if inner else []


def _ids(variables: list[Var]) -> list[int]:
    return [id(v) for v in variables]


def _constant(var: Var) -> np.ndarray | None:
    """Return the value of a stored tensor of one element."""
    opr = var.owner
    if opr.type == "Host2DeviceCopy" or not opr.tensors:
        return None
    tensor = opr.tensors[var.index]
    return tensor.value() if tensor.shape == (1,) and tensor.data is not None else None


def compared(check: Check) -> tuple[Var, Var]:
    """Return the variables whose values are shown and judged: expected and computed.

    Where a check converts both sides from integers, booleans or floats of 16 bits, they are those before: float32
    has no 16777217, and other last places than float16.
    """
    expect, get = check.expect.owner, check.get.owner
    alike = expect.type == get.type == "TypeCvtV2" and expect.params == get.params
    if not alike or expect.inputs[0].owner.type != "Host2DeviceCopy":
        return check.expect, check.get
    dtype = expect.inputs[0].owner.tensors[0].dtype
    narrow = dtype.name in ("Float16", "BFloat16") or (not dtype.is_quantized and dtype.np.kind in "iub")
    return (expect.inputs[0], get.inputs[0]) if narrow else (check.expect, check.get)


def error_operators(oprs: Sequence[Opr]) -> frozenset[int]:
    """Return the ids of the operators that compute the errors of checks: changing them would change the check.

    They are those that depend on an expected value, and the absolute value of the computed one.

    Args:
        oprs: the operators of a graph, in order.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> [o.title for o in graph.oprs if o.id in error_operators(graph.oprs)]
    ['Host2DeviceCopy', 'SUB', 'ABS', 'ABS', 'ABS', 'MIN', 'MAX', 'TRUE_DIV', 'ReduceV2', 'AssertEqual']
    """
    checks = [o for o in oprs if o.type == "AssertEqual"]
    if not checks:
        return frozenset()
    ids: set[int] = set()
    expected: set[int] = set()
    for opr in oprs:
        is_expected = opr.type == "Host2DeviceCopy" and (opr.outputs[0].name or "").endswith(EXPECT)
        if is_expected or any(v.id in expected for v in opr.inputs):
            ids.add(opr.id)
            expected.update(v.id for v in opr.outputs)
    computed = {o.inputs[1].id for o in checks}
    beside = (v for o in oprs if o.id in ids and o.type != "AssertEqual" for v in o.inputs)
    ids.update(v.owner.id for v in beside for x in _args(v, _M.ABS, 1) if x.id in computed)
    return frozenset(ids)


class Origins:
    """From which kinds of values every variable of a graph is computed, found in one pass over it.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> Origins(graph).fault(loadrun.Bundle(graph).checks[0]) is None
    True
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.expected: set[int] = set()
        self.varies: set[int] = set()
        self._root: dict[int, int] = {}
        # Operators of error graphs that may still be taken out: what many checks share is copied for each.
        self.budget = _CONES + len(graph.oprs)
        for opr in graph.oprs:
            if opr.type in FORWARDING and opr.inputs:
                source = id(opr.inputs[0])
                self._root[id(opr.outputs[0])] = self._root.get(source, source)
            is_input = opr.type == "Host2DeviceCopy"
            inputs = [id(v) for v in opr.inputs]
            if (is_input and (opr.outputs[0].name or "").endswith(EXPECT)) or not self.expected.isdisjoint(
                inputs
            ):
                self.expected.update(id(v) for v in opr.outputs)
            if is_input or (not opr.inputs and not opr.tensors) or not self.varies.isdisjoint(inputs):
                self.varies.update(id(v) for v in opr.outputs)

    def fault(self, check: Check) -> str | None:
        """Explain why a check could not fail whatever the model computes, as far as the graph's structure tells."""
        one, other = id(check.expect), id(check.get)
        if self._root.get(one, one) == self._root.get(other, other):
            return "it compares a value with itself"
        if other in self.expected:
            return "the value that it checks is computed from an expected one"
        if one not in self.varies and other not in self.varies:
            return "both values are constants of the file"
        if one not in self.expected and self._expressions[one] == self._expressions[other]:
            return "both of its values are computed by the same expression, and none is stored"
        return None

    @cached_property
    def _expressions(self) -> dict[int, int]:
        """Numbers of the graph's values, equal for those that are computed by equal operators from equal values."""
        numbers: dict[object, int] = {}
        known: dict[int, int] = {}
        for opr in self._graph.oprs:
            inputs = [known[id(v)] for v in opr.inputs]
            if opr.type in FORWARDING and inputs:
                known[id(opr.outputs[0])] = inputs[0]
                continue
            if opr.type == "Elemwise" and opr.get(Elemwise).mode in _COMMUTATIVE:
                inputs.sort()
            for i, var in enumerate(opr.outputs):
                known[id(var)] = numbers.setdefault(_expression(opr, i, inputs), len(numbers))
        return known


def _expression(opr: Opr, index: int, inputs: Sequence[int]) -> object:
    """Return what an output is computed by; of what differs from run to run that is the output itself."""
    if opr.type == "Host2DeviceCopy" or opr.dumped.blobs or not is_pure(opr):
        return "itself", opr.id, index
    if opr.tensors:
        tensor = opr.tensors[index]
        data = None if tensor.data is None else hashlib.blake2b(tensor.data.tobytes()).digest()
        return "constant", tensor.dtype, tensor.shape, data
    return opr.type, opr.params, opr.output_dtype, tuple(inputs), index


@dataclass(frozen=True, eq=False)
class Cone:
    """The operators that compute an error from an expected value, as a graph of their own.

    Attributes:
        graph: takes the expected value and the frontier as inputs, gives the error.
        source: the graph input of the model that holds the expected value.
        frontier: variables of the model that the error is computed from as well, by input name.
        direct: whether the computed value itself, perhaps in float16, is one of them, not only what it is another
            layout of.
    """

    graph: Graph
    source: Var
    frontier: Mapping[str, Var]
    direct: bool


def cone(check: Check, origins: Origins) -> Cone | str:
    """Take the error graph of a check out of the model.

    Returns:
        the graph; or a sentence, where it cannot be asked or is not computed from both values.
    """
    inside: dict[int, Opr] = {}
    met: set[int] = set()
    stack = [check.err]
    while stack:
        var = stack.pop()
        met.add(id(var))
        if id(var) not in origins.expected or id(var.owner) in inside:
            continue
        inside[id(var.owner)] = var.owner
        if len(inside) > _LARGEST_CONE:
            return f"its error is computed by more than {_LARGEST_CONE} operators"
        stack += var.owner.inputs
    origins.budget -= len(inside)
    if origins.budget < 0:
        return "the error graphs of this file overlap too much to be evaluated"
    sources = [o for o in inside.values() if o.type == "Host2DeviceCopy"]
    if len(sources) > 1:
        return "its error is computed from several expected values"
    if not sources or not _reaches(check, origins, inside, met):
        return "its error is not computed from both values"
    graph, known, frontier = Graph(exact=check.opr.exact), dict[int, Var](), dict[str, Var]()

    def outside(var: Var) -> Var:
        if id(var) not in known and var.owner.tensors and var.owner.type != "Host2DeviceCopy":
            tensors = [var.owner.tensors[var.index]]
            known[id(var)] = graph.add("ImmutableTensor", tensors=tensors)[0]
        elif id(var) not in known:
            assert var.dtype is not None
            name = f"value {len(frontier)}"
            frontier[name] = var
            tensor = StoredTensor(var.dtype, None, name)
            known[id(var)] = graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])[
                0
            ]
        return known[id(var)]

    for opr in sorted(inside.values(), key=lambda o: o.id):
        inputs = [known.get(id(v)) or outside(v) for v in opr.inputs]
        outputs = graph.add(
            opr.type,
            *opr.params,
            inputs=inputs,
            n_outputs=len(opr.outputs),
            names=[v.name for v in opr.outputs],
            tensors=[copy(t) for t in opr.tensors],
            output_dtype=opr.output_dtype,
        )
        known.update({id(old): new for old, new in zip(opr.outputs, outputs, strict=True)})
    graph.outputs = [known[id(check.err)]]
    return Cone(
        graph, sources[0].outputs[0], frontier, id(_before_widening(check.get)) in met or id(check.get) in met
    )


def _before_widening(var: Var) -> Var:
    """Return the float16 variable that a float32 one was widened from, any other variable itself."""
    opr = var.owner
    widens = (
        opr.type == "TypeCvtV2"
        and opr.get(TypeParam).dtype == _F32
        and opr.inputs[0].dtype == DType("Float16")
    )
    return opr.inputs[0] if widens else var


GET = "loadrun:get"
"""Name of the input of `two_sided` that takes the computed value."""


def two_sided(graph: Graph, check: Check) -> Graph | None:
    """Return the error of a check as a graph of its two values: the expected one under its own name, the other
    as `GET`.

    None if the error is computed from more than these.
    """
    if check.get.dtype is None or len(check.get.owner.outputs) != 1 or check.get.owner.tensors:
        return None

    def cut(target: Graph, opr: Opr, inputs: list[Var]) -> Var | None:
        if opr is not check.get.owner:
            return None
        assert check.get.dtype is not None
        tensor = StoredTensor(check.get.dtype, None, GET)
        return target.add("Host2DeviceCopy", Host2DeviceCopy(), names=[GET], tensors=[tensor])[0]

    part, _ = subgraph(graph, [check.err], convert=cut)
    used = [o.tensors[0].name for o in part.needed() if o.type == "Host2DeviceCopy"]
    others = [name for name in used if name != GET]
    return part if GET in used and len(others) == 1 and (others[0] or "").endswith(EXPECT) else None


def _reaches(check: Check, origins: Origins, inside: Mapping[int, Opr], met: set[int]) -> bool:
    """Return whether the error depends on the computed value too, or on the value that it is a relayout of."""
    if id(check.get) in met:
        return True
    wanted, opr = {id(check.get.owner)}, check.get.owner
    while opr.type in _LAYOUT and opr.inputs and len(wanted) < _LARGEST_CONE:
        opr = opr.inputs[0].owner
        wanted.add(id(opr))
    others = [v.owner for o in inside.values() for v in o.inputs if id(v) not in origins.expected]
    seen: set[int] = set()
    while others and len(seen) < _LARGEST_CONE:
        opr = others.pop()
        if id(opr) in wanted:
            return True
        if id(opr) not in seen:
            seen.add(id(opr))
            others += [v.owner for v in opr.inputs]
    return False
