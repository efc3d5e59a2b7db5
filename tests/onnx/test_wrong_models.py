"""Models that ONNX forbids and ONNX Runtime refuses: a sentence names the node and what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import LoadRunError

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")

F = np.float32
IMAGE, FILTER = F(np.ones((1, 4, 4, 4))), F(np.ones((4, 1, 2, 2)))
W, R, X = F(np.ones((1, 3, 2))), F(np.ones((1, 3, 3))), F(np.ones((2, 2, 2)))
WHOLE, ZERO = np.array([4, 5]), np.array([2, 0])
BOXES, SCORES = F(np.ones((1, 2, 4))), F(np.ones((1, 1, 2)))
COUNT = np.array([2])


def run(
    op: str, inputs: list[Any], stored: tuple[int, ...], attributes: dict[str, Any], outputs: int = 1
) -> Any:
    """The outputs of a node, whose first one is what counts; `stored` says which inputs the file holds."""
    names = [f"i{i}" if v is not None else "" for i, v in enumerate(inputs)]
    feeds = {n: v for n, v in zip(names, inputs, strict=True) if n}
    node = onnx.helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    kinds = {n: onnx.helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    held = {f"i{i}" for i in stored}
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info(n, kinds[n], v.shape) for n, v in feeds.items() if n not in held],
        [onnx.ValueInfoProto(name=n) for n in node.output],
        [onnx.numpy_helper.from_array(feeds[n], n) for n in held],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    runner = loadrun.Runner(loadrun.load(model.SerializeToString()))
    return runner.run({n: v for n, v in feeds.items() if n not in held})


REFUSED: list[tuple[str, list[Any], tuple[int, ...], dict[str, Any], str]] = [
    ("DepthToSpace", [IMAGE], (), {"blocksize": 0}, "blocks of size 0"),
    ("DepthToSpace", [IMAGE[0]], (), {"blocksize": 2}, "blocks of size 2 in 3 axes"),
    ("GlobalLpPool", [IMAGE], (), {"p": 0}, "its p is 0, expected more than 0"),
    ("ReduceSum", [IMAGE], (), {"keepdims": 2}, "its keepdims is 2, expected 0 or 1"),
    ("ArgMax", [IMAGE], (), {"keepdims": -1}, "its keepdims is -1, expected 0 or 1"),
    ("Mod", [WHOLE, COUNT], (), {"fmod": 7}, "its fmod is 7, expected 0 or 1"),
    ("Mod", [WHOLE, COUNT], (), {"fmod": 1.5}, "its attribute fmod is a float, expected an integer"),
    ("Softmax", [IMAGE], (), {"axis": [1]}, "its attribute axis is integers, expected an integer"),
    (
        "Conv",
        [IMAGE, FILTER],
        (1,),
        {"group": 4, "pads": [0, 0, -1, 0]},
        "its pads are [0, 0, -1, 0], expected 4",
    ),
    ("MaxPool", [IMAGE], (), {"kernel_shape": [2, 2], "pads": [-1] * 4}, "its pads are [-1, -1, -1, -1]"),
    (
        "NonMaxSuppression",
        [BOXES, SCORES, COUNT, F([1.5])],
        (2, 3),
        {},
        "its IoU threshold is 1.5, expected 0 to 1",
    ),
    ("NonMaxSuppression", [BOXES, SCORES, COUNT, F([np.nan])], (2, 3), {}, "its IoU threshold is nan"),
    *(
        (op, [IMAGE], (), {name: v}, f"its {name} is {v}, expected a finite number")
        for op, name in (("Elu", "alpha"), ("Selu", "alpha"), ("Selu", "gamma"), ("LeakyRelu", "alpha"))
        for v in (np.inf, np.nan)
    ),
    ("STFT", [IMAGE[:, :, :, 0], np.int64(2), F(np.ones((1, 2)))], (1, 2), {}, "its window has 2 axes"),
    ("TopK", [IMAGE, -COUNT], (1,), {}, "k is -2"),
    ("RNN", [X, W, R], (1, 2), {"hidden_size": 3, "clip": 0.0}, "its clip is 0, expected more than 0"),
    *(("Div", [WHOLE, ZERO], s, {}, "whole numbers are divided by 0") for s in ((), (1,))),
    *(
        ("Mod", [WHOLE, ZERO], s, {"fmod": k}, "whole numbers are divided by 0")
        for s in ((), (1,))
        for k in (0, 1)
    ),
    *(
        ("RNN", [X, W, R, None, np.int32(n)], s, {"hidden_size": 3}, "its sequence_lens are not all 0 to 2")
        for n in ([2, 3], [-1, 1])
        for s in ((1, 2), (1, 2, 4))
    ),
    (
        "GatherND",
        [IMAGE, np.zeros((2, 1), np.int64)],
        (),
        {"batch_dims": 1},
        "its batch_dims is 1, but its first axes",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: f"{c[0]} {c[4][:30]}")
def test_refused(case: tuple[str, list[Any], tuple[int, ...], dict[str, Any], str]) -> None:
    op, inputs, stored, attributes, text = case
    with pytest.raises(LoadRunError, match=re.escape(text)) as caught:
        run(op, inputs, stored, attributes)
    assert "Error:" not in str(caught.value)


def test_thresholds_without_elements_are_left_out() -> None:
    """As ONNX Runtime 1.32 takes them: no score is too small, boxes may not overlap, none are selected."""
    none, boxes = F(np.ones(0)), F([[[0, 0, 1, 1], [0, 0, 1, 2], [4, 4, 5, 5]]])
    scores = F([[[0.1, 0.5, -0.3]]])
    got = run("NonMaxSuppression", [boxes, scores, COUNT, none, none], (2, 3, 4), {})["y0"]
    assert got.tolist() == [[0, 0, 1], [0, 0, 2]]
    got = run("NonMaxSuppression", [boxes, scores, np.ones(0, np.int64)], (2,), {})["y0"]
    assert got.shape == (0, 3)


def test_numbers_at_the_edges() -> None:
    """What is just allowed: sequences as long as the data, masks beyond the end of an axis."""
    longest = run("RNN", [X, W, R, None, np.int32([2, 0])], (1, 2), {"hidden_size": 3})["y0"]
    assert longest[1, 0, 0].all()
    assert not longest[:, 0, 1].any()
    mask = np.array([True, False, True, True])
    assert run("Compress", [F([[1, 2], [3, 4]]), mask], (), {"axis": 1})["y0"].tolist() == [[1], [3]]
