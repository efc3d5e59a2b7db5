"""Pictures of graphs: where boxes stand, what is drawn, what folds, what is red."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.graph import StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.report.drawing import blocks_html, flat_svg, graph_file, neighbourhood
from loadrun.report.layered import layered
from loadrun.testing import GraphBuilder

SVG = "{http://www.w3.org/2000/svg}"


def titles(text: str, kind: str) -> list[str]:
    groups = ElementTree.fromstring(text).iter(f"{SVG}g")
    return [g.findtext(f"{SVG}title") or "" for g in groups if (g.get("class") or "").split()[0] == kind]


def test_layout_of_a_diamond() -> None:
    # 0 feeds 1 and 2, both feed 3; 0 feeds 3 as well, around the row between.
    found = layered([40, 60, 60, 40], [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)])
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = found.boxes
    assert y0 < y1 == y2 < y3
    assert x1 + 60 < x2 or x2 + 60 < x1
    assert [len(e) for e in found.edges] == [2, 2, 2, 2, 3]
    assert found.edges[4][0][1] > y0
    assert found.edges[4][-1][1] == y3
    assert all(0 <= x <= found.width and 0 <= y <= found.height for line in found.edges for x, y in line)
    assert {x0, x3} <= {x for x in (x0, x3) if min(x1, x2) <= x <= max(x1, x2) + 60}


def test_boxes_of_a_row_do_not_overlap() -> None:
    random = np.random.default_rng(0)
    edges = sorted({(int(a), int(b)) for a, b in random.integers(0, 120, (300, 2)) if a < b})
    widths = random.integers(20, 120, 120).tolist()
    rows: dict[float, list[tuple[float, float]]] = {}
    found = layered(widths, edges)
    for (x, y), wide in zip(found.boxes, widths, strict=True):
        rows.setdefault(y, []).append((x, x + wide))
    for row in rows.values():
        row.sort()
        assert all(a[1] < b[0] for a, b in pairwise(row))
    for a, b in edges:
        assert found.boxes[a][1] < found.boxes[b][1]


def test_picture_of_a_model(tmp_path: Path) -> None:
    assert main(["info", "fixtures/nets/mlp.mge", "--graph", str(tmp_path / "m.svg")]) == 0
    text = (tmp_path / "m.svg").read_text()
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    computed = [o for o in bundle.graph.needed(bundle.outputs.values()) if not o.tensors]
    assert len(titles(text, "box")) == len(computed)
    ports = titles(text, "port")
    assert ports[0] == "data: 1x20"
    assert ports[-1].startswith("output out: 1x4")
    sizes = [t.text for t in ElementTree.fromstring(text).iter(f"{SVG}text") if t.get("class") == "size"]
    assert {"1x20", "1x4"} <= set(sizes)


def layers(count: int) -> loadrun.Bundle:
    """A chain of operators in modules of ten, and one that reads the first again."""
    b = GraphBuilder()
    x = first = b.input("x", 2, 3)
    for i in range(count):
        x = b.elemwise("RELU" if i % 2 else "TANH", x)
        x.owner.name = f"net.layer{i // 10}.part{i % 10}"
    return loadrun.Bundle(b.done(b.elemwise("ADD", x, first)))


def test_modules_fold() -> None:
    bundle = layers(30)
    page = graph_file(bundle, page=True)
    assert re.findall(r"<b>([^<]*)</b>: (\d+) op", page)[1:] == [
        ("net.layer0", "10"),
        ("net.layer1", "10"),
        ("net.layer2", "11"),
    ]
    # Links lead to what lies in a block, which browsers open then.
    for link in re.findall(r'href="#(b\d+)"', page):
        assert page.count(f'id="{link}"') == 1


def test_blocks_by_the_names_of_weights() -> None:
    b = GraphBuilder()
    x = b.input("x", 1, 2)
    tensors = [
        StoredTensor(DType("Float32"), (1, 2), n, np.zeros(8, np.uint8)) for n in ("a.w", "a.b", "b.w", "b.b")
    ]
    held = b.graph.add("MultipleDeviceTensorHolder", n_outputs=4, tensors=tensors)
    for weight in held:
        x = b.elemwise("ADD", x, weight)
    y = b.elemwise("RELU", x)
    page = graph_file(loadrun.Bundle(b.done(y)), page=True)
    assert re.findall(r"<b>([^<]*)</b>: (\d+) op", page)[1:] == [("a", "2"), ("b", "3")]


@pytest.mark.slow
def test_thousands_of_operators() -> None:
    bundle = layers(8000)
    before = perf_counter()
    oprs = bundle.graph.oprs
    page = blocks_html(oprs, {}, bundle.outputs.values(), {oprs[5000].id})
    pictures = page.split("<svg ")[1:]
    assert max(p.count("<rect") for p in pictures) <= 120
    assert page.count('<g class="box') == sum(not o.tensors for o in oprs)
    assert page.count('<g class="box blamed"') == 1
    # What is to blame is open from the outermost block on.
    assert page.count("<details open>") == len(re.findall("<summary class=blamed>", page)) + 1 == 3
    assert len(titles(flat_svg(oprs, {}, bundle.outputs.values()), "block")) <= 41
    assert perf_counter() - before < 60


def test_neighbourhood_is_near_and_small() -> None:
    bundle = layers(2000)
    oprs = bundle.graph.oprs
    blamed = oprs[1000]
    near = neighbourhood(oprs, {blamed.id})
    assert [o.id for o in near] == [blamed.id + d for d in range(-3, 4)]


def test_report_of_a_failure_shows_what_is_to_blame(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    path = "fixtures/nets/xfail_style_transfer_batches.mge"
    assert main([path, "--explain", "--html", str(page), "-q"]) == 2
    text = page.read_text()
    assert "<h4>the operators to blame</h4>" in text
    assert '<g class="box blamed">' in text


def test_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "fixtures/nets/mlp.mge", "--graph", "m.png"]) == 2
    assert "NAME.svg or NAME.html, found m.png and 1 model" in capsys.readouterr().err
    assert main(["info", "fixtures/nets/mlp.mge", "fixtures/nets/gpt.mge", "--graph", "m.svg"]) == 2
    assert "found m.svg and 2 models" in capsys.readouterr().err
