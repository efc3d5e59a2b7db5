"""A sample of the fixtures, exported and run with the values that MegEngine recorded; the script runs them all."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import loadrun
from loadrun.onnx import export
from loadrun.onnx.exported import available, of_written
from loadrun.onnx.truth import new_session, runtime
from loadrun.ops.catalog import CATALOG
from tests.support.fixture_files import FIXTURES, fixture_names

ROOT = Path(__file__).resolve().parent.parent.parent


def script() -> Any:
    spec = spec_from_file_location("onnx_export_script", ROOT / "scripts" / "onnx_export.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


SCRIPT = script()
FILES = [FIXTURES / name for name in fixture_names() if "/xfail_" not in name]
NETS = [p for p in FILES if p.parent.name == "nets" and not p.name.endswith(".v1.mge")]
OPERATORS = [p for p in FILES if p.parent.parent.name == "ops"]
# A prime step meets every family, kind and layout in turn.
SAMPLE = [*NETS[::17], *OPERATORS[::97]]


@pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")
@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("path", SAMPLE, ids=lambda p: p.relative_to(FIXTURES).as_posix())
def test_fixture(path: Path) -> None:
    outcome = SCRIPT.judge(path)
    assert outcome.verdict != "DIFFERS", outcome.detail


@pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")
@pytest.mark.parametrize("opset", [7, 10, 12, 16, 23])
def test_networks_in_other_opsets(opset: int) -> None:
    """Either the numbers of the newest opset, or a list of what the opset lacks."""
    for name in ("gpt", "rnn_2_both", "shufflenet_v2"):
        outcome = SCRIPT.judge(FIXTURES / "nets" / f"{name}.mge", opset=opset)
        assert outcome.verdict in ("agrees", "refused"), (name, outcome.detail)
        assert all("needs opset" in r for r in outcome.reasons), outcome.reasons


def test_what_is_refused_is_said_operator_by_operator() -> None:
    with pytest.raises(loadrun.UnsupportedError) as e:
        export("fixtures/ops/linalg/matinv_1x1.mge")
    first, second = str(e.value).splitlines()
    assert first == "1 operator cannot be written as ONNX:"
    assert second.strip().startswith("MatrixInverse")
    assert second.endswith("ONNX has no inverse of a matrix")


def test_every_operator_is_written_or_has_a_reason() -> None:
    from loadrun.onnx.writing import TRANSLATIONS, reason

    assert set(TRANSLATIONS) <= set(CATALOG)
    missing = [n for n, op in CATALOG.items() if n not in TRANSLATIONS and op.category != "composite"]
    unknown = [n for n in missing if reason(n).startswith("no composition")]
    assert unknown == []
    assert all((t.__doc__ or "").strip() for t in TRANSLATIONS.values())


@pytest.mark.skipif(not available(), reason="needs onnx and onnxruntime")
def test_sizes_that_the_testcases_do_not_have() -> None:
    """The axes that differ between testcases take sizes that none of them has."""
    import numpy as np

    made = export("fixtures/nets/mobilenet_v2.mge")
    (name,) = made.input_names
    declared = made.written.model.graph.inputs[0].shape
    assert declared is not None
    shape = tuple(
        5 if isinstance(n, str) and i == 0 else made.source.inputs[0].shape[i] for i, n in enumerate(declared)
    )
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    session = new_session(made.data)
    got = of_written(made.written, runtime("", session=lambda: session))({name: x})
    want = loadrun.Runner(loadrun.Bundle(made.source.graph)).run({name: x}).outputs
    for value, output in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(value, output.value, rtol=1e-4, atol=1e-4)
