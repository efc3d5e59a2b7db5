"""Mutants of an audit, of weights and testcases, and parts of a model without effect: dead channels, useless inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod

import numpy as np

from ..engines.reference import ReferenceEngine
from ..graph import Graph, Opr, StoredTensor
from ..graph.dtypes import Array, DType, encode
from ..graph.params import ConvBias, Convolution, Format
from ..ops.catalog import types
from ..ops.op import Trait
from ..passes.constants import subgraph
from ..testcase import EXPECT, Bundle, Testcase

ELEMENT = "weight elements"
EXPECTED = "expected values"
MOVED = "inputs moved by one"
SWAPPED = "testcases swapped"
CASE_KINDS = (EXPECTED, MOVED, SWAPPED)


@dataclass(frozen=True)
class Weight:
    """A stored tensor of numbers that outputs depend on.

    Attributes:
        opr: the operator that stores it.
        place: which of its tensors it is.
        outputs: names of the outputs that depend on it.
        reader: an operator that reads it.
        label: what it is called in reports.
    """

    opr: Opr
    place: int
    outputs: frozenset[str]
    reader: Opr
    label: str

    @property
    def size(self) -> int:
        """The number of its elements."""
        return prod(self.opr.tensors[self.place].shape or ())


def weights(bundle: Bundle) -> list[Weight]:
    """List the stored tensors of several numbers that outputs depend on; what only errors depend on is left out."""
    reaches: dict[int, set[str]] = {}
    readers: dict[int, Opr] = {}
    for name, var in bundle.outputs.items():
        reaches.setdefault(id(var), set()).add(name)
    tensors = []
    for opr in reversed(bundle.graph.oprs):
        names = set().union(*(reaches.get(id(v), ()) for v in opr.outputs))
        for var in opr.inputs if names else ():
            reaches.setdefault(id(var), set()).update(names)
            readers[id(var)] = opr
        if opr.type == "Host2DeviceCopy":
            continue
        for i, tensor in enumerate(opr.tensors):
            var = opr.outputs[min(i, len(opr.outputs) - 1)]
            if id(var) in reaches and _is_weight(tensor):
                reader = readers.get(id(var), opr)
                tensors.append(Weight(opr, i, frozenset(reaches[id(var)]), reader, _label(tensor, reader)))
    return tensors[::-1]


def _is_weight(tensor: StoredTensor) -> bool:
    """Return whether a stored tensor is a weight, not a shape, an index or a single constant."""
    numbers = tensor.dtype.is_float or tensor.dtype.is_quantized
    return tensor.data is not None and numbers and prod(tensor.shape or ()) > 1


def _label(tensor: StoredTensor, reader: Opr) -> str:
    shape = "x".join(map(str, tensor.shape or ()))
    return f"{tensor.name or 'the weights'} ({shape}) of operator {reader.id} {reader.title}"


def drawn(tensors: Sequence[Weight], most: int, rng: np.random.Generator) -> list[tuple[Weight, int]]:
    """Draw elements of weights uniformly, in random order.

    They are at equal distances in the row of all elements, so that no large tensor is left out.

    Args:
        tensors: the weights.
        most: how many elements at most.
        rng: what draws.
    """
    ends = np.cumsum([w.size for w in tensors])
    total = int(ends[-1]) if tensors else 0
    count = min(most, total)
    if not count:
        return []
    places = ((np.arange(count) + rng.random()) * (total / count)).astype(np.int64)
    elements = []
    for place in rng.permutation(places).tolist():
        i = int(np.searchsorted(ends, place, side="right"))
        elements.append((tensors[i], place - int(ends[i]) + tensors[i].size))
    return elements


def mutant(graph: Graph, weight: Weight, element: int) -> Graph | None:
    """Copy a graph with one element of a weight wrong; None if its dtype holds no such value.

    The element moves by twice the root mean square of its tensor towards the other sign, which turns the sign of one of
    typical size.
    """
    tensor = weight.opr.tensors[weight.place]
    value = tensor.value().copy()
    if not _moved(value, element, tensor.dtype):
        return None
    copied, known = subgraph(graph, graph.outputs)
    twin = known[weight.opr.outputs[0].id].owner
    twin.tensors[weight.place] = copy(tensor)
    twin.tensors[weight.place].data = encode(value, tensor.dtype)
    return copied


def _moved(value: Array, element: int, dtype: DType | None) -> bool:
    """Move one element in place by twice the root mean square of all; return whether it is another one now."""
    flat = value.reshape(-1)
    old = flat[element]
    if value.dtype.kind == "b":
        flat[element] = not old
        return True
    zero = float(dtype.zero_point) if dtype is not None and dtype.is_asymmetric else 0.0
    wide = flat.astype(np.float64) - zero
    finite = wide[np.isfinite(wide)]
    step = 2 * float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
    if value.dtype.kind in "iu":
        if dtype is None or not dtype.is_quantized:
            step = 1.0
        low, high = np.iinfo(value.dtype).min, np.iinfo(value.dtype).max
        step = max(1.0, round(step))
        new = int(old) + int(-step if wide[element] > 0 else step)
        flat[element] = min(max(new, low), high)
    else:
        with np.errstate(all="ignore"):
            flat[element] = old - step if old > 0 else old + (step or 1.0)
    return bool(flat[element] != old)


def case_mutants(
    cases: Sequence[Testcase], rng: np.random.Generator
) -> Iterator[tuple[str, int, Testcase | None]]:
    """Yield mutants of each testcase: an element of every expected value wrong, an input moved, another one's inputs.

    Yields:
        what was done, to which testcase, and what is fed instead, which a check must reject; None where an earlier
        testcase has the same inputs, so that the two say the same.
    """
    for i, case in enumerate(cases):
        wrong = dict(case.arrays)
        for name in sorted(n for n in wrong if n.endswith(EXPECT)):
            if wrong[name].size and wrong[name].dtype.kind in "iubf":
                wrong[name] = wrong[name].copy()
                _moved(wrong[name], int(rng.integers(wrong[name].size)), case.dtypes.get(name))
        yield EXPECTED, i, Testcase(wrong, case.dtypes)
        for name, value in case.inputs.items():
            yield MOVED, i, _with(case, {name: _by_one(value, rng)})
        if any(_same(case.inputs, other.inputs) for other in cases[:i]):
            yield SWAPPED, i, None
        elif other := next((c for c in [*cases[i + 1 :], *cases[:i]] if _fits(case, c)), None):
            yield SWAPPED, i, _with(case, other.inputs)


def _with(case: Testcase, inputs: Mapping[str, Array]) -> Testcase:
    """Return a testcase with other inputs."""
    return Testcase({**case.arrays, **inputs}, case.dtypes)


def _by_one(value: Array, rng: np.random.Generator) -> Array:
    # A common shift has no effect on a softmax or a normalization.
    some = rng.integers(0, 2, value.size).astype(bool)
    some[:1], some[1:2] = True, False
    some = some.reshape(value.shape)
    moved: Array = value ^ some if value.dtype.kind == "b" else value + some.astype(value.dtype)
    return moved


def _same(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def _fits(case: Testcase, other: Testcase) -> bool:
    """Return whether another testcase's inputs have the same shapes but other values."""
    one, two = case.inputs, other.inputs
    return one.keys() == two.keys() and all(one[n].shape == two[n].shape for n in one) and not _same(one, two)


_PACKED = types(Trait.PACKED)
"""Plain convolutions of two spatial axes, with bias or without."""


def equal_testcases(cases: Sequence[Testcase]) -> Iterator[str]:
    """Name the testcases that have the inputs of an earlier one."""
    first: dict[tuple[object, ...], int] = {}
    same: dict[int, list[int]] = {}
    for i, case in enumerate(cases):
        key = tuple((n, a.shape, a.tobytes()) for n, a in sorted(case.inputs.items()))
        if key in first:
            same.setdefault(first[key], []).append(i)
        else:
            first[key] = i
    for i, others in same.items():
        what = f"testcase {others[0]} has" if len(others) == 1 else f"testcases {_listed(others)} have"
        yield f"{what} the inputs of testcase {i}"


class Walk:
    """The sizes that a model's values have in testcases.

    Args:
        bundle: the model.
        cases: the testcases.

    Raises:
        EngineError: the model does not run on the reference engine.
    """

    def __init__(self, bundle: Bundle, cases: Iterable[Testcase]) -> None:
        engine = ReferenceEngine(bundle.graph, list(bundle.outputs.values()))
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        for case in cases:
            feeds = {n: a for n, a in case.inputs.items() if n in engine.inputs}
            for opr, outs in engine.walk(feeds):
                for var, value in zip(opr.outputs, outs, strict=True):
                    self._shapes.setdefault(id(var), set()).add(value.shape)

    def only_padding(self, weight: Weight, element: int) -> bool:
        """Return whether an element of a kernel meets only padding, because the inputs are so small."""
        tensor, reader = weight.opr.tensors[weight.place], weight.reader
        param = next((p for p in reader.params if isinstance(p, (Convolution, ConvBias))), None)
        shape = tensor.shape or ()
        if param is None or len(shape) < 4 or param.format != Format.NCHW or not reader.inputs:
            return False
        sizes = self._shapes.get(id(reader.inputs[0]), ())
        results = self._shapes.get(id(reader.outputs[0]), ())
        if reader.type not in _PACKED or not sizes:
            return False
        at = np.unravel_index(element, shape)[-2:]
        steps = ((param.pad_h, param.stride_h, param.dilate_h), (param.pad_w, param.stride_w, param.dilate_w))
        for axis, (pad, stride, dilate) in enumerate(steps):
            first = int(at[axis]) * dilate - pad
            most, last = max(s[2 + axis] for s in sizes), max(s[2 + axis] for s in results)
            if not any(0 <= first + i * stride < most for i in range(last)):
                return True
        return False


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown}, ... ({len(numbers)} in all)"
