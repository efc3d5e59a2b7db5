"""One graph for each set of sizes: an ONNX model is read again for each set of input sizes.

Where the values of small inputs decide what no graph leaves open (a branch whose operators fit only one choice, a
shape, a number of steps), there is one for each set of these values too.

MegEngine's operators take as parameters what ONNX computes from sizes (pads, axes, numbers of steps), and what a
lowering decides from a size holds for that size. So a graph is only ever run at the sizes that it was made for.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..base.errors import EngineError, UnsupportedError
from ..graph import Graph, StoredTensor, Var, same_graph
from ..graph.dtypes import Array
from ..graph.params import Host2DeviceCopy
from ..testcase import EXPECT, Bundle, SourceFile
from .file import OnnxFile
from .importing import Importer
from .reading import STAND_INS, OnnxReader, fitting, witness
from .testdata import item_kind, lost_sets, testcases
from .types import StandIn, axis_of, declared_shape
from .values import graph_type

__all__ = ["OnnxModel", "UnsizedBundle"]

_KEPT = 16
"""The number of graphs that are kept, the most recently used ones."""
_LISTED = 8
"""As many values of an input are told."""
_Key = tuple[tuple[str, tuple[int, ...] | bytes], ...]


class UnsizedBundle(Bundle):
    """A model without a graph until sizes are known; its inputs are those that the file declares.

    Args:
        inputs: the inputs; those with open sizes have no shape.
        why: the error when the graph is accessed.
        path, size: as in `Bundle`.
    """

    def __init__(self, inputs: Graph, why: str, path: str, size: int) -> None:
        self._declared = inputs
        self._why = why
        super().__init__(inputs, path=path, size=size)

    @property
    def graph(self) -> Graph:
        """Always an error: there is no graph.

        Raises:
            UnsupportedError: always; the text says how sizes are given.
        """
        raise UnsupportedError(self._why)

    @graph.setter
    def graph(self, graph: Graph) -> None:
        """Take nothing: the dataclass's constructor assigns the inputs alone, which are no model's graph."""

    @property
    def fed(self) -> list[Var]:
        """The inputs that the file declares."""
        return self._declared.inputs

    @property
    def file(self) -> SourceFile | None:
        """The file, which runtimes can run as it is."""
        return self.source

    @property
    def input_order(self) -> tuple[str, ...]:
        """Their names in the file's order."""
        return self._declared.input_order

    @property
    def fixed_shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """No sizes: the file declares them."""
        return {}


class OnnxModel(OnnxReader):
    """An ONNX model lowered to MegEngine's operators, and the graphs built from it; see `OnnxReader`."""

    def __init__(self, file: OnnxReader) -> None:
        self.__dict__.update(file.__dict__)
        self._bundles: OrderedDict[_Key, Bundle] = OrderedDict()
        self._first: Bundle | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._deciding: set[str] = set()

    def first(self) -> Bundle:
        """Build the bundle for the sizes of the first data set, or those of `input_shapes` and the file.

        Where neither tells a size, some are tried (`STAND_INS`) until a graph can be made; `Bundle.taken` says which.

        Raises:
            UnsupportedError: nodes or inputs cannot be expressed, whatever the sizes are, and no runtime is to run the
                file as it is.
        """
        try:
            return self._first_sized()
        except EngineError as e:
            if not self._native:
                raise
            bundle = self._unread(" ".join(str(e).split()))
            bundle.expressible = getattr(e, "expressible", None)
            return bundle

    def _first_sized(self) -> Bundle:
        refused: list[tuple[Importer, UnsupportedError]] = []
        for first, other in STAND_INS:
            importer = self._importer(
                self._input_shapes, self._examples, self._expected, StandIn(self._infos, first, other)
            )
            try:
                graph = importer.graph()
            except UnsupportedError as e:
                refused.append((importer, e))
                if len(importer.inputs) < len(self._infos) or not (importer.assumed or importer.deciding):
                    raise
                if importer.unranked:
                    return self._unsized(importer, None)
                if not importer.assumed:
                    break
                continue
            if importer.unranked:
                return self._unsized(importer, None)
            bundle = self._bundle(importer, graph, self._expected)
            if importer.assumed:
                bundle.taken = importer.about_sizes()
            self._shapes = {n: d.shape for n, d in importer.inputs.items()}
            self._bundles[self._key(self._shapes, self._expected)] = self._first = bundle
            return bundle
        deciding = set.union(*(i.deciding for i, _ in refused))
        if deciding and deciding <= set(self._examples):
            self._shapes = {n: d.shape for n, d in refused[0][0].inputs.items()}
            self._first = self.sized({**self._examples, **{n + EXPECT: v for n, v in self._expected.items()}})
            return self._first
        alike = set.intersection(*(set(i.problems) - i.follows for i, _ in refused))
        if alike and not (deciding and self._runs_with(deciding)):
            raise refused[0][1]
        return self._unsized(*refused[0])

    def _runs_with(self, deciding: Iterable[str]) -> bool:
        """Return whether no node is refused alike at all sizes, whether some inputs are all 0 or all 1."""
        infos = {i.name: i for i in self._infos}
        known, asked = set[str](), set(deciding)
        # With one value known a node may ask for the next one.
        while asked - known:
            known |= asked
            alike: set[str] | None = None
            open_shapes = {n: declared_shape(infos[n]) or () for n in known}
            shapes = {n: [1 if d is None else d for d in s] for n, s in open_shapes.items()}
            shapes.update({n: list(s) for n, s in self._input_shapes.items() if n in known})
            for number, (first, other) in itertools.product((0, 1), STAND_INS):
                values = {n: np.full(s, number) for n, s in shapes.items()}
                stand_in = StandIn(self._infos, first, other)
                importer = self._importer({**self._input_shapes, **shapes}, {}, {}, stand_in, values=values)
                try:
                    importer.graph()
                except EngineError:
                    asked |= importer.deciding
                    problems = set(importer.problems) - importer.follows
                    alike = problems if alike is None else alike & problems
                    continue
                return True
        return not alike

    def sized(self, arrays: Mapping[str, Array]) -> Bundle:
        """Build the bundle for the sizes of some arrays; see `Bundle.for_data`."""
        shapes = dict(self._shapes)
        for info in self._infos:
            if info.name in arrays:
                shapes[info.name] = fitting(info, arrays[info.name].shape)
        expected = {
            n: a if e.ndim else a.reshape(())
            for n, e in {**self._more_items(arrays), **self._expected}.items()
            if (a := arrays.get(n + EXPECT)) is not None and (e.ndim or a.size == 1)
        }
        values = {n: arrays[n].reshape(shapes[n]) for n in self._deciding if n in arrays}
        key = self._key(shapes, expected, values)
        bundle = self._bundles.get(key)
        if bundle is None:
            examples = {n: arrays[n].reshape(s) for n, s in shapes.items() if n in arrays}
            importer = self._importer(
                {**self._input_shapes, **shapes}, examples, expected, values=values, sizes_known=True
            )
            try:
                graph = importer.graph()
            except UnsupportedError as e:
                if importer.deciding - self._deciding and importer.deciding <= set(arrays):
                    self._deciding |= importer.deciding
                    return self.sized(arrays)
                sizes = ", ".join(f"{n} {list(s)}" for n, s in shapes.items())
                error = UnsupportedError(f"{e}\nat the sizes {sizes}")
                error.expressible = e.expressible
                raise error from e
            bundle = self._bundles[key] = self._bundle(importer, graph, expected)
        self._bundles.move_to_end(key)
        while len(self._bundles) > _KEPT:
            self._bundles.popitem(last=False)
        return bundle

    def _more_items(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """List the values of sequences that the first data set does not have, like the first one that it has."""
        names = [n.removesuffix(EXPECT) for n in arrays if n.endswith(EXPECT)]
        firsts = {n: self._expected.get(n.rpartition(".")[0] + ".0", arrays[n + EXPECT]) for n in names}
        return {n: first for n, first in firsts.items() if item_kind(n, self._types) is not None}

    def _guarded(self, importer: Importer, graph: Graph | None) -> Graph:
        """Fix the open axes of a graph's inputs at which the graph is another one at another size.

        Where the graphs of two sizes are the same, nothing in them was decided by a size: the axis stays open.

        Args:
            importer: what read the model.
            graph: its graph; None where that is for known sizes, so that the model is read again.
        """
        expected, values = importer.expected, importer.values
        shapes = {n: d.shape for n, d in importer.inputs.items()}
        if values:
            said = ", ".join(f"{n!r} = {_listed(v)}" for n, v in sorted(values.items()))
            name = min(values)
            few = values[name].size <= _LISTED
            one = ",".join(map(str, values[name].reshape(-1).tolist())) if few else f"{name}.npy"
            raise UnsupportedError(
                f"the graph depends on the values of inputs, and is made for {said}; a file holds one graph, so make "
                f"them constants: constants={{...}}, or --constant {name}:{one}"
            )
        if graph is None:
            importer = self._importer(importer.input_shapes, importer.examples, expected)
            graph = importer.graph()
        axes = self._open_axes(shapes)
        if not axes:
            return graph
        # Expected values have the sizes of this graph; those at other sizes are unknown.
        alone = self._recorded(shapes) if expected else importer.recorded
        if self._same_at(alone, shapes, [a for places in axes for a in places]):
            return graph
        fixed: dict[str, list[int]] = {}
        for places in axes:
            if len(axes) == 1 or not self._same_at(alone, shapes, places):
                for name, axis in places:
                    fixed.setdefault(name, []).append(axis)
        return self._importer(shapes, importer.examples, expected, fixed=fixed).graph()

    def _open_axes(self, shapes: Mapping[str, tuple[int, ...]]) -> list[list[tuple[str, int]]]:
        """Group the inputs' axes whose sizes the file leaves open by name and size."""
        groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for info in self._infos:
            for axis, size in enumerate(shapes[info.name]):
                declared, name = axis_of(info, axis)
                if declared is None:
                    groups.setdefault((name, size), []).append((info.name, axis))
        return list(groups.values())

    def _same_at(
        self, graph: Graph, shapes: Mapping[str, tuple[int, ...]], places: Sequence[tuple[str, int]]
    ) -> bool:
        """Return whether the graph stays the same when some axes have another size: one more, or twice as many."""
        for factor, more in ((1, 1), (2, 0)):
            changed = {n: list(s) for n, s in shapes.items()}
            for name, axis in places:
                changed[name][axis] = factor * changed[name][axis] + more or 2
            try:
                return same_graph(graph, self._recorded(changed))
            except UnsupportedError:
                continue
        return False

    def _recorded(self, shapes: Mapping[str, Sequence[int]]) -> Graph:
        importer = self._importer(shapes, {}, {})
        importer.graph()
        return importer.recorded

    def _importer(
        self,
        shapes: Mapping[str, Sequence[int]],
        examples: Mapping[str, Array],
        expected: Mapping[str, Array],
        stand_in: StandIn | None = None,
        fixed: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, Array] | None = None,
        *,
        sizes_known: bool = False,
    ) -> Importer:
        budget = self._external.folding(self._size)
        options = examples, expected, self._maxerr, stand_in, fixed, budget, values
        args = self._model, self._external, shapes, self._constants, *options
        return Importer(*args, sizes_known=sizes_known)

    def _key(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        expected: Mapping[str, Array],
        values: Mapping[str, Array] | None = None,
    ) -> _Key:
        # How many axes an expected value has and whether it is empty decide how it is compared, its sizes do not.
        ends = ((n + EXPECT, (a.ndim, int(a.size > 0))) for n, a in expected.items())
        return (
            *sorted((*shapes.items(), *ends)),
            *sorted((n, v.tobytes()) for n, v in (values or {}).items()),
        )

    @property
    def file(self) -> OnnxFile:
        """The file, as runtimes get it."""
        return self._source

    def _bundle(self, importer: Importer, graph: Graph, expected: Mapping[str, Array]) -> Bundle:
        opset = next((o.version for o in self._model.opsets if o.domain in ("", "ai.onnx")), 1)
        graph.magic = f"ONNX opset {opset}"
        graph.input_order = tuple(i.name for i in self._infos)
        bundle = Bundle(graph, path=self._path, size=self._size, sized=self.sized, refuses=self.refuse)
        bundle.watches = tuple(self._external.watches)
        bundle.source = replace(self._source, graph=graph)
        bundle.witness = partial(witness, self._path, self._constants)
        shapes = {n: d.shape for n, d in importer.inputs.items()}
        bundle.record = self._record
        kept = None if importer.sizes_known else graph
        bundle.guarded = lambda: replace(bundle, graph=self._guarded(importer, kept), guarded=None)
        bundle.scalars = frozenset(
            [n for n, d in importer.inputs.items() if not d.shape]
            + [n for n, v in importer.outputs.items() if not v.rank]
        )
        bundle.open_inputs = frozenset(places[0] for axes in self._open_axes(shapes) for places in axes)
        bundle.warnings += list(importer.notes)
        kinds = {n: d.kind for n, d in importer.inputs.items()}
        kinds.update((n + EXPECT, importer.outputs[n].kind) for n in expected if n in importer.outputs)
        fed = {v.name for v in graph.inputs}
        if self._first is not None:
            bundle.testcases, bundle.watches = self._first.testcases, self._first.watches
            bundle.missed = self._first.missed
        elif self._sets:
            kinds = {n: k for n, k in kinds.items() if n in fed}
            bundle.missed = lost_sets(self._sets)
            bundle.testcases = testcases(
                self._sets, kinds, self._types, native=self._native, typed=graph_type
            )
        elif self._native and self._own_sets:
            bundle.missed = lost_sets(self._own_sets)
            bundle.testcases = testcases(self._own_sets, {}, self._types, native=True, typed=graph_type)
        return bundle

    def _unsized(self, importer: Importer, why: UnsupportedError | None) -> Bundle:
        """Build a bundle without a graph, for a model that takes none of the sizes that were tried."""
        graph = Graph(input_order=tuple(i.name for i in self._infos))
        for info in self._infos:
            declared, one = declared_shape(info), importer.inputs[info.name]
            open_one = declared is None or None in declared
            tensor = StoredTensor(
                graph_type(one.kind), None if one.assumed and open_one else one.shape or (1,), info.name
            )
            graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[info.name], tensors=[tensor])
        sizes = "the sizes that the file leaves open, or " if importer.assumed else ""
        reason = f"{'at sizes of 1, ' if sizes else ''}{why}"
        if why is None:
            reason = f"the file has no shape for the input {importer.unranked[0]!r}"
        text = (
            f"no graph can be built before {sizes}values on which it depends are known: feed the model, or give "
            f"{'input_shapes (--input-shape), ' if sizes else ''}constants (--constant); {reason}"
        )
        self._shapes = {n: d.shape for n, d in importer.inputs.items() if not d.assumed}
        bundle = self._first = UnsizedBundle(graph, text, self._path, self._size)
        bundle.sized, bundle.refuses = self.sized, self.refuse
        bundle.source = replace(self._source, graph=graph)
        bundle.watches = tuple(self._external.watches)
        bundle.witness = partial(witness, self._path, self._constants)
        bundle.scalars = frozenset(n for n, d in importer.inputs.items() if not d.shape)
        return bundle


def _listed(value: Array) -> str:
    """Return the first values of an input, as an error tells them."""
    first = ", ".join(map(str, value.reshape(-1)[:_LISTED].tolist()))
    return f"[{first}]" if value.size <= _LISTED else f"[{first}, ...] ({value.size} numbers)"
