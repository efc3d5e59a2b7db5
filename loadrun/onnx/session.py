"""ONNX Runtime's sessions of models that are written or packed here; importing this takes little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..base.errors import EngineError

if TYPE_CHECKING:
    from ..graph.dtypes import Array


class _Named(Protocol):
    name: str
    type: str


class OnnxSession(Protocol):
    """The part of onnxruntime.InferenceSession that is used here."""

    def get_inputs(self) -> Sequence[_Named]:
        """Describe the model's inputs, in the file's order."""
        ...

    def get_overridable_initializers(self) -> Sequence[_Named]:
        """Describe the inputs that the file has a value for."""
        ...

    def get_outputs(self) -> Sequence[_Named]:
        """Describe the model's outputs, in the file's order."""
        ...

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]) -> list[Array]:
        """Compute the named outputs, all of them for None."""
        ...


def new_session(data: bytes | str, *, as_written: bool = False, mapped: bool = False) -> OnnxSession:
    """Open an ONNX Runtime session on the CPU.

    Args:
        data: the model, or the path of one whose weights are in another file.
        mapped: leave weights in other files where they are mapped, instead of packing them anew for speed.
        as_written: without optimizations. Those of quantized graphs use instructions that saturate on some processors.

    Raises:
        EngineError: the runtime does not take the model.
    """
    import onnxruntime  # optional

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if mapped:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise EngineError(f"ONNX Runtime rejects the model: {e}") from e
