"""Pages as Chromium shows them: at two widths, light and dark, by picture and by accessibility tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import loadrun
from loadrun.cli import main
from loadrun.report.graph import GraphMarks, model_element
from loadrun.report.page import page
from loadrun.testing import GraphBuilder
from tests.support.browser import MISSING, Tab, tab

pytestmark = pytest.mark.skipif(MISSING, reason="chromium and chromedriver are not installed")
FAILING = "fixtures/nets/xfail_quant_unet_minmax.mge"
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const light = colour => {
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const part = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(part);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const back = light(getComputedStyle(document.body).backgroundColor);
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    with tab() as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("pages") / "r.html"
    assert main([FAILING, "fixtures/nets/mlp.mge", "-q", "--html", str(target)]) == 1
    return target


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A net of 1,000 operators in modules of ten, of which one is to blame."""
    b = GraphBuilder()
    x = b.input("x", 2, 3)
    for i in range(1000):
        x = b.elemwise("RELU" if i % 2 else "TANH", x)
        x.owner.name = f"net.layer{i // 10}.part{i % 10}"
    bundle = loadrun.Bundle(b.done(x))
    ids = [o.id for o in bundle.graph.oprs]
    words = {i: "agrees" if i < ids[600] else "differs" for i in ids} | {ids[600]: "to blame"}
    target = tmp_path_factory.mktemp("pages") / "g.html"
    target.write_text(page("deep", model_element(bundle, GraphMarks(words, dict.fromkeys(ids, 1e-06)))))
    return target


def test_report_at_two_widths_in_both_schemes(browser: Tab, report: Path) -> None:
    pictures = []
    for width in (1280, 400):
        for dark in (False, True):
            browser.open(report, width, dark=dark)
            assert browser.run("return document.documentElement.scrollWidth") <= width
            # Verdicts of the whole, of files and of outputs lie within the window.
            cells = "'.total, .overview td:first-child, .outputs tr:not(.said) td:nth-child(7)'"
            edges = browser.run(
                f"return [...document.querySelectorAll({cells})].map(e => e.getBoundingClientRect().right)"
            )
            assert len(edges) == 1 + 2 + 4 + 3
            assert max(edges) <= width
            told = "document.querySelectorAll('.total, .overview td, .outputs td, th, pre, summary')"
            ratios = browser.run(
                f"{CONTRAST} return [...{told}].map(e => ratio(light(getComputedStyle(e).color), back))"
            )
            assert min(ratios) >= 4.5
            pictures.append(browser.picture())
            assert pictures[-1][:4] == b"\x89PNG"
            assert int.from_bytes(pictures[-1][16:20], "big") == width
    assert len(set(pictures)) == 4


def test_report_by_its_accessibility_tree(browser: Tab, report: Path) -> None:
    browser.open(report)
    tree = browser.tree()
    assert {("heading", "What broke"), ("region", "What broke"), ("columnheader", "tolerance")} <= tree
    assert ("searchbox", "search files") in tree
    assert any(role == "link" and name == "xfail_quant_unet_minmax.mge" for role, name in tree)
    browser.run("document.querySelector('.broke a').click()")
    assert browser.run("return location.hash") == "#f0"


def test_graph_of_a_deep_net(browser: Tab, deep: Path) -> None:
    for width in (1280, 400):
        browser.open(deep, width, dark=width == 400)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        # The guilty operator is unfolded, framed, selected and in sight.
        assert browser.run("return document.querySelectorAll('.op.blamed.chosen').length") == 1
        box = "document.querySelector('.op.blamed').getBoundingClientRect()"
        plane = "document.querySelector('.plane').getBoundingClientRect()"
        assert browser.run(f"return {box}.top >= {plane}.top && {box}.bottom <= {plane}.bottom")
        assert browser.run("return document.querySelector('aside h3').textContent") == "net.layer59.part9"
    assert browser.run("return document.querySelectorAll('.op').length") < 100
    browser.run("document.querySelector('[aria-label=\"unfold all layers\"]').click()")
    # The input and the output have boxes as well.
    assert browser.run("return document.querySelectorAll('.op').length") == 1002
    assert ("button", "RELU net.layer3.part1: RELU[32] 2x3 float32") in browser.tree()


def test_graph_by_keyboard_and_search(browser: Tab, deep: Path) -> None:
    browser.open(deep)
    key = "new KeyboardEvent('keydown', {{key: '{}', bubbles: true}})"
    browser.run(f"document.querySelector('.op.blamed').dispatchEvent({key.format('ArrowDown')})")
    assert browser.run("return document.querySelector('aside h3').textContent") == "net.layer60.part0"
    find = "const f = document.querySelector('.graph input'); f.value = 'layer7.part3';"
    browser.run(f"{find} f.dispatchEvent(new Event('input')); f.dispatchEvent({key.format('Enter')})")
    assert (
        browser.run("return document.querySelector('.graph [role=status]').textContent") == "1 of 1002 found"
    )
    assert browser.run("return document.querySelector('aside h3').textContent") == "net.layer7.part3"
    browser.run("document.querySelector('[aria-label=\"fold all layers\"]').click()")
    assert browser.run("return [...document.querySelectorAll('.op, .layer')].length") == 3
    assert browser.run("return document.querySelector('.layer').getAttribute('aria-expanded')") == "false"
