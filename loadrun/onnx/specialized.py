"""One graph for each set of sizes: an ONNX model is read again for each set of input sizes.

Where the values of small inputs decide what no graph leaves open (a branch whose operators fit only one choice, a
shape, a number of steps), there is one for each set of these values too.

MegEngine's operators take as parameters what ONNX computes from sizes (pads, axes, numbers of steps), and what a
lowering decides from a size holds for that size. So a graph is only ever run at the sizes that it was made for.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..base.errors import EngineError, InputError, UnsupportedError
from ..graph import Graph, StoredTensor, Var, same_graph
from ..graph.dtypes import Array, DType
from ..graph.params import Host2DeviceCopy
from ..testcase import EXPECT, Bundle, FileValue, NamedRuntime, SourceFile
from .file import OnnxFile, declared, file_dtype, read_accepted
from .importing import Importer
from .limits import read_limits, record_of
from .messages import ModelProto, ValueInfoProto
from .tensors import ExternalData
from .testdata import DataSet, find_sets, item_kind, lost_sets, spread, testcases
from .values import StandIn, axis_of, declared_shape, graph_type

__all__ = ["OnnxModel", "UnsizedBundle"]

_KEPT = 16
"""The number of graphs that are kept, the most recently used ones."""
_LISTED = 8
"""As many values of an input are told."""
_STAND_INS = ((1, 1), (1, 64), (1, 256), (64, 64), (1, 640))
"""Sizes that are tried where none are given: of first axes, and of the others."""
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


def _witness(path: str, constants: Mapping[str, Any]) -> NamedRuntime | None:
    """Return ONNX Runtime's name and a function that runs the file in it, or None if not installed.

    It runs in a separate process: where it crashes, as in some of its kernels, only that process ends.
    """
    from .truth import runtime_apart, runtime_name  # for start-up

    name = runtime_name()
    if name is None:
        return None
    return name, runtime_apart(path, constants)


def _is_number(value: FileValue) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.dtype != object


class OnnxModel:
    """An ONNX model, and the graphs built from it.

    Args:
        model: what the file holds.
        path, file, data: its name, its path if it is a file, and its bytes.
        input_shapes: shapes by input name, for the first graph.
        constants: values of inputs that are constants.
        test_data: where its data sets are, if not beside it.
        copy: read files of weights into memory, instead of mapping them.
        native: whether a runtime is to run the file as it is.
    """

    def __init__(
        self,
        model: ModelProto,
        path: str,
        file: Path | None,
        data: memoryview,
        input_shapes: Mapping[str, Sequence[int]],
        constants: Mapping[str, Any],
        test_data: str | os.PathLike[str] | None,
        *,
        copy: bool = False,
        native: bool = False,
    ) -> None:
        assert model.graph is not None
        self._model, self._path, self._size, self._native = model, path, len(data), native
        self._input_shapes, self._constants = input_shapes, constants
        self._external = ExternalData(file.parent if file else None, copy=copy)
        outputs = {o.name: o for o in model.graph.outputs}
        stored = model.graph.stored
        names = [i.name for i in model.graph.inputs]
        replaced = {t.name for t in model.graph.initializers}.intersection(names)
        if replaced:
            # Their stored values are defaults, which data and constants replace.
            sets = find_sets(file, test_data, names, list(outputs))
            if not sets or not sets[0].feeds_all(len(names)):
                replaced &= constants.keys()
            stored -= replaced
            model.graph.initializers = [t for t in model.graph.initializers if t.name in stored]
        self._infos = [i for i in model.graph.inputs if i.name not in stored and i.name not in constants]
        names = [i.name for i in model.graph.inputs if i.name not in stored]
        sets = find_sets(file, test_data, names, list(outputs))
        self._types = {**declared(model.graph.inputs), **declared(model.graph.outputs)}
        # Stored values of outputs that are no tensors, such as maps, cannot be compared with their stand-ins.
        values = {n: v for n, v in spread(sets[0].own(self._types)).items() if _is_number(v)} if sets else {}
        examples = {n: v for n, v in values.items() if not n.endswith(EXPECT)}
        expected = {n.removesuffix(EXPECT): v for n, v in values.items() if n.endswith(EXPECT)}
        # Data for another model, or data that are not tensors, say nothing about this one.
        others = any(tuple(s) != examples[n].shape for n, s in input_shapes.items() if n in examples)
        others = others or bool(set(constants) & set(names))
        self._own_sets: list[DataSet] = [] if others else sets
        if others or any(n not in examples for n in names):
            sets, examples, expected = [], {}, {}
        self._sets: list[DataSet] = sets
        limits = read_limits(model, [s.folder for s in self._own_sets], list(outputs))
        self._record = record_of(limits, [] if file is None else read_accepted(file))
        self._maxerr = {n: float(said["maxerr"]) for n, said in limits.items() if "maxerr" in said}
        location = bytes(data) if file is None else str(file)
        source = OnnxFile.of(model, location, Graph(), constants, self._maxerr)
        self._source = replace(source, replaced=replaced)
        self._examples, self._expected = examples, expected
        self._bundles: OrderedDict[_Key, Bundle] = OrderedDict()
        self._first: Bundle | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._deciding: set[str] = set()

    def first(self) -> Bundle:
        """Build the bundle for the sizes of the first data set, or those of `input_shapes` and the file.

        Where neither tells a size, some are tried (`_STAND_INS`) until a graph can be made; `Bundle.taken` says which.

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
        for first, other in _STAND_INS:
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
            for number, (first, other) in itertools.product((0, 1), _STAND_INS):
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
                shapes[info.name] = _fitting(info, arrays[info.name].shape)
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

    def _refuse(self, arrays: Mapping[str, Array]) -> None:
        """Refuse arrays of other sizes than the file fixes, where nobody asked for them; see `Bundle.refuses`."""
        for info in self._infos:
            if info.name not in arrays:
                continue
            shape = _fitting(info, arrays[info.name].shape)
            declared = declared_shape(info) or (None,) * len(shape)
            asked = self._input_shapes.get(info.name, declared)
            sizes = zip(shape, declared, asked, strict=True)
            # Some exporters write 0 for an open size.
            if any(want and n not in (want, other) for n, want, other in sizes):
                raise InputError(
                    f"input {info.name!r} has shape {_shown(declared)} in the file, the given array has {list(shape)}; "
                    "--resize-input scales images to it, --input-shape (input_shapes) runs the model at other sizes: "
                    f"--input-shape {info.name}:{','.join(map(str, shape))}"
                )

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
        bundle = Bundle(graph, path=self._path, size=self._size, sized=self.sized, refuses=self._refuse)
        bundle.watches = tuple(self._external.watches)
        bundle.source = replace(self._source, graph=graph)
        bundle.witness = partial(_witness, self._path, self._constants)
        shapes = {n: d.shape for n, d in importer.inputs.items()}
        bundle.record = self._record
        bundle.guarded = partial(self._guarded, importer, None if importer.sizes_known else graph)
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
            bundle.testcases = testcases(self._sets, kinds, self._types, native=self._native)
        elif self._native and self._own_sets:
            bundle.missed = lost_sets(self._own_sets)
            bundle.testcases = testcases(self._own_sets, {}, self._types, native=True)
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
        bundle.sized, bundle.refuses = self.sized, self._refuse
        bundle.source = replace(self._source, graph=graph)
        bundle.watches = tuple(self._external.watches)
        bundle.witness = partial(_witness, self._path, self._constants)
        bundle.scalars = frozenset(n for n, d in importer.inputs.items() if not d.shape)
        return bundle

    def _unread(self, why: str) -> Bundle:
        """Build the bundle of a model that cannot be expressed: inputs of the declared types, and data."""
        graph = Graph(magic="ONNX", input_order=tuple(i.name for i in self._infos))
        scalars = set()
        for info in self._infos:
            dtype, shape = file_dtype(info.type), self._input_shapes.get(info.name)
            if info.type is None or info.type.tensor is None or dtype is None or dtype == DType("String"):
                continue
            if shape is None and (open_shape := declared_shape(info)) is not None:
                shape = [1 if n is None else n for n in open_shape]
            if shape is not None and not len(shape):
                scalars.add(info.name)
            graph_shape = None if shape is None else tuple(shape) or (1,)
            tensor = StoredTensor(dtype, graph_shape, info.name)
            graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[info.name], tensors=[tensor])
        bundle = Bundle(graph, path=self._path, size=self._size, scalars=frozenset(scalars), refusal=why)
        bundle.source = replace(self._source, graph=graph)
        bundle.watches = tuple(self._external.watches)
        bundle.record = self._record
        bundle.warnings.append(f"not run by the reference engine: {why}")
        if self._own_sets:
            bundle.missed = lost_sets(self._own_sets)
            bundle.testcases = testcases(self._own_sets, {}, self._types, native=True)
        return bundle


def _listed(value: Array) -> str:
    """Return the first values of an input, as an error tells them."""
    first = ", ".join(map(str, value.reshape(-1)[:_LISTED].tolist()))
    return f"[{first}]" if value.size <= _LISTED else f"[{first}, ...] ({value.size} numbers)"


def _fitting(info: ValueInfoProto, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an input's shape as ONNX has it, for an array fed to a graph, which has at least one axis."""
    declared = declared_shape(info)
    if declared is None or len(declared) == len(shape):
        return shape
    if not declared and shape == (1,):
        return ()
    raise InputError(
        f"input {info.name!r} has shape {_shown(declared)}, the given array has {list(shape)}; the number of axes must "
        "agree"
    )


def _shown(declared: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in declared)}]"
