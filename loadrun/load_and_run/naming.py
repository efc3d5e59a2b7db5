"""The numbers, names and order of what load_and_run executes.

load_and_run compiles a copy of the loaded graph (`ops.numbering` has its names): operators that depend on an input are
numbered again, inputs first, then from the outputs' dependencies upward; the others keep their numbers. Of several
outputs the order is that of a hash table. A graph that MegEngine rewrites
while it compiles (one that was dumped without optimization) gets other numbers there; names that are in the file are
the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ..graph import Graph, Opr, Var
from ..ops.catalog import CATALOG
from ..ops.infer import Inference
from ..ops.numbering import Numbering, add_numbers, default_name, upward
from ..ops.op import Trait

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
        first = _INPUTS_FIRST if inputs_first and opr.type == "Host2DeviceCopy" else opr.priority
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
