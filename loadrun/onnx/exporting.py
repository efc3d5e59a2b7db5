"""`loadrun.onnx.export`: torch.onnx.export's parameters, each doing what it documents or saying that it cannot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

from tabulate import tabulate

from ..base.errors import UsageError
from ..base.files import replacing
from .check import Verification, verify
from .datasets import write_data_sets
from .encode import TensorMessage, encode, raw_bytes
from .limits import KEY, text_of
from .model import Request, WrittenModel, write
from .sizes import DynamicAxes, DynamicShapes, dynamic_sizes, sizes_of_testcases
from .source import Exportable, ExportSource, read_source

__all__ = ["Exported", "OperatorExportTypes", "TrainingMode", "export"]

_ALIGNMENT = 4096
_SMALL = 1024
"""Weights below this many bytes stay in the model when the others go to another file."""
_LIMIT = 2**31 - 1
"""Protobuf messages are smaller than this."""
_Target = str | os.PathLike[str] | BinaryIO | None


class TrainingMode(IntEnum):
    """What `training` may be."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(IntEnum):
    """What `operator_export_type` may be."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


@dataclass(eq=False)
class Exported:
    """An exported model.

    Attributes:
        opset_version: version of ONNX's operators.
        input_names, output_names: names in the model.
        approximated: what is not exactly what the model does, by where it occurs first.
        verification: what `verify=True` compared.
        test_data_sets: how many testcases were written beside the file.
    """

    written: WrittenModel
    source: ExportSource
    verification: list[Verification] = field(default_factory=list)
    test_data_sets: int = 0

    @property
    def opset_version(self) -> int:
        """Version of ONNX's operators."""
        return self.written.opset

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs in the model."""
        return list(self.written.inputs.values())

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs in the model."""
        return list(self.written.outputs.values())

    @property
    def approximated(self) -> dict[str, str]:
        """What is not exactly what the model does, by where it occurs first."""
        return self.written.approximated

    @property
    def data(self) -> bytes:
        """The model as one serialized ModelProto.

        Raises:
            UsageError: it is 2 GiB or more; save it with `external_data`.
        """
        return b"".join(self._pieces())

    def _pieces(self) -> list[bytes | memoryview]:
        """Encode the model in pieces, with weights left where they lie in memory."""
        pieces = encode(self.written.model)
        size = sum(map(len, pieces))
        if size > _LIMIT:
            raise UsageError(
                f"the model takes {size} bytes, a protobuf message at most {_LIMIT}: use external_data=True"
            )
        return pieces

    @property
    def report(self) -> str:
        """What was written: inputs, outputs, operators, approximations, what was verified."""
        return _report(self)

    def save(self, f: str | os.PathLike[str] | BinaryIO, *, external_data: bool = False) -> None:
        """Write the model to a path or an open binary file.

        Args:
            external_data: weights of 1 KiB and more go to ``<name>.data`` beside the path.

        Raises:
            UsageError: external data without a path, or a model of 2 GiB or more without external data.
        """
        if not isinstance(f, (str, os.PathLike)):
            if external_data:
                raise UsageError("external_data=True needs a path: the weights are written beside it")
            f.writelines(self._pieces())
            return
        path = Path(f)
        if external_data:
            _save_external(self.written, path)
            return
        pieces = self._pieces()
        with replacing(path) as file:
            file.writelines(pieces)


def export(
    model: Exportable,
    args: object = (),
    f: _Target = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    export_params: bool = True,
    verbose: bool | None = None,
    training: int = TrainingMode.EVAL,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    operator_export_type: int = OperatorExportTypes.ONNX,
    opset_version: int | None = None,
    do_constant_folding: bool = True,
    dynamic_axes: DynamicAxes | None = None,
    dynamic_shapes: DynamicShapes | None = None,
    keep_initializers_as_inputs: bool = False,
    custom_opsets: Mapping[str, int] | None = None,
    export_modules_as_functions: bool = False,
    external_data: bool = False,
    report: bool = False,
    verify: bool = False,
) -> Exported:
    """Write a model as ONNX.

    Args:
        model: the path of a .mge file, a Bundle, a Graph, a traced function, a module or a function.
        args: example values: a tuple, one value, or a tuple whose last entry is a dict of keyword arguments (an empty
            dict behind it protects a real one). A file needs none; values for it go by the order of `Bundle.inputs`, or
            by name.
        f: a path or an open binary file; None only returns the model.
        kwargs: example keyword arguments.
        export_params: False leaves the weights' values out; they become inputs of the model, behind its own.
        verbose: print the report, and let every node say which operator it comes from (its doc string).
        training: EVAL traces a module in eval mode and puts it back; PRESERVE leaves it as it is. TRAINING is an error:
            graphs for training are not written.
        input_names: names for the first inputs, in order; more names than inputs are an error.
        output_names: names for the first outputs; more names than outputs are an error.
        operator_export_type: only ONNX; an operator without a translation is an error, not a foreign node.
        opset_version: 7 to 26; an error names every operator that needs a later one. None takes 18, or the first later
            one that has all operators.
        do_constant_folding: compute what follows from constants alone; False writes it as nodes, except sizes.
        dynamic_axes: {name: {axis: name of the size}} or {name: [axes]} for inputs and outputs. Unknown names are
            errors, and the dict stays as it is. Left out, the axes are dynamic in which a file's testcases differ.
        dynamic_shapes: the same as {input: {axis: Dim, name or None}}, or a list with an entry for every input.
        keep_initializers_as_inputs: list the weights as inputs, too, whose values are their defaults.
        custom_opsets: versions of other domains to declare.
        export_modules_as_functions: only False: graphs hold no modules.
        external_data: write weights to ``<f>.data``; needed from 2 GiB on.
        report: write what `Exported.report` says as a Markdown file beside the path, its ending ``.md``.
        verify: check the model with onnx.checker and compare ONNX Runtime with the reference engine, at the example's
            sizes and at another where axes are dynamic, and with what was given, called with the example, taking
            inputs and outputs by position.

    Returns:
        the model. Testcases of a file are written beside the path as ``NAME.test_data_set_N``.

    Raises:
        UsageError: parameters that contradict each other or cannot do what they ask for.
        UnsupportedError: operators that ONNX cannot express; all of them with their names and reasons.
        EngineError: `verify` found a difference.

    >>> import io, numpy as np, loadrun.onnx
    >>> file = io.BytesIO()
    >>> made = loadrun.onnx.export(lambda x: x * 2 + 1, np.ones((2, 3), "f4"), file, input_names=["x"],
    ...                            dynamic_axes={"x": {0: "n"}})
    >>> made.input_names, made.opset_version, len(file.getvalue()) == len(made.data)
    (['x'], 18, True)
    """
    _check_options(
        training, operator_export_type, export_modules_as_functions, custom_opsets, external_data, report, f
    )
    source = read_source(model, args, kwargs, training == TrainingMode.EVAL)
    if do_constant_folding:
        _fold(source)
    how = {
        "opset": opset_version,
        "export_params": export_params,
        "weights_are_inputs": keep_initializers_as_inputs,
        "docs": bool(verbose),
        "opsets": dict(custom_opsets or {}),
    }
    written = _written(source, input_names, output_names, dynamic_axes, dynamic_shapes, how)
    made = Exported(written, source)
    _finish(made, f, external_data, verify, export_params)
    if report and isinstance(f, (str, os.PathLike)):
        with replacing(Path(f).with_suffix(".md")) as text:
            text.write((made.report + "\n").encode())
    if verbose:
        print(made.report)
    return made


def _written(
    source: ExportSource,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    dynamic_axes: DynamicAxes | None,
    dynamic_shapes: DynamicShapes | None,
    how: Mapping[str, Any],
) -> WrittenModel:
    """Settle names and sizes, and translate."""
    renamed = _names("input", [i.name for i in source.inputs], input_names)
    ends = _names("output", list(source.outputs), output_names)
    inputs, outputs = dynamic_sizes(source, dynamic_axes, dynamic_shapes, renamed, ends)
    others: list[dict[str, tuple[int, ...]]] = []
    if dynamic_axes is None and dynamic_shapes is None:
        inputs, others = sizes_of_testcases(source)
    request = Request(
        source.graph,
        [(i.name, renamed[i.name], i.dtype, i.shape) for i in source.inputs],
        {ends[n]: v for n, v in source.outputs.items()},
        source.examples,
        inputs,
        {ends[n]: axes for n, axes in outputs.items()},
        others,
        **how,
    )
    written = write(request)
    written.outputs = {old: written.outputs[new] for old, new in ends.items()}
    if source.limits:
        limits = {written.outputs[n]: said for n, said in source.limits.items() if n in written.outputs}
        written.model.metadata = {**written.model.metadata, KEY: text_of(limits)}
    return written


def _finish(made: Exported, f: _Target, external_data: bool, judged: bool, whole: bool) -> None:
    """Save, verify, and write the testcases."""
    if f is not None:
        made.save(f, external_data=external_data)
    if judged:
        made.verification = verify(made.source, made.written, str(f) if external_data else made.data)
    if isinstance(f, (str, os.PathLike)) and len(made.source.testcases) and whole:
        made.test_data_sets = write_data_sets(Path(f), made.source, made.written)


def _check_options(
    training: int,
    kind: int,
    functions: bool,
    opsets: Mapping[str, int] | None,
    external: bool,
    report: bool,
    f: _Target,
) -> None:
    mode = getattr(training, "value", training)
    if mode not in (TrainingMode.EVAL, TrainingMode.PRESERVE):
        raise UsageError("training is EVAL or PRESERVE: graphs for training are not written")
    if getattr(kind, "value", kind) != OperatorExportTypes.ONNX:
        raise UsageError(
            "operator_export_type is ONNX: operators without a translation are errors, not foreign nodes"
        )
    if functions:
        raise UsageError("export_modules_as_functions is False: graphs hold no modules")
    for domain, version in (opsets or {}).items():
        if domain in ("", "ai.onnx"):
            raise UsageError("custom_opsets is for other domains; give ONNX's own version as opset_version")
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"the version of domain {domain!r} is a positive number, found {version!r}")
    path = isinstance(f, (str, os.PathLike))
    if external and not path:
        raise UsageError("external_data=True needs a path: the weights are written beside it")
    if report and not path:
        raise UsageError("report=True needs a path to write beside; Exported.report has the text")


def _names(kind: str, found: Sequence[str], given: Sequence[str] | None) -> dict[str, str]:
    """Map old names to new ones.

    Raises:
        UsageError: more names than there are, or one name twice.
    """
    if given is None:
        return {n: n for n in found}
    if isinstance(given, str):
        raise UsageError(f"{kind}_names is a list of names, found the text {given!r}")
    wanted = list(given)
    if len(wanted) > len(found):
        raise UsageError(
            f"{kind}_names has {len(wanted)} names for {len(found)} {kind}s ({', '.join(found)}); "
            "there is nothing else to name"
        )
    names = {old: wanted[i] if i < len(wanted) and wanted[i] else old for i, old in enumerate(found)}
    doubled = sorted({n for n in names.values() if list(names.values()).count(n) > 1})
    if doubled:
        raise UsageError(f"two {kind}s cannot have the name {', '.join(map(repr, doubled))}")
    return names


def _fold(source: ExportSource) -> None:
    """Compute what follows from constants alone."""
    from ..passes.cleanup.fold import fold_constants  # for start-up

    wanted = list(source.outputs)
    whole = source.graph
    order = [source.outputs[n] for n in wanted]
    if [id(v) for v in order] != [id(v) for v in whole.outputs]:
        return
    source.graph = fold_constants(whole)
    source.outputs = dict(zip(wanted, source.graph.outputs, strict=True))


def _save_external(written: WrittenModel, path: Path) -> None:
    """Save the weights in a file of their own, each at a multiple of the page size."""
    graph = written.model.graph
    stored = graph.initializers
    name = f"{path.name}.data"
    moved: list[TensorMessage] = []
    with replacing(path.parent / name) as file:
        offset = 0
        for tensor in stored:
            if tensor.value is None or tensor.nbytes < _SMALL:
                moved.append(tensor)
                continue
            gap = -offset % _ALIGNMENT
            file.write(b"\0" * gap)
            offset += gap
            file.write(raw_bytes(tensor))
            moved.append(
                TensorMessage(tensor.name, tensor.elem, tensor.dims, None, (name, offset, tensor.nbytes))
            )
            offset += tensor.nbytes
    graph.initializers = moved
    try:
        pieces = encode(written.model)
    finally:
        graph.initializers = stored
    with replacing(path) as file:
        for piece in pieces:
            file.write(piece)


# The report


def _report(made: Exported) -> str:
    written, graph = made.written, made.written.model.graph
    lines = [
        f"ONNX opset {written.opset}, {len(graph.nodes)} nodes, {len(graph.initializers)} stored tensors",
        "",
    ]
    rows = [
        (kind, v.name, v.elem.name.lower(), "x".join("?" if n is None else str(n) for n in v.shape or ()))
        for kind, values in (("input", graph.inputs), ("output", graph.outputs))
        for v in values
    ]
    lines.append(tabulate(rows, ("", "name", "dtype", "shape"), "github"))
    counted = sorted(written.operators.items())
    lines += ["", tabulate(counted, ("operator", "count"), "github")]
    if written.approximated:
        notes = [(text, where) for text, where in written.approximated.items()]
        lines += ["", tabulate(notes, ("approximated", "first at"), "github")]
    if made.verification:
        compared = [(v.output, v.sizes, f"{v.error:.3g}", v.quanta) for v in made.verification]
        lines += ["", tabulate(compared, ("verified", "at", "error", "quanta"), "github")]
    return "\n".join(lines)
