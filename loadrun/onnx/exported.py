"""An exported model: what it holds, its report, and its files."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from tabulate import tabulate

from ..base.errors import UsageError
from ..base.writing import replacing
from ..proof import Found
from .encode import TensorMessage, encode, raw_bytes
from .messages import Piece
from .model import WrittenModel
from .source import ExportSource

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
