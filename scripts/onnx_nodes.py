"""Run ONNX's own node tests on the reference engine, and write what came out into docs/onnx.md.

Usage: ``python scripts/onnx_nodes.py [--check] [--door NAME] [--drawn SEED] [PATTERN]``. Without a pattern the
document is written; ``--check`` only says whether the numbers in it still hold; ``--door`` writes the models first, as
.mge files (``mge``), or as ONNX again from these (``onnx``), and replays what was written. ``--drawn`` gives each node
other attributes, and expects what ONNX Runtime gives then, where onnx.reference agrees. Needs the package onnx.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

import loadrun
import loadrun.onnx
from loadrun.base.errors import LoadRunError, UnsupportedError
from loadrun.onnx.messages import GraphProto, ModelProto, read_model

DOCUMENT = Path(__file__).parent.parent / "docs" / "onnx.md"
BEGIN, END = "<!-- reading: begin -->", "<!-- reading: end -->"
RTOL, ATOL, BRAIN_RTOL = 1e-3, 1e-7, 2.0**-6

_EXISTING = frozenset((1, 2, 3, 4, 5, 6, 9, 10, 16))
_NARROWED = frozenset((7, 11, 12, 13, 21, 22, 25, 26, *range(17, 21), 23, 24))
_UNROLLED = frozenset(
    "Scan LinearAttention NonMaxSuppression CumProd Unique GRU Loop Det MelWeightMatrix RNN TreeEnsemble".split()
)
_RANDOM = frozenset(
    "Bernoulli RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial".split()
)
_BEYOND = frozenset("ImageDecoder StringNormalizer RegexFullMatch StringSplit StringConcat Gradient".split())
_ROUNDING = {
    "test_dft_inverse": "the data hold 1.9e-7 of rounding where the value is 0, which is what comes out",
    "test_dft_inverse_opset19": "the data hold 1.9e-7 of rounding where the value is 0, which is what comes out",
    "test_attention_4d_causal_fp16_expanded": "2 of 192 values differ by two last places of float16",
    "test_gridsample_reflection_padding mode=b'nearest'": "halves, which the rounding of coordinates decides",
}
"""Tests whose own data are rounded more coarsely than their tolerance, each looked at one by one."""
_RUNTIME = (
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
)
"""Tests that ONNX Runtime does not pass: aligned corners at fractional sizes are placed as it places them."""
_SMALL = ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
_HELD = {f"float8_{n}": "float32" for n in _SMALL} | {
    "float4_e2m1fn": "float32",
    "bfloat16": "float32",
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
}
GROUPS = ("MegEngine's types", "other types", "unrolled", "sequences, text, random, pictures")


@dataclass
class Case:
    """One test: a model and data sets."""

    name: str
    data: bytes
    sets: list[tuple[list[Any], list[Any]]]
    rtol: float = RTOL
    atol: float = ATOL
    model: ModelProto = field(init=False)

    def __post_init__(self) -> None:
        self.model = read_model(memoryview(self.data))

    @property
    def graph(self) -> GraphProto:
        """The model's graph."""
        assert self.model.graph is not None
        return self.model.graph

    @property
    def group(self) -> str:
        """Which of the document's groups the test belongs to."""
        ops = {n.op for n in self.graph.nodes}
        kinds: set[int] = set()
        for info in (*self.graph.inputs, *self.graph.outputs):
            tensor = info.type.tensor if info.type is not None else None
            if tensor is None:
                return GROUPS[3]
            kinds.add(tensor.elem)
        if ops & (_BEYOND | _RANDOM) or not kinds <= _EXISTING | _NARROWED:
            return GROUPS[3]
        if ops & _UNROLLED:
            return GROUPS[2]
        return GROUPS[1] if kinds & _NARROWED else GROUPS[0]


@dataclass
class Outcome:
    """What came of a test.

    Attributes:
        kind: "pass", "refused", "random" (nothing to compare), "rounding" (`_ROUNDING`), "runtime" (`_RUNTIME`),
            "wrong" or "fault".
        reason: why it did not pass.
        operators: the operators of the graph.
    """

    kind: str
    reason: str = ""
    operators: frozenset[str] = frozenset()


def cases(pattern: str = "") -> Iterator[Case]:
    """The node tests of the installed onnx package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    for test in found:
        if re.search(pattern, test.name):
            sets = [([_plain(v) for v in i], [_plain(v) for v in o]) for i, o in test.data_sets]
            yield Case(test.name, test.model.SerializeToString(), sets, test.rtol, test.atol)


def drawn(pattern: str = "", seed: int = 0) -> Iterator[Case]:
    """The node tests with one attribute drawn, for each that the node may have, where two runtimes then agree."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    from loadrun.onnx.truth import beside

    every = [
        c
        for c in cases(pattern)
        if len(c.graph.nodes) == 1 and not {c.graph.nodes[0].op} & (_RANDOM | _BEYOND)
    ]
    models = {c.name: onnx.load_from_string(c.data) for c in every}
    texts: dict[tuple[str, str], set[bytes]] = {}
    for (node,) in (m.graph.node for m in models.values()):
        for a in node.attribute:
            texts.setdefault((node.op_type, a.name), set()).add(a.s)
    rng = np.random.default_rng(seed)
    for case in every:
        model = models[case.name]
        (node,) = model.graph.node
        version = next(o.version for o in model.opset_import if o.domain == node.domain)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        for out in model.graph.output:
            out.type.tensor_type.ClearField("shape")
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name, attribute in schema.attributes.items():
            default = (
                onnx.helper.get_attribute_value(attribute.default_value)
                if attribute.default_value.name
                else None
            )
            value = _other(given.get(name, default), rng, texts.get((node.op_type, name), {b""}))
            if value is None:
                continue
            changed = [onnx.helper.make_attribute(n, v) for n, v in {**given, name: value}.items()]
            del node.attribute[:]
            node.attribute.extend(changed)
            data = model.SerializeToString()
            names = [i.name for i in case.graph.inputs]
            outs = [o.name for o in model.graph.output]
            sets = []
            try:
                for inputs, _ in case.sets:
                    feeds = {n: v for n, v in zip(names, inputs, strict=False) if v is not None}
                    values = beside(data)[1](feeds)
                    again = ReferenceEvaluator(model).run(None, feeds)
                    np.testing.assert_equal([np.shape(v) for v in again], [values[n].shape for n in outs])
                    for v, n in zip(again, outs, strict=True):
                        np.testing.assert_allclose(np.asarray(v, values[n].dtype), values[n], 1e-3, 1e-3)
                    sets.append((inputs, [values[n] for n in outs]))
            except Exception:
                continue
            if not all(map(_is_finite, chain(*chain(*sets)))):
                continue
            yield Case(f"{case.name} {name}={value}", data, sets, case.rtol, 1e-3)


def _other(value: Any, rng: np.random.Generator, texts: Collection[bytes]) -> Any:
    """Another value than that of an attribute; None where none is drawn."""
    if isinstance(value, bytes):
        return rng.choice(sorted({*texts} - {value}) or [None])
    if isinstance(value, float):
        return float(rng.choice([value / 2 + 0.25, 1.5, -value - 0.5]))
    if isinstance(value, int):
        return 1 - value if value in (0, 1) else int(rng.choice([value - 1, value + 1, -value, 0, 1]))
    if isinstance(value, list) and value and isinstance(value[0], int):
        return [int(v) for v in rng.choice([value[::-1], [v + 1 for v in value], [v - 1 for v in value]])]
    return None


def _plain(value: Any) -> Any:
    """A value as an array in a type that numpy has; what is not a tensor as it is."""
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (dict, str)):
        return value
    array = np.asarray(value)
    return array.astype(_HELD.get(array.dtype.name, array.dtype))


def attempt(case: Case, engine: str = "reference") -> Outcome:
    """Import a test's model, run it and compare the outputs by the rule of ONNX's runner."""
    operators: set[str] = set()
    try:
        for inputs, outputs in case.sets:
            bundle, feeds = _loaded(case, inputs)
            operators |= {o.title for o in bundle.graph.oprs if not o.tensors}
            result = loadrun.Runner(bundle, engine).run(feeds)
            wanted = _by_name(case, outputs)
            values = {o.name: o.value for o in result.outputs}
            for name in wanted.keys() - values.keys():
                return Outcome("refused", f"output {name!r} holds text, which MegEngine does not support")
            for name, expected in wanted.items():
                value = values[name]
                assert value is not None
                fault = difference(value, np.asarray(expected), case, _kind_of(case, name))
                if fault and any(o.type == "CompositeRandom" for o in bundle.graph.oprs):
                    return Outcome("random", "its numbers are random", frozenset(operators))
                if fault and case.name in _RUNTIME:
                    return Outcome("runtime", "as ONNX Runtime computes it", frozenset(operators))
                if fault and case.name in _ROUNDING:
                    return Outcome("rounding", _ROUNDING[case.name], frozenset(operators))
                if fault:
                    return Outcome("wrong", f"{name}: {fault}", frozenset(operators))
    except UnsupportedError as e:
        reasons = str(e).split("\n")[1:] or [str(e)]
        if any(" do not fit (" in r for r in reasons):
            return Outcome("fault", reasons[0].strip())
        return Outcome("refused", reasons[0].strip())
    except LoadRunError as e:
        return Outcome("refused", f"{type(e).__name__}: {e}")
    except Exception as e:
        return Outcome("fault", f"{type(e).__name__}: {e}")
    return Outcome("pass", "", frozenset(operators))


def _by_name(case: Case, outputs: Sequence[Any]) -> dict[str, Any]:
    """Expected values by the names that outputs have here: those of a sequence are outputs of their own."""
    found: dict[str, Any] = {}
    for info, value in zip(case.graph.outputs, outputs, strict=True):
        if isinstance(value, list):
            found |= {f"{info.name}.{i}": v for i, v in enumerate(value)}
        else:
            found[info.name] = value
    return found


def _kind_of(case: Case, name: str) -> int:
    info = next((o for o in case.graph.outputs if o.name == name), None)
    if info is None:
        return 0
    return info.type.tensor.elem if info.type is not None and info.type.tensor is not None else 0


def _loaded(case: Case, inputs: Sequence[Any]) -> tuple[loadrun.Bundle, dict[str, Any]]:
    """The bundle and what to feed it."""
    bundle = loadrun.load(case.data)
    dtypes = {v.name: v.owner.tensors[0].dtype.np for v in bundle.graph.inputs}
    feeds = {}
    for info, value in zip(case.graph.inputs, inputs, strict=False):
        want = dtypes.get(info.name)
        numeric = isinstance(value, np.ndarray) and want is not None and want.kind in "biuf"
        feeds[info.name] = value.astype(want) if numeric else value
    return bundle, {n: v for n, v in feeds.items() if n in dtypes}


def _written(case: Case, inputs: Sequence[Any]) -> tuple[loadrun.Bundle, dict[str, Any]]:
    """The bundle for a dump and what to feed it; inputs that must be known are made constants.

    First none, then those of at most one axis except the first (axes, sizes, pads), at last all of them.
    """
    names = [i.name for i in case.graph.inputs]
    given = {
        n: v
        for n, v in zip(names, inputs, strict=False)
        if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"
    }
    few = {n: given[n] for n in names[1:] if n in given and given[n].ndim <= 1}
    # Lists, optional values and text are known when the model is loaded, or not at all.
    static = {n: v for n, v in zip(names, inputs, strict=False) if n not in given}
    error: UnsupportedError | None = None
    for chosen in ({}, few, given):
        constants = {**static, **chosen}
        shapes = {n: v.shape for n, v in given.items() if n not in constants}
        try:
            bundle = loadrun.load(case.data, input_shapes=shapes, constants=constants).lasting()
            # There is none yet where it depends on values.
            variables = bundle.graph.inputs
        except UnsupportedError as e:
            if "constants=" not in str(e):
                raise
            error = e
            continue
        fed = {}
        for var in variables:
            fed[var.name or ""] = given[var.name or ""].astype(var.owner.tensors[0].dtype.np)
        return bundle, fed
    assert error is not None
    raise error


def difference(got: Any, expected: Any, case: Case, kind: int) -> str:
    """How two arrays differ by the rule of ONNX's runner; empty where they agree."""
    if "O" in (got.dtype.kind, expected.dtype.kind):
        return (
            ""
            if got.shape == expected.shape and (got.astype(str) == expected.astype(str)).all()
            else "other text"
        )
    if got.dtype != expected.dtype:
        return f"{got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    rtol = max(case.rtol, BRAIN_RTOL) if kind == 16 else case.rtol
    try:
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=case.atol
        )
    except AssertionError as e:
        return " ".join(str(e).split())[:300]
    return ""


# Written as .mge files


def _is_finite(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def attempt_dump(case: Case, *, again: bool = False) -> Outcome:
    """Write a test's model and data as a .mge file at their sizes, replay that, and compare the outputs.

    Args:
        case: the test.
        again: write that as ONNX, and replay this instead.
    """
    operators: set[str] = set()
    try:
        for inputs, outputs in case.sets:
            bundle, feeds = _written(case, inputs)
            file = io.BytesIO()
            loadrun.save(replace(bundle, record=None, testcases=[loadrun.Testcase(dict(feeds))]), file)
            dump = loadrun.load(file.getvalue())
            operators |= {o.title for o in dump.graph.oprs if not o.tensors and o.type != "Identity"}
            if operators & {"UniformRNGV1", "GaussianRNGV1", "Dropout"}:
                return Outcome("random", "its numbers are random", frozenset(operators))
            inputs_here = dump.testcases[0].inputs
            replayed = loadrun.load(loadrun.onnx.export(dump).data) if again else dump
            values = {o.name: o.value for o in loadrun.Runner(replayed).run(inputs_here).outputs}
            for name, expected in _by_name(case, outputs).items():
                if name not in values:
                    return Outcome("refused", f"output {name!r} is left out")
                value, wanted = values[name], np.asarray(expected)
                assert value is not None
                # A dump has no scalars, and fewer types.
                value = value.reshape(wanted.shape) if value.size == wanted.size == 1 else value
                fault = difference(value.astype(wanted.dtype), wanted, case, _kind_of(case, name))
                if fault:
                    kind = "rounding" if case.name in _ROUNDING else "wrong"
                    kind = "runtime" if case.name in _RUNTIME else kind
                    if not all(_is_finite(v) for v in (*inputs, *outputs)):
                        kind = "infinite"
                    return Outcome(kind, f"{name}: {fault}", frozenset(operators))
    except UnsupportedError as e:
        return Outcome("refused", (str(e).split("\n")[1:] or [str(e)])[0].strip(), frozenset(operators))
    except LoadRunError as e:
        return Outcome("refused", f"{type(e).__name__}: {e}", frozenset(operators))
    except Exception as e:
        return Outcome("fault", f"{type(e).__name__}: {e}", frozenset(operators))
    return Outcome("pass", "", frozenset(operators))


# The document


def measured(
    pattern: str = "", attempt: Callable[[Case], Outcome] = attempt, made: Iterable[Case] | None = None
) -> list[tuple[Case, Outcome]]:
    """All tests with what came of them."""
    return [(case, attempt(case)) for case in (cases(pattern) if made is None else made)]


DOORS: dict[str, tuple[str, Callable[[Case], Outcome]]] = {
    "memory": ("in memory", attempt),
    "mge": ("written as .mge", attempt_dump),
    "onnx": ("written as ONNX from that", partial(attempt_dump, again=True)),
}


def doors(found: Sequence[tuple[Case, Outcome]]) -> list[str]:
    """The table of what is right by the door that a model goes through, and the tests that come out otherwise."""
    kinds = ("pass", "refused", "infinite", "random", "rounding", "runtime", "wrong", "fault")
    lines = ["### By door", ""]
    lines.append(
        "Infinite: NaN or infinity in the data (see howto-engines.md). Refused: nearly all are tests of which nothing "
        "is left once the inputs that must be known are constants, of text, and of types that a .mge file lacks. "
        "Attributes drawn: each attribute of each test once, where ONNX Runtime and onnx.reference then agree."
    )
    lines += ["", f"| door | {' | '.join(kinds)} |", "| --- " * (1 + len(kinds)) + "|"]
    wrong: list[str] = []
    for (name, (text, attempt)), changed in product(DOORS.items(), (False, True)):
        made = drawn() if changed else None
        outcomes = list(found) if name == "memory" and not changed else measured(attempt=attempt, made=made)
        count = Counter(o.kind for _, o in outcomes)
        text += ", attributes drawn" * changed
        lines.append(f"| {text} | {' | '.join(str(count[k]) for k in kinds)} |")
        wrong += [
            f"- {text}: {c.name.removeprefix('test_')}" for c, o in outcomes if o.kind in ("wrong", "fault")
        ]
    return [*lines, "", "Other values than the data have:", "", *wrong, ""]


def section(found: Sequence[tuple[Case, Outcome]]) -> str:
    """The part of the document that the tests decide."""
    import onnx

    lines = [BEGIN, "", "## Reading", ""]
    lines.append(
        f"Measured with `scripts/onnx_nodes.py`: the {len(found)} node tests of onnx {onnx.__version__}, each "
        "imported, run on the reference engine and compared as ONNX's own runner does (rtol 1e-3, atol 1e-7, "
        "shapes exactly). Rounding: the data themselves are rounded. Runtime: ONNX Runtime differs from the data, too, "
        "and what comes out is as there."
    )
    lines += [
        "",
        "| tests | all | pass | refused | random | rounding | runtime | wrong | fault |",
        "| --- " * 9 + "|",
    ]
    for group in (*GROUPS, "all"):
        count = Counter(o.kind for c, o in found if group in ("all", c.group))
        row = [count[k] for k in ("pass", "refused", "random", "rounding", "runtime", "wrong", "fault")]
        lines.append(f"| {group} | {sum(row)} | {' | '.join(map(str, row))} |")
    lines += [
        "",
        *doors(found),
        END,
    ]
    return "\n".join(lines)


def written(document: str, part: str) -> str:
    """The document with its part on reading replaced."""
    if BEGIN in document and END in document:
        return document[: document.index(BEGIN)] + part + document[document.index(END) + len(END) :]
    return document.rstrip("\n") + "\n\n" + part + "\n"


def main() -> int:
    """Measure, and write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--door", choices=DOORS, default="memory")
    parser.add_argument("--drawn", type=int, metavar="SEED")
    args = parser.parse_args()
    start = time.perf_counter()
    made = None if args.drawn is None else drawn(args.pattern, args.drawn)
    found = measured(args.pattern, DOORS[args.door][1], made)
    other = args.door != "memory" or made is not None
    count = Counter(o.kind for _, o in found)
    for case, outcome in found:
        if outcome.kind != "pass":
            print(f"{outcome.kind}: {case.name}: {outcome.reason}")
    print(dict(count), f"{time.perf_counter() - start:.0f} s")
    if not args.pattern and not other:
        old = DOCUMENT.read_text(encoding="utf-8") if DOCUMENT.exists() else "# ONNX\n"
        new = written(old, section(found))
        if args.check:
            print("the document is up to date" if new == old else "the document must be written anew")
            return int(new != old)
        DOCUMENT.write_text(new, encoding="utf-8")
    return int(bool(count["wrong"] or count["fault"]))


if __name__ == "__main__":
    sys.exit(main())
