"""What notebooks show of runs, outputs and models."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np

import loadrun
from loadrun.compare.results import OutputResult, Verdict
from loadrun.graph.dtypes import DType

MLP = "fixtures/nets/mlp.mge"


def cells(html: str) -> list[list[str]]:
    return [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in html.split("<tr>")[2:]]


def test_table_of_a_run() -> None:
    results = loadrun.run(MLP)
    rows = cells(results._repr_html_())
    assert [(r[0], r[1], r[2], r[6]) for r in rows] == [
        (str(i), "out", "x".join(map(str, r["out"].shape)), "pass") for i, r in enumerate(results)
    ]
    assert cells(results[1]._repr_html_()) == rows[1:2]


def test_names_from_files_are_escaped() -> None:
    out = OutputResult("<b>x", (1,), DType("Float32"), Verdict.FAIL, 1e-3, 0.5)
    html = loadrun.Result(0, (out,), Verdict.FAIL)._repr_html_()
    assert "<b>x" not in html
    assert "&lt;b&gt;x" in html
    assert "<td class=fail>fail</td>" in html


def test_histograms() -> None:
    got = np.array([1.0, 2.5, 3.0], np.float32)
    want = np.array([1.0, 2.0, 3.0], np.float32)
    checked = OutputResult("y", (3,), DType("Float32"), Verdict.FAIL, 1e-3, 0.25, value=got, expect=want)
    # |2.5 - 2| / 2 = 0.25, the only error.
    assert "1 elements with an error from 1e-1 to 1e0" in checked._repr_html_()
    free = OutputResult("y", (3,), DType("Float32"), Verdict.NOT_COMPARED, value=np.array([0, 0, np.nan, 24]))
    html = free._repr_html_()
    assert "<title>2 values from 0 to 1</title>" in html
    assert "3 values, 1 are not finite" in html


def test_model() -> None:
    html = loadrun.load(MLP)._repr_html_()
    assert cells(html) == [["input", "data", "1x20", "float32"], ["output", "out", "1x4", "float32"]]
    svg = html[html.index("<svg") : html.index("</svg>") + 6]
    assert ElementTree.fromstring(svg).get("class") == "graph"
