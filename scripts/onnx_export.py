"""Export every fixture that can be expressed, run it in ONNX Runtime, and write what came out into docs/onnx_export.md.

    python scripts/onnx_export.py                      # all fixtures, a few minutes; writes the page
    python scripts/onnx_export.py 'nets/*' 'ops/norm/*'  # some of them; only prints

Needs onnx and onnxruntime. Exits with 1 if a fixture gives other values than it records without a known reason.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import loadrun
from loadrun.base.errors import UnsupportedError
from loadrun.compare import assert_equal_error
from loadrun.graph.dtypes import Array
from loadrun.onnx import Exported, export
from loadrun.onnx.exported import check_model, of_written
from loadrun.onnx.truth import new_session, runtime

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from tests.support.fixture_files import FIXTURES, fixture_names  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "onnx_export.md"
END = "<!-- measured: end -->"
ROUNDING = 2e-6
"""Float32 results of another runtime may differ this much where MegEngine's own error is 0."""

SPECIAL = "NaN, infinities or values out of range, for which ONNX has its own rules"
HALF = "sums of float16 or bfloat16 that MegEngine rounds after every step"
BYTES = "8-bit images that MegEngine blends in fixed point: one step of difference"
ORDER = "TopK without order: ONNX has the same elements sorted"
NMS = "boxes whose overlap is the threshold to the last bit, or that have no area"
KNOWN: tuple[tuple[str, float, str], ...] = (
    ("ops/*special*", np.inf, SPECIAL),
    ("ops/typecvt/*_nan.*", np.inf, SPECIAL),
    ("ops/typecvt/*extreme*", np.inf, SPECIAL),
    ("ops/select/written_arg.*", np.inf, SPECIAL),
    (
        "ops/elemwise/mul_int32.*",
        np.inf,
        "products of int32 beyond 2^24, which MegEngine's x86 kernels round",
    ),
    (
        "ops/elemwise/fuse_add_relu_int32.*",
        np.inf,
        "sums of int32 that overflow, on which MegEngine's kernels differ",
    ),
    (
        "ops/typecvt/float32_to_float16_rounding.*",
        2e-3,
        "halves between float16 numbers, which ONNX rounds to even",
    ),
    ("ops/*float16*", 2e-2, HALF),
    ("ops/conv/written_half.*", 2e-2, HALF),
    ("ops/windows/written_region.*", 2e-2, HALF),
    ("ops/sort/topk_nosort*", np.inf, ORDER),
    ("ops/select/written_topk.*", np.inf, ORDER),
    ("ops/vision/*uint8*", 1.0, BYTES),
    ("ops/roi/nms_keep_odd_boxes.*", np.inf, NMS),
    ("ops/roi/nms_keep_third.*", np.inf, NMS),
    ("nets/layout_dense_nchw64.*", 1e-4, "a check that expects the plain layout of a packed output"),
    ("ops/rng/*", np.inf, "random numbers, which every runtime draws by itself"),
    ("ops/norm/lrn_1.*", 1e-4, "powers of float32, in which ONNX Runtime is less exact"),
)
"""Files that may differ, the largest error (absolute below 1, relative above) that may be, and why."""


@dataclass
class Outcome:
    """What became of one fixture."""

    name: str
    verdict: str
    detail: str = ""
    operators: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


@cache
def index(folder: Path) -> dict[str, Any]:
    """What a folder's index.json says."""
    path = folder / "index.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def record_of(path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs and outputs recorded beside a plain dump."""
    entry = index(path.parent).get(path.name, {})
    record = path.parent / entry.get("record", f"{path.name.removesuffix('.mge')}.npz")
    if not record.exists():
        return {}, {}
    with np.load(record) as z:
        data = dict(z)
    split = ({k[len(p) :]: v for k, v in data.items() if k.startswith(p)} for p in ("in.", "out."))
    return tuple(split)  # type: ignore[return-value]


def judge(path: Path, *, opset: int | None = None) -> Outcome:
    """Export a fixture, check it, run it with its own values."""
    name = path.relative_to(FIXTURES).as_posix()
    bundle = loadrun.load(path)
    titles = sorted({o.type for o in bundle.graph.needed()})
    fed, recorded = record_of(path)
    used = {v.name for v in bundle.inputs}
    fed = {k: v for k, v in fed.items() if k in used}
    try:
        made = export(bundle, (fed,), opset_version=opset)
    except UnsupportedError as e:
        return Outcome(name, "refused", str(e), titles, [line.strip() for line in str(e).splitlines()[1:]])
    check_model(made.data)
    session = of_written(
        made.written,
        runtime("", session=cache(partial(new_session, made.data, as_written=is_quantized(made)))),
    )
    worst = ""
    if recorded:
        worst = compare_record(made, session, fed, recorded, index(path.parent).get(path.name, {}))
    tolerance = {c.name: c.maxerr for c in bundle.checks}
    for number, case in enumerate(made.source.testcases):
        got = session({n: a for n, a in case.inputs.items() if n in made.written.inputs})
        for output, want in case.expects.items():
            found = difference(got[output], want, tolerance[output])
            if found:
                worst = worst or f"testcase {number}, {output}: {found}"
    if not worst:
        return Outcome(name, "agrees" if made.source.testcases or recorded else "runs", "", titles)
    gap = largest_gap(bundle, made, session, fed)
    why = next((w for pattern, limit, w in KNOWN if fnmatch(name, pattern) and gap <= limit), "")
    if not why and quanta(bundle, made, session, fed) <= 1:
        why = "one quantum: QuantizeLinear on values that float32 places on either side of a half"
    return Outcome(name, "known" if why else "DIFFERS", f"{why} ({worst})" if why else worst, titles)


def is_quantized(made: Exported) -> bool:
    """Whether the model has quantized parts; optimized forms of these saturate on some processors."""
    return any(n.op_type == "QuantizeLinear" for n in made.written.model.graph.nodes)


def difference(got: Array, want: Array, maxerr: float) -> str:
    """How a computed value differs from the expected one, "" if it does not."""
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    limit = max(maxerr, ROUNDING) if want.dtype.kind == "f" else maxerr
    error = float(assert_equal_error(want, got))
    return "" if 0 <= error <= limit else f"error {error:.3g} > {limit:.3g}"


def compare_record(
    made: Exported,
    session: Any,
    fed: Mapping[str, Array],
    recorded: Mapping[str, Array],
    entry: Mapping[str, Any],
) -> str:
    """What differs from the record of a plain dump."""
    got = list(session(fed).values())
    tolerance = float(entry.get("tolerance", 1e-4))
    for key, want in recorded.items():
        value = got[int(key)]
        if want.dtype.kind == "V":
            want = (want.view("<u2").astype("<u4") << 16).view("<f4")
        if value.shape != want.shape:
            return f"output {key}: shape {value.shape} for {want.shape}"
        if want.dtype.kind in "fc":
            if not np.allclose(value, want, rtol=tolerance, atol=tolerance, equal_nan=True):
                return f"output {key}: {np.nanmax(np.abs(value.astype('f8') - want)):.3g}"
        elif not np.array_equal(value, want):
            return f"output {key}: {np.abs(value.astype('i8') - want).max()}"
    return ""


def largest_gap(bundle: loadrun.Bundle, made: Exported, session: Any, fed: Mapping[str, Array]) -> float:
    """The largest error (absolute below 1, relative above) of any finite output from the reference engine's."""
    runner = loadrun.Runner(loadrun.Bundle(made.source.graph))
    worst = 0.0
    for one in [c.inputs for c in made.source.testcases] or [dict(fed)]:
        own = {n: a for n, a in one.items() if n in made.written.inputs}
        got = session(own)
        for value, output in zip(got.values(), runner.run(own).outputs, strict=True):
            want = output.value
            if want is None or want.shape != value.shape:
                return np.inf
            a, b = value.astype("f8"), want.astype("f8")
            gap = np.abs(a - b) / np.maximum(np.minimum(np.abs(a), np.abs(b)), 1)
            worst = max(worst, float(gap[np.isfinite(gap)].max(initial=0)))
    return worst


def quanta(bundle: loadrun.Bundle, made: Exported, session: Any, fed: Mapping[str, Array]) -> float:
    """How many quanta outputs of a quantized model are off; infinite where that cannot be said."""
    if not is_quantized(made):
        return np.inf
    steps = {n: last_scale(v) for n, v in made.source.outputs.items()}
    runner = loadrun.Runner(loadrun.Bundle(made.source.graph))
    feeds = [c.inputs for c in made.source.testcases] or [dict(fed)]
    worst = 0.0
    for one in feeds:
        own = {n: a for n, a in one.items() if n in made.written.inputs}
        got = session(own)
        want = [o.value for o in runner.run(own).outputs]
        for (name, step), expected in zip(steps.items(), want, strict=True):
            if step is None or expected is None:
                return np.inf
            worst = max(worst, float(np.abs(got[name].astype("f8") - expected).max(initial=0)) / step)
    return round(worst, 3)


def last_scale(var: Any) -> float | None:
    """What one quantum of an output is worth: 1 for stored integers, the scale behind a conversion to floats."""
    if var.dtype is not None and var.dtype.is_quantized:
        return 1.0
    opr = var.owner
    while opr.type in ("TypeCvtV2", "Identity", "Copy", "ReshapeV1", "Dimshuffle") and opr.inputs:
        source = opr.inputs[0]
        if source.dtype is not None and source.dtype.is_quantized:
            return float(source.dtype.scale)
        opr = source.owner
    return None


def outcomes(patterns: Iterable[str]) -> list[Outcome]:
    """Judge the fixtures that fit the patterns."""
    found = []
    for name in fixture_names():
        if "/xfail_" in name or not any(fnmatch(name, pattern) for pattern in patterns):
            continue
        path = FIXTURES / name
        try:
            found.append(judge(path))
        except Exception as e:
            found.append(Outcome(name, "DIFFERS", f"{type(e).__name__}: {e}"[:300]))
        if (found[-1].verdict in ("DIFFERS", "known") and "-v" in sys.argv) or found[-1].verdict == "DIFFERS":
            print(found[-1].verdict, found[-1].name, found[-1].detail, flush=True)
    return found


# The document


def document(found: list[Outcome]) -> str:
    """The part of docs/onnx_export.md that is measured."""
    counts = Counter(o.verdict for o in found)
    lines = [
        "# Operators written as ONNX",
        "",
        "Measured by `python scripts/onnx_export.py`, which exports every fixture of `fixtures/`, lets onnx.checker",
        "judge it and runs it in ONNX Runtime with the fixture's own inputs.",
        "",
        "| fixtures | what became of them |",
        "| --- | --- |",
        f"| {counts['agrees']} | ONNX Runtime gives what MegEngine recorded, within the fixture's tolerance "
        f"(float results at least {ROUNDING:g}) |",
        f"| {counts['runs']} | run; they record no values |",
        f"| {counts['known']} | differ for a known reason, listed below |",
        f"| {counts['refused']} | are refused with the operators' names and reasons |",
        f"| {counts['DIFFERS']} | give other values |",
        "",
        "## Known differences",
        "",
    ]
    groups: dict[str, list[str]] = defaultdict(list)
    for o in found:
        if o.verdict == "known":
            groups[o.detail.partition(" (")[0]].append(o.name)
    for why, names in sorted(groups.items()):
        lines.append(f"- {why}: {len(names)} files, such as `{names[0]}`")
    return "\n".join(lines) + "\n\n"


def plain(text: str) -> str:
    """A line of an UnsupportedError without the operator's own name and number."""
    head, _, why = text.partition("): ")
    label = head.split(" (")[0].split(" '")[0]
    words = ["`...`" if w.startswith("'") else w for w in why.split(" ")]
    return f"{label}: {' '.join(words)}"


def main(patterns: list[str]) -> int:
    """Judge, print, and write the document when all fixtures were judged."""
    found = outcomes(patterns or ["**/*.mge"])
    counts = Counter(o.verdict for o in found)
    print(", ".join(f"{n} {v}" for v, n in counts.most_common()))
    for text, n in Counter(plain(r) for o in found for r in o.reasons).most_common():
        print(n, text)
    if not patterns:
        rest = DOCUMENT.read_text().partition(END)[2]
        DOCUMENT.write_text(document(found) + END + rest)
    return int(counts["DIFFERS"] > 0)


if __name__ == "__main__":
    sys.exit(main([a for a in sys.argv[1:] if a != "-v"]))
