"""Verification of a written model: onnx.checker, then ONNX Runtime compared with loadrun's reference engine.

Both packages are extras; only models written here pass through them, never a file from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from ..base.errors import EngineError, UsageError
from ..compare import assert_equal_error
from ..engines.reference import ReferenceEngine
from ..graph import Var
from ..graph.dtypes import Array
from ..ops.registry import implementation
from ..proof import at_sizes
from .encode import ElemType
from .model import WrittenModel
from .session import OnnxSession, new_session
from .source import ExportSource

_TOLERANCE = {ElemType.FLOAT: 1e-4, ElemType.FLOAT16: 1e-2}


@dataclass(frozen=True)
class Verification:
    """One output at one set of sizes: MegEngine's error measure, and the error of a quantized one in quanta."""

    sizes: str
    output: str
    error: float
    quanta: int = 0


def available() -> bool:
    """Return whether onnx and onnxruntime are installed."""
    return not _missing()


def _missing() -> list[str]:
    specs = {name: find_spec(name) for name in ("onnx", "onnxruntime")}
    # A folder of that name on the path counts as a namespace package, which has no file.
    return [name for name, spec in specs.items() if spec is None or spec.origin is None]


def _require() -> None:
    missing = _missing()
    if missing:
        raise UsageError(f"verify=True needs {' and '.join(missing)}: pip install {' '.join(missing)}")


def check_model(data: bytes, path: str | None = None) -> None:
    """Let onnx.checker judge a model.

    Args:
        data: the model.
        path: where it is written, for one whose weights are in another file.

    Raises:
        EngineError: it finds a fault.
    """
    import onnx  # optional

    try:
        onnx.checker.check_model(path or onnx.load_from_string(data), full_check=True)
    except Exception as e:
        raise EngineError(f"onnx.checker rejects the model: {e}") from e


def is_quantized(written: WrittenModel) -> bool:
    """Return whether the model has quantized parts."""
    return any(n.op_type == "QuantizeLinear" for n in written.model.graph.nodes)


def verify(source: ExportSource, written: WrittenModel, data: bytes | str) -> list[Verification]:
    """Check a model and execute it at the example's sizes and at another.

    Args:
        data: the model, or its path where weights are in another file.

    Returns:
        what was compared.

    Raises:
        EngineError: the checker or the runtime refuses it, or an output differs.
        UsageError: onnx or onnxruntime is not installed.
    """
    _require()
    whole = data if isinstance(data, bytes) else b""
    check_model(whole, None if whole else str(data))
    session = new_session(data, as_written=is_quantized(written))
    engine = ReferenceEngine(source.graph, list(source.outputs.values()))
    random = _random_outputs(source)
    verifications = []
    # What stands beside the graph is not run by the reference engine.
    for sizes in () if source.inserted else _chosen(written.sizes):
        feeds = at_sizes({n: source.examples[n] for n in sizes}, sizes)
        verifications += _compare(source, written, session, engine, feeds, random)
    _by_position(source, written, session, engine, random)
    return verifications


def _by_position(
    source: ExportSource,
    written: WrittenModel,
    session: OnnxSession,
    engine: ReferenceEngine,
    random: set[str],
) -> None:
    """Feed the inputs and take the outputs in the file's order, as if their names said nothing.

    Raises:
        EngineError: an output differs from that of the source called with the same values in its own order.
    """
    names = [i.name for i in session.get_inputs()]
    feeds = [_as_declared(source.scalars, i.name, source.examples[i.name]) for i in source.inputs]
    weights = {t.name: t.value for t in written.weights if t.value is not None and t.name in names}
    try:
        got = session.run(None, {**weights, **dict(zip(names, feeds, strict=False))})
    except Exception as e:
        raise EngineError(f"ONNX Runtime fails with the inputs in the file's order: {e}") from e
    if source.called is not None:
        expected = source.called()
    else:
        expected = engine.run({n: source.examples[n] for n in engine.inputs})
    if len(got) != len(expected):
        raise EngineError(f"ONNX Runtime returns {len(got)} outputs, the source {len(expected)}")
    results = {n: v for n, v in source.outputs.items() if n not in source.reads}
    for (name, var), want, value in zip(results.items(), expected, got, strict=True):
        if name in random or (var.dtype is not None and var.dtype.is_quantized):
            continue
        if want.size != value.size:
            raise EngineError(
                f"output {name!r} has shape {list(value.shape)} in ONNX Runtime and {list(want.shape)} in the source, "
                "inputs and outputs taken by position"
            )
        _judge(name, var, want.reshape(value.shape).astype(value.dtype), value, "by position")


def _chosen(sizes: Sequence[Mapping[str, tuple[int, ...]]]) -> list[Mapping[str, tuple[int, ...]]]:
    """Choose the example's sizes and the smallest other ones."""
    others = sorted(sizes[1:], key=lambda s: sum(int(np.prod(n)) for n in s.values()))
    return [sizes[0], *others[:1]]


def _random_outputs(source: ExportSource) -> set[str]:
    """List the outputs that differ from run to run."""
    return {
        name
        for name, var in source.outputs.items()
        if any(implementation(o.type).random for o in source.graph.needed([var]))
    }


def run_session(
    session: OnnxSession,
    written: WrittenModel,
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Run a session; outputs by the names that they have in the source.

    Raises:
        EngineError: the runtime fails.
    """
    wanted = {i.name for i in session.get_inputs()}
    inputs = {
        written.inputs[n]: _as_declared(written.scalars, n, v)
        for n, v in feeds.items()
        if written.inputs.get(n) in wanted
    }
    inputs |= {n: v for n, v in (weights or {}).items() if n in wanted}
    try:
        values = session.run(list(written.outputs.values()), inputs)
    except Exception as e:
        raise EngineError(f"ONNX Runtime fails: {e}") from e
    return {
        n: v.reshape(1) if n in written.scalars else v for n, v in zip(written.outputs, values, strict=True)
    }


def _as_declared(scalars: Collection[str], name: str, value: Array) -> Array:
    """Return a value of the graph as the model takes it: one without axes is a vector in the graph."""
    return value.reshape(()) if name in scalars else value


def _compare(
    source: ExportSource,
    written: WrittenModel,
    session: OnnxSession,
    engine: ReferenceEngine,
    feeds: Mapping[str, Array],
    random: set[str],
) -> list[Verification]:
    sizes = ", ".join(f"{n} {list(v.shape)}" for n, v in feeds.items())
    weights = {t.name: t.value for t in written.weights if t.value is not None}
    got = run_session(session, written, feeds, weights)
    used = {n: v for n, v in feeds.items() if n in engine.inputs}
    expected = engine.run(used)
    verifications = []
    for (name, var), want in zip(source.outputs.items(), expected, strict=True):
        value = got[name]
        if value.shape != want.shape:
            raise EngineError(
                f"output {name!r} has shape {list(value.shape)} in ONNX Runtime, {list(want.shape)} here ({sizes})"
            )
        if name not in random:
            verifications.append(_judge(name, var, want, value, sizes))
    return verifications


def _judge(name: str, var: Var, want: Array, value: Array, sizes: str) -> Verification:
    if var.dtype is not None and var.dtype.is_quantized:
        quanta = int(np.abs(want.astype(np.int64) - value.astype(np.int64)).max(initial=0))
        if quanta > 1:
            raise EngineError(f"output {name!r} is {quanta} quanta off in ONNX Runtime ({sizes})")
        return Verification(sizes, name, 0.0, quanta)
    same = (want == value) | ((want != want) & (value != value))
    error = float(assert_equal_error(np.where(same, 0, want), np.where(same, 0, value)))
    limit = _TOLERANCE.get(ElemType.of(value.dtype), 0.0)
    if not error <= limit:
        raise EngineError(f"output {name!r} differs in ONNX Runtime: error {error:.3g} > {limit:g} ({sizes})")
    return Verification(sizes, name, error)
