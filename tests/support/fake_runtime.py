"""A runtime of ONNX models that is loadrun itself, and takes only what a test lets it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import loadrun
from loadrun.engines.reference import ReferenceEngine
from loadrun.graph.dtypes import Array
from loadrun.runtimes.native import NotTaken

__all__ = ["FakeRuntime"]


class FakeRuntime:
    """Runs models on loadrun's reference engine.

    Args:
        without: operators of ONNX that it does not load.
    """

    name = "fake"
    version = "1"
    provider = "none"
    arithmetic = "float32"
    opset = 20

    def __init__(self, without: Collection[str] = ()) -> None:
        self.without = without
        self.loaded: list[bytes] = []

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> FakeSession:
        found = [op for op in self.without if op.encode() in model]
        if found:
            raise NotTaken(f"no {found[0]} here")
        self.loaded.append(model)
        return FakeSession(model, inputs, outputs)


class FakeSession:
    def __init__(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        bundle = loadrun.loads(model)
        self.inputs = list(inputs)
        self.engine = ReferenceEngine(bundle.graph, [bundle.outputs[n] for n in outputs])

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        feeds = dict(zip(self.inputs, inputs, strict=True))
        return self.engine.run({n: a for n, a in feeds.items() if n in self.engine.inputs})
