"""The interface of a runtime of ONNX models to `loadrun.runtimes.translated`."""

from collections.abc import Sequence
from typing import Protocol

from ..base.errors import UsageError
from ..base.extras import install
from ..graph.dtypes import Array


class NotTaken(Exception):
    """A runtime does not take a model; the message is its own."""


class RuntimeSession(Protocol):
    """A model that was loaded."""

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute: arrays in the order of the model's inputs, results in the order of its outputs.

        Raises:
            EngineError: the runtime failed.
            NotTaken: it finds only now that it has no kernel.
        """
        ...


class Runtime(Protocol):
    """Loads ONNX models.

    Attributes:
        name: the engine's name.
        version: the runtime's version.
        provider: what of it executes.
        arithmetic: in what float32 operators are computed.
        opset: version of ONNX's operators that models are written in.
    """

    name: str
    version: str
    provider: str
    arithmetic: str
    opset: int

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> RuntimeSession:
        """Load a model.

        Args:
            model: a serialized ModelProto.
            inputs, outputs: the names of its inputs and outputs.

        Raises:
            NotTaken: the runtime cannot run it.
        """
        ...


def missing(package: str, extra: str, why: Exception | None = None) -> UsageError:
    """Make the error for a runtime that is not installed."""
    said = f" ({why})" if why is not None and not isinstance(why, ModuleNotFoundError) else ""
    return UsageError(f"the engine {extra} needs the package {package}: {install(extra)}{said}")
