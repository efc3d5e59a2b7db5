"""`loadrun report`: several runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import loadrun
from loadrun.base.errors import FormatError
from loadrun.cli import main
from loadrun.report.history import history_html, history_table


def report(path: Path, started: str, **files: tuple[str, float, float]) -> str:
    """A report of files by name: verdict, error of a tolerance of 0.5, seconds."""
    entries: list[dict[str, Any]] = [
        {
            "file": f"{name}.mge",
            "verdict": verdict,
            "load_seconds": 0.5,
            "testcases": [
                {
                    "testcase": 0,
                    "verdict": verdict,
                    "seconds": seconds,
                    "outputs": [{"name": "y", "verdict": verdict, "max_error": error, "maxerr": 0.5}],
                }
            ],
        }
        for name, (verdict, error, seconds) in files.items()
    ]
    path.write_text(json.dumps({"version": 2, "loadrun": "1", "started": started, "files": entries}))
    return str(path)


def test_runs_in_the_order_of_their_days(tmp_path: Path) -> None:
    second = report(
        tmp_path / "b.json",
        "2026-05-02T00:00:00+00:00",
        a=("fail", 1.0, 2.0),
        b=("pass", 0.1, 1.0),
        c=("pass", 0.0, 1.0),
    )
    first = report(
        tmp_path / "a.json", "2026-05-01T00:00:00+00:00", a=("pass", 0.25, 1.0), b=("pass", 0.1, 1.0)
    )
    found = loadrun.report_history([second, first])
    assert [run.path for run in found.runs] == [first, second]
    # 0.25 is half of the tolerance, 1.0 twice of it; half a second of loading.
    assert [(f.verdict, f.error, f.seconds) for f in found.of("a.mge") if f] == [
        ("pass", 0.5, 1.5),
        ("fail", 2.0, 2.5),
    ]
    assert found.of("c.mge")[0] is None
    lines = [line.split() for line in history_table(found).splitlines()]
    assert ["1", "2026-05-01T00:00:00+00:00", "1", "2", "2", "100.0", "%", "3.00"] in lines
    assert ["2", "2026-05-02T00:00:00+00:00", "1", "3", "2", "66.7", "%", "5.50"] in lines
    assert ["a.mge", "pass", "FAIL"] in lines
    assert not any(line[:1] in (["b.mge"], ["c.mge"]) for line in lines)
    assert " ".join(lines[-1]) == "2 of 3 files passed in all runs that have them; 1 file is not in all runs"
    text = history_html(found)
    assert text.count("<polyline") == 1 + 2 * 2  # no line of a single run
    assert "2 of 3" not in text
    assert "&lt;" not in text


def test_what_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"files": [{"file": 1}]}')
    with pytest.raises(FormatError, match="this is not a report"):
        loadrun.report_history([path])
    assert main(["report", str(path)]) == 2
    assert main(["report", str(path), "--html", str(path)]) == 2


def test_names_are_text(tmp_path: Path) -> None:
    evil = report(tmp_path / "r.json", "", **{"<script>x</script>": ("nonsense<b>", float("1e-3"), 0.1)})
    page = tmp_path / "h.html"
    assert main(["report", evil, "--html", str(page)]) == 0
    assert "<script>x" not in page.read_text()
    assert "nonsense<b>" not in page.read_text()


def test_a_run_that_was_cut_short_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All files that it came to passed, which are not all."""
    whole = tmp_path / "whole.jsonl"
    assert main(["fixtures/nets/mlp.mge", "-q", "--json", str(whole)]) == 0
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(whole.read_text().splitlines(keepends=True)[:-1]))
    capsys.readouterr()
    assert main(["report", str(whole), str(cut), str(whole), "--html", str(tmp_path / "h.html")]) == 0
    assert "run 2: the run is incomplete: its last line is missing" in capsys.readouterr().out
    assert "the run is incomplete" in (tmp_path / "h.html").read_text()


def test_failing_files_stand_first(tmp_path: Path) -> None:
    """What newly fails before what failed already, before what passes."""
    fine, bad = ("pass", 0.1, 1.0), ("fail", 1.0, 1.0)
    old = report(tmp_path / "a.json", "2026-05-01T00:00:00+00:00", a=fine, b=bad, c=fine)
    new = report(tmp_path / "b.json", "2026-05-02T00:00:00+00:00", a=fine, b=bad, c=bad)
    page = history_html(loadrun.report_history([old, new]))
    assert "2^0 to 2^0.25 times as long: 3" in page
    places = [page.index(f"<td>{name}.mge</td>") for name in "cba"]
    assert places == sorted(places)


def test_two_runs_have_one_line_for_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for verdict in ("pass", "fail"):
        path = report(tmp_path / f"{verdict}.json", "", a=(verdict, 1.0, 1.0), b=("fail", 1.0, 1.0))
        data = json.loads(Path(path).read_text())
        first = data["files"][0]["testcases"]
        data["files"][0]["testcases"] = [first[0] | {"testcase": i} for i in range(3)]
        Path(path).write_text(json.dumps(data))
        paths.append(path)
    assert main(["report", *paths]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if ".mge" in line]
    assert lines == [["newly", "failing", "a.mge", "0", "y", "pass", "fail", "+2"]]
