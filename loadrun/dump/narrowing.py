"""Writing graphs in dtypes that no .mge file holds: narrowed, where that changes no result.

Both forms of a graph are computed on every testcase that is written. Where a value comes out otherwise, writing is
refused, unless narrowing is requested; the record says that then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..base.errors import EngineError, InputError, UsageError
from ..base.proving import LARGE, level, spending
from ..base.registry import resolve
from ..compare import assert_equal_error
from ..compare.judging import NARROW
from ..graph import Graph, Opr, StoredTensor, Var, params as P
from ..graph.dtypes import Array, DType, dtype_of
from ..ops.catalog import CATALOG, types
from ..ops.control import find_branches
from ..ops.op import Trait
from ..passes.checks import error_operators
from ..passes.cleanup import stabilize
from ..passes.loadable import make_loadable
from ..passes.narrowing import narrow_array, narrow_dtype, narrowed, wide_dtypes
from ..testcase import EXPECT, Bundle, LazyTestcases, Testcase
from .container import loads
from .record import as_read_back
from .writer import dump_bytes

_TOLERANCE = 1e-4
"""How far floats may come out otherwise, by MegEngine's measure; of 16 bits, by four of their steps."""
_NEAR = 1 << 20
"""How far from the end of its range an integer is taken for what a cast of infinity gave."""
_INTEGERS = ("Int64", "Uint32", "Uint64")
_CONSTANTS = types(Trait.CONSTANT)


@dataclass
class Narrowing:
    """A graph of ONNX's or PyTorch's dtypes, and the graph that a file gets in its place.

    Attributes:
        graph: the graph.
        asked: whether values may come out otherwise.
        written: what is written.
        scalars: the outputs without axes.
    """

    graph: Graph
    asked: bool
    dtypes: list[str]
    written: Graph
    _narrowed: Graph
    _known: dict[int, Var]
    scalars: frozenset[str] = frozenset()
    _engines: list[Any] = field(default_factory=list)
    _end_engines: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, asked: bool = False, scalars: frozenset[str] = frozenset()) -> Narrowing | None:
        """Narrow a graph; None if it is MegEngine's already.

        Raises:
            UsageError: a constant does not fit, and narrowing is not requested.
        """
        if not graph.exact:
            return None
        dtypes = wide_dtypes(graph)
        narrow, known = narrowed(graph)
        wide = [known[v.id] for v in _first_wide(graph) if v.id in known]
        for i, var in enumerate(wide):
            var.name = var.name or f"int64_{i}"
        written = _named(make_loadable(stabilize(narrow)), graph)
        kept = {v.name for v in written.vars()}
        written.integers = tuple(dict.fromkeys(v.name for v in wide if v.name and v.name in kept))
        narrowing = cls(graph, asked, dtypes, written, narrow, known, scalars)
        if not asked:
            narrowing._check_constants()
        return narrowing

    @property
    def record(self) -> dict[str, object]:
        """Describe it for the record after the testcases."""
        if not self.dtypes:
            return {}
        pairs = {DType(n).spelling: narrow_dtype(DType(n)).spelling for n in self.dtypes}
        return {"narrowed": {"dtypes": pairs, "asked": self.asked}}

    def cases(self, cases: Iterable[Testcase]) -> Iterable[Testcase]:
        """Give testcases in the dtypes of the file, each on demand; they have a number if `cases` have.

        Raises:
            UsageError: later: one comes out otherwise, and narrowing is not requested.
        """
        if isinstance(cases, Sequence):
            return LazyTestcases(lambda i: self._case(i, cases[i]), range(len(cases)))
        return (self._case(i, case) for i, case in enumerate(cases))

    def _case(self, number: int, case: Testcase) -> Testcase:
        if not self.asked and (self.dtypes or (self._has_extremes and _has_infinity(case))):
            self._check(number, case)
        dtypes = {n: case.dtypes.get(n) or dtype_of(a) for n, a in case.arrays.items()}
        arrays = {n: narrow_array(a, dtypes[n]) for n, a in case.arrays.items()}
        if self.asked and "engine" in case.provenance:
            arrays |= self._truth(case, arrays)
        kinds = {n: narrow_dtype(d) for n, d in dtypes.items()}
        faults = {**case.faults, **case.miscounted(self._outputs), **case.misranked(self.scalars)}
        return Testcase(arrays, kinds, case.provenance, faults=faults)

    def _truth(self, case: Testcase, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Give the values that a captured testcase expects as the narrowed graph computes them."""
        outputs = self._outputs
        supplied = case.provenance.get("given", ())
        names = [
            n for n in outputs if n + EXPECT in arrays and not (isinstance(supplied, list) and n in supplied)
        ]
        if not names:
            return {}
        engine = resolve("loadrun.engines.reference:ReferenceEngine")(
            self._narrowed, [outputs[n] for n in names], seed=0
        )
        values = engine.run({n: arrays[n] for n in engine.inputs})
        return {n + EXPECT: v for n, v in zip(names, values, strict=True)}

    @cached_property
    def _outputs(self) -> dict[str, Var]:
        return Bundle(self._narrowed).outputs

    @cached_property
    def _has_extremes(self) -> bool:
        """Whether there is a maximum or minimum, which MegEngine starts with a finite number."""
        return any(
            o.type == "ReduceV2" and o.get(P.Reduce).mode in (P.ReduceMode.MAX, P.ReduceMode.MIN)
            for o in self.graph.oprs
        )

    def _check_constants(self) -> None:
        for opr in self.graph.oprs:
            if opr.type not in _CONSTANTS:
                continue
            for var, tensor in zip(opr.outputs, opr.tensors, strict=False):
                if tensor.dtype.is_wide and tensor.data is not None:
                    value = tensor.value()
                    small = narrow_array(value, tensor.dtype)
                    # What a maximum or minimum starts with is at the end of either dtype.
                    self._compare(var, value, np.where(_at_an_end(value, small), value, small), "")

    def _check(self, number: int, case: Testcase) -> None:
        """Compute a testcase both ways."""
        where = f"testcase {number}: "
        inputs = {v.name or "": v for v in self.graph.inputs}
        small = {}
        for name, var in inputs.items():
            if name in case.arrays:
                value, dtype = case.arrays[name], var.owner.tensors[0].dtype
                small[name] = narrow_array(value, dtype)
                if dtype.is_wide:
                    self._compare(var, value, small[name], where)
        targets = self._targets()
        if not targets:
            return
        self._engines = self._engines or self._both(targets)
        ends = [v for v in Bundle(self.graph).outputs.values() if not v.owner.tensors]
        outputs = set(map(id, ends))
        saturated: list[tuple[Var, Array, Array]] = []
        for var, a, b in zip(targets, *_run(self._engines, case.arrays, small), strict=False):
            near = _at_an_end(a, b)
            if id(var) not in outputs and near.any():
                # A cast of infinity; what comes of it is judged where it leaves the graph.
                saturated.append((var, a, b))
                b = np.where(near, a, b)
            self._compare(var, a, b, where)
        if saturated:
            self._end_engines = self._end_engines or self._both(ends)
            try:
                for var, a, b in zip(ends, *_run(self._end_engines, case.arrays, small), strict=False):
                    self._compare(var, a, b, where)
            except UsageError:
                # Named where it begins.
                self._compare(*saturated[0], where)

    def _both(self, targets: list[Var]) -> list[Any]:
        """Return engines that compute variables as they are, and narrowed."""
        engine = resolve("loadrun.engines.reference:ReferenceEngine")
        new = [self._known[v.id] for v in targets]
        return [engine(self.graph, targets, seed=0), engine(self._narrowed, new, seed=0)]

    def _targets(self) -> list[Var]:
        """List the variables to compare: all that are narrowed, and outputs where floats are or nothing is."""
        oprs = self.graph.needed()
        left = error_operators(oprs) | set(find_branches(oprs).guard)
        targets = [
            v
            for o in oprs
            if not o.tensors and o.id not in left
            for v in o.outputs
            if v.dtype is not None and v.dtype.is_wide and v.id in self._known
        ]
        if "Float64" in self.dtypes or not self.dtypes:
            known = {id(v) for v in targets}
            ends = Bundle(self.graph).outputs.values()
            targets += [
                v for v in ends if id(v) not in known and not v.owner.tensors and v.owner.id not in left
            ]
        return targets

    def _compare(self, var: Var, wide: Array, narrow: Array, where: str) -> None:
        assert var.dtype is not None
        same = wide == narrow if wide.shape == narrow.shape else np.zeros(1, np.bool_)
        if wide.dtype.kind == "f":
            with np.errstate(all="ignore"):
                same |= (wide != wide) & (narrow != narrow)
                a, b = (np.where(same, 0, v.astype(np.float64)) for v in (wide, narrow))
                most = max(_TOLERANCE, 4 * NARROW.get(var.dtype.name, 0.0))
                if wide.shape == narrow.shape and assert_equal_error(a, b) <= most:
                    return
        if same.all() and wide.shape == narrow.shape:
            return
        at = int(np.flatnonzero(~same.reshape(-1))[0]) if wide.shape == narrow.shape else 0
        if wide.dtype.kind == "f" and wide.shape == narrow.shape:
            at = int(np.argmax(np.abs(a - b) / np.maximum(1, np.minimum(np.abs(a), np.abs(b)))))
        before, after = (str(v.reshape(-1)[at]) if v.size else "empty" for v in (wide, narrow))
        stored = narrow_dtype(var.dtype)
        why = "since a maximum or minimum starts with a finite number there"
        if wide.size and np.isnan(wide.reshape(-1)[at]):
            why = "since a maximum or minimum loses NaN or starts with a finite number there"
        elif wide.size and np.isfinite(wide.reshape(-1)[at]):
            why = "where it is computed otherwise"
        said = (
            f"{before}, in a .mge file {after}, {why}"
            if stored == var.dtype
            else f"{before} in {var.dtype.spelling} and {after} in {stored.spelling}, the dtype that a .mge file stores"
        )
        raise UsageError(
            f"{where}{var.label!r} holds {said}; write an .onnx file, or pass --narrow (narrow=True) to store what "
            "MegEngine can represent"
        )


def _first_wide(graph: Graph) -> Iterator[Var]:
    """Yield the integers of 64 bits that are computed from none: inputs, what is cast, and sizes of inputs.

    Of whatever dtype a graph has sizes in, they are numbers of Python or 64 bits in the model.
    """

    def is_wide(var: Var) -> bool:
        return var.dtype is not None and var.dtype.name in _INTEGERS

    for opr in graph.needed([*Bundle(graph).outputs.values()]):
        if opr.type in _CONSTANTS or any(map(is_wide, opr.inputs)):
            continue
        if opr.type == "GetVarShapeV1":
            # For those of what is inside it a whole net would be computed again.
            yield from opr.outputs if opr.inputs[0].owner.tensors else ()
        elif opr.type != "TypeCvtV2" or opr.inputs[0].owner.type != "GetVarShapeV1":
            yield from filter(is_wide, opr.outputs)


def _run(
    engines: Sequence[Any], wide: Mapping[str, Array], narrow: Mapping[str, Array]
) -> tuple[list[Array], list[Array]]:
    """Run both forms of a graph; what fails as it is says nothing about narrowing, and gives nothing."""
    first, second = engines
    try:
        before = first.run({n: a for n, a in wide.items() if n in first.inputs})
    except (EngineError, InputError):
        return [], []
    return before, second.run({n: a for n, a in narrow.items() if n in second.inputs})


def _at_an_end(wide: Array, narrow: Array) -> Array:
    """Say which integers lie as far from an end of their range in both dtypes, and near it.

    >>> _at_an_end(np.array([4 - 2**63, 2**63 - 1, 2**32 - 1]), np.array([4 - 2**31, 2**31 - 1, -1], "i4")).tolist()
    [True, True, False]
    """
    if wide.dtype.kind != "i" or narrow.dtype.kind != "i" or wide.shape != narrow.shape:
        return np.zeros(wide.shape, np.bool_)
    w, n = np.iinfo(wide.dtype), np.iinfo(narrow.dtype)
    low = (wide < w.min + _NEAR) & (wide - w.min == narrow.astype(np.int64) - n.min)
    high = (wide > w.max - _NEAR) & (w.max - wide == n.max - narrow.astype(np.int64))
    return low | high


def _has_infinity(case: Testcase) -> bool:
    return any(a.dtype.kind == "f" and np.isinf(a).any() for a in case.arrays.values())


def _named(renamed: Graph, graph: Graph) -> Graph:
    """Give outputs the names that they had."""
    for i, (old, new) in enumerate(zip(graph.outputs, renamed.outputs, strict=True)):
        if not old.name or new.name == old.name or old.owner.type == "AssertEqual":
            continue
        if new.owner.type == "Host2DeviceCopy" or any(new is o for o in renamed.outputs[:i]):
            (renamed.outputs[i],) = renamed.add("Identity", inputs=[new])
        renamed.outputs[i].name = old.name
    return renamed


_BATCHES = (1, 2, 3, 65)
_ENDS = 1 << 20
"""Bytes at both ends of large weights that are compared, which would otherwise take as long as the writing."""


def check_read_back(graph: Graph, written: Graph) -> None:
    """Compare what is read back of a file with what was written.

    Raises:
        ProofError: it is another graph.
    """
    if (why := _difference(graph, written)) is not None:
        error: Exception = resolve("loadrun.proof:refusal")(
            f"what is read back of the .mge file is another graph than the one that was written ({why})"
        )
        raise error


def not_proven(made_of: Graph, graph: Graph, kind: str, case: Mapping[str, Array] | None) -> tuple[str, ...]:
    """Compare a graph with what it was made of, and with what is read back of it; return what was not compared.

    Where these are the same, operator for operator, nothing has to be run.

    Args:
        made_of: the graph before passes, narrowing and the options of the format.
        graph: what is written.
        kind: the format.
        case: inputs of the first testcase.

    Raises:
        ProofError: they compute different numbers.
    """
    with spending():
        if level() != "none" and graph.stored_bytes <= LARGE:
            check_read_back(graph, loads(dump_bytes(graph, format=kind)).graph)
        same = made_of is graph or _difference(made_of, graph) is None
    source, target = Bundle(made_of), Bundle(graph)
    outputs = dict(zip(source.outputs, target.outputs, strict=False))
    others = _others(graph, outputs)
    if same and not others:
        return ()
    proved: Any = resolve("loadrun.proof:proved")
    left: tuple[str, ...] = proved(
        source,
        None if same else target,
        [] if case is None else [case],
        outputs=outputs,
        sizes=[] if same else _other_sizes(source, case or {}),
        may_refuse=True,
        what="the graph in the .mge file",
        others=others,
        rough=True,
    ).left
    return left


def _other_sizes(source: Bundle, case: Mapping[str, Array]) -> list[dict[str, tuple[int, ...]]]:
    """Return other shapes of inputs, at which a trace that keeps sizes symbolic may run: another batch, larger maps."""
    declared = {v.name or "": v.owner.tensors[0].shape or () for v in source.inputs}
    shapes = {n: case[n].shape if n in case else s for n, s in declared.items()}
    batch = next((s[0] for s in shapes.values() if s), 0)
    sets = [
        {n: (k, *s[1:]) if s[:1] == (batch,) else s for n, s in shapes.items()}
        for k in _BATCHES
        if k != batch
    ]
    sets.append({n: (*s[:2], *(a + 1 for a in s[2:])) for n, s in shapes.items()})
    return [one for one in sets if one != shapes]


def _others(graph: Graph, outputs: Mapping[str, str]) -> list[Any]:
    """Return MegEngine with the graph, where a Python has it and everything is to be proven: it takes long to start."""
    beside = resolve("loadrun.runtimes.megengine:beside")(graph) if level() == "full" else None
    if beside is None:
        return []
    name, run, stop = beside

    def by_source(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        values = run(feeds)
        return {n: values[new] for n, new in outputs.items() if new in values}

    return [resolve("loadrun.proof:Other")(name, "the .mge file", by_source, stop, told=True)]


def _difference(a: Graph, b: Graph) -> str | None:
    """Return where two graphs have other operators or values, whatever their names are; None if nowhere."""
    if len(a.oprs) != len(b.oprs):
        return f"{len(b.oprs)} operators for {len(a.oprs)}"
    old, new = ({id(v): i for i, v in enumerate(g.vars())} for g in (a, b))
    for i, (x, y) in enumerate(zip(a.oprs, b.oprs, strict=True)):
        facts = [
            (o.type, o.output_dtype, len(o.outputs), [n.get(id(v)) for v in o.inputs], _params(o))
            for o, n in ((x, old), (y, new))
        ]
        same = len(x.tensors) == len(y.tensors) and all(map(_is_same, x.tensors, y.tensors))
        if facts[0] != facts[1] or not same:
            return f"operator {i}, {x.type}"
    return (
        None if [old.get(id(v)) for v in a.outputs] == [new.get(id(v)) for v in b.outputs] else "its outputs"
    )


def _params(opr: Opr) -> list[str]:
    """Return the records of an operator as a file has them, with those that nobody gave; as text NaN equals itself."""
    op = CATALOG.get(opr.type)
    left = op.params[len(opr.params) :] if op is not None else ()
    return [repr(p) for p in (*map(as_read_back, opr.params), *(kind() for kind in left))]


def _is_same(a: StoredTensor, b: StoredTensor) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape) or (a.data is None) != (b.data is None):
        return False
    if a.data is b.data or a.data is None or b.data is None:
        return True
    if a.data.size <= LARGE or level() == "full":
        return np.array_equal(a.data, b.data)
    parts = (slice(None, _ENDS), slice(-_ENDS, None))
    return a.data.size == b.data.size and all(np.array_equal(a.data[part], b.data[part]) for part in parts)
