"""Every fixture that real MegEngine wrote must replay to the numbers that real MegEngine recorded."""

from __future__ import annotations

import json
import os
import shutil
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from fixtures.make import archives
from loadrun import Verdict
from tests.support.cases import BOTH, check_all, in_groups, kind_of_file, some_of
from tests.support.fixture_files import FIXTURES, fixture_names

FILES = fixture_names()
GOOD = [f for f in FILES if not Path(f).name.startswith("xfail_")]
BAD = [f for f in FILES if Path(f).name.startswith("xfail_")]
TWICE = {*some_of(GOOD, 8, kind_of_file)}


@cache
def index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("index.json", "xfail.json"):
        path = folder / name
        if path.exists():
            found.update(json.loads(path.read_text()))
    return found


def record_of(path: Path) -> Path | None:
    entry = index(path.parent).get(path.name, {})
    record = path.parent / entry.get("record", f"{path.name.removesuffix('.mge')}.npz")
    return record if record.exists() else None


def explain(results: list[loadrun.Result]) -> str:
    lines = [r.message or "" for r in results if r.message]
    for r in results:
        for o in r.outputs:
            if o.verdict is Verdict.FAIL:
                lines.append(
                    f"testcase {r.index} {o.name}: error {o.error} > {o.tolerance.maxerr}: {o.comparison}"
                )
    return "\n".join(lines)


def test_there_are_fixtures() -> None:
    assert (len(GOOD), len(BAD)) == (3289, 27)


def test_the_same_files_make_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(archives.OPS / "window.tar.xz", tmp_path)
    monkeypatch.setattr(archives, "OPS", tmp_path)
    made = []
    for seconds in (1, 2):
        archives.unpack("window", tmp_path / "window")
        for path in (tmp_path / "window").iterdir():
            os.utime(path, (seconds, seconds))
        archives.pack("window")
        made.append((tmp_path / "window.tar.xz").read_bytes())
    assert made[0] == made[1]
    archives.unpack("window", tmp_path / "window")
    for path in (tmp_path / "window").iterdir():
        assert path.read_bytes() == (FIXTURES / "ops" / "window" / path.name).read_bytes(), path.name


def folder(name: str) -> str:
    return Path(name).parent.as_posix()


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("names", in_groups(GOOD, folder))
def test_replay(names: list[str], engine: str) -> None:
    # What MegEngine's kernels make of NaN and infinities, the compiled ones do not follow.
    taken = names if engine == "reference" else [n for n in names if "_special" not in n]
    check_all(taken, partial(replay, engine=engine))


def replay(name: str, engine: str) -> None:
    path = FIXTURES / name
    bundle = loadrun.load(path)
    runner = loadrun.Runner(bundle, engine)
    results = list(runner.replay())
    if bundle.checks:
        assert results, "a graph with checks comes with testcases"
        assert {r.verdict for r in results} == {Verdict.PASS}, explain(results)
        for result in results:
            compare_values(result)
        if name in TWICE:
            # The second run of the same shapes is compiled for them: it gives the same bits.
            again = runner.replay_one(0)
            for first, second in zip(results[0].outputs, again.outputs, strict=True):
                assert first.value is not None
                assert second.value is not None
                assert first.value.tobytes() == second.value.tobytes(), first.name
    else:
        assert {r.verdict for r in results} <= {Verdict.NOT_COMPARED}, explain(results)
    record = record_of(path)
    if record is not None:
        compare_record(runner, record, index(path.parent).get(path.name, {}))


def compare_values(result: loadrun.Result) -> None:
    """What the file's own checks would let pass: integers must be equal, all other numbers near by numpy's measure."""
    for out in result.outputs:
        if out.expect is None or out.expect.shape != out.shape:
            # Some layout passes leave the computed value in the layout of the hardware.
            continue
        assert out.value is not None
        if out.expect.dtype.kind in "iub":
            np.testing.assert_array_equal(out.value, out.expect, err_msg=out.name)
        else:
            maxerr = out.tolerance.maxerr
            assert maxerr is not None
            np.testing.assert_allclose(
                out.value, out.expect, rtol=maxerr, atol=maxerr * 1.001, err_msg=out.name
            )


def compare_record(runner: loadrun.Runner, record: Path, entry: dict[str, Any]) -> None:
    with np.load(record) as z:
        data = dict(z)
    expected = {k: v for k, v in data.items() if k.startswith("out.")}
    if not expected:
        return
    found = runner.run({k[3:]: v for k, v in data.items() if k.startswith("in.")})
    tolerance = float(entry.get("tolerance", 1e-4))
    for key, want in expected.items():
        got = found.outputs[int(key[4:])].value
        assert got is not None
        assert got.shape == want.shape, key
        if want.dtype.kind == "V":
            # numpy has no bfloat16, so MegEngine gave its two bytes.
            want = (want.view("<u2").astype("<u4") << 16).view("<f4")
        if want.dtype.kind in "fc":
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=key)
        else:
            np.testing.assert_array_equal(got, want, err_msg=key)


PASSES_HERE = {
    "nets/xfail_layout_float_io16xc32.mge": "the kernels of MegEngine's CPU build compute garbage from float16",
    "nets/xfail_layout_float_ioc16.mge": "the kernels of MegEngine's CPU build compute garbage from float16",
}
"""Files that are right, and fail in real MegEngine by a fault of its own."""


@pytest.mark.parametrize("name", BAD)
def test_faulty_dump_is_not_passed(name: str) -> None:
    """Dumps that fail their own testcases in real MegEngine fail here as well."""
    path = FIXTURES / name
    entry = index(path.parent).get(path.name, {})
    outcome = entry.get("outcome") or entry.get("real")
    bundle = loadrun.load(path)
    results = list(loadrun.Runner(bundle).replay())
    verdict = Verdict.worst(r.verdict for r in results)
    if name in PASSES_HERE:
        assert verdict is Verdict.PASS, explain(results)
    else:
        assert entry.get("computes_here") or outcome in ("fail", "error", "FAIL", "ERROR"), entry
        assert verdict in (Verdict.FAIL, Verdict.ERROR), f"real MegEngine: {entry}"
