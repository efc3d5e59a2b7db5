"""ONNX Runtime's results for an ONNX file, beside the graph that was built from it."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np

from ..base.errors import EngineError
from ..base.pipes import Child, receive, send, serve

if TYPE_CHECKING:
    from ..graph.dtypes import Array

Run = Callable[[Mapping[str, "Array"]], Mapping[str, "Array"]]

_NAMES = "float16 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool"
_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"} | {
    f"tensor({n})": n for n in _NAMES.split()
}

_UNHELD = re.compile(r"tensor\((bfloat16|float[48]\w*|u?int[24])\)")
"""Types that numpy lacks; ONNX Runtime gives their codes as bytes."""


def installed(package: str) -> bool:
    """Return whether a package is installed; a folder of that name on the path, which has no file, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def beside(
    model: str | bytes, constants: Mapping[str, Any] | None = None
) -> tuple[str, Run, Callable[[], None]] | None:
    """Return ONNX Runtime's name, what runs a model in it in another process, and what ends that; None without it.

    It runs the model as it is written: optimized forms of quantized operators saturate on some processors.
    """
    if not installed("onnxruntime"):
        return None
    process = _worker()
    return "ONNX Runtime", process.serve(model, constants), process.close


def new_session(data: bytes | str, *, as_written: bool = False) -> Any:  # noqa: ANN401 - onnxruntime.InferenceSession
    """Open an ONNX Runtime session on the CPU.

    Args:
        data: the model, or the path of one whose weights are in another file.
        as_written: without optimizations. Those of quantized graphs use instructions that saturate on some processors.

    Raises:
        EngineError: the runtime does not take the model.
    """
    import onnxruntime  # optional

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as e:
        raise EngineError(f"ONNX Runtime rejects the model: {e}") from e


class Apart:
    """ONNX Runtime in a process of its own, which holds one model at a time.

    A large model would otherwise lie in this process twice, and a crash, as in some of its kernels, would end it.
    """

    def __init__(self) -> None:
        self._child = Child(__name__, os.environ)
        self._owner = os.getpid()
        self._lock = Lock()
        self._opened: object = None
        finalize(self, self._child.end)

    @property
    def alive(self) -> bool:
        """Return whether it still runs, and belongs to this process, not to the one that this was forked from."""
        return self._owner == os.getpid() and self._child.process.poll() is None

    def serve(self, model: str | bytes, constants: Mapping[str, Any] | None = None) -> Run:
        """Return what runs a model as it is written: a path or bytes; the process opens it while this one goes on."""
        token = object()
        message = (model, dict(constants or {}))

        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            with self._lock:
                try:
                    self._hold(token, message)
                    self._child.send(dict(feeds))
                    answer, _ = self._child.receive()
                except (EOFError, OSError, ValueError):
                    raise EngineError("ONNX Runtime's process ended before it answered") from None
            if isinstance(answer, str):
                raise EngineError(answer)
            outputs: dict[str, Array] = answer
            return outputs

        # A process that has ended already is told of by the first call.
        if isinstance(model, str):
            with suppress(BrokenPipeError), self._lock:
                self._hold(token, message)
        return run

    def _hold(self, token: object, message: tuple[object, ...]) -> None:
        if self._opened is not token:
            self._child.send(message)
            self._opened = token

    def close(self) -> None:
        """End the process, also while it computes."""
        if self._owner == os.getpid():
            self._child.process.kill()
            self._child.process.wait()


_shared: list[Apart] = []


def _worker() -> Apart:
    """Return the process that proofs use one after another."""
    if not _shared or not _shared[0].alive:
        _shared[:] = [Apart()]
    return _shared[0]


@atexit.register
def _close() -> None:
    _shared.clear()


def main() -> None:
    """Answer feeds with outputs, or with the text of an error, until the parent closes the pipe, or is gone."""
    source, answers = serve()
    run: Run | None = None
    with suppress(EOFError, BrokenPipeError):
        while True:
            message, _ = receive(source)
            if isinstance(message, tuple):
                model, constants = message
                session = cache(partial(new_session, model, as_written=True))
                # What keeps it from opening is the answer to the feeds, which try again.
                with suppress(EngineError):
                    session()
                run = runtime("", constants, session=session)
                continue
            assert run is not None
            try:
                send(answers, run(message))
            except EngineError as e:
                send(answers, str(e))


def runtime(
    path: str, constants: Mapping[str, Any] | None = None, *, session: Callable[[], Any] | None = None
) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return a function that runs an ONNX file in ONNX Runtime: outputs by name for inputs by name.

    The session is made by the first call. Inputs are converted to the types that the file declares.

    Args:
        path: the file.
        constants: values of inputs that `loadrun.load` took as constants.
        session: opens the session, default `new_session`.

    The function raises an EngineError where the runtime does not take the model or the data.
    """
    open_session = cache(partial(new_session, path) if session is None else session)

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        opened = open_session()
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
            value = np.asarray(value)
            # Text stays as it is.
            value = value.astype(_TYPES.get(one.type, value.dtype), copy=False)
            inputs[one.name] = value.reshape(()) if not one.shape and value.size == 1 else value
        names = [o.name for o in opened.get_outputs()]
        try:
            values = opened.run(names, inputs)
        except Exception as e:
            raise EngineError(f"ONNX Runtime fails: {str(e).splitlines()[0] if str(e) else e}") from e
        return {n: v for n, v in zip(names, values, strict=True) if isinstance(v, np.ndarray)}

    return run
