"""MultiHeadAttn against recorded numbers of MegEngine 1.13 and a plain float64 formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import EngineError
from loadrun.graph.params import MultiHeadAttn, MultiHeadAttnAttnMaskType, MultiHeadAttnTensorCombinationType
from tests.support.nn_cases import load, record_of, run

CASES = load("attention")
TOLERANCE = {"float32": 3e-6, "float16": 1e-2}
Mask = MultiHeadAttnAttnMaskType
Extra = MultiHeadAttnTensorCombinationType


@pytest.mark.parametrize("name", CASES)
def test_recorded(name: str) -> None:
    case = CASES[name]
    kind, params = record_of(case)
    outs = run(kind, (params,), *case["ins"])
    tol = TOLERANCE[case["dtype"]]
    for i, (got, want) in enumerate(zip(outs, case["outs"], strict=True)):
        assert got.dtype == want.dtype
        assert got.shape == want.shape, i
        if i < 2:
            np.testing.assert_allclose(
                got.astype("f8"), want.astype("f8"), rtol=tol, atol=tol, err_msg=f"output {i}"
            )
    if "training" in name:
        n, h, (length, keys) = 2, params.num_heads, case["outs"][1].shape[1:]
        first, second = n * h * length * keys, case["outs"][0].size
        start = -(-first // 4) * 4
        assert outs[2][:first].all()
        assert outs[2][start : start + second].all()
        np.testing.assert_array_equal(outs[2][:first], case["outs"][2][:first])


def params(**changed: Any) -> MultiHeadAttn:
    given: dict[str, Any] = {"num_heads": 2, "embeding_size": 4, "k_size": 4, "v_size": 6, "training": False}
    return MultiHeadAttn(**{**given, "sm_scaler": 0.5, **changed})


def arrays(*more: tuple[int, ...], weight: int = 0, length: int = 3, keys: int = 5) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(2, length, 4), (2, keys, 4), (2, keys, 6), (weight,), *more]
    return [rng.standard_normal(s).astype("f4") for s in shapes]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_appended_rows() -> None:
    """bias_k and bias_v, then zeros, follow the projected keys and values."""
    q, k, v, w, bk, bv = arrays((1, 1, 8), (1, 1, 2), weight=4 * 8 + 4 * 8 + 6 * 2)
    p = params(
        qproj_size=8,
        kproj_size=8,
        vproj_size=2,
        add_zero_attn=True,
        tensor_combination_type=Extra.ONLY_BIASKV,
    )
    out, attn, _, _ = run("MultiHeadAttn", (p,), q, k, v, w, bk, bv)
    assert attn.shape == (4, 3, 7)
    wq, wk, wv = (
        x.reshape(s)
        for x, s in zip(np.split(w.astype("f8"), (32, 64)), ((4, 8), (4, 8), (6, 2)), strict=True)
    )
    for n in range(2):
        keys = np.concatenate([k[n] @ wk, bk[0], np.zeros((1, 8))])
        values = np.concatenate([v[n] @ wv, bv[0], np.zeros((1, 2))])
        for h in range(2):
            part = slice(4 * h, 4 * h + 4)
            want = softmax((q[n] @ wq)[:, part] @ keys[:, part].T * 0.5)
            np.testing.assert_allclose(attn[2 * n + h], want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(out[n, :, h], want @ values[:, h], rtol=1e-5, atol=1e-6)


def test_default_mask_is_causal() -> None:
    ins = arrays()
    out, attn, _, _ = run("MultiHeadAttn", (params(attn_mask_type=Mask.DEFAULT_MASK),), *ins)
    assert np.array_equal(attn[0] > 0, np.tril(np.ones((3, 5), bool)))
    causal = np.triu(np.full((3, 5), -np.inf, "f4"), 1)
    p = params(attn_mask_type=Mask.DEFAULT_MASK, tensor_combination_type=Extra.ONLY_MASK)
    given = run("MultiHeadAttn", (p,), *ins, causal)
    np.testing.assert_array_equal(given[0], out)


def test_dropout_in_training() -> None:
    ins = arrays(length=40, keys=50)
    out, attn, kept, _ = run("MultiHeadAttn", (params(training=True, attn_prob=0.25, out_prob=0.5),), *ins)
    whole = run("MultiHeadAttn", (params(),), *ins)[1]
    first = kept[: attn.size].reshape(attn.shape)
    np.testing.assert_allclose(attn, whole * first / 0.75, rtol=1e-5)
    assert abs(first.mean() - 0.75) < 0.02
    second = kept[attn.size : attn.size + out.size].reshape(out.shape)
    assert np.array_equal(second == 0, out == 0)
    assert abs(second.mean() - 0.5) < 0.05


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_arrays_without_elements(shape: tuple[int, int, int]) -> None:
    n, length, keys = shape
    ins = [
        np.ones((n, length, 4), "f4"),
        np.ones((n, keys, 4), "f4"),
        np.ones((n, keys, 6), "f4"),
        np.ones(0, "f4"),
    ]
    out, attn, _, _ = run("MultiHeadAttn", (params(),), *ins)
    assert out.shape == (n, length, 12)
    assert attn.shape == (2 * n, length, keys)


@pytest.mark.parametrize(
    ("changed", "more", "weight", "text"),
    [
        ({"num_heads": 0}, (), 0, "there must be at least one head"),
        (
            {"embeding_size": 5},
            (),
            0,
            "the parameters say 5, 4 and 6 elements: [2, 3, 4], [2, 5, 4], [2, 5, 6]",
        ),
        (
            {"qproj_size": 7, "kproj_size": 7},
            (),
            56,
            "the query projection of 7 elements cannot be divided into 2 heads",
        ),
        ({"qproj_size": 6}, (), 24, "a head has 3 elements of the query, but 4 of the key"),
        ({"oproj_size": 5}, (), 12, "the weight must have 60 elements, found 12 [12]"),
        ({"oproj_size": 2**31, "obias": True}, (), 12, "the weight must have 27917287424 elements"),
        ({"tensor_combination_type": Extra.ALL}, (), 0, "ALL takes 7 inputs, found 4"),
        ({}, ((3, 5),), 0, "NONE takes 4 inputs, found 5"),
        (
            {"tensor_combination_type": Extra.ONLY_MASK, "attn_mask_type": Mask.USER_DEFINED_MASK},
            ((5, 3),),
            0,
            "the mask must be [3, 5] or [4, 3, 5], found [5, 3]",
        ),
        ({"attn_mask_type": Mask.USER_DEFINED_MASK}, (), 0, "a user-defined mask must come as an input"),
        (
            {"tensor_combination_type": Extra.ONLY_BIASKV},
            ((1, 1, 4), (1, 1, 4)),
            0,
            "must be [1, 1, 4] and [1, 1, 6]",
        ),
    ],
)
def test_refusals(changed: dict[str, Any], more: tuple[tuple[int, ...], ...], weight: int, text: str) -> None:
    with pytest.raises(EngineError) as e:
        run("MultiHeadAttn", (params(**changed),), *arrays(*more, weight=weight))
    assert text in str(e.value)


def test_refused_shapes_and_dtypes() -> None:
    q, k, v, w = arrays()
    for bad, text in (
        ([q[:1], k, v, w], "must have one batch size"),
        ([q, k[:, 1:], v, w], "must have one length"),
        ([q[0], k, v, w], "must have 3 dimensions"),
        ([q, k.astype("f2"), v, w], "must all be Float32 or all Float16"),
    ):
        with pytest.raises(EngineError, match=text):
            run("MultiHeadAttn", (params(),), *bad)
