"""Making a graph from another one, operator by operator: the tool of every pass.

A pass visits the operators of the old graph in order and for each either copies it or puts something else in its
place. Dtypes, shapes and constant values of the new graph are known while it grows. Equal operators become one, as in
MegEngine's graphs, except where operators are random or have effects.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from ..graph import Graph, Opr, StoredTensor, Var, readers_of
from ..graph.dtypes import Array, DType, encode
from ..graph.params import Empty, Record
from ..ops.catalog import types
from ..ops.control import CONDITIONAL, find_branches
from ..ops.infer import Inference, dtype_of, follow, infer_dtypes
from ..ops.op import Trait
from ..ops.registry import Shape
from . import constants
from .checks import error_operators

Pass = Callable[[Graph], Graph]
"""The type of a pass: a function that leaves its argument as it is and gives another graph of the same outputs."""

_SHAPE_ONLY = types(Trait.SHAPE_ONLY)
_SHORT = 64
"""Constants of at most this many bytes are compared with each other."""


class Rewriter:
    """A new graph that grows from an old one.

    Args:
        graph: the old graph; what its outputs do not depend on is left out.
        dedupe: whether equal operators become one.

    Attributes:
        oprs: the operators of the old graph, in order.
        new: the new graph.
        known: shapes and small values of the new graph's variables.
        on_grid: old operators whose every rounding shows, once asked for (`arithmetic.terms.on_grid`).
        large: old variables that are sums of large terms, likewise (`arithmetic.terms.is_large`).

    >>> from loadrun.graph.params import Elemwise, ElemwiseMode, Host2DeviceCopy
    >>> g = Graph()
    >>> (x,) = g.add("Host2DeviceCopy", Host2DeviceCopy(), names=["x"],
    ...              tensors=[StoredTensor(DType("Float32"), (2,), "x")])
    >>> a, b = (g.add("Elemwise", Elemwise(mode=ElemwiseMode.EXP), inputs=[x])[0] for _ in range(2))
    >>> (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[a, b], names=["y"])
    >>> g.outputs = [y]
    >>> r = Rewriter(g)
    >>> for opr in r.oprs:
    ...     _ = r.copy(opr)
    >>> [o.title for o in r.finish().oprs]
    ['Host2DeviceCopy', 'EXP', 'ADD']
    """

    def __init__(self, graph: Graph, *, dedupe: bool = True) -> None:
        self.old = graph
        self._before = constants.remembered(graph)
        self.oprs = graph.needed()
        if self._before is None:
            infer_dtypes(self.oprs)
        self.new = graph.emptied()
        self.known = Inference()
        self._at: dict[int, Var] = {}
        self._guarded = find_branches(self.oprs).guard
        self._checking = error_operators(self.oprs)
        self._dedupe = dedupe
        self._same: dict[object, Opr] = {}
        self._constants = constants.Constants()
        self._next = 0
        self.on_grid: set[int] | None = None
        self.large: set[int] | None = None
        self._value_readers: dict[int, list[Opr]] = {}
        self._ends = {id(v) for v in graph.outputs}

    # What the old graph says

    @cached_property
    def readers(self) -> dict[int, list[Opr]]:
        """The operators that read a variable of the old graph, by its id."""
        return readers_of(self.oprs)

    def frozen(self, opr: Opr) -> bool:
        """Return whether an operator must stay as it is: it opens, closes or is in a branch, or is part of a check."""
        return self.checking(opr) or self._sometimes(opr)

    def checking(self, opr: Opr) -> bool:
        """Return whether an operator of the old graph computes the error of a check."""
        return opr.id in self._checking

    def _sometimes(self, opr: Opr) -> bool:
        return opr.id in self._guarded or opr.type in CONDITIONAL

    def is_output(self, var: Var) -> bool:
        """Return whether a variable of the old graph is one of its outputs."""
        return id(var) in self._ends

    def single(self, var: Var) -> bool:
        """Return whether the value of a variable of the old graph is read once and is not an output.

        Operators that look at the shape alone read no value.
        """
        if self.is_output(var):
            return False
        return len(self.value_readers(var)) <= 1

    def value_readers(self, var: Var) -> list[Opr]:
        """Return the operators that read the value of a variable of the old graph, not its shape alone."""
        readers = self._value_readers.get(var.id)
        if readers is None:
            readers = [o for o in self.readers.get(var.id, ()) if o.type not in _SHAPE_ONLY]
            self._value_readers[var.id] = readers
        return readers

    def old_shape(self, var: Var) -> Shape | None:
        """Return the shape of a variable of the old graph, None when unknown."""
        if self._before is None:
            self._before = Inference()
            for opr in self.oprs:
                follow(opr, self._before, {}, opr.id in self._guarded)
        return self._before.shapes.get(var.id)

    # What the new graph says

    def var(self, old: Var) -> Var:
        """Return the new variable that stands for an old one."""
        return self._at[old.id]

    def shape(self, var: Var) -> Shape | None:
        """Return the shape of a new variable, None when unknown."""
        return self.known.shapes.get(var.id)

    def dtype(self, var: Var) -> DType:
        """Return the data type of a new variable."""
        return dtype_of(var)

    def constant(self, var: Var) -> bool:
        """Return whether a new variable is the same in every run."""
        return self._constants.holds(var)

    def stored(self, var: Var) -> bool:
        """Return whether a new variable is a constant that is stored, not computed."""
        return constants.is_stored(var)

    def value(self, var: Var) -> Array | None:
        """Return the value of a constant, None if it is none or cannot be computed."""
        return self._constants.value(var)

    def immutable(self, var: Var) -> bool:
        """Return whether a variable follows from immutable constants alone."""
        if not self.constant(var):
            return False
        stack, seen = [var.owner], set()
        while stack:
            opr = stack.pop()
            if opr.tensors and opr.type != "ImmutableTensor":
                return False
            if id(opr) not in seen:
                seen.add(id(opr))
                stack.extend(v.owner for v in opr.inputs)
        return True

    def scalar(self, var: Var) -> float | None:
        """Return the number that all elements of a constant hold, None if they differ or it is not a constant."""
        return self._constants.scalar(var)

    # Growing

    def add(
        self,
        type: str,
        *params: Record,
        inputs: Sequence[Var] = (),
        n_outputs: int = 1,
        tensors: Sequence[StoredTensor] = (),
        output_dtype: DType | None = None,
        like: Opr | None = None,
    ) -> list[Var]:
        """Append an operator, or find an equal one; returns its outputs with dtypes and shapes.

        Args:
            like: an operator whose computing node and priority the new one takes.
        """
        opr = Opr(
            type, params, list(inputs), tensors=list(tensors), output_dtype=output_dtype, exact=self.new.exact
        )
        if like is not None:
            opr.dumped = like.dumped._replace(blobs=(), version=None)
        key = self._key(opr) if self._dedupe else None
        if key is not None and key in self._same:
            return list(self._same[key].outputs)
        for i in range(n_outputs):
            opr.outputs.append(Var(self._next + i, opr, i))
        self._insert(opr)
        if key is not None:
            self._same[key] = opr
        return list(opr.outputs)

    def _insert(self, opr: Opr, sometimes: bool = False, source: Opr | None = None) -> None:
        opr.id = len(self.new.oprs)
        if source is None or not self._inherit(opr, source):
            infer_dtypes([opr])
            follow(opr, self.known, {}, sometimes)
        self.new.oprs.append(opr)
        self._next += len(opr.outputs)

    def _inherit(self, opr: Opr, source: Opr) -> bool:
        """Take over what was known of the operator that is copied, if its inputs are what they were."""
        known, before = self.known, self._before
        if before is None:
            return False
        for new, old in zip(opr.inputs, source.inputs, strict=True):
            if known.shapes.get(new.id) != before.shapes.get(old.id) or new.dtype != old.dtype:
                return False
            if known.values.get(new.id) is not before.values.get(old.id):
                return False
        if any(v.dtype is None for v in opr.outputs):
            return False
        for new, old in zip(opr.outputs, source.outputs, strict=True):
            if old.id in before.shapes:
                known.shapes[new.id] = before.shapes[old.id]
            if old.id in before.values:
                known.values[new.id] = before.values[old.id]
        return True

    def _key(self, opr: Opr) -> object:
        if opr.type == "ImmutableTensor":
            t = opr.tensors[0]
            if t.data is None or t.data.nbytes > _SHORT:
                return None
            return ("ImmutableTensor", t.dtype, t.shape, t.data.tobytes())
        if opr.tensors or opr.dumped.blobs or not constants.is_pure(opr):
            return None
        return (opr.type, opr.params, tuple(v.id for v in opr.inputs), opr.output_dtype)

    def put(self, value: Array, dtype: DType, *, param: bool = False) -> Var:
        """Add a constant.

        Args:
            value: the value in storage dtype, at least one-dimensional.
            param: whether it is stored as a weight that a program may exchange (SharedDeviceTensor).
        """
        value = np.atleast_1d(value)
        tensor = StoredTensor(dtype, value.shape, None, encode(value, dtype))
        (var,) = self.add("SharedDeviceTensor" if param else "ImmutableTensor", tensors=[tensor])
        if value.size * dtype.np.itemsize > _SHORT:
            self._constants.keep(var, value)
        return var

    def copy(self, opr: Opr, inputs: Iterable[Var] | None = None, *params: Record) -> list[Var]:
        """Append a copy of an old operator and let its outputs stand for the old ones.

        Args:
            inputs: new inputs, default those that stand for the old ones.
            params: parameter records instead of the old ones.
        """
        operands = [self.var(v) for v in opr.inputs] if inputs is None else list(inputs)
        fresh = opr.copied(operands)
        fresh.params = params or opr.params
        key = self._key(fresh) if self._dedupe else None
        existing = self._same.get(key) if key is not None else None
        if existing is None:
            for i, var in enumerate(opr.outputs):
                fresh.outputs.append(var.copied(self._next + i, fresh))
            same = not params and operands == [self._at.get(v.id) for v in opr.inputs]
            self._insert(fresh, self._sometimes(opr), opr if same else None)
            if key is not None:
                self._same[key] = fresh
            existing = fresh
        for old, new in zip(opr.outputs, existing.outputs, strict=True):
            self.replace(old, new)
        return list(existing.outputs)

    def replace(self, old: Var, new: Var) -> None:
        """Let a new variable stand for an old one; it takes the name unless it has one of its own."""
        self._at[old.id] = new
        if not new.name and new.owner.type != "Host2DeviceCopy":
            new.name = old.name

    def rest(self, skip: Callable[[Opr], bool] = lambda _: False) -> Iterator[Opr]:
        """Yield the old operators in order, those that must stay as they are (or that `skip` names) already copied."""
        for opr in self.oprs:
            if self.frozen(opr) or skip(opr):
                self.copy(opr)
            else:
                yield opr

    def rewrite(self, visit: Callable[[Opr], Var | None]) -> bool:
        """Go through the old operators: `visit` gives what stands for the output of one, or None to copy it.

        Returns whether anything was put in the place of an operator.
        """
        changed = False
        for opr in self.oprs:
            replacement = None if self.frozen(opr) else visit(opr)
            if replacement is None:
                self.copy(opr)
            else:
                self.replace(opr.outputs[0], replacement)
                changed = True
        return changed

    def finish(self) -> Graph:
        """Finish the new graph: the old outputs' names, nothing unread, numbered again."""
        ends = [self.var(v) for v in self.old.outputs]
        named: dict[int, str] = {}
        # Outputs that became one value get an Identity each.
        self._dedupe = False
        for i, (old, new) in enumerate(zip(self.old.outputs, ends, strict=True)):
            if not old.name or named.get(id(new)) == old.name:
                continue
            if old.owner.type == "Host2DeviceCopy" and new.owner.type == "Host2DeviceCopy":
                continue
            if new.owner.type == "Host2DeviceCopy" or id(new) in named:
                (ends[i],) = self.add("Identity", *EMPTY, inputs=[new])
            ends[i].name = old.name
            named[id(ends[i])] = old.name
        self.new.outputs = ends
        constants.renumber(self.new, self.known, named)
        return self.new


EMPTY = (Empty(),)
"""The parameters of operators without any."""


def each(graph: Graph, visit: Callable[[Rewriter, Opr], Var | None], *types: str) -> Graph:
    """Rewrite single-output operators: `visit` gives what stands for the operator's output, or None to copy it.

    Args:
        types: operator types to visit, default all.
    """
    if constants.remembered(graph) and types and not any(opr.type in types for opr in graph.oprs):
        return graph
    r = Rewriter(graph)
    r.rewrite(
        lambda opr: visit(r, opr) if len(opr.outputs) == 1 and (not types or opr.type in types) else None
    )
    return r.finish()


def repeat(graph: Graph, visit: Callable[[Rewriter, Opr], Var | None], rounds: int, *types: str) -> Graph:
    """Rewrite operators as `Rewriter.rewrite` does, again and again until nothing changes.

    Args:
        rounds: how often at most.
        types: operator types to visit.
    """

    def rewritten(opr: Opr) -> Var | None:
        return visit(r, opr) if opr.type in types else None

    for _ in range(rounds):
        r = Rewriter(graph)
        if not r.rewrite(rewritten):
            break
        graph = r.finish()
    return graph
