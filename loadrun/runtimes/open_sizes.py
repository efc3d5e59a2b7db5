"""One model for all sizes at which a graph decides nothing else, where a graph is run at many of them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..base.errors import LoadRunError
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..graph.excerpts import excerpt
from ..onnx.encode import encode
from ..onnx.inserted import OpenSizes as NamedSizes
from ..onnx.model import Request, WritingOptions, write
from ..ops.infer import Inference
from ..ops.registry import Shape

Key = tuple[Shape, ...]
_FURTHER = 3
"""Sizes beyond those that were met, which go on as those do."""


class OpenSizes:
    """What is common to several sizes of a graph's inputs.

    Args:
        graph: the graph.
        inputs: its inputs.
        met: sizes of the inputs that were met, at least two.
        infer: gives what is known of the graph at some sizes.
    """

    def __init__(
        self, graph: Graph, inputs: Sequence[Var], met: Sequence[Key], infer: Callable[[Key], Inference]
    ) -> None:
        self.graph, self.inputs = graph, inputs
        self.keys = list(met)
        known = [infer(key) for key in met]
        for key in _further(met):
            try:
                known.append(infer(key))
            except LoadRunError:
                # They need not go on so.
                break
            self.keys.append(key)
        first = known[0]
        self._shapes = {i: s for i, s in first.shapes.items() if all(k.shapes.get(i) == s for k in known)}
        self.values = {i: v for i, v in first.values.items() if all(_same(k.values.get(i), v) for k in known)}

    def fits(self, known: Inference) -> bool:
        """Return whether nothing of what is common is otherwise at further sizes."""
        return all(known.shapes.get(i) == s for i, s in self._shapes.items()) and all(
            _same(known.values.get(i), v) for i, v in self.values.items()
        )

    def model(self, outputs: Mapping[str, Var], names: Mapping[int, str], opset: int) -> bytes:
        """Write a model that runs at these sizes.

        Args:
            outputs: what it computes, by the names that they get.
            names: the names of inputs by variable id.
            opset: version of ONNX's operators.

        Raises:
            UnsupportedError: an operator cannot be written so.
            UsageError: an axis takes no other size.
        """
        graph, _ = excerpt(self.graph, outputs.values(), names, self.values)
        read = [(v, i) for i, v in enumerate(self.inputs) if v.id in names]
        inputs = [
            (names[v.id], names[v.id], v.dtype, self.keys[0][i]) for v, i in read if v.dtype is not None
        ]
        # Axes whose sizes go together have one name.
        symbols: dict[tuple[int, ...], str] = {}
        dynamic: dict[str, dict[int, str]] = {}
        for var, i in read:
            for axis in range(len(self.keys[0][i])):
                sizes = tuple(key[i][axis] for key in self.keys)
                if len(set(sizes)) > 1:
                    symbol = symbols.setdefault(sizes, f"size_{len(symbols)}")
                    dynamic.setdefault(names[var.id], {})[axis] = symbol
        others = [{names[v.id]: key[i] for v, i in read} for key in self.keys[1:]]
        ends = dict(zip(outputs, graph.outputs, strict=True))
        open_sizes = NamedSizes(dynamic, fitting=others)
        request = Request(graph, inputs, ends, options=WritingOptions(opset=opset), sizes=open_sizes)
        return b"".join(encode(write(request).model))


def _further(met: Sequence[Key]) -> list[Key]:
    """Return sizes that go on as the last two do.

    >>> _further([((1, 4),), ((1, 5),)])
    [((1, 6),), ((1, 7),), ((1, 8),)]
    """
    keys = list(met[-2:])
    for _ in range(_FURTHER):
        pairs = zip(keys[-2], keys[-1], strict=True)
        keys.append(tuple(tuple(max(2 * b - a, 0) for a, b in zip(x, y, strict=True)) for x, y in pairs))
    return keys[2:]


def _same(a: Array | None, b: Array) -> bool:
    return a is b or (a is not None and np.array_equal(a, b))
