"""Gradients against differences of the operators that they belong to, in float64, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from loadrun.graph import Opr
from loadrun.graph import params as P
from loadrun.graph.dtypes import Array, DType, dtype_of
from loadrun.ops.formulas import FORMULAS
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


class Case(NamedTuple):
    """A backward operator beside its forward operator.

    Attributes:
        inputs: the forward operator's.
        order: the backward operator's inputs: of the forward operator's by number, its results as r0, r1, ..., and the
            gradients of its results as d0, d1, ...
        by: which of the forward operator's inputs each result is the gradient of.
    """

    name: str
    forward: str
    param: P.Record
    inputs: tuple[Array, ...]
    order: str
    by: tuple[int, ...]


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype("f4")


def recurrent(kind: type[P.RNN] | type[P.LSTM], layers: int, both: bool, bias: bool, **more: object) -> Case:
    ways, gates = 1 + both, 4 if kind is P.LSTM else 1
    rows = ways * 7 + (layers - 1) * ways * (ways + 1) * 3 + 2 * ways * layers * bias
    states = [normal(layers * ways, 2, 3) for _ in range(2 if kind is P.LSTM else 1)]
    inputs = (normal(4, 2, 4), *states, normal(gates * 3, rows))
    param = kind(num_layers=layers, bidirectional=both, bias=bias, hidden_size=3, **more)
    if kind is P.LSTM:
        return Case("LSTMBackward", "LSTMForward", param, inputs, "0 r0 1 2 d0 d1 d2 3 r3", (0, 1, 2, 3))
    return Case("RNNBackward", "RNNForward", param, inputs, "0 r0 1 d0 d1 2 r2", (0, 1, 2))


def attention(heads: int, size: int, mask: bool, bias: bool) -> Case:
    combination = P.MultiHeadAttnTensorCombinationType
    kind = P.MultiHeadAttnAttnMaskType
    param = P.MultiHeadAttn(
        **{f"{s}proj_size": size for s in "qkvo"},
        **{f"{s}bias": bias for s in "qkvo"},
        num_heads=heads,
        embeding_size=4,
        k_size=4,
        v_size=3,
        sm_scaler=0.5,
        training=False,
        attn_mask_type=kind.USER_DEFINED_MASK if mask else kind.DEFAULT_MASK,
        tensor_combination_type=combination.ONLY_MASK if mask else combination.NONE,
    )
    count = size * (4 + 4 + 3 + size + 4 * bias) if size else 0
    inputs = (normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 3), normal(1, count), *[normal(3, 5)] * mask)
    order = "d0 0 1 2 3 4 r1 r2 r3" if mask else "d0 0 1 2 3 r1 r2 r3"
    return Case("MultiHeadAttnBackward", "MultiHeadAttn", param, inputs, order, (0, 1, 2, 3))


def regions(mode: P.ROIAlignMode) -> Case:
    rois = np.float32([[0, 1.2, 0.7, 6.3, 5.1], [1, -3.5, -2.25, 4.5, 3.5], [0, 5, 4, 20, 30]])
    param = P.ROIAlign(
        mode=mode, spatial_scale=0.9, offset=0.3, pooled_height=2, pooled_width=3, sample_width=3
    )
    return Case("ROIAlignBackwardV1", "ROIAlignV1", param, (normal(2, 3, 7, 8), rois), "d0 0 1 r1", (0,))


def displaced(number: int, multiply: bool) -> Case:
    param = P.Correlation(kernel_size=3, max_displacement=2, stride2=2, pad_size=2, is_multiply=multiply)
    name = f"CorrelationBackwardData{number}"
    return Case(
        name, "CorrelationForward", param, (normal(2, 3, 6, 7), normal(2, 3, 6, 7)), "d0 0 1", (number - 1,)
    )


def shared(group: bool, data: bool) -> Case:
    sparse = P.Sparse.GROUP if group else P.Sparse.DENSE
    param = P.LocalShare(sparse=sparse, spatial_groups_h=2, pad_h=1, stride_w=2)
    w = normal(*((2, 2, 1, 1, 3, 3, 3) if group else (2, 1, 2, 3, 3, 6)))
    name, order = ("LocalShareBackwardDataV1", "1 d0 0") if data else ("LocalShareBackwardFilterV1", "0 d0 1")
    return Case(name, "LocalShareForwardV1", param, (normal(2, 2, 4, 7), w), order, (0 if data else 1,))


CASES = [
    *(recurrent(P.RNN, n, b, c, nonlineMode=m) for n, b, c, m in (
        (1, False, True, P.RNNCellNonlineMode.IDENTITY), (2, True, True, P.RNNCellNonlineMode.TANH),
        (2, True, False, P.RNNCellNonlineMode.RELU), (3, False, True, P.RNNCellNonlineMode.TANH))),
    *(recurrent(P.LSTM, n, b, c) for n, b, c in ((1, False, True), (2, True, True), (2, True, False))),
    *(attention(*a) for a in ((2, 4, True, True), (1, 0, True, False), (2, 4, False, False))),
    *map(regions, (P.ROIAlignMode.MAX, P.ROIAlignMode.AVERAGE)),
    *(displaced(*a) for a in product((1, 2), (True, False))),
    *(shared(*a) for a in product((False, True), (False, True))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_slopes_of_forward_formulas(case: Case) -> None:
    """Kernel and float64 formula beside central differences of the forward operator's formula."""
    opr = Opr(case.forward, (case.param,))
    kinds = tuple(map(dtype_of, case.inputs))
    wide = [a.astype("f8") if a.dtype == np.float32 else a for a in case.inputs]

    def forward(arrays: list[Array]) -> list[Array]:
        outs = FORMULAS[case.forward](Call(opr, kinds, ()), *arrays)
        return [np.asarray(a) for a in (outs if isinstance(outs, tuple) else (outs,))]

    results = forward(wide)
    diffs = [normal(*a.shape) for a in results]
    used = [int(word[1:]) for word in case.order.split() if word[0] == "d"]
    given = {**{f"r{i}": a for i, a in enumerate(results)}, **{f"d{i}": a for i, a in enumerate(diffs)}}
    given |= {str(i): a for i, a in enumerate(wide)}
    inputs = [given[word] for word in case.order.split()]
    narrow = [a.astype("f4") if a.dtype == np.float64 else a for a in inputs]
    back, impl = Opr(case.name, (case.param,)), implementation(case.name)
    back.inputs = [None] * len(inputs)  # type: ignore[list-item]
    dtypes = tuple(map(dtype_of, narrow))
    if "Attn" in case.name:
        dtypes = (*dtypes[:-2], DType("Byte"), dtypes[-1])
    outputs = tuple(impl.dtype(back, dtypes))
    kernel = impl.kernel(Call(back, dtypes, outputs), *narrow)
    formula = FORMULAS[case.name](Call(back, dtypes, outputs), *inputs)
    kernel, formula = ((a,) if isinstance(a, np.ndarray) else a for a in (kernel, formula))
    for number, i in enumerate(case.by):
        move = RNG.normal(size=case.inputs[i].shape)
        slope = 0.0
        for sign in (1, -1):
            moved = forward([a + sign * 1e-6 * move if j == i else a for j, a in enumerate(wide)])
            slope += sign * sum(float((moved[k] * diffs[k]).sum()) for k in used) / 2e-6
        for found, tolerance in ((kernel, 1e-4), (formula, 1e-6)):
            assert (found[number] * move).sum() == pytest.approx(slope, rel=tolerance, abs=tolerance)


def test_where() -> None:
    """By hand: the operator came after MegEngine 1.13.0."""
    diff, mask = np.float32([1, 2, 3]), np.uint8([1, 0, 1])
    opr = Opr("WhereBackward", (P.Empty(),))
    kinds = DType("Float32"), DType("Uint8")
    taken, other = implementation("WhereBackward").kernel(Call(opr, kinds, kinds[:1] * 2), diff, mask)
    assert (taken.tolist(), other.tolist()) == ([1, 0, 3], [0, 2, 0])


F4, I4 = "f4", "i4"


@pytest.mark.parametrize(
    ("name", "param", "arrays", "text"),
    [
        ("SoftmaxBackward", P.Softmax(axis=2), [((2, 3), F4)] * 2, "axis 2"),
        ("SoftmaxBackward", P.Softmax(), [((2, 3), F4), ((2, 3), "f2")], "one float type of MegEngine"),
        ("ArgsortBackward", P.Empty(), [((2, 3), F4), ((2, 4), I4), ((2, 4), F4)], "of rows"),
        ("ArgsortBackward", P.Empty(), [((2, 3), F4), ((2, 3), I4), ((2, 0), F4)], "outside an axis of 0"),
        ("IndexingRemapBackward", P.IndexingRemap(), [((3,), F4), ((3, 1), I4), ((2, 2), F4)], "a map"),
        (
            "ConvolutionBackwardFilterV2",
            P.Convolution(),
            [((1, 2, 4, 4), F4), ((1, 3, 4, 4), F4), ((3, 2, 3, 3), F4)],
            "input 1 must have the shape",
        ),
        ("PoolingBackwardV1", P.Pooling(), [((1, 1, 4, 4), F4)] * 3, "input 1 must have"),
        (
            "Images2NeibsBackward",
            P.Images2Neibs(),
            [((1, 1, 2, 2, 3, 3), F4), ((1, 1, 4, 5), F4)],
            "input 0 must have the shape",
        ),
        (
            "SlidingWindowTransposeBackward",
            P.SlidingWindowTranspose(out_h=4, out_w=4),
            [((1, 1, 4, 4), F4)] * 2,
            "SlidingWindowTranspose takes",
        ),
    ],
)
def test_refusals(name: str, param: P.Record, arrays: list[tuple[tuple[int, ...], str]], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(name, param, *(np.zeros(shape, dtype) for shape, dtype in arrays))


@pytest.mark.parametrize("mode", P.ROIPoolingMode)
def test_regions_that_end_before_they_begin_get_no_gradient(mode: P.ROIPoolingMode) -> None:
    """MegEngine's kernels: the operator takes the pixel (2, 3) for the second region, its gradient ignores it."""
    param = P.ROIPooling(mode=mode)
    rois = np.float32([[0, 1, 1, 1, 1], [0, 3, 2, 1, 4]])
    x, diff = np.zeros((1, 1, 5, 5), "f4"), np.float32([2, 5]).reshape(2, 1, 1, 1)
    index = np.int32([1 * 5 + 1, 2 * 5 + 3]).reshape(2, 1, 1, 1)
    want = np.zeros((1, 1, 5, 5))
    want[0, 0, 1, 1] = 2
    np.testing.assert_array_equal(run("ROIPoolingBackward", param, diff, x, rois, index), want)
    call = Call(Opr("ROIPoolingBackward", (param,)), tuple(map(dtype_of, (diff, x, rois, index))), ())
    found = FORMULAS["ROIPoolingBackward"](call, diff, x, rois, index)
    np.testing.assert_array_equal(found, want)
