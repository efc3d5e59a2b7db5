"""Graphs as data: what the page draws, and what Model Explorer reads."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.cli import main
from loadrun.graph import StoredTensor
from loadrun.graph.dtypes import DType
from loadrun.report.graph import graph_page, neighbourhood
from loadrun.testing import GraphBuilder


def drawn(text: str) -> list[dict[str, Any]]:
    """The nodes of the page's graph."""
    found: list[str] = []

    class Page(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend(v for k, v in attrs if k == "data-graph" and v)

    Page().feed(text)
    (data,) = found
    nodes: list[dict[str, Any]] = json.loads(data)["nodes"]
    return nodes


def test_graph_of_a_model(tmp_path: Path) -> None:
    assert main(["info", "fixtures/nets/mlp.mge", "--graph", str(tmp_path / "m.html")]) == 0
    nodes = drawn((tmp_path / "m.html").read_text())
    bundle = loadrun.load("fixtures/nets/mlp.mge")
    computed = [o for o in bundle.graph.needed(bundle.outputs.values()) if not o.tensors]
    assert [n["i"] for n in nodes[1:-1]] == [o.id for o in computed]
    assert (nodes[0]["t"], nodes[0]["o"]) == ("input", ["data 1x20 float32"])
    assert (nodes[-1]["t"], nodes[-1]["o"]) == ("output", ["out 1x4 float32"])
    first = computed[0]
    constants = [v for v in first.inputs if v.owner.tensors and v.owner.type != "Host2DeviceCopy"]
    weight = constants[0].owner.tensors[constants[0].index]
    value = weight.value()
    assert f"from {value.min():.4g} to {value.max():.4g}" in nodes[1]["w"][0]


def layers(count: int) -> loadrun.Bundle:
    """A chain of operators in modules of ten, and one that reads the first again."""
    b = GraphBuilder()
    x = first = b.input("x", 2, 3)
    for i in range(count):
        x = b.elemwise("RELU" if i % 2 else "TANH", x)
        x.owner.name = f"net.layer{i // 10}.part{i % 10}"
    return loadrun.Bundle(b.done(b.elemwise("ADD", x, first)))


def test_layers_by_names() -> None:
    nodes = drawn(graph_page(layers(30)))
    assert [n["s"] for n in nodes] == ["", *(f"net/layer{i // 10}" for i in range(30)), "net/layer2", ""]
    assert nodes[31]["x"] == [nodes[30]["i"], nodes[0]["i"]]


def test_layers_by_the_names_of_weights() -> None:
    b = GraphBuilder()
    x = b.input("x", 1, 2)
    tensors = [
        StoredTensor(DType("Float32"), (1, 2), n, np.zeros(8, np.uint8)) for n in ("a.w", "a.b", "b.w", "b.b")
    ]
    held = b.graph.add("MultipleDeviceTensorHolder", n_outputs=4, tensors=tensors)
    for weight in held:
        x = b.elemwise("ADD", x, weight)
    nodes = drawn(graph_page(loadrun.Bundle(b.done(b.elemwise("RELU", x)))))
    assert [n["s"] for n in nodes[1:-1]] == ["a", "a", "b", "b", "b"]
    assert [n["w"] for n in nodes[1:3]] == [
        ["a.w 1x2 float32, from 0 to 0, mean 0"],
        ["a.b 1x2 float32, from 0 to 0, mean 0"],
    ]


def test_graph_for_model_explorer(tmp_path: Path) -> None:
    """The fields that its format names, edges between nodes that there are, and an error for each of its nodes."""
    target = tmp_path / "g.json"
    argv = ["diff", "fixtures/nets/mlp.mge", "--graph", str(target), "--html", str(tmp_path / "d.html")]
    assert main(argv) == 0
    ((collection,), data) = (json.loads(p.read_text()) for p in (target, tmp_path / "g.data.json"))
    (graph,) = collection["graphs"]
    ids = {n["id"] for n in graph["nodes"]}
    assert len(ids) == len(graph["nodes"])
    for node in graph["nodes"]:
        fields = {"id", "label", "namespace", "incomingEdges", "attrs", "outputsMetadata"}
        assert set(node) == fields
        assert {e["sourceNodeId"] for e in node["incomingEdges"]} <= ids
        assert all(isinstance(a["value"], str) for a in node["attrs"])
    results = data[graph["id"]]["results"]
    assert set(results) <= ids
    assert all(0 <= r["value"] < 1e-5 for r in results.values())
    page = (tmp_path / "d.html").read_text()
    assert "everything that was compared agrees" in page
    assert {n.get("v") for n in drawn(page)[1:-1]} == {"agrees"}


def test_diff_names_the_guilty_operator_on_its_page(tmp_path: Path) -> None:
    paths = []
    for mode in ("RELU", "TANH"):
        b = GraphBuilder()
        x = b.elemwise("SIN", b.input("x", 2, 3))
        bundle = loadrun.Bundle(b.done(b.elemwise("EXP", b.elemwise(mode, x))))
        paths.append(str(tmp_path / f"{mode}.mge"))
        loadrun.save(bundle, paths[-1])
    page = tmp_path / "d.html"
    assert main(["diff", *paths, "--html", str(page)]) == 1
    marks = {n["t"]: n.get("v") for n in drawn(page.read_text())}
    assert marks["RELU"] == "to blame"
    assert marks["SIN"] == "agrees"
    assert "<p class='total fail'>to blame: " in page.read_text()


def test_bench_colours_by_time(tmp_path: Path) -> None:
    page = tmp_path / "b.html"
    assert main(["bench", "fixtures/nets/mlp.mge", "--min-time", "0", "--html", str(page)]) == 0
    assert sum(n.get("m", 0) > 0 for n in drawn(page.read_text())) > 10


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
    assert "<h4>the operators to blame</h4>" in page.read_text()
    assert [n["t"] for n in drawn(page.read_text()) if n.get("v") == "to blame"] == ["ReshapeV1"]


def test_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "fixtures/nets/mlp.mge", "--graph", "m.png"]) == 2
    assert "NAME.html or NAME.json, found m.png and 1 model" in capsys.readouterr().err
    assert main(["info", "fixtures/nets/mlp.mge", "fixtures/nets/gpt.mge", "--graph", "m.html"]) == 2
    assert "found m.html and 2 models" in capsys.readouterr().err
