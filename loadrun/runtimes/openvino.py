"""OpenVINO on the processor as an engine."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..base.errors import EngineError, UsageError
from ..engines import Engine, Setup
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..ops.numeric.parallel import threads
from .runtime import NotTaken, missing
from .translated import Translated

__all__ = ["OpenVINO", "make_engine"]

_PRECISIONS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """OpenVINO; the argument is the precision of its arithmetic: f32 (default), bf16 or f16."""
    return Translated(OpenVINO(setup.argument), graph, targets, setup)


class OpenVINO:
    """Loads models into OpenVINO for the processor.

    Its own default on processors that have it is bfloat16 arithmetic, which errs by several percent in deep networks;
    so the precision is always set.

    Args:
        precision: f32, bf16 or f16.

    Raises:
        UsageError: openvino is not installed, or there is no such precision.
    """

    name = "openvino"
    provider = "CPU"
    opset = 20

    def __init__(self, precision: str = "") -> None:
        wanted = precision.lower() or "f32"
        if wanted not in _PRECISIONS:
            raise UsageError(f"the engine openvino computes in {', '.join(_PRECISIONS)}; found {precision!r}")
        try:
            import openvino  # optional
        except ImportError as e:
            raise missing("openvino", "openvino", e) from None
        self.version = str(openvino.__version__).split("-")[0]
        self.arithmetic = _PRECISIONS[wanted]
        self._core: Any = openvino.Core()
        self._settings = {
            "INFERENCE_PRECISION_HINT": wanted,
            "EXECUTION_MODE_HINT": "ACCURACY" if wanted == "f32" else "PERFORMANCE",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": str(threads()),
        }
        # Integer kernels that it makes of quantized operators round elsewhere than the model says.
        with suppress(Exception):
            self._core.set_property("CPU", {"LP_TRANSFORMS_MODE": "OFF"})

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> _OpenVINOSession:
        """Compile a model; see `Runtime.load`."""
        try:
            read = self._core.read_model(io.BytesIO(model))
            compiled = self._core.compile_model(read, "CPU", self._settings)
            return _OpenVINOSession(compiled, inputs, outputs)
        except Exception as e:
            raise NotTaken(_short(e)) from e


class _OpenVINOSession:
    def __init__(self, compiled: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._request = compiled.create_infer_request()
        self._inputs = [compiled.input(n) for n in inputs]
        self._outputs = [compiled.output(n) for n in outputs]

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute; inputs are not copied, outputs are."""
        try:
            found = self._request.infer(dict(zip(self._inputs, inputs, strict=True)), share_inputs=True)
            return [np.asarray(found[o]) for o in self._outputs]
        except Exception as e:
            raise EngineError(f"openvino fails: {_short(e)}") from e


def _short(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return " ".join((told or lines or [type(e).__name__])[:2])[:500]
