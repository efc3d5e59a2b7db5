"""An exported model, read back and compared with what it was written from: here, and in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..base.errors import EngineError, LoadRunError, UsageError
from ..base.proving import level, spending
from ..dump import load
from ..engines.others import Computing, Other
from ..engines.reference import ReferenceEngine
from ..graph.dtypes import Array
from ..proof import NOTHING, Proof, ProofError, proved, refusal
from ..testcase import Bundle
from .model import WrittenModel
from .source import ExportSource
from .truth import beside, installed


def available() -> bool:
    """Return whether onnx and onnxruntime are installed."""
    return not _missing()


def _missing() -> list[str]:
    return [name for name in ("onnx", "onnxruntime") if not installed(name)]


def check_model(data: bytes | str) -> None:
    """Let onnx.checker judge a model: its bytes, or the path of one whose weights are in another file.

    Raises:
        EngineError: it finds a fault.
    """
    import onnx  # optional

    try:
        onnx.checker.check_model(
            data if isinstance(data, str) else onnx.load_from_string(data), full_check=True
        )
    except Exception as e:
        raise EngineError(f"onnx.checker rejects the model: {e}") from e


def of_written(written: WrittenModel, run: Computing) -> Computing:
    """Return what computes by the names of the source, with what runs the model by its own names."""
    fed = {v.name for v in written.model.graph.inputs}
    weights = {t.name: t.value for t in written.weights if t.value is not None and t.name in fed}

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        inputs = {written.inputs[n]: v for n, v in feeds.items() if n in written.inputs}
        values = run({**weights, **inputs})
        return {n: np.atleast_1d(values[new]) for n, new in written.outputs.items() if new in values}

    return compute


def prove_export(
    source: ExportSource, written: WrittenModel, model: bytes | str | None, *, verify: bool = False
) -> Proof:
    """Compare a model that was written with what it was written from.

    Args:
        source: what was exported.
        written: the model and its names.
        model: its bytes, or its path; None for a model that is too large for one message and not written yet.
        verify: whether onnx.checker and ONNX Runtime must take it, however long that takes, and what was given is
            called with the example.

    Raises:
        ProofError: they give different numbers.
        EngineError: it was to be verified, and the checker or the runtime refuses it.
        UsageError: it was to be verified, and onnx or onnxruntime is not installed.
    """
    if verify and (missing := _missing()):
        raise UsageError(f"verify=True needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    if level() == "none" and not verify:
        return NOTHING
    if model is None:
        return Proof(left=("it is too large to be read back",))
    with spending():
        return _proved(source, written, model, verify)


def _proved(source: ExportSource, written: WrittenModel, model: bytes | str, verify: bool) -> Proof:
    if verify:
        check_model(model)
    again = None if source.module.inserted else _again(source, written, model)
    run = beside(model)
    others = []
    if run is not None and all(t.value is not None for t in written.weights):
        others.append(
            Other(run[0], "the ONNX model", of_written(written, run[1]), run[2], told=True, required=verify)
        )
    left = (
        (again,) if isinstance(again, str) else ("nodes beside the graph",) if source.module.inserted else ()
    )
    if left and not (verify and others):
        return Proof(left=left)
    try:
        return proved(
            Bundle(source.graph),
            again if isinstance(again, Bundle) else None,
            [source.examples] if source.examples else (case.inputs for case in source.testcases),
            inputs=written.inputs,
            outputs=written.outputs,
            sizes=written.sizes[1:],
            what="the ONNX model",
            compute=_computing(source, verify),
            others=others,
            drawn=not source.module.inserted,
            runs=0,
        )
    except ProofError as e:
        if verify or not written.approximated:
            raise
        return Proof(left=(f"it is approximated ({'; '.join(written.approximated)}): {e}",))


def _again(source: ExportSource, written: WrittenModel, model: bytes | str) -> Bundle | str:
    """Return the model as it is read back, or why that cannot be compared.

    Raises:
        ProofError: it is no valid model, or its inputs or outputs come in another order.
    """
    if source.module.parameters or any(t.value is None for t in written.weights):
        return "its weights are no part of it"
    try:
        again = load(model)
        again.graph  # noqa: B018 - raises where there is none
    except LoadRunError as e:
        said = " ".join(str(e).split())
        # Where values decide sizes, a graph needs to be given them.
        if "constants=" in said:
            return f"it cannot be read back: {said}"
        raise refusal(f"the ONNX model cannot be read back: {said}") from e
    inputs = [v.name for v in again.inputs]
    if not inputs or not {*inputs} <= {*written.inputs.values()}:
        return "its weights are inputs, or its inputs have other names"
    for kind, found, named in (
        ("inputs", inputs, written.inputs),
        ("outputs", list(again.outputs), written.outputs),
    ):
        wanted = [new for new in named.values() if new in found]
        if [n for n in found if n in wanted] != wanted:
            raise ProofError(f"the {kind} of the ONNX model are {found}, in the model they are {wanted}")
    return again


def _computing(source: ExportSource, verify: bool) -> Computing:
    """Return what computes the source: the reference engine, of the example what was given, where that is asked for."""
    engine = ReferenceEngine(source.graph, list(source.outputs.values()))
    called: Callable[[], list[Array]] | None = source.called if verify else None
    names = [n for n in source.outputs if n not in source.reads]

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        if called is not None and feeds is source.examples:
            values = called()
            if len(values) != len(names):
                raise ProofError(f"the source gives {len(values)} outputs, the model {len(names)}")
            return {n: np.atleast_1d(v) for n, v in zip(names, values, strict=True)}
        values = engine.run({n: feeds[n] for n in engine.inputs})
        return {n: np.atleast_1d(v) for n, v in zip(source.outputs, values, strict=True)}

    return compute
