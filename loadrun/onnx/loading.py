"""Reading an ONNX file as a bundle."""

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import FormatError, UsageError
from ..base.registry import late
from ..graph import Graph
from ..passes.checks import add_check
from ..testcase import Bundle, LazyTestcases, Testcase
from .messages import read_model
from .reading import OnnxReader

with late(__name__):
    from .. import dump


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
            read.source.file = model.source(read.graph, limits)
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
