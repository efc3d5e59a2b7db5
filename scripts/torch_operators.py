"""Measure how torch's operators come out: every sample of torch's own operator database, traced and compared.

    python scripts/torch_operators.py              # everything, writes the counts of docs/torch.md
    python scripts/torch_operators.py --only relu  # operators whose name contains "relu", prints each sample

Each sample is called as a function of tensors through `loadrun.torch.trace`; what the reference engine gives is
compared with what torch gives, shapes and dtypes included.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import traceback
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

Row = tuple[str, str, list[tuple[str, str, str]]]
PAGE = Path(__file__).parent.parent / "docs" / "torch.md"
BEGIN, END = "<!-- samples: begin -->", "<!-- samples: end -->"
DTYPES = ("float32", "int64", "bool")
LIMITS = {"float32": 2, "int64": 1, "bool": 1}
TIES = ("topk", "kthvalue", "sort", "argsort", "median", "nanmedian", "mode")
"""Operators that may name any place of equal values."""
LARGEST = 4096
"""Elements of the largest tensor that a sample may hold."""


def judged(want: Any, got: Any) -> str:
    """Whether results agree: "" or what differs."""
    import torch
    from torch.utils import _pytree as pytree

    wants, gots = pytree.tree_leaves(want), pytree.tree_leaves(got)
    if len(wants) != len(gots):
        return f"{len(gots)} results in place of {len(wants)}"
    for a, b in zip(wants, gots, strict=True):
        if not isinstance(a, torch.Tensor):
            if a != b and not (isinstance(a, float) and abs(a - b) < 1e-4 * max(1, abs(a))):
                return f"{b!r} in place of {a!r}"
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{b.dtype} {[*b.shape]} in place of {a.dtype} {[*a.shape]}"
        x, y = (plain(v) for v in (a, b))
        if not np.allclose(y, x, rtol=2e-4, atol=2e-4, equal_nan=True):
            with np.errstate(all="ignore"):
                far = np.abs(x - y)
            bad = ~np.isclose(y, x, rtol=2e-4, atol=2e-4, equal_nan=True)
            first = int(np.flatnonzero(bad)[0])
            values = f"{y.reshape(-1)[first]} in place of {x.reshape(-1)[first]}"
            return f"{int(bad.sum())} of {x.size} differ by {far.max():.3g}: {values}"
    return ""


def nearer(function: Any, args: Any, named: Any, want: Any, got: Any) -> bool:
    """Whether results lie nearer to what torch computes in double precision than what it computes in single."""
    import torch
    from torch.utils import _pytree as pytree

    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.dtype is torch.float32 else x

    try:
        with torch.no_grad():
            exact = function(*pytree.tree_map(wide, args), **pytree.tree_map(wide, named))
    except Exception:
        return False
    leaves = [pytree.tree_leaves(v) for v in (exact, want, got)]
    if any(not isinstance(v, torch.Tensor) or v.dtype is not torch.float32 for v in leaves[1]):
        return False
    triples = [[plain(v) for v in row] for row in zip(*leaves, strict=True)]
    return all(np.abs(c - a).max() <= np.abs(b - a).max() for a, b, c in triples if a.size)


def plain(x: Any) -> Any:
    """A tensor as an array in float64."""
    return x.detach().cpu().resolve_neg().double().numpy()


def small(sample: Any) -> bool:
    """Whether a sample is small enough to be measured."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return all(
        v.numel() <= LARGEST and v.layout is torch.strided for v in leaves if isinstance(v, torch.Tensor)
    )


def outcome(op: Any, sample: Any) -> tuple[str, str]:
    """What became of one sample: "agrees", "refused", "not exported", "wrong" or "traceback", and why."""
    import torch

    import loadrun.torch
    from loadrun.base.errors import LoadRunError, UnsupportedError
    from loadrun.ops.registry import implementation

    function = op.get_op()
    fixed = sample.kwargs
    tensors = {k: v for k, v in fixed.items() if isinstance(v, torch.Tensor)}
    rest = {k: v for k, v in fixed.items() if k not in tensors}

    def called(*args: Any, **named: Any) -> Any:
        return function(*args, **named, **rest)

    args = (sample.input, *sample.args)
    try:
        with torch.no_grad():
            want = function(*args, **fixed)
    except Exception as error:
        return "torch fails", str(error)[:100]
    try:
        # What torch leaves open is compared below.
        traced = loadrun.torch.trace(called, args, tensors, check=op.name not in TIES)
        got = traced(*args, **tensors)
    except UnsupportedError as error:
        return "refused", str(error)
    except LoadRunError as error:
        if "differs from torch" in str(error):
            return ("random", "") if "empty" in op.name else ("wrong", str(error))
        kind = "not exported" if "torch cannot export" in str(error) else "refused"
        return kind, str(error)
    except Exception:
        return "traceback", traceback.format_exc()
    drawn = any(implementation(entry.opr.type).random for entry in traced.recording.entries)
    if drawn or "empty" in op.name:
        return "random", ""
    if op.name in TIES and isinstance(want, tuple):
        want, got = want[0], got[0]
    problem = judged(want, got)
    if problem and nearer(function, args, fixed, want, got):
        problem = ""
    return ("wrong", problem) if problem else ("agrees", "")


def measured(job: tuple[int, str]) -> Row:
    """All samples of one operator."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    op = op_db[job[0]]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in DTYPES:
            dtype = getattr(torch, name)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            torch.manual_seed(0)
            try:
                # Kept, since torch must not export while what is left of a generator is closed.
                every = op.sample_inputs("cpu", dtype)
                samples = [s for s in islice(every, 40) if small(s)][: LIMITS[name]]
            except Exception as error:
                found.append((name, "torch fails", str(error)[:100]))
                continue
            found += [(name, *outcome(op, s)) for s in samples]
    return job[1], op.variant_test_name, found


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="operators whose name contains this; prints every sample")
    parser.add_argument("--exact", help="operators of these names, with commas between them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", help="a file for what became of each operator, a line of JSON each")
    parser.add_argument("--page", help="write the page from such a file, measure nothing")
    options = parser.parse_args()
    if options.page:
        write([tuple(json.loads(line)) for line in Path(options.page).read_text().splitlines()])
        return 0
    from torch.testing._internal.common_methods_invocations import op_db

    jobs = [(i, op.name) for i, op in enumerate(op_db)]
    if options.only:
        jobs = [j for j in jobs if options.only in j[1]]
    if options.exact:
        jobs = [j for j in jobs if j[1] in options.exact.split(",")]
    rows = []
    started = time.time()
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=60) as pool:
        results = open(options.results, "w") if options.results else None  # noqa: SIM115
        for name, variant, found in pool.imap(measured, jobs):
            rows.append((name, variant, found))
            for dtype, result, why in found:
                if (options.only or options.exact) or result in ("wrong", "traceback"):
                    tail = why if result == "traceback" else why[:600]
                    print(f"{name}.{variant} {dtype}: {result} {tail}", flush=True)
            if results:
                print(json.dumps([name, variant, found]), file=results, flush=True)
    total = Counter(result for _, _, found in rows for _, result, _ in found)
    print(dict(total), f"{time.time() - started:.0f} s")
    if not options.only and not options.exact:
        write(rows)
    return 1 if total["wrong"] or total["traceback"] else 0


def write(rows: list[Row]) -> None:
    """Print what is refused, and put the counts into the page."""
    total = Counter(result for _, _, found in rows for _, result, _ in found)
    counted = total["agrees"] + total["random"]
    lines = [
        BEGIN,
        "",
        "## Samples",
        "",
        f"Of {sum(total.values())} samples of {len(rows)} entries of torch's operator database {counted} agree "
        f"({total['random']} of them in shape and dtype alone, because they draw random numbers or read what nobody "
        f"wrote), {total['refused']} are refused with torch's name of the operator, "
        f"{total['not exported'] + total['torch fails']} are calls that torch itself cannot export or run, "
        f"{total['wrong'] + total['traceback']} differ.",
    ]
    refused: dict[str, str] = {}
    for name, _, found in rows:
        for _, result, why in found:
            if result == "refused":
                refused.setdefault(name, why.splitlines()[1].strip() if "\n" in why else why)
    for name, why in sorted(refused.items()):
        print(f"{name}: {why}")
    numbers = sum("complex numbers" in why for why in refused.values())
    counts = f"Of the {len(refused)} entries with a refused sample, {numbers} compute complex numbers."
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(before + "\n".join([*lines, "", counts, "", END]) + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
