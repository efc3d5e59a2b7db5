"""ONNX Runtime's results for an ONNX file, beside the graph that was built from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from ..base.errors import EngineError
from ..graph.dtypes import Array
from .check import new_session

__all__ = ["runtime", "runtime_name"]

_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(int16)": "int16",
    "tensor(uint16)": "uint16",
    "tensor(int32)": "int32",
    "tensor(uint32)": "uint32",
    "tensor(int64)": "int64",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}


def runtime_name() -> str | None:
    """Return the name and version of ONNX Runtime, or None if it is not installed."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    import onnxruntime  # optional

    return f"ONNX Runtime {onnxruntime.__version__}"


def runtime(
    path: str, constants: Mapping[str, Any] | None = None
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return a function that runs an ONNX file in ONNX Runtime: outputs by name for inputs by name.

    The session is made by the first call. Inputs are converted to the types that the file declares.

    Args:
        path: the file.
        constants: values of inputs that `loadrun.load` took as constants.

    The function raises an EngineError where the runtime does not take the model or the data.
    """
    sessions: list[Any] = []

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if not sessions:
            sessions.append(new_session(path))
        (session,) = sessions
        inputs = {}
        for one in session.get_inputs():
            value = (constants or {}).get(one.name, feeds.get(one.name))
            if value is None:
                # No output depends on it, or it has a default.
                if all(isinstance(n, int) for n in one.shape) and one.type in _TYPES:
                    value = np.zeros(one.shape, _TYPES[one.type])
                else:
                    raise EngineError(f"it needs the input {one.name!r}, which the testcase does not have")
            value = np.asarray(value).astype(_TYPES.get(one.type, "float32"), copy=False)
            inputs[one.name] = value.reshape(()) if not one.shape and value.size == 1 else value
        names = [o.name for o in session.get_outputs()]
        try:
            values = session.run(names, inputs)
        except Exception as e:
            raise EngineError(f"ONNX Runtime fails: {str(e).splitlines()[0] if str(e) else e}") from e
        return {n: v for n, v in zip(names, values, strict=True) if isinstance(v, np.ndarray)}

    return run
