"""Accepting what a model computes now as expected values, after an intended change."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..base.about import author
from ..base.errors import EngineError, Failure, FormatError, UsageError, failure
from ..base.files import files_of, opened
from ..base.registry import resolve
from ..base.writing import replacing
from ..compare.policy import sequence_of
from ..compare.record import header
from ..compare.results import EXIT_FAIL, EXIT_NOT_COMPARED, EXIT_PASS, OutputResult, Verdict
from ..dump import load_all, save
from ..dump.options import DumpOptions
from ..dump.record import graph_digest, provenances, tensor_digest
from ..engines import runs_file
from ..engines.file_replay import FileJudge
from ..graph.dtypes import Array
from ..runner import Runner
from ..testcase import EXPECT, Bundle, FileValue, SourceFile, Testcase
from .pack.capture import Recorder, expect_input, provenance

_WRITERS = {"onnx": "loadrun.onnx.datasets:accept", "pt2": "loadrun.torch.archive:accept"}
"""What writes expected values into files of other formats, or beside them."""


@dataclass(frozen=True, kw_only=True)
class AcceptOptions:
    """Say who accepts new values, and why.

    Attributes:
        reason: why the new values are right; accepts them without asking.
        by: who accepts them (default: the current user@host).
        seed: seed for everything that is drawn at random (default 0).
        engine: what executes the models.
    """

    reason: str | None = None
    by: str | None = None
    seed: int = 0
    engine: str = "reference"


@dataclass(frozen=True)
class NewValue:
    """An output that fails its check, and what it would be with the value that the model computes now.

    Attributes:
        dump: number of the dump in its file, from 0.
        testcase: number of the testcase.
        output: name of the output.
        old_error: error against the value that is expected now.
        new_error: error against the new value.
        maxerr: tolerance of the check.
        before, after: digests of the old and the new value.
        value: the new value in the type of a model of another format than .mge: an array, a list for a sequence, None
            for an optional value without an element.
    """

    dump: int
    testcase: int
    output: str
    old_error: float
    new_error: float
    maxerr: float
    before: str
    after: str
    value: FileValue = None


@dataclass
class Acceptance:
    """The outcome for one file.

    Attributes:
        path: the file.
        values: the outputs that fail.
        checks: how many outputs were compared.
        written: whether the file expects the new values now.
        failure: why it could not be read, run or written.
    """

    path: str
    values: list[NewValue] = field(default_factory=list)
    checks: int = 0
    written: bool = False
    failure: Failure | None = None


def accept_files(
    files: Iterable[str | os.PathLike[str]],
    options: AcceptOptions | None = None,
    *,
    confirm: Callable[[Acceptance], str | None] | None = None,
) -> list[Acceptance]:
    """Make failing outputs expect what their models compute now; passing ones keep their expected values.

    Args:
        files: names, patterns and folders.
        options: who accepts it, and why.
        confirm: called for each file with values to accept; returns the reason, None to leave the file as it is.
            Without it the options give the reason.

    Raises:
        UsageError: there is no reason.
        InputError: a file does not exist.

    >>> found = accept_files(["fixtures/nets/mlp.mge"], AcceptOptions(reason="new weights"))
    >>> [(f.checks, f.values, f.written) for f in found]
    [(3, [], False)]
    """
    options = options or AcceptOptions()
    if confirm is None and not (options.reason or "").strip():
        raise UsageError("accepting new values requires a reason; pass --reason TEXT")
    acceptances = []
    for path in files_of([os.fspath(f) for f in files]):
        one = Acceptance(path)
        acceptances.append(one)
        try:
            _accept(one, options, confirm)
        except Exception as e:
            one.failure = failure(e)
    return acceptances


def accepted(acceptances: Sequence[Acceptance]) -> int:
    """Return the exit code of `loadrun accept`."""
    failures = [f.failure.code for f in acceptances if f.failure is not None]
    if failures:
        return max(failures)
    if any(f.values and not f.written for f in acceptances):
        return EXIT_FAIL
    return EXIT_PASS if any(f.checks for f in acceptances) else EXIT_NOT_COMPARED


def _accept(
    one: Acceptance, options: AcceptOptions, confirm: Callable[[Acceptance], str | None] | None
) -> None:
    bundles = load_all(one.path, native=runs_file(options.engine))
    for i, bundle in enumerate(bundles):
        if bundle.source.file is None and not one.path.endswith(".mge"):
            raise FormatError(
                "accept writes .mge, .onnx and .pt2 files; `loadrun pack` converts a model from another format",
                path=one.path,
            )
        if bundle.defects:
            raise FormatError(
                f"the file is damaged and was left as it is: {bundle.defects[0]}", path=one.path
            )
        source = bundle.source.file
        values = _values(i, bundle, options) if source is None else _source_values(bundle, source, options)
        for value in values:
            one.checks += 1
            if value is not None:
                one.values.append(value)
    if not one.values:
        return
    reason = options.reason if confirm is None else confirm(one)
    if reason is None:
        return
    if not reason.strip():
        raise UsageError(f"{one.path}: accepting new values requires a reason, but it is empty")
    source = bundles[0].source.file
    if source is None:
        _write(one, bundles, reason.strip(), options)
    else:
        new: dict[int, dict[str, FileValue]] = {}
        for value in one.values:
            new.setdefault(value.testcase, {})[value.output] = value.value
        resolve(_WRITERS[source.format])(source, new, _event(one.values, reason.strip(), options))
    one.written = True


def _values(number: int, bundle: Bundle, options: AcceptOptions) -> Iterator[NewValue | None]:
    """Yield for every output that is compared its new value, None if it passes.

    Raises:
        EngineError: a new value does not pass its check either.
    """
    runner = Runner(bundle, options.engine, seed=options.seed)
    for i in range(len(bundle.testcases)):
        case = bundle.testcases[i]
        outs = [o for o in runner.check(case, i).outputs if o.expect is not None]
        failing = {o.name: o for o in outs if o.verdict is Verdict.FAIL}
        yield from (None for o in outs if o.name not in failing)
        if not failing:
            continue
        new = _renewed(bundle, case, failing, options)
        later = {o.name: o for o in runner.check(new, i).outputs}
        for name, old in failing.items():
            yield _new_value(number, i, bundle, old, later[name], case, new)


def _source_values(bundle: Bundle, source: SourceFile, options: AcceptOptions) -> Iterator[NewValue | None]:
    """Yield the same for a model of another format, whose values are in its own types.

    Raises:
        EngineError: a new value does not pass its check either, or the model does not compute such an output.
    """
    runner = Runner(bundle, options.engine, seed=options.seed)
    judge = FileJudge(source, runner.policies, runner.loosened)
    for i in range(len(bundle.testcases)):
        case = bundle.testcases[i]
        result = runner.check(case, i)
        outs = [o for o in result.outputs if o.expect is not None or o.verdict is Verdict.FAIL]
        failing: dict[str, list[OutputResult]] = {}
        for out in outs:
            if out.verdict is Verdict.FAIL:
                # Values of a sequence are outputs of their own, but one value of the file.
                sequence = sequence_of(out.name)
                failing.setdefault(sequence if sequence in source.outputs else out.name, []).append(out)
            else:
                yield None
        # Random operators give other values in another run.
        again = runner.check(case, i).outputs if failing else ()
        for name, parts in failing.items():
            before = _replaceable(i, name, case, source, parts[0])
            new, other = (_computed(name, before, source, bundle.scalars, o) for o in (result.outputs, again))
            later = [*judge.judged(name, new, other)]
            for out in later:
                _require_pass(i, out.name, out)
            # ONNX's rule takes NaN for equal to NaN: a model that became one of NaN would pass.
            if all(map(_is_finite, _items(before))) and not all(map(_is_finite, _items(new))):
                raise EngineError(
                    f"testcase {i}: the model computes NaN or infinity for {name!r}, where finite values are expected"
                )
            yield NewValue(
                0,
                i,
                name,
                float(np.max([math.nan if o.error is None else o.error for o in parts])),
                max(o.error or 0.0 for o in later),
                parts[0].tolerance.maxerr or source.maxerr(name),
                _digest(before),
                _digest(new),
                new,
            )


def _replaceable(
    index: int, name: str, case: Testcase, source: SourceFile, failing: OutputResult
) -> FileValue:
    """Return the expected value of an output.

    Raises:
        EngineError: there is no such output, no expected value of it, or it is text or a map.
    """
    values = case.file_values or {}
    if name not in source.outputs or name + EXPECT not in values:
        why = "; ".join(failing.notes) or "it is not computed"
        raise EngineError(f"testcase {index}: there is no expected value of {name!r} to replace: {why}")
    before = values[name + EXPECT]
    if before is not None and len(_items(before)) < (len(before) if isinstance(before, list) else 1):
        raise EngineError(
            f"testcase {index}: accept writes tensors and sequences of these, which {name!r} is not"
        )
    return before


def _computed(
    name: str, before: FileValue, source: SourceFile, scalars: Collection[str], outs: Sequence[OutputResult]
) -> FileValue:
    """Return what a model computed in its own type: an array, the values of a sequence, or None if there is nothing."""
    dtype, former = source.outputs[name], _items(before)
    np_dtype = dtype.np if dtype is not None else former[0].dtype if former else None
    values = {
        o.name: (v.reshape(()) if o.name in scalars and v.size == 1 else v).astype(np_dtype or v.dtype)
        for o in outs
        if (v := o.value) is not None
    }
    items: list[FileValue] = []
    while (part := values.get(f"{name}.{len(items)}")) is not None:
        items.append(part)
    return values.get(name, items if items or isinstance(before, list) else None)


def _items(value: FileValue) -> list[Array]:
    """Return an array, or the arrays of a sequence."""
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, np.ndarray)]


def _is_finite(value: Array) -> bool:
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _digest(value: FileValue) -> str:
    """Return the digest of a tensor, or that of the digests of a sequence's values."""
    if isinstance(value, np.ndarray):
        return tensor_digest(value)
    return tensor_digest(np.frombuffer("".join(map(_digest, _items(value))).encode(), np.uint8))


def _new_value(
    number: int,
    index: int,
    bundle: Bundle,
    old: OutputResult,
    new: OutputResult,
    before: Testcase,
    after: Testcase,
) -> NewValue:
    _require_pass(index, old.name, new)
    (check,) = (c for c in bundle.checks if c.name == old.name)
    place = expect_input(check).name or ""
    digests = [tensor_digest(c.arrays[place], c.dtypes.get(place)) for c in (before, after)]
    errors = [float("nan") if o.error is None else o.error for o in (old, new)]
    maxerr = old.tolerance.maxerr or 0.0
    return NewValue(number, index, old.name, errors[0], errors[1], maxerr, digests[0], digests[1])


def _require_pass(index: int, name: str, new: OutputResult) -> None:
    if new.verdict is not Verdict.PASS:
        why = new.reason or "; ".join(new.notes) or "it is not finite, is random, or has another layout"
        raise EngineError(
            f"testcase {index}: not even the value that the model computes for {name!r} passes the check: {why}"
        )


def _renewed(bundle: Bundle, case: Testcase, names: Iterable[str], options: AcceptOptions) -> Testcase:
    """Return a testcase in which some outputs expect what the model computes."""
    now = Recorder(bundle, options.engine, seed=options.seed).capture(case.inputs)
    arrays, dtypes = dict(case.arrays), dict(case.dtypes)
    checks = {c.name: c for c in bundle.checks}
    for name in names:
        var = expect_input(checks[name])
        want = var.owner.tensors[0].dtype
        value, dtype = now.arrays[name + EXPECT], now.dtypes[name + EXPECT]
        if dtype != want and not (dtype.is_float and want.is_float):
            raise EngineError(
                f"the check of {name!r} expects {want}, but the model computes {dtype}; pack it again"
            )
        arrays[var.name or ""], dtypes[var.name or ""] = value.astype(want.np, copy=False), want
    return Testcase(arrays, dtypes, now.provenance)


def _write(one: Acceptance, bundles: Sequence[Bundle], reason: str, options: AcceptOptions) -> None:
    """Write the file again; it replaces the old one when it is complete."""
    if len(bundles) == 1:
        _save(one, 0, bundles[0], one.path, reason, options)
        return
    with tempfile.TemporaryDirectory(dir=Path(one.path).absolute().parent) as folder:
        target = str(Path(folder) / "dumps.mge")
        for i, bundle in enumerate(bundles):
            _save(one, i, bundle, target, reason, options)
        with opened(target, "a dump") as source, replacing(one.path) as f:
            shutil.copyfileobj(source, f)


def _save(
    one: Acceptance, number: int, bundle: Bundle, target: str, reason: str, options: AcceptOptions
) -> None:
    values = [v for v in one.values if v.dump == number]
    old = header(bundle.record) if isinstance(bundle.record, memoryview) else {"record": 1}
    event = _event(values, reason, options)
    model = graph_digest(bundle.graph)
    if old.get("model", model) != model:
        event["model"] = [old["model"], model]
    before = old.get("accepted")
    events = [*(before if isinstance(before, list) else []), *([event] if values else [])]
    updated = replace(bundle, record={**old, "accepted": events})
    cases = _cases(bundle, values, options)
    save(updated, target, DumpOptions(append=number > 0), testcases=cases)


def _event(values: Sequence[NewValue], reason: str, options: AcceptOptions) -> dict[str, object]:
    """Say for the record who accepts which values, when and why."""
    return {
        "by": options.by or author(),
        "time": provenance(str(options.engine), options.seed)["time"],
        "reason": reason,
        "values": [[v.testcase, v.output, v.before, v.after] for v in values],
    }


def _cases(bundle: Bundle, values: Sequence[NewValue], options: AcceptOptions) -> Iterator[Testcase]:
    """Yield the testcases with their new values, and with what the record says of them."""
    names: dict[int, list[str]] = {}
    for value in values:
        names.setdefault(value.testcase, []).append(value.output)
    whence = provenances(bundle.record)
    for i in range(len(bundle.testcases)):
        case, said = bundle.testcases[i], next(whence, {})
        if i in names:
            case = _renewed(bundle, case, names[i], options)
            supplied = said.get("given")
            left = [n for n in supplied if n not in names[i]] if isinstance(supplied, list) else []
            said = {**case.provenance, **({"given": left} if left else {})}
        yield replace(case, provenance=said)
