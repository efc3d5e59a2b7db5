"""What a command can, its call can: options, results and exit codes are the same."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun import RunOptions
from loadrun.base.errors import UsageError
from loadrun.cli import COMMANDS, main
from loadrun.cli.parsers import parsers
from loadrun.compare.policy import parse_all

ROOT = Path(__file__).resolve().parent.parent
MLP = "fixtures/nets/mlp.mge"
RECORDS: dict[str, tuple[type, ...]] = {
    "run": (loadrun.RunOptions,),
    "pack": (loadrun.PackOptions, loadrun.DumpOptions),
    "audit": (loadrun.AuditOptions,),
    "accept": (loadrun.AcceptOptions,),
    "report": (loadrun.CompareOptions,),
    "diff": (loadrun.DiffOptions,),
    "reduce": (loadrun.ReduceOptions,),
    "bench": (loadrun.BenchOptions, loadrun.ProfileOptions),
    "convert": (loadrun.ConvertOptions,),
    "info": (loadrun.ModelOptions,),
}
SPELLED = {
    "engine": "engines",
    "check": "policies",
    "input_shape": "input_shapes",
    "constant": "constants",
    "no_record": "record",
    "change_graph": "no_change_graph",
    "optimize_for_inference": "passes",
    "config": "configuration",
}
"""Options that stand in a record under another name."""
CALLED = {"files", "model", "file", "reports", "source", "target", "against", "other", "output", "engine"}
"""What a call takes beside its record."""
SHOWN = {"help", "quiet", "verbose"}
"""What is about the screen alone."""
WRITTEN = {
    "run": {"maxerr"},
    "report": {"html"},
    "reduce": {"anonymize"},
    "diff": {"json", "passes", "html", "graph"},
    "bench": {"json", "html"},
    "info": {"json", "graph", "operators"},
    "audit": {"json", "junit"},
}
"""Files that are written from what the call gives, and options of another call."""
LIMITS = {"timeout", "max_memory"}
"""Limits of the command's process: a program that calls the functions has a process of its own."""


@pytest.mark.parametrize("command", RECORDS)
def test_every_option_is_a_field(command: str) -> None:
    names = {f.name for record in RECORDS[command] for f in fields(record)}
    if "optimize" in names or "passes" in names:
        from loadrun.passes.options import FLAGS, LAYOUTS, OPTIMIZATIONS

        names |= {*LAYOUTS, *OPTIMIZATIONS, *FLAGS}
    left = {
        a.dest
        for a in parsers()[command][1]._actions
        if not {a.dest, SPELLED.get(a.dest), SPELLED.get(SPELLED.get(a.dest, ""))} & names
        and not (command == "pack" and a.dest in ("format", "dump_format"))
    }
    assert left - CALLED - SHOWN - WRITTEN.get(command, set()) - LIMITS == set()


def test_the_page_names_every_command_and_its_call() -> None:
    page = (ROOT / "docs/api/commands.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.startswith("| `")]
    assert {r[0].strip(" `").removeprefix("loadrun ") for r in rows} == set(COMMANDS)
    for command, call, record in rows:
        if "load_and_run" not in command:
            for name in re.findall(r"`(\w+)`", call + record):
                assert hasattr(loadrun, name), name


@pytest.mark.parametrize("jobs", [None, 2])
def test_results_come_with_their_values(jobs: int | None) -> None:
    bundle = loadrun.load(MLP)
    with loadrun.Replay([MLP], RunOptions(values=True, jobs=jobs)) as run:
        for dump in run:
            for i, result in enumerate(dump):
                np.testing.assert_allclose(result["out"], bundle.testcases[i].expects["out"], rtol=1e-5)
    assert (run.exit_code, run.done, run.files[0].counts.testcases) == (0, 1, 3)


def test_what_is_not_read_is_counted_all_the_same(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    with loadrun.Replay([MLP], RunOptions(json=str(report))) as run:
        for dump in run:
            assert next(iter(dump)).outputs[0].value is None
    assert [c["testcase"] for c in json.loads(report.read_text())["files"][0]["testcases"]] == [0, 1, 2]
    assert run.files[0].counts.passed == 3


def interrupted(options: RunOptions) -> None:
    with loadrun.Replay([MLP], options) as run:
        for _ in run:
            raise ZeroDivisionError


def test_an_interrupted_block_leaves_no_report(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        interrupted(RunOptions(json=str(tmp_path / "r.json")))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "flags", "code"),
    [
        ({}, [], 0),
        ({"policies": parse_all(["exact"])}, ["--check", "exact"], 1),
        ({"input_data": ("#ones",)}, ["--input", "#ones"], 3),
        ({"input_data": ("#ones",), "allow_uncompared": True}, ["--input", "#ones", "--allow-uncompared"], 0),
        ({"input_data": ("missing.npy",)}, ["--input", "missing.npy"], 2),
        ({"range": 1e-3}, ["--range", "1e-3"], 1),
    ],
)
def test_exit_codes_are_those_of_the_command(
    options: dict[str, Any], flags: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([MLP, *flags]) == code
    assert loadrun.replay_files([MLP], RunOptions(**options)).exit_code == code


def test_nothing_runs_after_the_first_that_fails() -> None:
    exact = parse_all(["exact"])
    run = loadrun.replay_files([MLP, MLP, MLP], RunOptions(policies=exact, fail_fast=True))
    assert (run.done, len(run.files), len(run.paths)) == (1, 1, 3)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"iter": 2, "jobs": 2}, "-j would disturb the times of --iter"),
        ({"threads": 1, "jobs": 2}, "--threads applies to this process only"),
        ({"threads": 0}, "--threads takes a number of at least 1, found 0"),
        ({"engines": ("reference", "float64"), "top": 3}, "take a single --engine, found 2"),
        ({"repeat": 2}, "apply to input data"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        RunOptions(**options)


def test_the_operator_to_blame_is_taken_out(tmp_path: Path) -> None:
    """A model whose last weights were moved by a hundredth differs first where they are used."""
    changed = loadrun.load(MLP)
    weights = [t for o in changed.graph.oprs if o.type == "ImmutableTensor" for t in o.tensors]
    last = [t for t in weights if len(t.shape or ()) == 2 and t.shape != (1, 1)][-1]
    last.data = (last.value() + np.float32(0.01)).reshape(-1).view(np.uint8)
    loadrun.save(changed, tmp_path / "changed.mge")
    found = loadrun.diff_files(tmp_path / "changed.mge", MLP)
    assert not found.agree
    var = found.extract(tmp_path / "one.mge")
    assert var is not None
    assert var is found.blamed
    alone = loadrun.load(tmp_path / "one.mge")
    assert var.owner.type in {o.type for o in alone.graph.oprs}
    assert loadrun.diff_files(MLP).extract(tmp_path / "none.mge") is None
