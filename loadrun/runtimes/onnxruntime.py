"""ONNX Runtime as an engine: of ONNX files as they are, and of graphs that are translated to ONNX."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from ..base.errors import EngineError, UnsupportedError, UsageError
from ..base.files import contents
from ..base.registry import late
from ..engines import Engine, Setup
from ..engines.profile import Executed
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..onnx.tensors import HELD, NAMES, ElemType
from ..onnx.types import CODED, from_codes, to_codes
from ..ops.numeric.parallel import threads
from ..testcase import FileValue, SourceFile
from .native import EngineOptions, NotTaken, Ports, choice, fitted, missing, native_about, number, refused
from .translated import Translated

if TYPE_CHECKING:
    import onnxruntime  # optional

with late(__name__):
    from ..onnx import encode


_SUFFIX = "_kernel_time"
_SIZES = ("activation_size", "parameter_size", "output_size")


def profiled_nodes(data: bytes) -> list[Executed]:
    """Return the operators of the last run in a profile.

    Args:
        data: the file: a list of Chrome's trace events, of all runs of a session.

    >>> node = {"cat": "Node", "name": "/fc_kernel_time", "ts": 7, "dur": 2, "tid": 1,
    ...         "args": {"op_name": "Gemm", "output_type_shape": [{"float": [1, 10]}], "output_size": "40"}}
    >>> run = {"cat": "Session", "name": "model_run", "ts": 5, "dur": 9}
    >>> profiled_nodes(json.dumps([node | {"ts": 1}, node, run]).encode())[0][:4]
    ('/fc', 'Gemm', 2e-06, 2e-06)
    """
    events: Sequence[Mapping[str, Any]] = json.loads(data)
    runs = [e for e in events if e.get("name") == "model_run"]
    if not runs:
        return []
    began = runs[-1]["ts"]
    nodes = [e for e in events if e.get("cat") == "Node" and e["ts"] >= began and e["name"].endswith(_SUFFIX)]
    return [_executed(e, began) for e in sorted(nodes, key=lambda e: e["ts"])]


def _executed(event: Mapping[str, Any], began: float) -> Executed:
    args = event["args"]
    return Executed(
        event["name"].removesuffix(_SUFFIX),
        args.get("op_name", ""),
        (event["ts"] - began) * 1e-6,
        event["dur"] * 1e-6,
        f"thread {event.get('tid', 0)}",
        _shapes(args.get("input_type_shape", ())),
        _shapes(args.get("output_type_shape", ())),
        sum(int(args.get(k) or 0) for k in _SIZES),
    )


def _shapes(said: Sequence[Mapping[str, Sequence[int]]]) -> list[Sequence[int]]:
    return [shape for each in said for shape in each.values()]


_FATAL = 4
_DEFAULT = "CPUExecutionProvider"
_FOLDER = "session.model_external_initializers_file_folder_path"
_LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_SWITCHES = {"mem_pattern": "enable_mem_pattern", "arena": "enable_cpu_mem_arena"}
_KNOWN = (
    "opt=disable|basic|extended|all, disable=NAME+NAME of optimizers, "
    "intra_op=N, inter_op=N, mode=sequential|parallel, mem_pattern=0|1, arena=0|1, "
    "library=PATH of custom operators, ep.KEY=VALUE for the provider, and the runtime's own keys (those with a dot)"
)
_KINDS = {f"tensor({name})": kind for kind, name in NAMES.items()}


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """ONNX Runtime for a graph; the argument holds execution providers and options, see `OnnxRuntime`."""
    return Translated(OnnxRuntime(setup.argument, profile=setup.profile), graph, targets)


def open_file(source: SourceFile, setup: Setup) -> OnnxRuntimeFile:
    """ONNX Runtime for an ONNX file as it is; the argument is that of `make_engine`."""
    return OnnxRuntimeFile(OnnxRuntime(setup.argument, profile=setup.profile), source)


class OnnxRuntime:
    """Loads models into ONNX Runtime.

    Args:
        argument: execution providers (by default that of the processor) by their whole names or without
            ``ExecutionProvider``, and options ``key=value``, with colons between them.
        profile: let the runtime's profiler watch all runs.

    Raises:
        UsageError: onnxruntime is not installed, has no such provider, or no such option.
    """

    name = "onnxruntime"
    arithmetic = "float32"
    opset = 20

    def __init__(self, argument: str = "", *, profile: bool = False) -> None:
        try:
            import onnxruntime  # optional
        except ImportError as e:
            raise missing("onnxruntime", e) from None
        self.options = EngineOptions.of(argument)
        self.providers = _providers(onnxruntime.get_available_providers(), self.options.words)
        self.provider = ", ".join(self.providers)
        self.version = str(onnxruntime.__version__)
        self._package: Any = onnxruntime
        self._profiles = tempfile.TemporaryDirectory(prefix="loadrun-") if profile else None
        if self._profiles is not None:
            finalize(self, self._profiles.cleanup)
        self.settings()
        if self.providers != [_DEFAULT]:
            self._start_providers()

    def _start_providers(self) -> None:
        """Open a session of a model that only copies its input, since not every provider that a build has can start.

        Raises:
            UsageError: one cannot; the runtime would compute on the CPU without saying so.
        """
        x, y = (encode.ValueMessage(name, ElemType.FLOAT, (1,)) for name in "xy")
        graph = encode.GraphMessage(
            "copy", [encode.NodeMessage("Identity", ["x"], ["y"])], inputs=[x], outputs=[y]
        )
        model, why = b"".join(encode.encode(encode.ModelMessage(graph, {"": 13}, 8))), ""
        try:
            started = self.session(model, self.settings()).get_providers()
        except NotTaken as e:
            started, why = [], f": {e}"
        absent = [p for p in self.providers if p not in started]
        if absent:
            raise UsageError(
                f"onnxruntime {self.version} cannot start {', '.join(absent)} on this machine{why}; it needs a device, "
                "its driver, and the libraries that this build of onnxruntime was made for"
            )

    def settings(self) -> onnxruntime.SessionOptions:
        """Return the options of a session."""
        options = self._package.SessionOptions()
        options.log_severity_level = _FATAL
        options.intra_op_num_threads = threads()
        if self._profiles is not None:
            options.enable_profiling = True
            options.profile_file_prefix = f"{self._profiles.name}/session"
        for key, value in self.options.values.items():
            self._set(options, key, value)
        return options

    def _set(self, options: onnxruntime.SessionOptions, key: str, value: str) -> None:
        if key == "opt":
            level = _LEVELS[choice(key, value, _LEVELS)]
            options.graph_optimization_level = getattr(self._package.GraphOptimizationLevel, level)
        elif key in ("intra_op", "inter_op"):
            setattr(options, f"{key}_num_threads", number(key, value))
        elif key == "mode":
            mode = f"ORT_{choice(key, value, ('sequential', 'parallel')).upper()}"
            options.execution_mode = getattr(self._package.ExecutionMode, mode)
        elif key in _SWITCHES:
            setattr(options, _SWITCHES[key], choice(key, value, ("0", "1")) == "1")
        elif key == "library":
            try:
                options.register_custom_ops_library(value)
            except Exception as e:
                raise UsageError(f"the library {value} cannot be loaded: {_first_line(e)}") from None
        elif key == "disable" or key.startswith("ep."):
            # Given with the session and the provider.
            return
        elif "." in key:
            options.add_session_config_entry(key, value)
        else:
            raise UsageError(f"the engine onnxruntime has no option {key!r}; it has {_KNOWN}")

    def session(
        self,
        model: str | bytes,
        settings: onnxruntime.SessionOptions,
        defaults: Mapping[str, str] | None = None,
    ) -> onnxruntime.InferenceSession:
        """Open a session of a model: its path or its bytes.

        Raises:
            NotTaken: the runtime does not take it.
        """
        provider_options = {k[3:]: v for k, v in self.options.values.items() if k.startswith("ep.")}
        first = {**(defaults or {}), **provider_options}
        providers = [(p, first if i == 0 else {}) for i, p in enumerate(self.providers)]
        left_out = self.options.values.get("disable")
        more = {} if left_out is None else {"disabled_optimizers": left_out.split("+")}
        try:
            # Otherwise the runtime goes over to the CPU where a provider fails.
            return self._package.InferenceSession(
                model, settings, providers=providers, enable_fallback=0, **more
            )
        except Exception as e:
            raise NotTaken(_first_line(e)) from e

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> _OnnxRuntimeSession:
        """Make a session; see `Runtime.load`."""
        settings = self.settings()
        if b"QuantizeLinear" in model and "opt" not in self.options.values:
            # Optimized forms of quantized operators saturate on processors without the right instructions.
            settings.graph_optimization_level = self._package.GraphOptimizationLevel.ORT_DISABLE_ALL
        # TensorFloat-32 has ten bits of a float32's mantissa.
        exact = {"CUDAExecutionProvider": {"use_tf32": "0"}}.get(self.providers[0], {})
        return _OnnxRuntimeSession(self.session(model, settings, exact), inputs, outputs)

    def ort_value(self, array: Array, kind: int) -> onnxruntime.OrtValue:
        """Make the runtime's value for one of a type that numpy lacks."""
        constructor = self._package.OrtValue.ortvalue_from_numpy_with_onnx_type
        return constructor(to_codes(array, kind), kind)

    def value(self, array: object) -> onnxruntime.OrtValue:
        """Make the runtime's value for anything that a session takes."""
        kind = self._package.OrtValue
        if isinstance(array, kind):
            return array
        value = np.asarray(array, order="C")
        return kind.ortvalue_from_numpy(value.astype(object) if value.dtype.kind in "US" else value)


def _providers(available: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the execution providers of a runtime that are named.

    Raises:
        UsageError: it does not have one of them.
    """
    providers = []
    for wanted in words or (_DEFAULT,):
        names = [
            p for p in available if wanted.lower() in (p.lower(), p.lower().removesuffix("executionprovider"))
        ]
        if not names:
            raise UsageError(
                f"this build of onnxruntime has no execution provider {wanted!r}; it has {', '.join(available)}; "
                "others are in packages of their own, such as onnxruntime-gpu for CUDA"
            )
        providers += names
    return providers


class _Profiled:
    """A session that was made for profiling, if it was.

    Args:
        session: the runtime's.
    """

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._executed: list[Executed] | None = None

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run; the session's profiler ends with this."""
        if self._executed is None:
            self._executed = profiled_nodes(contents(self._session.end_profiling(), "a profile"))
        return self._executed


class _OnnxRuntimeSession(_Profiled):
    def __init__(
        self, session: onnxruntime.InferenceSession, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        super().__init__(session)
        self._inputs, self._outputs = list(inputs), list(outputs)

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute; contiguous arrays are not copied."""
        try:
            outputs: Sequence[Array] = self._session.run(
                self._outputs, dict(zip(self._inputs, inputs, strict=True))
            )
        except Exception as e:
            raise EngineError(f"onnxruntime fails: {_first_line(e)}") from e
        return outputs


class OnnxRuntimeFile(_Profiled):
    """An ONNX file as it is, with the runtime's own optimizations; see `loadrun.engines.FileEngine`.

    Args:
        runtime: the runtime.
        source: the file.

    Raises:
        UnsupportedError: the runtime does not take the file.
    """

    def __init__(self, runtime: OnnxRuntime, source: SourceFile) -> None:
        self._runtime, self._source = runtime, source
        try:
            settings = runtime.settings()
            if source.folder is not None:
                settings.add_session_config_entry(_FOLDER, source.folder)
            super().__init__(runtime.session(source.location, settings))
        except NotTaken as e:
            raise UnsupportedError(refused("onnxruntime", source, e)) from e
        inputs = self._session.get_inputs()
        others = self._session.get_overridable_initializers()
        kinds = {i.name: _KINDS.get(i.type) for i in (*inputs, *others)}
        self._coded = {n: k for n, k in kinds.items() if k in CODED}
        dtypes = {n: np.dtype(HELD[k]) for n, k in kinds.items() if k in HELD}
        shapes = {i.name: i.shape for i in inputs}
        self._ports = Ports([i.name for i in inputs], [i.name for i in others], dtypes, shapes)
        outputs = {o.name: _KINDS.get(o.type) for o in self._session.get_outputs()}
        self._names = list(outputs)
        self._coded_outputs = {n: k for n, k in outputs.items() if k in CODED}
        self.about = native_about(runtime, source)

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """See `FileEngine.fitted`."""
        inputs = fitted(self._source, self._ports, feeds)
        for name, kind in self._coded.items():
            if isinstance(value := inputs.get(name), np.ndarray):
                inputs[name] = self._runtime.ort_value(value, kind)
        return {n: self._runtime.value(v) for n, v in inputs.items()} if self._coded_outputs else inputs

    def run(self, inputs: Mapping[str, object]) -> Mapping[str, FileValue]:
        """See `FileEngine.run`; contiguous arrays are not copied."""
        try:
            if self._coded_outputs:
                outputs = self._session.run_with_ort_values(self._names, inputs)
                return {n: self._read(n, v) for n, v in zip(self._names, outputs, strict=True)}
            return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))
        except Exception as e:
            raise EngineError(f"onnxruntime fails: {_first_line(e)}") from e

    def _read(self, name: str, value: onnxruntime.OrtValue) -> FileValue:
        """Read an output of any type."""
        kind = self._coded_outputs.get(name)
        if kind is None:
            array: FileValue = value.numpy()
            return array
        raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
        return from_codes(raw, kind, value.shape())


def _first_line(e: Exception) -> str:
    return str(e).strip().split("\n")[0][:500]
