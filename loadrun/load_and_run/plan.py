"""A graph as load_and_run would execute it: numbers, names, order, and how it prints a variable."""

import heapq
from collections.abc import Iterable, Mapping, Sequence

from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..graph.params import OptionalAxisV1
from ..ops.catalog import CATALOG
from ..ops.infer import Inference, infer_dtypes, infer_shapes
from ..ops.numbering import Numbering, add_numbers, default_name, loaded, upward
from ..ops.op import Trait
from ..ops.registry import Shape

# The numbers, names and order of what load_and_run executes.
#
# load_and_run compiles a copy of the loaded graph (`ops.numbering` has its names): operators that depend on
# an input are numbered again, inputs first, then from the outputs' dependencies upward; the others keep their
# numbers. Of several outputs the order is that of a hash table. A graph that MegEngine rewrites while it
# compiles (one that was dumped without optimization) gets other numbers there; names that are in the file are
# the same.

_HOST = {
    "AdaptivePoolingForward": 1,
    "Alloc": 0,
    "ArgsortBackward": 2,
    "Broadcast": 1,
    "CondExecPred": 0,
    "ConvolutionBackwardData": 2,
    "Convolution3DBackwardData": 2,
    "ConvolutionBackwardFilter": 2,
    "Eye": 0,
    "GaussianRNG": 0,
    "GetVarShape": 0,
    "Images2NeibsBackward": 1,
    "IncrSubtensor": 2,
    "IndexingRemapBackward": 2,
    "Linspace": 0,
    "PermutationRNG": 0,
    "ROIPoolingForward": 2,
    "Reduce": 1,
    "RegionRestrictedConvolutionBackwardData": 4,
    "Reshape": 1,
    "Resize3DForward": 1,
    "ResizeForward": 1,
    "SetSubtensor": 2,
    "SlidingWindowTransposeBackward": 1,
    "Split": 1,
    "Subtensor": 1,
    "UniformRNG": 0,
    "WarpAffineForward": 2,
}
"""From which input on values are wanted on the host: where possible, they are computed in advance."""
_LAST_HOST = {"WarpPerspectiveForward"}
"""Here it is the last input alone."""
_INPUTS_FIRST = -(2**31)
_BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087)
"""How many buckets a hash table of libstdc++ takes, one size after another."""


def compiled(graph: Graph, before: Numbering) -> Numbering:
    """Numbers and names of the copy that load_and_run executes: its inputs first, then what depends on them."""
    numbering = Numbering(dict(before.oprs), dict(before.vars), dict(before.scratch), before.next)
    for opr in upward((v.owner for v in graph.outputs), before.inputs):
        if opr.type == "Host2DeviceCopy":
            name = before.var(opr.outputs[0])[1]
            add_numbers(numbering, opr, name, before.oprs[opr.id].name, numbering.next)
    fed: set[int] = set()
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" or any(v.owner.id in fed for v in opr.inputs):
            fed.add(opr.id)
    ends = {before.oprs[v.owner.id].id: v.owner for v in graph.outputs}
    for opr in upward((ends[number] for number in _hashed(ends)), before.inputs):
        if opr.id not in fed or opr.type == "Host2DeviceCopy":
            continue
        number = numbering.next
        name = opr.name or default_name(opr, number, [numbering.var(v)[1] for v in before.inputs(opr)])
        add_numbers(numbering, opr, name, before.oprs[opr.id].name, number)
        for var in opr.outputs:
            numbering.vars[var.id] = (
                numbering.vars[var.id][0],
                before.var(var)[1] if var.name else numbering.vars[var.id][1],
            )
    return numbering


def _hashed(numbers: Iterable[int]) -> list[int]:
    """Order numbers as libstdc++'s ``unordered_set`` gives them back, in which MegEngine keeps the ends of a graph.

    It is one chain: what falls into an empty bucket goes to its front, anything else to the front of its bucket. When
    there are more numbers than buckets, more buckets are taken, and the chain is made again from its front.
    """
    chain: list[int] = []
    buckets = _BUCKETS[0]
    for number in numbers:
        if len(chain) == buckets:
            buckets = next((n for n in _BUCKETS if n >= 2 * buckets), 2 * buckets + 1)
            previous, chain = chain, []
            for one in previous:
                _hash_into(chain, one, buckets)
        _hash_into(chain, number, buckets)
    return chain


def _hash_into(chain: list[int], number: int, buckets: int) -> None:
    chain.insert(next((i for i, n in enumerate(chain) if n % buckets == number % buckets), 0), number)


def host_inputs(opr: Opr) -> frozenset[int]:
    """List the inputs an operator wants on the host: sizes, places, and those of which it reads the shape alone."""
    cls = CATALOG[opr.type].class_name
    if cls in _LAST_HOST:
        return frozenset((len(opr.inputs) - 1,))
    return frozenset(range(_HOST.get(cls, len(opr.inputs)), len(opr.inputs)))


def _waited_for(opr: Opr, known: Inference) -> list[Var]:
    """List the inputs that must be computed before an operator: all but those known on the host in advance."""
    host = host_inputs(opr)
    there = known.shapes if Trait.SHAPE_ONLY in CATALOG[opr.type].traits else known.values
    return [v for i, v in enumerate(opr.inputs) if i not in host or v.id not in there]


def executed(graph: Graph, known: Inference) -> list[Opr]:
    """List the operators that MegEngine executes: those whose values are wanted and not known in advance."""
    todo = [v.owner for v in graph.outputs]
    wanted: dict[int, Opr] = {}
    while todo:
        opr = todo.pop()
        if opr.id not in wanted:
            wanted[opr.id] = opr
            todo += [v.owner for v in _waited_for(opr, known)]
    return [o for o in graph.oprs if o.id in wanted]


def sequence(
    oprs: Sequence[Opr], numbers: Numbering, known: Inference, *, inputs_first: bool = True
) -> list[Opr]:
    """Return the order of execution: inputs first, then what follows the freshest value, then the highest number.

    Args:
        oprs: what is executed.
        numbers: their numbers.
        known: what is known in advance, so that nobody waits for it.
        inputs_first: whether the graph's inputs come first, as in load_and_run.
    """
    there = {o.id: o for o in oprs}
    readers: dict[int, list[Opr]] = {}
    missing: dict[int, int] = {}
    for opr in oprs:
        before = {v.owner.id for v in _waited_for(opr, known)} & there.keys()
        missing[opr.id] = len(before)
        for one in before:
            readers.setdefault(one, []).append(opr)
    fresh = dict.fromkeys(there, 0)

    def entry(opr: Opr) -> tuple[int, int, int, int]:
        first = _INPUTS_FIRST if inputs_first and opr.type == "Host2DeviceCopy" else opr.dumped.priority
        return first, -fresh[opr.id], -numbers.oprs[opr.id].id, opr.id

    heap = [entry(o) for o in oprs if not missing[o.id]]
    heapq.heapify(heap)
    order: list[Opr] = []
    while heap:
        opr = there[heapq.heappop(heap)[-1]]
        order.append(opr)
        for reader in readers.get(opr.id, ()):
            fresh[reader.id] = len(order)
            missing[reader.id] -= 1
            if not missing[reader.id]:
                heapq.heappush(heap, entry(reader))
    return order


NONE, CONST, RUNTIME, MISSING = 1, 2, 4, 8
"""Kinds of knowledge of a shape or value before execution: nothing says how to infer it, it is constant, it follows
from the inputs, or something is missing."""
STATIC_NAMES = {NONE: "NO_DESC", CONST: "CONST", RUNTIME: "RT_STATIC", MISSING: "MISSING_INP"}
_NODE = 'CompNode("cpu0:0" from "xpux:0")'
_NO_AXIS = 7


class ExecutionPlan:
    """The order and numbers in which MegEngine executes a graph, for given input shapes.

    Args:
        graph: the graph to execute; its dtypes are inferred.
        shapes: the inputs' shapes by name.

    Attributes:
        loaded: numbers and names after loading.
        numbers: numbers and names of what is executed.
        order: the operators that are executed, in order.
    """

    node = _NODE

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape] | None = None) -> None:
        infer_dtypes(graph.oprs)
        self.graph = graph
        self.known: Inference = infer_shapes(graph, graph.oprs, shapes)
        self.loaded = loaded(graph)
        self.numbers = compiled(graph, self.loaded)
        self.order = sequence(executed(graph, self.known), self.numbers, self.known)
        self.on_device = {v.id for o in self.order for v in o.outputs}
        self._shape, self._value = _static(graph)
        self._layouts: dict[int, str] = {}

    def note(self, var: Var, array: Array) -> None:
        """Remember how a value is in memory."""
        self._layouts[var.id] = self._layout(var, array)

    def infer_type(self, var: Var) -> tuple[int, int]:
        """Tell what is known in advance of a variable's shape and of its value."""
        return self._shape[var.id], self._value[var.id]

    def storage(self, var: Var) -> str:
        """``s`` where memory can be planned in advance, else ``d``."""
        return "s" if self._shape[var.id] in (CONST, RUNTIME) else "d"

    def layout(self, var: Var) -> str:
        """Shape and strides of the last value, as MegEngine prints them."""
        return self._layouts.get(var.id) or self._layout(var, None)

    def _layout(self, var: Var, array: Array | None) -> str:
        shape = self.known.shapes.get(var.id, ()) if array is None else array.shape
        view = array is not None and Trait.VIEW in CATALOG[var.owner.type].traits
        strides = (
            [s // array.itemsize for s in array.strides] if view and array is not None else packed(shape)
        )
        sizes = ",".join(f"{n}({s})" for n, s in zip(shape, strides, strict=True))
        return f"{{{sizes} {var.dtype.name if var.dtype else '?'}}}"

    def info(self, var: Var, numbers: Numbering | None = None) -> str:
        """Show a variable as MegEngine's messages do, with the numbers of what is executed unless others are given."""
        numbers = numbers or self.numbers
        number, name = numbers.var(var)
        owner = numbers.oprs[var.owner.id]
        placed = numbers is self.numbers and var.id in self.on_device
        shape = self.known.shapes.get(var.id, ())
        where = f"layout:{self.layout(var)}" if placed else f"shape:{shape_text(shape)}"
        known = self.infer_type(var)
        return (
            f"{{id:{number}, {where}, {var.dtype.name if var.dtype else '?'}, "
            f"owner:{owner.name}{{{owner.cls}}}, name:{name}, slot:{var.index}, {_NODE}, "
            f"{self.storage(var)}, {known[0]}, {known[1]}}}"
        )

    def infos(self, opr: Opr, numbers: Numbering | None = None) -> str:
        """Show the inputs of an operator, numbered where there are several."""
        inputs = (numbers or self.numbers).inputs(opr)
        one = len(inputs) == 1
        return " ".join(f"{'' if one else f'{i}='}{self.info(v, numbers)}" for i, v in enumerate(inputs))


def shape_text(shape: Shape) -> str:
    """Format a shape as MegEngine prints it.

    >>> shape_text((1, 10))
    '{1,10}'
    """
    return "{" + ",".join(str(n) for n in shape) + "}"


def packed(shape: Shape) -> list[int]:
    """Return the steps between elements of an array without gaps.

    >>> packed((2, 3, 4))
    [12, 4, 1]
    """
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def _static(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """Tell what is known of shapes and values before anything is executed."""
    shapes: dict[int, int] = {}
    values: dict[int, int] = {}
    for opr in graph.oprs:
        traits = CATALOG[opr.type].traits
        if opr.type == "Host2DeviceCopy":
            shape, value = RUNTIME, RUNTIME
        elif Trait.CONSTANT in traits:
            shape, value = CONST, CONST if opr.type == "ImmutableTensor" else NONE
        else:
            shape = _shape(opr, shapes, values)
            value = _value(opr, shapes, values)
        for var in opr.outputs:
            shapes[var.id], values[var.id] = shape, value
    return shapes, values


def _weakest_knowledge(levels: list[int]) -> int:
    if any(f in (NONE, MISSING) for f in levels):
        return MISSING
    return max(levels, default=CONST)


def _shape(opr: Opr, shapes: Mapping[int, int], values: Mapping[int, int]) -> int:
    op = CATALOG[opr.type]
    if Trait.DATA_SHAPED in op.traits:
        return NONE
    host = host_inputs(opr)
    levels = [values[v.id] for i, v in enumerate(opr.inputs) if i in host]
    told = op.inputs.rstrip("?").endswith(" target_shape") and (
        op.name != "ReshapeV1" or opr.get(OptionalAxisV1).axis == _NO_AXIS
    )
    if levels and told:
        return _weakest_knowledge(levels)
    if op.family == "indexing" or Trait.SHAPE_ONLY in op.traits:
        levels = []
    return _weakest_knowledge(
        [*levels, *(shapes[v.id] for i, v in enumerate(opr.inputs) if i not in host or not levels)]
    )


def _value(opr: Opr, shapes: Mapping[int, int], values: Mapping[int, int]) -> int:
    op = CATALOG[opr.type]
    if op.class_name == "AssertEqual":
        return values[opr.inputs[0].id]
    # What is filled is made when it is executed.
    if op.family == "fill" or not (Trait.INFERRED in op.traits or op.conditional):
        return NONE
    if Trait.SHAPE_ONLY in op.traits:
        # Shapes of inputs; what is constant there is still asked for at run time.
        return max(RUNTIME, _weakest_knowledge([shapes[v.id] for v in opr.inputs]))
    return _weakest_knowledge([values[v.id] for v in opr.inputs])
