"""Every recorded specification: what real MegEngine 1.13 took, we take with the same result; what differs is listed.

tests/data/input_data_outcomes.json is written by fixtures/make/input_data.py.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import LoadRunError
from loadrun.inputs.loading import load_cases
from tests.support.input_files import make_files
from tests.support.input_models import model

RECORDED = json.loads((Path(__file__).parent / "data" / "input_data_outcomes.json").read_text())
DTYPES = {"float32": "Float32", "float16": "Float16", "uint8": "Uint8", "int8": "Int8", "int32": "Int32"}
DTYPES["bool"] = "Bool"
BLANKS = "blanks around names, separators and numbers do not matter"

ACCEPTED = {
    "#rand( 0,1)": BLANKS,
    " #rand(0,1)": BLANKS,
    "#rand(0,1) ": BLANKS,
    "#rand (0,1)": BLANKS,
    "data: #rand(0,1)": BLANKS,
    " data:#rand(0,1)": BLANKS,
    "data :#rand(0,1)": BLANKS,
    "a:#rand(0,1) ;b:#rand(0,1)": BLANKS,
    "a:#rand(0,1); b:#rand(0,1)": BLANKS,
    " a.npy": BLANKS,
    "a.npy ": BLANKS,
    "@ list.txt": BLANKS,
    "@list.txt ": BLANKS,
    "@lead.txt": BLANKS,
    "#rand(1e-3,1)": "exponents",
    "#rand(0,1e2)": "exponents",
    "#rand(+1,2)": "signs",
    "#rand(0,1);": "a last ; ends the last part",
    "data:a.npy;": "a last ; ends the last part",
    "a:#rand(0,1);b:#rand(0,1);": "a last ; ends the last part",
    "data:we:ird.npy": "a path after its name may hold colons",
    "#randn(0,1)": "more generators",
    "#full(3)": "more generators",
    "#ones": "more generators",
    "#rand(0,1,seed=3)": "a seed of its own",
    "data:'a.npy'": "quotes",
    "arr.npz": "members of .npz",
    "arr.npz!data": "members of .npz",
    "{1,3,4,5}": "shapes as load_and_run has them",
    "@comment.txt": "comments in list files",
    "@nested.txt": "nested list files",
    "#rand(0,1,0,3,4,5)": "data without elements",
    "empty.npy": "data without elements",
}
"""Specifications that MegEngine refuses and we take, with the reason."""

REFUSED = {
    ("I32", "nan.npy", ""): "NaN has no value as an integer; which one it gets depends on the processor",
    ("F", "img.png", "data[0]"): "the result has fewer axes than the input",
    ("F", "img.png", "max(data.max(), 3)"): "max is a builtin, and the result is not an array",
}
"""Model, specification and input_transform that MegEngine takes and we refuse, with the reason."""


def title(row: dict[str, Any]) -> str:
    options = ",".join(f"{k}={v}" for k, v in row.get("options", {}).items())
    return f"{row['model']}-{row.get('spec', row.get('specs'))}-{options}"


@pytest.mark.parametrize("row", RECORDED["rows"], ids=title)
@pytest.mark.filterwarnings("ignore:input '[a-z]*' has shape")
def test_same_as_megengine(
    row: dict[str, Any], recorded_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded_files)
    inputs = model(**{n: (DTYPES[d], tuple(s)) for n, (d, s) in RECORDED["models"][row["model"]].items()})
    specs = row.get("specs", [row.get("spec")])
    options = row.get("options", {})
    warned: list[str] = []
    outcome = row["outcome"]
    refused = (row["model"], row.get("spec"), options.get("input_transform", ""))
    wanted = "error" not in outcome
    if (not wanted and (options or row.get("spec") not in ACCEPTED)) or refused in REFUSED:
        with pytest.raises(LoadRunError) as e:
            list(load_cases(specs, inputs, warn=warned.append, **options))
        assert "Traceback" not in str(e.value)
        return
    found = list(load_cases(specs, inputs, warn=warned.append, **options))
    if not wanted:
        assert found
        return
    assert len(found) == len(outcome["cases"])
    # MegEngine looks at the shape before input_transform, we at what goes into the model.
    if "input_transform" not in options:
        # Of numbers that wrap MegEngine says nothing.
        told = [w for w in warned if " and wrap: " not in w]
        assert bool(told) == outcome.get("warns", False)
    for got, want in zip(found, outcome["cases"], strict=True):
        assert sorted(got) == sorted(want)
        for name, (dtype, shape, span, crc) in want.items():
            check(got[name], dtype, shape, span, crc, generated="#rand" in str(specs) or "list" in str(specs))


def check(
    array: np.ndarray, dtype: str, shape: list[int], span: list[float], crc: int | None, generated: bool
) -> None:
    assert (str(array.dtype), list(array.shape)) == (dtype, shape)
    low, high = float(array.min()), float(array.max())
    if crc is not None:
        assert zlib.crc32(array.tobytes()) == crc
    elif generated:
        # Other random numbers of the same range: both samples fill it alike.
        room = (span[1] - span[0]) * 0.2 if array.size > 50 else 1.0
        assert abs(low - span[0]) <= room
        assert abs(high - span[1]) <= room
    else:
        np.testing.assert_allclose([low, high], span, rtol=1e-5, atol=1)


def test_lists_of_deviations_are_up_to_date() -> None:
    rows = RECORDED["rows"]
    refused_there = {r.get("spec") for r in rows if "error" in r["outcome"] and not r.get("options")}
    taken_there = {
        (r["model"], r.get("spec"), r.get("options", {}).get("input_transform", ""))
        for r in rows
        if "cases" in r["outcome"]
    }
    assert set(ACCEPTED) <= refused_there
    assert set(REFUSED) <= taken_there
    assert len(rows) == 250


@pytest.fixture(scope="module")
def recorded_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    make_files(folder)
    return folder
