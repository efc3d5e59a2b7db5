"""The three kinds of calls of a traced function: the first, later ones with Python code, later ones without."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from ..base.errors import TraceError
from ..engines.reference import ReferenceEngine
from ..graph import Var
from ..graph.dtypes import Array
from ..tensors import access
from ..tensors.applying import first_draws
from ..tensors.complex_pairs import unrecordable
from ..tensors.convert import ComparedSizes, Shape, as_tensor
from ..tensors.naming import shown
from ..tensors.switches import use
from ..tensors.symbolic import TracedNumber
from ..tensors.value import Tensor
from .arguments import Argument, CallArguments, changed_among, leaves, rebuilt, settle, slotted, unmarked
from .recording import Recording, TraceOptions, TraceRecorder
from .replay import (
    AssignedArgument,
    Compiled,
    Outputs,
    ReplaySession,
    TensorPlaceholder,
    compiled_engine,
    judge,
    run,
)


def arguments_of(session: TraceRecorder | ReplaySession, arguments: CallArguments) -> dict[int, Tensor]:
    """Make the tensors that stand for a call's arguments inside the function."""
    return {id(a): session.argument(a.name, a.tensor) for a in arguments.tensors}


def called(function: Callable[..., Any], arguments: CallArguments, inside: Mapping[int, Tensor]) -> Any:
    """Call a function with the tensors that stand for its arguments; its outputs as they are when it returns.

    Raises:
        TraceError: it returns code that has not run yet.
    """
    args, kwargs = unmarked(arguments, inside)
    try:
        outputs = function(*args, **kwargs)
    except Exception as e:
        if type(e).__module__.partition(".")[0] == "cv2" and "not a numpy array" in str(e):
            last = traceback.extract_tb(e.__traceback__)[-1]
            place = shown((last.filename, last.lineno or 0))
            raise TraceError(
                f"OpenCV is called on a traced value, in {place}: its result is computed outside the "
                "graph. Use loadrun.layers.vision (interpolate, remap, warp_affine, warp_perspective, cvt_color), or "
                "call it before the traced function and pass in the result; input_transform and --resize-input do it "
                "when a file is packed"
            ) from e
        raise
    return rebuilt(outputs, _settled, whole=(Shape, as_tensor))


def _settled(leaf: Any) -> Any:
    """Settle an output when the function returns: sizes become values of the graph, views read their base."""
    if isinstance(leaf, (GeneratorType, CoroutineType, AsyncGeneratorType)):
        if isinstance(leaf, CoroutineType):
            leaf.close()
        raise TraceError(
            f"the function returns the {type(leaf).__name__} {leaf.__qualname__!r}, whose code runs after the trace "
            "has ended; return a list, or await the result outside"
        )
    if isinstance(leaf, TracedNumber):
        return as_tensor(leaf)
    if isinstance(leaf, Tensor):
        access.settle(leaf)
    return access.snapshot(leaf) if isinstance(leaf, ComparedSizes) else leaf


# The first call


def record(
    function: Callable[..., Any], options: TraceOptions, arguments: CallArguments
) -> tuple[Any, Compiled]:
    """Call the function and record what it does; its outputs, and what later calls run.

    Raises:
        TraceError: the function does what no trace, or no trace with these options, can do again.
    """
    # A value from outside that is returned is a part of the graph only where the graph runs alone.
    alone = options.fixed or options.without_host
    recorder = TraceRecorder(
        options.mode, fixed=options.fixed, symbolic_shape=bool(options.symbolic_shape), alone=alone
    )
    recording = recorder.recording
    recording.graph.exact = options.exact
    inside = arguments_of(recorder, arguments)
    try:
        with use(recorder):
            outputs = called(function, arguments, inside)
        returned = _outputs(recorder, outputs, alone=alone)
        if options.without_host:
            _check_alone(recording, options, arguments.kwargs)
        changed = changed_among(arguments.tensors, inside, recording)
        assigned = [
            AssignedArgument(a.name, recorder.source(t).var, access.is_scalar(t))
            for a, t in changed
            if alone or access.session_of(t) is recorder
        ]
        inside.clear()
        alive = [(t, v) for t in recorder.alive() if (v := access.variable_of(t)) is not None]
        checks = [e for e in recording.entries if e.opr.type == "AssertEqual"]
        needed = [*(v for _, v in alive), *(a.var for a in assigned), *(c.opr.inputs[2] for c in checks)]
        targets = list({v.id: v for v in (*returned.vars, *needed) if v is not None}.values())
        captured = {id(c.tensor) for c in recording.captures}
        updates = [(t, v) for t, v in alive if id(t) in captured]
        del alive
        engine = compiled_engine(recording, targets, options)
        if options.mode == "lazy":
            values = _first_values(recorder, engine, targets)
            judge(checks, values)
            _fill(recorder, values)
        settle(arguments.tensors, changed, recorder.alive())
    finally:
        recorder.release()
    return outputs, Compiled(
        recording,
        engine,
        tuple(targets),
        returned,
        tuple(assigned),
        tuple(updates),
        tuple(checks),
        slotted(arguments) if options.fixed or options.live else None,
    )


def _outputs(recorder: TraceRecorder, outputs: Any, *, alone: bool) -> Outputs:
    tensors = [(p, x) for p, x in leaves(outputs) if isinstance(x, Tensor)]
    if any(access.complex_pair(x) is not None for _, x in tensors):
        raise unrecordable("some among what the function returns")
    variables = tuple(
        recorder.source(x).var if alone or access.session_of(x) is recorder else None for _, x in tensors
    )
    structure = None if outputs is None else rebuilt(outputs, _hole)
    return Outputs(structure, variables, tuple(p for p, _ in tensors))


def _hole(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return TensorPlaceholder(leaf.__class__, access.is_scalar(leaf))


def _first_values(
    recorder: TraceRecorder, engine: ReferenceEngine | None, targets: list[Var]
) -> dict[int, Array]:
    known, recording = recorder.evaluator.values, recorder.recording
    started = len(known) > len(recording.args) + len(recording.captures)
    if engine is None or started:
        return {v.id: recorder.evaluator.value(v) for v in targets}
    feeds = {v.name or "": known[v.id] for v in recording.graph.inputs}
    return run(engine, recording, feeds, targets, first_draws)


def _fill(session: TraceRecorder | ReplaySession, values: Mapping[int, Array]) -> None:
    """Fill the tensors of a session that are still held with the values of their variables."""
    for tensor in session.alive():
        if access.value_of(tensor) is None and access.variable_of(tensor) is not None:
            access.set_stored(tensor, values.get(access.recorded_variable(tensor).id))


def _check_alone(recording: Recording, options: TraceOptions, kwargs: Mapping[str, Any]) -> None:
    """Refuse what later calls without the Python code cannot do again."""
    if recording.excluded is not None:
        raise TraceError(
            f"the function leaves a region out of the trace in {shown(recording.excluded)}, which would not "
            "run in later calls with without_host=True"
        )
    if recording.counted is not None:
        raise TraceError(
            "a size that depends on the data is used as a number (symbolic_shape=False) in "
            f"{shown(recording.counted)}; later calls with without_host=True could not follow it"
        )
    if options.fixed or options.live:
        return
    # Later calls without the Python code cannot ask closures for their tensors.
    known: set[int] = set()
    for value in kwargs.values():
        if callable(getattr(value, "named_tensors", None)):
            known.update(id(t) for _, t in value.named_tensors())
    unknown = [c for c in recording.captures if not c.fixed and id(c.tensor) not in known]
    if unknown:
        raise TraceError(
            "have some unknown input tensors in trace result, maybe you can set `capture_as_const=True` when trace"
        ).explained(f"{len(unknown)} tensor(s) come from outside the function and are not arguments")


# Later calls


def replay(
    function: Callable[..., Any], options: TraceOptions, compiled: Compiled, arguments: CallArguments
) -> Any:
    """Call the function again, compare what it does with the recording, and run the compiled graph.

    Raises:
        TraceError: it took another path; the text shows both source lines.
    """
    recording = compiled.recording
    _check_arguments(recording, arguments.tensors)
    session = ReplaySession(
        recording,
        {a.name: access.stored(a.tensor) for a in arguments.tensors},
        compiled.shapes,
        symbolic_shape=bool(options.symbolic_shape),
    )
    inside = arguments_of(session, arguments)
    try:
        with use(session):
            outputs = called(function, arguments, inside)
        session.finish()
        _check_outputs(session, compiled.outputs, outputs)
        changed = changed_among(arguments.tensors, inside, recording)
        inside.clear()
        if options.mode != "never":
            values = session.compute(compiled.engine, compiled.targets)
            judge(compiled.checks, values)
            _fill(session, values)
        settle(arguments.tensors, changed, session.alive())
    finally:
        session.release()
    return outputs


def _check_arguments(recording: Recording, arguments: list[Argument], *, alone: bool = False) -> None:
    names = [a.name for a in arguments]
    if names != list(recording.args):
        raise TraceError(
            f"the function was traced with the tensors {', '.join(recording.args) or 'none'} as arguments, but is now "
            f"called with {', '.join(names) or 'none'}; call .reset() to trace it again"
        )
    for a in arguments:
        var, shape = recording.args[a.name], access.static_shape(a.tensor)
        traced = () if a.name in recording.scalars else var.shape or ()
        # Where the Python code runs again it tells itself what other sizes change.
        if access.dtype_of(a.tensor) != var.dtype or (alone and len(shape) != len(traced)):
            raise TraceError(
                f"{a.name} was traced as {var.dtype} with {len(traced)} axes, but now is {access.dtype_of(a.tensor)} "
                f"of shape {list(shape)}; call .reset() to trace the function again"
            )
        if alone and recording.measured is not None and shape != traced:
            raise TraceError(
                f"{a.name} was traced with shape {list(traced)}, now it has {list(shape)}, but with "
                f"symbolic_shape=False sizes are numbers, first in {shown(recording.measured)}; call .reset() to "
                "trace the function again"
            )


def _check_outputs(session: ReplaySession, recorded: Outputs, outputs: Any) -> None:
    tensors = [(p, x) for p, x in leaves(outputs) if isinstance(x, Tensor)]
    for (path, tensor), var in zip(tensors, recorded.vars, strict=False):
        if access.session_of(tensor) is session and access.variable_of(tensor) is not var:
            raise TraceError("trace error because data unreadable").explained(
                f"the function returns a different value than when it was traced as its output {list(path) or ''}"
            )
    if tuple(p for p, _ in tensors) != recorded.paths:
        raise TraceError(
            f"the function returned {len(recorded.paths)} tensors when it was traced, now {len(tensors)} or in "
            "another structure"
        )


def execute(compiled: Compiled, call: CallArguments) -> Any:
    """Run the compiled graph alone.

    Raises:
        TraceError: the arguments are not those that were traced, or the trace computes nothing.
    """
    recording = compiled.recording
    _check_arguments(recording, call.tensors, alone=True)
    feeds = feeds_of(recording, call.tensors)
    if compiled.engine is None:
        raise TraceError("a record_only trace computes nothing; dump it, then run the dump")
    values = run(compiled.engine, recording, feeds, compiled.targets)
    judge(compiled.checks, values)
    for tensor, var in compiled.updates:
        access.set_stored(tensor, values[var.id])
    outputs = _filled(compiled.outputs, values)
    arguments = {a.name: a for a in call.tensors}
    changed = []
    for name, var, scalar in compiled.assigned:
        assert var.dtype is not None
        new_value = access.from_stored(values[var.id], var.dtype, scalar)
        changed.append((arguments[name], new_value))
    returned = (x for _, x in leaves(outputs) if isinstance(x, Tensor))
    settle(call.tensors, changed, (*returned, *(t for t, _ in compiled.updates)))
    return outputs


def feeds_of(recording: Recording, arguments: list[Argument]) -> dict[str, Array]:
    """Return the values of the recorded graph's inputs in a call: of arguments, and of tensors from outside."""
    feeds = {a.name: access.stored(a.tensor) for a in arguments}
    feeds.update((c.var.name or "", access.stored(c.tensor)) for c in recording.captures if not c.fixed)
    return feeds


def _filled(outputs: Outputs, values: Mapping[int, Array]) -> Any:
    """Return what the function returns, with other values."""
    variables = iter(outputs.vars)

    def fill(leaf: Any) -> Any:
        if not isinstance(leaf, TensorPlaceholder):
            return leaf
        var = next(variables)
        assert var is not None
        assert var.dtype is not None
        return access.from_stored(values[var.id], var.dtype, leaf.scalar, kind=leaf.kind)

    return None if outputs.structure is None else rebuilt(outputs.structure, fill)
