"""Reports: JSON by its published schema, JSON lines, JUnit, HTML; nothing of a file gets out of its place."""

from __future__ import annotations

import io
import json
import math
import re
import xml.etree.ElementTree as ET
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import Failure, Warnings
from loadrun.cli import main
from loadrun.compare.results import FileResult, OutputResult, Result, Tolerance, Verdict
from loadrun.graph.dtypes import DType
from loadrun.report.changes import compare_reports
from loadrun.report.html import HtmlWriter
from loadrun.report.json import JsonWriter as JsonWriter, LineWriter
from loadrun.report.junit import JUnitWriter
from loadrun.report.reading import read_report
from loadrun.verify.pictures import picture
from tests.support.schema import faults, undescribed

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text())
FAILING = "fixtures/nets/xfail_quant_unet_minmax.mge"
FILES = ["fixtures/nets/mlp.mge", FAILING, "fixtures/nets/quant_unet_as_run.mge", "README.md"]
EVIL = "<script>alert('&\"')</script>\x1b[31m]]>\u202e\x00 \ud800"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that passes, one that fails, one that compares nothing and one that is none, in every form."""
    folder = tmp_path_factory.mktemp("reports")
    argv = [str(ROOT / f) for f in FILES] + ["-q", "--iter", "2", "--explain"]
    for option, name in (
        ("json", "r.json"),
        ("json", "r.jsonl"),
        ("junit", "r.xml"),
        ("html", "r.html"),
    ):
        argv += [f"--{option}", str(folder / name)]
    assert main(argv) == 2
    return folder


def test_json_is_as_published(reports: Path) -> None:
    data = json.loads((reports / "r.json").read_text())
    assert list(faults(data, SCHEMA, SCHEMA)) == []
    assert list(undescribed(data, SCHEMA, SCHEMA)) == [], "what is written is described"
    assert [f["verdict"] for f in data["files"]] == ["pass", "fail", "not compared", "error"]
    passing = data["files"][0]
    assert passing["inputs"] == [{"name": "data", "dtype": "float32", "shape": [1, 20]}]
    assert [t["inputs"]["data"] for t in passing["testcases"]] == [[1, 20], [5, 20], [2, 20]]
    assert len({t["data_digest"] for t in passing["testcases"]}) == 3
    assert data["environment"]["numpy"] == np.__version__
    assert (data["engine"], data["seed"]) == ("reference", 0)
    assert data["files"][1]["explanation"]


def test_engines_stand_side_by_side_in_html(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    argv = [str(ROOT / "fixtures/nets/mlp.mge"), "--engine", "reference,float64", "-q"]
    assert main([*argv, "--html", str(page)]) == 0
    table = page.read_text().split("<table class=engines>")[1].split("</table>")[0]
    heads, *rows = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in table.split("<tr>")[1:]]
    assert heads == ["testcase", "output", "reference", "float64"]
    assert [r[:2] for r in rows] == [[str(i), "out"] for i in range(3)]
    for row in rows:
        assert float(row[2]) <= 1e-5
        assert float(row[3].partition("; ")[2].partition(" from")[0]) <= 1e-5


def test_json_lines_follow_their_schema(reports: Path) -> None:
    line = {"$ref": "#/$defs/line"}
    lines = [json.loads(text) for text in (reports / "r.jsonl").read_text().splitlines()]
    assert {x["type"] for x in lines} == {"start", "file", "result", "file_end", "end"}
    for x in [*lines, {"type": "interrupted", "message": "a signal"}]:
        assert list(faults(x, line, SCHEMA)) == []
        assert list(undescribed(x, line, SCHEMA)) == []
    assert list(faults({**lines[0], "type": "end"}, line, SCHEMA))
    assert list(faults({k: v for k, v in lines[2].items() if k != "outputs"}, line, SCHEMA))


def test_the_schema_knows_every_dtype() -> None:
    known = set(SCHEMA["$defs"]["dtype"]["enum"])
    from loadrun.graph.dtypes import _STORAGE

    assert {DType(name).spelling for name in _STORAGE} == known


def test_the_validator_finds(reports: Path) -> None:
    data = json.loads((reports / "r.json").read_text())
    del data["loadrun"]
    data["files"][0]["verdict"] = "good"
    data["files"][0]["testcases"][0]["outputs"][0]["maxerr"] = "many"
    data["files"][0]["load_seconds"] = -1
    assert {f.split(":")[0] for f in faults(data, SCHEMA, SCHEMA)} == {
        "$",
        "$.files[0].verdict",
        "$.files[0].testcases[0].outputs[0].maxerr",
        "$.files[0].load_seconds",
    }


def test_lines_are_the_same_report(reports: Path) -> None:
    whole = json.loads((reports / "r.json").read_text())
    data = (reports / "r.jsonl").read_bytes()
    assert read_report(data, "r.jsonl") == whole
    assert [json.loads(line)["type"] for line in data.splitlines()][-1] == "end"


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.9])
def test_lines_that_were_cut_short_are_read(reports: Path, cut: float) -> None:
    whole = json.loads((reports / "r.json").read_text())
    data = (reports / "r.jsonl").read_bytes()
    found = read_report(data[: int(len(data) * cut)], "r.jsonl")
    assert "exit_code" not in found
    for mine, all_ in zip(found["files"], whole["files"], strict=False):
        assert mine["testcases"] == all_["testcases"][: len(mine["testcases"])]


def test_compare_reads_lines(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(reports / "r.json"), str(reports / "r.jsonl")]) == 0
    assert "0 changes" in capsys.readouterr().out


def test_junit(reports: Path) -> None:
    """The layout that CI servers agree on: counts fit, names and times are there, at most one child a test."""
    root = ET.parse(reports / "r.xml").getroot()
    assert root.tag == "testsuites"
    suites = list(root)
    assert [s.tag for s in suites] == ["testsuite"] * 4
    for suite in suites:
        assert [c.tag for c in suite if c.tag != "testcase"] == ["properties", "system-out", "system-err"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        cases = suite.findall("testcase")
        counts = {
            k: len([c for c in cases if c.find(k) is not None]) for k in ("failure", "error", "skipped")
        }
        assert {
            k: int(suite.attrib[v]) for k, v in zip(counts, ("failures", "errors", "skipped"), strict=True)
        } == counts
        assert int(suite.attrib["tests"]) == len(cases)
        assert float(suite.attrib["time"]) == pytest.approx(
            sum(float(c.attrib["time"]) for c in cases), abs=1e-4
        )
        assert all(c.attrib["name"] and c.attrib["classname"] and len(c) <= 1 for c in cases)
        assert all(p.attrib["name"] and "value" in p.attrib for p in suite.iter("property"))
    assert [int(root.attrib[k]) for k in ("tests", "failures", "errors")] == [10, 6, 1]
    environments = [
        [p for p in s.iter("property") if p.attrib["name"] == "environment.numpy"] for s in suites
    ]
    assert [len(found) for found in environments] == [1, 0, 0, 0], "it is said once"
    # What Jenkins' schema (junit-10.xsd of its xUnit plugin) allows, and no more.
    allowed = {
        "testsuites": {"name", "time", "tests", "failures", "errors"},
        "testsuite": {
            "name",
            "tests",
            "failures",
            "errors",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "file",
        },
        "testcase": {"name", "time", "classname"},
        "property": {"name", "value"},
        **{tag: {"message", "type"} for tag in ("failure", "error", "skipped")},
        **{tag: set() for tag in ("properties", "system-out", "system-err")},
    }
    assert all(set(e.attrib) <= allowed[e.tag] for e in root.iter())
    # Jenkins takes what stands before the last dot for a package: no name is cut there.
    assert {c.attrib["classname"].rpartition(".")[2] for c in root.iter("testcase")} == {
        Path(s.attrib["file"]).name.replace(".", "_") for s in suites
    }
    silent = [c.find("failure") for c in suites[2].iter("testcase")]
    assert [s.attrib["message"] for s in silent if s is not None] == [
        "not compared: there is nothing to compare it with"
    ] * 2, "exit code 3 is no success of a pipeline"
    names = [c.attrib["name"] for c in suites[1].iter("testcase")]
    assert names == ["0::mask", "0::gate", "1::mask", "1::gate"]
    assert "error 0.0614 > 0.0001" in suites[1].find("testcase/failure").attrib["message"]  # type: ignore[union-attr]


class Page(HTMLParser):
    """What a page holds: tags in their order, text, whether every tag is closed."""

    VOID = frozenset(("meta", "br", "link", "img", "image", "circle", "rect", "line"))

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def test_html(reports: Path) -> None:
    page = parsed((reports / "r.html").read_text(encoding="utf-8"))
    tags = [tag for tag, _ in page.tags]
    # One script, and the page's policy lets no other one run.
    assert tags.count("script") == 1
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a]
    source = re.search(r"<script>(.*?)</script>", (reports / "r.html").read_text(encoding="utf-8"), re.S)
    assert source is not None
    digest = b64encode(sha256(source.group(1).encode()).digest()).decode()
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "link" not in tags
    links = [v for _, a in page.tags for k, v in a.items() if k in ("src", "href", "xlink:href", "action")]
    assert all(v is not None and v.startswith(("#f", "data:image/png;base64,")) for v in links)
    said = " ".join(page.text)
    for expected in (
        FAILING,
        "189 of 1024 values exceed the tolerance",
        "where it diverged",
        "processor",
        "errors by decade",
    ):
        assert expected in said
    assert tags.count("svg") == 1 + 8 + 2 + 6, (
        "a chart of all errors, two pictures a failing output, times of testcases, of --iter for each of 4"
    )
    assert [a.get("open", "no") for t, a in page.tags if t == "details"] == ["no", "no", None, None, None]


def test_causes_stand_on_top_and_large_runs_stay_small() -> None:
    """501 models, of which 200 fail for one reason in one folder, and one for another."""
    text = io.StringIO()
    writer = HtmlWriter(text)
    out = OutputResult("y", (2,), DType("Float32"), Verdict.FAIL, Tolerance(0.1), 0.2)
    shown = picture(np.zeros((40, 40)), np.ones((40, 40)))
    for i in range(501):
        verdict = Verdict.FAIL if i < 201 else Verdict.PASS
        file = FileResult(f"{'a' if i < 200 else 'b'}/m{i}.mge")
        writer.begin(file, {"inputs": [{"name": "x", "shape": [1, 3, 224, 224]}]})
        result = Result(0, (replace(out, verdict=verdict),), verdict)
        file.add(result)
        writer.add(result)
        if verdict is Verdict.FAIL:
            writer.picture("y", shown)
        blamed = (
            f"to blame: operator {i}: CONV: its inputs agree" if i < 200 else "to blame: operator 7: RELU"
        )
        writer.end(file, explanation=[blamed] if i < 201 else [])
    writer.close(1)
    page = text.getvalue()
    assert len(page.encode()) < 1_000_000
    rows = page.split("<table class=broke>")[1].split("</table>")[0].split("<tr>")[2:]
    assert [re.findall(r"<td>([^<]*)", row) for row in rows] == [
        ["200", "a", "to blame: operator 0: CONV: its inputs agree"],
        ["1", "b", "to blame: operator 7: RELU"],
    ]
    assert page.count("<div class=picture>") == 3 + 1


def test_nothing_gets_out_of_its_place() -> None:
    """Names, messages and warnings of a hostile file are text in every report."""
    bad = np.array([np.nan, 1.0], np.float32)
    good = np.array([0.0, 1.0], np.float32)
    held_to, said = Tolerance(0.1), (EVIL,)
    out = OutputResult(EVIL, (2,), DType("Float32"), Verdict.FAIL, held_to, math.nan, notes=said, reason=EVIL)
    made: dict[str, str] = {}
    writers: dict[str, Any] = {}
    for name, kind in (("json", JsonWriter), ("jsonl", LineWriter)):
        writers[name] = kind(io.StringIO(), "1", {EVIL: EVIL})
    for name, made_by in (("xml", JUnitWriter), ("html", HtmlWriter)):
        writers[name] = made_by(io.StringIO(), {EVIL: EVIL})
    for name, w in writers.items():
        file = FileResult(EVIL, Failure(EVIL), Warnings([EVIL]))
        w.begin(file, {"inputs": [{"name": EVIL, "shape": [1]}], EVIL: {EVIL: [EVIL]}})
        for index, verdict in ((0, Verdict.FAIL), (1, Verdict.ERROR)):
            outputs = (out,) if verdict is Verdict.FAIL else ()
            w.add(Result(index, outputs, verdict, message=EVIL), {"inputs": {EVIL: (2,)}})
            if name == "html":
                w.picture(EVIL, picture(good, bad))
        w.end(file, explanation=[EVIL])
        w.close(2)
        made[name] = w.file.getvalue()
    json.loads(made["json"])
    assert all(json.loads(line) for line in made["jsonl"].splitlines())
    root = ET.fromstring(made["xml"])
    assert {e.tag for e in root.iter()} <= {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "error"),
        *("system-out", "system-err", "skipped"),
    }
    page = parsed(made["html"])
    assert not {"iframe", "object"} & {tag for tag, _ in page.tags}
    assert [tag for tag, _ in page.tags].count("script") == 1
    for text in (made["xml"], made["html"]):
        assert not set(text) & {"\x1b", "\x00", "\u202e", "\ud800"}


def test_picture_by_hand() -> None:
    expect = np.zeros((2, 3, 4), np.float32)
    get = expect.copy()
    get[1, 2, 3], get[0, 0, 0], get[0, 1, 1] = 100.0, 0.005, np.inf
    found = picture(expect, get)
    assert (found.equal, found.nonfinite) == (21, 1)
    # |0 - 100| / max(1, min(0, 100)) is 100, in the decade from 1e2; 0.005 in that from 1e-3.
    assert {found.low + i: n for i, n in enumerate(found.counts) if n} == {2: 1, -3: 1}
    assert (len(found.cells), len(found.cells[0])) == (6, 4)
    assert found.cells[5][3] == 100.0
    assert found.cells[0][0] == pytest.approx(0.005)
    assert found.worst == (1, 1)


def test_pictures_are_bounded() -> None:
    found = picture(np.zeros((7, 1000, 301)), np.ones((7, 1000, 301)))
    assert (len(found.cells), len(found.cells[0])) == (48, 48)
    assert picture(np.zeros(3), np.zeros(4)).cells == ()
    assert picture(np.float32(1), np.float32(2)).cells == ((1.0,),)


def bench_report(seconds: dict[str, list[float]], processor: str = "x") -> str:
    subjects = [
        {"file": "m.mge", "engine": e, "threads": 2, "batch": None, "wall_seconds": s}
        for e, s in seconds.items()
    ]
    return json.dumps({"benchmark": 2, "subjects": subjects, "environment": {"processor": processor}})


def test_compare_two_benchmarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, run = (tmp_path / n for n in ("old.json", "new.json", "run.json"))
    steady, noisy = [1.0, 1.01, 0.99] * 20, [0.5, 1.0, 1.5] * 20
    old.write_text(bench_report({"reference": steady, "torch": noisy, "gone": steady}))
    new.write_text(bench_report({"reference": [1.3 * s for s in steady], "torch": [1.3 * s for s in noisy]}))
    assert main(["report", str(old), str(new)]) == 1
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[2:4]] == ["slowdown", "missing"]
    # 30 % more is less than what single passes of that engine differ by.
    assert "torch" not in said
    assert "2 measurements in both reports, 2 changes, 2 for the worse" in said
    assert main(["report", str(old), str(old)]) == 0
    assert main(["report", str(old), str(new), "--max-slowdown", "1.4x"]) == 1
    assert "slowdown" not in capsys.readouterr().out
    run.write_text('{"files": []}')
    assert main(["report", str(old), str(run)]) == 2
    assert "one report is of `loadrun bench`" in capsys.readouterr().err


def test_chance_is_not_slower(tmp_path: Path) -> None:
    def report(name: str, seconds: list[float]) -> Path:
        cases = [
            {"testcase": i, "verdict": "pass", "seconds": s, "outputs": []} for i, s in enumerate(seconds)
        ]
        (tmp_path / name).write_text(json.dumps({"files": [{"file": "m.mge", "testcases": cases}]}))
        return tmp_path / name

    old = report("old.json", [0.1] * 30)
    # Times of this machine differ by half; ten times as long is another matter, and so are all of them together.
    wild = [0.1 * (1.6 if i % 3 == 0 else 0.7 if i % 3 == 1 else 1.0) for i in range(29)]
    by_chance = compare_reports(old, report("wild.json", [*wild, 1.0])).changes
    assert [(c.kind, c.testcase) for c in by_chance] == [("slower", "29")]
    assert len(compare_reports(old, report("all.json", [0.2] * 30)).changes) == 30
