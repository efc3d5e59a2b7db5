"""ONNX Runtime's results for an ONNX file, beside the graph that was built from it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from ..base.errors import EngineError
from ..base.pipes import receive, send, serve, start
from .session import OnnxSession, new_session

if TYPE_CHECKING:
    from ..graph.dtypes import Array

Run = Callable[[Mapping[str, "Array"]], Mapping[str, "Array"]]

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

_UNHELD = re.compile(r"tensor\((bfloat16|float[48]\w*|u?int[24])\)")
"""Types that numpy lacks; ONNX Runtime gives their codes as bytes."""


def runtime_name() -> str | None:
    """Return the name and version of ONNX Runtime, or None if it is not installed."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    import onnxruntime  # optional

    return f"ONNX Runtime {onnxruntime.__version__}"


def runtime_apart(path: str, constants: Mapping[str, Any] | None = None) -> Run:
    """Return the same function as `runtime`, whose session lives in a separate process.

    A large model would otherwise lie in this process twice. The process starts now and opens its session while this
    one goes on; it ends with the function.

    Args:
        path: the file.
        constants: as in `runtime`.
    """
    process = start(__name__, os.environ)
    assert process.stdin is not None
    assert process.stdout is not None
    requests, answers = process.stdin, process.stdout

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            send(requests, dict(feeds))
            answer, _ = receive(answers)
        except (EOFError, BrokenPipeError):
            raise EngineError("ONNX Runtime's process ended before it answered") from None
        if isinstance(answer, str):
            raise EngineError(answer)
        outputs: dict[str, Array] = answer
        return outputs

    finalize(run, _end, process)
    # A process that has ended already is told of by the first call.
    with suppress(BrokenPipeError):
        send(requests, (path, dict(constants or {})))
    return run


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and give back its pipes."""
    process.kill()
    # What it did not read is flushed into a pipe that nobody reads.
    with suppress(BrokenPipeError), process:
        process.wait()


def main(parent: int) -> None:
    """Answer feeds with outputs, or with the text of an error, until the parent closes the pipe.

    Args:
        parent: its process id.
    """
    source, answers = serve(parent)
    try:
        (path, constants), _ = receive(source)
        # Weights that are packed anew would lie beside those that are mapped.
        session = cache(partial(new_session, path, mapped=True))
        # What keeps it from opening is the answer to the feeds, which try again.
        with suppress(EngineError):
            session()
        run = runtime(path, constants, session=session)
        while True:
            feeds, _ = receive(source)
            try:
                send(answers, run(feeds))
            except EngineError as e:
                send(answers, str(e))
    except EOFError:
        return


def runtime(
    path: str,
    constants: Mapping[str, Any] | None = None,
    *,
    session: Callable[[], OnnxSession] | None = None,
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return a function that runs an ONNX file in ONNX Runtime: outputs by name for inputs by name.

    The session is made by the first call. Inputs are converted to the types that the file declares.

    Args:
        path: the file.
        constants: values of inputs that `loadrun.load` took as constants.
        session: opens the session, default `loadrun.onnx.session.new_session`.

    The function raises an EngineError where the runtime does not take the model or the data.
    """
    sessions: list[Any] = []

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if not sessions:
            sessions.append(new_session(path) if session is None else session())
        (opened,) = sessions
        for one in (*opened.get_inputs(), *opened.get_outputs()):
            if _UNHELD.fullmatch(one.type):
                raise EngineError(
                    f"{one.name!r} is a {one.type}, which arrays cannot pass to it or bring back"
                )
        inputs = {}
        stored = opened.get_overridable_initializers()
        for one in (*opened.get_inputs(), *stored):
            value = (constants or {}).get(one.name, feeds.get(one.name))
            if value is None and one in stored:
                continue
            if value is None:
                # No output depends on it.
                if all(isinstance(n, int) for n in one.shape) and one.type in _TYPES:
                    value = np.zeros(one.shape, _TYPES[one.type])
                else:
                    raise EngineError(f"it needs the input {one.name!r}, which the testcase does not have")
            value = np.asarray(value).astype(_TYPES.get(one.type, "float32"), copy=False)
            inputs[one.name] = value.reshape(()) if not one.shape and value.size == 1 else value
        names = [o.name for o in opened.get_outputs()]
        try:
            values = opened.run(names, inputs)
        except Exception as e:
            raise EngineError(f"ONNX Runtime fails: {str(e).splitlines()[0] if str(e) else e}") from e
        return {n: v for n, v in zip(names, values, strict=True) if isinstance(v, np.ndarray)}

    return run
