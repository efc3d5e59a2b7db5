"""An exported model: what it holds, its report, its files, and the comparison with what it was written from."""

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from tabulate import tabulate

from ..base.errors import EngineError, LoadRunError, UsageError
from ..base.proving import level, spending
from ..base.writing import replacing
from ..dump import load
from ..engines.others import Computing, Other
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..proof import NOTHING, Found, Proof, ProofError, proved, refusal
from ..testcase import Bundle
from .encode import TensorMessage, encode, raw_bytes
from .messages import Piece
from .model import WrittenModel
from .source import ExportSource
from .truth import beside, installed

_ALIGNMENT = 4096
_SMALL = 1024
"""Weights below this many bytes stay in the model when the others go to another file."""
_LIMIT = 2**31 - 1
"""Protobuf messages are smaller than this."""
_ROOM = 1 << 24
"""What a model takes at most besides its weights before they are put into another file unasked."""


@dataclass(eq=False)
class Exported:
    """An exported model.

    Attributes:
        opset_version: version of ONNX's operators.
        input_names, output_names: names in the model.
        approximated: what is not exactly what the model does, by where it occurs first.
        verification: what `verify=True` compared.
        test_data_sets: how many testcases were written beside the file.
        left_out: testcases that the model does not take, which were not written, and why, a phrase each.
    """

    written: WrittenModel
    source: ExportSource
    verification: Sequence[Found] = ()
    test_data_sets: int = 0
    left_out: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return a line with the model's border and size."""
        nodes = len(self.written.model.graph.nodes)
        return (
            f"Exported(opset {self.opset_version}, inputs {self.input_names}, outputs {self.output_names}, "
            f"nodes: {nodes}, test data sets: {self.test_data_sets})"
        )

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
    def is_large(self) -> bool:
        """Whether the weights need a file of their own."""
        return sum(t.nbytes for t in self.written.model.graph.initializers) > _LIMIT - _ROOM

    @property
    def data(self) -> bytes:
        """The model as one serialized ModelProto.

        Raises:
            UsageError: it is 2 GiB or more; save it with `external_data`.
        """
        return b"".join(self._pieces())

    def _pieces(self) -> list[Piece]:
        """Encode the model in pieces, with weights left where they are in memory."""
        pieces = encode(self.written.model)
        size = sum(map(len, pieces))
        if size > _LIMIT:
            raise UsageError(
                f"the model takes {size} bytes, but a protobuf message at most {_LIMIT}: use external_data=True"
            )
        return pieces

    @property
    def report(self) -> str:
        """A summary: inputs, outputs, operators, approximations, verification."""
        written, graph = self.written, self.written.model.graph
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
        lines += ["", tabulate(sorted(written.operators.items()), ("operator", "count"), "github")]
        if written.approximated:
            notes = [(text, where) for text, where in written.approximated.items()]
            lines += ["", tabulate(notes, ("approximated", "first at"), "github")]
        if self.verification:
            compared = [(v.output, v.runtime, v.data, f"{v.error:.3g}") for v in self.verification]
            lines += ["", tabulate(compared, ("verified", "in", "on", "error"), "github")]
        return "\n".join(lines)

    def save(self, f: str | os.PathLike[str] | BinaryIO, *, external_data: bool = False) -> None:
        """Write the model to a path or an open binary file.

        Args:
            external_data: weights of 1 KiB and more go to ``<name>.data`` beside the path; those of a model of 2 GiB
                and more do in any case.

        Raises:
            UsageError: external data without a path, a model of 2 GiB or more without external data, or a file that is
                opened for text.
        """
        if isinstance(f, io.TextIOBase):
            raise UsageError("f must be a path or a file opened in binary mode, found a text file")
        if not isinstance(f, (str, os.PathLike)):
            if external_data:
                raise UsageError("external_data=True needs a path: the weights are written next to it")
            f.writelines(self._pieces())
            return
        path = Path(f)
        large = external_data or self.is_large
        pieces = _beside(self.written, path) if large else self._pieces()
        with replacing(path) as file:
            file.writelines(pieces)


def _beside(written: WrittenModel, path: Path) -> list[Piece]:
    """Save the weights in a file of their own, each at a multiple of the page size; return the pieces of the model."""
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
        return encode(written.model)
    finally:
        graph.initializers = stored


def available() -> bool:
    """Return whether onnx and onnxruntime are installed."""
    return not _missing()


def _missing() -> list[str]:
    return [name for name in ("onnx", "onnxruntime") if not installed(name)]


def check_model(data: bytes | str) -> None:
    """Let onnx.checker judge a model: its bytes, or the path of one whose weights are in another file.

    Raises:
        EngineError: it finds a fault.
    """
    import onnx  # optional

    try:
        onnx.checker.check_model(
            data if isinstance(data, str) else onnx.load_from_string(data), full_check=True
        )
    except Exception as e:
        raise EngineError(f"onnx.checker rejects the model: {e}") from e


def of_written(written: WrittenModel, run: Computing) -> Computing:
    """Return what computes by the names of the source, with what runs the model by its own names."""
    fed = {v.name for v in written.model.graph.inputs}
    weights = {t.name: t.value for t in written.weights if t.value is not None and t.name in fed}

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        inputs = {written.inputs[n]: v for n, v in feeds.items() if n in written.inputs}
        values = run({**weights, **inputs})
        return {n: np.atleast_1d(values[new]) for n, new in written.outputs.items() if new in values}

    return compute


def prove_export(
    source: ExportSource, written: WrittenModel, model: bytes | str | None, *, verify: bool = False
) -> Proof:
    """Compare a model that was written with what it was written from.

    Args:
        source: what was exported.
        written: the model and its names.
        model: its bytes, or its path; None for a model that is too large for one message and not written yet.
        verify: whether onnx.checker and ONNX Runtime must take it, however long that takes, and what was given is
            called with the example.

    Raises:
        ProofError: they give different numbers.
        EngineError: it was to be verified, and the checker or the runtime refuses it.
        UsageError: it was to be verified, and onnx or onnxruntime is not installed.
    """
    if verify and (missing := _missing()):
        raise UsageError(f"verify=True needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    if level() == "none" and not verify:
        return NOTHING
    if model is None:
        return Proof(left=("it is too large to be read back",))
    with spending():
        return _proved(source, written, model, verify)


def _proved(source: ExportSource, written: WrittenModel, model: bytes | str, verify: bool) -> Proof:
    if verify:
        check_model(model)
    again = None if source.module.inserted else _again(source, written, model)
    run = beside(model)
    others = []
    if run is not None and all(t.value is not None for t in written.weights):
        others.append(
            Other(run[0], "the ONNX model", of_written(written, run[1]), run[2], told=True, required=verify)
        )
    left = (
        (again,) if isinstance(again, str) else ("nodes beside the graph",) if source.module.inserted else ()
    )
    if left and not (verify and others):
        return Proof(left=left)
    try:
        return proved(
            Bundle(source.graph),
            again if isinstance(again, Bundle) else None,
            [source.examples] if source.examples else (case.inputs for case in source.testcases),
            inputs=written.inputs,
            outputs=written.outputs,
            sizes=written.sizes[1:],
            what="the ONNX model",
            compute=_computing(source, verify),
            others=others,
            drawn=not source.module.inserted,
            runs=0,
        )
    except ProofError as e:
        if verify or not written.approximated:
            raise
        return Proof(left=(f"it is approximated ({'; '.join(written.approximated)}): {e}",))


def _again(source: ExportSource, written: WrittenModel, model: bytes | str) -> Bundle | str:
    """Return the model as it is read back, or why that cannot be compared.

    Raises:
        ProofError: it is no valid model, or its inputs or outputs come in another order.
    """
    if source.module.parameters or any(t.value is None for t in written.weights):
        return "its weights are no part of it"
    try:
        again = load(model)
        again.graph  # noqa: B018 - raises where there is none
    except LoadRunError as e:
        said = " ".join(str(e).split())
        # Where values decide sizes, a graph needs to be given them.
        if "constants=" in said:
            return f"it cannot be read back: {said}"
        raise refusal(f"the ONNX model cannot be read back: {said}") from e
    inputs = [v.name for v in again.inputs]
    if not inputs or not {*inputs} <= {*written.inputs.values()}:
        return "its weights are inputs, or its inputs have other names"
    for kind, found, named in (
        ("inputs", inputs, written.inputs),
        ("outputs", list(again.outputs), written.outputs),
    ):
        wanted = [new for new in named.values() if new in found]
        if [n for n in found if n in wanted] != wanted:
            raise ProofError(f"the {kind} of the ONNX model are {found}, in the model they are {wanted}")
    return again


def _computing(source: ExportSource, verify: bool) -> Computing:
    """Return what computes the source: the reference engine, of the example what was given, where that is asked for."""
    engine = ReferenceEngine(source.graph, list(source.outputs.values()))
    called: Callable[[], list[Array]] | None = source.called if verify else None
    names = [n for n in source.outputs if n not in source.reads]

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        if called is not None and feeds is source.examples:
            values = called()
            if len(values) != len(names):
                raise ProofError(f"the source gives {len(values)} outputs, the model {len(names)}")
            return {n: np.atleast_1d(v) for n, v in zip(names, values, strict=True)}
        values = engine.run({n: feeds[n] for n in engine.inputs})
        return {n: np.atleast_1d(v) for n, v in zip(source.outputs, values, strict=True)}

    return compute
