"""What passes know of a graph (inferred facts, variables that are the same in every run), and copies of its parts."""

from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

import numpy as np

from ..base.errors import UsageError
from ..graph import Graph, Opr, StoredTensor, Var
from ..graph.dtypes import Array, DType, encode
from ..ops.catalog import CATALOG, types
from ..ops.infer import Inference, dtype_of, kernel_of
from ..ops.op import Trait
from ..ops.registry import Call, pay_operator
from ..testcase import EXPECT, Bundle

_CONSTANTS = types(Trait.CONSTANT)


def is_pure(opr: Opr) -> bool:
    """Return whether an operator gives the same for the same inputs and does nothing else.

    >>> is_pure(Opr("Dimshuffle")), is_pure(Opr("UniformRNGV1")), is_pure(Opr("AssertEqual"))
    (True, False, False)
    """
    known = CATALOG.get(opr.type)
    return known is not None and known.pure


def is_stored(var: Var) -> bool:
    """Return whether a variable is a constant that is stored, not computed."""
    return var.owner.type in _CONSTANTS


def number(graph: Graph, value: float, dtype: DType) -> Var:
    """Append a number to a graph, as a constant of shape ``[1]``."""
    tensor = StoredTensor(dtype, (1,), None, encode(np.array([value], dtype.np), dtype))
    (var,) = graph.add("ImmutableTensor", tensors=[tensor])
    var.dtype = dtype
    return var


class Constants:
    """The known constants of a growing graph; variables are distinguished by their ids.

    >>> from loadrun.graph.dtypes import encode
    >>> from loadrun.graph import Graph, StoredTensor
    >>> from loadrun.graph.params import Elemwise, ElemwiseMode
    >>> g, one = Graph(), np.ones(1, np.float32)
    >>> held = StoredTensor(DType("Float32"), (1,), None, encode(one, DType("Float32")))
    >>> (x,) = g.add("ImmutableTensor", tensors=[held])
    >>> (y,) = g.add("Elemwise", Elemwise(mode=ElemwiseMode.ADD), inputs=[x, x])
    >>> x.dtype = y.dtype = DType("Float32")
    >>> Constants().scalar(y)
    2.0
    """

    def __init__(self) -> None:
        self._constant: dict[int, bool] = {}
        self._values: dict[int, Array] = {}

    def keep(self, var: Var, value: Array) -> None:
        """Note the value of a constant, which need not be decoded then."""
        self._values[var.id] = value

    def holds(self, var: Var) -> bool:
        """Return whether a variable is the same in every run."""
        stack = [var]
        while stack:
            at = stack[-1]
            if at.id in self._constant:
                stack.pop()
                continue
            opr = at.owner
            if opr.type in _CONSTANTS or not opr.inputs or not is_pure(opr):
                self._constant[at.id] = opr.type in _CONSTANTS or (not opr.inputs and is_pure(opr))
                continue
            todo = [v for v in opr.inputs if v.id not in self._constant]
            if todo:
                stack.extend(todo)
                continue
            self._constant[at.id] = all(self._constant[v.id] for v in opr.inputs)
        return self._constant[var.id]

    def value(self, var: Var) -> Array | None:
        """Return the value of a constant, None if it is none or cannot be computed."""
        if not self.holds(var):
            return None
        stack = [var]
        while stack:
            at = stack[-1]
            if at.id in self._values:
                stack.pop()
                continue
            todo = [v for v in at.owner.inputs if v.id not in self._values]
            if todo:
                stack.extend(todo)
            elif not self._execute(at.owner):
                return None
        return self._values[var.id]

    def scalar(self, var: Var) -> float | None:
        """Return the number that all elements of a constant hold, None if they differ or it is not a constant."""
        value = self.value(var)
        if value is None or not value.size or var.dtype is None or var.dtype.is_quantized:
            return None
        first = value.reshape(-1)[0]
        if value.dtype.kind not in "fiub" or (value.size > 1 and not (value == first).all()):
            return None
        return float(first)

    def _execute(self, opr: Opr) -> bool:
        call = Call(
            opr,
            tuple(map(dtype_of, opr.inputs)),
            tuple(map(dtype_of, opr.outputs)),
            (True,) * len(opr.inputs),
        )
        try:
            arrays = [self._values[v.id] for v in opr.inputs]
            pay_operator(opr, call.inputs, call.outputs, arrays)
            with np.errstate(all="ignore"):
                outputs = kernel_of(call)(call, *arrays)
        except Exception:
            # What cannot be computed stays in the graph; running it reports why.
            return False
        for v, array in zip(opr.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
            self._values[v.id] = array
        return True


_KNOWN: WeakKeyDictionary[Graph, tuple[Inference, tuple[Opr, ...]]] = WeakKeyDictionary()
"""Knowledge of passes about the graphs that they made, for the next pass, and the operators that it is about."""


def remember(graph: Graph, known: Inference) -> None:
    """Keep what is known of a graph that a pass made; later changes of its operators are noticed."""
    _KNOWN[graph] = (known, tuple(graph.oprs))


def renumber(graph: Graph, known: Inference, named: Mapping[int, str]) -> None:
    """Set the numbers of a new graph's operators and variables by their places, and remember what is known of them.

    Args:
        graph: the graph; unused operators are dropped.
        known: shapes and values by the ids that its variables have so far.
        named: the names of outputs by their `id()`; no inner variable goes by one of them afterwards.
    """
    taken = set(named.values())
    oprs = graph.needed()
    numbered = Inference()
    count = 0
    for i, opr in enumerate(oprs):
        opr.id = i
        for var in opr.outputs:
            shape, value = known.shapes.get(var.id), known.values.get(var.id)
            if shape is not None and opr.type != "Host2DeviceCopy":
                var.shape = shape
            if id(var) not in named and var.name in taken and opr.type != "Host2DeviceCopy":
                var.name = None
            if shape is not None:
                numbered.shapes[count] = shape
            if value is not None:
                numbered.values[count] = value
            var.id = count
            count += 1
    graph.oprs = oprs
    remember(graph, numbered)


def remembered(graph: Graph) -> Inference | None:
    """Return what is known of a graph that a pass made, unless somebody changed it since."""
    known, oprs = _KNOWN.get(graph, (None, ()))
    if known is None or [*map(id, oprs)] != [*map(id, graph.oprs)]:
        return None
    fed = (o for o in oprs if o.type == "Host2DeviceCopy")
    same = all(known.shapes.get(o.outputs[0].id) == o.tensors[0].shape for o in fed)
    return known if same else None


def subgraph(
    graph: Graph,
    outputs: Iterable[Var],
    *,
    everything: bool = False,
    convert: Callable[[Graph, Opr, list[Var]], Var | None] | None = None,
) -> tuple[Graph, dict[int, Var]]:
    """Copy what some variables depend on; the bytes of stored tensors are shared.

    Args:
        graph: the source, which stays as it is.
        outputs: the copy's outputs, in order; a variable may stand twice.
        everything: copy what no output depends on as well.
        convert: called with the copy so far, an operator of the source and that operator's inputs in the copy; what it
            returns stands for the operator's first output, instead of a copy of the operator.

    Returns:
        the copy, renumbered, and its variables by the ids that they had in the source.

    >>> import loadrun
    >>> graph = loadrun.load("fixtures/nets/mlp.mge").graph
    >>> copied, _ = subgraph(graph, graph.outputs)
    >>> len(copied.oprs) == len(graph.oprs), copied.oprs[0] is graph.oprs[0]
    (True, False)
    """
    outputs = list(outputs)
    copied = graph.emptied()
    known: dict[int, Var] = {}
    for opr in graph.oprs if everything else graph.needed(outputs):
        inputs = [known[v.id] for v in opr.inputs]
        other = convert(copied, opr, inputs) if convert is not None else None
        if other is not None:
            known[opr.outputs[0].id] = other
            continue
        for old, new in zip(opr.outputs, copied.add_copy(opr, inputs), strict=True):
            known[old.id] = new
    copied.outputs = [known[v.id] for v in outputs]
    if [id(v) for v in outputs] == [id(v) for v in graph.outputs]:
        copied.header.original_ids = graph.header.original_ids
        copied.header.output_alias = graph.header.output_alias
    return copied, known


def bare(bundle: Bundle) -> Graph:
    """Return the model alone: without checks, expected values and what computes the errors.

    Outputs keep their order and get the names that the checks have for them: optimization renames variables. Messages
    call operators by their numbers in the bundle.

    Raises:
        UsageError: the model computes something from an input that is named like an expected value.

    >>> import loadrun
    >>> graph = bare(loadrun.load("fixtures/nets/mlp.mge"))
    >>> [v.name for v in graph.inputs], [v.name for v in graph.outputs]
    (['data'], ['out'])
    """
    outputs = bundle.outputs
    if not bundle.checks:
        graph, known = subgraph(bundle.graph, bundle.graph.outputs)
    else:
        graph, known = subgraph(bundle.graph, outputs.values())
        named: set[int] = set()
        for i, (name, var) in enumerate(outputs.items()):
            if var.owner.type == "Host2DeviceCopy" and var.name != name and var.id not in named:
                # An input that is an output as well keeps its own name.
                graph.outputs[i] = graph.add("Identity", inputs=[known[var.id]], names=[name])[0]
            elif var.id not in named:
                known[var.id].name = name
            named.add(var.id)
    for opr in bundle.graph.oprs:
        if opr.outputs and opr.outputs[0].id in known:
            known[opr.outputs[0].id].owner.number = opr.id if opr.number is None else opr.number
    for var in graph.inputs:
        if (var.name or "").endswith(EXPECT):
            raise UsageError(
                f"the model computes with its input {var.name!r}; names that end with {EXPECT} are those of "
                "expected values"
            )
    return graph
