"""ONNX Runtime as an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import EngineError, UsageError
from ..engines import Engine, Setup
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..ops.numeric.parallel import threads
from .runtime import NotTaken, missing
from .translated import Translated

__all__ = ["OnnxRuntime", "make_engine"]

_FATAL = 4
_DEFAULT = "CPUExecutionProvider"


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """ONNX Runtime; the argument is an execution provider, by its whole name or without ``ExecutionProvider``."""
    return Translated(OnnxRuntime(setup.argument), graph, targets, setup)


class OnnxRuntime:
    """Loads models into ONNX Runtime.

    Args:
        provider: the execution provider, by default that of the processor.

    Raises:
        UsageError: onnxruntime is not installed, or has no such provider.
    """

    name = "onnxruntime"
    arithmetic = "float32"
    opset = 20

    def __init__(self, provider: str = "") -> None:
        try:
            import onnxruntime  # optional
        except ImportError as e:
            raise missing("onnxruntime", "onnxruntime", e) from None
        known = onnxruntime.get_available_providers()
        wanted = provider or _DEFAULT
        found = [
            p for p in known if wanted.lower() in (p.lower(), p.lower().removesuffix("executionprovider"))
        ]
        if not found:
            raise UsageError(
                f"onnxruntime has no execution provider {wanted!r} here; it has {', '.join(known)}"
            )
        self.provider = found[0]
        self.version = str(onnxruntime.__version__)
        self._package: Any = onnxruntime

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> _OnnxRuntimeSession:
        """Make a session; see `Runtime.load`."""
        options = self._package.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = threads()
        if b"QuantizeLinear" in model:
            # Optimized forms of quantized operators saturate on processors without the right instructions.
            options.graph_optimization_level = self._package.GraphOptimizationLevel.ORT_DISABLE_ALL
        # TensorFloat-32 has ten bits of a float32's mantissa.
        exact = {"CUDAExecutionProvider": {"use_tf32": "0"}}.get(self.provider, {})
        try:
            session = self._package.InferenceSession(model, options, providers=[(self.provider, exact)])
        except Exception as e:
            raise NotTaken(_first_line(e)) from e
        return _OnnxRuntimeSession(session, inputs, outputs)


class _OnnxRuntimeSession:
    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._session, self._inputs, self._outputs = session, list(inputs), list(outputs)

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute; contiguous arrays are not copied."""
        try:
            found: Sequence[Array] = self._session.run(
                self._outputs, dict(zip(self._inputs, inputs, strict=True))
            )
        except Exception as e:
            raise EngineError(f"onnxruntime fails: {_first_line(e)}") from e
        return found


def _first_line(e: Exception) -> str:
    return str(e).strip().split("\n")[0][:500]
