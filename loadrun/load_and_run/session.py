"""The steps of load_and_run on a model, with its lines."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import sqrt
from typing import TextIO

import numpy as np

from ..base.errors import UsageError, clean
from ..base.writing import replacing, text_file
from ..dump import load, save
from ..graph.dtypes import Array
from ..inputs.feeds import repeated_to
from ..inputs.loading import load_cases
from ..ops.numeric.parallel import set_threads, threads
from ..passes.inference import optimize_for_inference
from ..passes.options import LAYOUTS, OPTIMIZATIONS
from ..runner import Result, Verdict
from ..testcase import EXPECT, Bundle, Testcase
from .dumps import BinaryDump, OutputDump, TextDump, profile_json, write_memory
from .flags import FLAGS, ParsedFlags
from .plan import ExecutionPlan
from .plugins import ObservedRunner, RangeCheck, ValueCheck, WrongValueError
from .rules import check_together
from .saying import Log, model_table, unequal

_SHAPE = re.compile(r"(?:([^:]+):)?\{(\d+(?:\s*,\s*\d+)*)\}")
_ONES = 1


@dataclass
class _Copy:
    """One copy of the model in one thread: what it feeds and what it found."""

    runner: ObservedRunner
    testcase: Testcase
    checked: bool
    first: list[Array | None] | None = None
    failed: str | None = None
    verdict: Verdict = Verdict.NOT_COMPARED


class LoadAndRunSession:
    """One call of load_and_run.

    Args:
        flags: its flags, see `loadrun.load_and_run.flags.parse`.
        path: the model.
        log: where its lines go.

    Attributes:
        vacuous: whether the file has testcases whose checks compare nothing.

    Raises:
        UsageError: flags that have no sense together.

    >>> import io
    >>> from loadrun.load_and_run.flags import parse
    >>> given = parse(["fixtures/nets/mlp.mge", "--iter", "2"])
    >>> LoadAndRunSession(given, given.files[0], Log(io.StringIO(), io.StringIO())).run().value
    'pass'
    """

    def __init__(self, flags: ParsedFlags, path: str, log: Log) -> None:
        check_together(flags)
        self.flags = flags
        self.path = path
        self.log = log
        self.vacuous = False

    def run(self) -> Verdict:
        """Run the model as the flags say.

        Returns:
            what the checks of testcase 0 say; a file without testcases compares nothing.

        Raises:
            LoadRunError: the model cannot be read or executed, or an input is missing.
        """
        self._announce()
        with _processors(self.flags):
            started = time.perf_counter()
            bundle = self._load()
            self.log.log("run_subline@strategy_normal.cpp:51", f"load model: {_ms(started)}ms\n")
            case = self._testcase(bundle)
            count = self.flags.number("thread")
            verdicts = [Verdict.NOT_COMPARED] * count
            faults: list[BaseException] = []

            def one(i: int) -> None:
                try:
                    verdicts[i] = self._subline(bundle, case)
                except BaseException as e:
                    faults.append(e)

            if count == 1:
                return self._subline(bundle, case)
            workers = [threading.Thread(target=one, args=(i,)) for i in range(count)]
            for w in workers:
                w.start()
            for w in workers:
                w.join()
            if faults:
                raise faults[0]
            return Verdict.worst(verdicts)

    def _announce(self) -> None:
        self.log.log("run@strategy_normal.cpp:138", "megbrain/lite/load_and_run: loadrun's, on numpy\n")
        for flag in FLAGS:
            value = self.flags.values.get(flag.name)
            if value is None or value is False or value == "" or (flag.kind is int and value == flag.default):
                continue
            if flag.says:
                self.log.log(flag.group, clean(flag.says.format(value), 4096))
            if not flag.works:
                self.log.say(f"load_and_run: --{flag.name} has no effect: {flag.what}")
        chosen = [n for n in LAYOUTS if self.flags.on(n)]
        if len(chosen) > 1:
            self.log.say(
                f"load_and_run: of {', '.join(f'--{n}' for n in chosen)} the last one counts, as in the C++ tool"
            )

    def _load(self) -> Bundle:
        bundle = load(self.path).lowered()
        if self.flags.on("lite") and bundle.facts.is_container:
            raise UsageError("--lite takes plain models, but this file has testcases")
        options = optimization(self.flags)
        if options is not None:
            graph, _ = optimize_for_inference(bundle.graph, **options)
            source = replace(bundle.source, sized=None, guarded=None)
            bundle = replace(bundle, graph=graph, source=source)
        return bundle

    def _subline(self, bundle: Bundle, case: Testcase) -> Verdict:
        """Run one copy of the model: warm up, time, and what comes after it."""
        log = self.log
        runner = ObservedRunner(bundle, profile=bool(self._profile()))
        copy = _Copy(runner, case, checked=bool(len(bundle.testcases)))
        plan = ExecutionPlan(bundle.graph, {n: a.shape for n, a in copy.testcase.arrays.items()})
        copy.runner.plan = plan
        with ExitStack() as open_files:
            self._plug(copy.runner, plan, open_files)
            self._inform(plan)
            log.log("run_subline@strategy_normal.cpp:116", "run testcase: 0 ")
            started = time.perf_counter()
            total = 0.0
            try:
                self._warm_up(copy, started)
                total = self._timed(copy)
            except WrongValueError as e:
                log.say(f"mgb::MegBrainError: {e}")
                return Verdict.FAIL
        log.log("run_subline@strategy_normal.cpp:129", f"=== total time: {total:.3f}ms\n")
        if copy.failed is None:
            self._afterwards(bundle, copy, plan)
        return copy.verdict

    def _testcase(self, bundle: Bundle) -> Testcase:
        """Return what every copy is fed: the file's first testcase, else the data from the command line."""
        if len(bundle.testcases):
            if self.flags.text("input"):
                self.log.say("load_and_run: --input has no effect: the file's testcases supply the data")
            case = bundle.testcases[0]
        else:
            case = Testcase(self._data(bundle))
        size = self.flags.number("batch_size")
        if size > 0:
            case = replace(case, arrays={n: repeated_to(a, size) for n, a in case.arrays.items()})
        return case

    def _data(self, bundle: Bundle) -> dict[str, Array]:
        """Return the data from the command line; without any, zeros."""
        arrays: dict[str, Array] = {}
        rest = []
        for part in filter(None, self.flags.text("input").split(";")):
            shape = _SHAPE.fullmatch(part.strip())
            if shape is None:
                rest.append(part)
                continue
            var = next((v for v in bundle.inputs if shape[1] in (None, v.name)), None)
            if var is None:
                raise UsageError(f"--input {part}: the model has no input {shape[1]!r}")
            sizes = tuple(int(n) for n in shape[2].split(","))
            dtype = var.owner.tensors[0].dtype.np
            # Every byte is 1, as there.
            count = int(np.prod(sizes)) * dtype.itemsize
            arrays[var.name or ""] = np.full(count, _ONES, np.uint8).view(dtype).reshape(sizes)
        if rest:
            inputs = [v for v in bundle.inputs if v.name not in arrays]
            arrays.update(next(load_cases([";".join(rest)], inputs, warn=self.log.say)))
        for var in bundle.graph.inputs:
            tensor = var.owner.tensors[0]
            if var.name in arrays or tensor.data is not None:
                continue
            if tensor.shape is None:
                raise UsageError(
                    f"the file has no shape for the input {var.name!r}; give its value with --input"
                )
            arrays[var.name or ""] = np.zeros(tensor.shape, tensor.dtype.np)
        return arrays

    def _profile(self) -> str:
        return self.flags.text("profile_host") or self.flags.text("profile")

    def _plug(self, runner: ObservedRunner, plan: ExecutionPlan, files: ExitStack) -> None:
        flags, plugins = self.flags, runner.plugins
        out: TextIO | None = self.log.out if flags.on("io_dump_stdout") else None
        out = self.log.err if flags.on("io_dump_stderr") else out
        if flags.text("io_dump"):
            out = files.enter_context(text_file(flags.text("io_dump"), "utf-8"))
        if out is not None:
            plugins.append(TextDump(out, plan))
        if flags.text("bin_io_dump"):
            plugins.append(BinaryDump(flags.text("bin_io_dump"), plan))
        if flags.text("bin_out_dump"):
            plugins.append(OutputDump(flags.text("bin_out_dump"), plan))
        if float(flags.values.get("range", 0)) > 0:
            plugins.append(RangeCheck(float(flags.values["range"]), plan))
        if flags.text("check_var_value"):
            plugins.append(ValueCheck(flags.text("check_var_value"), plan, self.log.say))

    def _inform(self, plan: ExecutionPlan) -> None:
        if self.flags.on("model_info"):
            self.log.log("format_and_print<lar::ModelMdl>@plugin_options.cpp:246", f"\n{model_table(plan)}\n")
        if self.flags.text("get_static_mem_info"):
            write_memory(self.flags.text("get_static_mem_info"), plan)
        if self.flags.on("verbose"):
            for opr in plan.order:
                names = plan.numbers.oprs[opr.id]
                self.log.log("execute", f"{names.name}: {names.cls}")

    def _warm_up(self, copy: _Copy, started: float) -> None:
        for i in range(self.flags.number("warmup_iter")):
            self.log.log(
                "operator()@strategy_normal.cpp:67", f"=== prepare: {_ms(started)}ms; going to warmup"
            )
            started = time.perf_counter()
            self._once(copy)
            self.log.log("operator()@strategy_normal.cpp:70", f"warm up {i}  {_ms(started)}ms")
            started = time.perf_counter()
            if self._ended(copy):
                return

    def _timed(self, copy: _Copy) -> float:
        """Run and time; returns milliseconds."""
        runs = self.flags.number("iter")
        times: list[float] = []
        if self._ended(copy):
            return 0.0
        for i in range(runs):
            took = self._once(copy) * 1e3
            times.append(took)
            self.log.log(
                "operator()@strategy_normal.cpp:88",
                f"iter {i}/{runs}: e2e={took:.3f} ms (host={took:.3f} ms)",
            )
            if self._ended(copy):
                return sum(times)
        if times:
            self.log.log("operator()@strategy_normal.cpp:97", f"=== finished test #0: {_statistics(times)}")
        return sum(times)

    def _once(self, copy: _Copy) -> float:
        """Run once; returns seconds."""
        if copy.checked:
            result = copy.runner.check(copy.testcase, 0)
            self._judge(copy, result)
        else:
            feeds = {n: a for n, a in copy.testcase.arrays.items() if not n.endswith(EXPECT)}
            result = copy.runner.run(feeds)
        if self.flags.on("reproducible") or self.flags.on("binary_equal_between_batch"):
            self._same(copy, result)
        return result.seconds or 0.0

    def _judge(self, copy: _Copy, result: Result) -> None:
        """Print the checks of a run, and the message of those that failed."""
        plan = copy.runner.plan
        assert plan is not None
        checks = {c.name: c for c in copy.runner.bundle.checks}
        copy.verdict = result.verdict
        for out in result.outputs:
            check = checks.get(out.name)
            if check is None:
                continue
            names = plan.numbers.oprs[check.opr.id]
            if check.verbose and out.error is not None:
                self.log.result(
                    f"AssertEqual: err={np.float32(out.error):g} (name={clean(names.name, 4096)} id={names.id})"
                )
            if out.verdict is Verdict.FAIL:
                copy.failed = unequal(check, out, plan)
                self.log.say(f"mgb::MegBrainError: {copy.failed}")
            elif out.verdict is Verdict.NOT_COMPARED and out.reason:
                self.log.say(f"load_and_run: the check of {out.name!r} compares nothing: {out.reason}")
        self.vacuous |= result.verdict is Verdict.NOT_COMPARED

    def _ended(self, copy: _Copy) -> bool:
        """Return whether a failed check ends the run."""
        lenient = self.flags.on("disable_assert_throw") or self.flags.text("check_var_value")
        if copy.failed is not None and lenient:
            copy.failed, copy.verdict = None, Verdict.PASS
        return copy.failed is not None

    def _same(self, copy: _Copy, result: Result) -> None:
        values = [o.value for o in result.outputs]
        if copy.first is None:
            copy.first = values
            return
        for out, was in zip(result.outputs, copy.first, strict=True):
            if (out.value is None) != (was is None) or (
                out.value is not None and was is not None and out.value.tobytes() != was.tobytes()
            ):
                raise WrongValueError(f"the output {out.name!r} differs from the first run")

    def _afterwards(self, bundle: Bundle, copy: _Copy, plan: ExecutionPlan) -> None:
        flags = self.flags
        path = self._profile()
        if path and copy.runner.reference is not None:
            if flags.number("iter") + flags.number("warmup_iter") == 0:
                raise UsageError("there was no run to profile; set --iter or --warmup_iter")
            with replacing(path) as f:
                f.write(json.dumps(profile_json(copy.runner.reference.get_profile(), plan)).encode())
            self.log.log("watch", f"profiling result written to {clean(path, 4096)}")
        if flags.text("model_dump"):
            save(Bundle(bundle.graph), flags.text("model_dump"))
            self.log.log("model", f"success write model to {clean(flags.text('model_dump'), 4096)}\n")
        if flags.text("layout_transform") and flags.text("layout_transform_dump"):
            save(Bundle(bundle.graph), flags.text("layout_transform_dump"))
        if flags.on("binary_equal_between_batch"):
            self._between_batch(copy)
        if flags.on("model_info"):
            self.log.log("format_and_print<lar::ModelMdl>@plugin_options.cpp:246", f"\n{model_table(plan)}\n")

    def _between_batch(self, copy: _Copy) -> None:
        """Check whether the items of the batch give the same bits when each is run by itself."""
        feeds = {n: a for n, a in copy.testcase.arrays.items() if not n.endswith(EXPECT)}
        sizes = {a.shape[0] for a in feeds.values() if a.ndim}
        if len(sizes) != 1 or (size := sizes.pop()) < 2:
            self.log.say("load_and_run: --binary_equal_between_batch: no input has a batch of several items")
            return
        whole = copy.runner.run(feeds).outputs
        different = 0
        for i in range(size):
            alone = copy.runner.run({n: a[i : i + 1] for n, a in feeds.items()}).outputs
            for out, one in zip(whole, alone, strict=True):
                if out.value is not None and one.value is not None and out.value.shape[:1] == (size,):
                    different += int((out.value[i : i + 1] != one.value).sum())
        text = (
            "all numbers are equal"
            if not different
            else f"{different} numbers differ in their last bits or more"
        )
        self.log.say(f"load_and_run: --binary_equal_between_batch: the batch's items one by one: {text}")


def optimization(flags: ParsedFlags) -> Mapping[str, bool] | None:
    """Return the keywords of `optimize_for_inference` that flags stand for; None without any."""
    layouts = [n for n in LAYOUTS if flags.on(n)]
    others = [n for n in OPTIMIZATIONS if flags.on(n)]
    if not layouts and not others:
        return None
    chosen = [n for n in others if n not in ("optimize_for_inference", "fuse_grain")]
    return dict.fromkeys([*chosen, *layouts[-1:]], True)


@contextmanager
def _processors(flags: ParsedFlags) -> Iterator[None]:
    """Threads and processors as the flags say, and as they were afterwards."""
    count = max(flags.number("multithread"), flags.number("multithread_default"))
    cores = flags.text("multi_thread_core_ids")
    before = threads()
    allowed = os.sched_getaffinity(0) if cores and hasattr(os, "sched_getaffinity") else None
    try:
        if count >= 0:
            set_threads(max(1, count))
        if allowed is not None:
            try:
                os.sched_setaffinity(0, {int(n) for n in cores.split(",")})
            except OSError as e:
                raise UsageError(
                    f"--multi_thread_core_ids {cores}: {e.strerror}; this process may use {sorted(allowed)}"
                ) from None
        yield
    finally:
        set_threads(before)
        if allowed is not None:
            os.sched_setaffinity(0, allowed)


def _ms(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.3f}"


def _statistics(times: list[float]) -> str:
    """Sum, mean, deviation, smallest and largest of some milliseconds.

    >>> _statistics([1.0])
    'time=1.000 ms avg_time=1.000 ms standard_deviation=-nan ms min=1.000 ms max=1.000 ms'
    """
    n, total, squares = len(times), sum(times), sum(t * t for t in times)
    spread = f"{sqrt(max(0.0, (squares * n - total * total) / (n * (n - 1)))):.3f}" if n > 1 else "-nan"
    return (
        f"time={total:.3f} ms avg_time={total / n:.3f} ms standard_deviation={spread} ms "
        f"min={min(times):.3f} ms max={max(times):.3f} ms"
    )
