"""Reading an ONNX file as a bundle."""

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import EngineError, FormatError, InputError, UnsupportedError, UsageError
from ..base.registry import late
from ..graph import Graph, Header, StoredTensor
from ..graph.composite import TensorAttribute
from ..graph.dtypes import Array, DType, held_array, numpy_array, plain
from ..graph.params import Host2DeviceCopy
from ..ops.registry import Shape, limited
from ..passes.checks import add_check
from ..testcase import EXPECT, Bundle, FileFacts, LazyTestcases, ModelSource, Testcase, spread
from .file import NOT_PROVEN, OnnxFile, file_dtype, read_accepted, read_limits, record_of
from .graph import GraphReader, NotExpressed
from .lasting import Lowering
from .messages import ModelProto, ValueInfoProto, read_model
from .tensors import ExternalData
from .testdata import DataSet, find_sets, item_kind, lost_sets, testcases
from .types import StandIn, axis_of, declared_shape, kind_of_dtype, type_of

with late(__name__):
    from .. import dump


STAND_INS = ((1, 1), (1, 64), (1, 256), (64, 64), (1, 640))
"""Sizes that are tried where none are given: of first axes, and of the others."""


class OnnxReader:
    """An ONNX model with its data sets.

    Args:
        model: what the file holds.
        path, file, data: its name, its path if it is a file, and its bytes.
        input_shapes: shapes by input name, for the first graph.
        constants: values of inputs that are constants.
        test_data: where its data sets are, if not beside it.
        apart: whether those beside it are not its testcases.
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
        apart: bool = False,
        copy: bool = False,
        native: bool = False,
    ) -> None:
        assert model.graph is not None
        self._model, self._path, self._size, self._native = model, path, len(data), native
        self._constants = constants
        self._external = ExternalData(file.parent if file else None, copy=copy)
        outputs = {o.name: o for o in model.graph.outputs}
        stored = model.graph.stored
        names = [i.name for i in model.graph.inputs]
        replaced = {t.name for t in model.graph.initializers}.intersection(names)
        if replaced:
            # Their stored values are defaults, which data and constants replace.
            sets = find_sets(None if apart else file, test_data, names, list(outputs))
            if not sets or not sets[0].feeds_all(len(names)):
                replaced &= constants.keys()
            stored -= replaced
            model.graph.initializers = [t for t in model.graph.initializers if t.name in stored]
        self._infos = [i for i in model.graph.inputs if i.name not in stored and i.name not in constants]
        self._sizes, self._input_shapes = self._named_sizes(input_shapes)
        names = [i.name for i in model.graph.inputs if i.name not in stored]
        sets = find_sets(None if apart else file, test_data, names, list(outputs))
        self._types = {i.name: i.type for i in (*model.graph.inputs, *model.graph.outputs)}
        # Stored values of outputs that are no tensors, such as maps, cannot be compared with their stand-ins.
        given = spread(sets[0].typed_values(self._types)) if sets else {}
        values = {n: v for n, v in given.items() if isinstance(v, np.ndarray) and v.dtype != object}
        examples = {n: v for n, v in values.items() if not n.endswith(EXPECT)}
        expected = {n.removesuffix(EXPECT): v for n, v in values.items() if n.endswith(EXPECT)}
        # Data for another model, or data that are not tensors, say nothing about this one.
        others = any(tuple(s) != examples[n].shape for n, s in input_shapes.items() if n in examples)
        others = others or bool(set(constants) & set(names))
        self._data_sets: list[DataSet] = [] if others else sets
        if others or any(n not in examples for n in names):
            sets, examples, expected = [], {}, {}
        self._sets: list[DataSet] = sets
        limits = read_limits(model, [s.folder for s in self._data_sets], list(outputs))
        self._record = record_of(limits, [] if file is None else read_accepted(file))
        self._maxerr = {n: float(said["maxerr"]) for n, said in limits.items() if "maxerr" in said}
        location = bytes(data) if file is None else str(file)
        source = OnnxFile.of(model, location, Graph(), constants, self._maxerr)
        self._source = replace(source, replaced=replaced)
        self._examples, self._expected = examples, expected
        self._last: GraphReader | None = None

    def read(self) -> Bundle:
        """Build the bundle.

        Where neither the file nor data nor `input_shapes` tell a size, some are tried (`STAND_INS`) until all nodes
        fit; `Bundle.taken` says which.

        Raises:
            UnsupportedError: nodes or inputs cannot be expressed, and no runtime is to run the file as it is.
        """
        try:
            return self._direct()
        except EngineError as e:
            if not self._native:
                raise
            bundle = self._unread(" ".join(str(e).split()))
            if self._last is not None:
                bundle.source.expressible = self._last.unfinished
            return bundle

    def _direct(self) -> Bundle:
        """Build the bundle whose graph has one operator for each node."""
        proto = self._model.graph
        assert proto is not None
        constants = {n: self._constant(n, v) for n, v in self._constants.items()}
        reader, assumed = self._reader(constants)
        graph = reader.graph
        outputs = {v.name or "": v for v in graph.outputs}
        bundle = Bundle(graph, path=self._path, facts=FileFacts(self._size))
        objects = bundle.holds_objects
        for name in dict.fromkeys(n for n in self._expected if n in outputs and not objects):
            reader.check(name, self._expected[name], self._maxerr.get(name))
        opset = next((o.version for o in self._model.opsets if o.domain in ("", "ai.onnx")), 1)
        graph.header.magic = f"ONNX opset {opset}"
        graph.input_order = tuple(i.name for i in self._infos)
        bundle = self._told(bundle)
        bundle.source.lower = self._lowering(
            bundle, {n: tuple(s) for n, s in reader.shapes.items()}, bool(assumed)
        )
        bundle.source.refuses = self.refuse
        scalars = [n for n, s in reader.shapes.items() if not s]
        scalars += [n for n, v in outputs.items() if reader.known.shapes.get(v.id) == ()]
        bundle.scalars = frozenset(scalars)
        bundle.source.open_inputs = frozenset(axes[0][0] for axes in self._open_axes(reader.shapes).values())
        if assumed:
            taken = [f"{n} {list(reader.shapes[n])}" for n in assumed if n in reader.shapes]
            more = f" and {len(taken) - 5} more" if len(taken) > 5 else ""
            bundle.source.taken = (
                f"the file leaves sizes open, and these were assumed: {', '.join(taken[:5])}{more}; data or "
                "input_shapes (--input-shape) set others"
            )
        if objects:
            # What no array holds is compared as the file has it.
            return self._with_cases(bundle)
        fed = {v.name or "": v for v in (*bundle.inputs, *graph.inputs)}
        kinds = {n: kind_of_dtype(v.owner.tensors[0].dtype) for n, v in fed.items()}
        if self._sets:
            bundle.facts.missed = lost_sets(self._sets)
            bundle.testcases = testcases(self._sets, kinds, self._types)
        elif self._native and self._data_sets:
            self._with_cases(bundle)
        return bundle

    def _lowering(self, bundle: Bundle, shapes: Mapping[str, Shape], assumed: bool) -> Lowering:
        """Return what makes graphs of MegEngine's operators of a bundle."""
        items = {n: v for n, v in self._expected.items() if item_kind(n, self._types) is not None}

        def of_items(graph: Graph) -> LazyTestcases | None:
            if not self._sets:
                return None
            kinds = {v.name or "": kind_of_dtype(v.owner.tensors[0].dtype) for v in graph.inputs}
            return testcases(self._sets, kinds, self._types)

        folding = partial(self._external.folding, self._size)
        open_axes = list(self._open_axes(shapes).values())
        return Lowering(bundle, self._source, shapes, items, assumed, open_axes, folding, of_items)

    def _reader(self, constants: Mapping[str, TensorAttribute]) -> tuple[GraphReader, list[str]]:
        """Read the graph, at the first sizes that all nodes fit; return the inputs whose sizes were assumed, too."""
        assert self._model.graph is not None
        tried: list[tuple[GraphReader, list[str]]] = []
        for first, other in STAND_INS:
            shapes, assumed = self._shapes_with(StandIn(self._infos, first, other))
            reader = self._last = GraphReader(self._model, self._external, shapes, constants)
            with limited(self._external.folding(self._size)):
                reader.read(self._model.graph)
            tried.append((reader, assumed))
            if reader.misfits and not assumed:
                lines = "\n".join(f"  {m}" for m in reader.misfits)
                raise UnsupportedError(f"the model's operators do not fit its sizes:\n{lines}")
            if not reader.misfits:
                return tried[-1]
        return tried[0]

    def _named_sizes(
        self, shapes: Mapping[str, Sequence[int]]
    ) -> tuple[dict[str, int], Mapping[str, Sequence[int]]]:
        """Divide what was asked for into sizes by the names that the file gives them, and shapes of inputs.

        Raises:
            UsageError: the file has no input or size of that name.
        """
        assert self._model.graph is not None
        inputs = [i.name for i in self._model.graph.inputs]
        axes = {i.name: [axis_of(i, a) for a in range(len(declared_shape(i) or ()))] for i in self._infos}
        names = {name for pairs in axes.values() for size, name in pairs if size is None}
        sizes = {n: int(s[0]) for n, s in shapes.items() if n not in inputs and n in names and len(s) == 1}
        unknown = sorted(((shapes.keys() - sizes.keys()) | self._constants.keys()) - set(inputs))
        if unknown:
            raise UsageError(
                f"the model has no input {unknown[0]!r}; its inputs are {', '.join(inputs) or 'none'}, and the sizes "
                f"that it leaves open {', '.join(sorted(n for n in names if ' ' not in n)) or 'have no names'}"
            )
        asked = {n: s for n, s in shapes.items() if n in inputs}
        for name, pairs in axes.items():
            shape = [sizes.get(size_name) if n is None else n for n, size_name in pairs]
            if name not in asked and sizes and None not in shape:
                asked[name] = [n for n in shape if n is not None]
        return sizes, asked

    def _shapes_with(self, stand_in: StandIn) -> tuple[dict[str, tuple[int, ...]], list[str]]:
        shapes: dict[str, tuple[int, ...]] = {}
        assumed: list[str] = []
        for info in self._infos:
            open_shape = declared_shape(info)
            if info.name in self._input_shapes or info.name in self._examples:
                asked = self._input_shapes.get(info.name)
                shapes[info.name] = tuple(self._examples[info.name].shape if asked is None else asked)
                if open_shape is not None and len(open_shape) != len(shapes[info.name]):
                    raise EngineError(
                        f"the input {info.name!r} has {len(open_shape)} axes, but its data or input_shapes have "
                        f"{list(shapes[info.name])}"
                    )
            elif open_shape is not None:
                axes = [axis_of(info, i) for i in range(len(open_shape))]
                shapes[info.name] = tuple(
                    (self._sizes.get(name) or stand_in.of(name, i)) if n is None else n
                    for i, (n, name) in enumerate(axes)
                )
                assumed += [info.name] if None in open_shape else []
        return shapes, assumed

    def _open_axes(self, shapes: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], list[tuple[str, int]]]:
        """Group the axes of inputs whose sizes the file leaves open by name and size."""
        groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for info in self._infos:
            for axis, size in enumerate(shapes.get(info.name, ())):
                declared_size, name = axis_of(info, axis)
                if declared_size is None:
                    groups.setdefault((name, size), []).append((info.name, axis))
        return groups

    def _constant(self, name: str, value: object) -> TensorAttribute:
        """Convert the constant for an input; one number takes the rank that the file declares.

        Raises:
            UsageError: it does not fit what the file declares.
        """
        assert self._model.graph is not None
        info = next(i for i in self._model.graph.inputs if i.name == name)
        dtype = type_of(info.type)
        if dtype is None:
            raise NotExpressed(f"the constant {name!r} has no type")
        if dtype.np.kind == "O":
            return TensorAttribute(_objects(name, value, info), dtype)
        array = numpy_array(value)
        if array.dtype.kind not in "biuf":
            raise UsageError(f"the constant for input {name!r} holds {array.dtype}, expected numbers")
        declared = declared_shape(info)
        rank = array.ndim if declared is None else len(declared)
        if array.size == 1 and min(rank, array.ndim) == 0:
            array = array.reshape((1,) * rank)
        if array.ndim != rank:
            raise UsageError(f"input {name!r} has {rank} axes, the constant for it {array.ndim}")
        return TensorAttribute(array.astype(dtype.np), dtype)

    def refuse(self, arrays: Mapping[str, Array]) -> None:
        """Refuse arrays of other sizes than the file fixes, where nobody asked for them; see `Bundle.refuses`."""
        for info in self._infos:
            if info.name not in arrays:
                continue
            shape = fitting(info, arrays[info.name].shape)
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

    def _told(self, bundle: Bundle) -> Bundle:
        """Tell a bundle what it is of the file, whatever its graph is."""
        bundle.source.file = replace(self._source, graph=bundle.graph)
        bundle.facts.watches = tuple(self._external.watches)
        bundle.record = self._record
        left = next((p.value for p in self._model.properties if p.key == NOT_PROVEN), "")
        bundle.facts.warnings += [f"not proven: {text}" for text in left.splitlines()]
        return bundle

    def _unread(self, why: str) -> Bundle:
        """Build the bundle of a model that cannot be expressed: inputs of the declared types, and data."""
        graph = Graph(header=Header("ONNX"), input_order=tuple(i.name for i in self._infos))
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
        bundle = Bundle(
            graph,
            path=self._path,
            scalars=frozenset(scalars),
            facts=FileFacts(self._size),
            source=ModelSource(refusal=why),
        )
        bundle = self._told(bundle)
        bundle.warnings.append(f"not run by the reference engine: {why}")
        if self._data_sets:
            self._with_cases(bundle)
        return bundle

    def _with_cases(self, bundle: Bundle) -> Bundle:
        """Add the data beside the file as it has them."""
        bundle.facts.missed = lost_sets(self._data_sets)
        bundle.testcases = testcases(self._data_sets, {}, self._types)
        return bundle


def _objects(name: str, value: object, info: ValueInfoProto) -> Array:
    """Return the constant for an input of text, or for one that is no tensor.

    Raises:
        UsageError: it does not fit what the file declares.
    """
    kind = info.type
    if kind is not None and kind.tensor is not None:
        return np.asarray(value, object)
    if kind is not None and kind.sequence is not None and not isinstance(value, (list, tuple)):
        raise UsageError(
            f"input {name!r} is a sequence, the constant for it {type(value).__name__}, expected a list"
        )
    return held_array(value, plain("Object"))


def fitting(info: ValueInfoProto, shape: tuple[int, ...]) -> tuple[int, ...]:
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


def load_model(
    data: memoryview,
    path: str = "<bytes>",
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    test_data: str | os.PathLike[str] | None = None,
    copy: bool = False,
    native: bool = False,
) -> Bundle:
    """Read an ONNX model.

    Args:
        data: the bytes of the file.
        path: where they come from; external data and folders ``NAME.test_data_set_N``, or ``test_data_set_N``, are
            looked for beside it.
        input_shapes: shapes by input name, for `Bundle.graph` and for data that are made up: where the file leaves
            sizes open, or others are wanted. Data bring their own: a graph is made for each set of sizes that is fed.
        constants: values of inputs that are to be constants of the graph.
        test_data: a folder of test data sets, or one of them, instead of those beside the model; or a .mge file that
            was packed from it, whose testcases, tolerances and policies hold for the file as it is on a runtime.
        copy: read files of weights into memory, instead of mapping them.
        native: whether a runtime is to run the file as it is: of a model that cannot be expressed the bundle has
            inputs, testcases and the reason.

    Raises:
        FormatError: the bytes are no ONNX model, or one that contradicts itself.
        UnsupportedError: nodes cannot be expressed; the text lists all of them. Not where `native` is true.
        UsageError: `input_shapes` or `constants` name no input, `test_data` holds no data.
    """
    file = Path(path) if path != "<bytes>" and Path(path).is_file() else None
    packed = test_data if test_data is not None and os.fspath(test_data).lower().endswith(".mge") else None
    try:
        model = OnnxReader(
            read_model(data),
            path,
            file,
            data,
            _plain_shapes(input_shapes or {}),
            constants or {},
            test_data if packed is None else None,
            apart=packed is not None,
            copy=copy,
            native=native,
        )
        bundle = model.read()
    except FormatError as e:
        e.path = e.path or path
        raise
    if packed is not None:
        other = dump.load(packed)
        limits = {c.name: c.maxerr for c in other.checks}
        lower = bundle.source.lower

        def beside(read: Bundle) -> Bundle:
            _check(read, limits, other.testcases)
            read.testcases = _in_types(other.testcases, read.graph)
            read.record = other.record
            assert isinstance(read.source.file, OnnxFile)
            read.source.file = replace(read.source.file, tolerances=limits)
            return read

        bundle = beside(bundle)
        bundle.source.lower = None if lower is None else lambda *how: beside(lower(*how))
    return bundle


def _check(bundle: Bundle, limits: Mapping[str, float], cases: Sequence[Testcase]) -> None:
    """Add checks of outputs that have none and are expected, with their tolerances by name."""
    if bundle.holds_objects or not limits or not cases:
        return
    expects = cases[0].expects
    graph, checked = bundle.graph, {c.name for c in bundle.checks}
    for i, var in enumerate(graph.outputs):
        name = var.name or ""
        if name in limits and name in expects and name not in checked:
            shape = expects[name].shape
            graph.outputs[i] = add_check(graph, name, var, shape, maxerr=limits[name], verbose=False)


def _in_types(cases: Sequence[Testcase], graph: Graph) -> LazyTestcases:
    """Return testcases of a dump with the types of a graph's inputs, such as int64, which no dump has."""
    types = {v.name or "": v.owner.tensors[0].dtype for v in graph.inputs}

    def read(number: int) -> Testcase:
        case = cases[number]
        dtypes = {n: types.get(n, d) for n, d in case.dtypes.items()}
        arrays = {n: a.astype(types[n].np, copy=False) if n in types else a for n, a in case.arrays.items()}
        return replace(case, arrays=arrays, dtypes=dtypes)

    return LazyTestcases(read, range(len(cases)))


def _plain_shapes(shapes: object) -> Mapping[str, Sequence[int]]:
    """Return shapes by input name with plain sizes, from a caller who may have passed anything."""
    if not isinstance(shapes, Mapping):
        kind = type(shapes).__name__
        raise UsageError(f"input_shapes are shapes by input name, such as {{'x': (1, 3)}}; found {kind}")
    result = {}
    for name, shape in shapes.items():
        try:
            result[name] = tuple(map(operator.index, shape))
        except TypeError:
            raise UsageError(
                f"the shape of the input {name!r} must be a list of whole numbers, found {shape!r}"
            ) from None
        if min(result[name], default=0) < 0:
            raise UsageError(f"the shape of the input {name!r} has a negative size: {list(shape)}")
    return result
