"""An exported model, read back and compared with what it was written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..base.errors import LoadRunError
from ..base.proving import level
from ..dump import load
from ..engines.reference import ReferenceEngine
from ..graph.composite import holds_composites
from ..graph.dtypes import Array
from ..proof import NOTHING, Proof, ProofError, proved
from ..testcase import Bundle
from .model import WrittenModel
from .source import ExportSource


def prove_export(source: ExportSource, written: WrittenModel, encoded: Callable[[], bytes] | None) -> Proof:
    """Compare a model that was written with the graph that it was written from, on the reference engine.

    Args:
        source: what was exported.
        written: the model and its names.
        encoded: gives its bytes, None for a model that is too large for one file.

    Raises:
        ProofError: they give different numbers.
    """
    if level() == "none":
        return NOTHING
    if holds_composites(source.graph):
        # The file's own nodes.
        return Proof()
    if (
        source.inserted
        or source.parameters
        or any(t.value is None for t in written.weights)
        or encoded is None
    ):
        why = "its weights are no part of it" if encoded is not None else "it is too large to be read back"
        return Proof(left=("nodes beside the graph" if source.inserted else why,))
    try:
        again = load(encoded())
        again.graph  # noqa: B018 - raises where there is none
    except LoadRunError as e:
        return Proof(left=(f"it cannot be read back: {' '.join(str(e).split())}",))
    inputs = {v.name for v in again.inputs}
    if not inputs or not inputs <= {*written.inputs.values()}:
        return Proof(left=("its weights are inputs, or its inputs have other names",))
    engine = ReferenceEngine(source.graph, list(source.outputs.values()))

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return dict(zip(source.outputs, engine.run({n: feeds[n] for n in engine.inputs}), strict=True))

    cases = [source.examples] if source.examples else [case.inputs for case in source.testcases[:1]]
    try:
        return proved(
            Bundle(source.graph),
            again,
            cases,
            inputs=written.inputs,
            outputs=written.outputs,
            sizes=written.sizes[1:],
            what="the ONNX model",
            compute=compute,
        )
    except ProofError as e:
        if not written.approximated:
            raise
        return Proof(left=(f"it is approximated ({'; '.join(written.approximated)}): {e}",))
