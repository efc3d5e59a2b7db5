"""The noise that `loadrun pack --maxerr auto` measures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import loadrun
from loadrun.testcase import Bundle
from loadrun.verify.pack.noise import suggest
from loadrun.verify.pack.options import PackOptions
from tests.support.small_models import unary


def test_the_figures_of_the_page_are_those_of_the_command() -> None:
    """Within a factor of two, since each BLAS rounds in its own way."""
    page = Path("docs/tolerances.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+)(?:, `(\S+)`)? \| (\S+) \| (\de\S+) \|$", page, re.M)
    assert len(rows) == 6
    for net, given, noise, suggested in rows:
        data = given if given.startswith("#") else "#rand(0,1)"
        bundle = loadrun.load(f"fixtures/nets/{net}.mge")
        (feeds,) = PackOptions(input_data=(data,)).cases(bundle, print)
        found = suggest(bundle, feeds)[given if given in bundle.outputs else "out"]
        if noise == "none":
            assert (max(found.noise.values()), found.maxerr) == (0.0, float(suggested))
        else:
            assert 0.5 <= max(found.noise.values()) / float(noise) <= 2, net
            assert 0.4 <= found.maxerr / float(suggested) <= 2.5, net


def test_the_least_suggestion_follows_the_scale() -> None:
    """A moved input of 1e-5 is off by 1e-12, ten times which is 1e-11; 1e-6 would let zeros pass."""
    bundle = Bundle(unary())
    suggestion = suggest(bundle, {"x": np.full((2, 3), 1e-5, np.float32)})["y"]
    assert suggestion.maxerr == 1e-11
