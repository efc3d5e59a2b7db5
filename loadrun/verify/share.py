"""`loadrun reduce --anonymize`: a failing model with other tensors, which fails for the same reason."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import EngineError, UsageError
from ..dump.container import load_dump
from ..dump.store import save_as
from ..graph import Graph, StoredTensor
from ..graph.composite import Composite, GraphAttribute, TensorAttribute
from ..graph.dtypes import Array, DType
from ..ops.infer import infer_dtypes
from ..passes.constants import bare, subgraph
from ..testcase import Bundle
from .diff.extracting import Judge, as_testcase, computed_values, reference_values
from .reduce import FailureOptions, feeds_to_try

_TRIES = 5
_WORDS = ("activations", "nodes_modes")
"""Attributes that are lists of words of ONNX's own."""
_KEPT = ("nothing", "zeros and what is not finite", "zeros, signs and what is not finite")
"""What of a tensor is kept, tried in this order."""


@dataclass(frozen=True)
class Shared:
    """What was written.

    Attributes:
        reason: why it fails, and the original did.
        replaced: how many weights and inputs have other values.
        kept: what of their values is that of the original, in words.
    """

    reason: str
    replaced: int
    kept: str


def share_file(
    model: str | os.PathLike[str],
    target: str | os.PathLike[str],
    options: FailureOptions,
    *,
    warn: Callable[[str], None] = warnings.warn,
) -> Shared:
    """Write a failing model so that others may see it: it fails for the same reason with other tensors.

    Weights and inputs become random numbers of the same dtype, shape and order of magnitude, and names become numbers.
    Small constants of integers and single numbers stay, since they are shapes, axes and epsilons. The random numbers do
    not depend on the original ones. Where the failure needs it, places of zeros, and then signs, are kept.

    Args:
        model: the file whose model fails.
        target: the file to write, .mge or .onnx.
        options: what failing means: a command, an engine or float64.
        warn: called with what deserves a look.

    Raises:
        UsageError: the model does not fail, or not with other tensors, or it is compared with another model.
        LoadRunError: a file cannot be read or written.

    >>> import loadrun, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = FailureOptions(against="float64", maxerr=1e-9)
    ...     found = share_file("fixtures/nets/mlp.mge", os.path.join(folder, "shared.mge"), options)
    >>> found.reason, found.kept
    ('values differ', 'nothing')
    """
    options.check()
    if options.against is not None and options.engine is None and options.against != "float64":
        raise UsageError(
            "the other model would have to be shared too: here --against takes an engine or float64"
        )
    bundle = load_dump(model, options.dump, **options.read)
    with options.judge(target, bundle) as judge:
        for feeds in feeds_to_try(options, options.testcase, bundle, warn):
            graph = bare(bundle.for_data(feeds))
            candidate, reason = _judged(graph, feeds, options, judge)
            if reason is None:
                continue
            for kept, (other, values, count) in _replacements(graph, feeds):
                try:
                    candidate, again = _judged(other, values, options, judge)
                except EngineError:
                    # Random numbers need not be what an operator takes, such as the number of an image.
                    continue
                if again == reason:
                    save_as(candidate, target)
                    return Shared(reason, count, kept)
            raise UsageError(f"with other tensors the model does not fail for the same reason ({reason})")
    raise UsageError(f"{options.passing}, so there is nothing to share")


def _judged(
    graph: Graph, feeds: Mapping[str, Array], options: FailureOptions, judge: Judge
) -> tuple[Bundle, str | None]:
    """Make a testcase of a whole model and say why it fails."""
    infer_dtypes(graph.needed())
    ends = [*graph.inputs, *graph.outputs]
    if options.against == "float64":
        values = reference_values(graph, ends, "float64", feeds, options.seed)
    else:
        values = computed_values(graph, ends, feeds, options.seed)
    bundle = as_testcase(graph, graph.inputs, graph.outputs, values, maxerr=options.maxerr)
    return bundle, judge(bundle)


def _replacements(
    graph: Graph, feeds: Mapping[str, Array]
) -> Iterator[tuple[str, tuple[Graph, dict[str, Array], int]]]:
    """Yield what is kept, and models with other tensors."""
    for level, kept in enumerate(_KEPT):
        for _ in range(_TRIES):
            # Entropy of the system: a seed that is known would let anyone test guesses of the original.
            yield kept, _replaced(graph, feeds, level, np.random.default_rng())


def _replaced(
    graph: Graph, feeds: Mapping[str, Array], level: int, rng: np.random.Generator
) -> tuple[Graph, dict[str, Array], int]:
    other = bare(Bundle(graph))
    drawn = _Drawn(level, rng)
    names = drawn.replace(other)
    values = {names[n]: _other(a, None, level, rng) for n, a in feeds.items() if n in names}
    return other, values, drawn.count + len(values)


class _Drawn:
    """Replaces what the operators of graphs hold.

    Attributes:
        count: how many tensors have other values.
    """

    def __init__(self, level: int, rng: np.random.Generator) -> None:
        self._level, self._rng = level, rng
        self._tensors: dict[int, StoredTensor] = {}
        self._texts: dict[str, str] = {}
        self._sizes: dict[str, str] = {}
        self.count = 0

    def replace(self, graph: Graph) -> dict[str, str]:
        """Replace tensors, attributes and names in place; return the inputs' new names by their old ones."""
        names = {v.name or "": f"input{i}" for i, v in enumerate(graph.inputs)}
        ends = {v.name or "": f"output{i}" for i, v in enumerate(graph.outputs)}
        graph.declared = {
            (ends | names)[n]: tuple(self._size(s) for s in sizes)
            for n, sizes in graph.declared.items()
            if n in ends or n in names
        }
        for opr in graph.oprs:
            opr.name = None
            opr.params = tuple(self._params(p) if isinstance(p, Composite) else p for p in opr.params)
            for i, tensor in enumerate(opr.tensors):
                if opr.type == "Host2DeviceCopy":
                    name = names[tensor.name or ""]
                    opr.tensors[i] = StoredTensor(tensor.dtype, tensor.shape, name, ranked=tensor.ranked)
                else:
                    opr.tensors[i] = self._tensor(tensor)
        outputs = {v.id: f"output{i}" for i, v in enumerate(graph.outputs)}
        for var in graph.vars():
            is_input = var.owner.type == "Host2DeviceCopy"
            var.name = names[var.name or ""] if is_input else outputs.get(var.id, f"value{var.id}")
        return names

    def _size(self, size: int | str | None) -> int | str | None:
        return self._sizes.setdefault(size, f"size{len(self._sizes)}") if isinstance(size, str) else size

    def _tensor(self, tensor: StoredTensor) -> StoredTensor:
        """Return a tensor of other values, the same one wherever it is read."""
        value = tensor.value()
        key = id(value if tensor.data is None else tensor.data)
        if key not in self._tensors:
            fresh = self._array(value, tensor.dtype)
            self.count += fresh is not value
            self._tensors[key] = tensor.with_value(fresh)
        return self._tensors[key].copied()

    def _array(self, value: Array, dtype: DType) -> Array:
        if value.dtype == object:
            return np.array([self._text(v) for v in value.flat], object).reshape(value.shape)
        return value if _is_structure(value, dtype) else _other(value, dtype, self._level, self._rng)

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, f"text{len(self._texts)}")

    def _params(self, p: Composite) -> Composite:
        weights = p.definition.domain == "ai.onnx.ml"
        attributes = {n: self._attribute(n, v, weights) for n, v in p.attributes.items()}
        return Composite(p.definition, attributes, p.types, p.seed)

    def _attribute(self, name: str, value: Any, weights: bool) -> Any:  # noqa: ANN401 - of any type
        if isinstance(value, GraphAttribute):
            graph, _ = subgraph(value.graph, value.graph.outputs, everything=True)
            return value.over(graph, self.replace(graph))
        if isinstance(value, TensorAttribute):
            return TensorAttribute(self._array(value.value, value.dtype), value.dtype)
        if not isinstance(value, list) or not value or name in _WORDS:
            return value
        if isinstance(value[0], str):
            return [self._text(v) for v in value]
        if isinstance(value[0], float) and weights:
            self.count += 1
            return _other(np.array(value, np.float32), None, self._level, self._rng).tolist()
        return value


def _is_structure(value: Array, dtype: DType) -> bool:
    """Return whether a constant is a shape, an axis or an epsilon rather than a weight."""
    return value.size < 2 or (value.dtype.kind in "iub" and not dtype.is_quantized and value.size <= 64)


def _other(value: Array, dtype: DType | None, level: int, rng: np.random.Generator) -> Array:
    """Draw numbers like those of an array: of its dtype, its shape and its order of magnitude."""
    if value.dtype.kind == "b":
        return rng.integers(0, 2, value.shape).astype(value.dtype)
    numbers = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = float(finite.min(initial=0)), float(finite.max(initial=0))
    drawn: Array
    if value.dtype.kind in "iu":
        # Indices stay within what they were.
        return rng.integers(int(low), int(high) + 1, value.shape).astype(value.dtype)
    if low >= 0:
        smallest = float(finite[finite > 0].min(initial=np.inf)) if low > 0 else 0.0
        drawn = np.asarray(rng.uniform(_power(smallest), max(2 * _power(high), 1e-30), value.shape))
    else:
        drawn = np.asarray(rng.standard_normal(value.shape)) * _power(float(finite.std()) or 1.0)
    if level >= 2:
        drawn = np.abs(drawn) * np.where(numbers < 0, -1, 1)
    if level >= 1:
        drawn = np.where((numbers == 0) | ~np.isfinite(numbers), numbers, drawn)
    return drawn.astype(value.dtype)


def _power(number: float) -> float:
    """Round down to a power of two, so that no statistic of the original is told."""
    return float(2.0 ** np.floor(np.log2(number))) if 0 < number < np.inf else 0.0
