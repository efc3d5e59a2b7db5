"""Prove the lowerings of torch's operators by every door: traced, written as .mge, and exported as ONNX.

    python scripts/prove.py                # every sample, writes the table of docs/torch.md
    python scripts/prove.py --only softmax # operators whose name contains "softmax"; prints what is not right

Each sample of torch's own operator database is traced and written; what was written is read back and run on the sample,
and on data of other kinds (`loadrun.inputs.kinds`), and must give what torch gives for these.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch_operators import DTYPES, PAGE, TIES, small

DOORS = {"memory": "in memory", "mge": "written as .mge", "onnx": "exported as ONNX"}
KINDS = ("right", "refused", "random", "wrong", "fault")
BEGIN, END = "<!-- doors: begin -->", "<!-- doors: end -->"
LIMIT = 1e-3
"""The error, of the size of an output, from which on it is looked at."""
SAMPLES = 2
Arrays = Mapping[str, np.ndarray]
Row = tuple[str, str, list[tuple[str, str, str]]]


def data(feeds: Arrays) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The sample, and data of other kinds."""
    from loadrun.inputs.kinds import kinds

    yield "the sample", dict(feeds)
    yield from kinds(feeds, ordered=True)


def of_file(bundle: Any) -> Callable[[Arrays], list[np.ndarray]]:
    """What runs a file that was read back, by names of inputs and the order of outputs."""
    from loadrun import Runner

    dtypes = {v.name: v.owner.tensors[0].dtype.np for v in bundle.inputs}

    def run(feeds: Arrays) -> list[np.ndarray]:
        result = Runner(bundle).run({n: v.astype(dtypes[n]) for n, v in feeds.items() if n in dtypes})
        if result.message is not None:
            from loadrun.base.errors import EngineError

            raise EngineError(result.message)
        return [o.value for o in result.outputs]

    return run


def doors(traced: Any) -> dict[str, Callable[[], Callable[[Arrays], list[np.ndarray]]]]:
    """What makes each form of a traced module, and then runs it."""
    import torch

    import loadrun.onnx

    def leaves(feeds: Arrays) -> list[Any]:
        return [
            torch.from_numpy(np.array(feeds[n])).reshape(v.shape).to(v.dtype) if n in feeds else v
            for n, v, _ in traced.signature.inputs(traced._example)
        ]

    def memory() -> Callable[[Arrays], list[np.ndarray]]:
        return lambda feeds: traced._run(leaves(feeds))

    def mge() -> Callable[[Arrays], list[np.ndarray]]:
        file = io.BytesIO()
        traced.dump(file)
        return of_file(loadrun.loads(file.getvalue()))

    def onnx() -> Callable[[Arrays], list[np.ndarray]]:
        return of_file(loadrun.load(loadrun.onnx.export(traced).data))

    return {
        "torch": lambda: lambda feeds: traced.truth(leaves(feeds)),
        "memory": memory,
        "mge": mge,
        "onnx": onnx,
    }


def compared(truth: Any, run: Any, feeds: Arrays, exact: bool) -> str:
    """What differs from torch, "" if nothing; data that torch refuses or is not finite on say nothing."""
    from loadrun.base.errors import EngineError, InputError
    from loadrun.compare.tolerances import error_between
    from loadrun.inputs.kinds import shaken

    for kind, values in data(feeds):
        try:
            want = truth(values)
        except Exception:
            continue
        if not all(np.isfinite(v).all() for v in want if v.dtype.kind in "fc"):
            continue
        try:
            got = run(values)
        except (InputError, EngineError):
            if kind == "the sample":
                raise
            continue
        pairs = list(zip(want, got, strict=True))[: None if exact else 1]
        for i, (a, b) in enumerate(pairs):
            a, b = np.atleast_1d(a), np.atleast_1d(b)
            error = np.inf if a.shape != b.shape else error_between(a, b.astype(a.dtype), by_size=True)
            if error <= LIMIT:
                continue
            # What is left of numbers that cancel each other is their rounding.
            size = max(
                (np.abs(v).max(initial=0) for v in values.values() if v.dtype.kind == "f"), default=0.0
            )
            if (
                a.shape == b.shape
                and a.dtype.kind == "f"
                and np.abs(a - b).max(initial=0) <= 16 * 2.0**-23 * size
            ):
                continue
            moved = truth({n: shaken(v, 2.0**-23) for n, v in values.items()})[i]
            if a.shape == b.shape == np.atleast_1d(moved).shape and error <= 16 * error_between(
                a, np.atleast_1d(moved), by_size=True
            ):
                continue
            return f"{kind}: output {i} is {b.reshape(-1)[:4]} {[*b.shape]}, in torch {a.reshape(-1)[:4]} {[*a.shape]}"
    return ""


def outcomes(op: Any, sample: Any) -> dict[str, tuple[str, str]]:
    """What became of one sample by each door, and why."""
    import torch

    import loadrun.torch
    from loadrun.base.errors import LoadRunError
    from loadrun.ops.registry import implementation

    function = op.get_op()
    tensors = {k: v for k, v in sample.kwargs.items() if isinstance(v, torch.Tensor)}
    rest = {k: v for k, v in sample.kwargs.items() if k not in tensors}
    args = (sample.input, *sample.args)
    exact = op.name not in TIES
    if "empty" in op.name:
        return dict.fromkeys(DOORS, ("random", ""))
    try:
        traced = loadrun.torch.trace(lambda *a, **k: function(*a, **k, **rest), args, tensors, check=exact)
        traced(*args, **tensors)
    except LoadRunError as error:
        return dict.fromkeys(DOORS, ("refused", str(error)))
    except Exception as error:
        return dict.fromkeys(DOORS, ("fault", f"{type(error).__name__}: {error}"))
    if any(implementation(e.opr.type).random for e in traced.recording.entries):
        return dict.fromkeys(DOORS, ("random", ""))
    inputs = traced.signature.inputs(traced._example)
    feeds = {n: v.detach().numpy() for n, v, _ in inputs if isinstance(v, torch.Tensor)}
    made = doors(traced)
    truth = made["torch"]()
    found = {}
    for door in DOORS:
        try:
            why = compared(truth, made[door](), feeds, exact)
            found[door] = ("wrong", why) if why else ("right", "")
        except LoadRunError as error:
            found[door] = ("refused", f"{type(error).__name__}: {error}")
        except Exception as error:
            found[door] = ("fault", f"{type(error).__name__}: {error}")
    return found


def measured(job: tuple[int, str, int]) -> Row:
    """The samples of one operator."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    from loadrun.base.logger import set_log_level

    set_log_level("ERROR")
    torch.set_num_threads(1)
    op = op_db[job[0]]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in DTYPES:
            if getattr(torch, name) not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            try:
                every = op.sample_inputs("cpu", getattr(torch, name))
                samples = [s for s in islice(every, 40) if small(s)][: job[2] if name == "float32" else 1]
            except Exception:
                continue
            for sample in samples:
                found += [(door, *outcome) for door, outcome in outcomes(op, sample).items()]
    return job[1], op.variant_test_name, found


def table(rows: list[Row]) -> list[str]:
    """Counts by door, and the operators that are right in memory and refused by another door."""
    count = {d: Counter(k for _, _, found in rows for door, k, _ in found if door == d) for d in DOORS}
    lines = [f"| door | {' | '.join(KINDS)} |", "| --- " * (1 + len(KINDS)) + "|"]
    lines += [f"| {text} | {' | '.join(str(count[d][k]) for k in KINDS)} |" for d, text in DOORS.items()]
    return lines


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="operators whose name contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th operator alone")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="which of these is the first")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="samples of float32 for each operator")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", help="a file for what became of each operator, a line of JSON each")
    parser.add_argument("--page", nargs="+", help="write the table from such files, measure nothing")
    options = parser.parse_args()
    rows: list[Row] = []
    if options.page:
        texts = [Path(p).read_text(encoding="utf-8").splitlines() for p in options.page]
        rows = [json.loads(line) for text in texts for line in text]
    else:
        from torch.testing._internal.common_methods_invocations import op_db

        jobs = [
            (i, op.name, options.samples) for i, op in enumerate(op_db) if (options.only or "") in op.name
        ]
        started = time.time()
        with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=60) as pool:
            results = open(options.results, "w") if options.results else None  # noqa: SIM115
            for row in pool.imap(measured, jobs[options.first :: options.every]):
                rows.append(row)
                for door, kind, why in row[2]:
                    if kind in ("wrong", "fault") or (options.only and kind == "refused"):
                        print(f"{row[0]}.{row[1]} {door}: {kind}: {' '.join(why.split())[:400]}", flush=True)
                if results:
                    print(json.dumps(row), file=results, flush=True)
        print(f"{time.time() - started:.0f} s")
    lines = table(rows)
    print("\n".join(lines))
    if options.page or not (options.only or options.every > 1):
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        PAGE.write_text(before + "\n".join([BEGIN, "", *lines, "", END]) + after, encoding="utf-8")
    return int(any(kind in ("wrong", "fault") for _, _, found in rows for _, kind, _ in found))


if __name__ == "__main__":
    sys.exit(main())
