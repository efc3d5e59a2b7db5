"""OpenVINO on the processor as an engine: of ONNX files as they are, and of graphs that are translated to ONNX."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import EngineError, UnsupportedError, UsageError
from ..engines import Engine, Setup
from ..engines.profile import Executed
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..ops.numeric.parallel import threads
from ..testcase import FileValue, SourceFile
from .native import EngineOptions, NotTaken, Ports, fitted, missing, native_about, refused
from .translated import Translated

if TYPE_CHECKING:
    import openvino  # optional

_EMPTY = (
    b'<net name="empty" version="11"><layers>'
    b'<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1" element_type="f32"/>'
    b'<output><port id="0" precision="FP32"><dim>1</dim></port></output></layer>'
    b'<layer id="1" name="y" type="Result" version="opset1">'
    b'<input><port id="0" precision="FP32"><dim>1</dim></port></input></layer>'
    b'</layers><edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>'
)
"""A model whose output is its input."""
_PRECISIONS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """OpenVINO for a graph; the argument is a precision and options, see `OpenVINO`."""
    runtime = OpenVINO(setup.argument, profile=setup.profile)
    # Integer kernels that it makes of quantized operators round elsewhere than the model says.
    runtime.switch_off("LP_TRANSFORMS_MODE")
    return Translated(runtime, graph, targets)


def open_file(source: SourceFile, setup: Setup) -> OpenVINOFile:
    """OpenVINO for an ONNX file as it is; the argument is that of `make_engine`."""
    return OpenVINOFile(OpenVINO(setup.argument, profile=setup.profile), source)


class OpenVINO:
    """Loads models into OpenVINO for the processor.

    Its own default on processors that have it is bfloat16 arithmetic, which errs by several percent in deep networks;
    so the precision is always set.

    Args:
        argument: the precision of its arithmetic, f32 (default), bf16 or f16, and properties ``KEY=VALUE``, with colons
            between them.
        profile: let the runtime measure its operators.

    Raises:
        UsageError: openvino is not installed, or has no such precision or property.
    """

    name = "openvino"
    provider = "CPU"
    opset = 20

    def __init__(self, argument: str = "", *, profile: bool = False) -> None:
        self.options = EngineOptions.of(argument)
        precision = ":".join(self.options.words)
        wanted = precision.lower() or "f32"
        if wanted not in _PRECISIONS:
            raise UsageError(
                f"the engine openvino takes the precisions {', '.join(_PRECISIONS)}, found {precision!r}; it "
                "computes on the CPU"
            )
        try:
            import openvino  # optional
        except ImportError as e:
            raise missing("openvino", e) from None
        self.version = str(openvino.__version__).split("-")[0]
        self.arithmetic = _PRECISIONS[wanted]
        self._core: Any = openvino.Core()
        self._settings = {
            "INFERENCE_PRECISION_HINT": wanted,
            "EXECUTION_MODE_HINT": "ACCURACY" if wanted == "f32" else "PERFORMANCE",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": str(threads()),
            **({"PERF_COUNT": "YES"} if profile else {}),
            **self.options.values,
        }
        if self.options.values:
            self._check_options()

    def _check_options(self) -> None:
        """Compile a model of nothing: of what fails then it is known that it is no fault of the user's model.

        The list of properties that the runtime tells does not have all that it takes.
        """
        try:
            self._core.compile_model(self._core.read_model(_EMPTY, b""), "CPU", self._settings)
        except Exception as e:
            options = ":".join(self.options.text)
            raise UsageError(f"openvino does not take the option {options}: {_short(e)}") from e

    def switch_off(self, name: str) -> None:
        """Set a property that only some releases have to OFF."""
        with suppress(Exception):
            self._core.set_property("CPU", {name: "OFF"})

    def compiled(self, model: str | bytes) -> openvino.CompiledModel:
        """Compile a model: its path or its bytes.

        Raises:
            NotTaken: the runtime does not take it.
        """
        try:
            read = self._core.read_model(model if isinstance(model, str) else io.BytesIO(model))
            return self._core.compile_model(read, "CPU", self._settings)
        except Exception as e:
            raise NotTaken(_short(e)) from e

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> _OpenVINOSession:
        """Compile a model; see `Runtime.load`."""
        compiled = self.compiled(model)
        try:
            return _OpenVINOSession(compiled, inputs, outputs)
        except Exception as e:
            raise NotTaken(_short(e)) from e


class _Requested:
    """A compiled model with its request.

    Args:
        compiled: the runtime's.
    """

    def __init__(self, compiled: openvino.CompiledModel) -> None:
        self._request = compiled.create_infer_request()

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run; the runtime tells durations, which are lined up here."""
        records: list[Executed] = []
        at = 0.0
        for info in self._request.profiling_info:
            seconds = info.real_time.total_seconds()
            if seconds:
                records.append(Executed(info.node_name, info.node_type, at, seconds))
                at += seconds
        return records


class _OpenVINOSession(_Requested):
    def __init__(
        self, compiled: openvino.CompiledModel, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        super().__init__(compiled)
        # What no output depends on is no input of a compiled model.
        read = {name: port for port in compiled.inputs for name in port.get_names()}
        self._inputs = [read.get(n) for n in inputs]
        self._outputs = [compiled.output(n) for n in outputs]

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute; inputs are not copied, outputs are."""
        try:
            feeds = {p: a for p, a in zip(self._inputs, inputs, strict=True) if p is not None}
            results = self._request.infer(feeds, share_inputs=True)
            return [np.asarray(results[o]) for o in self._outputs]
        except Exception as e:
            raise EngineError(f"openvino fails: {_short(e)}") from e


class OpenVINOFile(_Requested):
    """An ONNX file as it is, with the runtime's own optimizations; see `loadrun.engines.FileEngine`.

    Args:
        runtime: the runtime.
        source: the file.

    Raises:
        UnsupportedError: the runtime does not take the file.
    """

    def __init__(self, runtime: OpenVINO, source: SourceFile) -> None:
        self._source = source
        try:
            if source.replaced:
                raise NotTaken(f"it keeps the stored value of the input {min(source.replaced)!r}")
            compiled = runtime.compiled(source.location)
        except NotTaken as e:
            raise UnsupportedError(refused("openvino", source, e)) from e
        super().__init__(compiled)
        self._inputs = {_name(p, source.inputs): p for p in compiled.inputs}
        self._outputs = {_name(p, source.outputs): p for p in compiled.outputs}
        types = {n: p.get_element_type() for n, p in self._inputs.items()}
        dtypes = {n: np.dtype(t.to_dtype()) for n, t in types.items() if t.get_type_name() != "string"}
        shapes: dict[str, Sequence[object]] = {}
        for name, port in self._inputs.items():
            sizes = port.get_partial_shape()
            known = () if sizes.rank.is_dynamic else sizes
            shapes[name] = [d.get_length() if d.is_static else None for d in known]
        self._ports = Ports(list(self._inputs), (), dtypes, shapes)
        self.about = native_about(runtime, source, runtime.arithmetic)

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """See `FileEngine.fitted`."""
        # What no output depends on is no input of a compiled model.
        used = {n: v for n, v in feeds.items() if n in self._inputs or n not in self._source.inputs}
        return fitted(self._source, self._ports, used)

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, FileValue]:
        """See `FileEngine.run`."""
        try:
            results = self._request.infer({self._inputs[n]: v for n, v in inputs.items()}, share_inputs=True)
            return {n: np.asarray(results[p]) for n, p in self._outputs.items()}
        except Exception as e:
            raise EngineError(f"openvino fails: {_short(e)}") from e


def _name(port: openvino.ConstOutput, known: Collection[str]) -> str:
    """Return the name of a port in the file; a compiled model may have several for one."""
    names = port.get_names()
    return next((n for n in known if n in names), port.get_any_name())


def _short(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    lacking = [line.removeprefix("-- ") for line in lines if line.startswith("-- No conversion rule found")]
    told = lacking or [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    # What is before it shows nodes of OpenVINO's own.
    return " ".join((told or lines or [type(e).__name__])[:2]).rpartition("CALLBACK HAS THROWN: ")[2][:500]
