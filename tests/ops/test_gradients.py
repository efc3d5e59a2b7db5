"""Gradients against differences of the operators that they belong to, in float64, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from loadrun.graph import Opr
from loadrun.graph import params as P
from loadrun.graph.dtypes import Array, dtype_of
from loadrun.ops.registry import Call, ShapeCall, implementation

RNG = np.random.default_rng(3)


def run(name: str, param: P.Record, *arrays: Array) -> Array:
    opr = Opr(name, (param,))
    ins = tuple(map(dtype_of, arrays))
    impl = implementation(name)
    (dtype,) = impl.dtype(opr, ins)
    (shape,) = impl.shape(ShapeCall(opr, ins, tuple(a.shape for a in arrays), (None,) * len(arrays)))
    found = impl.kernel(Call(opr, ins, (dtype,)), *arrays)
    assert found.shape == shape
    return np.asarray(found)


def slopes(f: Callable[[Array], Array], x: Array, diff: Array) -> Array:
    """Compute the gradient of ``sum(f(x) * diff)`` by differences."""
    out = np.empty(x.shape)
    for at in np.ndindex(*x.shape):
        step = np.zeros(x.shape)
        step[at] = 1e-3
        out[at] = ((f(x + step) - f(x - step)) * diff).sum() / 2e-3
    return out


def test_softmax() -> None:
    def softmax(x: Array) -> Array:
        e = np.exp(x)
        return e / e.sum(1, keepdims=True)

    x, diff = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
    found = run("SoftmaxBackward", P.Softmax(axis=1), softmax(x).astype("f4"), diff.astype("f4"))
    np.testing.assert_allclose(found, slopes(softmax, x, diff), atol=1e-5)


def test_convolution_filter() -> None:
    x, diff = RNG.normal(size=(2, 2, 5, 4)), RNG.normal(size=(2, 3, 3, 3))

    def convolved(w: Array) -> Array:
        seen = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (2, 3))
        return np.einsum("nchwij,kcij->nkhw", seen, w)

    w = RNG.normal(size=(3, 2, 3, 2))
    arrays = [a.astype("f4") for a in (x, diff, w)]
    found = run("ConvolutionBackwardFilterV2", P.Convolution(), *arrays)
    np.testing.assert_allclose(found, slopes(convolved, w, diff), atol=1e-4)


F4, I4 = "f4", "i4"


@pytest.mark.parametrize(
    ("name", "param", "arrays", "text"),
    [
        ("SoftmaxBackward", P.Softmax(axis=2), [((2, 3), F4)] * 2, "axis 2"),
        ("SoftmaxBackward", P.Softmax(), [((2, 3), "f2")] * 2, "takes Float32"),
        ("ArgsortBackward", P.Empty(), [((2, 3), F4), ((2, 4), I4), ((2, 4), F4)], "of rows"),
        ("ArgsortBackward", P.Empty(), [((2, 3), F4), ((2, 3), I4), ((2, 0), F4)], "outside an axis of 0"),
        ("IndexingRemapBackward", P.IndexingRemap(), [((3,), F4), ((3, 1), I4), ((2, 2), F4)], "a map"),
        (
            "ConvolutionBackwardFilterV2",
            P.Convolution(),
            [((1, 2, 4, 4), F4), ((1, 3, 4, 4), F4), ((3, 2, 3, 3), F4)],
            "gradient must be",
        ),
        ("PoolingBackwardV1", P.Pooling(), [((1, 1, 4, 4), F4)] * 3, "of "),
        (
            "Images2NeibsBackward",
            P.Images2Neibs(),
            [((1, 1, 2, 2, 3, 3), F4), ((1, 1, 4, 4, 1), F4)],
            "do not belong to",
        ),
        (
            "SlidingWindowTransposeBackward",
            P.SlidingWindowTranspose(out_h=4, out_w=4),
            [((1, 1, 4, 4), F4)] * 2,
            "do not belong to",
        ),
    ],
)
def test_refusals(name: str, param: P.Record, arrays: list[tuple[tuple[int, ...], str]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(name, param, *(np.zeros(shape, dtype) for shape, dtype in arrays))
