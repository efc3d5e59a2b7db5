"""Loops that stand for too many nodes are refused before a node of theirs is lowered."""

from __future__ import annotations

import pytest

import loadrun
from loadrun.base.errors import FormatError, LoadRunError

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")

BODY = "<body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w) { on = Identity (%s) w = Unknown (v) }>"


def refusal(nodes: str, stored: str = "", go: str = "go", body: str = BODY) -> LoadRunError:
    """The error of a model with loops, in which a node that cannot be lowered would be found at the first turn."""
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool p) => (y) <{stored}> {{ {nodes} }}'
    with pytest.raises(LoadRunError) as caught:
        loadrun.load(onnx.parser.parse_model(text.replace("BODY", body % go)).SerializeToString())
    return caught.value


def test_too_many_turns_are_refused_before_the_first() -> None:
    """100,000 nodes: 50,001 turns of two, or three loops of 17,000."""
    stored = "int64 n = {50001}, bool yes = {1}, int64 third = {17000}"
    loops = ["y = Loop (n, yes, x) BODY", "y = Loop (n, , x) BODY"]
    loops += ["a = Loop (third, , x) BODY b = Loop (third, , a) BODY y = Loop (third, , b) BODY"]
    for nodes in loops:
        error = refusal(nodes, stored)
        assert isinstance(error, FormatError), nodes
        assert "unrolls to more than 100000 nodes" in str(error)
    nodes = "s = Size (x) t = Mul (s, n) y = Loop (t, , x) BODY"
    assert "takes more than 4096 iterations" in str(refusal(nodes, stored))
    assert "takes more than 4096 iterations" in str(refusal("y = Loop (, yes, x) BODY", stored))


def test_turns_that_may_not_be_taken_do_not_count() -> None:
    """A condition that the body computes, and one that is false."""
    stored = "int64 n = {1000000}, bool no = {0}"
    assert "Unknown" in str(refusal("y = Loop (n, , x) BODY", stored, "p"))
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) <{stored}> {{
        y = Loop (n, no, x) {BODY % "go"} }}"""
    bundle = loadrun.load(onnx.parser.parse_model(text).SerializeToString())
    assert [v.name for v in bundle.inputs] == ["x"]
